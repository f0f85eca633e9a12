// What forward keeps for backward, in the caller's memory.
#pragma once

#include "norm.h"
#include "problem.h"

namespace kln {
namespace {

// Stands first, so that backward can refuse what another problem left.
struct ResidualsHeader {
  uint64_t numbers[8];
};

inline ResidualsHeader header_of(const KlnProblem& p) {
  // Of the options, and of which arrays there are; by FNV.
  uint64_t told = uint64_t(p.cell) << 1 | uint64_t(p.dtype);
  for (int i = 0; i < kOptions + kArguments; ++i) {
    const uint64_t bits = field(p, i);
    told = (told ^ (i < kOptions ? bits : bits != 0)) * 0x100000001b3;
  }
  const auto size = [](int64_t n) { return uint64_t(n); };
  // An arbitrary number, and the version of this layout.
  return {{0x6b6c6e72, KLN_ABI_VERSION, told, size(p.batch), size(p.steps),
           size(p.features), size(p.units), 0}};
}

// Bytes: in all, of each row, and of a row's step.
struct Layout {
  long fixed = 0, row = 0, step = 0;

  long bytes(const KlnProblem& p) const {
    return fixed + p.batch * (row + p.steps * step);
  }
};

// Steps stand in the order of visits. Letters: B batch, T steps, P padded
// units, n gates.
template <class T>
class Residuals {
 public:
  // At `memory`, or nowhere, for the layout alone.
  Residuals(const KlnProblem& p, void* memory)
      : p_(p), memory_(static_cast<char*>(memory)) {
    const Plan plan = plan_of(p);
    const long stride = padded<T>(p.units), products = plan.gates * stride;
    header = take<ResidualsHeader>(1, 0, 0);
    from_x = take<T>(0, 0, plan.keeps_from_x ? products : 0);
    from_h = take<T>(0, 0, products);
    h = take<T>(0, stride, stride);
    c = take<T>(0, plan.has_c ? stride : 0, plan.has_c ? stride : 0);
    // The last: all others are whole cache lines, whatever the sizes.
    norms = take<Norm<T>>(0, 0, plan.norms);
  }

  Layout layout;  // of all
  ResidualsHeader* header;
  T* from_x;       // x W (T, B, nP), where the plan keeps it
  T* from_h;       // h R (T, B, nP), or the sum of both
  T* h;            // before each step and after the last (T + 1, B, P)
  T* c;            // likewise, LSTM only
  Norm<T>* norms;  // (T, B, norms)

 private:
  // An array of so many elements: in all, of each row, and of a row's step.
  template <class E>
  E* take(long fixed, long row, long step) {
    char* here = memory_ ? memory_ + layout.bytes(p_) : nullptr;
    // Not all arrays begin in the same sets of the caches.
    layout.fixed += fixed * sizeof(E) + 3 * kLineBytes;
    layout.row += row * sizeof(E);
    layout.step += step * sizeof(E);
    return reinterpret_cast<E*>(here);
  }

  const KlnProblem& p_;
  char* memory_;
};

}  // namespace
}  // namespace kln
