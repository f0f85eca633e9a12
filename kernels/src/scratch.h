// Memory for the time of a call, kept for the next ones.
#pragma once

namespace kln {

// A piece of at least `bytes` bytes that starts a cache line; nullptr where
// there is none.
struct Scratch {
  explicit Scratch(long bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  char* const memory;
};

void release_scratch();

}  // namespace kln
