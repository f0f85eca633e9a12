// Products of matrices, on one thread.
//
// No library serves: what BLAS packs anew at every call is packed once for all
// steps here, and rows are padded. Every element of a product is summed in the
// same order whatever else is computed beside it, so that results do not
// depend on how rows and columns are shared out among threads.
#pragma once

#include "layout.h"

namespace kln {
namespace {

// Depth of a packed block: a panel of it stays in the cache over all rows.
constexpr long kDepth = 512;
template <class T>
constexpr long kPanel = kTileLines * kLine<T>;

// c (Rows, Lines) = or += a (Rows, depth) times a panel (depth, Lines), of
// which row k begins at panel[k * panel_row]. Element (i, k) of `a` is a[i *
// a_row + k * a_column]. The sums stay in registers: this loop is where the
// time goes.
template <class T, int Rows, int Lines>
__attribute__((noinline)) void tile(long depth, const T* __restrict a,
                                    long a_row, long a_column,
                                    const T* __restrict panel, long panel_row,
                                    T* __restrict c, long c_row, bool add) {
  constexpr int kVectors = Lines * (kLineBytes / kVectorBytes);
  Vector<T> sums[Rows][kVectors];
  KLN_UNROLL
  for (int i = 0; i < Rows; ++i) {
    KLN_UNROLL
    for (int j = 0; j < kVectors; ++j) sums[i][j] = Vector<T>{};
  }
  for (long k = 0; k < depth; ++k) {
    Vector<T> b[kVectors];
    KLN_UNROLL
    for (int j = 0; j < kVectors; ++j) b[j] = load(panel + j * kLanes<T>);
    KLN_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const Vector<T> factor = broadcast(a[i * a_row]);
      KLN_UNROLL
      for (int j = 0; j < kVectors; ++j) sums[i][j] += factor * b[j];
    }
    panel += panel_row;
    a += a_column;
  }
  KLN_UNROLL
  for (int i = 0; i < Rows; ++i) {
    KLN_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      T* to = c + i * c_row + j * kLanes<T>;
      store(to, add ? load(to) + sums[i][j] : sums[i][j]);
    }
  }
}

template <class T>
using Tile = void (*)(long, const T*, long, long, const T*, long, T*, long,
                      bool);

template <class T, int Rows = kTileRows, int Lines = kTileLines>
Tile<T> tile_of(long rows, long lines) {
  if constexpr (Lines > 1)
    if (lines < Lines) return tile_of<T, Rows, Lines - 1>(rows, lines);
  if constexpr (Rows > 1)
    if (rows < Rows) return tile_of<T, Rows - 1, Lines>(rows, lines);
  return tile<T, Rows, Lines>;
}

// `visit(first, count)` for tiles of nearly equal height over all rows.
template <class Visit>
KLN_INLINE void for_tiles(long rows, const Visit& visit) {
  const long tiles = quotient_up(rows, kTileRows);
  for (long i = 0; i < tiles; ++i) {
    const Share s = share_of(rows, i, tiles);
    visit(s.first, s.size());
  }
}

// A matrix packed for products: blocks of kDepth rows, and in them panels of
// kPanel columns (the last one narrower), row after row. Or the matrix itself,
// for products with so few rows that packing would take longer.
template <class T>
struct Packed {
  long depth;
  Row<T> row;       // of the matrix
  long columns;     // padded
  const T* itself;  // NULL if it is packed, else its rows have no padding
  T* data;
  long first = 0;  // column of the matrix, where this is a part of it

  Packed(Carver& carver, long depth, Row<T> row, const T* itself = nullptr)
      : depth(depth),
        row(row),
        columns(row.size()),
        itself(itself),
        data(carver.take<T>(itself ? 0 : depth * columns)) {}

  // Some columns, packed by themselves: one of `count` equal parts.
  Packed part(long index, long count) const {
    const Share lines = share_of(columns / kLine<T>, index, count);
    Packed part = *this;
    part.first = lines.first * kLine<T>;
    part.columns = lines.size() * kLine<T>;
    part.data = data + depth * part.first;
    return part;
  }

  long panels() const { return quotient_up(columns, kPanel<T>); }
  long width(long panel) const {
    return least(kPanel<T>, columns - panel * kPanel<T>);
  }
  long block_depth(long k) const { return least(kDepth, depth - k); }
  T* panel(long k, long panel) const {
    return data + k * columns + panel * kPanel<T> * block_depth(k);
  }
  // For products: a panel, and how far its rows are from each other.
  const T* read(long k, long p) const {
    return itself ? itself + k * row.size() + first + p * kPanel<T>
                  : panel(k, p);
  }
  long step(long p) const { return itself ? row.size() : width(p); }

  // Zeros in the padding of those columns of c, a row of a product, that this
  // has. With an infinite factor the product there is NaN: everywhere, or
  // nowhere.
  void clear_padding(T* c) const {
    const long stride = row.stride();
    for (long s = 0; s < row.segments; ++s) {
      const long end = least((s + 1) * stride, first + columns);
      for (long j = most(s * stride + row.count, first); j < end; ++j) {
        if (c[j] == 0) return;
        c[j] = 0;
      }
    }
  }
};

// Packs the panels `which` of a dense matrix b.
template <class T>
void pack(const Packed<T>& to, const T* b, Share which) {
  if (to.itself) return;
  const Row<T>& row = to.row;
  for (long k0 = 0; k0 < to.depth; k0 += kDepth)
    for (long p = which.first; p < which.end; ++p) {
      const long width = to.width(p);
      Line lines[kTileLines] = {};
      for (long j = 0; j < width / kLine<T>; ++j)
        lines[j] = line_at(row, to.first + p * kPanel<T> + j * kLine<T>);
      const T* from = b + k0 * row.dense();
      T* out = to.panel(k0, p);
      for (long k = 0; k < to.block_depth(k0); ++k) {
        for (long j = 0; j < width / kLine<T>; ++j, out += kLine<T>) {
          const T* line = from + lines[j].offset;
          if (lines[j].count == kLine<T>)
            copy(out, line, kLine<T>);
          else
            for (long i = 0; i < kLine<T>; ++i)
              out[i] = i < lines[j].count ? line[i] : T(0);
        }
        from += row.dense();
      }
    }
}

// Packs the transpose of b, whose rows are `row`, to be multiplied with padded
// rows.
template <class T>
void pack_transposed(const Packed<T>& to, const T* b, const Row<T>& row,
                     Share which) {
  for (long k0 = 0; k0 < to.depth; k0 += kDepth)
    for (long p = which.first; p < which.end; ++p)
      // A line of k at a time, so that both sides stay in the cache.
      for (long k = k0; k < k0 + to.block_depth(k0); k += kLine<T>) {
        const long width = to.width(p);
        T* out = to.panel(k0, p) + (k - k0) * width;
        const Line line = line_at(row, k);
        for (long j = 0; j < width; ++j) {
          const long n = to.first + p * kPanel<T> + j;
          const long count = n < to.row.count ? line.count : 0;
          const T* from = b + n * row.dense() + line.offset;
          for (long i = 0; i < kLine<T>; ++i)
            out[i * width + j] = i < count ? from[i] : T(0);
        }
      }
}

// Rows in groups: row i of group g is at data[g * group + i * row].
template <class T>
struct Rows {
  T* data;
  long row, group;
};

// c = or += a b, for `groups` groups of `rows` rows: those columns of c that b
// has.
template <class T>
void product(long groups, long rows, Rows<const T> a, const Packed<T>& b,
             Rows<T> c, bool add) {
  if (a.group == rows * a.row && c.group == rows * c.row) {
    rows *= groups;
    groups = 1;
  }
  for (long k = 0; k < b.depth; k += kDepth)
    for (long p = 0; p < b.panels(); ++p)
      for (long g = 0; g < groups; ++g)
        for_tiles(rows, [&](long first, long count) {
          tile_of<T>(count, b.width(p) / kLine<T>)(
              b.block_depth(k), a.data + g * a.group + first * a.row + k, a.row,
              1, b.read(k, p), b.step(p),
              c.data + g * c.group + first * c.row + b.first + p * kPanel<T>,
              c.row,
              add || k > 0);
        });
  if (b.row.size() == b.row.dense()) return;
  for (long g = 0; g < groups; ++g)
    for (long i = 0; i < rows; ++i)
      b.clear_padding(c.data + g * c.group + i * c.row);
}

// The columns of a wide matrix lie on as many pages as it has rows: packed in
// strips of a tile's height they lie on few. A narrow one stays in the cache.
template <class T>
bool needs_strips(long rows) {
  return rows * long(sizeof(T)) > 4096;
}

// Memory for `add_outer`.
template <class T>
struct OuterScratch {
  T *panel, *strips, *sums;

  OuterScratch(Carver& carver, long rows)
      : panel(carver.take<T>(kDepth * kPanel<T>)),
        strips(carver.take<T>(needs_strips<T>(rows) ? kDepth * rows : 0)),
        sums(carver.take<T>(kTileRows * kPanel<T>)) {}
};

// to = or += from, whose line has `count` elements that are no padding.
template <class T>
KLN_INLINE void put_line(T* to, const T* from, long count, bool add) {
  if (count == kLine<T>) {
    for (long i = 0; i < kLine<T>; i += kLanes<T>)
      store(to + i, add ? load(to + i) + load(from + i) : load(from + i));
  } else {
    for (long i = 0; i < count; ++i) to[i] = add ? to[i] + from[i] : from[i];
  }
}

// c = or += a^T b for a (depth, rows) and padded b (depth, .), the panels
// `which` of it. c is dense, its rows are `row`.
template <class T>
void add_outer(long depth, long rows, const T* a, long a_row, const T* b,
               const Row<T>& row, T* c, bool add, Share which,
               const OuterScratch<T>& scratch) {
  const bool strips = needs_strips<T>(rows);
  for (long k0 = 0; k0 < depth; k0 += kDepth) {
    const long block = least(kDepth, depth - k0);
    const T* a_block = a + k0 * a_row;
    if (strips && which.size() > 0)
      for_tiles(rows, [&](long first, long count) {
        T* out = scratch.strips + first * block;
        for (long k = 0; k < block; ++k)
          for (long i = 0; i < count; ++i)
            *out++ = a_block[k * a_row + first + i];
      });
    for (long p = which.first; p < which.end; ++p) {
      const long n = p * kPanel<T>, width = least(kPanel<T>, row.size() - n);
      for (long k = 0; k < block; ++k)
        copy(scratch.panel + k * width, b + (k0 + k) * row.size() + n, width);
      Line lines[kTileLines] = {};
      for (long j = 0; j < width / kLine<T>; ++j)
        lines[j] = line_at(row, n + j * kLine<T>);
      for_tiles(rows, [&](long first, long count) {
        const T* from =
            strips ? scratch.strips + first * block : a_block + first;
        tile_of<T>(count, width / kLine<T>)(
            block, from, 1, strips ? count : a_row, scratch.panel, width,
            scratch.sums, width, false);
        for (long i = 0; i < count; ++i)
          for (long j = 0; j < width / kLine<T>; ++j)
            put_line(c + (first + i) * row.dense() + lines[j].offset,
                     scratch.sums + i * width + j * kLine<T>, lines[j].count,
                     add || k0 > 0);
      });
    }
  }
}

}  // namespace
}  // namespace kln
