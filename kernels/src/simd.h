// The vectors of the instruction set that this file is compiled for.
//
// GCC's and Clang's vector extensions: one source for every instruction set.
// All that the instruction sets compile for themselves stands in an unnamed
// namespace. Were it visible to the linker, it would keep one copy of an inline
// function for all of them, and run AVX-512 on a CPU without it.
#pragma once

#include <stdint.h>

#if defined(__clang__)
#define KLN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define KLN_UNROLL _Pragma("GCC unroll 16")
#endif
#define KLN_INLINE inline __attribute__((always_inline))

namespace kln {
namespace {

// Tiles of products are kTileRows rows times kTileLines cache lines, as many
// as the registers hold beside a row of B.
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kTileRows = 6, kTileLines = 4;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kTileRows = 6, kTileLines = 1;
#elif defined(__x86_64__)
constexpr int kVectorBytes = 16, kTileRows = 2, kTileLines = 1;
#else
constexpr int kVectorBytes = 16, kTileRows = 6, kTileLines = 1;
#endif

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(kVectorBytes)));
  typedef float Unaligned
      __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
  typedef int32_t Bits __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(kVectorBytes)));
  typedef double Unaligned
      __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
  typedef int64_t Bits __attribute__((vector_size(kVectorBytes)));
};

template <class T>
using Vector = typename VectorOf<T>::Type;
template <class T>
using Bits = typename VectorOf<T>::Bits;
template <class T>
constexpr long kLanes = kVectorBytes / sizeof(T);

template <class T>
KLN_INLINE Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename VectorOf<T>::Unaligned*>(from);
}

template <class T>
KLN_INLINE void store(T* to, Vector<T> v) {
  *reinterpret_cast<typename VectorOf<T>::Unaligned*>(to) = v;
}

template <class T>
KLN_INLINE void add_to(T* to, Vector<T> v) {
  store(to, load(to) + v);
}

// x - 0 is x, which compilers know; 0 + x is not, if x is -0.
template <class T>
KLN_INLINE Vector<T> broadcast(T x) {
  return x - Vector<T>{};
}

template <class T>
KLN_INLINE T sum(Vector<T> v) {
  T lanes[kLanes<T>];
  store(lanes, v);
  // In halves, which compilers turn into shuffles.
  KLN_UNROLL
  for (long width = kLanes<T> / 2; width > 0; width /= 2)
    for (long i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

// 1 in the first `count` lanes, 0 in the others.
template <class T>
KLN_INLINE Vector<T> first_lanes(long count) {
  Vector<T> v{};
  for (long i = 0; i < kLanes<T>; ++i) v[i] = i < count ? T(1) : T(0);
  return v;
}

}  // namespace
}  // namespace kln
