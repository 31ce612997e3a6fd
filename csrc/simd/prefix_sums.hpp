// Prefix sums in double, from which the sum of any run of neighbours follows, and filling a run with one
// value.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/bitset.hpp"
#include "simd/transpose.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// As many numbers of T as a vector has doubles; load_some_doubles reads `count` of them, zero-padded.
template <class T>
REGMAX_INLINE Vec<double> load_doubles(const T* p) {
  typedef T narrow __attribute__((vector_size(lanes<double> * sizeof(T))));
  narrow v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, Vec<double>);
}

template <class T>
inline Vec<double> load_some_doubles(const T* p, int64_t count) {
  T buffer[lanes<double>] = {};
  std::memcpy(buffer, p, static_cast<std::size_t>(count) * sizeof(T));
  return load_doubles(buffer);
}

// Moves every lane up, with zeros from below: a shuffle of a vector of zeros and another.
template <int by>
struct MovedUp {
  static constexpr int from(int i) { return i < by ? i : lanes<double> + i - by; }
};

template <int by>
REGMAX_INLINE Vec<double> moved_up(Vec<double> v) {
  return shuffle<MovedUp<by>>(Vec<double>{}, v, std::make_index_sequence<lanes<double>>());
}

// Sums of the lanes up to each.
REGMAX_INLINE Vec<double> add_along(Vec<double> v) {
  v += moved_up<1>(v);
  if constexpr (lanes<double> > 2) v += moved_up<2>(v);
  if constexpr (lanes<double> > 4) v += moved_up<4>(v);
  return v;
}

// sums[i] = x_0 + ... + x_{i-1} for i <= d, after `pick` has changed every vector. There is room for a vector
// after sums[d].
template <class T, class Pick>
inline void prefix_sums(const T* x, int64_t d, double* sums, const Pick& pick) {
  constexpr int w = lanes<double>;
  double carry = sums[0] = 0;
  for (int64_t i = 0; i < d; i += w) {
    const Vec<double> v = d - i < w ? load_some_doubles(x + i, d - i) : load_doubles(x + i);
    const Vec<double> total = add_along(pick(v, i));
    store<double>(sums + i + 1, total + carry);
    carry += total[w - 1];
  }
}

// y[begin, end) = value. Runs are written from front to back: it may overwrite the row of d after `end`.
template <class T>
REGMAX_INLINE void fill_run(T* y, int64_t begin, int64_t end, int64_t d, T value) {
  const Vec<T> values = splat(value);
  int64_t i = begin;
  if (begin + 2 * lanes<T> <= d) {  // enough for most runs
    store<T>(y + begin, values);
    store<T>(y + begin + lanes<T>, values);
    i += 2 * lanes<T>;
  }
  for (; i < end; i += lanes<T>) store_left<T>(y + i, d - i, values);
}

}  // namespace regmax::REGMAX_ISA
