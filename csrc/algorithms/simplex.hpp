// Projection on the simplex: the threshold tau with sum (x_i - tau)_+ = 1.
//
// tau = max over subsets S of (sum_S x - 1) / |S|, so every subset gives a lower bound, and the elements at
// or below a lower bound are outside the support. Michelot's algorithm takes the bound of the remaining
// elements, drops those that it excludes, and repeats until it drops none. It starts with x > max - 1, the
// bound of the subset {argmax}.
//
// Everything is relative to the row's maximum (max x = 0) and in double, so that the sums of the longest rows
// are exact to far below the rounding of the result.
#pragma once

#include <cstdint>

#include "simd/reduce.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// Compacts the numbers above the bound to `kept`, which may be x itself and has room for m numbers and a
// vector; returns their count and sum.
inline int64_t keep_above(const double* x, int64_t m, double bound, double* kept, double* sum) {
  constexpr int w = lanes<double>;
  const Vec<double> bounds = splat(bound);
  Vec<double> total{};
  int64_t count = 0;
  for (int64_t i = 0; i < m; i += w) {
    const Vec<double> v = load_left(x + i, m - i, bound);
    const Where<double> above = greater(v, bounds);
    total = add_where(above, total, v);
    count += append<double>(kept + count, bits(above), v);
  }
  *sum = sum_lanes(total);
  return count;
}

// The threshold of m scores with maximum 0; `space` holds m numbers and a vector.
// A round that drops the share f of the elements raises tau by at most f / (1 - f) of the last step. Doubles have room
// for few rounds with a small f, and with a large f the counts fall geometrically: the whole is O(m).
inline double simplex_threshold(const double* x, int64_t m, double* space) {
  double sum = sum_of(x, m);
  double tau = larger(-1.0, (sum - 1) / static_cast<double>(m));
  int64_t left = keep_above(x, m, tau, space, &sum);
  for (;;) {
    // Rounding may let tau step back by an ulp: only the count tells that the support is found.
    tau = (sum - 1) / static_cast<double>(left);
    const int64_t fewer = keep_above(space, left, tau, space, &sum);
    if (fewer >= left || fewer == 0) return tau;
    left = fewer;
  }
}

// Divides the rounding of long sums out; equal weights stay equal.
inline void normalise(double* y, int64_t m) {
  const double factor = 1 / sum_of(y, m);
  for (int64_t i = 0; i < m; ++i) y[i] *= factor;
}

}  // namespace regmax::REGMAX_ISA
