// The blocks that share rows: a thread block cluster, which writes into each
// other's shared memory, or blocks that meet in global memory.
#pragma once
#include "fragments.h"

// A box of BYTES is where a block receives. Without clusters, there is one for
// all of a group where COMMON, or one for each block.
//
// What is sent goes through a gate, which opens when THROUGH, its number of
// bytes, has come. Nothing else holds blocks together, so what was sent may be
// written over only after a later message shows that all have read it. Without
// a cluster, to wait at a gate is to wait for all.
template <int N, int BYTES, bool CLUSTER, bool COMMON, int... THROUGH>
class Group {
 public:
  INLINE Group(const Sequence& p, char* shared, int rows = kRows)
      : rank(CLUSTER ? int(block_of_cluster()) : int(blockIdx.x) % N),
        first(p.first_row + int(blockIdx.x) / N * rows),
        counter_(p.counters + int(blockIdx.x) / N * 32) {
    const long of_all = long(blockIdx.x) / N;
    box = CLUSTER ? shared
                  : p.exchange + (COMMON ? of_all : of_all * N + rank) * BYTES;
    gates_ = reinterpret_cast<Gate*>(shared + BYTES - kGateBytes);
    for (int gate = 0; gate < int(sizeof...(THROUGH)); ++gate)
      if (CLUSTER && threadIdx.x == 0)
        gate_init(gates_ + gate), expect(gate);
  }

  // Writes into the box of another block what in this block's would be `at`.
  template <class T>
  INLINE void send(int gate, T* at, int other, T value) const {
    if (CLUSTER)
      store_to(at, unsigned(other), value, gates_ + gate);
    else
      *reinterpret_cast<T*>(reinterpret_cast<char*>(at) +
                            (COMMON ? 0L : long(other - rank) * BYTES)) = value;
  }
  // Into every box; of `of` threads that have the same value this is number i.
  template <class T>
  INLINE void share(int gate, T* at, T value, int i = 0, int of = 1) const {
    if (CLUSTER) {
#pragma unroll
      for (int k = 0; k < N; k += of)
        if (k + i < N)
          store_to(at, unsigned(k + i + rank) % N, value, gates_ + gate);
    } else if (i == 0) {
      *at = value;
    }
  }
  template <class T>
  INLINE T get(const T* from) const {
    return CLUSTER ? *from : load_fresh(from);
  }

  // All blocks have begun. Then all threads of a block wait at the gates, the
  // same way, until what all blocks send through has come.
  INLINE void meet() {
    if (CLUSTER)
      cluster_sync();
    else
      grid_sync(counter_, seen_, N);
  }
  INLINE void wait(int gate) {
    if (!CLUSTER) return grid_sync(counter_, seen_, N);
    gate_wait(gates_ + gate, opened_ >> gate & 1);
    opened_ ^= 1u << gate;
    if (threadIdx.x == 0) expect(gate);
  }

  const int rank, first;  // first: row of the batch
  char* box;

 private:
  INLINE void expect(int gate) const {
    // No array of them: that would be in local memory.
    int bytes = 0, i = 0;
    ((bytes = i++ == gate ? THROUGH : bytes), ...);
    gate_expect(gates_ + gate, bytes);
  }

  unsigned* const counter_;
  Gate* gates_;
  unsigned seen_ = 0, opened_ = 0;
};

// This thread's value among those of the lanes that differ in bits 4, 8, ...:
// units that stand side by side go as one message.
template <int COUNT>
INLINE void with_neighbours(float x, int lane, float (&all)[COUNT]) {
  all[0] = x;
#pragma unroll
  for (int have = 1; have < COUNT; have *= 2)
#pragma unroll
    for (int i = 0; i < have; ++i) {
      const float other = __shfl_xor_sync(~0u, all[i], 4 * have);
      const bool later = lane & 4 * have;
      all[i + have] = later ? all[i] : other;
      all[i] = later ? other : all[i];
    }
}

// Which flags a visited step has: 0 where there is no such step.
INLINE int flags_of(const Sequence& p, int row, int step) {
  if (!p.flags || row >= p.batch || step < 0 || step >= p.steps) return 0;
  return p.flags[long(row) * p.steps +
                 (p.go_backwards ? p.steps - 1 - step : step)];
}
enum { kLeftOut = 1, kAnew = 2 };

// Where the row's step stands in arrays in the order of time.
INLINE long in_time(const Sequence& p, int row, int step) {
  return long(row) * p.steps + (p.go_backwards ? p.steps - 1 - step : step);
}

// A row without variance is not scaled: the one rule, with u the unit roundoff
// of float32, for c' and for h R, whose mean was taken from R beforehand.
INLINE float scale_of(float variance, float mean, float epsilon) {
  constexpr float few = 16.0f / (1 << 24);
  return variance <= few * few * mean * mean ? 1.0f  // not of a NaN
                                             : inverse_root(variance + epsilon);
}

// Sums over the lanes that differ in the bits `from`, 2 `from`, ... 16: of rows
// at a time, so that one does not wait for another.
template <int K>
INLINE void sum_over(float (&x)[K], int from = 1) {
#pragma unroll
  for (int bit = from; bit < 32; bit *= 2)
#pragma unroll
    for (int k = 0; k < K; ++k) x[k] += __shfl_xor_sync(~0u, x[k], bit);
}

// How many units of the `i`-th `wide` there are.
INLINE int units_of(int i, int units, int wide) {
  const int left = units - i * wide;
  return left < 0 ? 0 : left < wide ? left : wide;
}
// The means of rows' units of a warp, and their squares about them. Each of the
// lanes has one, or 0 where it is not `there`; `share` is 1 / their number.
template <int K>
INLINE void moments_of(const float (&x)[K], bool there, float share,
                       float (&mean)[K], float (&squares)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) mean[k] = x[k];
  sum_over(mean, 4);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    mean[k] *= share;
    const float d = there ? x[k] - mean[k] : 0.0f;
    squares[k] = d * d;
  }
  sum_over(squares, 4);
}
// As those of a block's warps, of eight units each, become those of the block.
template <int WARPS>
INLINE Pair moments_of_block(const Pair* of, int block, int units) {
  float mean = 0.0f, squares = 0.0f;
#pragma unroll
  for (int k = 0; k < WARPS; ++k)
    mean += of[k].x * float(units_of(block * WARPS + k, units, 8));
  const int count = units_of(block, units, 8 * WARPS);
  mean *= 1.0f / float(count ? count : 1);
#pragma unroll
  for (int k = 0; k < WARPS; ++k) {
    const float d = of[k].x - mean;
    squares += of[k].y + d * d * float(units_of(block * WARPS + k, units, 8));
  }
  return Pair{mean, squares};
}
