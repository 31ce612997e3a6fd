// Sorts the numbers of one row in decreasing order, without a branch on their values.
//
// Up to `sorted_at_once` numbers fill n vectors, n numbers per lane: a network of whole vectors sorts every
// lane, then neighbouring lanes are merged, two, four, ... at a time, until the row runs down the first lane,
// then the second, and so on. Longer rows are sorted in parts, which are merged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "runtime/tuning.hpp"
#include "simd/lane_sorting.hpp"
#include "simd/transpose.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

template <int width>
struct Reversed {
  static constexpr int from(int i) { return i / width * width + width - 1 - i % width; }
};

template <int distance>
struct Swapped {
  static constexpr int from(int i) { return i ^ distance; }
};

// The lanes without this bit in their number.
constexpr uint32_t lanes_without(int bit, int lanes) {
  uint32_t found = 0;
  for (int i = 0; i < lanes; ++i) found |= static_cast<uint32_t>(!(i & bit)) << i;
  return found;
}

// Compares every lane with the lane of the other vector that Pick selects; the lanes without `bit` keep the
// larger number.
template <class Pick, int bit, class T>
REGMAX_INLINE Vec<T> compared(Vec<T> v, Vec<T> other) {
  const Vec<T> partner = shuffle<Pick>(other, other, std::make_index_sequence<lanes<T>>());
  return select(from_bits<T>(lanes_without(bit, lanes<T>)), larger(v, partner), smaller(v, partner));
}

// Batcher's merge exchange (lane_sorting.hpp), for n known at run time only: a power of two.
template <class T>
inline void sort_each_lane(Vec<T>* v, int n) {
  for (int p = n / 2; p > 0; p /= 2) {
    for (int q = n / 2, r = 0, d = p;; d = q - p, q /= 2, r = p) {
      for (int begin = r; begin + d < n; begin += 2 * p) {
        const int end = begin + p < n - d ? begin + p : n - d;
        for (int i = begin; i < end; ++i) put_larger_first(v[i], v[i + d]);
      }
      if (q == p) break;
    }
  }
}

// As many vectors as `size`: a number, or one known at compile time, for which the loops become straight code.
template <int size>
using Known = std::integral_constant<int, size>;

template <class T, int n>
REGMAX_INLINE void sort_each_lane(Vec<T>* v, Known<n>) {
  constexpr Network<n> network;
  run_network<n>(v, std::make_index_sequence<network.length>());
}

template <int distance, class T, int n>
REGMAX_INLINE void sort_distances(Vec<T>* v, Known<n> size) {
  if constexpr (distance > 0) {
    for (int i = 0; i < n; ++i) {
      if (!(i & distance)) put_larger_first(v[i], v[i + distance]);
    }
    sort_distances<distance / 2, T>(v, size);
  }
}

// Sorts every run of `width` lanes that first falls, then rises, or the reverse (Batcher's bitonic merge).
template <int width, class T, int n>
REGMAX_INLINE void sort_bitonic(Vec<T>* v, Known<n> size) {
  if constexpr (width > 1) {
    for (int k = 0; k < n; ++k) v[k] = compared<Swapped<width / 2>, width / 2, T>(v[k], v[k]);
    sort_bitonic<width / 2, T>(v, size);
  } else {
    sort_distances<n / 2, T>(v, size);
  }
}
template <int width, class T>
inline void sort_bitonic(Vec<T>* v, int n) {
  if constexpr (width > 1) {
    for (int k = 0; k < n; ++k) v[k] = compared<Swapped<width / 2>, width / 2, T>(v[k], v[k]);
    sort_bitonic<width / 2, T>(v, n);
  } else {
    for (int distance = n / 2; distance > 0; distance /= 2) {
      for (int begin = 0; begin < n; begin += 2 * distance) {
        for (int i = begin; i < begin + distance; ++i) put_larger_first(v[i], v[i + distance]);
      }
    }
  }
}

// Merges sorted runs of `width` lanes in pairs, one of them reversed.
template <int width, class T, class Size>
REGMAX_INLINE void merge_lanes(Vec<T>* v, Size n) {
  if constexpr (width < lanes<T>) {
    for (int k = 0; k < n / 2; ++k) {
      const Vec<T> a = v[k], b = v[n - 1 - k];
      v[k] = compared<Reversed<2 * width>, width, T>(a, b);
      v[n - 1 - k] = compared<Reversed<2 * width>, width, T>(b, a);
    }
    sort_bitonic<width, T>(v, n);
    merge_lanes<2 * width, T>(v, n);
  }
}

// Up to n vectors of finite numbers, in place.
template <class T, class Size>
inline void sort_vectors(T* x, int64_t m, Size n, Vec<T>* v, T* sorted) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  for (int k = 0; k < n; ++k) {
    const int64_t left = m - k * lanes<T>;
    v[k] = left > 0 ? load_left(x + k * lanes<T>, left, lowest) : splat(lowest);
  }
  sort_each_lane<T>(v, n);
  merge_lanes<1, T>(v, n);
  lanes_to_rows<T>(v, n, sorted, n);
  std::memcpy(x, sorted, static_cast<std::size_t>(m) * sizeof(T));
}

// Up to sorted_at_once finite numbers, in place.
template <class T>
inline void sort_part(T* x, int64_t m) {
  Vec<T> v[sorted_at_once / lanes<T>];
  T sorted[sorted_at_once];
  if (m <= 4 * lanes<T>) return sort_vectors<T>(x, m, Known<4>(), v, sorted);
  if (m <= 8 * lanes<T>) return sort_vectors<T>(x, m, Known<8>(), v, sorted);
  if (m <= 16 * lanes<T>) return sort_vectors<T>(x, m, Known<16>(), v, sorted);
  int n = 32;
  while (n * lanes<T> < m) n *= 2;
  sort_vectors<T>(x, m, n, v, sorted);
}

template <class T>
struct Falling {
  bool operator()(T a, T b) const { return a > b; }
};

// m finite numbers, in place; `space` has room for as many.
template <class T>
inline void sort_row(T* x, int64_t m, T* space) {
  for (int64_t i = 0; i < m; i += sorted_at_once) sort_part(x + i, m - i < sorted_at_once ? m - i : sorted_at_once);
  for (int64_t size = sorted_at_once; size < m; size *= 2) {
    for (int64_t i = 0; i < m; i += 2 * size) {
      const int64_t middle = i + size < m ? i + size : m, end = i + 2 * size < m ? i + 2 * size : m;
      std::merge(x + i, x + middle, x + middle, x + end, space + i, Falling<T>());
    }
    std::memcpy(x, space, static_cast<std::size_t>(m) * sizeof(T));
  }
}

}  // namespace regmax::REGMAX_ISA
