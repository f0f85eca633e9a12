// A warp's part of a matrix as fragments of mma.sync, and operands for it.
#pragma once
#include "primitives.h"

// TILES of 16 rows by CHUNKS of the depth: the first KEPT chunks in registers,
// others in shared memory. A chunk is 2 products; a thread's four places of the
// depth in it lie side by side in the other operand's row.
template <int TILES, int CHUNKS, int KEPT, int FORMAT>
class Fragments {
 public:
  static constexpr int kBytes = (CHUNKS - KEPT) * TILES * 2 * 32 * 16;

  // element(tile, row of the tile, place of the depth).
  template <class Element>
  INLINE Fragments(char* shared, int lane, Element element)
      : rest_(reinterpret_cast<Quad*>(shared) + lane), t_(lane % 4) {
    const auto bits = [&](int chunk, int tile, int product, int i) {
      const int row = lane / 4 + i % 2 * 8, place = 2 * product + i / 2;
      if (FORMAT == BF16 || FORMAT == F16) {
        const int k = chunk * 32 + 8 * t_ + 2 * place;
        return to_half<FORMAT>(element(tile, row, k)) |
               to_half<FORMAT>(element(tile, row, k + 1)) << 16;
      }
      const float x = element(tile, row, chunk * 16 + 4 * t_ + place);
      return FORMAT == SPLIT ? bits_of(x) : to_tf32(x);
    };
#pragma unroll
    for (int chunk = 0; chunk < KEPT; ++chunk)
#pragma unroll
      for (int j = 0; j < TILES * 8; ++j)
        kept_[chunk][j / 8][j / 4 % 2][j % 4] =
            bits(chunk, j / 8, j / 4 % 2, j % 4);
    for (int chunk = KEPT; chunk < CHUNKS; ++chunk)
#pragma unroll
      for (int j = 0; j < TILES * 2; ++j)
        rest_[((chunk - KEPT) * TILES * 2 + j) * 32] =
            Quad{bits(chunk, j / 2, j % 2, 0), bits(chunk, j / 2, j % 2, 1),
                 bits(chunk, j / 2, j % 2, 2), bits(chunk, j / 2, j % 2, 3)};
  }

  // sum += the part times `row`, that of this thread's column, from shared
  // memory, and `low` words on its small part; of two columns the second is
  // `second` words on. Two sums a tile, since products of one wait for each
  // other: for each column one, or of a single column those of either product.
  template <int COLUMNS>
  INLINE void multiply(const uint32_t* row, int low, int second,
                       float (&sum)[TILES][2][4]) const {
#pragma unroll
    for (int chunk = 0; chunk < KEPT; ++chunk) {
      const Operand<COLUMNS> b(row + chunk * 16 + 4 * t_, low, second);
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
        both(sum[tile], kept_[chunk][tile][0], kept_[chunk][tile][1], b);
    }
#pragma unroll 2
    for (int chunk = KEPT; chunk < CHUNKS; ++chunk) {
      const Operand<COLUMNS> b(row + chunk * 16 + 4 * t_, low, second);
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        const Quad* const from =
            rest_ + ((chunk - KEPT) * TILES + tile) * 2 * 32;
        const Quad x = from[0], y = from[32];
        both(sum[tile], {x.x, x.y, x.z, x.w}, {y.x, y.y, y.z, y.w}, b);
      }
    }
  }

 private:
  // Of a chunk, for both of its products.
  template <int COLUMNS>
  struct Operand {
    INLINE Operand(const uint32_t* from, int low, int second) {
#pragma unroll
      for (int i = 0; i < COLUMNS; ++i) {
        const Quad x = *reinterpret_cast<const Quad*>(from + i * second);
        const Quad y = *reinterpret_cast<const Quad*>(from + i * second + low);
        const uint32_t xs[4] = {x.x, x.y, x.z, x.w};
        const uint32_t ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
          whole[i][j / 2][j % 2] = xs[j], small[i][j / 2][j % 2] = ys[j];
      }
    }
    uint32_t whole[COLUMNS][2][2], small[COLUMNS][2][2];
  };
  template <int COLUMNS>
  static INLINE void both(float (&sum)[2][4], const uint32_t (&x)[4],
                          const uint32_t (&y)[4], const Operand<COLUMNS>& b) {
    add<0>(sum, x, b);
    add<1>(sum, y, b);
  }
  template <int PRODUCT, int COLUMNS>
  static INLINE void add(float (&sum)[2][4], const uint32_t (&x)[4],
                         const Operand<COLUMNS>& b) {
    constexpr int first = COLUMNS == 1 ? PRODUCT : 0;
    uint32_t high[4], low[4];
    if (FORMAT == SPLIT) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        high[i] = cut_to_tf32(x[i]);
        low[i] = bits_of(float_of(x[i]) - float_of(high[i]));
      }
    }
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
      const auto& whole = b.whole[i][PRODUCT];
      if (FORMAT == BF16 || FORMAT == F16) {
        mma_half<FORMAT>(sum[first + i], x, whole);
      } else if (FORMAT == TF32) {
        mma_tf32(sum[first + i], x, whole);
      } else {
        mma_tf32(sum[first + i], low, whole);
        mma_tf32(sum[first + i], high, b.small[i][PRODUCT]);
        mma_tf32(sum[first + i], high, whole);
      }
    }
  }

  uint32_t kept_[KEPT > 0 ? KEPT : 1][TILES][2][4];
  Quad* rest_;
  int t_;
};

// A value as an operand: its word or half word, and its small part `low` words
// on.
template <int FORMAT>
INLINE void keep(uint32_t* row, int place, int low, float value) {
  if (FORMAT == BF16 || FORMAT == F16) {
    reinterpret_cast<uint16_t*>(row)[place] = uint16_t(to_half<FORMAT>(value));
  } else {
    const uint32_t high = to_tf32(value);
    row[place] = high;
    if (FORMAT == SPLIT) row[place + low] = to_tf32(value - float_of(high));
  }
}

// The same of four places from a multiple of four on; `store(at, bits)` writes.
template <int FORMAT, class Store>
INLINE void keep_four(uint32_t* row, int place, int low, const float (&x)[4],
                      Store store) {
  if (FORMAT == BF16 || FORMAT == F16) {
    uint32_t bits[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      bits[i] = to_half<FORMAT>(x[2 * i]) | to_half<FORMAT>(x[2 * i + 1]) << 16;
    store(reinterpret_cast<Pair*>(row + place / 2),
          Pair{float_of(bits[0]), float_of(bits[1])});
  } else {
    const Quad high{to_tf32(x[0]), to_tf32(x[1]), to_tf32(x[2]), to_tf32(x[3])};
    store(reinterpret_cast<Quad*>(row + place), high);
    if (FORMAT == SPLIT)
      store(reinterpret_cast<Quad*>(row + place + low),
            Quad{to_tf32(x[0] - float_of(high.x)),
                 to_tf32(x[1] - float_of(high.y)),
                 to_tf32(x[2] - float_of(high.z)),
                 to_tf32(x[3] - float_of(high.w))});
  }
}
