// What an instruction set offers: compiled once for each, KLN_SET.
#include "backward.h"
#include "cpu.h"
#include "gru.h"
#include "lstm.h"
#include "simple_rnn.h"

namespace kln {
namespace {

// Runs a pass in scratch memory of the size that it counts by itself.
template <class Pass>
const char* run_pass(const KlnProblem& p, const Team& team) {
  Carver counter(nullptr);
  Pass(p, team, counter);
  const Scratch scratch(counter.bytes());
  if (!scratch.memory) return KLN_OUT_OF_MEMORY;
  Carver carver(scratch.memory);
  const FlushDenormals flush;
  Pass(p, team, carver).run();
  return nullptr;
}

template <template <class, class> class Pass, class T>
const char* run_cell(const KlnProblem& p, const Team& team) {
  const bool sum = p.sum_gamma;
  if (p.cell == KLN_GRU && sum) return run_pass<Pass<T, Gru<T, true>>>(p, team);
  if (p.cell == KLN_GRU) return run_pass<Pass<T, Gru<T, false>>>(p, team);
  if (p.cell == KLN_SIMPLE_RNN) return run_pass<Pass<T, SimpleRnn<T>>>(p, team);
  if (sum) return run_pass<Pass<T, Lstm<T, kSum>>>(p, team);
  if (plan_of(p).summed) return run_pass<Pass<T, Lstm<T, kNeither>>>(p, team);
  return run_pass<Pass<T, Lstm<T, kEach>>>(p, team);
}

template <template <class, class> class Pass>
const char* run(const KlnProblem& p, const Team& team) {
  if (p.dtype == KLN_FLOAT32) return run_cell<Pass, float>(p, team);
  return run_cell<Pass, double>(p, team);
}

const char* backward(const KlnProblem& p, const Team& team) {
  const ResidualsHeader want = header_of(p);
  if (__builtin_memcmp(p.residuals, &want, sizeof want))
    return KLN_OTHER_RESIDUALS;
  return run<Backward>(p, team);
}

template <class T>
const char* run_product(long rows, long depth, long columns, const void* a,
                        const void* b, void* c, long times) {
  const Row<T> row(1, columns);
  Carver counter(nullptr);
  Packed<T>(counter, depth, row);
  counter.take<T>(rows * row.size());
  const Scratch scratch(counter.bytes());
  if (!scratch.memory) return KLN_OUT_OF_MEMORY;
  Carver carver(scratch.memory);
  const Packed<T> packed(carver, depth, row);
  const long stride = row.size();
  T* sums = carver.take<T>(rows * stride);
  pack(packed, array<T>(b), {0, packed.panels()});
  for (long i = 0; i < times; ++i)
    product<T>(1, rows, {array<T>(a), depth, rows * depth}, packed,
               {sums, stride, rows * stride}, false);
  for (long i = 0; i < rows; ++i)
    copy(array<T>(c) + i * columns, sums + i * stride, columns);
  return nullptr;
}

const char* product_of(int dtype, long rows, long depth, long columns,
                              const void* a, const void* b, void* c,
                              long times) {
  const auto run =
      dtype == KLN_FLOAT32 ? &run_product<float> : &run_product<double>;
  return run(rows, depth, columns, a, b, c, times);
}

}  // namespace

extern const Kernels KLN_SET = {run<Forward>, backward, product_of};

}  // namespace kln
