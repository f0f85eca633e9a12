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
#include "forward.h"

template <int U, int N, int ROWS, int KEPT, int FORMAT, bool CLUSTER>
__global__ void __launch_bounds__(
    forward_shape(LSTM, U, N, ROWS, KEPT, FORMAT, CLUSTER).warps * 32, 1)
    lstm_forward(const Sequence p) {
  constexpr Shape S = forward_shape(LSTM, U, N, ROWS, KEPT, FORMAT, CLUSTER);
  constexpr int wide = 4 * U, parts = S.warps / S.groups;
  constexpr int columns = ROWS / kRows;
  SHARED_MEMORY(shared);
  float* const partial = reinterpret_cast<float*>(shared + S.operand);
  char* const matrix = shared + S.operand + S.partial;
  Group<N, S.box, CLUSTER, true, ROWS * N * 4, ROWS * N * 8,
        bytes_of(FORMAT, ROWS * S.padded)>
      group(p, matrix + S.matrix, ROWS);
  Pair* const moments = reinterpret_cast<Pair*>(group.box);
  float* const sums = reinterpret_cast<float*>(moments + ROWS * N);
  float* const fresh = sums + ROWS * N;
  // What warps add up before one of them sends it.
  float* const own_sums =
      reinterpret_cast<float*>(matrix - ROWS * S.sharing * 8);
  Pair* const own_moments = reinterpret_cast<Pair*>(partial);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;  // as PTX numbers fragments
  const int of_units = warp % S.groups, part = warp / S.groups;
  const int depth = part * (S.depth / parts);
  // Of the cell that this thread computes; a second one is 8 rows on.
  const bool cells = part < 2;
  const int row = 2 * t + part;
  const int eight = group.rank * S.groups + of_units;  // its warp's units
  const int unit = eight * 8 + g;
  // Of a column's sums the one of this thread's row and a block: what a warp
  // sends stands together. And the first of the block's own.
  const auto number = [&](int column, int block) {
    return ((column * N + block) * 2 + part) * 4 + t;
  };
  const auto own = [&](int column) {
    return ((column * 2 + part) * 4 + t) * S.sharing;
  };
  const bool sends = cells && of_units * 8 < N;
  const bool own_unit = cells && unit < U;
  const auto sample = [&](int i) { return group.first + row + i * kRows; };
  const auto real = [&](int i) { return own_unit && sample(i) < p.batch; };
  const auto place = [&](int i) { return long(sample(i)) * U + unit; };

  // Tiles of gates (i, f) and (g, o) of 8 units.
  using R = Fragments<2, S.chunks, S.kept, FORMAT>;
  const R r(matrix + warp * R::kBytes, lane,
            [&](int tile, int column, int at) {
              const int k = depth + at, gate = 2 * tile + column / 8;
              return k < U && unit < U
                         ? p.recurrent[long(k) * wide + gate * U + unit]
                         : 0.0f;
            });
  const Shown<LSTM, U, N, ROWS, KEPT, FORMAT, CLUSTER> h(p, group.first, shared,
                                                       fresh);
  float gamma[4], zx[columns][4], c[columns], old_h[columns];
  int now[columns], next[columns], after[columns];
#pragma unroll
  for (int gate = 0; gate < 4; ++gate)
    gamma[gate] = own_unit && p.recurrent_gamma
                      ? p.recurrent_gamma[gate * U + unit]
                      : 1.0f;
  const float state_gamma =
      own_unit && p.state_gamma ? p.state_gamma[unit] : 1.0f;
  const float state_beta = own_unit && p.state_beta ? p.state_beta[unit] : 0.0f;
  const float of_eight = 1.0f / float(unit - g < U ? units_of(eight, U, 8) : 1);
#pragma unroll
  for (int i = 0; i < columns; ++i) {
    const float* const from = real(i) ? h.initial(p, sample(i)) : nullptr;
    old_h[i] = from ? from[place(i)] : 0.0f;
    c[i] = real(i) && p.initial_c ? p.initial_c[place(i)] : 0.0f;
    now[i] = real(i) ? flags_of(p, sample(i), 0) : 0;
    next[i] = real(i) ? flags_of(p, sample(i), 1) : 0;
  }
  const auto fetch = [&](int step) {
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const bool there = real(i) && step < p.steps;
      after[i] = there ? flags_of(p, sample(i), step + 1) : 0;
      const float* const at = p.zx + in_time(p, sample(i), step) * wide + unit;
#pragma unroll
      for (int gate = 0; gate < 4; ++gate)
        zx[i][gate] = there ? at[gate * U] : 0.0f;
    }
  };
  fetch(0);
  // All blocks of a cluster must have begun before one writes into another.
  group.meet();

  for (int step = 0; step < p.steps; ++step) {
    float sum[2][2][4] = {};
    r.template multiply<columns>(h.at(g, depth), S.low, kRows * S.stride, sum);
    // Registers 0 and 1 are the first gate of a tile for rows 2t and 2t + 1, 2
    // and 3 the second. A part keeps one of the two rows.
#pragma unroll
    for (int i = 0; i < 8 * columns; ++i) {
      const auto& both = sum[i / 4 % 2];
      partial[(warp * 8 * columns + i) * 32 + lane] =
          columns == 1 ? both[0][i % 4] + both[1][i % 4] : both[i / 8][i % 4];
    }
    __syncthreads();
    float z[columns][4] = {}, q[columns] = {};
    if (cells) {
#pragma unroll
      for (int i = 0; i < columns; ++i) {
#pragma unroll
        for (int gate = 0; gate < 4; ++gate)
#pragma unroll
          for (int k = 0; k < parts; ++k)
            z[i][gate] +=
                partial[(((k * S.groups + of_units) * columns + i) * 8 +
                         gate * 2 + part) *
                            32 +
                        lane];
        q[i] = z[i][0] * z[i][0] + z[i][1] * z[i][1] + z[i][2] * z[i][2] +
               z[i][3] * z[i][3];
      }
      sum_over(q, 4);
#pragma unroll
      for (int i = 0; i < columns; ++i)
        if (g == 0) own_sums[own(i) + of_units] = q[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      if (!sends) continue;
      q[i] = 0.0f;
#pragma unroll
      for (int k = 0; k < S.sharing; ++k) q[i] += own_sums[own(i) + k];
      group.share(0, sums + number(i, group.rank), q[i], of_units * 8 + g,
                  8 * S.sharing);
    }
    // What others need not see goes to and from memory while blocks wait.
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      if (!real(i) || !p.from_h) continue;
      float* const to =
          p.from_h + (long(sample(i)) * p.steps + step) * wide + unit;
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) to[gate * U] = z[i][gate];
    }
    group.wait(0);
    float scale[columns], o[columns] = {}, mean[columns] = {};
    float scale_c[columns];
    if (cells) {
#pragma unroll
      for (int i = 0; i < columns; ++i) {
        q[i] = 0.0f;
        // The eight threads of a row and a warp have a share of the sums each.
#pragma unroll
        for (int k = 0; k < N; k += 8)
          if (k + g < N) q[i] += group.get(sums + number(i, k + g));
      }
      sum_over(q, 4);
    }
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      scale[i] = scale_c[i] = 1.0f;
      if (p.recurrent_gamma)
        scale[i] = scale_of(q[i] * (1.0f / wide), 0.0f, p.epsilon);
      float v[4];
#pragma unroll
      for (int gate = 0; gate < 4; ++gate)
        v[gate] = zx[i][gate] + z[i][gate] * scale[i] * gamma[gate];
      if (now[i] & kAnew) c[i] = p.reset_c ? p.reset_c[place(i)] : 0.0f;
      if (!(now[i] & kLeftOut))
        c[i] = sigmoid(v[1]) * c[i] + sigmoid(v[0]) * tanh_of(v[2]);
      if (!real(i)) c[i] = 0.0f;
      o[i] = sigmoid(v[3]);
    }
    if (p.state_gamma) {
      if (cells) {
        float squares[columns];
        moments_of(c, unit < U, of_eight, mean, squares);
#pragma unroll
        for (int i = 0; i < columns; ++i)
          if (g == 0)
            own_moments[own(i) + of_units] = Pair{mean[i], squares[i]};
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < columns; ++i)
        if (sends)
          group.share(
              1, moments + number(i, group.rank),
              moments_of_block<S.sharing>(own_moments + own(i), group.rank, U),
              of_units * 8 + g, 8 * S.sharing);
      fetch(step + 1);
      group.wait(1);
      if (cells) {
        Pair of[columns][ceil_of(N, 8)];
        float squares[columns];
#pragma unroll
        for (int i = 0; i < columns; ++i) {
          mean[i] = 0.0f;
#pragma unroll
          for (int k = 0; k < N; k += 8) {
            Pair& x = of[i][k / 8];
            x = k + g < N ? group.get(moments + number(i, k + g))
                          : Pair{0.0f, 0.0f};
            mean[i] += x.x * float(units_of(k + g, U, S.own));
          }
        }
        sum_over(mean, 4);
#pragma unroll
        for (int i = 0; i < columns; ++i) {
          mean[i] *= 1.0f / U, squares[i] = 0.0f;
#pragma unroll
          for (int k = 0; k < N; k += 8) {
            const Pair& x = of[i][k / 8];
            const float d = x.x - mean[i];
            squares[i] += x.y + d * d * float(units_of(k + g, U, S.own));
          }
        }
        sum_over(squares, 4);
#pragma unroll
        for (int i = 0; i < columns; ++i)
          scale_c[i] = scale_of(squares[i] * (1.0f / U), mean[i], p.epsilon);
      }
    } else {
      fetch(step + 1);
    }
    float out[columns] = {};
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      if (!cells) continue;
      const float value =
          o[i] * tanh_of((c[i] - mean[i]) * scale_c[i] * state_gamma +
                         state_beta);
      if (real(i) && !(now[i] & kLeftOut)) old_h[i] = value;
      out[i] = old_h[i];
      if (next[i] & kAnew) old_h[i] = p.reset_h ? p.reset_h[place(i)] : 0.0f;
      h.send(group, 2, row + i * kRows, unit, old_h[i]);
    }
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      now[i] = next[i], next[i] = after[i];
      if (!real(i)) continue;
      const long at = long(sample(i)) * p.steps + step;
      if (p.from_h) {
        p.c[at * U + unit] = c[i];
        float* const norms = p.norms + at * 3;
        if (unit == 0)
          norms[0] = scale[i], norms[1] = mean[i], norms[2] = scale_c[i];
      }
      if (p.h) p.h[at * U + unit] = out[i];
      if (step == p.steps - 1)
        p.final_h[place(i)] = out[i], p.final_c[place(i)] = c[i];
    }
    group.wait(2);
    h.receive(group);
  }
}
