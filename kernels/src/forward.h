// A cell over a sequence.
//
// Rows are independent of each other. By rows, every task takes some of them
// through all steps, and nobody waits. By columns, all tasks work on the same
// rows: each has some columns of the products and, between two meetings, some
// of the rows of everything else. The products x W of some steps come first, in
// one product, then the steps.
//
// Letters: B batch, T steps, D features, U units, P padded units, n gates.
#pragma once

#include "gemm.h"
#include "parallel.h"
#include "residuals.h"
#include "scratch.h"
#include "zoneout.h"

namespace kln {
namespace {

// Rows of a product x W: enough to use the packed kernel well, few enough that
// what is not kept stays in the cache.
constexpr long kRowsToKeep = 512, kRowsToUse = 128;
// Rows of one pass over the steps.
constexpr long kMostRows = 128;
// Matrices that a call reads so often are read as they lie: to pack them first
// would take longer.
constexpr long kUnpackedReads = 8;

// The step of the inputs, of B rows, that visit k sees.
inline long time_of(const KlnProblem& p, long visit) {
  return p.go_backwards ? p.steps - 1 - visit : visit;
}

inline bool is_valid(const KlnProblem& p, long row, long visit) {
  return !p.mask || p.mask[row * p.steps + time_of(p, visit)];
}

inline bool starts(const KlnProblem& p, long row, long visit) {
  return p.starts && p.starts[row * p.steps + time_of(p, visit)];
}

// The inputs (D) of a row at a visit, ready to be multiplied.
template <class T>
void gather_x(const KlnProblem& p, long row, long visit, T* to) {
  const long n = p.features;
  // What stands at steps left out may be anything; it must not meet a zero
  // gradient.
  if (!is_valid(p, row, visit)) return fill(to, T(0), n);
  const T* from = array<T>(p.x) + (row * p.steps + time_of(p, visit)) * n;
  if (!p.input_mask) return copy(to, from, n);
  const T* factor = array<T>(p.input_mask) + row * n;
  for (long i = 0; i < n; ++i) to[i] = from[i] * factor[i];
}

// h (P) of a row, as the product sees it.
template <class T>
void gather_h(const KlnProblem& p, long row, const T* h, T* to) {
  const T* factor = array<T>(p.recurrent_mask) + row * p.units;
  for (long i = 0; i < p.units; ++i) to[i] = h[i] * factor[i];
  fill(to + p.units, T(0), padded<T>(p.units) - p.units);
}

template <class T, class Cell>
class Forward {
 public:
  Forward(const KlnProblem& p, const Team& team, Carver& carver)
      : p_(p),
        team_(team),
        plan_(plan_of(p)),
        keeps_(p.residuals),
        gates_(gates_row<T>(p)),
        stride_(padded<T>(p.units)),
        zoneout_(p),
        cell_(p, carver),
        kept_(p, p.residuals),
        kernel_(carver, p.features, gates_, unpacked(p.kernel)),
        recurrent_(carver, p.units, gates_, unpacked(p.recurrent_kernel)) {
    const long members = team.size();
    tasks_ = members > 1 ? members : least(p.threads, p.batch);
    groups_ = quotient_up(p.batch, kMostRows);
    if (members == 1)
      groups_ = least(quotient_up(groups_, tasks_) * tasks_, p.batch);
    most_rows_ = quotient_up(p.batch, groups_);
    const long rows = members * (keeps_ ? kRowsToKeep : kRowsToUse);
    chunk_ = most(1, least(p.steps, rows / most_rows_));
    Carver counter(nullptr);
    Workspace(*this, counter);
    workspace_bytes_ = counter.bytes();
    workspaces_ = carver.take<char>(tasks_ / members * workspace_bytes_);
  }

  void run() const {
    parallel(p_, team_, tasks_, [&](long task) {
      const Member me(team_, task, tasks_);
      const Packed<T> w = me.of(kernel_), r = me.of(recurrent_);
      pack(w, array<T>(p_.kernel), me.panels_of(w));
      pack(r, array<T>(p_.recurrent_kernel), me.panels_of(r));
    });
    if (keeps_) *kept_.header = header_of(p_);
    parallel(p_, team_, tasks_, [&](long task) {
      const Member me(team_, task, tasks_);
      Carver carver(workspaces_ + (me.alone() ? task * workspace_bytes_ : 0));
      const Workspace space(*this, carver);
      const Share groups =
          me.alone() ? share_of(groups_, task, tasks_) : Share{0, groups_};
      for (long g = groups.first; g < groups.end; ++g)
        run_rows(share_of(p_.batch, g, groups_), space, me);
    });
  }

 private:
  // What a task needs for its rows, besides what is kept.
  struct Workspace {
    T *x, *from_x, *from_h, *h, *c, *shown;
    T* before;  // h and c of a row of a member, which the step may write over

    Workspace(const Forward& f, Carver& carver) {
      const long rows = f.most_rows_, products = rows * f.gates_.size();
      const long states = rows * f.stride_;
      const auto take = [&](bool needed, long size) {
        return carver.take<T>(needed ? size : 0);
      };
      x = carver.take<T>(f.chunk_ * rows * f.p_.features);
      from_x = take(!f.keeps_from_x(), f.chunk_ * products);
      from_h = take(!f.keeps_ && !f.plan_.summed, products);
      h = take(!f.keeps_, states);
      c = take(!f.keeps_, states);
      shown = take(f.p_.recurrent_mask, states);
      before = take(f.zoneout_.asked() && !f.keeps_,
                    f.team_.size() * 2 * f.stride_);
    }
  };

  // A matrix to be read as it lies, or NULL.
  const T* unpacked(const void* matrix) const {
    const long reads = p_.steps * quotient_up(p_.batch, kTileRows);
    const bool fits = gates_.size() == gates_.dense();
    return fits && reads <= kUnpackedReads ? array<T>(matrix) : nullptr;
  }

  bool keeps_from_x() const {
    return keeps_ && (plan_.keeps_from_x || plan_.summed);
  }

  // All steps of the rows `which`, of which `mine` are the member's.
  void run_rows(Share which, const Workspace& space, const Member& me) const {
    const long rows = which.size(), batch = p_.batch;
    const long width = gates_.size();
    const Share mine = me.of(rows);
    T* before = space.before + me.index() * 2 * stride_;
    T* h = keeps_ ? kept_.h + which.first * stride_ : space.h;
    T* c = keeps_ ? kept_.c + which.first * stride_ : space.c;
    start(h, p_.initial_h, which.first, mine);
    if (plan_.has_c) start(c, p_.initial_c, which.first, mine);

    for (long k0 = 0; k0 < p_.steps; k0 += chunk_) {
      const long steps = least(chunk_, p_.steps - k0);
      const Rows<T> from_x = project(which, k0, steps, space, me);
      for (long k = k0; k < k0 + steps; ++k) {
        T* x = from_x.data + (k - k0) * from_x.group;
        T* z = x;
        if (!plan_.summed)
          z = keeps_ ? kept_.from_h + (k * batch + which.first) * width
                     : space.from_h;
        if (p_.starts) restart(h, c, which.first, mine, k);
        const T* shown = shown_at(h, which.first, mine, space.shown);
        me.meet();
        product<T>(1, rows, {shown, stride_, rows * stride_},
                   me.of(recurrent_), {z, width, rows * width}, plan_.summed);
        me.meet();
        T* new_h = keeps_ ? h + batch * stride_ : h;
        T* new_c = keeps_ ? c + batch * stride_ : c;
        for (long i = mine.first; i < mine.end; ++i) {
          step(which.first + i, k, x + i * width, z + i * width,
               h + i * stride_, c + i * stride_, new_h + i * stride_,
               new_c + i * stride_, before);
        }
        h = new_h;
        c = new_c;
      }
    }
    finish(h, p_.final_h, which.first, mine);
    if (plan_.has_c) finish(c, p_.final_c, which.first, mine);
    // The next rows are other members'.
    me.meet();
  }

  // x W of some steps.
  Rows<T> project(Share which, long k0, long steps,
                  const Workspace& space, const Member& me) const {
    const long rows = which.size(), n = p_.features, width = gates_.size();
    const Share mine = me.of(steps * rows);
    for (long i = mine.first; i < mine.end; ++i)
      gather_x(p_, which.first + i % rows, k0 + i / rows, space.x + i * n);
    Rows<T> to{space.from_x, width, rows * width};
    if (keeps_from_x()) {
      T* all = plan_.summed ? kept_.from_h : kept_.from_x;
      to = {all + (k0 * p_.batch + which.first) * width, width,
            p_.batch * width};
    }
    me.meet();
    product<T>(steps, rows, {space.x, n, rows * n}, me.of(kernel_), to, false);
    return to;
  }

  // h as the product sees it: of the rows `mine` from `first` on.
  const T* shown_at(const T* h, long first, Share mine, T* shown) const {
    if (!p_.recurrent_mask) return h;
    for (long i = mine.first; i < mine.end; ++i)
      gather_h(p_, first + i, h + i * stride_, shown + i * stride_);
    return shown;
  }

  // One row of a step. At a step left out the states stay.
  void step(long row, long k, T* from_x, T* from_h, const T* h, const T* c,
            T* new_h, T* new_c, T* before) const {
    Norm<T> unkept[Cell::kNorms];
    const long i = k * p_.batch + row;
    if (is_valid(p_, row, k)) {
      if (zoneout_.asked() && !keeps_) {
        copy(before, h, stride_);
        if (plan_.has_c) copy(before + stride_, c, stride_);
        h = before;
        c = before + stride_;
      }
      cell_.forward(from_x, from_h, h, c, new_h, new_c,
                    keeps_ ? kept_.norms + i * Cell::kNorms : unkept);
      const long place = row * p_.steps + time_of(p_, k);
      if (zoneout_.h.asked) zoneout_.h.keep(place, h, new_h);
      if (zoneout_.c.asked) zoneout_.c.keep(place, c, new_c);
    } else if (keeps_) {
      copy(new_h, h, stride_);
      if (plan_.has_c) copy(new_c, c, stride_);
    }
    if (!p_.outputs) return;
    copy(array<T>(p_.outputs) + (row * p_.steps + k) * p_.units, new_h,
         p_.units);
  }

  void start(T* state, const void* initial, long first, Share mine) const {
    for (long i = mine.first; i < mine.end; ++i)
      set(state + i * stride_, initial, first + i);
  }

  // The states of the rows that start anew at visit k.
  void restart(T* h, T* c, long first, Share mine, long k) const {
    for (long i = mine.first; i < mine.end; ++i) {
      const long row = first + i;
      if (!starts(p_, row, k)) continue;
      set(h + i * stride_, p_.reset_h, row);
      if (plan_.has_c) set(c + i * stride_, p_.reset_c, row);
    }
  }

  // A state (P) of a row, from an array (B, U) or NULL for zeros.
  void set(T* state, const void* from, long row) const {
    pad(state, from ? array<T>(from) + row * p_.units : nullptr,
        Row<T>(1, p_.units));
  }

  void finish(const T* state, void* to, long first, Share mine) const {
    for (long i = mine.first; i < mine.end; ++i)
      copy(array<T>(to) + (first + i) * p_.units, state + i * stride_,
           p_.units);
  }

  const KlnProblem& p_;
  const Team& team_;
  const Plan plan_;
  const bool keeps_;  // what backward needs
  const Row<T> gates_;
  const long stride_;  // P
  const Zoneouts<T> zoneout_;
  const Cell cell_;
  const Residuals<T> kept_;
  const Packed<T> kernel_, recurrent_;
  // Rows go through the steps in groups of at most `most_rows_`, by rows shared
  // out among the tasks; x W is formed for `chunk_` steps at a time.
  long tasks_, groups_, most_rows_, chunk_;
  long workspace_bytes_;
  char* workspaces_;
};

}  // namespace
}  // namespace kln
