// Weights factor * (x - tau)^2 of rows without a large weight. Rounding of z = x - tau counts twice in a weight, and it
// is the same for equal scores, of which such rows may have many: it moves the sum of the weights. Squares are computed
// from z in two parts, and tau is moved until the weights of these rows sum to one.
#pragma once

#include <cstdint>

#include "simd/reduce.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// Rows whose largest weight is below this need it. Of 400,000 float32 rows of 2 to 40 scores each of entmax and
// sqpnormmax with strength 1.5 (all kinds of tests/support/exact_rows.py) one was off by more than 4 units in the last
// place of the largest weight, by 4.2; with 0.05 instead of 0.15, entmax was off by up to 3.9 instead of 2.6.
template <class T>
constexpr T small_entmax_weight = sizeof(T) == sizeof(float) ? T(0.15) : T(0.25);
template <class T>
constexpr T small_sqpnormmax_weight = sizeof(T) == sizeof(float) ? T(0.05) : T(0.5);

// z^2 + c, rounded once, so that it grows with z.
template <class T>
REGMAX_INLINE Vec<T> square_plus(Vec<T> z, Vec<T> c) {
#if defined(__FMA__)
  return times_plus(z, z, c);
#else
  const Vec<T> square = z * z;
  return square + (product_error<T>(z, z, square) + c);
#endif
}

// (x - tau - rest)^2 for tau <= x <= 0 and a small rest.
template <class T>
REGMAX_INLINE Vec<T> precise_square(Vec<T> x, Vec<T> tau, Vec<T> rest) {
  const Vec<T> z = x - tau, lost = (x - (z + tau)) - rest;
  return square_plus<T>(z, (z + z) * lost);
}

// What the sum of a row's weights exceeds one by.
template <class T>
inline T excess_of_one(const LaneSum<T>& sum) {
  if constexpr (sizeof(T) == sizeof(float)) return static_cast<T>(sum_lanes(sum.total) - 1 - sum_lanes(sum.excess));
  long double excess = -1;
  for (int i = 0; i < lanes<T>; ++i) excess += static_cast<long double>(sum.total[i]) - sum.excess[i];
  return static_cast<T>(excess);
}

// The weights of the `small` rows, one row per lane. `slope` is how much their sum falls per unit of tau.
template <class T>
__attribute__((noinline)) inline void lane_small_squares(const Vec<T>* x, int count, Vec<T> tau, Vec<T> rest,
                                                         Vec<T> factor, Vec<T> slope, Where<T> small, Vec<T>* y) {
  const auto weight = [&](int k) {
    return select(greater(x[k], tau), precise_square<T>(x[k], tau, rest) * factor, Vec<T>{});
  };
  LaneSum<T> sum;
  sum.total = splat(T(-1));
  for (int k = 0; k < count; ++k) sum.add(weight(k));
  rest += (sum.total - sum.excess) / slope;
  for (int k = 0; k < count; ++k) y[k] = select(small, weight(k), y[k]);
}

}  // namespace regmax::REGMAX_ISA
