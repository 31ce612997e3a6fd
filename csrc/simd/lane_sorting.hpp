// Sorting networks over columns: every lane sorts its own numbers.
#pragma once

#include <cstdint>

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

}  // namespace regmax::REGMAX_ISA
