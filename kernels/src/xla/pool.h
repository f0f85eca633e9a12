// XLA's threads, to be the library's.
#pragma once

#include <sched.h>
#include <stdlib.h>

#include <atomic>
#include <new>

#include "../keras_ln_kernels.h"
#include "xla/ffi/api/c_api.h"

namespace kln_xla {

inline void drop(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  XLA_FFI_Error_Destroy_Args args{};
  args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  args.error = error;
  api->XLA_FFI_Error_Destroy(&args);
}

struct Pool {
  const XLA_FFI_Api* api;
  XLA_FFI_ExecutionContext* context;

  int64_t threads() const {
    int64_t threads = 1;
    XLA_FFI_ThreadPool_NumThreads_Args args{};
    args.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE;
    args.ctx = context;
    args.num_threads = &threads;
    // Without a pool the caller does everything.
    if (XLA_FFI_Error* error = api->XLA_FFI_ThreadPool_NumThreads(&args)) {
      drop(api, error);
      return 1;
    }
    return threads < 1 ? 1 : threads;
  }

  bool schedule(XLA_FFI_Task* task, void* data) const {
    XLA_FFI_ThreadPool_Schedule_Args args{};
    args.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE;
    args.ctx = context;
    args.task = task;
    args.data = data;
    XLA_FFI_Error* error = api->XLA_FFI_ThreadPool_Schedule(&args);
    if (error) drop(api, error);
    return !error;
  }
};

// Tasks are claimed, by the caller too: it gets everything done where the pool
// is busy. A helper may come when all is over, so that helpers own it as well.
class Work {
 public:
  Work(int64_t count, KlnTask task, void* context)
      : task_(task), context_(context), count_(count), unfinished_(count) {}

  void own() { owners_.fetch_add(1); }

  void disown() {
    if (owners_.fetch_sub(1) == 1) free(this);
  }

  void take_tasks() {
    for (;;) {
      const int64_t i = next_.fetch_add(1);
      if (i >= count_) return;
      task_(context_, i);
      unfinished_.fetch_sub(1);
    }
  }

  void wait() const {
    // What is left runs on other threads by now, and is no longer than what
    // the caller did itself. Where cores are short they need this one.
    while (unfinished_.load() > 0) sched_yield();
  }

 private:
  const KlnTask task_;
  void* const context_;
  const int64_t count_;
  std::atomic<int64_t> next_{0}, unfinished_, owners_{1};
};

inline void help(void* data) {
  Work* work = static_cast<Work*>(data);
  work->take_tasks();
  work->disown();
}

// KlnProblem.parallel_for, with a Pool as its context.
inline void run_in_pool(void* context, int64_t count, KlnTask task,
                        void* task_context) {
  const Pool& pool = *static_cast<const Pool*>(context);
  void* memory = malloc(sizeof(Work));
  if (!memory) {
    for (int64_t i = 0; i < count; ++i) task(task_context, i);
    return;
  }
  Work* work = new (memory) Work(count, task, task_context);
  for (int64_t i = 1; i < count; ++i) {
    work->own();
    if (!pool.schedule(help, work)) work->disown();
  }
  work->take_tasks();
  work->wait();
  work->disown();
}

}  // namespace kln_xla
