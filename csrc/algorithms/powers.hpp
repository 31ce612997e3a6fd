// Weights that are powers of the scores: entmax with a = alpha - 1 and sqpnormmax with a = p - 1, 0 < a < 1.
//
// With x relative to its maximum, w = (1 + c x / m)_+ in [0, 1] and r = w^(1/a), the weights are y = r / S, where c is
// a for entmax and 1 for sqpnormmax, and m is the root of
//
//     entmax        F(m) = m S^a,                     d log F / d log m = C / S,
//     sqpnormmax    F(m) = m S R^(-(1-a)/(1+a)),      d log F / d log m = 1 + (C/S - 1) / a - (S/R - 1) (1-a) / a
//
// at F = 1, with the sums S = sum r, C = sum w^(1/a - 1), R = sum r w. No digit cancels for a near 0, where r is
// exp(x / m) for entmax. Newton's method is applied to log F as a function of log m, which is close to linear. For
// entmax F is also convex in m (a norm of an affine function), so Newton's steps for F itself decrease to the root.
//
// Fewer scores give a first guess of m: a row's maxima by lane. Scores at or below -m / c have no weight.
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/power_terms.hpp"
#include "simd/exp2_log2.hpp"
#include "simd/reduce.hpp"

namespace regmax::REGMAX_ISA {

// `rate` is c / m and `exponent` 1/a - 1.
template <class T>
REGMAX_INLINE PowerTerms<T> power_terms(Vec<T> x, Vec<T> rate, Vec<T> exponent) {
  const Vec<T> share = -x * rate, w = splat(T(1)) - share;
  const Where<T> inside = greater(w, splat(8 * rounding<T>));  // at the threshold up to rounding: no weight
  const Vec<T> safe = select(inside, w, splat(T(1))), lost = select(inside, share, Vec<T>{});
  const Vec<T> power = select(inside, exp2_of<T>(exponent * log2_one_minus<T>(lost, safe)), Vec<T>{});
  const Vec<T> r = power * safe;
  return {r, power, r * safe};
}

// y^power of weights; zero for those that are zero.
template <class T>
REGMAX_INLINE Vec<T> positive_power(Vec<T> y, Vec<T> power) {
  const Where<T> positive = greater(y, Vec<T>{});
  const Vec<T> logarithm = log2_of<T>(select(positive, larger(y, splat(smallest_normal<T>)), splat(T(1))));
  return select(positive, exp2_of<T>(logarithm * power), Vec<T>{});
}

template <class T>
struct PowerSums {
  Vec<T> s, c, r;  // S, C, R
};

// --- The two mappings, one row per lane ---

template <class T>
inline Vec<T> within(Vec<T> v, T low, T high) {
  return larger(smaller(v, splat(high)), splat(low));
}

// a and 1/a - 1. Rows that do not fit keep any strength: what it gives is not used.
template <class T>
struct PowerExponents {
  Vec<T> a, exponent;

  explicit PowerExponents(Vec<T> strength_less_one)
      : a(within<T>(strength_less_one, T(1e-3), T(1))), exponent(splat(T(1)) / a - splat(T(1))) {}

  // The relative change of S for a relative change of m: r changes by w^(1/a - 1) (1 - w) / a.
  Vec<T> sensitivity(const PowerSums<T>& sums) const { return (sums.c - sums.s) / (a * sums.s); }
};

// What rounding took from the quotient.
template <class T>
inline Vec<T> quotient_rest(Vec<T> numerator, Vec<T> m, Vec<T> quotient) {
  const Vec<T> product = quotient * m;
  return ((numerator - product) - product_error<T>(quotient, m, product)) / m;
}

template <class T>
struct TsallisPowers : PowerExponents<T> {
  using PowerExponents<T>::a;
  using PowerExponents<T>::PowerExponents;
  using InDouble = TsallisPowers<double>;

  Vec<T> c() const { return a; }
  // Newton's step down in log2 m.
  Vec<T> step(const PowerSums<T>& sums, Vec<T> m) const {
    return (log2_of<T>(m) + a * log2_of<T>(sums.s)) * sums.s / sums.c;
  }
};

template <class T>
struct PnormPowers : PowerExponents<T> {
  using PowerExponents<T>::a;
  using PowerExponents<T>::PowerExponents;
  using InDouble = PnormPowers<double>;

  Vec<T> c() const { return splat(T(1)); }
  Vec<T> step(const PowerSums<T>& sums, Vec<T> m) const {
    const Vec<T> one = splat(T(1)), rest = one - a;
    const Vec<T> log_f = log2_of<T>(m) + (log2_of<T>(sums.s) - log2_of<T>(sums.r) * rest / (one + a));
    return log_f / (one + (sums.c / sums.s - one - rest * (sums.s / sums.r - one)) / a);
  }
};

// The step from m (1 - shift), in double: in float32 the sum of large logarithms has too few digits.
template <class Powers>
inline Vec<float> accurate_step(const Powers& powers, const PowerSums<float>& sums, Vec<float> m, Vec<float> shift) {
  Vec<double> a[2], s[2], c[2], r[2], wide_m[2], wide_shift[2], steps[2];
  widen(powers.a, a);
  widen(sums.s, s);
  widen(sums.c, c);
  widen(sums.r, r);
  widen(m, wide_m);
  widen(shift, wide_shift);
  for (int h = 0; h < 2; ++h) {
    wide_m[h] -= wide_m[h] * wide_shift[h];
    steps[h] = typename Powers::InDouble(a[h]).step({s[h], c[h], r[h]}, wide_m[h]);
  }
  return narrow(steps);
}

// m after a step down in log2 m.
template <class T>
REGMAX_INLINE Vec<T> stepped(Vec<T> m, Vec<T> step) {
  return m * normal_exp2<T>(within<T>(-step, T(-6), T(1)));
}

constexpr int most_power_rounds = 12;

// The sums of careful terms, which are lifted.
template <class T>
inline PowerSums<T> lowered(const PowerSums<T>& sums) {
  const Vec<T> scale = splat(static_cast<T>(1 / lifted_one));
  return {sums.s * scale, sums.c * scale, sums.r * scale};
}

// Newton's method in log2 m, one row per lane. The first steps come from rough terms. The last step is kept apart from
// m, where it would be rounded: the root is m (1 - shift). Each row's steps depend on that row only.
template <class T>
struct RootSearch {
  // After a step below `last_step` the error, which is about its square, is below rounding; after one below
  // `rough_step` rough terms no longer serve.
  static constexpr T last_step = T(2.5e-4), rough_step = T(0.02);

  Vec<T> m, shift{};
  uint32_t moving, rough;

  RootSearch(Vec<T> start, uint32_t wanted) : m(start), moving(wanted), rough(wanted) {}

  // c / m, and what is to be added to it.
  template <class Powers>
  Vec<T> rate(const Powers& powers, Vec<T>* rest) const {
    const Vec<T> quotient = powers.c() / m;
    *rest = times_plus(quotient, shift, quotient_rest<T>(powers.c(), m, quotient));
    return quotient;
  }

  // NaN is never small.
  void take_rough(Vec<T> step) {
    m = select(from_bits<T>(rough), stepped<T>(m, step), m);
    rough &= ~bits(greater(splat(rough_step), absolute<T>(step)));
  }
  void take_careful(Vec<T> step) {
    const uint32_t chosen = moving & ~rough;
    const uint32_t last = bits(greater(splat(last_step), absolute<T>(step))) & chosen;
    const Vec<T> change = step * splat(T(ln_2));
    shift = select(from_bits<T>(last), times_plus(change * T(0.5), change, change), shift);
    moving &= ~last;
    m = select(from_bits<T>(chosen & ~last), stepped<T>(m, step), m);
  }
  // Moves m to the roots; returns the rows in which rounding or the last step counts. Where a weight is about to vanish
  // the step after a small one may be no smaller.
  template <class Powers>
  uint32_t finish(const Powers& powers, const PowerSums<T>& sums, Vec<T> step) {
    const Vec<T> sensitivity = powers.sensitivity(sums);
    const Vec<T> error = absolute<T>(step) * larger(sensitivity, splat(T(1)));
    m -= m * shift;
    return bits(greater(sensitivity, splat(T(8)))) | bits(greater(error, splat(T(4e-7))));
  }
};

// Scores relative to their maximum in long double, which has the digits that float64 weights need: in rows with many
// small weights the rounding errors of double add up. Where long double is double, the last digits are lost.
struct LongScores {
  const double* x;  // as the row has them
  double top, gamma;

  long double at(int64_t k) const { return (static_cast<long double>(x[k]) - top) / gamma; }
};

constexpr long double long_scale = 1.2676506002282294e30L;  // 2^100

struct LongPowerSums {
  long double s, c, r;
};

// The terms r of one row, exp(x) at a = 0, and their sums, all times 2^100: no term is rounded as a subnormal number.
inline LongPowerSums long_power_sums(const LongScores& x, int64_t count, long double rate, double a, double* r) {
  LongPowerSums sums{};
  for (int64_t k = 0; k < count; ++k) {
    const long double share = -x.at(k) * rate, w = 1 - share;
    const bool inside = w > 8 * rounding<double>;
    const long double term = inside ? long_scale * std::exp(a > 0 ? std::log1p(-share) / a : x.at(k)) : 0;
    r[k] = static_cast<double>(term);
    if (!inside) continue;
    sums.s += term;
    sums.c += term / w;
    sums.r += term * w;
  }
  return sums;
}

// A first guess of the root, from one small set of scores per lane.
template <class T, class Powers, class Terms>
inline Vec<T> guess_root(const Vec<T>* x, int count, const Powers& powers, const Terms& terms) {
  Vec<T> m = splat(T(1));
  for (int round = 0; round < 3; ++round) {
    PowerSums<T> sums{};
    const Vec<T> rate = powers.c() / m;
    for (int k = 0; k < count; ++k) {
      const PowerTerms<T> added = terms.rough(x[k], rate);
      sums.s += added.r;
      sums.c += added.power;
      sums.r += added.rw;
    }
    m = smaller(stepped<T>(m, powers.step(sums, m)), splat(T(1)));
  }
  return m;
}

}  // namespace regmax::REGMAX_ISA
