// Weights that are powers of the scores (powers.hpp), one row per lane. A lane's result depends on that lane only: a
// lane that has settled does not change, however many rounds the others need.
#pragma once

#include <cstdint>

#include "algorithms/lane_simplex.hpp"
#include "algorithms/powers.hpp"

namespace regmax::REGMAX_ISA {

// Calls use(terms, chosen) with the terms of the lanes with an integer 1/a, and with those of the others.
template <class T, class Powers, class Use>
REGMAX_INLINE void with_terms(const Powers& powers, const int* integers, uint32_t wanted, const Use& use) {
  uint32_t whole = 0;
  for (int r = 0; r < lanes<T>; ++r) whole |= static_cast<uint32_t>(integers[r] > 0) << r;
  if (wanted & whole)
    use(IntegerTerms<T, LaneExponents<T>>{LaneExponents<T>(integers), least_share<T>(powers.exponent)}, wanted & whole);
  if (wanted & ~whole) use(GeneralTerms<T>{powers.exponent}, wanted & ~whole);
}

// An upper bound of the roots m, usually, from a subset of each row's scores.
template <class T, class Powers>
inline Vec<T> guess_roots(const Vec<T>* x, int count, const Powers& powers, const int* integers, uint32_t wanted) {
  Vec<T> m = splat(T(1));
  with_terms<T>(powers, integers, wanted, [&](const auto& terms, uint32_t chosen) {
    m = select(from_bits<T>(chosen), guess_root<T>(x, count, powers, terms), m);
  });
  return smaller(m * splat(T(1.002)), splat(T(1)));
}

template <class T, class Terms>
REGMAX_INLINE PowerSums<T> lane_power_sums(const Vec<T>* x, int count, const Terms& terms_of) {
  Vec<T> s[unrolled] = {}, c[unrolled] = {}, rw[unrolled] = {};
  for_columns(count, [&](int k, int j) {
    const PowerTerms<T> terms = terms_of(k, x[k]);
    s[j] += terms.r;
    c[j] += terms.power;
    rw[j] += terms.rw;
  });
  return {total<T>(s), total<T>(c), total<T>(rw)};
}

// The weights of the `wanted` lanes, which start at m and end at their roots; returns the lanes that do not settle.
template <class Powers, class Terms>
inline uint32_t settle_lanes(const Vec<float>* x, int count, const Powers& powers, const Terms& terms, uint32_t wanted,
                             Vec<float>* m, Vec<float>* y) {
  using T = float;
  RootSearch<T> search(*m, wanted);
  for (int round = 0; search.rough && round < most_power_rounds; ++round) {
    const Vec<T> rate = powers.c() / search.m;
    const PowerSums<T> sums =
        lane_power_sums<T>(x, count, [&](int, Vec<T> column) { return terms.rough(column, rate); });
    search.take_rough(powers.step(sums, search.m));
  }
  uint32_t unsettled = search.rough;
  search.moving &= ~unsettled;
  for (int round = 0;; ++round) {
    Vec<T> rest;
    const Vec<T> rate = search.rate(powers, &rest);
    const PowerSums<T> sums = lane_power_sums<T>(x, count, [&](int k, Vec<T> column) {
      const PowerTerms<T> added = terms.careful(column, rate, rest);
      y[k] = added.r;
      return added;
    });
    const Vec<T> step = accurate_step(powers, lowered(sums), search.m, search.shift);
    if (round == most_power_rounds) unsettled |= search.moving, search.moving = 0;
    if (!search.moving) {
      unsettled |= search.finish(powers, sums, step);
      *m = search.m;
      for (int k = 0; k < count; ++k) y[k] /= sums.s;
      return unsettled;
    }
    search.take_careful(step);
  }
}

// The same for lanes of any strength; y of the lanes that are not wanted is undefined.
template <class Powers>
inline uint32_t lane_power_weights(const Vec<float>* x, int count, const Powers& powers, const int* integers,
                                   uint32_t wanted, Vec<float>* m, Vec<float>* y) {
  uint32_t unsettled = 0;
  int solved = 0;
  const Vec<float> start = *m;
  Vec<float> others[max_candidates];
  with_terms<float>(powers, integers, wanted, [&](const auto& terms, uint32_t chosen) {
    Vec<float> root = start;
    Vec<float>* const weights = solved ? others : y;
    unsettled |= settle_lanes(x, count, powers, terms, chosen, &root, weights) & chosen;
    *m = select(from_bits<float>(chosen), root, *m);
    for (int k = 0; solved && k < count; ++k) y[k] = select(from_bits<float>(chosen), others[k], y[k]);
    ++solved;
  });
  return unsettled;
}

}  // namespace regmax::REGMAX_ISA
