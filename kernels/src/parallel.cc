#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <new>

namespace kln {
namespace {

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How often to look again before a thread goes to sleep: some ten
// microseconds, in which the next piece of a sequence usually arrives.
constexpr int kLooks = 2000;

// Between look number `i` and the next one. Where cores are short, those that
// are waited for need this one.
inline void wait_to_look(int i) {
  i < kLooks ? pause_briefly() : void(sched_yield());
}

// While this lives, no signal that is sent to the process comes to this
// thread, or to those that it starts, which keep that: signals belong to the
// program's own threads. What a fault raises goes to the handlers it may have.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t signals;
    sigfillset(&signals);
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    for (int fault : faults) sigdelset(&signals, fault);
    pthread_sigmask(SIG_SETMASK, &signals, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

class Pool {
 public:
  // Pools live as long as the process.
  static Pool* get() {
    Pool* pool = current_.load(std::memory_order_acquire);
    if (pool) return pool;
    // Without its handler a child would find a pool that has no threads.
    // Nobody passes here before it is in place.
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] {
      has_handler_ = !pthread_atfork(nullptr, nullptr, forget);
    });
    if (!has_handler_) return nullptr;
    void* memory = malloc(sizeof(Pool));
    if (!memory) return nullptr;
    Pool* fresh = new (memory) Pool;
    if (current_.compare_exchange_strong(pool, fresh)) return fresh;
    free(memory);
    return pool;
  }

  // Whether the tasks were run: not where another thread has the pool.
  bool run(int64_t count, KlnTask task, void* context) {
    if (pthread_mutex_trylock(&callers_)) return false;
    start_threads(count - 1);
    pthread_mutex_lock(&mutex_);
    // Threads enter while they hold the mutex. One that came too late for the
    // last round must have left before the next one is written down.
    for (int i = 0; inside_.load() > 0; ++i) {
      pthread_mutex_unlock(&mutex_);
      wait_to_look(i);
      pthread_mutex_lock(&mutex_);
    }
    task_ = task;
    context_ = context;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    unfinished_.store(count, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    pthread_cond_broadcast(&work_);
    pthread_mutex_unlock(&mutex_);
    take_tasks();
    wait_until_finished();
    pthread_mutex_unlock(&callers_);
    return true;
  }

 private:
  static constexpr int64_t kMostThreads = 256;

  // As many as can be had; the tasks get done with any number.
  void start_threads(int64_t wanted) {
    if (wanted > kMostThreads) wanted = kMostThreads;
    if (threads_ >= wanted) return;
    const BlockSignals block;
    while (threads_ < wanted) {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, &Pool::thread_main, this)) return;
      pthread_detach(thread);
      ++threads_;
    }
  }

  static void* thread_main(void* pool) {
    static_cast<Pool*>(pool)->work();
    return nullptr;
  }

  void work() {
    uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < kLooks && round_.load() == seen; ++i) pause_briefly();
      pthread_mutex_lock(&mutex_);
      while (round_.load() == seen) pthread_cond_wait(&work_, &mutex_);
      seen = round_.load();
      inside_.fetch_add(1);
      pthread_mutex_unlock(&mutex_);
      take_tasks();
      inside_.fetch_sub(1);
    }
  }

  void take_tasks() {
    for (;;) {
      const int64_t i = next_.fetch_add(1);
      if (i >= count_) return;
      task_(context_, i);
      unfinished_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  void wait_until_finished() {
    // Pieces are of equal size: what is left takes little longer.
    for (int i = 0; unfinished_.load(std::memory_order_acquire) > 0; ++i)
      wait_to_look(i);
  }

  // A forked child has the memory of the pool and none of its threads: it gets
  // a pool of its own.
  static void forget() { current_.store(nullptr); }

  static std::atomic<Pool*> current_;
  static bool has_handler_;
  pthread_mutex_t callers_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t work_ = PTHREAD_COND_INITIALIZER;
  int64_t threads_ = 0;
  KlnTask task_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0}, unfinished_{0}, inside_{0};
  std::atomic<uint64_t> round_{0};
};

std::atomic<Pool*> Pool::current_{nullptr};
bool Pool::has_handler_ = false;

}  // namespace

void run_in_pool(int64_t count, KlnTask task, void* context) {
  Pool* pool = Pool::get();
  if (pool && pool->run(count, task, context)) return;
  for (int64_t i = 0; i < count; ++i) task(context, i);
}

}  // namespace kln
