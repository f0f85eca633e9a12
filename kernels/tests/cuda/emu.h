// Runs the source of a CUDA kernel on a CPU: one fiber per thread, all on one
// OS thread, in an order that a seed shuffles.
//
// What it models: threadIdx, blockIdx, dynamic shared memory, __syncthreads,
// clusters with remote shared memory, warp shuffles, and mma.sync in PTX' own
// fragment layout. Shared memory starts as NaN and ends before a guard. A sweep
// in which no barrier opens is a deadlock, and is reported. Built with -fsanitize=thread, every
// fiber is a thread to the sanitizer and barriers alone order them: a missing
// barrier, in a block or in a cluster, is reported as a data race.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#else
#define __tsan_acquire(x) (void)(x)
#define __tsan_release(x) (void)(x)
#endif

// For what is the emulation's own, which one OS thread runs.
#define UNSEEN __attribute__((no_sanitize("thread")))

#define __device__
#define __global__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)

namespace emu {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

struct Barrier {
  int count = 0, arrived = 0;
  unsigned phase = 0;
  char tag[2];  // what the sanitizer sees
};

struct Warp {
  Barrier barrier;
  uint32_t slots[32][8];
};

struct Block {
  Barrier barrier;
  std::vector<Warp> warps;
  char* shared;
  int rank;
  int begun = 0, done = 0;  // threads: between, there is shared memory
};

struct Cluster {
  Barrier barrier;
  std::vector<Block> blocks;
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Index thread, block;
  Block* of_block;
  Warp* warp;
  int lane;
  bool done = false;
  void* sanitizer = nullptr;
};

inline Fiber* self;
inline ucontext_t scheduler;
inline Cluster* cluster;
inline long opened;  // barriers so far: no progress is a deadlock
inline std::function<void()> body;
inline void* scheduler_of_sanitizer;

// On the stack of a fiber nothing can catch it.
inline void fail(const char* why) {
  fprintf(stderr, "emulation: %s\n", why);
  abort();
}

inline void switch_to(void* fiber) {
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(fiber, 1);  // 1: this orders nothing
#else
  (void)fiber;
#endif
}

UNSEEN inline void yield() {
  Fiber* me = self;
  switch_to(scheduler_of_sanitizer);
  swapcontext(&me->context, &scheduler);
}

UNSEEN inline void wait(Barrier& b) {
  const unsigned phase = b.phase;
  __tsan_release(&b.tag[phase & 1]);
  if (++b.arrived == b.count) b.arrived = 0, ++b.phase, ++opened;
  while (b.phase == phase) yield();
  __tsan_acquire(&b.tag[phase & 1]);
}

// As mbarrier: it opens when nobody has to arrive and no bytes are to come.
struct Gate {
  int bytes;
  uint16_t arrivals, opened;
};
UNSEEN inline void come(Gate& gate, int bytes, int arrivals) {
  __tsan_release(reinterpret_cast<char*>(&gate) + (gate.opened & 1));
  gate.bytes += bytes, gate.arrivals -= uint16_t(arrivals);
  if (gate.bytes == 0 && gate.arrivals == 0)
    gate.arrivals = 1, ++gate.opened, ++opened;
}
UNSEEN inline void wait(Gate& gate, unsigned parity) {
  while ((gate.opened & 1u) == parity) yield();
  __tsan_acquire(reinterpret_cast<char*>(&gate) + parity);
}

inline char begun, ended;  // what the sanitizer sees

UNSEEN inline void enter() {
  ++self->of_block->begun;
  __tsan_acquire(&begun);
  body();
  __tsan_release(&ended);
  self->done = true;
  ++self->of_block->done;
  ++opened;
  yield();
}

// All blocks of one cluster after the other; a grid with barriers is one
// cluster of all of its blocks.
template <class Kernel>
UNSEEN void launch(Kernel kernel, unsigned grid, unsigned threads,
                   unsigned blocks, size_t shared_bytes, unsigned seed) {
  constexpr size_t kStack = 64 << 10, kGuard = 128;
  std::mt19937 random(seed);
  body = kernel;
#if defined(__SANITIZE_THREAD__)
  scheduler_of_sanitizer = __tsan_get_current_fiber();
#endif
  __tsan_release(&begun);
  for (unsigned first = 0; first < grid; first += blocks) {
    Cluster c;
    cluster = &c;
    c.barrier.count = int(blocks * threads);
    c.blocks.resize(blocks);
    std::vector<char> memory(blocks * (shared_bytes + 256), char(0xff));
    std::vector<Fiber> fibers(blocks * threads);
    for (unsigned i = 0; i < fibers.size(); ++i) {
      Fiber& f = fibers[i];
      Block& b = c.blocks[i / threads];
      const unsigned thread = i % threads;
      if (thread == 0) {
        b.rank = int(i / threads);
        b.barrier.count = int(threads);
        b.warps.resize(threads / 32);
        for (Warp& w : b.warps) w.barrier.count = 32;
        const uintptr_t at = uintptr_t(memory.data()) +
                             b.rank * (shared_bytes + 256) + 127;
        b.shared = reinterpret_cast<char*>(at / 128 * 128);
      }
      f.thread.x = thread;
      f.block.x = first + b.rank;
      f.of_block = &b;
      f.warp = &b.warps[thread / 32];
      f.lane = int(thread % 32);
      f.stack.reset(new char[kStack]);
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.get();
      f.context.uc_stack.ss_size = kStack;
      makecontext(&f.context, enter, 0);
#if defined(__SANITIZE_THREAD__)
      f.sanitizer = __tsan_create_fiber(0);
#endif
    }
    // A block after the other runs until it waits for others, in an order that
    // changes: what holds only while blocks keep step shows.
    std::vector<unsigned> order(blocks), lanes(threads);
    std::iota(order.begin(), order.end(), 0u);
    std::iota(lanes.begin(), lanes.end(), 0u);
    for (size_t done = 0; done < fibers.size();) {
      const long start = opened;
      if (seed) std::shuffle(order.begin(), order.end(), random);
      for (unsigned block : order)
        for (long before = -1; opened != before;) {
          before = opened;
          if (seed) std::shuffle(lanes.begin(), lanes.end(), random);
          for (unsigned lane : lanes) {
            self = &fibers[block * threads + lane];
            if (self->done) continue;
            switch_to(self->sanitizer);
            swapcontext(&scheduler, &self->context);
            done += self->done;
          }
        }
      if (opened == start && done < fibers.size())
        fail("deadlock: threads wait for ever");
    }
    for (const Block& b : c.blocks)
      for (size_t i = 0; i < kGuard; ++i)
        if (b.shared[shared_bytes + i] != char(0xff))
          fail("a write beyond shared memory");
    __tsan_acquire(&ended);
#if defined(__SANITIZE_THREAD__)
    for (Fiber& f : fibers) __tsan_destroy_fiber(f.sanitizer);
#endif
  }
}

inline float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
inline uint32_t as_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

// The products of a warp, by PTX' tables of fragments. Of an operand the
// hardware reads the bits of its format and no others.
template <class Product>
void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
         Product product) {
  Warp& w = *self->warp;
  memcpy(w.slots[self->lane], a, 16);
  memcpy(w.slots[self->lane] + 4, b, 8);
  wait(w.barrier);
  const int g = self->lane / 4, t = self->lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    double sum = d[i];
    for (int k = 0; k < 8; ++k)  // of pairs, in formats of 16 bits
      sum += product(w.slots[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2],
                     w.slots[column * 4 + k % 4][4 + k / 4]);
    d[i] = float(sum);
  }
  wait(w.barrier);
}

}  // namespace emu

#define threadIdx (emu::self->thread)
#define blockIdx (emu::self->block)
inline void __syncthreads() { emu::wait(emu::self->of_block->barrier); }
inline float __shfl_xor_sync(unsigned, float x, int mask) {
  emu::Warp& w = *emu::self->warp;
  w.slots[emu::self->lane][0] = emu::as_bits(x);
  emu::wait(w.barrier);
  const float got = emu::as_float(w.slots[emu::self->lane ^ mask][0]);
  emu::wait(w.barrier);
  return got;
}
