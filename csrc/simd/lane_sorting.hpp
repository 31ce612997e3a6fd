// Sorting networks over columns: every lane sorts its own numbers.
#pragma once

#include <cstdint>
#include <limits>

#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

struct Comparator {
  int a, b;
};

// Batcher's merge exchange (Knuth, Algorithm 5.2.2M) as a list of comparators, at compile time.
template <int n>
struct Network {
  Comparator list[n * n / 2] = {};
  int length = 0;

  constexpr Network() {
    for (int p = n / 2; p > 0; p /= 2) {
      for (int q = n / 2, r = 0, d = p;; d = q - p, q /= 2, r = p) {
        for (int i = 0; i + d < n; ++i) {
          if ((i & p) == r) list[length++] = {i, i + d};
        }
        if (q == p) break;
      }
    }
  }
};

template <class V>
inline void put_larger_first(V& a, V& b) {
  const V large = larger(a, b);
  b = smaller(a, b);
  a = large;
}

template <int n, class V, std::size_t... I>
inline void run_network(V* x, std::index_sequence<I...>) {
  constexpr Network<n> network;
  (put_larger_first(x[network.list[I].a], x[network.list[I].b]), ...);
}

// Sorts n columns in decreasing order; those from `count` on count as `nothing`.
template <int n, class T>
inline void sort_columns(const Vec<T>* x, int count, Vec<T>* sorted) {
  Vec<T> v[n];
  for (int k = 0; k < n; ++k) v[k] = k < count ? x[k] : splat(nothing<T>);
  constexpr Network<n> network;
  run_network<n>(v, std::make_index_sequence<network.length>());
  for (int k = 0; k < n; ++k) sorted[k] = v[k];
}

template <class T>
inline void sort_lanes(const Vec<T>* x, int count, Vec<T>* sorted) {
  if (count <= 8) return sort_columns<8, T>(x, count, sorted);
  if (count <= 16) return sort_columns<16, T>(x, count, sorted);
  return sort_columns<32, T>(x, count, sorted);
}

// The larger and the smaller of two integers.
template <class V>
struct Ranks {
  V of;

  friend Ranks larger(Ranks a, Ranks b) { return {a.of > b.of ? a.of : b.of}; }
  friend Ranks smaller(Ranks a, Ranks b) { return {a.of > b.of ? b.of : a.of}; }
};

template <int n, class T>
inline void sort_size_columns(const Vec<T>* x, int count, Vec<T>* sizes, Where<T>* negative) {
  constexpr Int<T> lowest = std::numeric_limits<Int<T>>::min(), most = std::numeric_limits<Int<T>>::max();
  const Vec<T> zero{};
  // A size and, in the last bit, its sign; they compare like the sizes.
  Ranks<IntVec<T>> v[n];
  for (int k = 0; k < n; ++k) {
    const IntVec<T> own = (IntVec<T>)(k < count ? x[k] : zero);
    v[k].of = ((own << 1) - (own >> (8 * sizeof(T) - 1))) ^ lowest;
  }
  constexpr Network<n> network;
  run_network<n>(v, std::make_index_sequence<network.length>());
  for (int k = 0; k < n; ++k) {
    const IntVec<T> key = v[k].of ^ lowest;
    sizes[k] = (Vec<T>)((key >> 1) & most);
    negative[k] = has_bit(key, 0);
  }
}

// Sorts the sizes |x| of `count` columns of finite numbers in decreasing order, with their signs; after them are zeros.
template <class T>
inline void sort_sizes(const Vec<T>* x, int count, Vec<T>* sizes, Where<T>* negative) {
  if (count <= 8) return sort_size_columns<8, T>(x, count, sizes, negative);
  if (count <= 16) return sort_size_columns<16, T>(x, count, sizes, negative);
  return sort_size_columns<32, T>(x, count, sizes, negative);
}

}  // namespace regmax::REGMAX_ISA
