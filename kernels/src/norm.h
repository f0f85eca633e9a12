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

// Of the sum of both products: for all segments together, or for each.
template <int Segments, class T>
KLN_INLINE void statistics_of_sum(T* z, const T* bias, long units, T epsilon,
                                  bool each, Norm<T>* norms) {
  const long stride = padded<T>(units);
  for (long j = 0; bias && j < Segments * stride; j += kLanes<T>)
    add_to(z + j, load(bias + j));
  if (!each) norms[0] = statistics<Segments>(z, units, epsilon);
  for (int s = 0; s < Segments; ++s)
    norms[s] = each ? statistics<1>(z + s * stride, units, epsilon) : norms[0];
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

// Through the normalisation of `Segments` segments: d (.) are the gradients of
// its value, which become those of what is normalised.
template <int Segments, class T>
KLN_INLINE void backward_site(bool normalized, const Norm<T>& norm,
                              const T* gamma, const T* from, const T* d,
                              long units, T* d_from, T* d_gamma) {
  const long n = Segments * padded<T>(units);
  Vector<T> of_g{}, of_gy{};
  for (long j = 0; j < n; j += kLanes<T>) {
    const Vector<T> y = norm(load(from + j)), dy = load(d + j);
    add_to(d_gamma + j, dy * y);
    of_g += dy * load(gamma + j);
    of_gy += dy * load(gamma + j) * y;
  }
  const NormGradient<T> through(norm, normalized, of_g, of_gy,
                                Segments * units);
  for (long j = 0; j < n; j += kLanes<T>)
    store(d_from + j,
          through(load(d + j) * load(gamma + j), norm(load(from + j))));
}

// Likewise, through `statistics_of_sum`.
template <int Segments, class T>
KLN_INLINE void backward_sum(const Norm<T>* norms, bool each, bool biased,
                             const T* gamma, const T* from, const T* d,
                             long units, T* d_from, T* d_gamma, T* d_bias) {
  const long n = padded<T>(units);
  if (!each)
    backward_site<Segments>(true, norms[0], gamma, from, d, units, d_from,
                            d_gamma);
  for (long s = 0; each && s < Segments; ++s)
    backward_site<1>(true, norms[s], gamma + s * n, from + s * n, d + s * n,
                     units, d_from + s * n, d_gamma + s * n);
  for (long j = 0; biased && j < Segments * n; j += kLanes<T>)
    add_to(d_bias + j, load(d_from + j));
}

}  // namespace
}  // namespace kln
