// Projection on the simplex: the threshold tau with sum (x_i - tau)_+ = 1.
//
// tau = max over subsets S of (sum_S x - 1) / |S|, so every subset gives a lower bound, and the elements at or below
// a lower bound are outside the support. Michelot: take the bound of what is left, drop what it excludes, repeat
// until nothing is dropped. It starts with x > max - 1 (the subset {argmax} gives that bound).
//
// Everything here is relative to the row's maximum (max x = 0) and in double: the sums of the largest rows are exact
// to far below the rounding of the result.
#pragma once

#include <algorithm>
#include <cstdint>

namespace regmax::REGMAX_ISA {

// Not std::max and its like: those are templates that translation units of other instruction sets share.
inline double larger(double a, double b) { return a > b ? a : b; }
inline double smaller(double a, double b) { return a < b ? a : b; }

struct Range {
  double min, max;
};

inline Range range_of(const double* x, int64_t m) {
  Range range{x[0], x[0]};
  for (int64_t i = 1; i < m; ++i) range = {smaller(range.min, x[i]), larger(range.max, x[i])};
  return range;
}

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

// Copies what is above the bound to `kept` (which may be x itself); returns how many, and their sum.
inline int64_t keep_above(const double* x, int64_t m, double bound, double* kept, double* sum) {
  int64_t count = 0;
  double total = 0;
  for (int64_t i = 0; i < m; ++i) {
    const double xi = x[i];
    const bool above = xi > bound;
    kept[count] = xi;
    count += above;
    total += above ? xi : 0.0;
  }
  *sum = total;
  return count;
}

// The threshold of m scores with maximum 0; `space` holds m numbers.
// Each round drops a share of the elements on all but contrived rows; on those, sorting what is left after a
// fixed number of rounds keeps the whole within O(m log m).
inline double simplex_threshold(const double* x, int64_t m, double* space) {
  double sum = 0;
  for (int64_t i = 0; i < m; ++i) sum += x[i];
  double tau = larger(-1.0, (sum - 1) / static_cast<double>(m));
  int64_t left = keep_above(x, m, tau, space, &sum);
  for (int round = 0; round < 40; ++round) {
    // Rounding may let tau step back by an ulp: the count alone says that the support is found.
    tau = (sum - 1) / static_cast<double>(left);
    const int64_t fewer = keep_above(space, left, tau, space, &sum);
    if (fewer >= left || fewer == 0) return tau;
    left = fewer;
  }
  std::sort(space, space + left, Decreasing());
  return sorted_threshold(space, left);
}

// Pooled scores carry the rounding of long sums; dividing it out leaves equal weights equal.
inline void normalise(double* y, int64_t m) {
  double sum = 0;
  for (int64_t i = 0; i < m; ++i) sum += y[i];
  for (int64_t i = 0; i < m; ++i) y[i] /= sum;
}

}  // namespace regmax::REGMAX_ISA
