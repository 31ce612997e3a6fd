// The weights of rows mapped by moments, a vector at a time, from the threshold in two parts (rows/moment_rows.hpp).
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "algorithms/precise_squares.hpp"
#include "runtime/tuning.hpp"
#include "simd/reduce.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// x - (tau + rest). In double it is rounded once: weights are powers of it, with more than twice its error.
template <class T>
REGMAX_INLINE Vec<T> excess(Vec<T> x, Vec<T> tau, Vec<T> rest) {
  const Vec<T> z = x - tau;
  if constexpr (sizeof(T) == sizeof(float)) return z - rest;
  const Vec<T> part = z - x, rounded = (x - (z - part)) - (tau + part);
  return z + select(greater(z, splat(-std::numeric_limits<T>::infinity())), rounded - rest, Vec<T>{});
}

// The weights of scores relative to the maximum, and z, which decides which ones are positive.
template <class T, class Moments>
struct PlainWeights {
  Vec<T> tau, rest, factor;

  REGMAX_INLINE Vec<T> operator()(Vec<T> x, int, Vec<T>* z) const {
    *z = excess<T>(x, tau, rest);
    return Moments::weight(larger(*z, Vec<T>{}), factor);
  }
  REGMAX_INLINE void end_word() const {}
};

template <class T>
struct PreciseWeights {
  Vec<T> tau, rest, factor;
  LaneSum<T> total{};
  Vec<T> sums[unrolled] = {};  // of a word

  REGMAX_INLINE Vec<T> operator()(Vec<T> x, int c, Vec<T>* z) {
    *z = x - tau;
    const Vec<T> y = select(greater(*z, Vec<T>{}), precise_square<T>(x, tau, rest) * factor, Vec<T>{});
    sums[c % unrolled] += y;
    return y;
  }
  REGMAX_INLINE void end_word() {
    total.add((sums[0] + sums[1]) + (sums[2] + sums[3]));
    std::memset(sums, 0, sizeof sums);
  }
};

// Takes the weights of a row that is not written.
template <class T>
struct NoRow {
  REGMAX_INLINE void put(int64_t, Vec<T>, uint32_t) {}
  template <class Size>
  REGMAX_INLINE void put_zeros(int64_t, Size) {}
  REGMAX_INLINE void put_word(int64_t, uint64_t) {}
};

}  // namespace regmax::REGMAX_ISA
