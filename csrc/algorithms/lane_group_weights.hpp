// The weights of groups of candidates that share one value, segments or clusters, one row per lane.
//
// A group's weight is the mean of x_k + n_k lam over it less tau, where n_k counts how often the penalty pulls
// candidate k up, and tau makes the weights sum to one. Pooling decides in T which candidates form a group. Its means
// are of numbers that may be several times as large as the weights, whose last digits they have lost; here sums have
// two parts.
#pragma once

#include "runtime/tuning.hpp"
#include "simd/two_parts.hpp"

namespace regmax::REGMAX_ISA {

// How far the scores with weight may be below the largest, as a multiple of the largest weight: up to the first,
// weights from sums in T are off by less than 4 units in the last place of the largest; above the second, scores
// relative to the largest have lost too many digits.
template <class T>
constexpr T plain_depth = T(1.5);
template <class T>
constexpr T most_depth = T(3);

template <class T>
struct GroupedCandidates {
  const Vec<T>* x;
  int count;
  Vec<T> lam;
  Vec<T> pulls[max_candidates];
  Where<T> joined[max_candidates];  // in the group of the candidate before
  Where<T> inside[max_candidates];  // with weight; all of a group or none
};

// Replaces the weights of the `wanted` lanes.
template <class T>
__attribute__((noinline)) inline void lane_group_weights(const GroupedCandidates<T>& g, Where<T> wanted, Vec<T>* y) {
  const Vec<T> zero{}, one = splat(T(1));
  TwoParts<T> total{-one, zero}, group, sums[max_candidates];
  Vec<T> support{}, size{}, sizes[max_candidates];
  const auto close = [&](Where<T> where) {
    total.add(select(where, group.first, zero));
    total.rest += select(where, group.rest, zero);
  };
  for (int k = 0; k < g.count; ++k) {  // prefix sums in each group ...
    if (k > 0) close(g.inside[k - 1] & ~g.joined[k]);
    group = {select(g.joined[k], group.first, zero), select(g.joined[k], group.rest, zero)};
    group.add(g.x[k]);
    group.add_product(g.pulls[k], g.lam);
    support = add_where(g.inside[k], support, one);
    size = add_where(g.joined[k], one, size);
    sums[k] = group;
    sizes[k] = size;
  }
  close(g.inside[g.count - 1]);
  const TwoParts<T> tau = total / support;
  Vec<T> weight{};
  for (int k = g.count - 1; k >= 0; --k) {  // ... whose last one is copied backwards
    const Vec<T> last = larger(difference<T>(sums[k] / sizes[k], tau), zero);
    weight = k + 1 < g.count ? select(g.joined[k + 1], weight, last) : last;
    y[k] = select(wanted, select(g.inside[k], weight, zero), y[k]);
  }
}

}  // namespace regmax::REGMAX_ISA
