// Total variation on few candidates, one row per lane.
#pragma once

#include <cstdint>

#include "algorithms/lane_simplex.hpp"

namespace regmax::REGMAX_ISA {

// The taut string of a chain (taut_string.hpp). Total variation's dual u_k, one per edge, is bounded by a
// capacity c_k: lam between neighbours, 0 between candidates that are not (their edges pull in full, which
// the caller has subtracted). From a knot a with dual u_a, a segment (a, b] can have the slopes (sum of x
// over (a, b] - u_a +- c_b) / (b - a). The string runs straight while the largest lower slope stays below the
// smallest upper one; then it bends where the violated bound was attained. a and b are the same for all
// lanes; only the lanes with a knot at a take part.
template <class T>
class LaneChains {
 public:
  LaneChains(const Vec<T>* x, int count, IntVec<T> adjacent, Vec<T> lam)
      : x_(x), count_(count), adjacent_(adjacent), lam_(lam) {}

  void pool(Vec<T>* z) {
    for (int a = 0; a < count_; ++a) {
      const Where<T> starts = equal(knot_, splat(T(a)));
      if (bits(starts)) follow_string(a, starts);
      z[a] = slope_;
    }
  }

  // The lanes in which rounding may have decided: segments that nearly touch, or a segment in which the dual,
  // the sum of x - z, comes near its bounds.
  uint32_t find_doubtful(const Vec<T>* z, Vec<T> margin) const {
    Vec<T> dual{}, nearest = splat(-nothing<T>);
    for (int k = 0; k + 1 < count_; ++k) {
      const Where<T> edge = has_bit(adjacent_, k + 1);
      const Vec<T> step = absolute<T>(z[k + 1] - z[k]);
      dual += x_[k] - z[k];
      const Vec<T> gap = select(greater(step, Vec<T>{}), step, lam_ - absolute<T>(dual));
      nearest = select(edge, smaller(gap, nearest), nearest);
      dual = select(edge, dual, Vec<T>{});
    }
    return doubtful<T>(nearest, margin);
  }

 private:
  void follow_string(int a, Where<T> starts) {
    Vec<T> high = splat(T(1e30)), low = splat(T(-1e30)), high_end{}, low_end{}, sum = -dual_;
    Where<T> open = starts;
    for (int b = a + 1; b <= count_ && bits(open); ++b) {
      const Where<T> edge = b < count_ ? has_bit(adjacent_, b) : Where<T>{};
      const Vec<T> capacity = select(edge, lam_, Vec<T>{}), factor = one_over<T>(b - a), at = splat(T(b));
      sum += x_[b - 1];
      const Vec<T> upper = (sum + capacity) * factor, lower = (sum - capacity) * factor;
      const Where<T> rises = open & greater(lower, high);
      const Where<T> falls = open & greater(low, upper);
      bend(rises, high_end, high, lam_);
      bend(falls, low_end, low, -lam_);
      open = open & ~(rises | falls);
      bend(open & ~edge, at, upper, Vec<T>{});
      open = open & edge;
      high_end = select(greater(upper, high), high_end, at);
      low_end = select(greater(low, lower), low_end, at);
      high = smaller(upper, high);
      low = larger(lower, low);
    }
  }

  void bend(Where<T> where, Vec<T> knot, Vec<T> slope, Vec<T> dual) {
    knot_ = select(where, knot, knot_);
    slope_ = select(where, slope, slope_);
    dual_ = select(where, dual, dual_);
  }

  const Vec<T>* x_;
  int count_;
  IntVec<T> adjacent_;
  Vec<T> lam_;
  Vec<T> knot_{}, slope_{}, dual_{};
};

}  // namespace regmax::REGMAX_ISA
