#include "scratch.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <atomic>

#include "guard.h"

namespace kln {
namespace {

constexpr long kHeader = 64;
constexpr long kLargePage = 2L << 20;
constexpr long kMostKept = 1L << 30;  // bytes in all pieces that wait

struct Piece {
  long bytes;
};

// Pieces that wait for a call. Exchanged without a lock, so that a process
// that was forked at any moment can go on; four serve four callers at once.
std::atomic<Piece*> waiting[4];
std::atomic<long> kept{0};

Piece* new_piece(long bytes) {
  const bool large = bytes >= 2 * kLargePage;
  const long unit = large ? kLargePage : kHeader;
  bytes = (bytes + kHeader + unit - 1) / unit * unit;
  void* memory = nullptr;
  if (posix_memalign(&memory, unit, bytes)) return nullptr;
#if defined(MADV_HUGEPAGE)
  // Packed kernels are read through once a step: few pages, few misses.
  if (large) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  Piece* piece = static_cast<Piece*>(memory);
  piece->bytes = bytes;
  return piece;
}

void drop(Piece* piece) {
  kept.fetch_sub(piece->bytes);
  free(piece);
}

void keep(Piece* piece) {
  if (kept.fetch_add(piece->bytes) + piece->bytes > kMostKept)
    return drop(piece);
  for (auto& slot : waiting) {
    Piece* empty = nullptr;
    if (slot.compare_exchange_strong(empty, piece)) return;
  }
  drop(piece);
}

// One that waits and is large enough, or a new one.
Piece* find(long bytes) {
  for (auto& slot : waiting) {
    Piece* piece = slot.exchange(nullptr);
    if (!piece) continue;
    if (piece->bytes >= bytes + kHeader) {
      kept.fetch_sub(piece->bytes);
      return piece;
    }
    // Too small: it makes room for a larger one.
    drop(piece);
  }
  return new_piece(bytes);
}

char* memory_of(Piece* piece) {
  return piece ? reinterpret_cast<char*>(piece) + kHeader : nullptr;
}

}  // namespace

Scratch::Scratch(long bytes) : memory(memory_of(find(bytes))) {}

Scratch::~Scratch() {
  if (!memory) return;
  Piece* piece = reinterpret_cast<Piece*>(memory - kHeader);
  ASAN_UNPOISON_MEMORY_REGION(memory, piece->bytes - kHeader);
  keep(piece);
}

void release_scratch() {
  for (auto& slot : waiting)
    if (Piece* piece = slot.exchange(nullptr)) drop(piece);
}

}  // namespace kln
