// Projection on the simplex: the threshold tau with sum (x_i - tau)_+ = 1.
//
// tau = max over subsets S of (sum_S x - 1) / |S|, so every subset gives a lower bound, and the elements at
// or below a lower bound are outside the support. Michelot: take the bound of what is left, drop what it
// excludes, repeat until nothing is dropped. It starts with x > max - 1 (the subset {argmax} gives that
// bound).
//
// Everything here is relative to the row's maximum (max x = 0) and in double: the sums of the largest rows
// are exact to far below the rounding of the result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "simd.hpp"
#include "transpose.hpp"

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

// Lane i takes lane i + by, around the end.
template <int by>
struct Rotated {
  static constexpr int from(int i) { return (i + by) % lanes<double>; }
};

template <int by>
REGMAX_INLINE Vec<double> rotated(Vec<double> v) {
  return shuffle<Rotated<by>>(v, v, std::make_index_sequence<lanes<double>>());
}

inline double sum_lanes(Vec<double> v) {
  if constexpr (lanes<double> > 4) v += rotated<4>(v);
  if constexpr (lanes<double> > 2) v += rotated<2>(v);
  return (v + rotated<1>(v))[0];
}

inline double sum_lanes(Vec<float> v) {
  typedef float half __attribute__((vector_size(vector_bytes / 2)));
  half halves[2];
  std::memcpy(halves, &v, sizeof v);
  return sum_lanes(__builtin_convertvector(halves[0], Vec<double>) +
                   __builtin_convertvector(halves[1], Vec<double>));
}

inline double sum_of(const double* x, int64_t m) {
  constexpr int w = lanes<double>;
  Vec<double> a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * w <= m; i += 4 * w) {
    a += load(x + i);
    b += load(x + i + w);
    c += load(x + i + 2 * w);
    d += load(x + i + 3 * w);
  }
  for (; i < m; i += w) a += load_left(x + i, m - i, 0.0);
  return sum_lanes((a + b) + (c + d));
}

// Copies what is above the bound to `kept` (which may be x itself, and has room for a vector behind its m
// numbers); returns how many, and their sum.
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
// Each round drops a share of the elements on all but contrived rows; on those, sorting what is left after a
// fixed number of rounds keeps the whole within O(m log m).
inline double simplex_threshold(const double* x, int64_t m, double* space) {
  double sum = sum_of(x, m);
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
  const double factor = 1 / sum_of(y, m);
  for (int64_t i = 0; i < m; ++i) y[i] *= factor;
}

}  // namespace regmax::REGMAX_ISA
