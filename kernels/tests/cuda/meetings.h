// What a meeting and an exchange cost by themselves, N blocks and all steps.
#pragma once
#include "group.h"

// Without SENDING meetings alone; with it each block sends 2 kB to all, 16 bytes
// at a time. 256 threads.
template <int N, bool SENDING, bool CLUSTER>
__global__ void __launch_bounds__(256, 1) meetings(const Sequence p) {
  SHARED_MEMORY(shared);
  // Twice, as a message may come before all have read the one before.
  Group<N, 2 * N * 2048 + 128, CLUSTER, true, N * 2048, N * 2048> group(p,
                                                                        shared);
  float sum = 0.0f;
  group.meet();
  for (int step = 0; step < p.steps; ++step) {
    if (!SENDING) {
      group.meet();
      continue;
    }
    Quad* const box =
        reinterpret_cast<Quad*>(group.box) + step % 2 * N * 128;
    group.share(step % 2, box + group.rank * 128 + threadIdx.x / 2,
                Quad{bits_of(sum), 0, 0, bits_of(float(step))}, threadIdx.x % 2,
                2);
    group.wait(step % 2);
#pragma unroll
    for (int other = 0; other < N; ++other)
      sum += group
                 .get(reinterpret_cast<Pair*>(box) + other * 256 + threadIdx.x)
                 .y;
  }
  if (p.h) p.h[blockIdx.x * 256 + threadIdx.x] = sum;
}
