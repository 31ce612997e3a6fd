// J v on few weights, one row per lane (jacobians.hpp has the formulas). v[k] is overwritten; behind a row's
// own weights y[k] and v[k] are zero.
#pragma once

#include <cstdint>

#include "lane_mappings.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
inline void lane_subtract_mean(Vec<T>* v, int count, Vec<T> counts) {
  Vec<T> sum{};
  for (int k = 0; k < count; ++k) sum += v[k];
  const Vec<T> mean = sum / counts;
  for (int k = 0; k < count; ++k) v[k] -= mean;
}

// Averages over chains: partial sums forwards, then the last of each group backwards through it.
template <class T>
inline void lane_average_chains(Vec<T>* v, int count, IntVec<T> joined) {
  const Vec<T> one = splat(T(1));
  Vec<T> sum{}, size{}, mean{};
  Vec<T> sizes[max_candidates];
  for (int k = 0; k < count; ++k) {
    const Where<T> goes_on = has_bit(joined, k);
    sum = v[k] = add_where(goes_on, v[k], sum);
    size = sizes[k] = add_where(goes_on, one, size);
  }
  for (int k = count - 1; k >= 0; --k) {
    const Vec<T> last = v[k] / sizes[k];
    mean = k + 1 < count ? select(has_bit(joined, k + 1), mean, last) : last;
    v[k] = mean;
  }
}

template <class T>
inline void lane_average_equal(const Vec<T>* y, Vec<T>* v, int count) {
  const Vec<T> one = splat(T(1));
  uint32_t different = 0;
  for (int k = 1; k < count; ++k) different |= ~bits(equal(y[k], y[0]));
  if (!(different & all_lanes<T>)) {  // uniform weights are common
    Vec<T> sum{};
    for (int k = 0; k < count; ++k) sum += v[k];
    for (int k = 0; k < count; ++k) v[k] = sum / splat(static_cast<T>(count));
    return;
  }
  Vec<T> means[max_candidates];
  for (int k = 0; k < count; ++k) {
    Vec<T> sum{}, size{};
    for (int j = 0; j < count; ++j) {
      const Where<T> same = equal(y[j], y[k]);
      sum = add_where(same, sum, v[j]);
      size = add_where(same, size, one);
    }
    means[k] = sum / size;
  }
  for (int k = 0; k < count; ++k) v[k] = means[k];
}

// a^(-1/3) for a in [1/12, 1]: a parabola within 13 %, then Newton's method for 1/c^3 = a, which leaves twice
// the square of the error before.
template <class T>
inline Vec<T> inverse_cube_root(Vec<T> a) {
  Vec<T> c = splat(T(2.184)) + a * (a * splat(T(1.328)) - splat(T(2.512)));
  for (int step = 0; step < (sizeof(T) == sizeof(float) ? 4 : 5); ++step)
    c = c * (splat(T(4)) - a * c * c * c) * splat(T(1) / 3);
  return c;
}

// For p = 1.5 and s = sum y^1.5, J's M is 2 s^(-1/3) [ diag(y^(1/2)) - y y^T / (2 s) ], and
//     J v = scale (y^(1/2) (v - ratio) - along_y y).
template <class T>
struct PnormFactors {
  Vec<T> scale, ratio, along_y;
};

// From the sums of y^1.5, y v, y, y^(1/2) and y^(1/2) v. Since y sums to one over at most 128 weights, s is
// between 128^(-1/2) and 1.
template <class T>
inline PnormFactors<T> lane_pnorm_factors(Vec<T> s, Vec<T> along, Vec<T> total, Vec<T> roots, Vec<T> rooted) {
  const Vec<T> half = splat(T(0.5)) / s;
  const Vec<T> sum_m1 = roots - half * total * total, sum_mv = rooted - half * total * along;
  const Vec<T> ratio = sum_mv / sum_m1;
  return {inverse_cube_root<T>(s) * 2, ratio, half * (along - ratio * total)};
}

template <class T>
inline void lane_sqpnorm_product(const Vec<T>* y, Vec<T>* v, int count) {
  Vec<T> s{}, along{}, total{}, roots{}, rooted{};
  for (int k = 0; k < count; ++k) {
    const Vec<T> root = nearly_square_root(y[k]);
    s += y[k] * root;
    along += y[k] * v[k];
    total += y[k];
    roots += root;
    rooted += root * v[k];
  }
  const PnormFactors<T> factors = lane_pnorm_factors<T>(s, along, total, roots, rooted);
  // A single weight is one whatever the scores: there J is zero.
  const Vec<T> scale = select(equal(roots * roots, total), Vec<T>{}, factors.scale);
  for (int k = 0; k < count; ++k) {
    v[k] = scale * (nearly_square_root(y[k]) * (v[k] - factors.ratio) - factors.along_y * y[k]);
  }
}

}  // namespace regmax::REGMAX_ISA
