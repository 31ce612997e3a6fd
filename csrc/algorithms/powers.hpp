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
#include "runtime/tuning.hpp"
#include "simd/exp2_log2.hpp"
#include "simd/reduce.hpp"

namespace regmax::REGMAX_ISA {

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

// For smaller a no power of a weight is steep.
constexpr double least_steep = 0.55;

// How closely w is known after the last step: m is known to 4e-7.
template <class T>
constexpr T careful_rounding = 16 * rounding<T>;

// --- The two mappings, one row per lane ---

template <class T>
inline Vec<T> within(Vec<T> v, T low, T high) {
  return larger(smaller(v, splat(high)), splat(low));
}

// a and 1/a - 1, and what rounding took from them. Rows that do not fit keep any strength: what it gives is not used.
template <class T>
struct PowerExponents {
  Vec<T> a, exponent, a_rest{}, exponent_rest{};

  explicit PowerExponents(Vec<T> strength_less_one)
      : a(within<T>(strength_less_one, T(1e-3), T(1))), exponent(splat(T(1)) / a - splat(T(1))) {}
  PowerExponents(Vec<T> strength_less_one, Vec<T> rest) : PowerExponents(strength_less_one + rest) {
    a_rest = (strength_less_one - (strength_less_one + rest)) + rest;
    Vec<double> wide[2], parts[2];
    wide_a(wide);
    widen(exponent, parts);
    for (int h = 0; h < 2; ++h) parts[h] = (splat(1.0) / wide[h] - splat(1.0)) - parts[h];
    exponent_rest = narrow(parts);
  }

  void wide_a(Vec<double>* wide) const {
    Vec<double> rests[2];
    widen(a, wide);
    widen(a_rest, rests);
    for (int h = 0; h < 2; ++h) wide[h] += rests[h];
  }

  // How closely log2 r is known where the weight r / S is half the least number: w, about 2^(-150 a) there, is known up
  // to `careful_rounding`. For larger a no w is so small, and any bound serves.
  Vec<T> vanishing_doubt() const {
    const Vec<T> inverse_w = normal_exp2<T>(smaller(a * -FloatBits<T>::least, splat(T(21))));
    return times_plus(inverse_w / a, splat(T(log2_e) * careful_rounding<T>), splat(T(0.02)));
  }

  // Jacobian products consist of the powers y^(1-a), which are proportional to w^(1/a - 1). For a > 1/2 the slope of
  // this power is the steeper the smaller w is; below this w it exceeds `steepest_power`.
  Vec<T> steep_w() const {
    const Vec<T> one = splat(T(1)), some = within<T>(a, T(least_steep), T(0.9999)), power = one / some - one;
    return exp2_of<T>(log2_of<T>(power * splat(T(1 / steepest_power))) / (one - power));
  }

  // A score with w in between is at the threshold up to rounding, or its weight is steep.
  Vec<T> doubtful_w() const { return larger(steep_w(), splat(careful_rounding<T>)); }

  // The relative change of S for a relative change of m: r changes by w^(1/a - 1) (1 - w) / a.
  Vec<T> sensitivity(const PowerSums<T>& sums) const { return (sums.c - sums.s) / (a * sums.s); }
};

template <class T>
struct TsallisPowers : PowerExponents<T> {
  using PowerExponents<T>::a;
  using PowerExponents<T>::PowerExponents;
  using InDouble = TsallisPowers<double>;
  static constexpr bool needs_r = false;

  Vec<T> c() const { return a; }
  Vec<T> c_rest() const { return this->a_rest; }
  // The root of `count` equal scores. By Jensen's inequality it is an upper bound for scores with this mean.
  Vec<T> even_root(Vec<T> count, Vec<T> mean) const { return exp2_of<T>(-a * log2_of<T>(count)) - a * mean; }
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
  static constexpr bool needs_r = true;

  Vec<T> c() const { return splat(T(1)); }
  Vec<T> c_rest() const { return Vec<T>{}; }
  // The root of `count` equal scores: a guess for scores with this mean.
  Vec<T> even_root(Vec<T> count, Vec<T> mean) const {
    return exp2_of<T>(log2_of<T>(count) * a * splat(T(-2)) / (splat(T(1)) + a)) - mean;
  }
  Vec<T> step(const PowerSums<T>& sums, Vec<T> m) const {
    const Vec<T> one = splat(T(1)), rest = one - a;
    const Vec<T> log_f = log2_of<T>(m) + (log2_of<T>(sums.s) - log2_of<T>(sums.r) * rest / (one + a));
    return log_f / (one + (sums.c / sums.s - one - rest * (sums.s / sums.r - one)) / a);
  }
};

// The sums of a group of rows in double: near p = 1 an error of the sums is up to 8 times as large in the weights.
struct WideSums {
  PowerSums<double> half[2];

  PowerSums<float> narrowed() const {
    const Vec<double> s[2] = {half[0].s, half[1].s}, c[2] = {half[0].c, half[1].c}, r[2] = {half[0].r, half[1].r};
    return {narrow(s), narrow(c), narrow(r)};
  }
};

// The step from m (1 - shift), in double: in float32 the sum of large logarithms has too few digits.
template <class Powers>
inline Vec<float> accurate_step(const Powers& powers, const WideSums& sums, Vec<float> m, Vec<float> shift) {
  Vec<double> a[2], wide_m[2], wide_shift[2], steps[2];
  powers.wide_a(a);
  widen(m, wide_m);
  widen(shift, wide_shift);
  for (int h = 0; h < 2; ++h) {
    wide_m[h] -= wide_m[h] * wide_shift[h];
    steps[h] = typename Powers::InDouble(a[h]).step(sums.half[h], wide_m[h]);
  }
  return narrow(steps);
}

// m after a step down in log2 m.
template <class T>
REGMAX_INLINE Vec<T> stepped(Vec<T> m, Vec<T> step) {
  return m * normal_exp2<T>(within<T>(-step, T(-6), T(1)));
}

// The bounds between which rounding may decide whether a score has weight, because it is at the threshold or its weight
// is half the least number, or between which a weight is so small that rounding changes its powers.
template <class T>
struct DoubtfulBounds {
  Vec<T> w, low_r, high_r;  // of w, from -careful_rounding on; of scaled terms r
};

template <class T>
struct DoubtfulWeights {
  DoubtfulBounds<T> bounds;
  Where<T> found{};

  REGMAX_INLINE void add(const CarefulTerms<T>& terms) {
    found |= greater(terms.w, splat(-careful_rounding<T>)) & greater(bounds.w, terms.w);
    found |= greater(terms.r, bounds.low_r) & greater(bounds.high_r, terms.r);
  }
};

// After a small last step the terms of many rows need no further pass. They change along their slopes:
//     r += slope (w^(1/a - 1) - r),   slope = -(log m)' / a.
// This holds for a up to about 1/3 in rows in which no w is near to zero, and no weight about to vanish.
template <class T>
struct SlopedRows {
  uint32_t clear;  // the rows in which nothing vanishes
  Vec<T> least_w;  // the smallest |w| of each row
};

// What decides this, of one row or of one row per lane.
template <class T>
struct SlopedTerms {
  Vec<T> low_r, high_r, least_w = splat(-nothing<T>);
  Where<T> vanishing{};

  // r changes by less than an eighth.
  explicit SlopedTerms(const DoubtfulBounds<T>& bounds)
      : low_r(bounds.low_r * splat(T(0.8))), high_r(bounds.high_r * splat(T(1.25))) {}

  REGMAX_INLINE void add(const CarefulTerms<T>& terms) {
    least_w = smaller(absolute<T>(terms.w), least_w);
    vanishing |= greater(terms.r, low_r) & greater(high_r, terms.r);
  }
};

// The bits of rows without result: those that do not settle, and those with doubtful weights.
struct UnsureRows {
  uint32_t left, doubtful;

  void operator|=(const UnsureRows& others) { left |= others.left, doubtful |= others.doubtful; }
};

constexpr int most_power_rounds = 12;

// Newton's method in log2 m, one row per lane. The first steps come from rough terms. The last step is kept apart from
// m, where it would be rounded: the root is m (1 - shift). A row's steps depend on that row only.
template <class Powers>
class RootSearch {
  using T = float;
  // After a step below `last_step` the error, which is about its square, is below rounding. In the sum of the terms it
  // is about the square of the change that the step makes there; unless a is large, `finish` finds it close to the
  // bound in flat rows. After a step below `rough_step` rough terms no longer serve.
  static constexpr T last_step = T(4e-4), last_change = T(6e-4), last_error = T(1.1e-7), rough_step = T(0.06);
  // Rows with larger a never settle along slopes (SlopedRows). After the other bounds the error is below 1e-8: it is
  // a few times the square of the change. For sqpnormmax the derivative of log F nearly cancels where a is small, so
  // that m needs the check of `finish`: without the lower bound two of 3,000,000 rows were off by 4.0 and 4.9 units.
  static constexpr T smooth_a = T(0.334), least_smooth_a = Powers::needs_r ? T(0.1) : T(0);
  static constexpr T slope_change = T(5e-5), smooth_rough_step = T(0.015);
  static constexpr T most_sensitivity = 8;

 public:
  Vec<T> m, shift{}, sum = splat(T(1));
  Vec<T> slopes{};  // of the last step
  uint32_t moving, rough, smooth;

  RootSearch(const Powers& powers, Vec<T> start, uint32_t wanted)
      : m(start),
        moving(wanted),
        rough(wanted),
        smooth(wanted & bits(greater(splat(smooth_a), powers.a)) & bits(greater(powers.a, splat(least_smooth_a)))),
        powers_(powers),
        large_(bits(greater(powers.a, splat(T(least_steep))))),
        doubtful_w_(powers.doubtful_w()),
        doubt_(normal_exp2<T>(powers.vanishing_doubt())) {}

  // c / (m (1 - shift))
  CarefulRate rate() const {
    Vec<double> wide[2], c[2], rests[2], shifts[2];
    widen(powers_.c(), c);
    widen(powers_.c_rest(), rests);
    widen(shift, shifts);
    widen(m, wide);
    for (int h = 0; h < 2; ++h) wide[h] = (c[h] + rests[h]) / (wide[h] - wide[h] * shifts[h]);
    return CarefulRate(wide);
  }

  // S is that of the pass before.
  DoubtfulBounds<T> doubtful() const {
    const Vec<T> vanishing = sum * splat(T(1.2924697071141057e-26));  // 2^-150, scaled
    return {doubtful_w_, vanishing / doubt_, vanishing * doubt_};
  }

  // Takes the steps of the rows that move, from the sums without scale. NaN is never small. Returns the rows that have
  // settled along their slopes; their sum is still that before the step.
  uint32_t take(const WideSums& sums, const SlopedRows<T>& sloped) {
    const PowerSums<T> narrowed = sums.narrowed();
    sum = select(from_bits<T>(moving), narrowed.s, sum);
    Vec<T> step = powers_.step(narrowed, m);
    if (moving & ~rough) step = select(from_bits<T>(rough), step, accurate_step(powers_, sums, m, shift));
    const Vec<T> size = absolute<T>(step), change = step * splat(T(ln_2));
    const Vec<T> sensitivity = powers_.sensitivity(narrowed), by = absolute<T>(change);
    // Only a step from accurate sums is the last.
    const uint32_t accurate = moving & ~rough;
    slopes = change / -powers_.a;
    const uint32_t settled =
        accurate & smooth & sloped.clear & bits(greater(splat(most_sensitivity), sensitivity)) &
        bits(greater(splat(slope_change), by * larger(sensitivity, splat(T(1))))) &
        bits(greater(sloped.least_w, times_plus(absolute<T>(slopes), splat(T(8)), splat(careful_rounding<T>))));
    const uint32_t last = settled | (accurate & bits(greater(splat(last_step), size)) &
                                     bits(greater(splat(last_change), size * sensitivity)) &
                                     (large_ | bits(greater(splat(last_error), size * size * sensitivity))));
    shift = select(from_bits<T>(last), times_plus(change * T(0.5), change, change), shift);
    moving &= ~last;
    m = select(from_bits<T>(moving), stepped<T>(m, step), m);
    rough &= ~(bits(greater(splat(smooth_rough_step), size)) | (~smooth & bits(greater(splat(rough_step), size))));
    return settled;
  }

  // Moves m to the roots; returns the rows in which rounding or the last step counts, which the `sloped` rows have
  // passed. Where a weight is about to vanish the step after a small one may be no smaller. `sums` are those of the
  // last pass over the other rows.
  uint32_t finish(const WideSums& sums, uint32_t sloped) {
    const PowerSums<T> narrowed = sums.narrowed();
    const Vec<T> sensitivity = powers_.sensitivity(narrowed), step = accurate_step(powers_, sums, m, shift);
    const Vec<T> error = absolute<T>(step) * larger(sensitivity, splat(T(1)));
    m -= m * shift;
    sum = select(from_bits<T>(sloped), sum, narrowed.s);
    return ~sloped & (bits(greater(sensitivity, splat(most_sensitivity))) | bits(greater(error, splat(T(1.2e-7)))));
  }

 private:
  const Powers& powers_;
  uint32_t large_;  // the rows with a large a
  Vec<T> doubtful_w_, doubt_;
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

}  // namespace regmax::REGMAX_ISA
