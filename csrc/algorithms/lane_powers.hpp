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
  if (wanted & whole) {
    use(IntegerTerms<T, LaneExponents<T>>{LaneExponents<T>(integers), least_share<T>(powers.exponent, rough_digits),
                                          least_share<T>(powers.exponent, careful_digits)},
        wanted & whole);
  }
  if (wanted & ~whole) use(GeneralTerms<T>{powers.exponent, powers.exponent_rest}, wanted & ~whole);
}

// A first guess of the root, from one small set of scores per lane. Two rounds of Newton's method usually suffice;
// steep powers take a third.
template <class T, class Powers, class Terms>
inline Vec<T> guess_root(const Vec<T>* x, int count, const Powers& powers, const Terms& terms, uint32_t wanted) {
  const Where<T> steep = greater(powers.a, splat(T(least_steep)));
  const int rounds = bits(steep) & wanted ? 3 : 2;
  Vec<T> m = splat(T(1));
  for (int round = 0; round < rounds; ++round) {
    PowerSums<T> sums{};
    const Vec<T> rate = powers.c() / m;
    for (int k = 0; k < count; ++k) {
      const PowerTerms<T> added = terms.rough(x[k], rate);
      sums.s += added.r;
      sums.c += added.power;
      sums.r += added.rw;
    }
    const Vec<T> next = smaller(stepped<T>(m, powers.step(sums, m)), splat(T(1)));
    m = round < 2 ? next : select(steep, next, m);
  }
  return m;
}

// An upper bound of the roots m, usually, from a subset of each row's scores.
template <class T, class Powers>
inline Vec<T> guess_roots(const Vec<T>* x, int count, const Powers& powers, const int* integers, uint32_t wanted) {
  Vec<T> m = splat(T(1));
  with_terms<T>(powers, integers, wanted, [&](const auto& terms, uint32_t chosen) {
    m = select(from_bits<T>(chosen), guess_root<T>(x, count, powers, terms, chosen), m);
  });
  return smaller(m * splat(T(1.002)), splat(T(1)));
}

// Partial sums, times `unit`, in double.
inline void wide_total(const Vec<float> (&parts)[unrolled], double unit, Vec<double>* wide) {
  Vec<double> sums[2] = {};
  for (int j = 0; j < unrolled; ++j) {
    Vec<double> part[2];
    widen(parts[j], part);
    for (int h = 0; h < 2; ++h) sums[h] += part[h];
  }
  for (int h = 0; h < 2; ++h) wide[h] = sums[h] * splat(unit);
}

template <class T, class Terms>
REGMAX_INLINE WideSums lane_power_sums(const Vec<T>* x, int count, double unit, const Terms& terms_of) {
  Vec<T> s[unrolled] = {}, c[unrolled] = {}, rw[unrolled] = {};
  for_columns(count, [&](int k, int j) {
    const PowerTerms<T> terms = terms_of(k, x[k]);
    s[j] += terms.r;
    c[j] += terms.power;
    rw[j] += terms.rw;
  });
  Vec<double> wide[3][2];
  wide_total(s, unit, wide[0]);
  wide_total(c, unit, wide[1]);
  wide_total(rw, unit, wide[2]);
  return {{{wide[0][0], wide[1][0], wide[2][0]}, {wide[0][1], wide[1][1], wide[2][1]}}};
}

// The scaled terms r of the `wanted` lanes, which start at m and end at their roots, and their sums, without the scale;
// returns which do not settle, and which have doubtful weights.
template <class Powers, class Terms>
inline UnsureRows settle_lanes(const Vec<float>* x, int count, const Powers& powers, const Terms& terms,
                               uint32_t wanted, Vec<float>* m, Vec<float>* sum, Vec<float>* y) {
  using T = float;
  RootSearch<Powers> search(powers, *m, wanted);
  for (int round = 0; search.rough && round < most_power_rounds; ++round) {
    const Vec<T> rate = powers.c() / search.m;
    search.moving = search.rough;
    search.take(lane_power_sums<T>(x, count, 1.0, [&](int, Vec<T> column) { return terms.rough(column, rate); }),
                SlopedRows<T>{});
  }
  const uint32_t unsettled = search.rough;
  search.moving = wanted & ~unsettled;
  uint32_t sloped = 0;  // lanes that have settled along their slopes: their terms stay
  Vec<T> changes[max_candidates];
  for (int round = 0;; ++round) {
    const CarefulRate rate = search.rate();
    const DoubtfulBounds<T> bounds = search.doubtful();
    DoubtfulWeights<T> doubtful{bounds};
    SlopedTerms<T> seen(bounds);
    const Where<T> open = from_bits<T>(~sloped & all_lanes<T>);
    const WideSums sums = lane_power_sums<T>(x, count, 1 / careful_scale<double>, [&](int k, Vec<T> column) {
      const CarefulTerms<T> added = terms.careful(column, rate);
      y[k] = select(open, added.r, y[k]);
      changes[k] = added.power - added.r;
      doubtful.add(added);
      seen.add(added);
      return added;
    });
    const bool settled = !search.moving || round == most_power_rounds;
    if (!settled) {
      const uint32_t now = search.take(sums, {~bits(seen.vanishing), seen.least_w});
      const Where<T> chosen = from_bits<T>(now);
      // Their sum is added up again, because the weights must sum to one; in double, where zeros of longer rows beside
      // them change no bit.
      Vec<double> totals[2] = {};
      for (int k = 0; now && k < count; ++k) {
        Vec<double> wide[2];
        y[k] = select(chosen, times_plus(search.slopes, changes[k], y[k]), y[k]);
        widen(y[k], wide);
        for (int h = 0; h < 2; ++h) totals[h] += wide[h];
      }
      for (Vec<double>& total : totals) total *= splat(1 / careful_scale<double>);
      search.sum = select(chosen, narrow(totals), search.sum);
      sloped |= now;
    }
    if (settled || sloped == (wanted & ~unsettled)) {
      const uint32_t left = unsettled | search.moving | search.finish(sums, sloped);
      *m = search.m;
      *sum = search.sum;
      return {left & wanted, bits(doubtful.found) & wanted & ~sloped};
    }
  }
}

// The same for lanes of any strength; y of the lanes that are not wanted is undefined.
template <class Powers>
inline UnsureRows lane_powers(const Vec<float>* x, int count, const Powers& powers, const int* integers,
                              uint32_t wanted, Vec<float>* m, Vec<float>* sum, Vec<float>* y) {
  UnsureRows unsure{};
  Vec<float> terms_r[max_candidates];
  with_terms<float>(powers, integers, wanted, [&](const auto& terms, uint32_t chosen) {
    Vec<float> root = *m, total = *sum;
    unsure |= settle_lanes(x, count, powers, terms, chosen, &root, &total, terms_r);
    const Where<float> own = from_bits<float>(chosen);
    *m = select(own, root, *m);
    *sum = select(own, total, *sum);
    for (int k = 0; k < count; ++k) y[k] = select(own, terms_r[k], y[k]);
  });
  return unsure;
}

}  // namespace regmax::REGMAX_ISA
