// How arrays lie in memory inside the library.
//
// Vectors of U units are padded to whole cache lines, gate by gate, whatever
// the instruction set: loops over units have no rest, and residuals mean the
// same to all sets. What stands in the padding is finite, and zero in states
// and products.
#pragma once

#include "guard.h"
#include "simd.h"

namespace kln {
namespace {

constexpr long kLineBytes = 64;

template <class T>
constexpr long kLine = kLineBytes / sizeof(T);

constexpr long least(long a, long b) { return a < b ? a : b; }
constexpr long most(long a, long b) { return a > b ? a : b; }
constexpr long quotient_up(long a, long b) { return (a + b - 1) / b; }

template <class T>
inline long padded(long count) {
  return quotient_up(count, kLine<T>) * kLine<T>;
}

// A row of `segments` times `count` elements, each segment padded.
template <class T>
struct Row {
  long segments, count;

  Row(long segments, long count) : segments(segments), count(count) {}
  long stride() const { return padded<T>(count); }
  long size() const { return segments * stride(); }
  long dense() const { return segments * count; }
};

// Where the line at `column` of a padded row stands in a dense one, and how
// many of its elements are no padding.
struct Line {
  long offset, count;
};

template <class T>
inline Line line_at(const Row<T>& row, long column) {
  const long segment = column / row.stride(), i = column % row.stride();
  const long rest = row.count - i;
  return {segment * row.count + i, rest < kLine<T> ? rest : kLine<T>};
}

template <class T>
inline void copy(T* to, const T* from, long count) {
  __builtin_memcpy(to, from, count * sizeof(T));
}

template <class T>
inline void fill(T* to, T value, long count) {
  for (long i = 0; i < count; ++i) to[i] = value;
}

// From a dense row to a padded one; zeros where there is none.
template <class T>
inline void pad(T* to, const T* from, const Row<T>& row) {
  fill(to, T(0), row.size());
  for (long s = 0; from && s < row.segments; ++s)
    copy(to + s * row.stride(), from + s * row.count, row.count);
}

// From a padded row to a dense one, where one is wanted.
template <class T>
inline void unpad(T* to, const T* from, const Row<T>& row) {
  for (long s = 0; to && s < row.segments; ++s)
    copy(to + s * row.count, from + s * row.stride(), row.count);
}

// Cuts arrays from one piece of memory. Without memory it only counts, so that
// one function says both how much is needed and where everything stands.
class Carver {
 public:
  explicit Carver(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <class T>
  T* take(long count) {
    char* here = memory_ ? memory_ + bytes_ : nullptr;
    const long size = count * sizeof(T);
    bytes_ += quotient_up(size, kLineBytes) * kLineBytes;
    // Sizes are often powers of two: without a shift the rows of many arrays
    // would fall into the same sets of the caches.
    bytes_ += 3 * kLineBytes;
    if (here)
      ASAN_POISON_MEMORY_REGION(here + size, memory_ + bytes_ - (here + size));
    return reinterpret_cast<T*>(here);
  }

  bool counts_only() const { return !memory_; }
  long bytes() const { return bytes_; }

 private:
  char* memory_;
  long bytes_ = 0;
};

// Part `index` of `parts` of 0 .. count - 1.
struct Share {
  long first, end;
  long size() const { return end - first; }
};

constexpr Share share_of(long count, long index, long parts) {
  // The first `longer` parts have one more. No product exceeds `count`.
  const long each = count / parts, longer = count % parts;
  return {index * each + least(index, longer),
          (index + 1) * each + least(index + 1, longer)};
}

// An overflow would not compile.
static_assert(share_of(1L << 62, (1L << 61) - 1, 1L << 61).end == 1L << 62);

}  // namespace
}  // namespace kln
