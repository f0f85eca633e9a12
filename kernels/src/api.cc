// The C interface: checks, then the kernels of the chosen instruction set.
#include "cpu.h"
#include "keras_ln_kernels.h"
#include "scratch.h"

namespace {

// Multiplications that a thread must have to do.
constexpr double kLeastWork = 1 << 20;

const char* check(const KlnProblem* p) {
  if (!p) return "problem: NULL";
  if (p->abi_version != KLN_ABI_VERSION ||
      p->struct_bytes != int32_t(sizeof(KlnProblem)))
    return "the caller was made for another version of this library";
  if (const char* reason = kln::unsupported_reason()) return reason;
  if (p->cell < KLN_LSTM || p->cell > KLN_SIMPLE_RNN) return "cell: unknown";
  if (p->dtype != KLN_FLOAT32 && p->dtype != KLN_FLOAT64)
    return "dtype: unknown";
  // Above it products of sizes could overflow.
  constexpr int64_t kMost = int64_t(1) << 40;
  double elements = 64.0;
  const int64_t sizes[] = {p->batch, p->steps, p->features, p->units};
  for (int64_t size : sizes) {
    if (size < 1) return "batch, steps, features and units must be positive";
    if (size > kMost) return "the problem is too large";
    elements *= double(size) + 64.0;
  }
  if (elements > 4e18) return "the problem is too large";
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
  } else if (p->initial_c || p->state_gamma || p->carry_normalized_state) {
    return "initial_c, state_gamma, carry_normalized_state: LSTM only";
  }
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
  if (bytes != kln::kernels()->residual_bytes(p))
    return "residual_bytes: not those of this problem";
  return nullptr;
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
  if (check(p)) return 1;
  const int gates[] = {4, 3, 1};
  const double steps = double(p->batch) * double(p->steps);
  const double work = steps * gates[p->cell] * double(p->units) *
                      double(p->features + p->units) / kLeastWork;
  if (work < 1) return 1;
  return work < double(p->threads) ? int64_t(work) : p->threads;
}

const char* kln_forward(const KlnProblem* p, const KlnForward* f) {
  if (const char* wrong = check(p)) return wrong;
  if (!f) return "forward: NULL";
  if (!f->final_h) return "final_h: NULL";
  if (p->cell == KLN_LSTM && !f->final_c) return "final_c: NULL";
  if (f->residuals)
    if (auto wrong = check_residuals(*p, f->residuals, f->residual_bytes))
      return wrong;
  return kln::kernels()->forward(*p, *f);
}

const char* kln_backward(const KlnProblem* p, const KlnBackward* b) {
  if (const char* wrong = check(p)) return wrong;
  if (!b) return "backward: NULL";
  if (!b->residuals) return "residuals: NULL";
  if (auto wrong = check_residuals(*p, b->residuals, b->residual_bytes))
    return wrong;
  return kln::kernels()->backward(*p, *b);
}

const char* kln_product(int32_t dtype, int64_t rows, int64_t depth,
                        int64_t columns, const void* a, const void* b, void* c,
                        int64_t times) {
  if (const char* reason = kln::unsupported_reason()) return reason;
  if (rows < 1 || depth < 1 || columns < 1 || times < 1)
    return "rows, depth, columns and times must be positive";
  if (!a || !b || !c) return "a, b, c: NULL";
  return kln::kernels()->product(dtype, rows, depth, columns, a, b, c, times);
}

void kln_release_scratch(void) { kln::release_scratch(); }

}  // extern "C"
