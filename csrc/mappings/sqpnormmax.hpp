// sqpnormmax: y = argmin over the simplex of 1/2 |y|_p^2 - <x, y>, 1 < p <= 2 (algorithms/pnorm.hpp). p
// = 1.5, with integer powers, has SIMD tiers; every other p is solved row by row.
//
// The cut. The root of the maxima by lane is a guess of the threshold, which is verified: the candidates
// above a cut decide the row if their own threshold is not below it.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "algorithms/lane_pnorm.hpp"
#include "algorithms/pnorm.hpp"
#include "mappings/products.hpp"

namespace regmax::REGMAX_ISA {

// a^(-1/3) of a in (1e-4, 1]. Factors of 8 bring a into [1/12, 1], where a parabola is right to 13 %; each
// step of Newton's method for 1/c^3 = a then leaves twice the square of the error.
template <class V>
inline V inverse_cube_root(V a) {
  if constexpr (std::is_same_v<V, double>) {
    return 1 / std::cbrt(a);
  } else {
    using T = std::decay_t<decltype(a[0])>;
    V scale = splat(T(1));
    for (int k = 0; k < 3; ++k) {
      const Where<T> small = greater(splat(T(1) / 12), a);
      a = select(small, a * 8, a);
      scale = select(small, scale * 2, scale);
    }
    V c = splat(T(2.184)) + a * (a * splat(T(1.328)) - splat(T(2.512)));
    for (int step = 0; step < (sizeof(T) == sizeof(float) ? 4 : 5); ++step)
      c = c * (splat(T(4)) - a * c * c * c) * splat(T(1) / 3);
    return c * scale;
  }
}

// The value, or zero for a row with a single weight.
template <class V>
inline V if_several(V count, V value) {
  if constexpr (std::is_same_v<V, double>) {
    return count > 1 ? value : 0;
  } else {
    using T = std::decay_t<decltype(count[0])>;
    return select(greater(count, splat(T(1))), value, V{});
  }
}

// J v for p = 1.5. With s = sum y^1.5, M = 2 s^(-1/3) [ diag(y^(1/2)) - y y^T / (2 s) ] and J v = M v - r M 1
// for r = (1^T M v) / (1^T M 1), which is y^(1/2) (f_0 v + f_1 + f_2 y^(1/2)).
struct CubicProduct {
  static constexpr int sums = 5, factors = 3;
  static constexpr bool reads_weights = true;

  template <class T>
  static REGMAX_INLINE Vec<T> root(Vec<T> y) {
    return nearly_square_root(y);
  }
  template <class T>
  static REGMAX_INLINE void add(Where<T> supported, Vec<T> y, Vec<T> root, Vec<T> v, Vec<T>* s) {
    const Vec<T> vi = select(supported, v, Vec<T>{});
    s[0] = times_plus(y, root, s[0]);
    s[1] = times_plus(y, vi, s[1]);
    s[2] += y;
    s[3] += root;
    s[4] = times_plus(root, vi, s[4]);
  }
  template <class V>
  static REGMAX_INLINE void find_factors(const V* s, V count, V* f) {
    const V half = 0.5f / s[0], along = s[1], total = s[2];
    const V ratio = (s[4] - half * total * along) / (s[3] - half * total * total);
    // A single weight is one, whatever the scores: J is zero.
    f[0] = if_several(count, inverse_cube_root(s[0]) * 2);
    f[1] = -f[0] * ratio;
    f[2] = -f[0] * half * (along - ratio * total);
  }
  template <class V>
  static REGMAX_INLINE V multiply(V root, V v, const V* f) {
    return root * times_plus(f[0], v, times_plus(f[2], root, f[1]));
  }
};

// J v for any p. On the support, with N = |y|_p,
//     M = 1/(p-1) [ N^(p-2) diag(y^(2-p)) - (2-p) N^(-2) y y^T ],   J v = M v - M 1 (1^T M v) / (1^T M 1).
inline void sqpnorm_product(double* v, const double* y, int64_t m, double p, double* powers) {
  double norm = 0, along = 0, total = 0;
  for (int64_t i = 0; i < m; ++i) {
    powers[i] = std::pow(y[i], 2 - p);
    norm += y[i] * y[i] / powers[i];  // y^p
    along += y[i] * v[i];
    total += y[i];
  }
  const double log_norm = std::log(norm) / p;
  const double diagonal = std::exp((p - 2) * log_norm) / (p - 1);
  const double rank_one = (2 - p) * std::exp(-2 * log_norm) / (p - 1);
  double sum_mv = 0, sum_m1 = 0;
  for (int64_t i = 0; i < m; ++i) {
    v[i] = diagonal * powers[i] * v[i] - rank_one * along * y[i];
    powers[i] = diagonal * powers[i] - rank_one * total * y[i];
    sum_mv += v[i];
    sum_m1 += powers[i];
  }
  // A single weight is one, whatever the scores: there M 1 is rounding.
  const double ratio = sum_m1 > 0 ? sum_mv / sum_m1 : 0;
  for (int64_t i = 0; i < m; ++i) v[i] = m == 1 ? 0 : v[i] - ratio * powers[i];
}

struct Sqpnormmax : JoinsNothing {
  static constexpr bool on_simplex = true;
  static bool accepts(double p) { return p > 1 && p <= 2; }
  static bool is_sparsemax(double p) { return p == 2; }

  // --- Lane tier ---
  static bool fits_lanes(double p) { return p == 1.5; }

  template <class T>
  struct Lanes : PlainLanes<T> {
    Vec<T> cut(const Vec<T>* maxima, const LaneProblem<T>&) {
      Vec<T> largest = splat(T(1));
      lane_cubic_root<T>(maxima, lanes<T>, 5, &largest);
      return -largest;
    }
    uint32_t solve(LaneProblem<T>& p, Vec<T>* y) {
      Vec<T> tau;
      const uint32_t unsettled = lane_sqpnormmax<T>(p.x, p.count, y, &tau);
      return unsettled | bits(greater(p.cuts, tau));
    }
  };

  // --- Whole-row tier: the sums of z, z^2 and z^3 over the scores above a first tau give their own threshold
  // ---
  template <class T>
  static constexpr Whole whole = Whole::by_moments;
  static constexpr int64_t whole_first = whole_first_sqpnormmax;

  template <class T>
  struct Moments {
    static constexpr int powers = 3;
    static constexpr bool is_exact = false;  // the threshold is irrational

    static Vec<T> guess(const Vec<T>* maxima, bool) {
      Vec<T> tau = splat(T(-1));
      for (int round = 0; round < 3; ++round) tau += lane_cubic_step<T>(lane_cubic_sums<T>(maxima, lanes<T>, -tau));
      return tau;
    }
    static REGMAX_INLINE void add(Where<T> above, Vec<T> relative, Vec<T>* sums) {
      const Vec<T> z = select(above, relative, Vec<T>{}), z2 = z * z;
      sums[0] += z;
      sums[1] += z2;
      sums[2] = times_plus(z2, z, sums[2]);
    }
    template <class Weight>
    static uint32_t find_step(const Vec<T>* sums, Vec<T> count, Vec<T> tau, Vec<T>* step, Vec<T>* factor) {
      constexpr int newton_steps = sizeof(Weight) == sizeof(float) ? 3 : 4;
      constexpr T small_step = sizeof(Weight) == sizeof(float) ? T(1e-4) : T(4e-9);
      const CubicSums<T> all{sums[0], sums[1], sums[2]};
      CubicSums<T> moved = all;
      Vec<T> last{};
      *step = Vec<T>{};
      for (int k = 0; k < newton_steps; ++k) {
        *step += last = lane_cubic_step<T>(moved);
        moved = lane_move_sums<T>(all, count, *step);
      }
      *factor = splat(T(1)) / moved.s2;
      // Convergence is quadratic: the steps after one this small are below rounding.
      const Vec<T> largest = -tau - *step;
      uint32_t near = bits(greater(moved.s2 * splat(T(4)), all.s2)) &
                      bits(greater(largest * splat(small_step), larger(last, -last)));
      // Moving the sums far costs the last digits, which float64 weights need: the row takes another round.
      if (sizeof(Weight) == sizeof(double)) near &= bits(greater(largest * splat(T(1e-9)), absolute<T>(*step)));
      *step = smaller(*step, tau * T(-0.75));  // scores that leave the support count as squares: not too far
      return ~near & all_lanes<T>;
    }
    static constexpr bool count_decreases = false;
    static REGMAX_INLINE Vec<T> weight(Vec<T> z, Vec<T> factor) { return z * z * factor; }
  };

  // --- Scalar tier ---
  template <class T>
  static void map(ScalarRow<T>& row, double p) {
    if (p == 2) return row.map_sparsemax();
    row.choose_above(-1);
    sqpnorm_weights(row.w.x, row.count, p, row.w.y);
  }

  // --- Jacobian product ---
  using Product = CubicProduct;
  static constexpr int64_t product_whole_first = whole_first_pnorm_product;
  static bool fits_products(double p, bool) { return p == 1.5; }

  template <class T>
  static void multiply(const CompactedRow<T>& row, double p, Workspace& w) {
    if (p == 1.5) return multiply_compacted<T, Product>(row);
    if (p == 2) return multiply_compacted<T, CentredProduct>(row);
    widen(row, w);
    sqpnorm_product(w.v, w.x, row.m, p, w.space);
    narrow(row, w);
  }

  // With N = |y|_p, grad Omega(y) = y^(p-1) N^(2-p), whose derivative in p is that times
  //     log y - log N + (2 - p) d log N / dp,   d log N / dp = (sum y^p log y / sum y^p - log N) / p.
  template <class T>
  static StrengthGrads strength_grads(const CompactedRow<T>& row, double p, Workspace&) {
    double power = 0, power_log = 0, along = 0, along_log = 0;
    for (int64_t k = 0; k < row.m; ++k) {
      const double y = static_cast<double>(row.y[k]), log_y = std::log(y), slope = std::exp((p - 1) * log_y);
      power += slope * y;
      power_log += slope * y * log_y;
      along += static_cast<double>(row.v[k]) * slope;
      along_log += static_cast<double>(row.v[k]) * slope * log_y;
    }
    const double log_norm = std::log(power) / p, scale = std::exp((2 - p) * log_norm);
    const double norm_slope = (power_log / power - log_norm) / p;
    return {-scale * along, -scale * (along_log + ((2 - p) * norm_slope - log_norm) * along)};
  }
};

}  // namespace regmax::REGMAX_ISA
