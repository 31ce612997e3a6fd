// entmax: y = (a x - tau)_+^(1/a), a = alpha - 1 in [0, 1], with the tau that makes it sum to one.
//
// With x relative to its maximum, m = -tau and r = (1 + a x / m)_+^(1/a), which is exp(x / m) at a = 0, the weights
// are y = r / S, S = sum r, and m is the root of F(m) = m S^a = 1. No digit cancels for alpha near 1. F is a norm of
// an affine function, hence convex, and F(1) >= 1: Newton's steps
//
//     m <- m (1 - (1 - 1/F) S / C),   C = sum r^(1-a),
//
// decrease to the root. A subset of the scores has a smaller F and a larger root: it gives an upper bound of m, and
// scores at or below -m / a have no weight.
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/lane_simplex.hpp"
#include "simd/exp2_log2.hpp"
#include "simd/reduce.hpp"

namespace regmax::REGMAX_ISA {

// r^(1-a) in `power`, and r; zero outside the support. `rate` is a / m and `exponent` 1/a - 1.
template <class T>
REGMAX_INLINE Vec<T> tsallis_ratio(Vec<T> x, Vec<T> rate, Vec<T> exponent, Vec<T>* power) {
  const Vec<T> share = -x * rate, w = splat(T(1)) - share;
  const Where<T> inside = greater(w, splat(8 * rounding<T>));  // at the threshold up to rounding: no weight
  const Vec<T> safe = select(inside, w, splat(T(1))), lost = select(inside, share, Vec<T>{});
  const Vec<T> log_w = log_one_minus<T>(lost, safe) * splat(T(log2_e));
  *power = select(inside, exp2_of<T>(exponent * log_w), Vec<T>{});
  return *power * safe;
}

// Newton's convergence is quadratic: the step after a relative step below this one is below rounding.
template <class T>
constexpr T last_step = sizeof(T) == sizeof(float) ? T(2e-5) : T(1e-9);

// --- One row ---

struct TsallisSums {
  double s, c;
};

// r of all scores, written to y, and the sums S and C.
template <class T>
inline TsallisSums tsallis_sums(const T* x, int64_t count, double m, double a, T* y) {
  const Vec<T> rate = splat(static_cast<T>(a / m)), exponent = splat(static_cast<T>(1 / a - 1));
  double totals[2] = {};
  sum_terms<T>(count, totals, [&](int64_t i, Vec<T>* sums) {
    Vec<T> power;
    const Vec<T> r = tsallis_ratio<T>(load_left(x + i, count - i, nothing<T>), rate, exponent, &power);
    store_left<T>(y + i, count - i, r);
    sums[0] += r;
    sums[1] += power;
  });
  return {totals[0], totals[1]};
}

// Newton's relative step down from m; negative only by rounding.
inline double tsallis_step(double m, double a, const TsallisSums& sums) {
  return -std::expm1(-(std::log(m) + a * std::log(sums.s))) * sums.s / sums.c;
}

// The weights r and their sum, for scores relative to their maximum; 0 < a < 1.
template <class T>
inline double tsallis_weights(const T* x, int64_t count, double m, double a, T* y) {
  double step = 1;
  for (int round = 0;; ++round) {
    const TsallisSums sums = tsallis_sums<T>(x, count, m, a, y);
    if (step < static_cast<double>(last_step<T>) || round == 100) return sums.s;
    step = tsallis_step(m, a, sums);
    if (step <= 4 * static_cast<double>(rounding<T>)) return sums.s;
    m *= 1 - step;
  }
}

// exp(x) and its sum: the weights at a = 0.
template <class T>
inline double exponential_weights(const T* x, int64_t count, T* y) {
  double totals[1] = {};
  sum_terms<T>(count, totals, [&](int64_t i, Vec<T>* sums) {
    const Vec<T> r = exp2_of<T>(load_left(x + i, count - i, nothing<T>) * splat(T(log2_e)));
    store_left<T>(y + i, count - i, r);
    sums[0] += r;
  });
  return totals[0];
}

// y^power of positive weights.
template <class T>
REGMAX_INLINE Vec<T> power_of(Vec<T> y, Vec<T> power) {
  return exp2_of<T>(log_of<T>(y) * splat(T(log2_e)) * power);
}

// --- One row per lane ---

template <class T>
struct LaneTsallis {
  Vec<T> a, exponent;  // alpha - 1, and 1 / a - 1
};

// Moves m to the root, or towards it for the given number of rounds, and writes r to y unless it is nullptr. Returns
// the lanes that did not settle; `sum` is S.
template <class T>
inline uint32_t lane_tsallis_root(const Vec<T>* x, int count, int rounds, const LaneTsallis<T>& p, Vec<T>* m, Vec<T>* y,
                                  Vec<T>* sum) {
  const Vec<T> one = splat(T(1)), tolerance = splat(last_step<T>);
  Where<T> moving = equal(one, one);
  for (int round = 0;; ++round) {
    Vec<T> s[unrolled] = {}, c[unrolled] = {};
    const Vec<T> rate = p.a / *m;
    for_columns(count, [&](int k, int j) {
      Vec<T> power;
      const Vec<T> r = tsallis_ratio<T>(x[k], rate, p.exponent, &power);
      if (y) y[k] = r;
      s[j] += r;
      c[j] += power;
    });
    *sum = total<T>(s);
    if (!bits(moving) || round == rounds) return bits(moving);
    const Vec<T> log_f = log_of<T>(*m) + p.a * log_of<T>(*sum);
    const Vec<T> step = (one - exp2_of<T>(log_f * splat(T(-log2_e)))) * *sum / total<T>(c);
    *m = select(moving, *m * (one - step), *m);
    moving = moving & greater(larger(step, -step), tolerance);
  }
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
