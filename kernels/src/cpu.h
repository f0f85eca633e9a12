// What is known of the CPU, and the choice of the instruction set.
#pragma once

#include "kernels.h"

namespace kln {

// What calls take, and its name.
const Kernels& kernels();
const char* instruction_set();

// Makes calls take the set of that name; nullptr for the best there is.
// Returns nullptr, or why it cannot be had.
const char* use_kernels(const char* name);

// Bytes of the cache that a core has for itself, that of the second level.
long core_cache_bytes();

// How often this library has run CPUID.
long cpuid_runs();

}  // namespace kln
