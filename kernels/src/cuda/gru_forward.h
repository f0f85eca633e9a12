// LN-GRU, forward, all steps in one launch.
//
//   [z r] = N(h R_zr) + zx_zr + bias_zr
//   g     = tanh(zx_h + sigmoid(r) (N(h R_h) + bias_h))
//   h'    = (1 - sigmoid(z)) h + sigmoid(z) g
//
// As lstm_forward; a warp has the three gates of 16 units. R comes with rows
// of mean 0, over the 2U gates and over the U candidates. After the second
// meeting h' is where the next product reads it, or, without a cluster, where
// each block fetches it from.
#pragma once
#include "group.h"

template <int U, int N, int KEPT, int FORMAT, bool CLUSTER>
__global__ void __launch_bounds__(
    forward_shape(GRU, U, N, KEPT, FORMAT, CLUSTER).warps * 32, 1)
    gru_forward(const Sequence p) {
  constexpr Shape S = forward_shape(GRU, U, N, KEPT, FORMAT, CLUSTER);
  constexpr int wide = 3 * U, parts = S.warps / S.groups;
  constexpr int threads = S.warps * 32;
  SHARED_MEMORY(shared);
  uint32_t* const h = reinterpret_cast<uint32_t*>(shared);
  float* const partial = reinterpret_cast<float*>(shared + S.operand);
  char* const matrix = shared + S.operand + S.partial;
  Group<N, S.box, CLUSTER, true, kRows * S.moments * 8,
        bytes_of(FORMAT, kRows * S.padded)>
      group(p, matrix + S.matrix);
  Pair* const sums = reinterpret_cast<Pair*>(group.box);
  float* const fresh = reinterpret_cast<float*>(sums + kRows * S.space);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;
  const int of_units = warp % S.groups, part = warp / S.groups;
  const int depth = part * (S.depth / parts);
  const int first = group.rank * S.own + of_units * 16;  // the warp's units
  const bool cells = part < 4;
  const int row = 2 * t + part % 2, unit = first + part / 2 * 8 + g;
  const int sample = group.first + row;
  const bool real = cells && unit < U && sample < p.batch;
  const long place = long(sample) * U + unit;

  using R = Fragments<3, S.chunks, S.kept, FORMAT>;
  const R r(matrix + warp * R::kBytes, lane,
            [&](int gate, int of_warp, int at) {
              const int k = depth + at, u = first + of_warp;
              return k < U && u < U ? p.recurrent[long(k) * wide + gate * U + u]
                                    : 0.0f;
            });
  const auto initial = [&](int b) {
    return flags_of(p, b, 0) & kAnew ? p.reset_h : p.initial_h;
  };
  for (int i = threadIdx.x; i < kRows * S.depth; i += threads) {
    const int at = i / S.depth, u = i % S.depth, b = group.first + at;
    const float* const from = initial(b);
    keep<FORMAT>(h + at * S.stride, u, S.low,
                 from && u < U && b < p.batch ? from[long(b) * U + u] : 0.0f);
  }
  float old_h = 0.0f;
  if (real && initial(sample)) old_h = initial(sample)[place];
  float gamma[3], bias[3], zx[3];
#pragma unroll
  for (int gate = 0; gate < 3; ++gate) {
    const int at = gate * U + unit;
    gamma[gate] = real && p.recurrent_gamma ? p.recurrent_gamma[at] : 1.0f;
    bias[gate] = real && p.recurrent_bias ? p.recurrent_bias[at] : 0.0f;
  }
  int now = real ? flags_of(p, sample, 0) : 0, next = 0;
  const auto fetch = [&](int step) {
    const bool there = real && step < p.steps;
    next = there ? flags_of(p, sample, step + 1) : 0;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate)
      zx[gate] =
          there ? p.zx[in_time(p, sample, step) * wide + gate * U + unit]
                : 0.0f;
  };
  fetch(0);
  group.meet();

  for (int step = 0; step < p.steps; ++step) {
    float sum[3][2][4] = {};
    r.multiply(h + g * S.stride + words_of(FORMAT, depth), S.low, sum);
#pragma unroll
    for (int i = 0; i < 12; ++i)
      partial[(warp * 12 + i) * 32 + lane] =
          sum[i / 4][0][i % 4] + sum[i / 4][1][i % 4];
    __syncthreads();
    float z[3] = {};
    if (cells) {
#pragma unroll
      for (int gate = 0; gate < 3; ++gate)
#pragma unroll
        for (int k = 0; k < parts; ++k)
          z[gate] +=
              partial[((k * S.groups + of_units) * 12 + gate * 4 + part) * 32 +
                      lane];
      const Pair q{sum_over(z[0] * z[0] + z[1] * z[1], 4),
                   sum_over(z[2] * z[2], 4)};
      group.share(0,
                  sums + row * S.space +
                      (group.rank * S.groups + of_units) * 2 + part / 2,
                  q, g, 8);
    }
    group.wait(0);
    float out = 0.0f;
    Pair scale{1.0f, 1.0f};
    if (cells) {
      if (p.recurrent_gamma) {
        // The eight threads of a row and a warp have a share of the sums each.
        Pair q{0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < S.moments; i += 8) {
          if (i + g >= S.moments) continue;
          const Pair from = group.get(sums + row * S.space + i + g);
          q.x += from.x, q.y += from.y;
        }
        q = Pair{sum_over(q.x, 4), sum_over(q.y, 4)};
        scale.x = scale_of(q.x * (0.5f / U), 0.0f, p.epsilon);
        scale.y = scale_of(q.y * (1.0f / U), 0.0f, p.epsilon);
      }
      const float update =
          sigmoid(zx[0] + z[0] * scale.x * gamma[0] + bias[0]);
      const float reset = sigmoid(zx[1] + z[1] * scale.x * gamma[1] + bias[1]);
      const float candidate = tanh_of(
          zx[2] + reset * (z[2] * scale.y * gamma[2] + bias[2]));
      if (real && !(now & kLeftOut))
        old_h = (1.0f - update) * old_h + update * candidate;
      out = old_h;
      if (next & kAnew) old_h = p.reset_h ? p.reset_h[place] : 0.0f;
      if (CLUSTER) {
        float hs[4];
        with_neighbours(old_h, lane, hs);
        keep_four<FORMAT>(
            h + row * S.stride, unit / 4 * 4, S.low, hs,
            [&](auto* at, auto bits) { group.share(1, at, bits, g % 4, 4); });
      } else {
        group.share(1, fresh + row * S.padded + unit, old_h);
      }
    }
    if (real) {
      const long at = long(sample) * p.steps + step;
      if (p.h) p.h[at * U + unit] = out;
      if (step == p.steps - 1) p.final_h[place] = out;
      if (p.from_h) {
#pragma unroll
        for (int gate = 0; gate < 3; ++gate)
          p.from_h[at * wide + gate * U + unit] = z[gate];
        if (unit == 0) p.norms[at * 2] = scale.x, p.norms[at * 2 + 1] = scale.y;
      }
    }
    now = next;
    fetch(step + 1);
    group.wait(1);
    if (!CLUSTER) {
      for (int i = threadIdx.x; i < kRows * S.padded; i += threads)
        keep<FORMAT>(h + i / S.padded * S.stride, i % S.padded, S.low,
                     group.get(fresh + i));
      __syncthreads();
    }
  }
}
