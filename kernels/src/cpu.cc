#include "cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

namespace kln {
namespace {

struct Choice {
  const char* name;
  const Kernels* kernels;
  bool (*runs_here)();
};

// It traps in a virtual machine, which takes ten microseconds and more: what is
// asked is asked once, when the library is loaded.
long runs = 0;

#if defined(__x86_64__)
// What CPUID says, and which registers the operating system saves. Not every
// compiler's library has __builtin_cpu_supports in working order.
class Cpu {
 public:
  Cpu() {
    const unsigned last = leaf(0).a;
    if (last >= 1) basic_ = leaf(1).c;
    if (last >= 7) extended_ = leaf(7).b;
    unsigned high;
    if (basic_ >> 27 & 1)  // OSXSAVE: there is XGETBV
      asm volatile("xgetbv" : "=a"(saved_), "=d"(high) : "c"(0));
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
  struct Leaf {
    unsigned a, b, c, d;
  };

  static Leaf leaf(unsigned number) {
    ++runs;
    Leaf found;
    __cpuid_count(number, 0, found.a, found.b, found.c, found.d);
    return found;
  }

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

  unsigned basic_ = 0, extended_ = 0, saved_ = 0;
};

const Cpu cpu;

bool has_avx512() { return cpu.has_avx512(); }
bool has_avx2() { return cpu.has_avx2(); }
#endif
bool always() { return true; }

// The best first.
const Choice kChoices[] = {
#if defined(__x86_64__)
    {"avx512", &avx512_kernels, has_avx512},
    {"avx2", &avx2_kernels, has_avx2},
#elif defined(__aarch64__)
    {"neon", &generic_kernels, always},
#endif
    {"generic", &generic_kernels, always},
};

// What the system says of the caches, or 1 MB.
long read_core_cache() {
  long bytes = 0;
#if defined(__APPLE__)
  size_t size = sizeof bytes;
  if (sysctlbyname("hw.l2cachesize", &bytes, &size, nullptr, 0)) bytes = 0;
#else
  char path[64];
  const auto read = [&](int index, const char* name, long* number) {
    snprintf(path, sizeof path,
             "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE* file = fopen(path, "r");
    char unit = 0;
    const bool found = file && fscanf(file, "%ld%c", number, &unit) > 0;
    if (file) fclose(file);
    if (found && unit == 'K') *number <<= 10;
    return found;
  };
  long level = 0;
  for (int index = 0; read(index, "level", &level); ++index)
    if (level == 2) read(index, "size", &bytes);
#endif
  return bytes > 0 ? bytes : 1 << 20;
}

const long core_cache = read_core_cache();

std::atomic<const Choice*> chosen{nullptr};

// The one of that name; the best that runs here where there is none.
const Choice* find(const char* name) {
  const Choice* best = nullptr;
  for (const Choice& choice : kChoices) {
    if (!choice.runs_here()) continue;
    if (name && !strcmp(name, choice.name)) return &choice;
    if (!best) best = &choice;
  }
  return best;
}

const Choice& choice() {
  const Choice* choice = chosen.load();
  if (!choice) chosen.store(choice = find(getenv("KERAS_LN_KERNELS_ISA")));
  return *choice;
}

}  // namespace

long core_cache_bytes() { return core_cache; }

long cpuid_runs() { return runs; }

const Kernels& kernels() { return *choice().kernels; }

const char* instruction_set() { return choice().name; }

const char* use_kernels(const char* name) {
  const Choice* found = find(name);
  if (!name || !strcmp(name, found->name)) {
    chosen.store(found);
    return nullptr;
  }
  for (const Choice& choice : kChoices)
    if (!strcmp(name, choice.name))
      return "this CPU lacks that instruction set";
  return "this library has no such instruction set";
}

}  // namespace kln
