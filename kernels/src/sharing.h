// How a call is shared out among threads.
#pragma once

#include "keras_ln_kernels.h"

namespace kln {

// As many of the problem's threads as have enough to do.
int64_t useful_threads(const KlnProblem& p);

// Whether the products with R are shared out by columns among `threads`.
bool by_columns(const KlnProblem& p, int64_t threads);

// Whether there is no rule at the moment.
bool is_sharing_chosen();

// "rows" or "columns" for all calls from now on, nullptr for the rule. Returns
// nullptr, or why not.
const char* use_sharing(const char* name);

}  // namespace kln
