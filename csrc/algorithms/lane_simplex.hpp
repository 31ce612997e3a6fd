// Projection on the simplex for few candidates, one row per lane: no horizontal sums, and no branch that
// depends on a single row.
//
// x[k] holds candidate k of every row, relative to the row's maximum; after a row's last candidate it holds
// `nothing`. A lane's result depends on that lane only, to the last bit: a settled lane does not change,
// however many rounds the others need.
#pragma once

#include <cstdint>

#include "runtime/tuning.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
inline Vec<T> one_over(int i) {
  return splat(reciprocals<T, max_candidates>.of[i]);
}

// A threshold per lane, and the lanes whose threshold is not final yet.
template <class T>
struct Threshold {
  Vec<T> tau;
  uint32_t unsettled;
};

// Calls add(k, k % unrolled) for every column; the second argument is a constant once inlined. Which partial
// sum a column goes to depends only on its number, so further columns of `nothing` change no bit.
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

// Counts are added as integers: the floating-point adders are the bottleneck.
template <class T>
REGMAX_INLINE Vec<T> total_count(const IntVec<T> (&counts)[unrolled]) {
  return __builtin_convertvector((counts[0] + counts[1]) + (counts[2] + counts[3]), Vec<T>);
}

// Michelot's rounds (simplex.hpp) from a lower bound. Each round's tau is a lower bound too, so a few rounds
// are enough for screening; rounding does not lower it again. add_up(tau) gives the sum and the count of the scores
// above tau.
template <class T>
struct LaneTotals {
  Vec<T> sum, count;
};

template <class T, class AddUp>
REGMAX_INLINE Threshold<T> lane_michelot(Vec<T> tau, int rounds, const AddUp& add_up) {
  Vec<T> before = splat(-nothing<T>);
  Where<T> fewer{};
  for (int round = 0; round < rounds; ++round) {
    const LaneTotals<T> above = add_up(tau);
    fewer = greater(before, above.count);
    if (!bits(fewer)) break;
    // 1 is subtracted last: added first, it would cost small scores their digits.
    tau = select(fewer, larger((above.sum - splat(T(1))) / above.count, tau), tau);
    before = above.count;
  }
  return {tau, bits(fewer)};
}

template <class T>
inline Threshold<T> lane_threshold(const Vec<T>* x, int count, Vec<T> tau, int rounds) {
  const IntVec<T> unit = IntVec<T>{} + 1;
  return lane_michelot<T>(tau, rounds, [&](Vec<T> bound) {
    Vec<T> sums[unrolled] = {};
    IntVec<T> counts[unrolled] = {};
    for_columns(count, [&](int k, int j) {
      const Where<T> above = greater(x[k], bound);
      sums[j] = add_where(above, sums[j], x[k]);
      counts[j] = add_where(above, counts[j], unit);
    });
    return LaneTotals<T>{total<T>(sums), total_count<T>(counts)};
  });
}

// The threshold of a row's maxima by lane, relative to the largest, which is a lower bound of the row's. Rounds go on
// until it settles: it then depends on the maxima above it only, unless one is within rounding of it.
template <class T>
inline Vec<T> maxima_threshold(const Vec<T>* maxima) {
  return lane_threshold<T>(maxima, lanes<T>, splat(T(-1)), lanes<T> + 1).tau;
}

// Distributes the rounding error sum y - 1 over the support, as a correction of tau would; equal weights stay
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

// How far rounding may move a threshold tau < 0 of few numbers, or a mean of numbers as large.
template <class T>
REGMAX_INLINE Vec<T> lane_doubt(Vec<T> size) {
  return size * splat(32 * rounding<T>);
}

// The lanes in which `nearest`, the smallest difference that decided something, may be due to rounding.
template <class T>
REGMAX_INLINE uint32_t doubtful(Vec<T> nearest, Vec<T> margin) {
  return ~bits(greater(nearest, margin)) & all_lanes<T>;
}

// y = (x - tau)_+, up to rounding; returns the lanes that did not settle, and those with a score that rounding may have
// put on the wrong side of tau. `size` bounds the rounding of x, which may be larger than tau.
template <class T>
inline uint32_t lane_support(const Vec<T>* x, int count, Vec<T>* y, Vec<T> size = Vec<T>{}) {
  const Threshold<T> threshold = lane_threshold<T>(x, count, splat(nothing<T> / 2), 32);
  Vec<T> nearest = splat(-nothing<T>);
  for (int k = 0; k < count; ++k) {
    const Vec<T> z = x[k] - threshold.tau;
    nearest = smaller(absolute<T>(z), nearest);
    y[k] = larger(z, Vec<T>{});
  }
  return threshold.unsettled | doubtful<T>(nearest, lane_doubt<T>(larger(size, absolute<T>(threshold.tau))));
}

// The same, with weights that sum to one.
template <class T>
inline uint32_t lane_project(const Vec<T>* x, int count, Vec<T>* y) {
  const uint32_t unsure = lane_support<T>(x, count, y);
  lane_settle<T>(y, count);
  return unsure;
}

}  // namespace regmax::REGMAX_ISA
