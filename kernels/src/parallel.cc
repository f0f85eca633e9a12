#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <new>

#include "partition.h"

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

inline double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
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

}  // namespace

// Whether to do the next time without what came late the last time: where that
// goes on, ever more often, until it is better. Asked once each time.
class Patience {
 public:
  bool rests() { return rest_ > 0 && rest_--; }
  void judge(bool late) {
    if (late) rest_ = next_rest_;
    next_rest_ = late && next_rest_ < 64 ? 2 * next_rest_ : 4;
  }

 private:
  int64_t rest_ = 0, next_rest_ = 4;
};

// Threads that run tasks, round after round, for one caller at a time.
class Pool {
 public:
  static constexpr int64_t kMostThreads = 256;

  constexpr Pool() = default;

  // That of the library, which starts threads. It lives as long as the process.
  static Pool* get() {
    Pool* pool = current_.load(std::memory_order_acquire);
    if (pool) return pool;
    // Without its handler a child would find a pool that has no threads.
    if (!watches_forks()) return nullptr;
    void* memory = malloc(sizeof(Pool));
    if (!memory) return nullptr;
    Pool* fresh = new (memory) Pool;
    if (current_.compare_exchange_strong(pool, fresh)) return fresh;
    free(memory);
    return pool;
  }

  // That whose threads are lent for a call; nullptr where they might be gone.
  static Pool* lent() {
    return watches_forks() && !forked_ ? &lent_ : nullptr;
  }

  // Whether the caller has the pool from now on: not where another one has it.
  bool take() { return !pthread_mutex_trylock(&callers_); }

  // Starts threads until there are `wanted`, or no more are to be had: tasks
  // get done with any number.
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

  // Says how many come and `work`, where it has started none.
  void expect(int64_t threads) { threads_ = threads; }

  uint64_t round() const { return round_.load(); }

  // What a thread of the pool does: all rounds after `seen`, until `dismiss`.
  void work(uint64_t seen) {
    for (;;) {
      for (int i = 0; i < kLooks && round_.load() == seen; ++i) pause_briefly();
      pthread_mutex_lock(&mutex_);
      while (round_.load() == seen) pthread_cond_wait(&work_, &mutex_);
      seen = round_.load();
      const bool dismissed = count_ < 0;
      if (!dismissed) inside_.fetch_add(1);
      pthread_mutex_unlock(&mutex_);
      if (dismissed) return;
      take_tasks();
      inside_.fetch_sub(1);
    }
  }

  // What follows is for whoever has taken it.
  void run(int64_t count, KlnTask task, void* context) {
    announce(count, task, context);
    take_tasks();
    // Pieces are of equal size: what is left takes little longer.
    for (int i = 0; unfinished_.load(std::memory_order_acquire) > 0; ++i)
      wait_to_look(i);
  }

  void dismiss() { announce(-1, nullptr, nullptr); }

  void give_back() { pthread_mutex_unlock(&callers_); }

  int64_t threads() const { return threads_; }

  Patience with_team, with_lender;

 private:
  static void* thread_main(void* pool) {
    static_cast<Pool*>(pool)->work(0);
    return nullptr;
  }

  void announce(int64_t count, KlnTask task, void* context) {
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
  }

  void take_tasks() {
    for (;;) {
      const int64_t i = next_.fetch_add(1);
      if (i >= count_) return;
      task_(context_, i);
      unfinished_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  // Whether a forked child is going to know that it is one. Nobody passes here
  // before that is seen to.
  static bool watches_forks() {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] {
      has_handler_ = !pthread_atfork(nullptr, nullptr, forget);
      forked_ = was_forked();
    });
    return has_handler_;
  }

  // A forked child has the memory of pools and none of their threads: it gets
  // a pool of its own.
  static void forget() {
    current_.store(nullptr);
    forked_ = true;
  }

  static std::atomic<Pool*> current_;
  static bool has_handler_, forked_;
  static Pool lent_;
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
bool Pool::has_handler_ = false, Pool::forked_ = false;
Pool Pool::lent_;

// A barrier. Who comes early looks for a while, as all have as much to do, and
// then sleeps: cores may be short.
class Meeting {
 public:
  explicit Meeting(int64_t count) : count_(count) {}

  void meet() {
    // Nobody can begin the next round before this thread has come.
    const uint32_t round = round_.load();
    if (arrived_.fetch_add(1) + 1 == count_) {
      arrived_.store(0);
      round_.store(round + 1);
      // Who counts as asleep either sees the new round or gets the signal.
      if (asleep_.load() == 0) return;
      pthread_mutex_lock(&mutex_);
      pthread_cond_broadcast(&next_);
      pthread_mutex_unlock(&mutex_);
      return;
    }
    for (int i = 0; i < kLooks; ++i) {
      if (round_.load(std::memory_order_acquire) != round) return;
      pause_briefly();
    }
    const double start = seconds();
    pthread_mutex_lock(&mutex_);
    asleep_.fetch_add(1);
    while (round_.load() == round) pthread_cond_wait(&next_, &mutex_);
    asleep_.fetch_sub(1);
    asleep_seconds_ += seconds() - start;
    pthread_mutex_unlock(&mutex_);
  }

  // After all: whether one slept for more than half of the time. So much is
  // what two threads gain.
  bool was_late() const { return 2 * asleep_seconds_ > seconds() - created_; }

 private:
  const int64_t count_;
  const double created_ = seconds();
  double asleep_seconds_ = 0;  // of all
  std::atomic<int64_t> arrived_{0}, asleep_{0};
  std::atomic<uint32_t> round_{0};
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t next_ = PTHREAD_COND_INITIALIZER;
};

Team::Team(Pool* pool, int64_t wanted, bool forced) {
  if (wanted < 2) return;
  const bool own = !pool;
  if (own) {
    pool = Pool::get();
    if (!pool || !pool->take()) return;
    pool->start_threads(wanted - 1);
  }
  void* memory = malloc(sizeof(Meeting));
  if (!memory || pool->threads() < wanted - 1 ||
      (!forced && pool->with_team.rests())) {
    free(memory);
    if (own) pool->give_back();
    return;
  }
  pool_ = pool;
  own_ = own;
  size_ = wanted;
  meeting_ = new (memory) Meeting(wanted);
}

Team::~Team() {
  if (!pool_) return;
  pool_->with_team.judge(meeting_->was_late());
  free(meeting_);
  if (own_) pool_->give_back();
}

void Team::run(KlnTask task, void* context) const {
  // A task that waits keeps its thread, so that each gets a thread of its own.
  pool_->run(size_, task, context);
}

void Team::meet() const { meeting_->meet(); }

void run_in_pool(int64_t count, KlnTask task, void* context) {
  Pool* pool = Pool::get();
  if (pool && pool->take()) {
    pool->start_threads(count - 1);
    pool->run(count, task, context);
    pool->give_back();
    return;
  }
  for (int64_t i = 0; i < count; ++i) task(context, i);
}

namespace {

const char* run_on(Pool* pool, const KlnProblem& p, Pass pass) {
  const Team team(pool, team_size(p, p.threads), is_sharing_chosen());
  return pass(p, team);
}

// A call on threads that an OpenMP library lends for its time.
struct LentCall {
  Pool* const pool;
  const KlnProblem& p;
  const Pass pass;
  const pthread_t caller;
  const uint64_t round;
  std::atomic<int64_t> helpers{0};
  double work_seconds = 0;
  const char* wrong = nullptr;
};

void lead(LentCall& call) {
  const double start = seconds();
  KlnProblem p = call.p;
  // One within another team's work, or where OMP_THREAD_LIMIT says so.
  const int64_t here = p.openmp_threads();
  if (p.threads > here) p.threads = here;
  p.parallel_for = [](void* pool, int64_t count, KlnTask task, void* context) {
    static_cast<Pool*>(pool)->run(count, task, context);
  };
  p.parallel_context = call.pool;
  call.pool->expect(p.threads - 1);
  call.wrong = run_on(call.pool, p, call.pass);
  call.work_seconds = seconds() - start;
  call.pool->dismiss();
}

// What each of the threads does.
void enter(void* context) {
  LentCall& call = *static_cast<LentCall*>(context);
  if (pthread_equal(pthread_self(), call.caller))
    lead(call);
  else if (call.helpers.fetch_add(1) < call.p.threads - 1)
    call.pool->work(call.round);
}

// For whoever has taken the pool.
const char* run_lent(Pool* pool, const KlnProblem& p, Pass pass) {
  LentCall call{pool, p, pass, pthread_self(), pool->round()};
  const double start = seconds();
  // A team of as many threads as OpenMP likes, as torch asks for: GNU's ends
  // those that a team has less than the one before, and starts them anew.
  p.openmp_parallel(enter, &call, 0, 0);
  // All of a team have to come, and to leave: where cores have other work that
  // takes longer than the half that a second thread gains.
  pool->with_lender.judge(seconds() - start > 1.5 * call.work_seconds);
  return call.wrong;
}

}  // namespace

const char* run_with_threads(const KlnProblem& problem, Pass pass) {
  KlnProblem p = problem;
  p.threads = useful_threads(p);
  Pool* lent = p.threads > 1 && p.openmp_parallel ? Pool::lent() : nullptr;
  if (!lent) return run_on(nullptr, p, pass);
  if (!lent->take()) {
    // Another caller is at work on as many cores.
    p.threads = 1;
    return run_on(nullptr, p, pass);
  }
  if (!is_sharing_chosen() && lent->with_lender.rests()) {
    lent->give_back();
    return run_on(nullptr, p, pass);
  }
  if (p.threads > Pool::kMostThreads) p.threads = Pool::kMostThreads;
  const char* wrong = run_lent(lent, p, pass);
  lent->give_back();
  return wrong;
}

}  // namespace kln
