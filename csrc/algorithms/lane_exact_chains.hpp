// fusedmax of few candidates in double, one row per lane, without rounding errors in any decision.
//
// As in exact_sums.hpp, nothing is left in doubt: ties are found, and are ties.
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/exact_sums.hpp"
#include "runtime/tuning.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

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
    ExactSum value = segments_[0];
    for (int a = 0; a < p_.count; ++a) {
      const W same = has_bit(p_.adjacent, a) & equal(difference(segments_[a], value), V{});
      value = choose(same, value, segments_[a]);
      const V excess = difference(value, support_), size = value.n * support_.n * p_.gamma;
      y[a] = select(is_inside(a), larger(excess, V{}) / size, V{});
    }
  }

 private:
  W is_inside(int a) const { return greater(p_.counts, splat(static_cast<double>(a))); }

  V difference(const ExactSum& a, const ExactSum& b) const { return REGMAX_ISA::difference(a, b, p_.lam); }
  V sum(V p, V q) const { return exact_times_plus(q, p_.lam, p); }

  // As LaneChains::follow_string (lane_chains.hpp).
  void follow_string(int a, W starts) {
    const V one = splat(1.0), zero{};
    ExactSum high{one, zero, zero}, low{-one, zero, zero};  // infinite
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

  void bend(W where, const ExactSum& segment, V dual) {
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
      const ExactSum bound = support_;
      support_ = total([&](int a) { return greater(difference(segments_[a], bound), V{}); });
    }
  }
  template <class Above>
  ExactSum total(const Above& above) const {
    ExactSum sum{-p_.gamma, V{}, V{}};
    for (int a = 0; a < p_.count; ++a) {
      const W counts = starts_[a] & is_inside(a) & above(a);
      sum = {add_where(counts, sum.s, segments_[a].s), add_where(counts, sum.q, segments_[a].q),
             add_where(counts, sum.n, segments_[a].n)};
    }
    return sum;
  }

  const ExactProblem& p_;
  ExactSum segments_[max_candidates], segment_{}, support_{};
  W starts_[max_candidates];  // a segment begins here
  V knot_{}, dual_{};         // of the lanes' current pieces
};

}  // namespace regmax::REGMAX_ISA
