// The gradients of the states of some rows, on their way back.
#pragma once

#include "forward.h"

namespace kln {
namespace {

// Rows are those of a part of the batch, `first` is where it begins.
template <class T>
class StateGradients {
 public:
  T *dh, *dc;  // (rows, P)
  T* d_shown;  // of h as the product saw it, with a dropout mask (rows, P)

  explicit StateGradients(const KlnProblem& p)
      : p_(p), stride_(padded<T>(p.units)) {}

  // Room for so many rows.
  void take(long rows, Carver& carver) {
    dh = carver.take<T>(rows * stride_);
    dc = carver.take<T>(plan_of(p_).has_c ? rows * stride_ : 0);
    d_shown = carver.take<T>(p_.recurrent_mask ? rows * stride_ : 0);
  }

  void start(Share batch) const {
    const auto from = [&](const void* all, long i) {
      return all ? array<T>(all) + (batch.first + i) * p_.units : nullptr;
    };
    const Row<T> unit(1, p_.units);
    for (long i = 0; i < batch.size(); ++i) {
      pad(dh + i * stride_, from(p_.d_final_h, i), unit);
      if (plan_of(p_).has_c)
        pad(dc + i * stride_, from(p_.d_final_c, i), unit);
    }
    void* const resets[] = {p_.d_reset_h, p_.d_reset_c};
    for (void* all : resets)
      if (all)
        fill(array<T>(all) + batch.first * p_.units, T(0),
             batch.size() * p_.units);
  }

  // Adds to dh what flowed through the h that the product saw.
  void add_shown(long first, Share rows) const {
    for (long i = rows.first; i < rows.end; ++i) {
      const T* factor = array<T>(p_.recurrent_mask) + (first + i) * p_.units;
      for (long u = 0; u < p_.units; ++u)
        dh[i * stride_ + u] += d_shown[i * stride_ + u] * factor[u];
    }
  }

  // Where rows start anew at visit k, no gradient goes on to earlier visits.
  void restart(long first, Share rows, long k) const {
    const auto move = [&](T* d, void* all, long row) {
      T* to = array<T>(all) + (all ? row * p_.units : 0);
      for (long u = 0; all && u < p_.units; ++u) to[u] += d[u];
      fill(d, T(0), stride_);
    };
    for (long i = rows.first; i < rows.end; ++i) {
      const long row = first + i;
      if (!starts(p_, row, k)) continue;
      move(dh + i * stride_, p_.d_reset_h, row);
      if (plan_of(p_).has_c) move(dc + i * stride_, p_.d_reset_c, row);
    }
  }

  void finish(Share batch) const {
    const auto put = [&](void* all, const T* d) {
      for (long i = 0; all && i < batch.size(); ++i)
        copy(array<T>(all) + (batch.first + i) * p_.units, d + i * stride_,
             p_.units);
    };
    put(p_.d_initial_h, dh);
    if (plan_of(p_).has_c) put(p_.d_initial_c, dc);
  }

 private:
  const KlnProblem& p_;
  const long stride_;  // P
};

}  // namespace
}  // namespace kln
