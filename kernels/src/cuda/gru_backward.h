// LN-GRU, backward, all steps in one launch: the gradients of zx, of what the
// reset gate multiplies, and of the states. With d the gradient of h',
//
//   dz = d (g - h) z (1 - z);  ds = d z (1 - g^2), of the candidate's sum
//   dr = ds shown r (1 - r);   dshown = ds r,  shown = N(h R_h) + bias_h
//   dh = d (1 - z) + sum over both segments of scale (e - n m) R^T,
//
// with e = (dz, dr) gamma or dshown gamma, n = h R scale and m = mean(e n). The
// scales are known beforehand, so e comes scaled to one product, and n R^T is
// `back`. Nothing else of a step needs other units: it has one meeting, and a
// box of its own, the step after the other.
#pragma once
#include "backward.h"

template <int U, int N, int KEPT, int FORMAT, bool CLUSTER>
__global__ void __launch_bounds__(kRows * 32, 1)
    gru_backward(const Sequence p) {
  constexpr Shape S = backward_shape(GRU, U, N, KEPT, FORMAT, CLUSTER);
  constexpr int wide = 3 * U;
  SHARED_MEMORY(shared);
  uint32_t* const e = reinterpret_cast<uint32_t*>(shared);
  // Steps take turns with both halves of the box, each with its gate: there is
  // one message a step, and the next may come before all have read this one.
  constexpr int bytes = kRows * (S.padded * 4 + N * 8);
  Group<N, S.box, CLUSTER, false, bytes, bytes> group(
      p, shared + S.operand + S.matrix);
  const Back<GRU, U, N, KEPT, FORMAT, CLUSTER> back(p, group, shared);

  const int lane = threadIdx.x % 32, row = threadIdx.x / 32;
  const int unit = group.rank * S.own + lane, sample = group.first + row;
  const bool real = lane < S.own && unit < U && sample < p.batch;
  const long place = long(sample) * U + unit;

  float gamma[3];
#pragma unroll
  for (int gate = 0; gate < 3; ++gate)
    gamma[gate] = real && p.recurrent_gamma
                      ? p.recurrent_gamma[gate * U + unit]
                      : 1.0f;
  float bias[3];
#pragma unroll
  for (int gate = 0; gate < 3; ++gate)
    bias[gate] =
        real && p.recurrent_bias ? p.recurrent_bias[gate * U + unit] : 0.0f;
  float dh = real && p.d_final_h ? p.d_final_h[place] : 0.0f, d_reset_h = 0.0f;

  struct Step {
    float zx[3], from_h[3], scale[2], back[2], old_h, d_h;
    int flags;
  };
  const auto fetch = [&](int step) {
    Step s = {};
    if (!real || step < 0) return s;
    const long at = long(sample) * p.steps + step;
    const float* const zx = p.zx + in_time(p, sample, step) * wide;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      s.zx[gate] = zx[gate * U + unit];
      s.from_h[gate] = p.from_h[at * wide + gate * U + unit];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      s.scale[i] = p.norms[at * 2 + i];
      s.back[i] = p.back ? p.back[(at * 2 + i) * U + unit] : 0.0f;
    }
    s.flags = flags_of(p, sample, step);
    const float* const old = s.flags & kAnew ? p.reset_h : p.initial_h;
    if (!(s.flags & kAnew) && step > 0)
      s.old_h = p.h[(at - 1) * U + unit];
    else
      s.old_h = old ? old[place] : 0.0f;
    s.d_h = p.d_h ? p.d_h[at * U + unit] : 0.0f;
    return s;
  };
  Step s = fetch(p.steps - 1);
  group.meet();

  for (int step = p.steps - 1; step >= 0; --step) {
    float* const parts =
        reinterpret_cast<float*>(group.box + step % 2 * (S.box / 2));
    Pair* const moments = reinterpret_cast<Pair*>(parts + kRows * S.padded);
    float n[3];
#pragma unroll
    for (int gate = 0; gate < 3; ++gate)
      n[gate] = s.from_h[gate] * s.scale[gate / 2];
    const float z = sigmoid(s.zx[0] + n[0] * gamma[0] + bias[0]);
    const float r = sigmoid(s.zx[1] + n[1] * gamma[1] + bias[1]);
    const float shown = n[2] * gamma[2] + bias[2];
    const float candidate = tanh_of(s.zx[2] + r * shown);
    const int flags = s.flags;
    const bool counts = real && !(flags & kLeftOut);
    dh += s.d_h;
    const float ds = counts ? dh * z * (1.0f - candidate * candidate) : 0.0f;
    const float dz[3] = {
        counts ? dh * (candidate - s.old_h) * z * (1.0f - z) : 0.0f,
        counts ? ds * shown * r * (1.0f - r) : 0.0f, counts ? ds * r : 0.0f};
    const float direct = counts ? dh * (1.0f - z) : dh;
    Pair m{0.0f, 0.0f};
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      const float value = dz[gate] * gamma[gate] * s.scale[gate / 2];
      (gate < 2 ? m.x : m.y) += value * n[gate];
      if (lane < S.own)
        keep<FORMAT>(e + row * S.stride, gate * S.own + lane, S.low, value);
    }
    __syncthreads();
    back.multiply(group, step % 2, e, parts);
    m.x = sum_over(m.x), m.y = sum_over(m.y);
    if (lane < N) group.send(step % 2, moments + row * N + group.rank, lane, m);
    const float of_m[2] = {s.back[0], s.back[1]};
    if (real) {
      float* const to = p.d_zx + in_time(p, sample, step) * wide + unit;
      to[0] = dz[0], to[U] = dz[1], to[2 * U] = ds;
      p.d_shown[(long(sample) * p.steps + step) * U + unit] = dz[2];
    }
    s = fetch(step - 1);
    group.wait(step % 2);
    const float dot = back.sum(group, parts, row, lane);
    m = Pair{0.0f, 0.0f};
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const Pair other = group.get(moments + row * N + k);
      m.x += other.x, m.y += other.y;
    }
    dh = counts ? direct + dot - m.x * of_m[0] - m.y * of_m[1] : direct;
    if (flags & kAnew) d_reset_h += dh, dh = 0.0f;
  }
  if (!real) return;
  p.d_initial_h[place] = dh;
  if (p.d_reset_h) p.d_reset_h[place] = d_reset_h;
}
