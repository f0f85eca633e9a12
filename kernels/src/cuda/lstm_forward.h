// LN-LSTM, forward, all steps in one launch.
//
//   z = N(h R) + zx,  zx = N(x W) + all biases, computed before
//   c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(N(c'))
//
// A block holds the columns of R of its units in the registers of its warps, as
// fragments (and what is over in shared memory). R comes with rows of mean 0:
// the mean of h R is then 0, and its variance the mean of squares, which the
// blocks add up. A step has three meetings: after the sums of squares, after
// the moments of c', and after h', which stands then where the next product
// reads it, or, without a cluster, where each block fetches it from. To send c'
// and sigmoid(o) to all in place of moments and h' would spare a meeting, but
// what goes from block to block is what takes the time.
#pragma once
#include "group.h"

template <int U, int N, int KEPT, int FORMAT, bool CLUSTER>
__global__ void __launch_bounds__(
    forward_shape(LSTM, U, N, KEPT, FORMAT, CLUSTER).warps * 32, 1)
    lstm_forward(const Sequence p) {
  constexpr Shape S = forward_shape(LSTM, U, N, KEPT, FORMAT, CLUSTER);
  constexpr int wide = 4 * U, parts = S.warps / S.groups;
  constexpr int threads = S.warps * 32;
  SHARED_MEMORY(shared);
  uint32_t* const h = reinterpret_cast<uint32_t*>(shared);
  float* const partial = reinterpret_cast<float*>(shared + S.operand);
  char* const matrix = shared + S.operand + S.partial;
  Group<N, S.box, CLUSTER, true, kRows * S.moments * 4, kRows * S.moments * 8,
        bytes_of(FORMAT, kRows * S.padded)>
      group(p, matrix + S.matrix);
  Pair* const moments = reinterpret_cast<Pair*>(group.box);
  float* const sums = reinterpret_cast<float*>(moments + kRows * S.space);
  float* const fresh = sums + kRows * S.space;

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;  // as PTX numbers fragments
  const int of_units = warp % S.groups, part = warp / S.groups;
  const int depth = part * (S.depth / parts);
  // Of the cell that this thread computes, where it computes one.
  const bool cells = part < 2;
  const int row = 2 * t + part;
  const int eight = group.rank * S.groups + of_units;  // its warp's units
  const int unit = eight * 8 + g;
  const int sample = group.first + row;
  const bool real = cells && unit < U && sample < p.batch;
  const long place = long(sample) * U + unit;
  const long first = long(sample) * p.steps;

  // Tiles of gates (i, f) and (g, o) of 8 units.
  using R = Fragments<2, S.chunks, S.kept, FORMAT>;
  const R r(matrix + warp * R::kBytes, lane,
            [&](int tile, int column, int at) {
              const int k = depth + at, gate = 2 * tile + column / 8;
              return k < U && unit < U
                         ? p.recurrent[long(k) * wide + gate * U + unit]
                         : 0.0f;
            });
  const auto initial = [&](int b, const float* at_first, const float* anew) {
    return flags_of(p, b, 0) & kAnew ? anew : at_first;
  };
  for (int i = threadIdx.x; i < kRows * S.depth; i += threads) {
    const int at = i / S.depth, u = i % S.depth, b = group.first + at;
    const float* const from = initial(b, p.initial_h, p.reset_h);
    keep<FORMAT>(h + at * S.stride, u, S.low,
                 from && u < U && b < p.batch ? from[long(b) * U + u] : 0.0f);
  }
  float c = real && p.initial_c ? p.initial_c[place] : 0.0f;
  const float* const from = initial(sample, p.initial_h, p.reset_h);
  float old_h = real && from ? from[place] : 0.0f;
  float gamma[4], zx[4];
#pragma unroll
  for (int gate = 0; gate < 4; ++gate)
    gamma[gate] = real && p.recurrent_gamma
                      ? p.recurrent_gamma[gate * U + unit]
                      : 1.0f;
  const float state_gamma = real && p.state_gamma ? p.state_gamma[unit] : 1.0f;
  const float state_beta = real && p.state_beta ? p.state_beta[unit] : 0.0f;
  const float of_eight = 1.0f / float(unit - g < U ? units_of(eight, U) : 1);
  int now = real ? flags_of(p, sample, 0) : 0, next = 0;
  const auto fetch = [&](int step) {
    const bool there = real && step < p.steps;
    next = there ? flags_of(p, sample, step + 1) : 0;
    const float* const at = p.zx + in_time(p, sample, step) * wide + unit;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate)
      zx[gate] = there ? at[gate * U] : 0.0f;
  };
  fetch(0);
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
      group.share(0, sums + row * S.space + eight, q, g, 8);
    }
    group.wait(0);
    float scale = 1.0f, o = 0.0f;
    if (cells) {
      if (p.recurrent_gamma) {
        // The eight threads of a row and a warp have a share of the sums each.
        float q = 0.0f;
#pragma unroll
        for (int i = 0; i < S.moments; i += 8)
          if (i + g < S.moments) q += group.get(sums + row * S.space + i + g);
        scale = scale_of(sum_over(q, 4) * (1.0f / wide), 0.0f, p.epsilon);
      }
      float v[4];
#pragma unroll
      for (int gate = 0; gate < 4; ++gate)
        v[gate] = zx[gate] + z[gate] * scale * gamma[gate];
      if (now & kAnew) c = p.reset_c && real ? p.reset_c[place] : 0.0f;
      if (!(now & kLeftOut))
        c = sigmoid(v[1]) * c + sigmoid(v[0]) * tanh_of(v[2]);
      if (!real) c = 0.0f;
      o = sigmoid(v[3]);
    }
    float mean = 0.0f, scale_c = 1.0f;
    if (p.state_gamma) {
      if (cells) {
        const Pair own = moments_of(c, unit < U, of_eight);
        group.share(1, moments + row * S.space + eight, own, g, 8);
      }
      group.wait(1);
      if (cells) {
        float squares = 0.0f;
        Pair of[ceil_of(S.moments, 8)];
#pragma unroll
        for (int i = 0; i < S.moments; i += 8) {
          of[i / 8] = i + g < S.moments
                          ? group.get(moments + row * S.space + i + g)
                          : Pair{0.0f, 0.0f};
          mean += of[i / 8].x * float(units_of(i + g, U));
        }
        mean = sum_over(mean, 4) * (1.0f / U);
#pragma unroll
        for (int i = 0; i < S.moments; i += 8) {
          const float d = of[i / 8].x - mean;
          squares += of[i / 8].y + d * d * float(units_of(i + g, U));
        }
        scale_c = scale_of(sum_over(squares, 4) * (1.0f / U), mean, p.epsilon);
      }
    }
    float out = 0.0f;
    if (cells) {
      if (real && !(now & kLeftOut))
        old_h = o * tanh_of((c - mean) * scale_c * state_gamma + state_beta);
      out = old_h;
      if (next & kAnew) old_h = p.reset_h ? p.reset_h[place] : 0.0f;
      if (CLUSTER) {
        float hs[4];
        with_neighbours(old_h, lane, hs);
        keep_four<FORMAT>(
            h + row * S.stride, unit / 4 * 4, S.low, hs,
            [&](auto* at, auto bits) { group.share(2, at, bits, g % 4, 4); });
      } else {
        group.share(2, fresh + row * S.padded + unit, old_h);
      }
    }
    now = next;
    fetch(step + 1);
    if (real) {
      const long at = first + step;
      if (p.from_h) {
        p.c[at * U + unit] = c;
        float* const to = p.from_h + at * wide + unit;
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) to[gate * U] = z[gate];
        float* const norms = p.norms + at * 3;
        if (unit == 0) norms[0] = scale, norms[1] = mean, norms[2] = scale_c;
      }
      if (p.h) p.h[at * U + unit] = out;
      if (step == p.steps - 1) p.final_h[place] = out, p.final_c[place] = c;
    }
    group.wait(2);
    if (!CLUSTER) {
      for (int i = threadIdx.x; i < kRows * S.padded; i += threads)
        keep<FORMAT>(h + i / S.padded * S.stride, i % S.padded, S.low,
                     group.get(fresh + i));
      __syncthreads();
    }
  }
}
