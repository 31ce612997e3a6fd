// sqpnormmax for p = 1.5, one row per lane. Here q = 3, and with S_k = sum z^k (pnorm.hpp),
//
//     g = S_2 / S_3^(1/3),   y = z^2 / S_2,   d log g / dZ = 2 S_1 / S_2 - S_2 / S_3.
//
// Newton's step for g(Z) = 1 is (1 - 1/g) / (d log g / dZ). With r = g^3 = S_2^3 / S_3, 1 - r^(-1/3) is
// replaced by (r - 1) / (2 r + 1): it agrees to second order at r = 1, so convergence stays quadratic, it
// needs no root, and it is smaller elsewhere. g is close to convex in Z, so from Z = 1, where g >= 1, the
// steps approach the root from above.
#pragma once

#include <cstdint>

#include "algorithms/lane_simplex.hpp"

namespace regmax::REGMAX_ISA {

// S_1, S_2 and S_3.
template <class T>
struct CubicSums {
  Vec<T> s1, s2, s3;
};

template <class T>
REGMAX_INLINE CubicSums<T> lane_cubic_sums(const Vec<T>* x, int count, Vec<T> largest) {
  Vec<T> sums1[unrolled] = {}, sums2[unrolled] = {}, sums3[unrolled] = {};
  for_columns(count, [&](int k, int j) {
    const Vec<T> z = larger(x[k] + largest, Vec<T>{}), z2 = z * z;
    sums1[j] += z;
    sums2[j] += z2;
    sums3[j] = times_plus(z2, z, sums3[j]);
  });
  return {total<T>(sums1), total<T>(sums2), total<T>(sums3)};
}

// The step by which Newton's method lowers Z.
template <class T>
REGMAX_INLINE Vec<T> lane_cubic_step(const CubicSums<T>& s) {
  const Vec<T> cube = s.s2 * s.s2 * s.s2;  // r s_3: a single division
  return (cube - s.s3) * s.s2 * s.s3 / ((cube + cube + s.s3) * (s.s1 * s.s3 * 2 - s.s2 * s.s2));
}

// The sums over the same `count` scores when Z is smaller by `step`.
template <class T>
REGMAX_INLINE CubicSums<T> lane_move_sums(const CubicSums<T>& s, Vec<T> count, Vec<T> step) {
  const Vec<T> down = -step, s1 = times_plus(count, down, s.s1), s2 = times_plus(s1 + s.s1, down, s.s2);
  return {s1, s2, times_plus(s2 + s.s2 + times_plus(s.s1, down, s.s2), down, s.s3)};
}

template <class T>
struct CubicRoot {
  Vec<T> sum;  // S_2 at the root
  uint32_t unsettled;
};

// Moves Z (`largest`) to the root, or towards it for the given number of rounds.
template <class T>
inline CubicRoot<T> lane_cubic_root(const Vec<T>* x, int count, int rounds, Vec<T>* largest) {
  const Vec<T> one = splat(T(1)), tolerance = splat(256 * rounding<T>);
  Where<T> moving = equal(one, one);
  for (int round = 0;; ++round) {
    const CubicSums<T> sums = lane_cubic_sums<T>(x, count, *largest);
    if (!bits(moving) || round == rounds) return {sums.s2, bits(moving)};
    const Vec<T> step = lane_cubic_step<T>(sums);
    *largest = select(moving, *largest - step, *largest);
    // Convergence is quadratic: the steps after one this small are below rounding.
    moving = moving & greater(larger(step, -step), tolerance * *largest);
  }
}

// y, and -Z in `tau`.
template <class T>
inline uint32_t lane_sqpnormmax(const Vec<T>* x, int count, Vec<T>* y, Vec<T>* tau) {
  Vec<T> largest = splat(T(1));
  const CubicRoot<T> root = lane_cubic_root<T>(x, count, 24, &largest);
  const Vec<T> factor = splat(T(1)) / root.sum;
  Vec<T> nearest = splat(-nothing<T>);
  for (int k = 0; k < count; ++k) {
    const Vec<T> z = x[k] + largest, above = larger(z, Vec<T>{});
    nearest = smaller(absolute<T>(z), nearest);
    y[k] = above * above * factor;
  }
  *tau = -largest;
  return root.unsettled | doubtful<T>(nearest, lane_doubt<T>(largest));
}

}  // namespace regmax::REGMAX_ISA
