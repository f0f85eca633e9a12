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
#include "forward.h"

template <int U, int N, int ROWS, int KEPT, int FORMAT, bool CLUSTER>
__global__ void __launch_bounds__(
    forward_shape(GRU, U, N, ROWS, KEPT, FORMAT, CLUSTER).warps * 32, 1)
    gru_forward(const Sequence p) {
  constexpr Shape S = forward_shape(GRU, U, N, ROWS, KEPT, FORMAT, CLUSTER);
  constexpr int wide = 3 * U, parts = S.warps / S.groups;
  constexpr int columns = ROWS / kRows;
  SHARED_MEMORY(shared);
  float* const partial = reinterpret_cast<float*>(shared + S.operand);
  char* const matrix = shared + S.operand + S.partial;
  Group<N, S.box, CLUSTER, true, ROWS * N * 8,
        bytes_of(FORMAT, ROWS * S.padded)>
      group(p, matrix + S.matrix, ROWS);
  Pair* const sums = reinterpret_cast<Pair*>(group.box);
  float* const fresh = reinterpret_cast<float*>(sums + ROWS * N);
  // What warps add up before one of them sends it.
  Pair* const own_sums = reinterpret_cast<Pair*>(matrix - ROWS * S.sharing * 8);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;
  const int of_units = warp % S.groups, part = warp / S.groups;
  const int depth = part * (S.depth / parts);
  const int first = group.rank * S.own + of_units * 16;  // the warp's units
  // Of the cell that this thread computes; a second one is 8 rows on.
  const bool cells = part < 4;
  const int row = 2 * t + part % 2, unit = first + part / 2 * 8 + g;
  // Of a column's sums the one of this thread's row and a block: what a warp
  // sends stands together. And the first of the block's own.
  const auto number = [&](int column, int block) {
    return ((column * N + block) * 2 + part % 2) * 4 + t;
  };
  const auto own = [&](int column) {
    return ((column * 2 + part % 2) * 4 + t) * S.sharing;
  };
  const int of_row = of_units * 2 + part / 2;  // among the warps that share it
  const bool own_unit = cells && unit < U;
  const auto sample = [&](int i) { return group.first + row + i * kRows; };
  const auto real = [&](int i) { return own_unit && sample(i) < p.batch; };
  const auto place = [&](int i) { return long(sample(i)) * U + unit; };

  using R = Fragments<3, S.chunks, S.kept, FORMAT>;
  const R r(matrix + warp * R::kBytes, lane,
            [&](int gate, int of_warp, int at) {
              const int k = depth + at, u = first + of_warp;
              return k < U && u < U ? p.recurrent[long(k) * wide + gate * U + u]
                                    : 0.0f;
            });
  const Shown<GRU, U, N, ROWS, KEPT, FORMAT, CLUSTER> h(p, group.first, shared,
                                                       fresh);
  float gamma[3], bias[3], zx[columns][3], old_h[columns];
  int now[columns], next[columns];
#pragma unroll
  for (int gate = 0; gate < 3; ++gate) {
    const int at = gate * U + unit;
    gamma[gate] = own_unit && p.recurrent_gamma ? p.recurrent_gamma[at] : 1.0f;
    bias[gate] = own_unit && p.recurrent_bias ? p.recurrent_bias[at] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < columns; ++i) {
    const float* const from = real(i) ? h.initial(p, sample(i)) : nullptr;
    old_h[i] = from ? from[place(i)] : 0.0f;
    now[i] = real(i) ? flags_of(p, sample(i), 0) : 0;
  }
  const auto fetch = [&](int step) {
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const bool there = real(i) && step < p.steps;
      next[i] = there ? flags_of(p, sample(i), step + 1) : 0;
#pragma unroll
      for (int gate = 0; gate < 3; ++gate)
        zx[i][gate] = there ? p.zx[in_time(p, sample(i), step) * wide +
                                   gate * U + unit]
                            : 0.0f;
    }
  };
  fetch(0);
  group.meet();

  for (int step = 0; step < p.steps; ++step) {
    float sum[3][2][4] = {};
    r.template multiply<columns>(h.at(g, depth), S.low, kRows * S.stride, sum);
#pragma unroll
    for (int i = 0; i < 12 * columns; ++i) {
      const auto& both = sum[i / 4 % 3];
      partial[(warp * 12 * columns + i) * 32 + lane] =
          columns == 1 ? both[0][i % 4] + both[1][i % 4] : both[i / 12][i % 4];
    }
    __syncthreads();
    float z[columns][3] = {}, q[2 * columns];
    if (cells) {
#pragma unroll
      for (int i = 0; i < columns; ++i) {
#pragma unroll
        for (int gate = 0; gate < 3; ++gate)
#pragma unroll
          for (int k = 0; k < parts; ++k)
            z[i][gate] +=
                partial[(((k * S.groups + of_units) * columns + i) * 12 +
                         gate * 4 + part) *
                            32 +
                        lane];
        q[2 * i] = z[i][0] * z[i][0] + z[i][1] * z[i][1];
        q[2 * i + 1] = z[i][2] * z[i][2];
      }
      sum_over(q, 4);
#pragma unroll
      for (int i = 0; i < columns; ++i)
        if (g == 0) own_sums[own(i) + of_row] = Pair{q[2 * i], q[2 * i + 1]};
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      if (!cells || of_row * 8 >= N) continue;
      Pair all{0.0f, 0.0f};
#pragma unroll
      for (int k = 0; k < S.sharing; ++k) {
        const Pair from = own_sums[own(i) + k];
        all.x += from.x, all.y += from.y;
      }
      group.share(0, sums + number(i, group.rank), all, of_row * 8 + g,
                  8 * S.sharing);
    }
    // What others need not see goes to memory while blocks wait.
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      if (!real(i) || !p.from_h) continue;
      float* const to =
          p.from_h + (long(sample(i)) * p.steps + step) * wide + unit;
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) to[gate * U] = z[i][gate];
    }
    group.wait(0);
    float out[columns] = {};
    Pair scale[columns];
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      scale[i] = Pair{1.0f, 1.0f};
      if (!cells) continue;
      if (p.recurrent_gamma) {
        // The eight threads of a row and a warp have a share of the sums each.
        float all[2] = {};
#pragma unroll
        for (int k = 0; k < N; k += 8) {
          if (k + g >= N) continue;
          const Pair from = group.get(sums + number(i, k + g));
          all[0] += from.x, all[1] += from.y;
        }
        sum_over(all, 4);
        scale[i].x = scale_of(all[0] * (0.5f / U), 0.0f, p.epsilon);
        scale[i].y = scale_of(all[1] * (1.0f / U), 0.0f, p.epsilon);
      }
      const float update =
          sigmoid(zx[i][0] + z[i][0] * scale[i].x * gamma[0] + bias[0]);
      const float reset =
          sigmoid(zx[i][1] + z[i][1] * scale[i].x * gamma[1] + bias[1]);
      const float candidate =
          tanh_of(zx[i][2] +
                  reset * (z[i][2] * scale[i].y * gamma[2] + bias[2]));
      if (real(i) && !(now[i] & kLeftOut))
        old_h[i] = (1.0f - update) * old_h[i] + update * candidate;
      out[i] = old_h[i];
      if (next[i] & kAnew) old_h[i] = p.reset_h ? p.reset_h[place(i)] : 0.0f;
      h.send(group, 1, row + i * kRows, unit, old_h[i]);
    }
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      if (real(i)) {
        const long at = long(sample(i)) * p.steps + step;
        if (p.h) p.h[at * U + unit] = out[i];
        if (step == p.steps - 1) p.final_h[place(i)] = out[i];
        if (p.from_h && unit == 0)
          p.norms[at * 2] = scale[i].x, p.norms[at * 2 + 1] = scale[i].y;
      }
      now[i] = next[i];
    }
    fetch(step + 1);
    group.wait(1);
    h.receive(group);
  }
}
