// One row of one step of the LSTM, and its gradient.
//
//   [i f g o] = N(h R) + N(x W) + bias, or N(x W + h R + sum_bias) + bias
//   c' = sigmoid(f) * c + sigmoid(i) * tanh(g);   h' = sigmoid(o) * tanh(N(c'))
//
// The next step gets c', or N(c') with carry_normalized_state. N is
// gamma * (z - mean) * scale + beta, or nothing, site by site.
#pragma once

#include "activations.h"
#include "residuals.h"

namespace kln {
namespace {

// What is normalised of the two products. Unless it is each of them, from_h is
// the sum of both.
enum Products { kEach, kSum, kNeither };

template <class T, Products Normalized>
class Lstm {
 public:
  // The last is of the state.
  static constexpr int kNorms = Normalized == kSum ? 5 : 3;
  // Of the gradients of vectors: what is summed over rows, in padded units.
  static constexpr long kSums = 14;
  static constexpr long kTemporary = 6;

  Lstm(const KlnProblem& p, Carver& carver)
      : units_(p.units),
        stride_(padded<T>(p.units)),
        epsilon_(T(p.epsilon)),
        kernel_(p.kernel_gamma),
        recurrent_(p.recurrent_gamma),
        state_(p.state_gamma),
        by_gate_(p.sum_by_gate),
        biased_(p.sum_bias),
        carried_(p.carry_normalized_state ? T(1) : T(0)) {
    const Row<T> gates(4, p.units), unit(1, p.units);
    kernel_gamma_ = vector_of<T>(
        carver, Normalized == kSum ? p.sum_gamma : p.kernel_gamma, gates, 1);
    recurrent_gamma_ = vector_of<T>(carver, p.recurrent_gamma, gates, 1);
    bias_ = sum_of(carver, gates, p.bias, p.kernel_beta, p.recurrent_beta,
                   p.sum_beta);
    sum_bias_ = sum_of(carver, gates, p.sum_bias);
    state_gamma_ = vector_of<T>(carver, p.state_gamma, unit, 1);
    state_beta_ = vector_of<T>(carver, p.state_beta, unit, 0);
  }

  // All pointers are to rows; the old and the new states may be the same.
  void forward(T* from_x, T* from_h, const T*, const T* c, T* new_h, T* new_c,
               Norm<T>* norms) const {
    for (int k = 0; k < kNorms; ++k) norms[k] = Norm<T>{};
    if constexpr (Normalized == kSum)
      statistics_of_sum<4>(from_h, biased_ ? sum_bias_ : nullptr, units_,
                           epsilon_, by_gate_, norms);
    if (kernel_) norms[0] = statistics<4>(from_x, units_, epsilon_);
    if (recurrent_) norms[1] = statistics<4>(from_h, units_, epsilon_);
    const Sum z(*this, from_x, from_h, norms);
    for (long j = 0; j < stride_; j += kLanes<T>) {
      const Gates g = gates(z, j);
      store(new_c + j, g.f * load(c + j) + g.i * g.candidate);
      store(new_h + j, g.o);
    }
    Norm<T>& state = norms[kNorms - 1];
    if (state_) state = statistics<1>(new_c, units_, epsilon_);
    for (long j = 0; j < stride_; j += kLanes<T>) {
      const Vector<T> value = load(new_c + j);
      const Vector<T> shown =
          state(value) * load(state_gamma_ + j) + load(state_beta_ + j);
      store(new_h + j, load(new_h + j) * tanh<T>(shown));
      if (carried_) store(new_c + j, shown);
    }
  }

  // dh and dc are the gradients of the new states, and become those of the old
  // ones, apart from what flows through h R.
  void backward(const T* from_x, const T* from_h, const T*, const T* c,
                const Norm<T>* norms, T* dh, T* dc, T* d_from_x, T* d_from_h,
                T* sums, T* temporary) const {
    const long n = stride_;
    const Norm<T> state = norms[kNorms - 1];
    const Sum z(*this, from_x, from_h, norms);
    // The gates give way to their gradients.
    T *i = temporary, *f = i + n, *g = f + n, *o = g + n;
    T *y = o + n, *dy = y + n;
    T *d_state_gamma = sums + 12 * n, *d_state_beta = sums + 13 * n;
    Vector<T> of_g{}, of_gy{};
    for (long j = 0; j < n; j += kLanes<T>) {
      const Gates gate = gates(z, j);
      const Vector<T> new_c = gate.f * load(c + j) + gate.i * gate.candidate;
      const Vector<T> normal = state(new_c), gamma = load(state_gamma_ + j);
      const Vector<T> seen = tanh<T>(normal * gamma + load(state_beta_ + j));
      const Vector<T> d = load(dh + j);
      const Vector<T> d_shown =
          d * gate.o * (T(1) - seen * seen) + carried_ * load(dc + j);
      add_to(d_state_gamma + j, d_shown * normal);
      add_to(d_state_beta + j, d_shown);
      of_g += d_shown * gamma;
      of_gy += d_shown * gamma * normal;
      store(i + j, gate.i);
      store(f + j, gate.f);
      store(g + j, gate.candidate);
      store(o + j, d * seen * gate.o * (T(1) - gate.o));
      store(y + j, normal);
      store(dy + j, d_shown * gamma);
      store(dh + j, Vector<T>{});
    }
    const NormGradient<T> through(state, state_, of_g, of_gy, units_);
    const T kept = T(1) - carried_;
    for (long j = 0; j < n; j += kLanes<T>) {
      const Vector<T> gi = load(i + j), gf = load(f + j), gg = load(g + j);
      const Vector<T> d =
          kept * load(dc + j) + through(load(dy + j), load(y + j));
      store(dc + j, d * gf);
      store(i + j, d * gg * gi * (T(1) - gi));
      store(f + j, d * load(c + j) * gf * (T(1) - gf));
      store(g + j, d * gi * (T(1) - gg * gg));
    }
    backward_sums(z, temporary, d_from_x, d_from_h, sums);
  }

  // From the sums over rows to the gradients of the vectors.
  static void finish(const T* sums, const KlnProblem& p) {
    const Row<T> gates(4, p.units), unit(1, p.units);
    const long n = unit.size();
    void* const shifts[] = {p.d_bias, p.d_kernel_beta, p.d_recurrent_beta,
                            p.d_sum_beta};
    for (void* d : shifts) unpad(array<T>(d), sums, gates);
    unpad(array<T>(p.d_kernel_gamma), sums + 4 * n, gates);
    unpad(array<T>(p.d_recurrent_gamma), sums + 8 * n, gates);
    unpad(array<T>(p.d_sum_gamma), sums + 4 * n, gates);
    unpad(array<T>(p.d_sum_bias), sums + 8 * n, gates);
    unpad(array<T>(p.d_state_gamma), sums + 12 * n, unit);
    unpad(array<T>(p.d_state_beta), sums + 13 * n, unit);
  }

 private:
  struct Gates {
    Vector<T> i, f, candidate, o;
  };

  // The summed inputs of the gates, from the products.
  struct Sum {
    const Lstm& cell;
    const T *from_x, *from_h;
    Norm<T> norms[4];

    KLN_INLINE Sum(const Lstm& cell, const T* from_x, const T* from_h,
                   const Norm<T>* of)
        : cell(cell), from_x(from_x), from_h(from_h) {
      for (int k = 0; k < kNorms - 1; ++k) norms[k] = of[k];
    }

    KLN_INLINE Vector<T> x(long j) const { return norms[0](load(from_x + j)); }
    KLN_INLINE Vector<T> h(long j) const { return norms[1](load(from_h + j)); }
    KLN_INLINE Vector<T> operator()(int gate, long j) const {
      j += gate * cell.stride_;
      const Vector<T> bias = load(cell.bias_ + j), sum = load(from_h + j);
      if constexpr (Normalized == kNeither) return sum + bias;
      if constexpr (Normalized == kSum)
        return norms[gate](sum) * load(cell.kernel_gamma_ + j) + bias;
      return h(j) * load(cell.recurrent_gamma_ + j) +
             (x(j) * load(cell.kernel_gamma_ + j) + bias);
    }
  };

  KLN_INLINE Gates gates(const Sum& z, long j) const {
    return {sigmoid<T>(z(0, j)), sigmoid<T>(z(1, j)), tanh<T>(z(2, j)),
            sigmoid<T>(z(3, j))};
  }

  // Through the sum of the sites: dz (4P) are the gradients of its value.
  KLN_INLINE void backward_sums(const Sum& z, const T* dz, T* d_from_x,
                                T* d_from_h, T* sums) const {
    const long n = stride_;
    if constexpr (Normalized != kEach) {
      for (long j = 0; j < 4 * n; j += kLanes<T>) {
        add_to(sums + j, load(dz + j));
        if (Normalized == kNeither) store(d_from_h + j, load(dz + j));
      }
      if constexpr (Normalized == kSum)
        backward_sum<4>(z.norms, by_gate_, biased_, kernel_gamma_, z.from_h,
                        dz, units_, d_from_h, sums + 4 * n, sums + 8 * n);
      return;
    }
    T *d_bias = sums, *d_kernel = sums + 4 * n, *d_recurrent = sums + 8 * n;
    Vector<T> x_g{}, x_gy{}, h_g{}, h_gy{};
    for (long j = 0; j < 4 * n; j += kLanes<T>) {
      const Vector<T> d = load(dz + j), x = z.x(j), h = z.h(j);
      add_to(d_bias + j, d);
      add_to(d_kernel + j, d * x);
      add_to(d_recurrent + j, d * h);
      const Vector<T> dx = d * load(kernel_gamma_ + j);
      const Vector<T> dh = d * load(recurrent_gamma_ + j);
      x_g += dx;
      x_gy += dx * x;
      h_g += dh;
      h_gy += dh * h;
    }
    const NormGradient<T> kernel(z.norms[0], kernel_, x_g, x_gy, 4 * units_);
    const NormGradient<T> recurrent(z.norms[1], recurrent_, h_g, h_gy,
                                    4 * units_);
    for (long j = 0; j < 4 * n; j += kLanes<T>) {
      const Vector<T> d = load(dz + j);
      store(d_from_x + j, kernel(d * load(kernel_gamma_ + j), z.x(j)));
      store(d_from_h + j, recurrent(d * load(recurrent_gamma_ + j), z.h(j)));
    }
  }

  long units_, stride_;
  T epsilon_;
  // Which sites are normalised.
  bool kernel_, recurrent_, state_;
  // Of the sum: whether each gate has its statistics, and it has a bias.
  bool by_gate_, biased_;
  // 1 where N(c') is carried, else 0.
  T carried_;
  const T *kernel_gamma_, *recurrent_gamma_, *bias_;
  const T *state_gamma_, *state_beta_, *sum_bias_;
};

}  // namespace
}  // namespace kln
