// What both cells' backward share: the product with R^T, shared out by the
// block's columns of R, so that each block has partial sums for all units.
#pragma once
#include "group.h"

template <int CELL, int U, int N, int ROWS, int KEPT, int FORMAT, bool CLUSTER>
class Back {
  static constexpr Shape S =
      backward_shape(CELL, U, N, ROWS, KEPT, FORMAT, CLUSTER);
  static constexpr int kEach = ROWS / kRows;  // rows of a warp, side by side
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
    r_.template multiply<kEach>(e + g * S.stride, S.low, kRows * S.stride,
                                product);
#pragma unroll
    for (int tile = 0; tile < S.tiles; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // 8 units of one receiver, as S.own is a multiple of 8.
        const int u = (warp_ + tile * S.warps) * 16 + half * 8 + g;
        if (u / S.own >= N) continue;
        const auto (&sum)[2][4] = product[tile];
        const int i = half * 2;
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          const Pair pair{kEach == 1 ? sum[0][i] + sum[1][i] : sum[k][i],
                          kEach == 1 ? sum[0][i + 1] + sum[1][i + 1]
                                     : sum[k][i + 1]};
          group.send(
              gate,
              reinterpret_cast<Pair*>(parts + group.rank * S.own * ROWS +
                                      turned(u % S.own, t + k * 4)),
              u / S.own, pair);
        }
      }
  }
  // The sums of what all blocks sent, for the warp's rows and one of this
  // block's units.
  template <class Group>
  INLINE void sum(const Group& group, const float* parts, int unit,
                  float (&dot)[kEach]) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) dot[i] = 0.0f;
    if (unit >= S.own) return;
    const float* const from =
        parts + turned(unit, warp_ * kEach / 2) + warp_ * kEach % 2;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float* const of_block = from + k * S.own * ROWS;
      if (kEach == 1) {
        dot[0] += group.get(of_block);
      } else {
        const Pair pair = group.get(reinterpret_cast<const Pair*>(of_block));
        dot[0] += pair.x, dot[kEach - 1] += pair.y;
      }
    }
  }

 private:
  // Two rows of a unit of `parts`: turned, or 8 lanes would read one bank.
  static INLINE int turned(int unit, int pair) {
    return unit * ROWS + 2 * ((pair + unit / (32 / ROWS)) % (ROWS / 2));
  }

  const int lane_, warp_;
  const R r_;
};
