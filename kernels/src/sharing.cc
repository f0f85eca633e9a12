#include "sharing.h"

#if defined(__linux__)
#include <sched.h>
#endif
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "cpu.h"
#include "slots.h"

namespace kln {
namespace {

// Multiplications that a thread must have to do.
constexpr double kLeastWork = 1 << 20;
// Bytes of R that are worth two meetings a step, for each thread.
constexpr double kLeastShare = 64 << 10;
// So many rows of a thread hide the time in which it reads R.
constexpr int64_t kManyRows = 64;

enum Sharing { kByRule, kByRows, kByColumns, kUnread };

std::atomic<int> chosen{kUnread};

int sharing_of(const char* name) {
  if (!name) return kByRule;
  if (!strcmp(name, "rows")) return kByRows;
  return strcmp(name, "columns") ? kUnread : kByColumns;
}

// What is chosen; at first what the environment asks for.
int sharing() {
  int sharing = chosen.load();
  if (sharing == kUnread) {
    sharing = sharing_of(getenv("KERAS_LN_KERNELS_SHARING"));
    if (sharing == kUnread) sharing = kByRule;
    chosen.store(sharing);
  }
  return sharing;
}

// Cores that this thread may run on. Threads that wait for each other need one
// each.
int64_t cores() {
#if defined(__linux__)
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
#endif
  return INT64_MAX;
}

}  // namespace

bool is_sharing_chosen() { return sharing() != kByRule; }

int64_t useful_threads(const KlnProblem& p) {
  if (is_sharing_chosen()) return p.threads;
  const double steps = double(p.batch) * double(p.steps);
  const double work = steps * double(kGates[p.cell]) * double(p.units) *
                      double(p.features + p.units) / kLeastWork;
  if (work < 1) return 1;
  return work < double(p.threads) ? int64_t(work) : p.threads;
}

bool by_columns(const KlnProblem& p, int64_t threads) {
  if (threads < 2 || sharing() == kByRows) return false;
  if (sharing() == kByColumns) return true;
  const double bytes = double(kGates[p.cell]) * double(p.units) *
                       double(p.units) * (p.dtype == KLN_FLOAT32 ? 4 : 8);
  if (bytes / double(threads) < kLeastShare || threads > cores()) return false;
  // By rows some threads would have none, or each reads more of R, at every
  // step, than its core keeps, for few rows.
  if (p.batch < threads) return true;
  return bytes > double(core_cache_bytes()) && p.batch / threads < kManyRows;
}

const char* use_sharing(const char* name) {
  const int sharing = sharing_of(name);
  if (sharing == kUnread) return "expected rows or columns";
  chosen.store(sharing);
  return nullptr;
}

}  // namespace kln
