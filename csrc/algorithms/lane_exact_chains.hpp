// fusedmax of few candidates in double, one row per lane, without rounding errors in any decision.
//
// Sums of pooled scores are kept as s + q lam, with integers q. Candidates that are multiples of one power of two
// (DoubleGrid) have exact sums s, and exact products of sums and counts. Then every comparison of means is the sign of
//
//     p + q lam,        p = s_1 n_2 - s_2 n_1 and q = q_1 n_2 - q_2 n_1 exact,
//
// and times_plus, which rounds once, has this sign. Nothing is left in doubt: ties are found, and are ties.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/tuning.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// Multiples of a power of two for at most max_candidates numbers of less than `size`, and one more: differences of two
// of them, added up and multiplied by a count, are exact in double.
class DoubleGrid {
 public:
  explicit DoubleGrid(double size) {
    int exponent;
    std::frexp(size, &exponent);
    shift_ = std::ldexp(1.5, exponent + 13 - 53 + 52);  // 2 size, 33 of them, times 32, and the difference of two
  }

  bool has(double number) const { return (number + shift_) - shift_ == number; }

 private:
  double shift_;
};

// The candidates of lanes<double> rows; unused columns are zero.
struct ExactProblem {
  using V = Vec<double>;

  V x[max_candidates] = {};  // candidate k of every row relative to its maximum
  V q[max_candidates] = {};  // minus the number of its edges to scores that are none
  IntVec<double> adjacent{};
  V counts{}, lam{}, gamma{};
  int count = 0;  // columns in use
};

class LaneExactChains {
  using V = Vec<double>;
  using W = Where<double>;

  // The sums of pooled scores and how many they are; the mean is (s + q lam) / n.
  struct Mean {
    V s, q, n;
  };

 public:
  explicit LaneExactChains(const ExactProblem& p) : p_(p) {}

  // The weights of every candidate; equal neighbours get the same bits.
  void solve(V* y) {
    for (int a = 0; a < p_.count; ++a) {
      starts_[a] = equal(knot_, splat(static_cast<double>(a)));
      if (bits(starts_[a])) follow_string(a, starts_[a]);
      segments_[a] = segment_;
    }
    find_support();
    Mean value = segments_[0];
    for (int a = 0; a < p_.count; ++a) {
      const W same = has_bit(p_.adjacent, a) & equal(difference(segments_[a], value), V{});
      value = choose(same, value, segments_[a]);
      const V excess = difference(value, support_), size = value.n * support_.n * p_.gamma;
      y[a] = select(is_inside(a), larger(excess, V{}) / size, V{});
    }
  }

 private:
  W is_inside(int a) const { return greater(p_.counts, splat(static_cast<double>(a))); }

  static Mean choose(W where, const Mean& a, const Mean& b) {
    return {select(where, a.s, b.s), select(where, a.q, b.q), select(where, a.n, b.n)};
  }

  // mean(a) - mean(b), times both counts: its sign is exact.
  V difference(const Mean& a, const Mean& b) const { return sum(a.s * b.n - b.s * a.n, a.q * b.n - b.q * a.n); }
  V sum(V p, V q) const { return exact_times_plus(q, p_.lam, p); }

  static V exact_times_plus(V a, V b, V c) {
#if defined(__FMA__)
    return times_plus(a, b, c);
#else
    for (int i = 0; i < lanes<double>; ++i) c[i] = std::fma(a[i], b[i], c[i]);
    return c;
#endif
  }

  // As LaneChains::follow_string (lane_chains.hpp).
  void follow_string(int a, W starts) {
    const V one = splat(1.0), zero{};
    Mean high{one, zero, zero}, low{-one, zero, zero};  // infinite
    V s{}, q = -dual_;
    W open = starts;
    for (int b = a + 1; b <= p_.count && bits(open); ++b) {
      const W edge = b < p_.count ? has_bit(p_.adjacent, b) : W{};
      const V capacity = select(edge, one, zero), n = splat(static_cast<double>(b - a));
      s += p_.x[b - 1];
      q += p_.q[b - 1];
      const V over = s * high.n - high.s * n, under = s * low.n - low.s * n;
      const V up = q + capacity, down = q - capacity;
      const W rises = open & greater(sum(over, down * high.n - high.q * n), zero);
      const W falls = open & greater(zero, sum(under, up * low.n - low.q * n));
      bend(rises, high, one);
      bend(falls, low, -one);
      open = open & ~(rises | falls);
      bend(open & ~edge, {s, q, n}, zero);
      open = open & edge;
      high = choose(greater(sum(over, up * high.n - high.q * n), zero), high, {s, up, n});
      low = choose(greater(zero, sum(under, down * low.n - low.q * n)), low, {s, down, n});
    }
  }

  void bend(W where, const Mean& segment, V dual) {
    segment_ = choose(where, segment, segment_);
    knot_ = add_where(where, knot_, segment.n);
    dual_ = select(where, dual, dual_);
  }

  // Michelot's rounds (simplex.hpp).
  void find_support() {
    V before = splat(HUGE_VAL);
    support_ = total([&](int) { return from_bits<double>(all_lanes<double>); });
    while (bits(greater(before, support_.n))) {
      before = support_.n;
      const Mean bound = support_;
      support_ = total([&](int a) { return greater(difference(segments_[a], bound), V{}); });
    }
  }
  template <class Above>
  Mean total(const Above& above) const {
    Mean sum{-p_.gamma, V{}, V{}};
    for (int a = 0; a < p_.count; ++a) {
      const W counts = starts_[a] & is_inside(a) & above(a);
      sum = {add_where(counts, sum.s, segments_[a].s), add_where(counts, sum.q, segments_[a].q),
             add_where(counts, sum.n, segments_[a].n)};
    }
    return sum;
  }

  const ExactProblem& p_;
  Mean segments_[max_candidates], segment_{}, support_{};
  W starts_[max_candidates];  // a segment begins here
  V knot_{}, dual_{};         // of the lanes' current pieces
};

}  // namespace regmax::REGMAX_ISA
