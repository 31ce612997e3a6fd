// sqpnormmax: y = argmin over the simplex of 1/2 |y|_p^2 - <x, y>, 1 < p <= 2 (algorithms/pnorm.hpp). Sqpnormmax15 is p
// = 1.5, with integer powers; Sqpnormmax is any other p, and one p per row (algorithms/powers.hpp).
//
// The cut. The root of the maxima by lane is a guess of the threshold, which is verified: the candidates
// above a cut decide the row if their own threshold is not below it.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "algorithms/lane_pnorm.hpp"
#include "algorithms/pnorm.hpp"
#include "algorithms/powers.hpp"
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

template <class V>
inline V power_of(V base, V exponent) {
  if constexpr (std::is_same_v<V, double>) {
    return std::pow(base, exponent);
  } else {
    return positive_power<std::decay_t<decltype(base[0])>>(base, exponent);
  }
}

// Weights below the normal numbers, which occur for p near 1 only, count as zero in products: each operation on them
// would take a hundred times as long, for a J v below 1e-29 |v|.
template <class V>
REGMAX_INLINE V normal_or_zero(V y) {
  using T = std::decay_t<decltype(y[0])>;
  return select(greater(splat(smallest_normal<T>), y), V{}, y);
}

// J v. On the support, with s = sum y^p and h = (2 - p) / s,
//     M = D [ diag(y^(2-p)) - h y y^T ],   D = s^((p-2)/p) / (p-1),
// and J v = M v - r M 1 for r = (1^T M v) / (1^T M 1). Near p = 1 both are differences of numbers that are almost
// equal, y^(2-p) and y^p being almost y. With e = y^(2-p) - y >= 0, l = y^p - y <= 0, and the sums T, V, E, W, L of y,
// y v, e, e v and l,
//     s 1^T M 1 / D = T ((p-1) T + L) + E s,    s 1^T M v / D = V ((p-1) T + L) + W s,
// and J v = e (f_0 v + f_1) + y (f_0 v + f_1 + f_2). s = T + L is a sum of its own: for p near 2 and small weights L is
// almost -T.
struct PnormProduct {
  static constexpr int sums = 6, factors = 3;
  static constexpr bool reads_weights = true;

  // e = y (y^(1-p) - 1)
  template <class T>
  static REGMAX_INLINE Vec<T> root(Vec<T> weight, Vec<T> a) {
    const Vec<T> y = normal_or_zero(weight);
    const Vec<T> logarithm = log2_of<T>(select(greater(y, Vec<T>{}), y, splat(T(1))));
    return y * exp2_minus_one<T>(-logarithm * a);
  }
  // l = y (1 / y^(1-p) - 1) = -e y / (y + e)
  template <class T>
  static REGMAX_INLINE void add(Where<T> supported, Vec<T> weight, Vec<T> root, Vec<T> v, Vec<T>* s) {
    const Vec<T> y = normal_or_zero(weight);
    const Vec<T> vi = select(supported, v, Vec<T>{}), both = larger(y + root, splat(smallest_normal<T>));
    const Vec<T> share = y / both;
    s[0] = times_plus(root, share, s[0]);
    s[5] = times_plus(y, share, s[5]);
    s[1] = times_plus(y, vi, s[1]);
    s[2] += y;
    s[3] += root;
    s[4] = times_plus(root, vi, s[4]);
  }
  template <class V>
  static REGMAX_INLINE void find_factors(const V* s, V count, V scale, V a, V* f) {
    const V along = s[1], total = s[2], more = s[3], more_along = s[4], mass = s[5];
    const V d = power_of(mass, (a - 1.0f) / (a + 1.0f)) / a * scale, rest = a * total - s[0];
    const V ratio = (along * rest + more_along * mass) / (total * rest + more * mass);
    // A single weight is one, whatever the scores: J is zero.
    f[0] = if_several(count, d);
    f[1] = if_several(count, -d * ratio);
    f[2] = if_several(count, -d * (1.0f - a) / mass * (along - ratio * total));
  }
  template <class V>
  static REGMAX_INLINE V multiply(V y, V root, V v, const V* f) {
    const V centred = times_plus(f[0], v, f[1]);
    return times_plus(root, centred, normal_or_zero(y) * (centred + f[2]));
  }
};

// The same for p = 1.5, where D = 2 s^(-1/3), from the sums of y^(3/2), y v, y, y^(1/2) and y^(1/2) v:
// J v = y^(1/2) (f_0 v + f_1) + f_2 y.
struct CubicProduct {
  static constexpr int sums = 5, factors = 3;
  static constexpr bool reads_weights = true;

  template <class T>
  static REGMAX_INLINE Vec<T> root(Vec<T> y, Vec<T>) {
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
  static REGMAX_INLINE void find_factors(const V* s, V count, V scale, V, V* f) {
    const V along = s[1], total = s[2], d = inverse_cube_root(s[0]) * 2 * scale, h = 0.5f / s[0];
    const V ratio = (s[4] - h * total * along) / (s[3] - h * total * total);
    f[0] = if_several(count, d);
    f[1] = if_several(count, -d * ratio);
    f[2] = if_several(count, -d * h * (along - ratio * total));
  }
  template <class V>
  static REGMAX_INLINE V multiply(V, V root, V v, const V* f) {
    return root * times_plus(f[0], v, times_plus(f[2], root, f[1]));
  }
};

// Omega(y) = N^2 / 2 with N = |y|_p has the gradient N^(2-p) y^(p-1), whose derivative in p is
//     N^(2-p) y^(p-1) [ log y - log N + (2 - p) d log N / dp ],
//     d log N / dp = (sum y^p log y / sum y^p - log N) / p.
struct PnormGrads {
  static constexpr int sums = 4;

  template <class T>
  static REGMAX_INLINE void add(Vec<T> weight, Vec<T> u, Vec<T> less_one, Vec<T>* s) {
    const Vec<T> y = normal_or_zero(weight);
    const Vec<T> logarithm = log2_of<T>(larger(y, splat(smallest_normal<T>)));
    const Vec<T> power = exp2_of<T>(less_one * logarithm), term = power * y, along = power * u;
    s[0] += term;
    s[1] = times_plus(term, logarithm, s[1]);
    s[2] += along;
    s[3] = times_plus(along, logarithm, s[3]);
  }

  // V is double, or a vector of one row per lane.
  template <class V>
  struct Of {
    V strength, gamma, value, slope;

    Of(const V* s, V p) {
      const V mass = s[0], log_norm = log2_in_double(mass) / p, change = (s[1] / mass - log_norm) / p;
      const V factor = exp2_in_double((2.0 - p) * log_norm);
      strength = -factor * (s[3] + ((2.0 - p) * change - log_norm) * s[2]) * ln_2;
      gamma = -factor * s[2];
      value = exp2_in_double(2.0 * log_norm) / 2.0;
      slope = 2.0 * value * change * ln_2;
    }
  };
};

struct Sqpnormmax15 : JoinsNothing, PowerStrengths<PnormGrads> {
  static constexpr bool on_simplex = true;
  static bool accepts(double p) { return p > 1 && p <= 2; }
  static bool is_sparsemax(double p) { return p == 2; }

  // --- Lane tier ---
  static bool fits_vectors(double) { return true; }
  static double reach(double) { return 1; }
  static constexpr int64_t least_screened = least_screened_sqpnormmax;

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
    static constexpr T small_weight = small_sqpnormmax_weight<T>;
    static constexpr T largest_sum = T(1.5);  // with 3, 26 of 300,000 float32 rows were off by more than 4 units

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
  };

  // --- Scalar tier ---
  template <class T>
  static void map(ScalarRow<T>& row, double p) {
    if (p == 2) return row.map_sparsemax();
    row.choose_above(-1);
    row.with_precise_scores(
        [&](const LongScores* precise) { sqpnorm_weights(row.w.x, precise, row.count, p, row.w.y); });
  }

  // --- Jacobian product ---
  using Product = CubicProduct;
  static constexpr int64_t product_whole_first = whole_first_root_product;
  static bool fits_products(double, bool) { return true; }

  template <class T>
  static void multiply(const CompactedRow<T>& row, double p, Workspace&) {
    multiply_compacted<T, Product>(row, p);
  }
};

struct Sqpnormmax : Sqpnormmax15 {
  using Squares = Sqpnormmax15;  // serves p = 1.5
  static constexpr double squares = 1.5;

  static bool fits_vectors(double p) { return p >= 1.005 && p < 2; }

  // --- Whole-row tier: in float64 the powers would lose the last digits ---
  template <class T>
  static constexpr Whole whole = Whole::by_powers;
  template <class T>
  using Powers = std::conditional_t<sizeof(T) == sizeof(float), PnormPowers<T>, void>;

  // --- Jacobian product ---
  using Product = PnormProduct;
  static constexpr int64_t product_whole_first = whole_first_power_product;
  static bool fits_products(double p, bool) { return p >= 1.005 && p < 2; }

  template <class T>
  static void multiply(const CompactedRow<T>& row, double p, Workspace& w) {
    if (p == 1.5) return multiply_compacted<T, CubicProduct>(row, p);
    if (p == 2) return multiply_compacted<T, CentredProduct>(row, p);
    widen(row, w);
    multiply_compacted<double, Product>({w.x, w.v, nullptr, row.m}, p, w.space);
    narrow(row, w);
  }
};

}  // namespace regmax::REGMAX_ISA
