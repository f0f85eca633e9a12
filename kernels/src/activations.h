// tanh and sigmoid, without a branch, to a few units in the last place.
#pragma once

#include "simd.h"

namespace kln {
namespace {

// The digits of T: where the polynomial of exp may stop, and what rounds to an
// integer when it is added.
template <class T>
struct Digits;
template <>
struct Digits<float> {
  static constexpr int kDegree = 7, kMantissa = 23;
  static constexpr int32_t kOne = 127;
  static constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  // ln 2 in two parts, of which n times the first is exact.
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  static constexpr float kTanhLimit = 10.0f, kExpLimit = 87.0f;
};
template <>
struct Digits<double> {
  static constexpr int kDegree = 13, kMantissa = 52;
  static constexpr int64_t kOne = 1023;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kLn2High = 6.93145751953125e-1;
  static constexpr double kLn2Low = 1.42860682030941723212e-6;
  static constexpr double kTanhLimit = 20.0, kExpLimit = 708.0;
};

constexpr double kInverseFactorials[] = {1.0,
                                         1.0,
                                         1.0 / 2,
                                         1.0 / 6,
                                         1.0 / 24,
                                         1.0 / 120,
                                         1.0 / 720,
                                         1.0 / 5040,
                                         1.0 / 40320,
                                         1.0 / 362880,
                                         1.0 / 3628800,
                                         1.0 / 39916800,
                                         1.0 / 479001600,
                                         1.0 / 6227020800.0};

// exp(x) = scale * (1 + rest), rest = expm1(r) with |r| <= ln(2) / 2.
template <class T>
struct Exponential {
  Vector<T> scale, rest;
};

// |x| at most Digits<T>::kExpLimit; NaN stays NaN.
template <class T>
KLN_INLINE Exponential<T> exponential(Vector<T> x) {
  using D = Digits<T>;
  const Vector<T> shifted = x * T(1.4426950408889634074) + D::kRound;
  const Vector<T> n = shifted - D::kRound;
  Vector<T> r = x - n * D::kLn2High;
  r = r - n * D::kLn2Low;
  Vector<T> p = broadcast(T(kInverseFactorials[D::kDegree]));
  KLN_UNROLL
  for (int k = D::kDegree - 1; k >= 1; --k)
    p = p * r + T(kInverseFactorials[k]);
  // The last bits of `shifted` are n: moved into the exponent they make 2^n.
  Bits<T> bits = reinterpret_cast<Bits<T>>(shifted) + D::kOne;
  bits = bits << D::kMantissa;
  return {reinterpret_cast<Vector<T>>(bits), p * r};
}

// Comparisons with NaN are false, so that it passes through.
template <class T>
KLN_INLINE Vector<T> clamp(Vector<T> x, T limit) {
  const Vector<T> most = broadcast(limit);
  x = x > most ? most : x;
  return x < -most ? -most : x;
}

template <class T>
KLN_INLINE Vector<T> tanh(Vector<T> x) {
  // expm1 keeps the digits of small x.
  const auto e = exponential<T>(T(2) * clamp<T>(x, Digits<T>::kTanhLimit));
  const Vector<T> minus_one = e.scale * e.rest + (e.scale - T(1));
  return minus_one / (minus_one + T(2));
}

template <class T>
KLN_INLINE Vector<T> sigmoid(Vector<T> x) {
  const auto e = exponential<T>(-clamp<T>(x, Digits<T>::kExpLimit));
  return T(1) / (T(1) + (e.scale * e.rest + e.scale));
}

}  // namespace
}  // namespace kln
