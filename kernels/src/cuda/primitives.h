// What the kernels need of the hardware; tests/cuda/emulated.h has the same of a
// CPU.
#pragma once
#include "sequence.h"

#ifdef EMU
#include "emulated.h"
#else
typedef unsigned uint32_t;
typedef unsigned short uint16_t;
typedef uint4 Quad;
typedef float2 Pair;
#define INLINE __device__ __forceinline__
#define SHARED_MEMORY(name) extern __shared__ __align__(128) char name[]

INLINE unsigned block_of_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All blocks of a cluster have begun.
INLINE void cluster_sync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
INLINE unsigned shared_address(const void* at) {
  return unsigned(__cvta_generic_to_shared(at));
}
INLINE unsigned remote(const void* at, unsigned rank) {
  unsigned to;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(to)
      : "r"(shared_address(at)), "r"(rank));
  return to;
}
// A gate is a barrier in shared memory that opens when what it was told to
// expect has come, and shuts for the next time. To wait at it orders nothing
// but what came: a cluster's barrier would wait for global stores too.
typedef unsigned long long Gate;
INLINE void gate_init(Gate* at) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(
                   shared_address(at))
               : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
INLINE void gate_expect(Gate* at, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(at)),
               "r"(bytes)
               : "memory");
}
// A wait of 20 s, which no GPU shared by turns takes, ends the kernel and with
// it the process's context: an error, where it would hang. The clock is read
// at every 64th try, since to read it takes longer than a try.
INLINE void spend(unsigned& tries, unsigned long long& end) {
  if (++tries % 64) return;
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  if (!end) end = now + 20000000000ull;
  if (now > end) asm volatile("trap;");
}
// `parity`: of the number of times that it has opened before. What is stored
// through a gate is released to the cluster, hence acquired there.
INLINE void gate_wait(Gate* at, unsigned parity) {
  unsigned open, tries = 0;
  unsigned long long end = 0;
  while (true) {
    asm volatile(
        "{ .reg .pred open;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 open, "
        "[%1], %2;\n"
        "selp.u32 %0, 1, 0, open; }"
        : "=r"(open)
        : "r"(shared_address(at)), "r"(parity)
        : "memory");
    if (open) return;
    spend(tries, end);
  }
}
#define STORE "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
// Writes where `at` is in another block, and tells that block's gate.
INLINE void store_to(float* at, unsigned rank, float value, Gate* gate) {
  asm volatile(STORE ".f32 [%0], %1, [%2];" ::"r"(remote(at, rank)),
               "f"(value), "r"(remote(gate, rank))
               : "memory");
}
INLINE void store_to(Pair* at, unsigned rank, Pair value, Gate* gate) {
  asm volatile(STORE ".v2.f32 [%0], {%1, %2}, [%3];" ::"r"(remote(at, rank)),
               "f"(value.x), "f"(value.y), "r"(remote(gate, rank))
               : "memory");
}
INLINE void store_to(Quad* at, unsigned rank, Quad value, Gate* gate) {
  asm volatile(STORE ".v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   remote(at, rank)),
               "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w),
               "r"(remote(gate, rank))
               : "memory");
}
#undef STORE
// Among the blocks that share a counter, all of them resident.
INLINE void grid_sync(unsigned* counter, unsigned& seen, unsigned blocks) {
  __syncthreads();
  seen += blocks;
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter)
                 : "memory");
    unsigned now, tries = 0;
    unsigned long long end = 0;
    while (true) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(now)
                   : "l"(counter)
                   : "memory");
      if (now >= seen) break;
      spend(tries, end);
    }
  }
  __syncthreads();
}
// Volatile: older headers' __ldcg is not, and could leave the loop.
INLINE float load_fresh(const float* from) {
  float x;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];"
               : "=f"(x)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return x;
}
INLINE Pair load_fresh(const Pair* from) {
  Pair x;
  asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];"
               : "=f"(x.x), "=f"(x.y)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return x;
}
INLINE uint32_t to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
// Rounded towards zero, and where it stands: before the loop, the results
// would take registers.
INLINE uint32_t cut_to_tf32(uint32_t x) {
  uint32_t bits;
  asm volatile("and.b32 %0, %1, 0xffffe000;" : "=r"(bits) : "r"(x));
  return bits;
}
template <int FORMAT>
INLINE uint32_t to_half(float x) {
  uint32_t bits;
  if (FORMAT == BF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
  return bits;
}
#define MMA(shape, d, a, b)                                                   \
  asm("mma.sync.aligned." shape                                               \
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"      \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                        \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
INLINE void mma_tf32(float (&d)[4], const uint32_t (&a)[4],
                     const uint32_t (&b)[2]) {
  MMA("m16n8k8.row.col.f32.tf32.tf32.f32", d, a, b);
}
template <int FORMAT>
INLINE void mma_half(float (&d)[4], const uint32_t (&a)[4],
                     const uint32_t (&b)[2]) {
  if (FORMAT == BF16)
    MMA("m16n8k16.row.col.f32.bf16.bf16.f32", d, a, b);
  else
    MMA("m16n8k16.row.col.f32.f16.f16.f32", d, a, b);
}
#undef MMA
INLINE float float_of(uint32_t bits) { return __uint_as_float(bits); }
INLINE uint32_t bits_of(float x) { return __float_as_uint(x); }
// Without the cases of denormal numbers, which `ftz` leaves out.
INLINE float exp_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
}
INLINE float quotient(float x, float y) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(y));
  return x * inverse;
}
INLINE float inverse_root(float x) { return rsqrtf(x); }
#endif

INLINE float sigmoid(float x) { return quotient(1.0f, 1.0f + exp_of(-x)); }
INLINE float tanh_of(float x) {
  // Near 0 the quotient keeps few digits of x; the series' error is 6e-8 x.
  const float s = x * x;
  const float series =
      x + x * s * (s * (0.133333333f - s * 0.0539682540f) - 0.333333333f);
  // exp overflows to infinity, and the quotient to 0, where it should; no
  // fminf, which would lose a NaN.
  const float wide = 1.0f - quotient(2.0f, 1.0f + exp_of(2.0f * x));
  return s < 0.04f ? series : wide;
}
