// One row of one step of the GRU, and its gradient.
//
//   [z r] = N(h R_zr) + N(x W_zr) + bias_zr
//   g     = tanh(N(x W_h) + bias_h + sigmoid(r) * N(h R_h))
//   h'    = (1 - sigmoid(z)) * h + sigmoid(z) * g
//
// The two gates are normalised together, the candidate by itself, on either
// side. The recurrent bias stands where the recurrent beta does. Where the sum
// of both products is normalised,
//
//   [z r a] = N(x W + h R + sum_bias) + bias;   g = tanh(sigmoid(r) * a)
#pragma once

#include "activations.h"
#include "residuals.h"

namespace kln {
namespace {

// `Summed`: from_h is the sum of both products, which is normalised.
template <class T, bool Summed>
class Gru {
 public:
  static constexpr int kNorms = 4;
  static constexpr long kSums = 10;
  static constexpr long kTemporary = 4;

  Gru(const KlnProblem& p, Carver& carver)
      : units_(p.units),
        stride_(padded<T>(p.units)),
        epsilon_(T(p.epsilon)),
        kernel_(p.kernel_gamma),
        recurrent_(p.recurrent_gamma),
        by_gate_(p.sum_by_gate),
        biased_(p.sum_bias) {
    const Row<T> gates(3, p.units);
    kernel_gamma_ = vector_of<T>(
        carver, Summed ? p.sum_gamma : p.kernel_gamma, gates, 1);
    recurrent_gamma_ = vector_of<T>(carver, p.recurrent_gamma, gates, 1);
    bias_ = sum_of(carver, gates, p.bias, p.kernel_beta, p.sum_beta);
    recurrent_bias_ = sum_of(carver, gates, p.recurrent_bias, p.recurrent_beta);
    sum_bias_ = sum_of(carver, gates, p.sum_bias);
  }

  // See Lstm for what the pointers mean.
  void forward(T* from_x, T* from_h, const T* h, const T*, T* new_h, T*,
               Norm<T>* norms) const {
    const long n = stride_;
    for (int k = 0; k < kNorms; ++k) norms[k] = Norm<T>{};
    if constexpr (Summed)
      statistics_of_sum<3>(from_h, biased_ ? sum_bias_ : nullptr, units_,
                           epsilon_, by_gate_, norms);
    if (kernel_) {
      norms[0] = statistics<2>(from_x, units_, epsilon_);
      norms[1] = statistics<1>(from_x + 2 * n, units_, epsilon_);
    }
    if (recurrent_) {
      norms[2] = statistics<2>(from_h, units_, epsilon_);
      norms[3] = statistics<1>(from_h + 2 * n, units_, epsilon_);
    }
    const Step step{*this, from_x, from_h, norms};
    for (long j = 0; j < n; j += kLanes<T>) {
      const Gates g = step.gates(j);
      store(new_h + j, (T(1) - g.z) * load(h + j) + g.z * g.candidate);
    }
  }

  void backward(const T* from_x, const T* from_h, const T* h, const T*,
                const Norm<T>* norms, T* dh, T*, T* d_from_x, T* d_from_h,
                T* sums, T* temporary) const {
    const long n = stride_;
    const Step step{*this, from_x, from_h, norms};
    // Of the values of both sides: they differ in the candidate only. A sum has
    // no side of x.
    T *dz = temporary, *dr = dz + n, *d_x = dr + n;
    T* d_h = Summed ? d_x : d_x + n;
    for (long j = 0; j < n; j += kLanes<T>) {
      const Gates g = step.gates(j);
      const Vector<T> d = load(dh + j);
      const Vector<T> d_sum = d * g.z * (T(1) - g.candidate * g.candidate);
      const Vector<T> d_z =
          d * (g.candidate - load(h + j)) * g.z * (T(1) - g.z);
      store(dz + j, d_z);
      store(dr + j, d_sum * g.shown * g.r * (T(1) - g.r));
      if (!Summed) store(d_x + j, d_sum);
      store(d_h + j, d_sum * g.r);
      store(dh + j, d * (T(1) - g.z));
    }
    for (long j = 0; j < (Summed ? 3 : 4) * n; j += kLanes<T>)
      add_to(sums + j, load(temporary + j));
    T *d_kernel = sums + 4 * n, *d_recurrent = sums + 7 * n;
    if constexpr (Summed)
      return backward_sum<3>(norms, by_gate_, biased_, kernel_gamma_, from_h,
                             dz, units_, d_from_h, d_kernel, d_recurrent);
    backward_site<2>(kernel_, norms[0], kernel_gamma_, from_x, dz, units_,
                     d_from_x, d_kernel);
    backward_site<1>(kernel_, norms[1], kernel_gamma_ + 2 * n, from_x + 2 * n,
                     d_x, units_, d_from_x + 2 * n, d_kernel + 2 * n);
    backward_site<2>(recurrent_, norms[2], recurrent_gamma_, from_h, dz, units_,
                     d_from_h, d_recurrent);
    backward_site<1>(recurrent_, norms[3], recurrent_gamma_ + 2 * n,
                     from_h + 2 * n, d_h, units_, d_from_h + 2 * n,
                     d_recurrent + 2 * n);
  }

  static void finish(const T* sums, const KlnProblem& p) {
    const Row<T> gates(3, p.units), both(2, p.units), unit(1, p.units);
    const long n = unit.size();
    void* const shifts[] = {p.d_bias, p.d_kernel_beta, p.d_sum_beta};
    void* const recurrent_shifts[] = {p.d_recurrent_bias, p.d_recurrent_beta};
    for (void* d : shifts) unpad(array<T>(d), sums, gates);
    for (void* d : recurrent_shifts)
      if (d) {
        unpad(array<T>(d), sums, both);
        unpad(array<T>(d) + both.dense(), sums + 3 * n, unit);
      }
    unpad(array<T>(p.d_kernel_gamma), sums + 4 * n, gates);
    unpad(array<T>(p.d_recurrent_gamma), sums + 7 * n, gates);
    unpad(array<T>(p.d_sum_gamma), sums + 4 * n, gates);
    unpad(array<T>(p.d_sum_bias), sums + 7 * n, gates);
  }

 private:
  struct Gates {
    Vector<T> z, r, candidate, shown;  // shown: what r multiplies
  };

  struct Step {
    const Gru& cell;
    const T *from_x, *from_h;
    const Norm<T>* norms;

    KLN_INLINE Vector<T> x(long j, const Norm<T>& norm) const {
      return norm(load(from_x + j)) * load(cell.kernel_gamma_ + j) +
             load(cell.bias_ + j);
    }
    KLN_INLINE Vector<T> h(long j, const Norm<T>& norm) const {
      return norm(load(from_h + j)) * load(cell.recurrent_gamma_ + j) +
             load(cell.recurrent_bias_ + j);
    }
    KLN_INLINE Vector<T> sum(long j, const Norm<T>& norm) const {
      return norm(load(from_h + j)) * load(cell.kernel_gamma_ + j) +
             load(cell.bias_ + j);
    }
    KLN_INLINE Gates gates(long j) const {
      const long n = cell.stride_;
      if constexpr (Summed) {
        const Vector<T> z = sigmoid<T>(sum(j, norms[0]));
        const Vector<T> r = sigmoid<T>(sum(j + n, norms[1]));
        const Vector<T> shown = sum(j + 2 * n, norms[2]);
        return {z, r, tanh<T>(r * shown), shown};
      }
      const Vector<T> z = sigmoid<T>(x(j, norms[0]) + h(j, norms[2]));
      const Vector<T> r = sigmoid<T>(x(j + n, norms[0]) + h(j + n, norms[2]));
      const Vector<T> shown = h(j + 2 * n, norms[3]);
      return {z, r, tanh<T>(x(j + 2 * n, norms[1]) + r * shown), shown};
    }
  };

  long units_, stride_;
  T epsilon_;
  bool kernel_, recurrent_;  // which sites are normalised
  // Of the sum: whether each gate has its statistics, and it has a bias.
  bool by_gate_, biased_;
  const T *kernel_gamma_, *recurrent_gamma_, *bias_, *recurrent_bias_;
  const T* sum_bias_;
};

}  // namespace
}  // namespace kln
