// The products of attention: dense tiles held in registers, and sums over the few nonzero weights of a row.
//
// One kind of tile serves all: c = a b, with a read number by number at any strides (so that it may be
// transposed) and b vector by vector. Head dimensions are multiples of 16, so every vector is whole.
#pragma once

#include <cstdint>

#include "runtime/tuning.hpp"
#include "simd/reduce.hpp"
#include "simd/transpose.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// A matrix to be read number by number.
template <class T>
struct Strided {
  const T* at;
  int64_t row, column;
};

template <class T, int rows, int vectors>
struct Tile {
  Vec<T> c[rows][vectors];

  void clear() {
    for (int r = 0; r < rows; ++r) {
      for (int w = 0; w < vectors; ++w) c[r][w] = Vec<T>{};
    }
  }

  void load_from(const T* p, int64_t stride) {
    for (int r = 0; r < rows; ++r) {
      for (int w = 0; w < vectors; ++w) c[r][w] = load(p + r * stride + w * lanes<T>);
    }
  }

  void store_to(T* p, int64_t stride) const {
    for (int r = 0; r < rows; ++r) {
      for (int w = 0; w < vectors; ++w) store<T>(p + r * stride + w * lanes<T>, c[r][w]);
    }
  }

  // Adds the product of `rows` rows of a and `depth` rows of b, which are b_row apart.
  void add_product(Strided<T> a, const T* b, int64_t b_row, int64_t depth) {
    for (int64_t k = 0; k < depth; ++k) {
      Vec<T> factors[vectors];
      for (int w = 0; w < vectors; ++w) factors[w] = load(b + k * b_row + w * lanes<T>);
      for (int r = 0; r < rows; ++r) {
        const Vec<T> number = splat(a.at[r * a.row + k * a.column]);
        for (int w = 0; w < vectors; ++w) c[r][w] = times_plus(number, factors[w], c[r][w]);
      }
    }
  }
};

// c (+)= a b for one tile; c and b have rows of whole vectors.
template <class T, int rows, int vectors>
inline void multiply_tile(Strided<T> a, const T* b, int64_t b_row, int64_t depth, T* c, int64_t c_row, bool add) {
  Tile<T, rows, vectors> tile;
  if (add) {
    tile.load_from(c, c_row);
  } else {
    tile.clear();
  }
  tile.add_product(a, b, b_row, depth);
  tile.store_to(c, c_row);
}

template <class T, int rows>
inline void multiply_strip(Strided<T> a, const T* b, int64_t b_row, int64_t width, int64_t depth, T* c, bool add) {
  int64_t w = 0;
  for (; w + value_vectors * lanes<T> <= width; w += value_vectors * lanes<T>) {
    multiply_tile<T, rows, value_vectors>(a, b + w, b_row, depth, c + w, width, add);
  }
  for (; w < width; w += lanes<T>) multiply_tile<T, rows, 1>(a, b + w, b_row, depth, c + w, width, add);
}

// c (+)= a b, c of rows x width without gaps, and b of depth x width with rows that are b_row apart.
template <class T>
inline void multiply(Strided<T> a, const T* b, int64_t b_row, int64_t rows, int64_t depth, int64_t width, T* c,
                     bool add) {
  int64_t r = 0;
  for (; r + value_rows <= rows; r += value_rows) {
    multiply_strip<T, value_rows>({a.at + r * a.row, a.row, a.column}, b, b_row, width, depth, c + r * width, add);
  }
  for (; r < rows; ++r) {
    multiply_strip<T, 1>({a.at + r * a.row, a.row, a.column}, b, b_row, width, depth, c + r * width, add);
  }
}

template <class T>
inline void multiply(Strided<T> a, const T* b, int64_t rows, int64_t depth, int64_t width, T* c, bool add) {
  multiply(a, b, width, rows, depth, width, c, add);
}

// Panels of rows, for products with their transpose: [panel][dimension][row of the panel].
template <class T>
constexpr int64_t panel_width = score_vectors * lanes<T>;

template <class T>
constexpr int64_t panels_of(int64_t rows) {
  return (rows + panel_width<T> - 1) / panel_width<T>;
}

// Packs the n rows x[index[i]] (x[i] if index is nullptr) of `width` numbers, `stride` apart, into panels, zero-padded.
// Returns the largest size of a number, leaving out NaN.
template <class T>
inline T pack_panels(const T* x, int64_t stride, const int32_t* index, int64_t n, int64_t width, T* packed) {
  T rows[lanes<T> * 16];
  Vec<T> columns[16], largest{};
  for (int64_t j = 0; j < panels_of<T>(n) * panel_width<T>; j += lanes<T>) {
    T* const panel = packed + j / panel_width<T> * panel_width<T> * width + j % panel_width<T>;
    for (int64_t e = 0; e < width; e += 16) {
      for (int64_t r = 0; r < lanes<T>; ++r) {
        const int64_t i = j + r;
        for (int64_t c = 0; c < 16; c += lanes<T>) {
          const Vec<T> numbers = i < n ? load(x + (index ? index[i] : i) * stride + e + c) : Vec<T>{};
          store<T>(rows + r * 16 + c, numbers);
          largest = larger(absolute<T>(numbers), largest);
        }
      }
      rows_to_lanes<T>(rows, 16, 16, columns);
      for (int64_t c = 0; c < 16; ++c) store<T>(panel + (e + c) * panel_width<T>, columns[c]);
    }
  }
  return max_lanes<T>(largest);
}

// The first `vectors` vectors of a panel of products: c[r][j] = <a_r, row j of the panel>, for `rows` rows, a multiple
// of score_rows. Updates the maxima by lane of every row, unless maxima is nullptr.
template <class T, int vectors>
inline void multiply_vectors(const T* a, int64_t rows, int64_t width, const T* panel, T* c, int64_t c_row, T* maxima) {
  for (int64_t r = 0; r < rows; r += score_rows) {
    Tile<T, score_rows, vectors> tile;
    tile.clear();
    tile.add_product({a + r * width, width, 1}, panel, panel_width<T>, width);
    tile.store_to(c + r * c_row, c_row);
    if (!maxima) continue;
    for (int i = 0; i < score_rows; ++i) {
      T* const row_maxima = maxima + (r + i) * lanes<T>;
      Vec<T> top = load(row_maxima);
      for (int w = 0; w < vectors; ++w) top = larger(tile.c[i][w], top);
      store<T>(row_maxima, top);
    }
  }
}

// One panel of products, of which the first `columns` are wanted.
template <class T>
inline void multiply_panel(const T* a, int64_t rows, int64_t width, const T* panel, int64_t columns, T* c,
                           int64_t c_row, T* maxima) {
  static_assert(score_vectors == 3);
  const auto multiply = columns <= lanes<T>       ? multiply_vectors<T, 1>
                        : columns <= 2 * lanes<T> ? multiply_vectors<T, 2>
                                                  : multiply_vectors<T, 3>;
  multiply(a, rows, width, panel, c, c_row, maxima);
}

// sums[i] = the products of a and row_at(i), lane by lane. Rows in memory are read one after the other, and prefetched
// to the level-two cache, as far ahead as the hardware does not; rows in the cache side by side, with independent sums.
template <class T, bool in_cache, class RowAt>
REGMAX_INLINE Vec<T> multiply_by_rows(const T* a, int64_t width, const RowAt& row_at) {
  Vec<T> sums[lanes<T>] = {};
  if constexpr (in_cache) {
    for (int64_t e = 0; e < width; e += lanes<T>) {
      const Vec<T> numbers = load(a + e);
      for (int i = 0; i < lanes<T>; ++i) sums[i] = times_plus(numbers, load(row_at(i) + e), sums[i]);
    }
  } else {
    for (int i = 0; i < lanes<T>; ++i) {
      const T* const row = row_at(i);
      for (int64_t e = 0; e < width; e += lanes<T>) {
        __builtin_prefetch(row + e + prefetched_keys / static_cast<int64_t>(sizeof(T)), 0, 2);
        sums[i] = times_plus(load(a + e), load(row + e), sums[i]);
      }
    }
  }
  return sum_rows<T>(sums);
}

// c[r][j] = <a_r, x[index[j]]> (x[j] if index is nullptr) for few rows of a: every row of x is read from memory once,
// without packing. The rows of x are `stride` apart. Whole vectors of c are written.
template <class T>
inline void multiply_in_place(const T* a, int64_t rows, int64_t width, const T* x, int64_t stride, const int32_t* index,
                              int64_t n, T* c, int64_t c_row) {
  const auto multiply = [&](int64_t j, const auto& row_at) {
    store<T>(c + j, multiply_by_rows<T, false>(a, width, row_at));
    for (int64_t r = 1; r < rows; ++r)
      store<T>(c + r * c_row + j, multiply_by_rows<T, true>(a + r * width, width, row_at));
  };
  for (int64_t j = 0; j < n; j += lanes<T>) {
    if (!index && j + lanes<T> <= n) {
      const T* const first = x + j * stride;
      multiply(j, [=](int64_t i) { return first + i * stride; });
      continue;
    }
    const T* places[lanes<T>];
    for (int i = 0; i < lanes<T>; ++i) {
      const int64_t place = j + i < n ? j + i : n - 1;
      places[i] = x + (index ? index[place] : place) * stride;
    }
    multiply(j, [&](int64_t i) { return places[i]; });
  }
}

template <class T>
inline T inner_product(const T* a, const T* b, int64_t width) {
  Vec<T> sum{};
  for (int64_t i = 0; i < width; i += lanes<T>) sum = times_plus(load(a + i), load(b + i), sum);
  return static_cast<T>(sum_lanes(sum));
}

// y += factor x
template <class T>
inline void add_multiple(T factor, const T* x, int64_t width, T* y) {
  const Vec<T> factors = splat(factor);
  for (int64_t i = 0; i < width; i += lanes<T>) store<T>(y + i, times_plus(factors, load(x + i), load(y + i)));
}

// out = sum_k weights[k] x[columns[k]], the sum in registers; the rows of x are `stride` apart.
template <class T, int vectors>
inline void sum_rows_tile(const T* weights, const int32_t* columns, int64_t count, const T* x, int64_t stride, T* out) {
  Vec<T> sums[vectors] = {};
  for (int64_t k = 0; k < count; ++k) {
    const T* const row = x + columns[k] * stride;
    const Vec<T> weight = splat(weights[k]);
    for (int w = 0; w < vectors; ++w) sums[w] = times_plus(weight, load(row + w * lanes<T>), sums[w]);
  }
  for (int w = 0; w < vectors; ++w) store<T>(out + w * lanes<T>, sums[w]);
}

template <class T>
inline void sum_rows(const T* weights, const int32_t* columns, int64_t count, const T* x, int64_t stride, int64_t width,
                     T* out) {
  int64_t e = 0;
  for (; e + 4 * lanes<T> <= width; e += 4 * lanes<T>) {
    sum_rows_tile<T, 4>(weights, columns, count, x + e, stride, out + e);
  }
  for (; e + 2 * lanes<T> <= width; e += 2 * lanes<T>) {
    sum_rows_tile<T, 2>(weights, columns, count, x + e, stride, out + e);
  }
  for (; e < width; e += lanes<T>) sum_rows_tile<T, 1>(weights, columns, count, x + e, stride, out + e);
}

}  // namespace regmax::REGMAX_ISA
