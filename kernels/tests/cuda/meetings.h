// What a meeting and an exchange cost by themselves, N blocks and all steps.
#pragma once
#include "group.h"

// Without SENDING meetings alone; with it each block also sends 2 kB to all
// others, a warp a row, and a step has two meetings. 256 threads.
template <int N, bool SENDING, bool CLUSTER>
__global__ void __launch_bounds__(256, 1) meetings(const Sequence p) {
  SHARED_MEMORY(shared);
  Group<N, N * 2048, CLUSTER, true> group(p, shared);
  Pair* const box = reinterpret_cast<Pair*>(group.box);
  float sum = 0.0f;
  group.meet();
  for (int step = 0; step < p.steps; ++step) {
    if (SENDING)
      group.share(box + group.rank * 256 + threadIdx.x,
                  Pair{sum, float(step)});
    group.meet();
    if (SENDING) {
#pragma unroll
      for (int other = 0; other < N; ++other)
        sum += group.get(box + other * 256 + threadIdx.x).y;
      group.meet();
    }
  }
  if (p.h) p.h[blockIdx.x * 256 + threadIdx.x] = sum;
}
