// Layer normalisation of one padded row, and its gradient.
#pragma once

#include "layout.h"

namespace kln {
namespace {

// y = (z - mean) * scale. A row without variance is not scaled: its factor is
// the constant 1 and `varies` is 0.
template <class T>
struct Norm {
  T mean = 0, scale = 1, varies = 0;

  KLN_INLINE Vector<T> operator()(Vector<T> z) const {
    return (z - mean) * scale;
  }
};

template <class T>
constexpr T kUnitRoundoff = sizeof(T) == 4 ? T(0x1p-24) : T(0x1p-53);

KLN_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
KLN_INLINE double square_root(double x) { return __builtin_sqrt(x); }

// Means and scales are over `Segments` segments of z together.
template <int Segments, class T>
KLN_INLINE Norm<T> statistics(const T* z, long units, T epsilon) {
  const long stride = padded<T>(units), whole = units & -kLanes<T>;
  const T count = T(Segments * units);
  // One sum a segment: with a single one each addition waits for the last.
  Vector<T> sums[Segments] = {};
  for (long j = 0; j < stride; j += kLanes<T>) {
    KLN_UNROLL
    for (int s = 0; s < Segments; ++s) sums[s] += load(z + s * stride + j);
  }
  for (int s = 1; s < Segments; ++s) sums[0] += sums[s];
  const T mean = sum<T>(sums[0]) / count;

  // Centred before squaring: E[z^2] - mean^2 loses every digit where the mean
  // is large.
  for (int s = 0; s < Segments; ++s) sums[s] = Vector<T>{};
  for (long j = 0; j < whole; j += kLanes<T>) {
    KLN_UNROLL
    for (int s = 0; s < Segments; ++s) {
      const Vector<T> d = load(z + s * stride + j) - mean;
      sums[s] += d * d;
    }
  }
  if (whole < units) {
    const Vector<T> inside = first_lanes<T>(units - whole);
    for (int s = 0; s < Segments; ++s) {
      const Vector<T> d = (load(z + s * stride + whole) - mean) * inside;
      sums[s] += d * d;
    }
  }
  for (int s = 1; s < Segments; ++s) sums[0] += sums[s];
  const T variance = sum<T>(sums[0]) / count;
  const T size = mean < 0 ? -mean : mean;
  if (square_root(variance) <= 16 * kUnitRoundoff<T> * size)
    return {mean, T(1), T(0)};
  return {mean, T(1) / square_root(variance + epsilon), T(1)};
}

// Gradient of z from g, that of y = N(z):
//   scale * (g - mean(g) - y * mean(g * y))
// where the site is normalised, and g where it is not.
template <class T>
struct NormGradient {
  T mean = 0, along = 0, scale = 1;

  // `of_g` and `of_gy` are sums over `count` elements.
  NormGradient(const Norm<T>& norm, bool normalized, Vector<T> of_g,
               Vector<T> of_gy, long count) {
    if (!normalized) return;
    mean = sum<T>(of_g) / T(count);
    along = norm.varies * sum<T>(of_gy) / T(count);
    scale = norm.scale;
  }

  KLN_INLINE Vector<T> operator()(Vector<T> g, Vector<T> y) const {
    // y may be infinite where it is not normalised.
    if (along == 0) return (g - mean) * scale;
    return (g - mean - y * along) * scale;
  }
};

}  // namespace
}  // namespace kln
