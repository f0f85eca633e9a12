// What an instruction set offers.
#pragma once

#include "keras_ln_kernels.h"

namespace kln {

class Team;

struct Kernels {
  const char* name;
  long (*residual_bytes)(const KlnProblem&);
  // Each returns nullptr, or what went wrong.
  const char* (*forward)(const KlnProblem&, const KlnForward&, const Team&);
  const char* (*backward)(const KlnProblem&, const KlnBackward&, const Team&);
  const char* (*product)(int dtype, long rows, long depth, long columns,
                         const void* a, const void* b, void* c, long times);
};

#if defined(__x86_64__)
extern const Kernels avx512_kernels, avx2_kernels;
#elif defined(__aarch64__)
extern const Kernels neon_kernels;
#endif

}  // namespace kln
