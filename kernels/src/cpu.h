// What is known of the CPU, and the choice of the instruction set.
#pragma once

#include "team.h"

namespace kln {

// What an instruction set offers.
struct Kernels {
  // Each returns nullptr, or what went wrong.
  const char* (*forward)(const KlnProblem&, const Team&);
  const char* (*backward)(const KlnProblem&, const Team&);
  const char* (*product)(int dtype, long rows, long depth, long columns,
                         const void* a, const void* b, void* c, long times);
};

// kernels.cc, compiled for each. The generic ones are arm64's "neon", too.
extern const Kernels generic_kernels;
#if defined(__x86_64__)
extern const Kernels avx512_kernels, avx2_kernels;
#endif

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
