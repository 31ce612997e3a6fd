// Loops over the vectors of a row. The code is compiled once for each of the common short lengths, unrolled
// and without branches, and once for all others.
#pragma once

#include <cstdint>
#include <type_traits>

#include "simd/streaming.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
constexpr int vectors_per_word = 64 / lanes<T>;

template <int64_t n>
using Constant = std::integral_constant<int64_t, n>;

template <class Vectors>
constexpr bool is_constant = !std::is_same<Vectors, int64_t>::value;

// Calls use(number of vectors) for rows of d numbers: a constant only if the last vector is full.
template <class T, class Use>
REGMAX_INLINE auto with_vectors(int64_t d, const Use& use) {
  const int64_t vectors = (d + lanes<T> - 1) / lanes<T>;
  if (d % lanes<T> == 0) {
    if (vectors == 1) return use(Constant<1>());
    if (vectors == 2) return use(Constant<2>());
    if (vectors == 4) return use(Constant<4>());
    if (vectors == 8) return use(Constant<8>());
  }
  return use(vectors);
}

template <class T>
constexpr int64_t vectors_behind_words(int64_t vectors) {
  return vectors % vectors_per_word<T>;
}
template <class T, int64_t n>
constexpr Constant<n % vectors_per_word<T>> vectors_behind_words(Constant<n>) {
  return {};
}

// Calls visit(i, size) for every word of a row: from vector i on, `size` vectors, a constant where it can be.
template <class T, class Vectors, class Visit>
REGMAX_INLINE void for_words(Vectors vectors, const Visit& visit) {
  int64_t i = 0;
  for (; i + vectors_per_word<T> <= vectors; i += vectors_per_word<T>) visit(i, Constant<vectors_per_word<T>>());
  if (i < vectors) visit(i, vectors_behind_words<T>(vectors));
}

// Prefetches a short row into the level-two cache. The row need not exist.
template <class T>
REGMAX_INLINE void prefetch_row(const T* row, int64_t d) {
  constexpr int64_t line = cache_line / static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; d <= prefetched_row && i < d; i += line) __builtin_prefetch(row + i, 0, 2);
}

// Vector i of a row of d numbers, padded with `fill`.
template <class T, class Vectors>
REGMAX_INLINE Vec<T> load_vector(const T* row, int64_t i, int64_t d, Vectors, T fill = T(0)) {
  const T* const p = row + i * lanes<T>;
  return is_constant<Vectors> ? load(p) : load_left(p, d - i * lanes<T>, fill);
}

template <class T, class Vectors>
REGMAX_INLINE void put_vector(T* row, int64_t i, int64_t d, Vec<T> v, bool streamed, Vectors) {
  const int64_t left = is_constant<Vectors> ? lanes<T> : d - i * lanes<T>;
  put_left<T>(row + i * lanes<T>, left, v, streamed);
}

}  // namespace regmax::REGMAX_ISA
