// LN-LSTM, backward, all steps in one launch: the gradients of zx, of the
// states, and of N(c')'s vectors. Those of x, W, R and the other vectors follow
// for all steps at once, outside.
//
// A block holds the rows of R^T of its units as fragments. Gradients of h are
// partial sums, of which every block sends each other its part. N(h R)'s
// gradient is
//   scale (e - n m),  e = dz gamma,  n = h R scale,  m = mean(e n),
// and n R^T is known beforehand for all steps (`back`): so m goes with the
// partial sums of e R^T, and a step has two meetings, as forward.
#pragma once
#include "backward.h"

template <int U, int N, int KEPT, int FORMAT, bool CLUSTER>
__global__ void __launch_bounds__(kRows * 32, 1)
    lstm_backward(const Sequence p) {
  constexpr Shape S = backward_shape(LSTM, U, N, KEPT, FORMAT, CLUSTER);
  constexpr int wide = 4 * U;
  SHARED_MEMORY(shared);
  uint32_t* const e = reinterpret_cast<uint32_t*>(shared);
  Group<N, S.box, CLUSTER, false, kRows * N * 8,
        kRows * (S.padded * 4 + N * 4)>
      group(p, shared + S.operand + S.matrix);
  float* const parts = reinterpret_cast<float*>(group.box);
  Pair* const sums = reinterpret_cast<Pair*>(parts + kRows * S.padded);
  float* const moments = reinterpret_cast<float*>(sums + kRows * N);
  const Back<LSTM, U, N, KEPT, FORMAT, CLUSTER> back(p, group, shared);

  const int lane = threadIdx.x % 32, row = threadIdx.x / 32;
  const int unit = group.rank * S.own + lane, sample = group.first + row;
  const bool real = lane < S.own && unit < U && sample < p.batch;
  const long place = long(sample) * U + unit;

  float gamma[4];
#pragma unroll
  for (int gate = 0; gate < 4; ++gate)
    gamma[gate] = real && p.recurrent_gamma
                      ? p.recurrent_gamma[gate * U + unit]
                      : 1.0f;
  const float state_gamma = real && p.state_gamma ? p.state_gamma[unit] : 1.0f;
  const float state_beta = real && p.state_beta ? p.state_beta[unit] : 0.0f;
  float dc = real && p.d_final_c ? p.d_final_c[place] : 0.0f;
  float dh = real && p.d_final_h ? p.d_final_h[place] : 0.0f;
  float d_reset_h = 0.0f, d_reset_c = 0.0f, d_gamma = 0.0f, d_beta = 0.0f;

  struct Step {
    float zx[4], from_h[4], scale, mean_c, scale_c, c, old_c, d_h, back;
    int flags;
  };
  const auto fetch = [&](int step) {
    Step s = {};
    if (!real || step < 0) return s;
    const long at = long(sample) * p.steps + step;
    const float* const zx = p.zx + in_time(p, sample, step) * wide;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      s.zx[gate] = zx[gate * U + unit];
      s.from_h[gate] = p.from_h[at * wide + gate * U + unit];
    }
    const float* const norms = p.norms + at * 3;
    s.scale = norms[0], s.mean_c = norms[1], s.scale_c = norms[2];
    s.c = p.c[at * U + unit];
    s.flags = flags_of(p, sample, step);
    const float* const old = s.flags & kAnew ? p.reset_c : p.initial_c;
    if (!(s.flags & kAnew) && step > 0)
      s.old_c = p.c[(at - 1) * U + unit];
    else
      s.old_c = old ? old[place] : 0.0f;
    s.d_h = p.d_h ? p.d_h[at * U + unit] : 0.0f;
    s.back = p.back ? p.back[at * U + unit] : 0.0f;
    return s;
  };
  Step s = fetch(p.steps - 1);
  group.meet();

  for (int step = p.steps - 1; step >= 0; --step) {
    float v[4], n[4];
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      n[gate] = s.from_h[gate] * s.scale;
      v[gate] = s.zx[gate] + n[gate] * gamma[gate];
    }
    const float i = sigmoid(v[0]), f = sigmoid(v[1]);
    const float candidate = tanh_of(v[2]), o = sigmoid(v[3]);
    const float normal = (s.c - s.mean_c) * s.scale_c;
    const float y = tanh_of(normal * state_gamma + state_beta);
    const float old_c = s.old_c, scale = s.scale, scale_c = s.scale_c;
    const float of_m = s.back;
    const int flags = s.flags;
    dh += s.d_h;
    const bool counts = real && !(flags & kLeftOut);
    const float d_shown = counts ? dh * o * (1.0f - y * y) : 0.0f;
    const float dy = d_shown * state_gamma;
    d_beta += d_shown;
    if (counts) d_gamma += d_shown * normal;
    Pair sum{sum_over(dy), sum_over(counts ? dy * normal : 0.0f)};
    if (lane < N) group.send(0, sums + row * N + group.rank, lane, sum);
    s = fetch(step - 1);
    group.wait(0);
    sum = Pair{0.0f, 0.0f};
    if (p.state_gamma) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const Pair other = group.get(sums + row * N + k);
        sum.x += other.x, sum.y += other.y;
      }
    }
    const float d =
        dc + scale_c * (dy - (sum.x + normal * sum.y) * (1.0f / U));
    const float dz[4] = {counts ? d * candidate * i * (1.0f - i) : 0.0f,
                         counts ? d * old_c * f * (1.0f - f) : 0.0f,
                         counts ? d * i * (1.0f - candidate * candidate) : 0.0f,
                         counts ? dh * y * o * (1.0f - o) : 0.0f};
    if (counts) dc = d * f;
    float m = 0.0f;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      const float value = dz[gate] * gamma[gate];
      m += value * n[gate];
      if (lane < S.own)
        keep<FORMAT>(e + row * S.stride, gate * S.own + lane, S.low, value);
      if (real)
        p.d_zx[in_time(p, sample, step) * wide + gate * U + unit] = dz[gate];
    }
    __syncthreads();
    back.multiply(group, 1, e, parts);
    m = sum_over(m);
    if (lane < N) group.send(1, moments + row * N + group.rank, lane, m);
    group.wait(1);
    const float dot = back.sum(group, parts, row, lane);
    m = 0.0f;
#pragma unroll
    for (int k = 0; k < N; ++k) m += group.get(moments + row * N + k);
    if (counts) dh = scale * (dot - m * of_m);
    if (flags & kAnew) {
      d_reset_h += dh, d_reset_c += dc;
      dh = dc = 0.0f;
    }
  }
  if (!real) return;
  p.d_initial_h[place] = dh;
  p.d_initial_c[place] = dc;
  if (p.d_state_gamma) p.d_state_gamma[place] = d_gamma;
  if (p.d_state_beta) p.d_state_beta[place] = d_beta;
  if (p.d_reset_h) p.d_reset_h[place] = d_reset_h;
  if (p.d_reset_c) p.d_reset_c[place] = d_reset_c;
}
