#include "cpu.h"

#include <stdlib.h>
#include <string.h>

#include <atomic>

namespace kln {
namespace {

struct Choice {
  const Kernels* kernels;
  bool (*runs_here)();
};

#if defined(__x86_64__)
// Of exactly what the sources are compiled for; these look at what the
// operating system saves, too. Not every compiler's library has looked at the
// CPU when it is loaded.
bool has_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma");
}
bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
const Choice kChoices[] = {{&avx512_kernels, has_avx512},
                           {&avx2_kernels, has_avx2}};
constexpr const char* kNeeded =
    "this CPU has neither AVX-512 nor AVX2 with FMA";
#elif defined(__aarch64__)
bool always() { return true; }
const Choice kChoices[] = {{&neon_kernels, always}};
constexpr const char* kNeeded = nullptr;
#endif

std::atomic<const Kernels*> chosen{nullptr};

const Kernels* best() {
  for (const Choice& choice : kChoices)
    if (choice.runs_here()) return choice.kernels;
  return nullptr;
}

// What the environment asks for; the best where it asks for nothing here.
const Kernels* initial() {
  if (const char* name = getenv("KERAS_LN_KERNELS_ISA"))
    for (const Choice& choice : kChoices)
      if (!strcmp(name, choice.kernels->name) && choice.runs_here())
        return choice.kernels;
  return best();
}

}  // namespace

const Kernels* kernels() {
  const Kernels* kernels = chosen.load();
  if (!kernels) chosen.store(kernels = initial());
  return kernels;
}

const char* unsupported_reason() { return best() ? nullptr : kNeeded; }

const char* use_kernels(const char* name) {
  if (!name) {
    chosen.store(best());
    return nullptr;
  }
  for (const Choice& choice : kChoices)
    if (!strcmp(name, choice.kernels->name)) {
      if (!choice.runs_here()) return "this CPU lacks that instruction set";
      chosen.store(choice.kernels);
      return nullptr;
    }
  return "this library has no such instruction set";
}

}  // namespace kln
