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
#include "algorithms/precise_squares.hpp"

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

// Moves Z (`largest`) to the root, or towards it for the given number of rounds; returns the lanes that move on.
template <class T>
inline uint32_t lane_cubic_root(const Vec<T>* x, int count, int rounds, Vec<T>* largest) {
  const Vec<T> one = splat(T(1)), tolerance = splat(256 * rounding<T>);
  Where<T> moving = equal(one, one);
  for (int round = 0; bits(moving) && round < rounds; ++round) {
    const Vec<T> step = lane_cubic_step<T>(lane_cubic_sums<T>(x, count, *largest));
    *largest = select(moving, *largest - step, *largest);
    // Convergence is quadratic: the steps after one this small are below rounding.
    moving = moving & greater(larger(step, -step), tolerance * *largest);
  }
  return bits(moving);
}

// At the root: what Z is too large by, S_1, and 1 / S_2.
template <class T>
struct CubicRoot {
  Vec<T> rest, s1, factor;
};

// In float32 the sums have too few digits for the last step: an error of Z counts more than twice in the largest of
// weights that differ much.
inline CubicRoot<float> lane_cubic_rest(const Vec<float>* x, int count, Vec<float> largest) {
  Vec<double> z0[2], s1[2] = {}, s2[2] = {}, s3[2] = {};
  widen(largest, z0);
  for (int k = 0; k < count; ++k) {
    Vec<double> wide[2];
    widen(x[k], wide);
    for (int h = 0; h < 2; ++h) {
      const Vec<double> z = larger(wide[h] + z0[h], Vec<double>{}), z2 = z * z;
      s1[h] += z;
      s2[h] += z2;
      s3[h] = times_plus(z2, z, s3[h]);
    }
  }
  Vec<double> rest[2];
  for (int h = 0; h < 2; ++h) {
    rest[h] = lane_cubic_step<double>({s1[h], s2[h], s3[h]});
    s2[h] = splat(1.0) / (s2[h] - (s1[h] + s1[h]) * rest[h]);
  }
  return {narrow(rest), narrow(s1), narrow(s2)};
}

inline CubicRoot<double> lane_cubic_rest(const Vec<double>* x, int count, Vec<double> largest) {
  const CubicSums<double> sums = lane_cubic_sums<double>(x, count, largest);
  return {Vec<double>{}, sums.s1, splat(1.0) / sums.s2};
}

// y, and -Z in `tau`.
template <class T>
inline uint32_t lane_sqpnormmax(const Vec<T>* x, int count, Vec<T>* y, Vec<T>* tau) {
  Vec<T> largest = splat(T(1));
  const uint32_t unsettled = lane_cubic_root<T>(x, count, 24, &largest);
  const CubicRoot<T> root = lane_cubic_rest(x, count, largest);
  const Vec<T> factor = root.factor;
  Vec<T> nearest = splat(-nothing<T>);
  LaneSum<T> sum;
  for (int k = 0; k < count; ++k) {
    const Vec<T> first = x[k] + largest, z = first + ((x[k] - (first - largest)) - root.rest);
    const Vec<T> above = larger(z, Vec<T>{});
    nearest = smaller(absolute<T>(z), nearest);
    sum.add(y[k] = above * above);
  }
  // Divided by the sum of the rounded squares, so that two equal scores have weights of exactly 1/2.
  const Vec<T> total = sum.total - sum.excess;
  for (int k = 0; k < count; ++k) y[k] /= total;
  *tau = -largest;
  const Where<T> small = greater(splat(small_sqpnormmax_weight<T>), largest * largest * factor);
  if (bits(small)) lane_small_squares<T>(x, count, *tau, root.rest, factor, root.s1 * factor * splat(T(2)), small, y);
  return unsettled | doubtful<T>(nearest, lane_doubt<T>(largest));
}

}  // namespace regmax::REGMAX_ISA
