#include "partition.h"

#if defined(__linux__)
#include <sched.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "cpu.h"
#include "problem.h"

namespace kln {
namespace {

// Multiplications that a thread must have to do.
constexpr double kLeastWork = 1 << 20;
// By columns, see the README. Bytes of R that are worth two meetings a step, for
// each thread.
constexpr double kLeastShare = 256 << 10;
// To multiply so many rows takes less time than to read R for them,
constexpr double kFewRows = 2;
// and so many hide that time.
constexpr double kManyRows = 64;
// R is larger than shared caches where it is so many times a core's own.
constexpr double kHuge = 16;

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

bool was_forked() {
#if defined(__linux__)
  char text[1024] = "";
  FILE* file = fopen("/proc/self/stat", "re");
  if (!file) return true;
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  unsigned flags;
  // After the program's name, which may be anything.
  const char* rest = strrchr(text, ')');
  if (!rest || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
    return true;
  return flags & 0x40;  // PF_FORKNOEXEC
#else
  return false;
#endif
}

bool is_sharing_chosen() { return sharing() != kByRule; }

int64_t useful_threads(const KlnProblem& p) {
  if (is_sharing_chosen()) return p.threads;
  const double steps = double(p.batch) * double(p.steps);
  const double work = steps * double(kGates[p.cell]) * double(p.units) *
                      double(p.features + p.units) / kLeastWork;
  if (work < 1) return 1;
  return work < double(p.threads) ? int64_t(work) : p.threads;
}

int64_t team_size(const KlnProblem& p, int64_t threads) {
  if (threads < 2 || sharing() == kByRows) return 1;
  if (sharing() == kByColumns) return threads;
  const double bytes = double(kGates[p.cell]) * double(p.units) *
                       double(p.units) * (p.dtype == KLN_FLOAT32 ? 4 : 8);
  int64_t size = threads;
  if (bytes < kLeastShare * double(size)) size = int64_t(bytes / kLeastShare);
  if (size > 1 && size > cores()) size = cores();
  // A smaller team must not replace as many threads with rows of their own.
  if (size < 2 || (size < threads && p.batch >= size)) return 1;
  const double rows = double(p.batch) / double(size);
  if (rows <= kFewRows) return size;
  const double cache = double(core_cache_bytes());
  const bool stays = bytes > cache && bytes <= cache * double(size);
  return (stays || bytes > kHuge * cache) && rows < kManyRows ? size : 1;
}

const char* use_sharing(const char* name) {
  const int sharing = sharing_of(name);
  if (sharing == kUnread) return "expected rows or columns";
  chosen.store(sharing);
  return nullptr;
}

}  // namespace kln
