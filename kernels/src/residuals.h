// What forward keeps for backward, in the caller's memory.
#pragma once

#include "norm.h"
#include "problem.h"

namespace kln {
namespace {

// Stands first, so that backward can refuse what another problem left.
struct ResidualsHeader {
  int64_t numbers[8];
};

inline ResidualsHeader header_of(const KlnProblem& p) {
  const int64_t options = p.cell | p.dtype << 2 | !!p.go_backwards << 3 |
                          !!p.carry_normalized_state << 4 |
                          !!p.kernel_gamma << 5 | !!p.recurrent_gamma << 6 |
                          !!p.state_gamma << 7 | !!p.zoneout << 8 |
                          !!p.cell_zoneout << 9 | !!p.starts << 10;
  // An arbitrary number, and the version of this layout.
  return {{0x6b6c6e72, KLN_ABI_VERSION, options, p.batch, p.steps, p.features,
           p.units, 0}};
}

// Steps stand in the order of visits. Letters: B batch, T steps, P padded
// units, n gates.
template <class T>
struct Residuals {
  ResidualsHeader* header;
  T* from_x;       // x W (T, B, nP), where the plan keeps it
  T* from_h;       // h R (T, B, nP), or the sum of both
  T* h;            // before each step and after the last (T + 1, B, P)
  T* c;            // likewise, LSTM only
  Norm<T>* norms;  // (T, B, norms)

  Residuals(Carver& carver, const KlnProblem& p) {
    const Plan plan = plan_of(p);
    const long rows = p.steps * p.batch, stride = padded<T>(p.units);
    const long states = (rows + p.batch) * stride;
    header = carver.take<ResidualsHeader>(1);
    from_x = carver.take<T>(plan.keeps_from_x ? rows * plan.gates * stride : 0);
    from_h = carver.take<T>(rows * plan.gates * stride);
    h = carver.take<T>(states);
    c = carver.take<T>(plan.has_c ? states : 0);
    norms = carver.take<Norm<T>>(rows * plan.norms);
  }
};

template <class T>
Residuals<T> residuals_at(const KlnProblem& p, const void* memory) {
  // The caller may copy all of it.
  Carver carver(const_cast<void*>(memory), false);
  return Residuals<T>(carver, p);
}

}  // namespace
}  // namespace kln
