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
};

template <class T>
struct TsallisPowers : PowerExponents<T> {
  using PowerExponents<T>::a;
  using PowerExponents<T>::PowerExponents;
  using InDouble = TsallisPowers<double>;

  Vec<T> rate(Vec<T> m) const { return a / m; }
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

  Vec<T> rate(Vec<T> m) const { return splat(T(1)) / m; }
  Vec<T> step(const PowerSums<T>& sums, Vec<T> m) const {
    const Vec<T> one = splat(T(1)), rest = one - a;
    const Vec<T> log_f = log2_of<T>(m) + (log2_of<T>(sums.s) - log2_of<T>(sums.r) * rest / (one + a));
    return log_f / (one + (sums.c / sums.s - one - rest * (sums.s / sums.r - one)) / a);
  }
};

// The step in double: in float32 the sum of large logarithms has too few digits.
template <class Powers>
inline Vec<float> accurate_step(const Powers& powers, const PowerSums<float>& sums, Vec<float> m) {
  Vec<double> a[2], s[2], c[2], r[2], wide_m[2], steps[2];
  widen(powers.a, a);
  widen(sums.s, s);
  widen(sums.c, c);
  widen(sums.r, r);
  widen(m, wide_m);
  for (int h = 0; h < 2; ++h) steps[h] = typename Powers::InDouble(a[h]).step({s[h], c[h], r[h]}, wide_m[h]);
  return narrow(steps);
}
// m after a step down in log2 m.
template <class T>
REGMAX_INLINE Vec<T> stepped(Vec<T> m, Vec<T> step) {
  return m * normal_exp2<T>(within<T>(-step, T(-6), T(1)));
}

// A first guess of the root, from one small set of scores per lane.
template <class T, class Powers>
inline Vec<T> guess_root(const Vec<T>* x, int count, const Powers& powers) {
  Vec<T> m = splat(T(1));
  for (int round = 0; round < 3; ++round) {
    PowerSums<T> sums{};
    const Vec<T> rate = powers.rate(m);
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
