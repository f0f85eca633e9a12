// What a kernel is called with, and the sizes of its parts: for kernels and
// host alike.
#pragma once

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
#else
#include <stdint.h>
#endif

// The one parameter of each kernel. Arrays are float32, dense and row-major;
// those that a kernel does not use may be null. B rows, T steps, U units, n
// gates; a segment is what has statistics of its own: the LSTM's 4U gates, or
// the GRU's 2U gates and its U candidates, s in number.
//
// zx, flags and d_zx stand in the order of time, all else in that of visits.
struct Sequence {
  const float* zx;           // (B, T, nU), what is added to N(h R)
  const uint8_t* flags;      // (B, T), or null: 1 where a step is left out, +2
                             // where a row starts anew before it
  const float* initial_h;    // (B, U), or null for zeros, like the next three
  const float* initial_c;    // LSTM
  const float* reset_h;      // the states where a row starts anew
  const float* reset_c;      // LSTM
  const float* recurrent;    // (U, nU); where its site is normalised, each row
                             // less its mean over each segment, and zeros where
                             // it has no variance there, by scale_of's rule
  const float* recurrent_gamma;  // (nU), or null: not normalised
  const float* recurrent_bias;   // GRU: (nU), beta included, or null
  const float* state_gamma;      // LSTM: (U), or null: not normalised
  const float* state_beta;       // LSTM: (U), or null

  // Forward gives these, backward reads all but the final states.
  float* h;        // (B, T, U); LSTM's backward reads it not; or null
  float* c;        // LSTM: (B, T, U), with from_h
  float* from_h;   // (B, T, nU), h R; or null without gradients
  float* norms;    // with from_h: the scales of h R, and an LSTM's mean and
                   // scale of c': (B, T, 3), of a GRU (B, T, 2)
  float* final_h;  // (B, U)
  float* final_c;  // LSTM: (B, U)

  const float* back;  // (B, T, sU), of normalised segments: N(h R) R^T over the
                      // segment's width; or null where the site is absent
  const float* d_h;   // (B, T, U), or null for zeros, like the next two
  const float* d_final_h;  // (B, U)
  const float* d_final_c;  // LSTM: (B, U)

  float* d_zx;     // (B, T, nU)
  float* d_shown;  // GRU: (B, T, U), of what the reset gate multiplies
  float* d_state_gamma;  // LSTM: (B, U), a row's sum over its steps; or null
  float* d_state_beta;   // LSTM: likewise
  float* d_initial_h;    // (B, U)
  float* d_initial_c;    // LSTM: (B, U)
  float* d_reset_h;      // (B, U), or null where no row starts anew
  float* d_reset_c;      // LSTM: likewise

  // Of the blocks that meet at once without a cluster: Shape::box bytes for
  // each, and 128 bytes of zeros for each of their groups.
  char* exchange;
  unsigned* counters;
  int batch, steps, first_row, go_backwards;
  float epsilon;
};

// Of the matrices' operands. SPLIT: a float32 as the sum of two TF32, of whose
// products the one of both small parts is left out.
enum Format { TF32 = 0, BF16 = 1, F16 = 2, SPLIT = 3 };
enum Cell { LSTM = 0, GRU = 1 };

constexpr int ceil_of(int x, int y) { return (x + y - 1) / y; }

// The n of mma.sync. A group of `blocks` blocks takes as many rows of the batch
// through all steps, or twice as many: each fragment of R then serves two
// products.
constexpr int kRows = 8;

// At the end of a box in shared memory: up to four gates.
constexpr int kGateBytes = 32;

struct Shape {
  int rows;          // of a group
  int own, padded;   // units of a block, and of all blocks
  int warps;
  int groups;        // forward: warps side by side, the rest share the depth
  int tiles;         // of 16 rows of a warp's matrix
  int chunks, kept;  // of a warp's depth, and those of them in registers
  int depth;         // of an operand's row
  int stride, low;   // words of an operand's row, and to its small part
  int sharing;       // forward: warps of a block that have units of a row
  // Bytes, in this order in shared memory.
  int operand, partial, matrix, box, shared;
};

// A chunk is what 16 bytes of an operand's row serve.
constexpr int chunk_of(int format) {
  return format == BF16 || format == F16 ? 32 : 16;
}

constexpr int words_of(int format, int places) {
  return format == BF16 || format == F16 ? places / 2 : places;
}

// Of an operand's places, as messages.
constexpr int bytes_of(int format, int places) {
  return words_of(format, places) * (format == SPLIT ? 8 : 4);
}

// Rows are 16 banks apart: 8 threads read 128 bytes without conflicts.
constexpr Shape finished(Shape s, int kept, int format, bool cluster) {
  s.kept = kept < s.chunks ? kept : s.chunks;
  const int words = words_of(format, s.depth);
  s.stride = words + (48 - words % 32) % 32;
  s.low = format == SPLIT ? s.rows * s.stride : 0;
  s.operand = (s.rows * s.stride + s.low) * 4;
  s.matrix = s.warps * (s.chunks - s.kept) * s.tiles * 2 * 32 * 16;
  s.box = ceil_of(s.box + (cluster ? 2 * kGateBytes : 0), 128) * 128;
  s.shared = s.operand + s.partial + s.matrix + (cluster ? s.box : 0);
  return s;
}

// A warp has the gates of 8 units (LSTM) or 16 (GRU), over a part of the
// depth; there are 8 warps where units allow, and enough parts for each of the
// fragments' values to have a thread that finishes it.
constexpr Shape forward_shape(int cell, int units, int blocks, int rows,
                              int kept, int format, bool cluster) {
  Shape s = {};
  s.rows = rows;
  const int wide = cell == LSTM ? 8 : 16, least = cell == LSTM ? 2 : 4;
  s.own = ceil_of(units, wide * blocks) * wide;
  s.padded = blocks * s.own;
  s.groups = s.own / wide;
  const int parts = 8 / s.groups > least ? 8 / s.groups : least;
  s.warps = s.groups * parts;
  s.tiles = cell == LSTM ? 2 : 3;
  const int chunk = chunk_of(format);
  s.chunks = ceil_of(ceil_of(s.padded, parts), chunk);
  s.depth = parts * s.chunks * chunk;
  s.partial = rows / kRows * s.warps * s.tiles * 4 * 32 * 4;
  if (cell == LSTM) {
    s.sharing = s.groups;
    // Moments; sums; h.
    s.box = rows * (blocks * 12 + (cluster ? 0 : s.padded * 4));
  } else {
    s.sharing = s.groups * 2;
    s.box = rows * (blocks * 8 + (cluster ? 0 : s.padded * 4));  // sums; h
  }
  s.partial += rows * s.sharing * 8;  // and what these warps add up
  return finished(s, kept, format, cluster);
}

// A warp has 16 units of every 128 of the old h, and the cells of a row or two.
constexpr Shape backward_shape(int cell, int units, int blocks, int rows,
                               int kept, int format, bool cluster) {
  Shape s = {};
  s.rows = rows;
  s.own = ceil_of(units, 8 * blocks) * 8;
  s.padded = blocks * s.own;
  s.warps = 8;
  s.tiles = ceil_of(s.padded, 128);
  s.chunks = ceil_of((cell == LSTM ? 4 : 3) * s.own, chunk_of(format));
  s.depth = s.chunks * chunk_of(format);
  // Partial products; sums. The GRU's are there twice.
  s.box = cell == LSTM ? rows * (s.padded * 4 + blocks * 12)
                       : 2 * rows * (s.padded * 4 + blocks * 8);
  return finished(s, kept, format, cluster);
}
