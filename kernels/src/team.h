// Threads that wait for each other.
#pragma once

#include "keras_ln_kernels.h"

namespace kln {

class Meeting;
class Pool;

// A pool's threads, for the time of a call, and the caller's.
class Team {
 public:
  // Of `wanted` threads of `pool`, which the caller has, or of the library's
  // own where it is NULL. Of the caller's alone where another caller has that,
  // the system has no more threads, or, unless it is `forced`, those of recent
  // teams waited long for each other, as they do where cores are short.
  Team(Pool* pool, int64_t wanted, bool forced);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int64_t size() const { return size_; }

  // Runs task(context, i) for every i below the size, all at the same time.
  void run(KlnTask task, void* context) const;

  // Waits until every task of `run` is here.
  void meet() const;

 private:
  Pool* pool_ = nullptr;
  bool own_ = false;  // of the library, to be given back
  Meeting* meeting_ = nullptr;
  int64_t size_ = 1;
};

// Runs task(context, i) for every i below `count`, on threads of the library's
// own pool and on the caller's. Where the pool is at work for another caller,
// the caller does everything alone.
void run_in_pool(int64_t count, KlnTask task, void* context);

// Runs a pass by rows or by columns, with as many of the problem's threads as
// have enough to do and can be had.
using Pass = const char* (*)(const KlnProblem& p, const Team& team);
const char* run_with_threads(const KlnProblem& problem, Pass pass);

}  // namespace kln
