// The gradients of a cell over a sequence.
//
// Some steps at a time, from the last to the first: tasks take the rows, of
// which they own some, back through these steps; by columns they share out the
// products of a step too, and meet before and after. Then they share out the
// columns of the products that give the gradients of kernels and inputs. The
// gradients of the products, n times as wide as a state, are so only kept for
// as many rows as a block of a product is deep. What is summed over rows is
// summed in a fixed number of blocks of rows: no result depends on the number
// of threads.
//
// Letters: B batch, T steps, D features, U units, P padded units, n gates.
#pragma once

#include "forward.h"
#include "state_gradients.h"

namespace kln {
namespace {

// Rows of a chunk: steps times rows of the batch.
constexpr long kChunkRows = kDepth;
// So many parts have the sums over rows; more threads find nothing to do.
constexpr long kRowBlocks = 16;

template <class T, class Cell>
class Backward {
 public:
  Backward(const KlnProblem& p, const Team& team, Carver& carver)
      : p_(p),
        team_(team),
        plan_(plan_of(p)),
        gates_(gates_row<T>(p)),
        stride_(padded<T>(p.units)),
        zoneout_(p),
        cell_(p, carver),
        states_(p),
        kept_(p, p.residuals),
        kernel_(carver, plan_.summed || plan_.keeps_from_x ? 0 : p.features,
                gates_),
        kernel_t_(carver, p.d_x ? gates_.size() : 0, Row<T>(1, p.features)),
        recurrent_t_(carver, gates_.size(), Row<T>(1, p.units)) {
    most_rows_ = least(p.batch, kChunkRows);
    blocks_ = least(most_rows_, kRowBlocks);
    tasks_ = team.size() > 1 ? team.size() : least(p.threads, blocks_);
    chunk_ = most(1, least(p.steps, kChunkRows / most_rows_));
    const long rows = chunk_ * most_rows_;
    x_ = carver.take<T>(rows * p.features);
    d_from_h_ = carver.take<T>(rows * gates_.size());
    d_from_x_ = plan_.summed ? d_from_h_ : carver.take<T>(rows * gates_.size());
    from_x_ = carver.take<T>(kernel_.depth > 0 ? rows * gates_.size() : 0);
    shown_ = carver.take<T>(p.recurrent_mask ? rows * stride_ : 0);
    states_.take(most_rows_, carver);
    sums_ = carver.take<T>(blocks_ * Cell::kSums * stride_);
    Carver counter(nullptr);
    Workspace(*this, counter);
    workspace_bytes_ = counter.bytes();
    workspaces_ = carver.take<char>(tasks_ * workspace_bytes_);
  }

  void run() const {
    parallel(p_, team_, tasks_, [&](long task) { prepare(task); });
    // Of a large batch, some rows after the other.
    const long parts = quotient_up(p_.batch, most_rows_);
    for (long part = 0; part < parts; ++part) {
      const Share rows = share_of(p_.batch, part, parts);
      states_.start(rows);
      for (long end = p_.steps; end > 0; end -= chunk_) {
        const Share visits = {most(0, end - chunk_), end};
        parallel(p_, team_, tasks_,
                 [&](long task) { run_steps(rows, visits, task); });
        const bool first = part == 0 && end == p_.steps;
        parallel(p_, team_, tasks_,
                 [&](long task) { run_products(rows, visits, task, !first); });
      }
      states_.finish(rows);
    }
    for (long b = 1; b < blocks_; ++b)
      for (long i = 0; i < Cell::kSums * stride_; ++i)
        sums_[i] += sums_[b * Cell::kSums * stride_ + i];
    Cell::finish(sums_, p_);
  }

 private:
  // What a task needs for itself.
  struct Workspace {
    T *row, *d_x;
    T* past;  // what zoneout takes by the step, of a row's h and c
    OuterScratch<T> outer;

    Workspace(const Backward& b, Carver& carver)
        : outer(carver, most(b.p_.features, b.stride_)) {
      row = carver.take<T>(Cell::kTemporary * b.stride_);
      past = carver.take<T>(b.zoneout_.asked() ? 2 * b.stride_ : 0);
      const long share = quotient_up(b.chunk_ * b.most_rows_, b.tasks_);
      d_x = carver.take<T>(b.p_.d_x ? share * b.kernel_t_.columns : 0);
    }
  };

  Workspace workspace(long task) const {
    Carver carver(workspaces_ + task * workspace_bytes_);
    return Workspace(*this, carver);
  }

  void prepare(long task) const {
    const Member me(team_, task, tasks_);
    const Packed<T> w = me.of(kernel_), r = me.of(recurrent_t_);
    if (w.depth > 0) pack(w, array<T>(p_.kernel), me.panels_of(w));
    // All of its columns at once, which are multiplied with rows that differ.
    if (p_.d_x)
      pack_transposed(kernel_t_, array<T>(p_.kernel), gates_,
                      share_of(kernel_t_.panels(), task, tasks_));
    pack_transposed(r, array<T>(p_.recurrent_kernel), gates_, me.panels_of(r));
    if (task == 0) fill(sums_, T(0), blocks_ * Cell::kSums * stride_);
  }

  // The steps `visits`, backwards, of the task's part of `batch`.
  void run_steps(Share batch, Share visits, long task) const {
    const Member me(team_, task, tasks_);
    const long all = batch.size(), blocks = least(blocks_, all);
    const Share mine = share_of(blocks, task, tasks_);
    // In rows of the batch's part.
    const Share rows = {share_of(all, mine.first, blocks).first,
                        share_of(all, mine.end, blocks).first};
    if (me.alone() && rows.size() == 0) return;
    // Those whose products it shares out: the rows of all members.
    const Share common = me.alone() ? rows : Share{0, all};
    const Workspace space = workspace(task);
    gather(batch, visits, rows);
    const Rows<const T> from_x = projected(batch, visits, common, me);
    const long width = gates_.size();
    for (long k = visits.end - 1; k >= visits.first; --k) {
      const long here = (k - visits.first) * all;  // of the chunk's rows
      for (long b = mine.first; b < mine.end; ++b) {
        const Share block = share_of(all, b, blocks);
        for (long i = block.first; i < block.end; ++i)
          step(batch.first + i, k,
               from_x.data + (k - visits.first) * from_x.group + i * width, i,
               here + i, sums_ + b * Cell::kSums * stride_, space);
      }
      me.meet();
      multiply(common, d_from_h_ + (here + common.first) * width, me);
      me.meet();
      if (p_.recurrent_mask) states_.add_shown(batch.first, rows);
      if (p_.starts) states_.restart(batch.first, rows, k);
    }
  }

  // What the products multiply, in the order of visits.
  void gather(Share batch, Share visits, Share rows) const {
    const long all = batch.size(), n = p_.features;
    for (long k = visits.first; k < visits.end; ++k)
      for (long i = rows.first; i < rows.end; ++i) {
        const long here = (k - visits.first) * all + i;
        const long row = batch.first + i;
        gather_x(p_, row, k, x_ + here * n);
        if (p_.recurrent_mask)
          gather_h(p_, row, kept_.h + (k * p_.batch + row) * stride_,
                   shown_ + here * stride_);
      }
  }

  // x W of the part's rows: kept, or formed again for the rows `common`.
  Rows<const T> projected(Share batch, Share visits, Share common,
                          const Member& me) const {
    const long all = batch.size(), width = gates_.size(), n = p_.features;
    if (kernel_.depth == 0) {
      const long first = visits.first * p_.batch + batch.first;
      return {kept_.from_x + first * width, width, p_.batch * width};
    }
    me.meet();
    product<T>(visits.size(), common.size(),
               {x_ + common.first * n, n, all * n}, me.of(kernel_),
               {from_x_ + common.first * width, width, all * width}, false);
    me.meet();
    return {from_x_, width, all * width};
  }

  // One row of visit k: row i of the batch's part, row `here` of the chunk.
  void step(long row, long k, const T* from_x, long i, long here, T* sums,
            const Workspace& space) const {
    const long width = gates_.size(), kept = k * p_.batch + row;
    T *dh = states_.dh + i * stride_, *dc = states_.dc + i * stride_;
    T* d_from_h = d_from_h_ + here * width;
    T* d_from_x = d_from_x_ + here * width;
    if (p_.d_outputs) {
      const T* d = array<T>(p_.d_outputs) + (row * p_.steps + k) * p_.units;
      for (long u = 0; u < p_.units; ++u) dh[u] += d[u];
    }
    // At a step left out the states stayed: so do their gradients.
    if (!is_valid(p_, row, k)) {
      fill(d_from_h, T(0), width);
      if (!plan_.summed) fill(d_from_x, T(0), width);
      return;
    }
    const long place = row * p_.steps + time_of(p_, k);
    T *past_h = space.past, *past_c = space.past + stride_;
    if (zoneout_.h.asked) zoneout_.h.divide(place, dh, past_h);
    if (zoneout_.c.asked) zoneout_.c.divide(place, dc, past_c);
    cell_.backward(from_x, kept_.from_h + kept * width,
                   kept_.h + kept * stride_, kept_.c + kept * stride_,
                   kept_.norms + kept * Cell::kNorms, dh, dc, d_from_x,
                   d_from_h, sums, space.row);
    if (zoneout_.h.asked) zoneout_.h.add(past_h, dh);
    if (zoneout_.c.asked) zoneout_.c.add(past_c, dc);
  }

  // Adds to dh what flows through h R; with dropout, to be added later.
  void multiply(Share rows, const T* d_from_h, const Member& me) const {
    const long count = rows.size(), width = gates_.size();
    const bool masked = p_.recurrent_mask;
    T* to = (masked ? states_.d_shown : states_.dh) + rows.first * stride_;
    product<T>(1, count, {d_from_h, width, count * width}, me.of(recurrent_t_),
               {to, stride_, count * stride_}, !masked);
  }

  // The gradients of kernels and inputs, the task's part of them.
  void run_products(Share batch, Share visits, long task, bool add) const {
    const Workspace space = workspace(task);
    const long depth = visits.size() * batch.size();
    const Share panels =
        share_of(quotient_up(gates_.size(), kPanel<T>), task, tasks_);
    // The rows of the batch's part stand together: a part is the whole batch,
    // or a chunk one step.
    const T* h = kept_.h + (visits.first * p_.batch + batch.first) * stride_;
    if (p_.recurrent_mask) h = shown_;
    if (p_.d_recurrent_kernel)
      add_outer(depth, p_.units, h, stride_, d_from_h_, gates_,
                array<T>(p_.d_recurrent_kernel), add, panels, space.outer);
    if (p_.d_kernel)
      add_outer(depth, p_.features, x_, p_.features, d_from_x_, gates_,
                array<T>(p_.d_kernel), add, panels, space.outer);
    if (p_.d_x)
      input_gradient(batch, visits, share_of(depth, task, tasks_), space.d_x);
  }

  void input_gradient(Share batch, Share visits, Share rows, T* d_x) const {
    const long width = gates_.size(), n = p_.features;
    const long stride = kernel_t_.columns, count = rows.size();
    product<T>(1, count, {d_from_x_ + rows.first * width, width, count * width},
               kernel_t_, {d_x, stride, count * stride}, false);
    for (long i = 0; i < count; ++i) {
      const long here = rows.first + i;
      const long k = visits.first + here / batch.size();
      const long row = batch.first + here % batch.size();
      const T* from = d_x + i * stride;
      T* to = array<T>(p_.d_x) + (row * p_.steps + time_of(p_, k)) * n;
      const T* factor = array<T>(p_.input_mask);
      if (!factor) {
        copy(to, from, n);
        continue;
      }
      for (long j = 0; j < n; ++j) to[j] = from[j] * factor[row * n + j];
    }
  }

  const KlnProblem& p_;
  const Team& team_;
  const Plan plan_;
  const Row<T> gates_;
  const long stride_;  // P
  const Zoneouts<T> zoneout_;
  const Cell cell_;
  StateGradients<T> states_;  // of a part's rows
  const Residuals<T> kept_;
  // W (empty where x W was kept), and W and R transposed.
  const Packed<T> kernel_, kernel_t_, recurrent_t_;
  // The batch is taken in parts of at most `most_rows_` rows, which have
  // `blocks_` blocks, shared out among the tasks; `chunk_` steps at a time.
  long most_rows_, blocks_, tasks_, chunk_;
  // Of a chunk (chunk, rows, .): the inputs, x W where it is formed again, the
  // gradients of x W and h R (nP), and h as the product saw it, where a dropout
  // mask changed it.
  T *x_, *from_x_, *d_from_x_, *d_from_h_, *shown_;
  T* sums_;      // (blocks, kSums P)
  long workspace_bytes_;
  char* workspaces_;
};

}  // namespace
}  // namespace kln
