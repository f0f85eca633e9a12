// LN-LSTM, forward, all steps in one launch.
//
//   z = N(h R) + zx,  zx = N(x W) + all biases, computed before
//   c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(N(c'))
//
// A block holds the columns of R of its units in the registers of its warps, as
// fragments (and what is over in shared memory). R comes with rows of mean 0:
// the mean of h R is then 0, and its variance the mean of squares, which the
// blocks add up. A step has two meetings: after the sums of squares, and after
// c' and o have gone to all blocks, each of which computes N(c') and h' of all
// units by itself.
#pragma once
#include "group.h"

template <int U, int N, int KEPT, int FORMAT, bool CLUSTER>
__global__ void __launch_bounds__(
    forward_shape(LSTM, U, N, KEPT, FORMAT, CLUSTER).warps * 32, 1)
    lstm_forward(const Sequence p) {
  constexpr Shape S = forward_shape(LSTM, U, N, KEPT, FORMAT, CLUSTER);
  constexpr int wide = 4 * U, UP = S.padded, parts = S.warps / S.groups;
  constexpr int threads = S.warps * 32;
  SHARED_MEMORY(shared);
  uint32_t* const h = reinterpret_cast<uint32_t*>(shared);
  float* const partial = reinterpret_cast<float*>(shared + S.operand);
  Pair* const vectors = reinterpret_cast<Pair*>(shared + S.operand + S.partial);
  char* const matrix = shared + S.operand + S.partial + S.vectors;
  Group<N, S.box, CLUSTER, true, kRows * S.moments * 4, kRows * UP * 8> group(
      p, matrix + S.matrix);
  Pair* const shown = reinterpret_cast<Pair*>(group.box);
  float* const sums = reinterpret_cast<float*>(group.box + kRows * UP * 8);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;  // as PTX numbers fragments
  const int of_units = warp % S.groups, part = warp / S.groups;
  const int depth = part * (S.depth / parts);
  // Of the cell that this thread computes, where it computes one.
  const bool cells = part < 2;
  const int row = 2 * t + part;
  const int unit = group.rank * S.own + of_units * 8 + g;
  const int sample = group.first + row;
  const bool real = cells && unit < U && sample < p.batch;
  const long place = long(sample) * U + unit;

  // Tiles of gates (i, f) and (g, o) of 8 units.
  using R = Fragments<2, S.chunks, S.kept, FORMAT>;
  const R r(matrix + warp * R::kBytes, lane,
            [&](int tile, int column, int at) {
              const int k = depth + at, gate = 2 * tile + column / 8;
              return k < U && unit < U
                         ? p.recurrent[long(k) * wide + gate * U + unit]
                         : 0.0f;
            });
  for (int i = threadIdx.x; i < kRows * S.depth; i += threads) {
    const int at = i / S.depth, u = i % S.depth, b = group.first + at;
    const float* const from =
        flags_of(p, b, 0) & kAnew ? p.reset_h : p.initial_h;
    keep<FORMAT>(h + at * S.stride, u, S.low,
                 from && u < U && b < p.batch ? from[long(b) * U + u] : 0.0f);
  }
  for (int u = threadIdx.x; u < UP; u += threads)
    vectors[u] = Pair{u < U && p.state_gamma ? p.state_gamma[u] : 1.0f,
                      u < U && p.state_beta ? p.state_beta[u] : 0.0f};
  float c = real && p.initial_c ? p.initial_c[place] : 0.0f;
  float gamma[4], zx[4];
  int flags = 0;
#pragma unroll
  for (int gate = 0; gate < 4; ++gate)
    gamma[gate] = real && p.recurrent_gamma
                      ? p.recurrent_gamma[gate * U + unit]
                      : 1.0f;
  const auto fetch = [&](int step) {
    const bool there = real && step < p.steps;
    flags = there ? flags_of(p, sample, step) : 0;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate)
      zx[gate] =
          there ? p.zx[in_time(p, sample, step) * wide + gate * U + unit]
                : 0.0f;
  };
  fetch(0);
  // Flags of the rows whose h' this warp computes: this step's and the next.
  constexpr int rows = ceil_of(kRows, S.warps);
  int now[rows], next[rows];
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    now[i] = flags_of(p, group.first + warp + i * S.warps, 0);
    next[i] = flags_of(p, group.first + warp + i * S.warps, 1);
  }
  // All blocks of a cluster must have begun before one writes into another.
  group.meet();

  for (int step = 0; step < p.steps; ++step) {
    float sum[2][2][4] = {};
    r.multiply(h + g * S.stride + words_of(FORMAT, depth), S.low, sum);
    // Registers 0 and 1 are the first gate of a tile for rows 2t and 2t + 1, 2
    // and 3 the second. A part keeps one of the two rows.
#pragma unroll
    for (int i = 0; i < 8; ++i)
      partial[(warp * 8 + i) * 32 + lane] =
          sum[i / 4][0][i % 4] + sum[i / 4][1][i % 4];
    __syncthreads();
    float z[4] = {};
    if (cells) {
#pragma unroll
      for (int gate = 0; gate < 4; ++gate)
#pragma unroll
        for (int k = 0; k < parts; ++k)
          z[gate] += partial[((k * S.groups + of_units) * 8 + gate * 2 + part) *
                                 32 +
                             lane];
      const float q =
          sum_over(z[0] * z[0] + z[1] * z[1] + z[2] * z[2] + z[3] * z[3], 4);
      group.share(0, sums + row * S.space + group.rank * S.groups + of_units, q,
                  g, 8);
    }
    group.wait(0);
    float scale = 1.0f;
    if (cells) {
      if (p.recurrent_gamma) {
        float q[4] = {};  // one would be a chain of additions
#pragma unroll
        for (int i = 0; i < S.moments; ++i)
          q[i % 4] += group.get(sums + row * S.space + i);
        scale = scale_of(((q[0] + q[1]) + (q[2] + q[3])) * (1.0f / wide), 0.0f,
                         p.epsilon);
      }
      float v[4];
#pragma unroll
      for (int gate = 0; gate < 4; ++gate)
        v[gate] = zx[gate] + z[gate] * scale * gamma[gate];
      if (flags & kAnew) c = p.reset_c ? p.reset_c[place] : 0.0f;
      if (!(flags & kLeftOut))
        c = sigmoid(v[1]) * c + sigmoid(v[0]) * tanh_of(v[2]);
      if (!real) c = 0.0f;
      float cs[2], os[2];
      with_neighbours(c, lane, cs), with_neighbours(sigmoid(v[3]), lane, os);
      group.share(1, reinterpret_cast<Quad*>(shown + row * UP + unit / 2 * 2),
                  Quad{bits_of(cs[0]), bits_of(os[0]), bits_of(cs[1]),
                       bits_of(os[1])},
                  g % 2, 2);
    }
    if (real) {
      const long at = long(sample) * p.steps + step;
      if (p.from_h) {
        p.c[at * U + unit] = c;
#pragma unroll
        for (int gate = 0; gate < 4; ++gate)
          p.from_h[at * wide + gate * U + unit] = z[gate];
        if (unit == 0) p.norms[at * 3] = scale;
      }
      if (step == p.steps - 1) p.final_c[place] = c;
    }
    fetch(step + 1);
    group.wait(1);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int at = warp + i * S.warps, b = group.first + at;
      if (at >= kRows) continue;
      constexpr int each = ceil_of(UP, 32);
      Pair pairs[each];
      float mean = 0.0f, scale_c = 1.0f;
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const int u = lane + 32 * j;
        pairs[j] = u < UP ? group.get(shown + at * UP + u) : Pair{0.0f, 0.0f};
        mean += pairs[j].x;  // 0 where there is no unit
      }
      if (p.state_gamma) {
        mean = sum_over(mean) * (1.0f / U);
        float square = 0.0f;
#pragma unroll
        for (int j = 0; j < each; ++j) {
          const float d = lane + 32 * j < U ? pairs[j].x - mean : 0.0f;
          square += d * d;
        }
        scale_c = scale_of(sum_over(square) * (1.0f / U), mean, p.epsilon);
      } else {
        mean = 0.0f;
      }
      const long of_step = long(b) * p.steps + step;
      if (p.from_h && group.rank == 0 && lane < 2 && b < p.batch)
        p.norms[of_step * 3 + 1 + lane] = lane == 0 ? mean : scale_c;
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const int u = lane + 32 * j;
        if (u >= U || b >= p.batch) continue;
        const long of_row = long(b) * U + u;
        const Pair vector = vectors[u];
        float value =
            pairs[j].y *
            tanh_of((pairs[j].x - mean) * scale_c * vector.x + vector.y);
        const bool own = u / S.own == group.rank;
        if (now[i] & kLeftOut && own) {
          // As this thread wrote it, since operands are rounded.
          const float* from = p.h ? p.h + (of_step - 1) * U + u
                                  : p.final_h + of_row;
          if (now[i] & kAnew || step == 0) {
            from = now[i] & kAnew ? p.reset_h : p.initial_h;
            from = from ? from + of_row : nullptr;
          }
          value = from ? *from : 0.0f;
        }
        if (next[i] & kAnew)
          keep<FORMAT>(h + at * S.stride, u, S.low,
                       p.reset_h ? p.reset_h[of_row] : 0.0f);
        else if (!(now[i] & kLeftOut))
          keep<FORMAT>(h + at * S.stride, u, S.low, value);
        if (own && p.h) p.h[of_step * U + u] = value;
        if (own && (!p.h || step == p.steps - 1)) p.final_h[of_row] = value;
      }
      now[i] = next[i];
      next[i] = flags_of(p, b, step + 2);
    }
    __syncthreads();
  }
}
