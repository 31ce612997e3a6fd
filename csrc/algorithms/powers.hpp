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

#include "runtime/tuning.hpp"
#include "simd/exp2_log2.hpp"
#include "simd/reduce.hpp"

namespace regmax::REGMAX_ISA {

// The terms of one vector; zero outside the support.
template <class T>
struct PowerTerms {
  Vec<T> r, power, rw;  // w^(1/a), w^(1/a - 1), w^(1/a + 1)
};

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

// How closely w is known after the last step: m is known to 4e-7.
template <class T>
constexpr T careful_rounding = 16 * rounding<T>;

// Careful terms are scaled: none of them is rounded as a subnormal number, so that a weight is rounded once.
constexpr int careful_scale_bits = 64;
template <class T>
constexpr T careful_scale = T(18446744073709551616.0);  // 2^64

// Careful terms, and what decides whether a score has weight: w, and inside the support w and log2 w again, outside 1
// and 0.
template <class T>
struct CarefulTerms : PowerTerms<T> {
  Vec<T> w, inside_w, log_w;
};

// The same for c / m in two parts, times `careful_scale`. Scores that are equal have the same rounding errors, which
// add up: in rows with many small weights they change the sum of the terms, and thereby the largest weight, by many
// units in the last place.
template <class T>
REGMAX_INLINE CarefulTerms<T> careful_power_terms(Vec<T> x, Vec<T> rate, Vec<T> rate_rest, Vec<T> exponent) {
  const Vec<T> one = splat(T(1)), share = -x * rate;
  const Vec<T> rest = product_error<T>(-x, rate, share) - x * rate_rest;
  const Vec<T> w = (one - share) - rest;
  const Where<T> inside = greater(w, splat(8 * rounding<T>));
  const Vec<T> safe = select(inside, w, one);
  // What rounding took from w: nothing that counts if w is small.
  const Vec<T> taken = select(inside & greater(w, splat(T(0.5))), ((one - w) - share) - rest, Vec<T>{});
  const Vec<T> logarithm = times_plus(taken, splat(T(log2_e)), log2_of<T>(safe));
  // Below it the scaled power would be subnormal; such a weight is zero.
  constexpr T lowest = -FloatBits<T>::bias + 1 - careful_scale_bits;
  const Vec<T> scaled =
      normal_exp2<T, FloatBits<T>::exp_terms, careful_scale_bits>(larger(exponent * logarithm, splat(lowest)));
  const Vec<T> power = select(inside, scaled, Vec<T>{}), r = power * safe;
  return {{r, power, r * safe}, w, safe, logarithm};
}

// Whether rounding may decide which scores of a row have weight, because a score is at the threshold or its weight is
// half the least number; or whether a weight is so small that rounding changes its powers.
template <class T>
struct SmallWeights {
  Vec<T> exponent, vanishing;  // log2 r of half the least number
  Vec<T> nearest = splat(-nothing<T>), least_w = nearest, least_distance = nearest;

  REGMAX_INLINE void add(const CarefulTerms<T>& terms) {
    const Vec<T> log_r = times_plus(exponent, terms.log_w, terms.log_w);
    nearest = smaller(absolute<T>(terms.w), nearest);
    least_w = smaller(terms.inside_w, least_w);
    least_distance = smaller(absolute<T>(log_r - vanishing), least_distance);
  }
  bool are_unsure(T vanishing_doubt, T steep_w) const {
    return bits(greater(splat(careful_rounding<T>), nearest)) | bits(greater(splat(steep_w), least_w)) |
           bits(greater(splat(vanishing_doubt), least_distance));
  }
};

// The same to about four digits, for Newton's first steps.
template <class T>
REGMAX_INLINE PowerTerms<T> rough_power_terms(Vec<T> x, Vec<T> rate, Vec<T> exponent) {
  const Vec<T> w = times_plus(x, rate, splat(T(1)));
  const Where<T> inside = greater(w, splat(T(1e-6)));
  const Vec<T> power = select(inside, rough_exp2<T>(exponent * rough_log2<T>(larger(w, splat(T(1e-6))))), Vec<T>{});
  const Vec<T> r = power * w;
  return {r, power, r * w};
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

  // How closely log2 r is known where the weight r / S is half the least number: w, about 2^(-150 a) there, is known up
  // to `careful_rounding`. For larger a no w is so small, and any bound serves.
  Vec<T> vanishing_doubt() const {
    const Vec<T> inverse_w = normal_exp2<T>(smaller(a * -FloatBits<T>::least, splat(T(21))));
    return times_plus(inverse_w / a, splat(T(log2_e) * careful_rounding<T>), splat(T(0.02)));
  }

  // Jacobian products consist of the powers y^(1-a), which are proportional to w^(1/a - 1). For a > 1/2 the slope of
  // this power is the steeper the smaller w is; below this w it exceeds `steepest_power`.
  Vec<T> steep_w() const {
    const Vec<T> one = splat(T(1)), some = within<T>(a, T(0.55), T(0.9999)), power = one / some - one;
    return exp2_of<T>(log2_of<T>(power * splat(T(1 / steepest_power))) / (one - power));
  }

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
template <class T, class Powers>
inline Vec<T> guess_root(const Vec<T>* x, int count, const Powers& powers) {
  Vec<T> m = splat(T(1));
  for (int round = 0; round < 3; ++round) {
    PowerSums<T> sums{};
    const Vec<T> rate = powers.c() / m;
    for (int k = 0; k < count; ++k) {
      const PowerTerms<T> terms = rough_power_terms<T>(x[k], rate, powers.exponent);
      sums.s += terms.r;
      sums.c += terms.power;
      sums.r += terms.rw;
    }
    m = smaller(stepped<T>(m, powers.step(sums, m)), splat(T(1)));
  }
  return m;
}

}  // namespace regmax::REGMAX_ISA
