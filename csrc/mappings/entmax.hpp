// entmax: y = ((alpha - 1) x - tau)_+^(1 / (alpha - 1)), 1 <= alpha <= 2. Entmax15 is alpha = 1.5, with squares in
// place of powers (algorithms/entmax.hpp); Entmax is any other alpha, and one alpha per row (algorithms/powers.hpp).
//
// The cut. The row's maxima by lane are a subset of its scores, whose threshold is a lower bound of the row's; Newton's
// steps approach it from below.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "algorithms/entmax.hpp"
#include "algorithms/powers.hpp"
#include "mappings/products.hpp"

namespace regmax::REGMAX_ISA {

// J v = s (v - <s, v> / sum s), s = y^(2 - alpha) = y^(1 - a).
struct TsallisProduct {
  static constexpr int sums = 2, factors = 2;
  static constexpr bool reads_weights = true;

  template <class T>
  static REGMAX_INLINE Vec<T> root(Vec<T> y, Vec<T> a) {
    // alpha = 1.25: y^(3/4) by square roots
    const Where<T> quarter = equal(a, splat(T(0.25)));
    if (!bits(quarter)) return positive_power<T>(y, splat(T(1)) - a);
    const Vec<T> half = nearly_square_root(y), product = half * nearly_square_root(half);
    if (bits(quarter) == all_lanes<T>) return product;
    return select(quarter, product, positive_power<T>(y, splat(T(1)) - a));
  }
  template <class T>
  static REGMAX_INLINE void add(Where<T> supported, Vec<T>, Vec<T> root, Vec<T> v, Vec<T>* s) {
    s[0] += root;
    s[1] = times_plus(root, select(supported, v, Vec<T>{}), s[1]);
  }
  template <class V>
  static REGMAX_INLINE void find_factors(const V* s, V, V scale, V, V* f) {
    f[0] = scale;
    f[1] = -scale * (s[1] / s[0]);
  }
  template <class V>
  static REGMAX_INLINE V multiply(V, V root, V v, const V* f) {
    return root * times_plus(f[0], v, f[1]);
  }
};

// The same for alpha = 1.5.
struct RootProduct : TsallisProduct {
  template <class T>
  static REGMAX_INLINE Vec<T> root(Vec<T> y, Vec<T>) {
    return nearly_square_root(y);
  }
};

// phi(t) = (exp(t) - 1) / t and h(t) = phi'(t), by their power series sum_k t^k / (k + 1)! and
// sum_k (k + 1) t^k / (k + 2)! for small t.
template <class T>
REGMAX_INLINE void exponential_ratio(Vec<T> t, Vec<T>* phi, Vec<T>* h) {
  constexpr int terms = sizeof(T) == sizeof(float) ? 8 : 14;
  const Vec<T> one = splat(T(1));
  const Where<T> large = greater(absolute<T>(t), splat(T(0.5)));
  const Vec<T> large_t = select(large, t, one);
  const Vec<T> power = exp2_of<T>(smaller(large_t, one) * splat(T(log2_e))), change = power - one;
  const Vec<T> inverse = one / large_t;
  *phi = change * inverse;
  *h = (large_t * power - change) * (inverse * inverse);
  if (bits(large) == all_lanes<T>) return;  // most vectors of long rows: their weights are small
  const Vec<T> small_t = select(large, Vec<T>{}, t);
  Vec<T> small_phi = one, small_h = one;
  for (int k = terms; k > 0; --k) {
    small_phi = times_plus(small_phi * small_t, splat(T(1) / T(k + 1)), one);
    small_h = times_plus(small_h * small_t, splat(T(k + 1) / (T(k) * T(k + 2))), one);
  }
  *phi = select(large, *phi, small_phi);
  *h = select(large, *h, small_h * splat(T(0.5)));
}

// With a = alpha - 1, up to a constant grad Omega(y) = (y^a - 1) / a = log(y) phi(a log y); its derivative in alpha is
// log(y)^2 h(a log y). Omega(y) = sum y (y^a - 1) / (alpha a).
struct TsallisGrads {
  static constexpr int sums = 4;

  template <class T>
  static REGMAX_INLINE void add(Vec<T> y, Vec<T> u, Vec<T> less_one, Vec<T>* s) {
    const Vec<T> logarithm = log2_of<T>(larger(y, splat(smallest_normal<T>))) * splat(T(ln_2));
    Vec<T> phi, h;
    exponential_ratio<T>(less_one * logarithm, &phi, &h);
    const Vec<T> gradient = logarithm * phi, change = logarithm * logarithm * h;
    s[0] = times_plus(u, change, s[0]);
    s[1] = times_plus(u, gradient, s[1]);
    s[2] = times_plus(y, gradient, s[2]);
    s[3] = times_plus(y, change, s[3]);
  }

  // V is double, or a vector of one row per lane.
  template <class V>
  struct Of {
    V strength, gamma, value, slope;

    Of(const V* s, V alpha) : strength(-s[0]), gamma(-s[1]), value(s[2] / alpha), slope((s[3] - value) / alpha) {}
  };
};

struct Entmax15 : JoinsNothing, PowerStrengths<TsallisGrads> {
  static constexpr bool on_simplex = true;
  static bool accepts(double alpha) { return alpha >= 1 && alpha <= 2; }
  static bool is_sparsemax(double alpha) { return alpha == 2; }
  static double reach(double) { return 2; }
  static constexpr int64_t least_screened = least_screened_entmax;

  // --- Lane tier ---
  static bool fits_vectors(double) { return true; }
  static constexpr int most_candidates = many_candidates;

  template <class T>
  struct Lanes : PlainLanes<T> {
    static constexpr int maxima_vectors = entmax_maxima_vectors;

    Vec<T> cut(const Vec<T>* maxima, const LaneProblem<T>& p) {
      Vec<T> t = splat(T(-2));
      lane_square_root<T>(maxima, p.maxima, 4, &t);
      return t - splat(16 * rounding<T>);
    }
    uint32_t solve(LaneProblem<T>& p, Vec<T>* y) { return solve_squares(p, y); }
  };

  template <class T>
  static uint32_t solve_squares(const LaneProblem<T>& p, Vec<T>* y) {
    Vec<T> t = p.cuts;  // a lower bound
    const SquareRoot<T> root = lane_square_root<T>(p.x, p.count, 24, &t);
    // The last step is kept apart from t, where it would be rounded, and has no root, which would be: the weights then
    // sum to one.
    const Vec<T> last = (root.sums.s2 - splat(T(4))) / (root.sums.s1 + root.sums.s1), factor = splat(T(0.25));
    Vec<T> nearest = splat(-nothing<T>);
    for (int k = 0; k < p.count; ++k) {
      const Vec<T> first = p.x[k] - t, z = first + ((p.x[k] - (first + t)) - last), above = larger(z, Vec<T>{});
      nearest = smaller(absolute<T>(z), nearest);
      y[k] = above * above * factor;
    }
    const Where<T> small = greater(splat(small_entmax_weight<T>), t * t * factor);
    if (bits(small)) lane_small_squares<T>(p.x, p.count, t, last, factor, root.sums.s1 * splat(T(0.5)), small, y);
    return root.unsettled | doubtful<T>(nearest, lane_doubt<T>(-t));
  }

  // --- Whole-row tier: the sums of z and z^2 over the scores above a first t give their own threshold ---
  template <class T>
  static constexpr Whole whole = Whole::by_moments;
  static constexpr int64_t whole_first = whole_first_sqpnormmax;

  template <class T>
  struct Moments {
    static constexpr int powers = 2;
    static constexpr T small_weight = small_entmax_weight<T>;
    static constexpr T largest_sum = 2;  // rows with more are far

    static Vec<T> guess(const Vec<T>* maxima, bool) {
      Vec<T> t = splat(T(-2));
      for (int round = 0; round < 3; ++round) t += lane_square_step<T>(lane_square_sums<T>(maxima, lanes<T>, t));
      return t;
    }
    static REGMAX_INLINE void add(Where<T> above, Vec<T> relative, Vec<T>* sums) {
      const Vec<T> z = select(above, relative, Vec<T>{});
      sums[0] += z;
      sums[1] = times_plus(z, z, sums[1]);
    }
    // n step^2 - 2 S_1 step + S_2 = 4. Without a root, too many scores were added up, and Newton's step, which is
    // never too long, is taken. Lanes are far while the step is large next to the weights.
    template <class Weight>
    static uint32_t find_step(const Vec<T>* sums, Vec<T> count, Vec<T>, Vec<T>* step, Vec<T>* factor) {
      const Vec<T> excess = sums[1] - splat(T(4)), square = sums[0] * sums[0] - count * excess;
      const Where<T> has_root = greater(square, Vec<T>{});
      const Vec<T> root = nearly_square_root(larger(square, Vec<T>{}));
      *step = select(has_root, excess / (sums[0] + root), lane_square_step<T>({sums[0], sums[1]}));
      *factor = splat(T(0.25));
      return (bits(greater(sums[1], splat(T(8)))) | ~bits(has_root)) & all_lanes<T>;
    }
    static constexpr bool count_decreases = false;
  };

  // --- Scalar tier ---
  template <class T>
  static void map(ScalarRow<T>& row, double) {
    if (sizeof(T) == sizeof(double)) return map_powers(row, 0.5);
    row.choose_above(-2);
    square_weights(row.w.x, row.count, row.w.y);
  }

  // The powers are vectorised within the row.
  template <class T>
  static void map_powers(ScalarRow<T>& row, double a) {
    // No weight exceeds exp(x), and exp(-800) underflows.
    row.choose_above(-1 / larger(a, 1.0 / 800));
    double sum = 0;
    row.with_precise_scores([&](const LongScores* precise) {
      sum = a > 0     ? tsallis_weights(row.w.x, precise, row.count, a, row.w.y)
            : precise ? static_cast<double>(long_power_sums(*precise, row.count, 0, 0, row.w.y).s)
                      : exponential_weights(row.w.x, row.count, row.w.y);
    });
    for (int64_t k = 0; k < row.count; ++k) row.w.y[k] /= sum;
  }

  // Newton's method in double.
  static void square_weights(const double* x, int64_t count, double* y) {
    double t = -2, step = 1;
    for (int round = 0;; ++round) {
      double totals[2] = {};
      const Vec<double> threshold = splat(t);
      sum_terms<double>(count, totals, [&](int64_t i, Vec<double>* sums) {
        const Vec<double> z = larger(load_left(x + i, count - i, nothing<double>) - threshold, Vec<double>{});
        sums[0] += z;
        sums[1] = times_plus(z, z, sums[1]);
      });
      step = (totals[1] - 2 * std::sqrt(totals[1])) / totals[0];
      if (!(step > -t * last_step<double>) || round == 100) break;
      t += step;
    }
    // The last step is kept apart from t, where it would be rounded, which the weights of long rows would feel.
    for (int64_t k = 0; k < count; ++k) {
      const double z = x[k] - t - step;
      y[k] = z > -t * 8 * rounding<double> ? z * z : 0;
    }
    normalise(y, count);
  }

  // --- Jacobian product ---
  using Product = RootProduct;
  static constexpr int64_t product_whole_first = whole_first_root_product;
  static bool fits_products(double, bool) { return true; }

  template <class T>
  static void multiply(const CompactedRow<T>& row, double alpha, Workspace&) {
    multiply_compacted<T, Product>(row, alpha);
  }
};

struct Entmax : Entmax15 {
  using Squares = Entmax15;  // serves alpha = 1.5
  static constexpr double squares = 1.5;

  // Nearer to 1, the weights of float32 rows reach its subnormal numbers.
  static bool fits_vectors(double alpha) { return alpha >= 1.02 && alpha < 2; }
  static double reach(double alpha) { return alpha > 1.001 ? 1 / (alpha - 1) : 1000; }
  static constexpr int most_candidates = max_candidates;  // powers of more weights are faster in whole rows

  // --- Whole-row tier: in float64 the powers would lose the last digits ---
  template <class T>
  static constexpr Whole whole = Whole::by_powers;
  template <class T>
  using Powers = std::conditional_t<sizeof(T) == sizeof(float), TsallisPowers<T>, void>;

  // --- Scalar tier ---
  template <class T>
  static void map(ScalarRow<T>& row, double alpha) {
    if (alpha == 2) return row.map_sparsemax();
    if (alpha == 1.5) return Entmax15::map(row, alpha);
    map_powers(row, alpha - 1);
  }

  // --- Jacobian product ---
  using Product = TsallisProduct;
  static constexpr int64_t product_whole_first = whole_first_power_product;
  static bool fits_products(double alpha, bool) { return alpha != 2; }

  template <class T>
  static void multiply(const CompactedRow<T>& row, double alpha, Workspace& w) {
    if (alpha == 1.5) return multiply_compacted<T, RootProduct>(row, alpha);
    if (alpha == 2) return multiply_compacted<T, CentredProduct>(row, alpha);
    multiply_compacted<T, TsallisProduct>(row, alpha, static_cast<T*>(w.copies));
  }
};

}  // namespace regmax::REGMAX_ISA
