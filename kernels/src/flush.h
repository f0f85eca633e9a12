// Denormal numbers are zero while this lives, as XLA has it: a CPU may take a
// hundred cycles for one. The mode of before comes back after.
#pragma once

#include <stdint.h>

namespace kln {
namespace {

class FlushDenormals {
 public:
  FlushDenormals() : before_(mode()) { set_mode(before_ | kFlush); }
  ~FlushDenormals() { set_mode(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  // Results and operands: bits 15 (FTZ) and 6 (DAZ) of MXCSR.
  static constexpr unsigned kFlush = 0x8040;
  using Mode = unsigned;
  static Mode mode() { return __builtin_ia32_stmxcsr(); }
  static void set_mode(Mode mode) { __builtin_ia32_ldmxcsr(mode); }
#elif defined(__aarch64__)
  static constexpr uint64_t kFlush = 1 << 24;  // FZ of FPCR
  using Mode = uint64_t;
  static Mode mode() {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set_mode(Mode mode) {
    asm volatile("msr fpcr, %0" : : "r"(mode));
  }
#else
  // Of other CPUs denormals are what they are.
  static constexpr unsigned kFlush = 0;
  using Mode = unsigned;
  static Mode mode() { return 0; }
  static void set_mode(Mode) {}
#endif
  const Mode before_;
};

}  // namespace
}  // namespace kln
