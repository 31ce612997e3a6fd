// The weights of rows mapped by moments, a vector at a time, from the threshold in two parts (rows/moment_rows.hpp).
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "algorithms/precise_squares.hpp"
#include "simd/reduce.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// The weights of scores relative to the maximum, and z, which decides which ones are positive.
template <class T>
struct LinearWeights {
  Vec<T> tau, rest;

  REGMAX_INLINE Vec<T> operator()(Vec<T> x, int, Vec<T>* z) const {
    *z = x - tau - rest;
    return larger(*z, Vec<T>{});
  }
  REGMAX_INLINE void end_word() const {}
};

// factor * z^2. The rounding of z counts twice in a square, so z has two parts.
template <class T>
struct SquareWeights {
  Vec<T> tau, rest, factor;

  REGMAX_INLINE Vec<T> operator()(Vec<T> x, int, Vec<T>* z) const {
    *z = x - tau;
    return select(greater(*z, Vec<T>{}), precise_square<T>(x, tau, rest) * factor, Vec<T>{});
  }
  REGMAX_INLINE void end_word() const {}
};

// The same, added up.
template <class T>
struct SummedSquares {
  SquareWeights<T> weights;
  LaneSum<T> total{};
  Vec<T> sums[unrolled] = {};  // of a word

  REGMAX_INLINE Vec<T> operator()(Vec<T> x, int c, Vec<T>* z) {
    const Vec<T> y = weights(x, c, z);
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
