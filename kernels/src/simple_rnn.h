// One row of one step of the simple RNN, and its gradient.
//
//   h' = tanh(N(x W + h R + bias))
#pragma once

#include "activations.h"
#include "residuals.h"

namespace kln {
namespace {

template <class T>
class SimpleRnn {
 public:
  static constexpr int kNorms = 1;
  static constexpr long kSums = 3;
  static constexpr long kTemporary = 1;

  SimpleRnn(const KlnProblem& p, Carver& carver)
      : units_(p.units),
        stride_(padded<T>(p.units)),
        epsilon_(T(p.epsilon)),
        normalized_(p.kernel_gamma) {
    const Row<T> unit(1, p.units);
    bias_ = vector_of<T>(carver, p.bias, unit, 0);
    gamma_ = vector_of<T>(carver, p.kernel_gamma, unit, 1);
    beta_ = vector_of<T>(carver, p.kernel_beta, unit, 0);
  }

  // See Lstm for what the pointers mean; from_h is the sum of both products.
  void forward(T*, T* from_h, const T*, const T*, T* new_h, T*,
               Norm<T>* norms) const {
    for (long j = 0; j < stride_; j += kLanes<T>)
      add_to(from_h + j, load(bias_ + j));
    norms[0] = Norm<T>{};
    if (normalized_) norms[0] = statistics<1>(from_h, units_, epsilon_);
    for (long j = 0; j < stride_; j += kLanes<T>)
      store(new_h + j, value(norms[0](load(from_h + j)), j));
  }

  void backward(const T*, const T* from_h, const T*, const T*,
                const Norm<T>* norms, T* dh, T*, T*, T* d_from_h, T* sums,
                T* temporary) const {
    const Norm<T> norm = norms[0];
    T *d_bias = sums, *d_gamma = sums + stride_, *d_beta = d_gamma + stride_;
    Vector<T> of_g{}, of_gy{};
    for (long j = 0; j < stride_; j += kLanes<T>) {
      const Vector<T> y = norm(load(from_h + j)), shown = value(y, j);
      const Vector<T> d = load(dh + j) * (T(1) - shown * shown);
      add_to(d_gamma + j, d * y);
      add_to(d_beta + j, d);
      const Vector<T> g = d * load(gamma_ + j);
      store(temporary + j, g);
      of_g += g;
      of_gy += g * y;
      store(dh + j, Vector<T>{});
    }
    const NormGradient<T> through(norm, normalized_, of_g, of_gy, units_);
    for (long j = 0; j < stride_; j += kLanes<T>) {
      const Vector<T> d = through(load(temporary + j), norm(load(from_h + j)));
      store(d_from_h + j, d);
      add_to(d_bias + j, d);
    }
  }

  static void finish(const T* sums, const KlnProblem& p) {
    const Row<T> unit(1, p.units);
    unpad(array<T>(p.d_bias), sums, unit);
    unpad(array<T>(p.d_kernel_gamma), sums + unit.size(), unit);
    unpad(array<T>(p.d_kernel_beta), sums + 2 * unit.size(), unit);
  }

 private:
  KLN_INLINE Vector<T> value(Vector<T> y, long j) const {
    return tanh<T>(y * load(gamma_ + j) + load(beta_ + j));
  }

  long units_, stride_;
  T epsilon_;
  bool normalized_;
  const T *bias_, *gamma_, *beta_;
};

}  // namespace
}  // namespace kln
