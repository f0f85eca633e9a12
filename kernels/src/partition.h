// How a call is shared out among threads.
#pragma once

#include "keras_ln_kernels.h"

namespace kln {

// As many of the problem's threads as have enough to do.
int64_t useful_threads(const KlnProblem& p);

// How many of `threads` share out the products with R by columns; 1 for none.
int64_t team_size(const KlnProblem& p, int64_t threads);

// Whether this process was forked by another one and has run no program since.
// What that one had of threads is not here, and its OpenMP waits for them.
bool was_forked();

// Whether there is no rule at the moment.
bool is_sharing_chosen();

// "rows" or "columns" for all calls from now on, nullptr for the rule. Returns
// nullptr, or why not.
const char* use_sharing(const char* name);

}  // namespace kln
