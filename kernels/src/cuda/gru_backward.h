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

template <int U, int N, int ROWS, int KEPT, int FORMAT, bool CLUSTER>
__global__ void __launch_bounds__(
    backward_shape(GRU, U, N, ROWS, KEPT, FORMAT, CLUSTER).warps * 32, 1)
    gru_backward(const Sequence p) {
  constexpr Shape S = backward_shape(GRU, U, N, ROWS, KEPT, FORMAT, CLUSTER);
  constexpr int wide = 3 * U, each = ROWS / kRows;
  SHARED_MEMORY(shared);
  uint32_t* const e = reinterpret_cast<uint32_t*>(shared);
  // Steps take turns with both halves of the box, each with its gate: there is
  // one message a step, and the next may come before all have read this one.
  constexpr int bytes = ROWS * (S.padded * 4 + N * 8);
  Group<N, S.box, CLUSTER, false, bytes, bytes> group(
      p, shared + S.operand + S.matrix, ROWS);
  const Back<GRU, U, N, ROWS, KEPT, FORMAT, CLUSTER> back(p, group, shared);

  // A warp has the cells of a row, or of two.
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * each;
  const int unit = group.rank * S.own + lane;
  const bool own_unit = lane < S.own && unit < U;
  const auto sample = [&](int r) { return group.first + row + r; };
  const auto real = [&](int r) { return own_unit && sample(r) < p.batch; };
  const auto place = [&](int r) { return long(sample(r)) * U + unit; };

  float gamma[3];
#pragma unroll
  for (int gate = 0; gate < 3; ++gate)
    gamma[gate] = own_unit && p.recurrent_gamma
                      ? p.recurrent_gamma[gate * U + unit]
                      : 1.0f;
  float bias[3];
#pragma unroll
  for (int gate = 0; gate < 3; ++gate)
    bias[gate] =
        own_unit && p.recurrent_bias ? p.recurrent_bias[gate * U + unit] : 0.0f;
  float dh[each], d_reset_h[each] = {};
#pragma unroll
  for (int r = 0; r < each; ++r)
    dh[r] = real(r) && p.d_final_h ? p.d_final_h[place(r)] : 0.0f;

  struct Step {
    float zx[3], from_h[3], scale[2], back[2], old_h, d_h;
    int flags;
  };
  const auto fetch = [&](int r, int step) {
    Step s = {};
    if (!real(r) || step < 0) return s;
    const long at = long(sample(r)) * p.steps + step;
    const float* const zx = p.zx + in_time(p, sample(r), step) * wide;
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
    s.flags = flags_of(p, sample(r), step);
    const float* const old = s.flags & kAnew ? p.reset_h : p.initial_h;
    if (!(s.flags & kAnew) && step > 0)
      s.old_h = p.h[(at - 1) * U + unit];
    else
      s.old_h = old ? old[place(r)] : 0.0f;
    s.d_h = p.d_h ? p.d_h[at * U + unit] : 0.0f;
    return s;
  };
  Step s[each];
#pragma unroll
  for (int r = 0; r < each; ++r) s[r] = fetch(r, p.steps - 1);
  group.meet();

  for (int step = p.steps - 1; step >= 0; --step) {
    float* const parts =
        reinterpret_cast<float*>(group.box + step % 2 * (S.box / 2));
    Pair* const moments = reinterpret_cast<Pair*>(parts + ROWS * S.padded);
    // Of this step, kept while the next one is fetched.
    struct {
      float dz[3], ds, direct, of_m[2];
      int flags;
      bool counts;
    } now[each];
    float both[2 * each];
#pragma unroll
    for (int r = 0; r < each; ++r) {
      auto& x = now[r];
      float n[3];
#pragma unroll
      for (int gate = 0; gate < 3; ++gate)
        n[gate] = s[r].from_h[gate] * s[r].scale[gate / 2];
      const float z = sigmoid(s[r].zx[0] + n[0] * gamma[0] + bias[0]);
      const float reset = sigmoid(s[r].zx[1] + n[1] * gamma[1] + bias[1]);
      const float shown = n[2] * gamma[2] + bias[2];
      const float candidate = tanh_of(s[r].zx[2] + reset * shown);
      x.flags = s[r].flags;
      x.counts = real(r) && !(x.flags & kLeftOut);
      dh[r] += s[r].d_h;
      x.ds = x.counts ? dh[r] * z * (1.0f - candidate * candidate) : 0.0f;
      x.dz[0] = x.counts ? dh[r] * (candidate - s[r].old_h) * z * (1.0f - z)
                         : 0.0f;
      x.dz[1] = x.counts ? x.ds * shown * reset * (1.0f - reset) : 0.0f;
      x.dz[2] = x.counts ? x.ds * reset : 0.0f;
      x.direct = x.counts ? dh[r] * (1.0f - z) : dh[r];
      float m[2] = {};
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        const float value = x.dz[gate] * gamma[gate] * s[r].scale[gate / 2];
        m[gate / 2] += value * n[gate];
        if (lane < S.own)
          keep<FORMAT>(e + (row + r) * S.stride, gate * S.own + lane, S.low,
                       value);
      }
      both[2 * r] = m[0], both[2 * r + 1] = m[1];
      x.of_m[0] = s[r].back[0], x.of_m[1] = s[r].back[1];
    }
    __syncthreads();
    back.multiply(group, step % 2, e, parts);
    sum_over(both);
#pragma unroll
    for (int r = 0; r < each; ++r)
      if (lane < N)
        group.send(step % 2, moments + (row + r) * N + group.rank, lane,
                   Pair{both[2 * r], both[2 * r + 1]});
#pragma unroll
    for (int r = 0; r < each; ++r) {
      if (real(r)) {
        const auto& x = now[r];
        float* const to = p.d_zx + in_time(p, sample(r), step) * wide + unit;
        to[0] = x.dz[0], to[U] = x.dz[1], to[2 * U] = x.ds;
        p.d_shown[(long(sample(r)) * p.steps + step) * U + unit] = x.dz[2];
      }
      s[r] = fetch(r, step - 1);
    }
    group.wait(step % 2);
    float dot[each];
    back.sum(group, parts, lane, dot);
#pragma unroll
    for (int r = 0; r < each; ++r) {
      const auto& x = now[r];
      Pair m{0.0f, 0.0f};
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const Pair other = group.get(moments + (row + r) * N + k);
        m.x += other.x, m.y += other.y;
      }
      dh[r] = x.counts ? x.direct + dot[r] - m.x * x.of_m[0] - m.y * x.of_m[1]
                       : x.direct;
      if (x.flags & kAnew) d_reset_h[r] += dh[r], dh[r] = 0.0f;
    }
  }
#pragma unroll
  for (int r = 0; r < each; ++r) {
    if (!real(r)) continue;
    p.d_initial_h[place(r)] = dh[r];
    if (p.d_reset_h) p.d_reset_h[place(r)] = d_reset_h[r];
  }
}
