// What both cells' forward share: h, of which every block has all units as the
// operand of the next product.
#pragma once
#include "group.h"

template <int CELL, int U, int N, int ROWS, int KEPT, int FORMAT, bool CLUSTER>
class Shown {
  static constexpr Shape S =
      forward_shape(CELL, U, N, ROWS, KEPT, FORMAT, CLUSTER);

 public:
  // `fresh` is where h comes without a cluster.
  INLINE Shown(const Sequence& p, int first_row, char* shared, float* fresh)
      : words_(reinterpret_cast<uint32_t*>(shared)), fresh_(fresh) {
    for (int i = threadIdx.x; i < ROWS * S.depth; i += S.warps * 32) {
      const int row = i / S.depth, u = i % S.depth, b = first_row + row;
      const float* const from = initial(p, b);
      keep<FORMAT>(words_ + row * S.stride, u, S.low,
                   from && u < U && b < p.batch ? from[long(b) * U + u] : 0.0f);
    }
  }

  // The states that a row begins with.
  static INLINE const float* initial(const Sequence& p, int b) {
    return flags_of(p, b, 0) & kAnew ? p.reset_h : p.initial_h;
  }

  // The operand of a row from a place of the depth on.
  INLINE const uint32_t* at(int row, int depth) const {
    return words_ + row * S.stride + words_of(FORMAT, depth);
  }

  // To all blocks through a gate, by all lanes of a warp.
  template <class Group>
  INLINE void send(const Group& group, int gate, int row, int unit,
                   float h) const {
    const int lane = threadIdx.x % 32;
    if (CLUSTER) {
      float hs[4];
      with_neighbours(h, lane, hs);
      keep_four<FORMAT>(words_ + row * S.stride, unit / 4 * 4, S.low, hs,
                        [&](auto* at, auto bits) {
                          group.share(gate, at, bits, lane / 4 % 4, 4);
                        });
    } else {
      group.share(gate, fresh_ + row * S.padded + unit, h);
    }
  }

  // Once that gate is open.
  template <class Group>
  INLINE void receive(const Group& group) const {
    if (CLUSTER) return;
    for (int i = threadIdx.x; i < ROWS * S.padded; i += S.warps * 32)
      keep<FORMAT>(words_ + i / S.padded * S.stride, i % S.padded, S.low,
                   group.get(fresh_ + i));
    __syncthreads();
  }

 private:
  uint32_t* const words_;
  float* const fresh_;
};
