// The interface's structs, with types.
#pragma once

#include <stddef.h>

#include "keras_ln_kernels.h"
#include "layout.h"

namespace kln {
namespace {

#define KLN_ONE(...) +1
constexpr int kOptions = KLN_OPTIONS(KLN_ONE);
constexpr int kArguments = KLN_ARGUMENTS(KLN_ONE, KLN_ONE);
// All rows: the residuals are one more.
constexpr int kSlots = kOptions + kArguments + 1 KLN_RESULTS(KLN_ONE)
    KLN_RESULTS(KLN_ONE) KLN_ARGUMENTS(KLN_ONE, KLN_NONE);
constexpr size_t kFirst = offsetof(KlnProblem, epsilon);
static_assert(sizeof(KlnProblem) == kFirst + 8 * kSlots, "8 bytes a row");

// The bits of the option, or of the pointer, that a row stands for.
inline uint64_t field(const KlnProblem& p, int place) {
  uint64_t bits;
  __builtin_memcpy(&bits, reinterpret_cast<const char*>(&p) + kFirst +
                   8 * place, sizeof bits);
  return bits;
}

#define KLN_GATES(cell, name, gates) gates,
constexpr int64_t kGates[] = {KLN_CELLS(KLN_GATES)};

// What a letter of a shape stands for.
inline int64_t length(const KlnProblem& p, char letter) {
  switch (letter) {
    case 'B': return p.batch;
    case 'T': return p.steps;
    case 'D': return p.features;
    case 'U': return p.units;
    case 'R': return p.residual_bytes;
    default: return kGates[p.cell] * p.units;
  }
}

template <class T>
const T* array(const void* pointer) {
  return static_cast<const T*>(pointer);
}

template <class T>
T* array(void* pointer) {
  return static_cast<T*>(pointer);
}

// Up to this many features x W is computed again in backward: to write it, to
// fault its pages in and to read it takes longer.
constexpr long kFeaturesToProjectAgain = 64;

// What sizes follow from, besides those of the problem.
struct Plan {
  long gates;  // the n of the kernels' nU columns
  long norms;  // whose statistics are kept, of a row
  bool has_c;
  // The step needs x W and h R only in their sum, which is formed in place.
  bool summed;
  bool keeps_from_x;
};

inline Plan plan_of(const KlnProblem& p) {
  Plan plan{};
  if (p.cell == KLN_LSTM) {
    const bool summed = !p.kernel_gamma && !p.recurrent_gamma;
    plan = {0, p.sum_gamma ? 5 : 3, true, summed, false};
  } else if (p.cell == KLN_GRU) {
    plan = {0, 4, false, p.sum_gamma != nullptr, false};
  } else {
    plan = {0, 1, false, true, false};
  }
  plan.gates = kGates[p.cell];
  plan.keeps_from_x = !plan.summed && p.features > kFeaturesToProjectAgain;
  return plan;
}

// A row of the kernels' columns.
template <class T>
Row<T> gates_row(const KlnProblem& p) {
  return Row<T>(plan_of(p).gates, p.units);
}

// A vector of the cell, padded: `value` where there is none.
template <class T>
const T* vector_of(Carver& carver, const void* from, const Row<T>& row,
                   T value) {
  T* to = carver.take<T>(row.size());
  if (carver.counts_only()) return to;
  pad(to, array<T>(from), row);
  for (long s = 0; !from && s < row.segments; ++s)
    fill(to + s * row.stride(), value, row.count);
  return to;
}

// The sum of those vectors that there are, padded.
template <class T, class... Pointers>
const T* sum_of(Carver& carver, const Row<T>& row, Pointers... vectors) {
  T* to = carver.take<T>(row.size());
  if (carver.counts_only()) return to;
  fill(to, T(0), row.size());
  const void* const all[] = {vectors...};
  for (const void* from : all)
    for (long s = 0; from && s < row.segments; ++s)
      for (long u = 0; u < row.count; ++u)
        to[s * row.stride() + u] += array<T>(from)[s * row.count + u];
  return to;
}

}  // namespace
}  // namespace kln
