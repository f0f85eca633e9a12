// What an instruction set offers.
#pragma once

#include "keras_ln_kernels.h"

namespace kln {

class Team;

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

}  // namespace kln
