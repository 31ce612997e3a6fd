// A row of powers (powers.hpp) with steep weights, whose threshold float32 does not give closely enough: Newton's
// method goes on in float64 from the root in float32. The terms themselves need no more than float32.
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/powers.hpp"

namespace regmax::REGMAX_ISA {

// x - top in float64.
REGMAX_INLINE void wide_scores(const float* x, int64_t left, double top, Vec<double>* wide) {
  widen(load_left(x, left, nothing<float>), wide);
  for (int h = 0; h < 2; ++h) wide[h] -= splat(top);
}

// The root from a first value of m, and 0 if it is not close to it.
template <class Powers>
inline double steep_root(const float* x, int64_t count, double top, const Powers& powers, double m) {
  for (int round = 0; round < 3; ++round) {
    const Vec<double> rate = powers.c() / splat(m);
    PowerSums<double> sums{};
    for (int64_t i = 0; i < count; i += lanes<float>) {
      Vec<double> wide[2];
      wide_scores(x + i, count - i, top, wide);
      for (int h = 0; h < 2; ++h) {
        const PowerTerms<double> terms = power_terms<double>(wide[h], rate, powers.exponent);
        sums.s += terms.r;
        sums.c += terms.power;
        sums.r += terms.rw;
      }
    }
    const PowerSums<double> totals{splat(sum_lanes(sums.s)), splat(sum_lanes(sums.c)), splat(sum_lanes(sums.r))};
    const double step = powers.step(totals, splat(m))[0];
    m *= std::exp2(-step);
    if (std::fabs(step) < 1e-6) return m;  // convergence is quadratic
  }
  return 0;
}

// Replaces the scores x by the terms r, scaled, and finds their sum; m is the root in float32. Returns false if the row
// is doubtful in float64, too.
template <class Powers>
inline bool steep_terms(float* x, int64_t count, float top, double a, float m, float* sum) {
  const typename Powers::InDouble powers(splat(a));
  const double origin = static_cast<double>(top), root = steep_root(x, count, origin, powers, static_cast<double>(m));
  if (!(root > 0)) return false;
  const Vec<double> rate = powers.c() / splat(root), one = splat(1.0);
  const double exponent = powers.exponent[0];
  const float rounded = static_cast<float>(exponent);
  const GeneralTerms<float> terms{splat(rounded), splat(static_cast<float>(exponent - static_cast<double>(rounded)))};
  Vec<float> nearest = splat(-nothing<float>);
  double totals[1] = {};
  sum_terms<float>(count, totals, [&](int64_t i, Vec<float>* part) {
    Vec<double> wide[2];
    wide_scores(x + i, count - i, origin, wide);
    for (int h = 0; h < 2; ++h) wide[h] = times_plus(wide[h], rate, one);
    const CarefulTerms<float> added = terms.careful(CarefulShare<float>(wide, splat(8 * rounding<float>)));
    nearest = smaller(absolute<float>(added.w), nearest);
    store<float>(x + i, added.r);
    part[0] += added.r;
  });
  *sum = static_cast<float>(totals[0]);
  return !bits(greater(splat(careful_rounding<float>), nearest));
}

}  // namespace regmax::REGMAX_ISA
