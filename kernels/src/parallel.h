// Tasks on several threads.
#pragma once

#include "flush.h"
#include "keras_ln_kernels.h"

namespace kln {

// Runs task(context, i) for every i below `count`, on threads of the library's
// own pool and on the caller's. Where the pool is at work for another caller,
// the caller does everything alone.
void run_in_pool(int64_t count, KlnTask task, void* context);

namespace {

// `body(i)` for every i below `count`, as the problem wishes. Denormals are
// flushed in every task: a thread that is lent brings its own mode.
template <class Body>
inline void parallel(const KlnProblem& p, int64_t count, const Body& body) {
  const KlnTask task = [](void* context, int64_t index) {
    const FlushDenormals flush;
    (*static_cast<const Body*>(context))(index);
  };
  void* context = const_cast<Body*>(&body);
  if (count == 1)
    task(context, 0);
  else if (p.parallel_for)
    p.parallel_for(p.parallel_context, count, task, context);
  else
    run_in_pool(count, task, context);
}

}  // namespace
}  // namespace kln
