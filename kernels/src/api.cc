// The C interface: checks, then the kernels of the chosen instruction set.
#include <string.h>

#include "cpu.h"
#include "keras_ln_kernels.h"
#include "scratch.h"
#include "sharing.h"
#include "slots.h"
#include "team.h"

namespace {

using kln::kGates, kln::Slot;

// Sizes are refused where one of two products exceeds this,
//   a = 64 (B + 64) (T + 64) (D + 64) (U + 64)   and   r = 64 (U + 64)^2.
// Below it all bytes of a call are less than 2^62, so that no size, offset or
// sum of them overflows. With P <= U + 15 padded units, at most 4 gates, at
// most 8 bytes an element, and every array up to 256 bytes longer:
//  - an array of the caller has at most 8 B T D, 8 B T U, 32 D U <= a or
//    32 U^2 <= r bytes;
//  - residuals are 8 P (10 B T + 2 B) + 96 B T + 5 * 256 <= a / 16;
//  - R packed takes 32 U P <= r / 2, its transpose 32 P^2 <= r / 2, and W with
//    its transpose 32 D P + 32 P (D + 15) <= a / 16;
//  - tasks of forward have less than 2 B rows in all and work on at most T
//    steps: 16 B (T D + 4 T P + 9 P) + 7 * 256 B <= a / 16;
//    by columns, 257 at most, 16 P in each besides <= a / 16;
//  - backward has at most 257 tasks and 512 rows: less than 2^21 (D + P + 64)
//    <= a / 4, as a > 2^24 (D + 64) and a > 2^24 (U + 64).
// Rows, steps and threads are shared out without a product (share_of).
constexpr double kMost = 4e18;

const char* check(const KlnProblem* p) {
  if (!p) return "problem: NULL";
  if (p->abi_version != KLN_ABI_VERSION ||
      p->struct_bytes != int32_t(sizeof(KlnProblem)))
    return "the caller was made for another version of this library";
  if (const char* reason = kln::unsupported_reason()) return reason;
  if (p->cell < KLN_LSTM || p->cell > KLN_SIMPLE_RNN) return "cell: unknown";
  if (p->dtype != KLN_FLOAT32 && p->dtype != KLN_FLOAT64)
    return "dtype: unknown";
  double all = 64.0;
  const int64_t sizes[] = {p->batch, p->steps, p->features, p->units};
  for (int64_t size : sizes) {
    if (size < 1) return "batch, steps, features and units must be positive";
    all *= double(size) + 64.0;
  }
  const double units = double(p->units) + 64.0;
  if (all > kMost || 64.0 * units * units > kMost)
    return "the problem is too large";
  if (p->threads < 1) return "threads: must be positive";
  if (!(p->epsilon > 0 && p->epsilon < __builtin_inf()))
    return "epsilon: must be positive and finite";
  if (!p->x) return "x: NULL";
  if (!p->kernel) return "kernel: NULL";
  if (!p->recurrent_kernel) return "recurrent_kernel: NULL";
  if (!p->kernel_gamma && p->kernel_beta)
    return "kernel_beta: there is no kernel_gamma";
  if (!p->recurrent_gamma && p->recurrent_beta)
    return "recurrent_beta: there is no recurrent_gamma";
  if (!p->state_gamma && p->state_beta)
    return "state_beta: there is no state_gamma";
  if (p->cell == KLN_LSTM) {
    if (p->carry_normalized_state && !p->state_gamma)
      return "carry_normalized_state: there is no state_gamma";
  } else if (p->initial_c || p->reset_c || p->state_gamma ||
             p->carry_normalized_state) {
    return "initial_c, reset_c, state_gamma, carry_normalized_state: LSTM only";
  }
  if (!p->starts && (p->reset_h || p->reset_c))
    return "reset_h, reset_c: there are no starts";
  const double shares[] = {p->zoneout_share, p->cell_zoneout_share};
  for (double share : shares)
    if (!(share >= 0 && share < 1))
      return "zoneout_share, cell_zoneout_share: must be in [0, 1)";
  if ((p->zoneout && p->zoneout_share > 0) ||
      (p->cell_zoneout && p->cell_zoneout_share > 0))
    return "zoneout: there are choices and a share";
  if (p->cell != KLN_LSTM && (p->cell_zoneout || p->cell_zoneout_share > 0))
    return "cell_zoneout: LSTM only";
  if (p->cell != KLN_GRU && p->recurrent_bias)
    return "recurrent_bias: GRU only";
  if (p->cell == KLN_SIMPLE_RNN && p->recurrent_gamma)
    return "recurrent_gamma: not in a simple RNN";
  return nullptr;
}

const char* check_residuals(const KlnProblem& p, const void* residuals,
                            int64_t bytes) {
  if (reinterpret_cast<uintptr_t>(residuals) % KLN_RESIDUAL_ALIGNMENT)
    return "residuals: not aligned to 16 bytes";
  if (bytes < kln::kernels()->residual_bytes(p))
    return "residuals: too small";
  return nullptr;
}

// The arrays that a call reads, or those that it writes.
class Arrays {
 public:
  // Those that `in` points to; residuals have `residual_bytes` bytes.
  template <size_t n>
  Arrays(const KlnProblem& p, const Slot (&slots)[n], const void* in,
         int64_t residual_bytes = 0) {
    add(p, slots, in, residual_bytes);
  }

  template <size_t n>
  void add(const KlnProblem& p, const Slot (&slots)[n], const void* in,
           int64_t residual_bytes) {
    for (const Slot& slot : slots) {
      uintptr_t first;
      memcpy(&first, static_cast<const char*>(in) + slot.offset, sizeof first);
      if (!first) continue;
      int64_t bytes = slot.chooses ? 1 : p.dtype == KLN_FLOAT32 ? 4 : 8;
      for (const char* c = slot.letters; *c; ++c)
        bytes = *c == 'R' ? residual_bytes : bytes * length(p, *c);
      pieces_[count_++] = {first, first + uintptr_t(bytes)};
    }
  }

  // Whether one of these overlaps one of `others`, or another one of these.
  bool overlap(const Arrays& others) const {
    for (int i = 0; i < count_; ++i) {
      for (int k = 0; k < others.count_; ++k)
        if (pieces_[i].meets(others.pieces_[k])) return true;
      for (int k = 0; k < i; ++k)
        if (pieces_[i].meets(pieces_[k])) return true;
    }
    return false;
  }

 private:
  struct Piece {
    uintptr_t first, end;
    bool meets(const Piece& other) const {
      return first < other.end && other.first < end;
    }
  };

  static int64_t length(const KlnProblem& p, char letter) {
    switch (letter) {
      case 'B': return p.batch;
      case 'T': return p.steps;
      case 'D': return p.features;
      case 'U': return p.units;
      default: return kGates[p.cell] * p.units;
    }
  }

  Piece pieces_[sizeof kln::kArguments / sizeof(Slot) +
                sizeof kln::kCotangents / sizeof(Slot)];
  int count_ = 0;
};

constexpr const char* kOverlap =
    "an array that is written to overlaps another one";

// Runs a pass by rows or by columns.
template <class Arguments>
const char* shared_out(KlnProblem p, const Arguments& arguments,
                       const char* (*pass)(const KlnProblem&, const Arguments&,
                                           const kln::Team&)) {
  p.threads = kln::useful_threads(p);
  const kln::Team team(kln::team_size(p, p.threads), kln::is_sharing_chosen());
  return pass(p, arguments, team);
}

}  // namespace

extern "C" {

int32_t kln_abi_version(void) { return KLN_ABI_VERSION; }

const char* kln_unsupported_reason(void) { return kln::unsupported_reason(); }

const char* kln_instruction_set(void) {
  const kln::Kernels* kernels = kln::kernels();
  return kernels ? kernels->name : nullptr;
}

const char* kln_use_instruction_set(const char* name) {
  return kln::use_kernels(name);
}

int64_t kln_residual_bytes(const KlnProblem* p) {
  return check(p) ? -1 : kln::kernels()->residual_bytes(*p);
}

int64_t kln_useful_threads(const KlnProblem* p) {
  return check(p) ? 1 : kln::useful_threads(*p);
}

const char* kln_sharing(const KlnProblem* p) {
  if (check(p)) return nullptr;
  return kln::team_size(*p, kln::useful_threads(*p)) > 1 ? "columns" : "rows";
}

const char* kln_use_sharing(const char* name) { return kln::use_sharing(name); }

int64_t kln_core_cache_bytes(void) { return kln::core_cache_bytes(); }

int64_t kln_cpuid_runs(void) { return kln::cpuid_runs(); }

const char* kln_forward(const KlnProblem* p, const KlnForward* f) {
  if (const char* wrong = check(p)) return wrong;
  if (!f) return "forward: NULL";
  if (!f->final_h) return "final_h: NULL";
  if (p->cell == KLN_LSTM && !f->final_c) return "final_c: NULL";
  if (f->residuals)
    if (auto wrong = check_residuals(*p, f->residuals, f->residual_bytes))
      return wrong;
  const Arrays read(*p, kln::kArguments, p);
  if (Arrays(*p, kln::kResults, f, f->residual_bytes).overlap(read))
    return kOverlap;
  return shared_out(*p, *f, kln::kernels()->forward);
}

const char* kln_backward(const KlnProblem* p, const KlnBackward* b) {
  if (const char* wrong = check(p)) return wrong;
  if (!b) return "backward: NULL";
  if (!b->residuals) return "residuals: NULL";
  if (auto wrong = check_residuals(*p, b->residuals, b->residual_bytes))
    return wrong;
  Arrays read(*p, kln::kArguments, p);
  read.add(*p, kln::kCotangents, b, b->residual_bytes);
  if (Arrays(*p, kln::kGradients, b).overlap(read)) return kOverlap;
  return shared_out(*p, *b, kln::kernels()->backward);
}

const char* kln_product(int32_t dtype, int64_t rows, int64_t depth,
                        int64_t columns, const void* a, const void* b, void* c,
                        int64_t times) {
  if (const char* reason = kln::unsupported_reason()) return reason;
  if (rows < 1 || depth < 1 || columns < 1 || times < 1)
    return "rows, depth, columns and times must be positive";
  if (64.0 * (double(rows) + 64.0) * (double(depth) + 64.0) *
          (double(columns) + 64.0) > kMost)
    return "the product is too large";
  if (!a || !b || !c) return "a, b, c: NULL";
  return kln::kernels()->product(dtype, rows, depth, columns, a, b, c, times);
}

void kln_release_scratch(void) { kln::release_scratch(); }

}  // extern "C"
