// sqpnormmax for p = 1.5 on few candidates, one row per lane. Here q = 3, and with S_k = sum z^k (pnorm.hpp),
//
//     g = S_2 / S_3^(1/3),   y = z^2 / S_2,   d log g / dZ = 2 S_1 / S_2 - S_2 / S_3.
//
// Newton's step for g(Z) = 1 is (1 - 1/g) / (d log g / dZ). With r = g^3 = S_2^3 / S_3, 1 - r^(-1/3) is replaced by
// (r - 1) / (2 r + 1): it agrees to second order at r = 1, so convergence stays quadratic, it needs no root, and it
// is smaller elsewhere. g is close to convex in Z, so from Z = 1, where g >= 1, the steps approach the root from
// above.
#pragma once

#include <cstdint>

#include "lane_mappings.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
inline uint32_t lane_sqpnormmax(const Vec<T>* x, int count, Vec<T>* y) {
  const Vec<T> one = splat(T(1)), zero{}, tolerance = splat(16 * rounding<T>);
  Vec<T> largest = one;
  Where<T> moving = equal(one, one);
  for (int round = 0; round < 24 && bits(moving); ++round) {
    Vec<T> s1{}, s2{}, s3{};
    for (int k = 0; k < count; ++k) {
      const Vec<T> z = larger(x[k] + largest, zero), z2 = z * z;
      s1 += z;
      s2 += z2;
      s3 += z2 * z;
    }
    const Vec<T> r = s2 * s2 * s2 / s3;
    const Vec<T> step = (r - one) * s2 * s3 / ((r + r + one) * (s1 * s3 * 2 - s2 * s2));
    largest = select(moving, largest - step, largest);
    moving = moving & greater(larger(step, -step), tolerance * largest);
  }
  for (int k = 0; k < count; ++k) {
    const Vec<T> z = larger(x[k] + largest, zero);
    y[k] = z * z;
  }
  lane_normalise<T>(y, count);
  return bits(moving);
}

}  // namespace regmax::REGMAX_ISA
