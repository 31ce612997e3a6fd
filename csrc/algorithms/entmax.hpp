// entmax in one row at a time for any alpha, and for alpha = 1.5 with squares in place of powers.
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/lane_simplex.hpp"
#include "algorithms/powers.hpp"
#include "algorithms/precise_squares.hpp"

namespace regmax::REGMAX_ISA {

// Newton's convergence is quadratic: the step after a relative step below this one is below rounding.
template <class T>
constexpr T last_step = sizeof(T) == sizeof(float) ? T(2e-5) : T(1e-9);

// The terms r, and their sum, for scores relative to their maximum; 0 < a < 1. F is convex (powers.hpp): from m = 1 the
// steps m (1 - 1/F) S / C decrease to the root. `precise` has the same scores, or is nullptr
// if double has digits to spare.
inline double tsallis_weights(const double* x, const LongScores* precise, int64_t count, double a, double* r) {
  double m = 1, step = 1;
  const Vec<double> exponent = splat(1 / a - 1);
  for (int round = 0;; ++round) {
    const Vec<double> rate = splat(a / m);
    double sums[2] = {};
    sum_terms<double>(count, sums, [&](int64_t i, Vec<double>* part) {
      const PowerTerms<double> terms =
          power_terms<double>(load_left(x + i, count - i, nothing<double>), rate, exponent);
      store_left<double>(r + i, count - i, terms.r);
      part[0] += terms.r;
      part[1] += terms.power;
    });
    if (step < last_step<double> || round == 100) {
      if (!precise) return sums[0];
      break;
    }
    step = (1 - 1 / (m * std::pow(sums[0], a))) * sums[0] / sums[1];
    if (step > 4 * rounding<double>) m *= 1 - step;  // negative only by rounding
  }
  const LongPowerSums sums = long_power_sums(*precise, count, a / static_cast<long double>(m), a, r);
  const long double log_f = std::log(static_cast<long double>(m)) + a * std::log(sums.s / long_scale);
  const long double root = m * (1 - log_f * sums.s / sums.c);
  return static_cast<double>(long_power_sums(*precise, count, a / root, a, r).s);
}

// exp(x) and its sum: the weights at a = 0.
inline double exponential_weights(const double* x, int64_t count, double* y) {
  double totals[1] = {};
  sum_terms<double>(count, totals, [&](int64_t i, Vec<double>* sums) {
    const Vec<double> r = exp2_of<double>(load_left(x + i, count - i, nothing<double>) * splat(log2_e));
    store_left<double>(y + i, count - i, r);
    sums[0] += r;
  });
  return totals[0];
}

// --- alpha = 1.5, with squares: z = (x - t)_+ = 2 (m + x / 2)_+, y = z^2 / 4 and S_2 = sum z^2 = 4. Newton's step for
// the norm S_2^(1/2) = 2 raises t by (S_2 - 2 S_2^(1/2)) / S_1. ---

template <class T>
struct SquareSums {
  Vec<T> s1, s2;
};

template <class T>
REGMAX_INLINE SquareSums<T> lane_square_sums(const Vec<T>* x, int count, Vec<T> t) {
  Vec<T> sums1[unrolled] = {}, sums2[unrolled] = {};
  for_columns(count, [&](int k, int j) {
    const Vec<T> z = larger(x[k] - t, Vec<T>{});
    sums1[j] += z;
    sums2[j] = times_plus(z, z, sums2[j]);
  });
  return {total<T>(sums1), total<T>(sums2)};
}

template <class T>
REGMAX_INLINE Vec<T> lane_square_step(const SquareSums<T>& s) {
  return (s.s2 - nearly_square_root(s.s2) * splat(T(2))) / s.s1;
}

template <class T>
struct SquareRoot {
  SquareSums<T> sums;  // at t
  uint32_t unsettled;
};

// Moves t to the root, or towards it for the given number of rounds.
template <class T>
inline SquareRoot<T> lane_square_root(const Vec<T>* x, int count, int rounds, Vec<T>* t) {
  const Vec<T> one = splat(T(1)), tolerance = splat(last_step<T>);
  Where<T> moving = equal(one, one);
  for (int round = 0;; ++round) {
    const SquareSums<T> sums = lane_square_sums<T>(x, count, *t);
    if (!bits(moving) || round == rounds) return {sums, bits(moving)};
    const Vec<T> step = lane_square_step<T>(sums);
    *t = select(moving, *t + step, *t);
    moving = moving & greater(larger(step, -step), tolerance * -*t);
  }
}

}  // namespace regmax::REGMAX_ISA
