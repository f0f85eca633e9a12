// What both cells' backward share: the product with R^T, shared out by the
// block's columns of R, so that each block has partial sums for all units.
#pragma once
#include "group.h"

template <int CELL, int U, int N, int KEPT, int FORMAT, bool CLUSTER>
class Back {
  static constexpr Shape S =
      backward_shape(CELL, U, N, KEPT, FORMAT, CLUSTER);
  static constexpr int kGates = CELL == LSTM ? 4 : 3;
  using R = Fragments<S.tiles, S.chunks, S.kept, FORMAT>;
  static_assert(N <= 32 && S.own <= 32, "");

 public:
  // Tiles of 16 units of the old h by the depth, gate by gate; and zeros in the
  // operand, for places that there is no gate for.
  template <class Group>
  INLINE Back(const Sequence& p, const Group& group, char* shared)
      : lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        r_(shared + S.operand + warp_ * R::kBytes, lane_,
           [&](int tile, int of_tile, int k) {
             const int old = (warp_ + tile * S.warps) * 16 + of_tile;
             const int unit = group.rank * S.own + k % S.own;
             return old < U && unit < U && k / S.own < kGates
                        ? p.recurrent[long(old) * (kGates * U) +
                                      k / S.own * U + unit]
                        : 0.0f;
           }) {
    uint32_t* const e = reinterpret_cast<uint32_t*>(shared);
    for (int i = threadIdx.x; i < S.operand / 4; i += S.warps * 32) e[i] = 0;
  }

  // Sends each block what of e R^T belongs to its units, into its `parts`.
  template <class Group>
  INLINE void multiply(const Group& group, int gate, const uint32_t* e,
                       float* parts) const {
    const int g = lane_ / 4, t = lane_ % 4;
    float product[S.tiles][2][4] = {};
    r_.multiply(e + g * S.stride, S.low, product);
#pragma unroll
    for (int tile = 0; tile < S.tiles; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // 8 units of one receiver, as S.own is a multiple of 8.
        const int u = (warp_ + tile * S.warps) * 16 + half * 8 + g;
        if (u / S.own >= N) continue;
        const auto (&both)[2][4] = product[tile];
        const Pair pair{both[0][half * 2] + both[1][half * 2],
                        both[0][half * 2 + 1] + both[1][half * 2 + 1]};
        group.send(gate,
                   reinterpret_cast<Pair*>(parts + group.rank * S.own * kRows +
                                           turned(u % S.own, t)),
                   u / S.own, pair);
      }
  }
  // The sum of what all blocks sent, for a row and one of this block's units.
  template <class Group>
  INLINE float sum(const Group& group, const float* parts, int row,
                   int unit) const {
    float dot = 0.0f;
    if (unit >= S.own) return dot;
#pragma unroll
    for (int k = 0; k < N; ++k)
      dot += group.get(parts + k * S.own * kRows + turned(unit, row / 2) +
                       row % 2);
    return dot;
  }

 private:
  // Two rows of a unit of `parts`: turned, or 8 lanes would read one bank.
  static INLINE int turned(int unit, int pair) {
    return unit * kRows + 2 * ((pair + unit / 4) % 4);
  }

  const int lane_, warp_;
  const R r_;
};
