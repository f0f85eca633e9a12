// The C interface: checks, then the kernels of the chosen instruction set.
#include "cpu.h"
#include "partition.h"
#include "residuals.h"
#include "scratch.h"

namespace {

using kln::field, kln::kSlots;

struct Row {
  KlnSlot slot;
  const char *not_here, *no_choice;  // what is wrong with a value
  const char* no_number;
};

#define KLN_ROW(type, name, letters, cells, ...)                        \
  {{name, letters, #type, cells, __VA_ARGS__},                          \
   name ": this cell has none",                                         \
   name ": must be 0 or 1",                                             \
   name ": must be finite and not negative"},
#define KLN_ROW_READ(type, name, ...) \
  KLN_ROW(type, #name, __VA_ARGS__, 'r', 'r')
#define KLN_ROW_WRITTEN(type, name, ...) \
  KLN_ROW(type, #name, __VA_ARGS__, 'w', 0)
#define KLN_ROW_READ_GRADIENT(type, name, ...) \
  KLN_ROW(type, "d_" #name, __VA_ARGS__, 0, 'r')
#define KLN_ROW_WRITTEN_GRADIENT(type, name, ...) \
  KLN_ROW(type, "d_" #name, __VA_ARGS__, 0, 'w')

// As in the struct.
constexpr Row kRows[] = {
    KLN_OPTIONS(KLN_ROW_READ)
    KLN_ARGUMENTS(KLN_ROW_READ, KLN_ROW_READ)
    KLN_RESULTS(KLN_ROW_WRITTEN)
    KLN_ROW(byte, "residuals", "R", KLN_ALL, 'w', 'r')
    KLN_RESULTS(KLN_ROW_READ_GRADIENT)
    KLN_ARGUMENTS(KLN_ROW_WRITTEN_GRADIENT, KLN_NONE)
};
static_assert(sizeof kRows == kSlots * sizeof(Row), "a row for each field");

#define KLN_ROW_CELL(cell, name, gates) {name, gates},
constexpr KlnCell kCells[] = {KLN_CELLS(KLN_ROW_CELL)};

// Sizes are refused where one of two products exceeds this,
//   a = 64 (B + 64) (T + 64) (D + 64) (U + 64)   and   r = 64 (U + 64)^2.
// Below it all bytes of a call are less than 2^62, so that no size, offset or
// sum of them overflows. With P <= U + 15 padded units, at most 4 gates, at
// most 8 bytes an element, and every array up to 256 bytes longer:
//  - an array of the caller has at most 8 B T D, 8 B T U, 32 D U <= a or
//    32 U^2 <= r bytes;
//  - residuals are 8 P (10 B T + 2 B) + 120 B T + 5 * 256 <= a / 16;
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
  for (int i = 0; i < kSlots; ++i) {
    const KlnSlot& slot = kRows[i].slot;
    const uint64_t bits = field(*p, i);
    double number;
    __builtin_memcpy(&number, &bits, sizeof number);
    if (slot.type[0] == 'n' && !(number >= 0 && number < __builtin_inf()))
      return kRows[i].no_number;
    if (slot.type[0] == 'c' && bits > 1) return kRows[i].no_choice;
    if (bits && !(slot.cells >> p->cell & 1)) return kRows[i].not_here;
  }
  if (p->threads < 1) return "threads: must be positive";
  if (!p->openmp_parallel != !p->openmp_threads)
    return "openmp_parallel, openmp_threads: one without the other";
  if (p->epsilon <= 0) return "epsilon: must be positive";
  if (!p->x) return "x: NULL";
  if (!p->kernel) return "kernel: NULL";
  if (!p->recurrent_kernel) return "recurrent_kernel: NULL";
  if (!p->kernel_gamma && p->kernel_beta)
    return "kernel_beta: there is no kernel_gamma";
  if (!p->recurrent_gamma && p->recurrent_beta)
    return "recurrent_beta: there is no recurrent_gamma";
  if (!p->state_gamma && p->state_beta)
    return "state_beta: there is no state_gamma";
  if (!p->sum_gamma && (p->sum_beta || p->sum_bias || p->sum_by_gate))
    return "sum_beta, sum_bias, sum_by_gate: there is no sum_gamma";
  if (p->sum_gamma &&
      (p->kernel_gamma || p->recurrent_gamma || p->recurrent_bias))
    return "sum_gamma: there is another site, or recurrent_bias";
  if (p->carry_normalized_state && !p->state_gamma)
    return "carry_normalized_state: there is no state_gamma";
  if (!p->starts && (p->reset_h || p->reset_c))
    return "reset_h, reset_c: there are no starts";
  if (p->zoneout_share >= 1 || p->cell_zoneout_share >= 1)
    return "zoneout_share, cell_zoneout_share: must be less than 1";
  if ((p->zoneout && p->zoneout_share > 0) ||
      (p->cell_zoneout && p->cell_zoneout_share > 0))
    return "zoneout: there are choices and a share";
  return nullptr;
}

kln::Layout residual_layout(const KlnProblem& p) {
  if (p.dtype == KLN_FLOAT32) return kln::Residuals<float>(p, nullptr).layout;
  return kln::Residuals<double>(p, nullptr).layout;
}

// The arrays that a pass reads, or those that it writes.
class Arrays {
 public:
  Arrays(const KlnProblem& p, char KlnSlot::*pass, char use) {
    for (int i = 0; i < kSlots; ++i) {
      const KlnSlot& slot = kRows[i].slot;
      const uintptr_t first = field(p, i);
      if (!first || slot.*pass != use || !slot.letters[0]) continue;
      int64_t bytes = slot.type[0] != 'r' ? 1 : p.dtype == KLN_FLOAT32 ? 4 : 8;
      for (const char* c = slot.letters; *c; ++c) bytes *= kln::length(p, *c);
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

  Piece pieces_[kSlots];
  int count_ = 0;
};

const char* run(const KlnProblem& p, char KlnSlot::*pass, kln::Pass of_set) {
  if (p.residuals) {
    if (reinterpret_cast<uintptr_t>(p.residuals) % KLN_RESIDUAL_ALIGNMENT)
      return "residuals: not aligned to 16 bytes";
    if (p.residual_bytes < residual_layout(p).bytes(p))
      return "residuals: too small";
  }
  if (Arrays(p, pass, 'w').overlap(Arrays(p, pass, 'r')))
    return "an array that is written to overlaps another one";
  return kln::run_with_threads(p, of_set);
}

}  // namespace

extern "C" {

int32_t kln_abi_version(void) { return KLN_ABI_VERSION; }

const KlnSlot* kln_slot(int64_t place) {
  return place >= 0 && place < kSlots ? &kRows[place].slot : nullptr;
}

const KlnCell* kln_cell(int64_t number) {
  const int64_t count = sizeof kCells / sizeof(KlnCell);
  return number >= 0 && number < count ? &kCells[number] : nullptr;
}

const char* kln_instruction_set(void) { return kln::instruction_set(); }

const char* kln_use_instruction_set(const char* name) {
  return kln::use_kernels(name);
}

const char* kln_residual_layout(const KlnProblem* p, int64_t layout[3]) {
  if (const char* wrong = check(p)) return wrong;
  const kln::Layout found = residual_layout(*p);
  layout[0] = found.fixed;
  layout[1] = found.row;
  layout[2] = found.step;
  return nullptr;
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

const char* kln_forward(const KlnProblem* p) {
  if (const char* wrong = check(p)) return wrong;
  if (!p->final_h) return "final_h: NULL";
  if (p->cell == KLN_LSTM && !p->final_c) return "final_c: NULL";
  return run(*p, &KlnSlot::forward, kln::kernels().forward);
}

const char* kln_backward(const KlnProblem* p) {
  if (const char* wrong = check(p)) return wrong;
  if (!p->residuals) return "residuals: NULL";
  return run(*p, &KlnSlot::backward, kln::kernels().backward);
}

const char* kln_product(int32_t dtype, int64_t rows, int64_t depth,
                        int64_t columns, const void* a, const void* b, void* c,
                        int64_t times) {
  if (rows < 1 || depth < 1 || columns < 1 || times < 1)
    return "rows, depth, columns and times must be positive";
  if (64.0 * (double(rows) + 64.0) * (double(depth) + 64.0) *
          (double(columns) + 64.0) > kMost)
    return "the product is too large";
  if (!a || !b || !c) return "a, b, c: NULL";
  return kln::kernels().product(dtype, rows, depth, columns, a, b, c, times);
}

void kln_release_scratch(void) { kln::release_scratch(); }

}  // extern "C"
