#include "cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
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
// What CPUID says, and which registers the operating system saves. Not every
// compiler's library has __builtin_cpu_supports in working order.
class Cpu {
 public:
  Cpu() {
    unsigned a, d;
    if (!__get_cpuid(1, &a, &unused_, &basic_, &d)) basic_ = 0;
    if (!__get_cpuid_count(7, 0, &a, &extended_, &unused_, &d)) extended_ = 0;
    if (basic_ >> 27 & 1)  // OSXSAVE: there is XGETBV
      asm volatile("xgetbv" : "=a"(saved_), "=d"(d) : "c"(0));
  }

  // Of exactly what the sources are compiled for.
  bool has_avx2() const {
    return saves(kAvxRegisters) && has(basic_, {28, 12})  // AVX, FMA
           && has(extended_, {5});                        // AVX2
  }
  bool has_avx512() const {
    return has_avx2() && saves(kAvx512Registers) &&
           has(extended_, {16, 17, 30, 31});  // F, DQ, BW, VL
  }

 private:
  static constexpr unsigned kAvxRegisters = 0x06, kAvx512Registers = 0xe6;

  bool saves(unsigned registers) const {
    return (saved_ & registers) == registers;
  }

  template <int count>
  static bool has(unsigned word, const int (&bits)[count]) {
    for (int bit : bits)
      if (!(word >> bit & 1)) return false;
    return true;
  }

  unsigned basic_ = 0, extended_ = 0, saved_ = 0, unused_;
};

bool has_avx512() { return Cpu().has_avx512(); }
bool has_avx2() { return Cpu().has_avx2(); }
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
