// What primitives.h has of the hardware, on a CPU.
#pragma once
#include "emu.h"

struct alignas(16) Quad {
  uint32_t x, y, z, w;
};
struct alignas(8) Pair {
  float x, y;
};
#define INLINE inline
#define SHARED_MEMORY(name) char* const name = emu::self->of_block->shared

inline unsigned block_of_cluster() { return emu::self->of_block->rank; }
inline void cluster_sync() { emu::wait(emu::cluster->barrier); }
using Gate = emu::Gate;
UNSEEN inline void gate_init(Gate* at) { *at = {0, 1, 0}; }
inline void gate_expect(Gate* at, unsigned bytes) {
  emu::come(*at, int(bytes), 1);
}
inline void gate_wait(Gate* at, unsigned parity) { emu::wait(*at, parity); }
template <class T>
void store_to(T* at, unsigned rank, T value, Gate* gate) {
  const emu::Block& other = emu::cluster->blocks[rank];
  if (!other.begun || other.done) emu::fail("a store to a block that is not");
  const auto there = [&](auto* place) {
    return reinterpret_cast<decltype(place)>(
        reinterpret_cast<char*>(place) - emu::self->of_block->shared +
        other.shared);
  };
  if (reinterpret_cast<uintptr_t>(at) % sizeof(T)) emu::fail("alignment");
  *there(at) = value;
  emu::come(*there(gate), -int(sizeof(T)), 0);
}
inline void grid_sync(unsigned*, unsigned&, unsigned) { cluster_sync(); }
template <class T>
T load_fresh(const T* from) {
  return *from;
}

// Of a float's mantissa TF32 has 10 bits, whose rest is rounded to the nearest.
constexpr uint32_t kLost = (1u << 13) - 1;
inline uint32_t to_tf32(float x) {
  return (emu::as_bits(x) + (kLost + 1) / 2) & ~kLost;
}
inline uint32_t cut_to_tf32(uint32_t x) { return x & ~kLost; }
inline float float_of(uint32_t bits) { return emu::as_float(bits); }
inline uint32_t bits_of(float x) { return emu::as_bits(x); }

// To the nearest, ties to even.
template <int FORMAT>
uint32_t to_half(float x) {
  const uint32_t bits = emu::as_bits(x);
  if (FORMAT == BF16)
    return std::isnan(x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const uint32_t sign = bits >> 16 & 0x8000;
  if (std::isnan(x)) return sign | 0x7fff;
  const double size = std::fabs(x);
  if (size == 0) return sign;
  if (size >= 65520) return sign | 0x7c00;
  int exponent;
  std::frexp(size, &exponent);
  const int unit = std::max(exponent - 11, -24);  // of the last place
  const uint32_t places = uint32_t(std::nearbyint(std::ldexp(size, -unit)));
  // What is carried from the places goes on into the exponent.
  return sign | ((uint32_t(unit + 24) << 10) + places);
}
template <int FORMAT>
double of_half(uint32_t half) {
  half &= 0xffff;
  if (FORMAT == BF16) return emu::as_float(half << 16);
  const int exponent = half >> 10 & 31, places = half & 1023;
  const double sign = half >> 15 ? -1.0 : 1.0;
  if (exponent == 31) return places ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + places, exponent - 25)
                          : std::ldexp(places, -24));
}

inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4],
                     const uint32_t (&b)[2]) {
  emu::mma(d, a, b, [](uint32_t x, uint32_t y) {
    return double(emu::as_float(x & ~kLost)) * emu::as_float(y & ~kLost);
  });
}
template <int FORMAT>
void mma_half(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emu::mma(d, a, b, [](uint32_t x, uint32_t y) {
    return of_half<FORMAT>(x) * of_half<FORMAT>(y) +
           of_half<FORMAT>(x >> 16) * of_half<FORMAT>(y >> 16);
  });
}
inline float exp_of(float x) { return expf(x); }
inline float quotient(float x, float y) { return x / y; }
inline float inverse_root(float x) { return 1.0f / sqrtf(x); }
