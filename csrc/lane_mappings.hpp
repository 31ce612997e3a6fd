// The mappings on few candidates, one row per lane: no horizontal sums, and no branch that depends on one row
// alone.
//
// x[k] holds candidate k of every row, relative to the row's maximum; a row with fewer candidates than
// `count` has `nothing` behind them. A lane's result depends on that lane only, to the last bit: what a lane
// has settled stays, however long the others need.
#pragma once

#include <cstdint>

#include "reciprocals.hpp"
#include "simd.hpp"

namespace regmax::REGMAX_ISA {

constexpr int max_candidates = 32;

template <class T>
constexpr T nothing = T(-1e30);

template <class T>
constexpr T rounding = sizeof(T) == 4 ? T(6e-8) : T(1.2e-16);

template <class T>
inline Vec<T> one_over(int i) {
  return splat(reciprocals<T, max_candidates>.of[i]);
}

// A threshold per lane, and the lanes where it is not final yet.
template <class T>
struct Threshold {
  Vec<T> tau;
  uint32_t unsettled;
};

// Solvers sum columns in `unrolled` independent sums: additions have latency. Which sum a column goes to
// depends on its number alone, so columns of `nothing` behind the last change no bit.
constexpr int unrolled = 4;

// Calls add(k, k % unrolled) for every column, the second being a constant wherever it is inlined.
template <class Add>
REGMAX_INLINE void for_columns(int count, const Add& add) {
  int k = 0;
  for (; k + 4 <= count; k += 4) add(k, 0), add(k + 1, 1), add(k + 2, 2), add(k + 3, 3);
  if (k < count) add(k, 0);
  if (k + 1 < count) add(k + 1, 1);
  if (k + 2 < count) add(k + 2, 2);
}

template <class T>
REGMAX_INLINE Vec<T> total(const Vec<T> (&sums)[unrolled]) {
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Counts are integers while they are added up: floating point additions are the scarce ones.
template <class T>
REGMAX_INLINE Vec<T> total_count(const IntVec<T> (&counts)[unrolled]) {
  return __builtin_convertvector((counts[0] + counts[1]) + (counts[2] + counts[3]), Vec<T>);
}

// Michelot's rounds (simplex.hpp) from a lower bound. Every round's tau is a lower bound, so a few rounds
// screen.
template <class T>
inline Threshold<T> lane_threshold(const Vec<T>* x, int count, Vec<T> tau, int rounds) {
  const Vec<T> one = splat(T(1));
  const IntVec<T> unit = IntVec<T>{} + 1;
  Vec<T> before = splat(T(1e30));
  Where<T> fewer{};
  for (int round = 0; round < rounds; ++round) {
    Vec<T> sums[unrolled] = {};
    IntVec<T> counts[unrolled] = {};
    for_columns(count, [&](int k, int j) {
      const Where<T> above = greater(x[k], tau);
      sums[j] = add_where(above, sums[j], x[k]);
      counts[j] = add_where(above, counts[j], unit);
    });
    const Vec<T> left = total_count<T>(counts);
    fewer = greater(before, left);
    if (!bits(fewer)) break;
    // The -1 comes last: next to it, small scores would lose their digits.
    tau = select(fewer, (total<T>(sums) - one) / left, tau);
    before = left;
  }
  return {tau, bits(fewer)};
}

// Takes what rounding left of sum y - 1 off every weight, as a correction of tau would; equal weights stay
// equal.
template <class T>
inline void lane_settle(Vec<T>* y, int count) {
  const Vec<T> one = splat(T(1)), zero{};
  const IntVec<T> unit = IntVec<T>{} + 1;
  Vec<T> sums[unrolled] = {};
  IntVec<T> counts[unrolled] = {};
  for_columns(count, [&](int k, int j) {
    sums[j] += y[k];
    counts[j] = add_where(greater(y[k], zero), counts[j], unit);
  });
  const Vec<T> excess = (total<T>(sums) - one) / total_count<T>(counts);
  for (int k = 0; k < count; ++k) y[k] = select(greater(y[k], zero), larger(y[k] - excess, zero), zero);
}

template <class T>
inline uint32_t lane_sparsemax(const Vec<T>* x, int count, Vec<T>* y) {
  const Threshold<T> threshold = lane_threshold<T>(x, count, splat(nothing<T> / 2), 32);
  for (int k = 0; k < count; ++k) y[k] = larger(x[k] - threshold.tau, Vec<T>{});
  lane_settle<T>(y, count);
  return threshold.unsettled;
}

// A chain's taut string. Total variation's dual u_k, one per edge, is bounded by a capacity c_k: lam between
// neighbours, 0 where two candidates are not neighbours (there lane_fusedmax lets lam pull in full).
// From a knot a with dual u_a, a group (a, b] can have slopes (sum of x over (a, b] - u_a +- c_b) / (b - a).
// The string runs straight as long as the largest of the lower slopes stays below the smallest upper one;
// where it does not, it bends where the bound it hit was attained. a and b are the same for all lanes, and
// only those with a knot at a take part.
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

// Which candidates follow each other, and which have a lower neighbour to the left or right; one bit per
// candidate.
template <class T>
struct RunBits {
  IntVec<T> adjacent, left_edge, right_edge;
};

template <class T>
inline uint32_t lane_fusedmax(Vec<T>* x, int count, const RunBits<T>& runs, Vec<T> lam, Vec<T>* y) {
  for (int k = 0; k < count; ++k) {
    x[k] = add_where(has_bit(runs.left_edge, k), x[k], -lam);
    x[k] = add_where(has_bit(runs.right_edge, k), x[k], -lam);
  }
  LaneChains<T>(x, count, runs.adjacent, lam).pool(y);
  return lane_sparsemax<T>(y, count, y);
}

}  // namespace regmax::REGMAX_ISA
