// Tasks on several threads, and what each of them does.
#pragma once

#include "flush.h"
#include "layout.h"
#include "team.h"

namespace kln {
namespace {

// `body(i)` for every i below `count`, as the problem wishes, or on the team,
// whose size is then `count`. Denormals are flushed in every task: a thread
// that is lent brings its own mode.
template <class Body>
inline void parallel(const KlnProblem& p, const Team& team, int64_t count,
                     const Body& body) {
  const KlnTask task = [](void* context, int64_t index) {
    const FlushDenormals flush;
    (*static_cast<const Body*>(context))(index);
  };
  void* context = const_cast<Body*>(&body);
  if (count == 1)
    task(context, 0);
  else if (team.size() > 1)
    team.run(task, context);
  else if (p.parallel_for)
    p.parallel_for(p.parallel_context, count, task, context);
  else
    run_in_pool(count, task, context);
}

// One of those who work on the same rows: of a team, or, where every task has
// rows of its own, the only one.
class Member {
 public:
  Member(const Team& team, long task, long tasks)
      : team_(team), task_(task), tasks_(tasks) {}

  bool alone() const { return team_.size() == 1; }
  long index() const { return alone() ? 0 : task_; }

  // The member's share of rows, and its columns of a packed matrix.
  Share of(long all) const { return share_of(all, index(), team_.size()); }
  template <class Packed>
  Packed of(const Packed& all) const {
    return alone() ? all : all.part(task_, team_.size());
  }
  // The task's panels of these columns, to be packed.
  template <class Packed>
  Share panels_of(const Packed& mine) const {
    return alone() ? share_of(mine.panels(), task_, tasks_)
                   : Share{0, mine.panels()};
  }

  void meet() const {
    if (!alone()) team_.meet();
  }

 private:
  const Team& team_;
  const long task_, tasks_;
};

}  // namespace
}  // namespace kln
