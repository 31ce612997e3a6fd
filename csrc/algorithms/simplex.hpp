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

#include <algorithm>
#include <cstdint>

#include "simd/reduce.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

struct Decreasing {
  bool operator()(double a, double b) const { return a > b; }
};

// tau of the decreasingly sorted x: max over prefixes of (sum - 1) / m, which rises, then falls.
inline double sorted_threshold(const double* x, int64_t m) {
  double sum = -1, tau = -1;
  for (int64_t k = 0; k < m; ++k) {
    sum += x[k];
    const double bound = sum / static_cast<double>(k + 1);
    if (bound < tau) break;
    tau = bound;
  }
  return tau;
}

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
// Each round drops a share of the elements, except on contrived rows; those are sorted after a fixed number
// of rounds, so that the whole stays O(m log m).
inline double simplex_threshold(const double* x, int64_t m, double* space) {
  double sum = sum_of(x, m);
  double tau = larger(-1.0, (sum - 1) / static_cast<double>(m));
  int64_t left = keep_above(x, m, tau, space, &sum);
  for (int round = 0; round < 40; ++round) {
    // Rounding may let tau step back by an ulp: only the count tells that the support is found.
    tau = (sum - 1) / static_cast<double>(left);
    const int64_t fewer = keep_above(space, left, tau, space, &sum);
    if (fewer >= left || fewer == 0) return tau;
    left = fewer;
  }
  std::sort(space, space + left, Decreasing());
  return sorted_threshold(space, left);
}

// Divides the rounding of long sums out; equal weights stay equal.
inline void normalise(double* y, int64_t m) {
  const double factor = 1 / sum_of(y, m);
  for (int64_t i = 0; i < m; ++i) y[i] *= factor;
}

}  // namespace regmax::REGMAX_ISA
