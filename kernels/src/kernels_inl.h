// The table of one instruction set: included by one source file for each.
#pragma once

#include "backward.h"
#include "forward.h"
#include "gru.h"
#include "kernels.h"
#include "lstm.h"
#include "simple_rnn.h"

namespace kln {
namespace {

// Runs a pass in scratch memory of the size that it counts by itself.
template <class Pass, class Arguments>
const char* run_pass(const KlnProblem& p, const Arguments& arguments,
                     const Team& team) {
  Carver counter(nullptr);
  Pass(p, arguments, team, counter);
  const Scratch scratch(counter.bytes());
  if (!scratch.memory) return KLN_OUT_OF_MEMORY;
  Carver carver(scratch.memory);
  const FlushDenormals flush;
  Pass(p, arguments, team, carver).run();
  return nullptr;
}

template <template <class, class> class Pass, class T, class Arguments>
const char* run_cell(const KlnProblem& p, const Arguments& arguments,
                     const Team& team) {
  if (p.cell == KLN_GRU) return run_pass<Pass<T, Gru<T>>>(p, arguments, team);
  if (p.cell == KLN_SIMPLE_RNN)
    return run_pass<Pass<T, SimpleRnn<T>>>(p, arguments, team);
  if (plan_of(p).summed)
    return run_pass<Pass<T, Lstm<T, true>>>(p, arguments, team);
  return run_pass<Pass<T, Lstm<T, false>>>(p, arguments, team);
}

template <template <class, class> class Pass, class Arguments>
const char* run(const KlnProblem& p, const Arguments& arguments,
                const Team& team) {
  if (p.dtype == KLN_FLOAT32) return run_cell<Pass, float>(p, arguments, team);
  return run_cell<Pass, double>(p, arguments, team);
}

inline const char* forward(const KlnProblem& p, const KlnForward& f,
                           const Team& team) {
  return run<Forward>(p, f, team);
}

inline const char* backward(const KlnProblem& p, const KlnBackward& b,
                            const Team& team) {
  const ResidualsHeader want = header_of(p);
  if (__builtin_memcmp(b.residuals, &want, sizeof want))
    return "the residuals were not left by a forward pass of this problem";
  return run<Backward>(p, b, team);
}

template <class T>
const char* run_product(long rows, long depth, long columns, const void* a,
                        const void* b, void* c, long times) {
  const Row<T> row(1, columns);
  Carver counter(nullptr);
  Packed<T>(counter, depth, row.size());
  counter.take<T>(rows * row.size());
  const Scratch scratch(counter.bytes());
  if (!scratch.memory) return KLN_OUT_OF_MEMORY;
  Carver carver(scratch.memory);
  const Packed<T> packed(carver, depth, row.size());
  const long stride = row.size();
  T* sums = carver.take<T>(rows * stride);
  pack(packed, array<T>(b), row, {0, packed.panels()});
  for (long i = 0; i < times; ++i)
    product<T>(1, rows, {array<T>(a), depth, rows * depth}, packed,
               {sums, stride, rows * stride}, false);
  for (long i = 0; i < rows; ++i)
    copy(array<T>(c) + i * columns, sums + i * stride, columns);
  return nullptr;
}

inline const char* product_of(int dtype, long rows, long depth, long columns,
                              const void* a, const void* b, void* c,
                              long times) {
  const auto run =
      dtype == KLN_FLOAT32 ? &run_product<float> : &run_product<double>;
  return run(rows, depth, columns, a, b, c, times);
}

inline long residual_bytes(const KlnProblem& p) {
  Carver counter(nullptr);
  if (p.dtype == KLN_FLOAT32)
    Residuals<float>(counter, p);
  else
    Residuals<double>(counter, p);
  return counter.bytes();
}

}  // namespace
}  // namespace kln

#define KLN_KERNELS(name) {name, residual_bytes, forward, backward, product_of}
