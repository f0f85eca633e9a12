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

template <int U, int N, int ROWS, int KEPT, int FORMAT, bool CLUSTER>
__global__ void __launch_bounds__(
    backward_shape(LSTM, U, N, ROWS, KEPT, FORMAT, CLUSTER).warps * 32, 1)
    lstm_backward(const Sequence p) {
  constexpr Shape S = backward_shape(LSTM, U, N, ROWS, KEPT, FORMAT, CLUSTER);
  constexpr int wide = 4 * U, each = ROWS / kRows;
  SHARED_MEMORY(shared);
  uint32_t* const e = reinterpret_cast<uint32_t*>(shared);
  Group<N, S.box, CLUSTER, false, ROWS * N * 8,
        ROWS * (S.padded * 4 + N * 4)>
      group(p, shared + S.operand + S.matrix, ROWS);
  float* const parts = reinterpret_cast<float*>(group.box);
  Pair* const sums = reinterpret_cast<Pair*>(parts + ROWS * S.padded);
  float* const moments = reinterpret_cast<float*>(sums + ROWS * N);
  const Back<LSTM, U, N, ROWS, KEPT, FORMAT, CLUSTER> back(p, group, shared);

  // A warp has the cells of a row, or of two.
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * each;
  const int unit = group.rank * S.own + lane;
  const bool own_unit = lane < S.own && unit < U;
  const auto sample = [&](int r) { return group.first + row + r; };
  const auto real = [&](int r) { return own_unit && sample(r) < p.batch; };
  const auto place = [&](int r) { return long(sample(r)) * U + unit; };

  float gamma[4];
#pragma unroll
  for (int gate = 0; gate < 4; ++gate)
    gamma[gate] = own_unit && p.recurrent_gamma
                      ? p.recurrent_gamma[gate * U + unit]
                      : 1.0f;
  const float state_gamma =
      own_unit && p.state_gamma ? p.state_gamma[unit] : 1.0f;
  const float state_beta =
      own_unit && p.state_beta ? p.state_beta[unit] : 0.0f;
  float dc[each], dh[each];
  float d_reset_h[each] = {}, d_reset_c[each] = {};
  float d_gamma[each] = {}, d_beta[each] = {};
#pragma unroll
  for (int r = 0; r < each; ++r) {
    dc[r] = real(r) && p.d_final_c ? p.d_final_c[place(r)] : 0.0f;
    dh[r] = real(r) && p.d_final_h ? p.d_final_h[place(r)] : 0.0f;
  }

  struct Step {
    float zx[4], from_h[4], scale, mean_c, scale_c, c, old_c, d_h, back;
    int flags;
  };
  const auto fetch = [&](int r, int step) {
    Step s = {};
    if (!real(r) || step < 0) return s;
    const long at = long(sample(r)) * p.steps + step;
    const float* const zx = p.zx + in_time(p, sample(r), step) * wide;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      s.zx[gate] = zx[gate * U + unit];
      s.from_h[gate] = p.from_h[at * wide + gate * U + unit];
    }
    const float* const norms = p.norms + at * 3;
    s.scale = norms[0], s.mean_c = norms[1], s.scale_c = norms[2];
    s.c = p.c[at * U + unit];
    s.flags = flags_of(p, sample(r), step);
    const float* const old = s.flags & kAnew ? p.reset_c : p.initial_c;
    if (!(s.flags & kAnew) && step > 0)
      s.old_c = p.c[(at - 1) * U + unit];
    else
      s.old_c = old ? old[place(r)] : 0.0f;
    s.d_h = p.d_h ? p.d_h[at * U + unit] : 0.0f;
    s.back = p.back ? p.back[at * U + unit] : 0.0f;
    return s;
  };
  Step s[each];
#pragma unroll
  for (int r = 0; r < each; ++r) s[r] = fetch(r, p.steps - 1);
  group.meet();

  for (int step = p.steps - 1; step >= 0; --step) {
    // Of this step, kept while the next one is fetched.
    struct {
      float n[4], i, f, candidate, o, normal, y, old_c, scale, scale_c, of_m;
      int flags;
      bool counts;
    } now[each];
    float dy[each], product[each];
#pragma unroll
    for (int r = 0; r < each; ++r) {
      auto& x = now[r];
      float v[4];
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) {
        x.n[gate] = s[r].from_h[gate] * s[r].scale;
        v[gate] = s[r].zx[gate] + x.n[gate] * gamma[gate];
      }
      x.i = sigmoid(v[0]), x.f = sigmoid(v[1]);
      x.candidate = tanh_of(v[2]), x.o = sigmoid(v[3]);
      x.normal = (s[r].c - s[r].mean_c) * s[r].scale_c;
      x.y = tanh_of(x.normal * state_gamma + state_beta);
      x.old_c = s[r].old_c, x.scale = s[r].scale, x.scale_c = s[r].scale_c;
      x.of_m = s[r].back, x.flags = s[r].flags;
      x.counts = real(r) && !(x.flags & kLeftOut);
      dh[r] += s[r].d_h;
      const float d_shown =
          x.counts ? dh[r] * x.o * (1.0f - x.y * x.y) : 0.0f;
      dy[r] = d_shown * state_gamma;
      d_beta[r] += d_shown;
      if (x.counts) d_gamma[r] += d_shown * x.normal;
      product[r] = x.counts ? dy[r] * x.normal : 0.0f;
    }
    Pair sum[each];
    {
      float both[2 * each];
#pragma unroll
      for (int r = 0; r < each; ++r)
        both[2 * r] = dy[r], both[2 * r + 1] = product[r];
      sum_over(both);
#pragma unroll
      for (int r = 0; r < each; ++r) {
        sum[r] = Pair{both[2 * r], both[2 * r + 1]};
        if (lane < N)
          group.send(0, sums + (row + r) * N + group.rank, lane, sum[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < each; ++r) s[r] = fetch(r, step - 1);
    group.wait(0);
    float m[each], dz[each][4];
#pragma unroll
    for (int r = 0; r < each; ++r) {
      const auto& x = now[r];
      sum[r] = Pair{0.0f, 0.0f};
      if (p.state_gamma) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const Pair other = group.get(sums + (row + r) * N + k);
          sum[r].x += other.x, sum[r].y += other.y;
        }
      }
      const float d = dc[r] + x.scale_c * (dy[r] - (sum[r].x +
                                                    x.normal * sum[r].y) *
                                                       (1.0f / U));
      dz[r][0] = x.counts ? d * x.candidate * x.i * (1.0f - x.i) : 0.0f;
      dz[r][1] = x.counts ? d * x.old_c * x.f * (1.0f - x.f) : 0.0f;
      dz[r][2] =
          x.counts ? d * x.i * (1.0f - x.candidate * x.candidate) : 0.0f;
      dz[r][3] = x.counts ? dh[r] * x.y * x.o * (1.0f - x.o) : 0.0f;
      if (x.counts) dc[r] = d * x.f;
      m[r] = 0.0f;
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) {
        const float value = dz[r][gate] * gamma[gate];
        m[r] += value * x.n[gate];
        if (lane < S.own)
          keep<FORMAT>(e + (row + r) * S.stride, gate * S.own + lane, S.low,
                       value);
      }
    }
    __syncthreads();
    back.multiply(group, 1, e, parts);
    sum_over(m);
#pragma unroll
    for (int r = 0; r < each; ++r)
      if (lane < N)
        group.send(1, moments + (row + r) * N + group.rank, lane, m[r]);
#pragma unroll
    for (int r = 0; r < each; ++r) {
      float* const to = p.d_zx + in_time(p, sample(r), step) * wide + unit;
#pragma unroll
      for (int gate = 0; gate < 4; ++gate)
        if (real(r)) to[gate * U] = dz[r][gate];
    }
    group.wait(1);
    float dot[each];
    back.sum(group, parts, lane, dot);
#pragma unroll
    for (int r = 0; r < each; ++r) {
      m[r] = 0.0f;
#pragma unroll
      for (int k = 0; k < N; ++k)
        m[r] += group.get(moments + (row + r) * N + k);
      if (now[r].counts) dh[r] = now[r].scale * (dot[r] - m[r] * now[r].of_m);
      if (now[r].flags & kAnew) {
        d_reset_h[r] += dh[r], d_reset_c[r] += dc[r];
        dh[r] = dc[r] = 0.0f;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < each; ++r) {
    if (!real(r)) continue;
    p.d_initial_h[place(r)] = dh[r];
    p.d_initial_c[place(r)] = dc[r];
    if (p.d_state_gamma) p.d_state_gamma[place(r)] = d_gamma[r];
    if (p.d_state_beta) p.d_state_beta[place(r)] = d_beta[r];
    if (p.d_reset_h) p.d_reset_h[place(r)] = d_reset_h[r];
    if (p.d_reset_c) p.d_reset_c[place(r)] = d_reset_c[r];
  }
}
