// The largest values of prox_oscar, those that a projection onto the simplex gives weight, one row per lane.
//
// The sizes s = |x|, sorted decreasingly, lose lam (d - k); the isotonic regression of what is left gives the values z,
// which get the signs of x and are zero where z is negative. Let c bound all but the K largest sizes. A block of the
// regression of these K alone is final if its mean is above
//
//     B = c - lam (d - K - 1) / 2 :
//
// the mean of u_k = s_k - lam (d - k) over K < k <= e is at most c - lam (d - (K + 1 + e) / 2) <= B. From the end of
// the last such block on, the partial sums of u stay below a line of slope B, so the least concave function above them
// has the same slopes before it, and slopes of at most B after it. If L sizes are above a lower level c', B may be
//
//     max(c - lam (d - (K + 1 + L) / 2), c' - lam (d - (L + 1 + d) / 2)),
//
// and so on for more levels.
//
// With the threshold tau of the values' projection, all of it is decided if tau >= B and tau > 0: values up to tau,
// also those of sizes that were not looked at, have no weight.
#pragma once

#include "algorithms/lane_isotonic.hpp"
#include "simd/two_parts.hpp"

namespace regmax::REGMAX_ISA {

// How many levels bound the sizes that are not looked at.
constexpr int size_levels = 3;

template <class T>
struct LeadingSizes {
  const Vec<T>* x;  // the candidates of every row, zero after the last
  int count;
  Vec<T> lengths, lam, lam_rest;                   // d, and lam in two parts
  Vec<T> levels[size_levels], above[size_levels];  // c, c', ... and K, L, ...
};

// Writes the values above tau, and zeros; returns the lanes that are not decided.
template <class T>
inline uint32_t lane_leading_values(const LeadingSizes<T>& p, Vec<T>* z) {
  const Vec<T> zero{}, one = splat(T(1)), half = splat(T(0.5)), lam = p.lam, counts = p.above[0];
  Vec<T> sizes[max_candidates], sorted[max_candidates], pooled[max_candidates];
  Where<T> negative[max_candidates];
  sort_sizes<T>(p.x, p.count, sizes, negative);
  // Relative to the largest, and to the first weight, lam (d - 1).
  const Vec<T> top = sizes[0];
  for (int a = 0; a < p.count; ++a) sorted[a] = sizes[a] - top;
  LanePrefix<T> prefix{counts, zero, lam, zero, p.count};
  Vec<T> sum = -one, size{}, tau = splat(nothing<T>);
  Vec<T> length{};
  int longest = 0;
  // Each tau is a lower bound: values up to it are not wanted.
  lane_pool_sorted<T>(sorted, prefix, lam, pooled, [&](int a) {
    const Where<T> inside = greater(counts, splat(T(a))), takes = inside & ~negative[a];
    sum = add_where(takes, sum, pooled[a]);
    size = add_where(takes, size, one);
    tau = select(takes, larger(sum / size, tau), tau);
    const Where<T> leads = inside & greater(pooled[a], tau);
    if (bits(leads)) longest = a + 1;
    return longest == a + 1;
  });
  Vec<T> bound = splat(nothing<T>);
  for (int j = 0; j < size_levels; ++j) {
    const Vec<T> end = j + 1 < size_levels ? p.above[j + 1] : p.lengths;
    bound = larger((p.levels[j] - top) + lam * ((p.above[j] + one + end) * half - one), bound);
  }
  const Vec<T> base = top - lam * (p.lengths - one), size_margin = lane_doubt<T>(top + lam * p.lengths);
  const Where<T> above = greater(tau, bound + size_margin) | equal(counts, p.lengths);
  const Where<T> decided = above & greater(tau + base, size_margin);
  uint32_t unsure = ~bits(decided);

  // Rounded values must have weight if these have: none may be close to tau.
  for (int a = 0; a <= longest && a < p.count; ++a) {
    const Where<T> inside = greater(counts, splat(T(a))), leads = inside & greater(pooled[a], tau);
    length = add_where(leads, length, one);
    unsure |= bits(inside) & doubtful<T>(absolute<T>(pooled[a] - tau), size_margin);
  }
  prefix = {length, tau, lam, splat(-nothing<T>), longest};
  const Vec<T> margin = lane_doubt<T>((top - p.levels[0]) + lam * splat(T(2 * max_candidates)));
  unsure |= lane_doubtful_blocks<T>(sorted, prefix, lam, pooled, margin);

  // The means again, from the sizes themselves: sums in two parts, whose last one in a block is copied backwards.
  TwoParts<T> sums[max_candidates], block;
  Where<T> joined[max_candidates];
  Vec<T> members[max_candidates], member{}, value{};
  for (int a = 0; a < longest; ++a) {
    const Where<T> goes_on = joined[a] = a > 0 ? equal(pooled[a], pooled[a - 1]) : Where<T>{};
    const Vec<T> weight = splat(T(a + 1)) - p.lengths;
    block = {select(goes_on, block.first, zero), select(goes_on, block.rest, zero)};
    block.add(sizes[a]);
    block.add_product(weight, lam);
    block.rest += weight * p.lam_rest;
    members[a] = member = add_where(goes_on, one, member);
    sums[a] = block;
  }
  for (int a = longest - 1; a >= 0; --a) {
    const TwoParts<T> mean = sums[a] / members[a];
    const Vec<T> last = mean.first + mean.rest;
    value = a + 1 < longest ? select(joined[a + 1], value, last) : last;
    pooled[a] = value;
  }
  // Equal sizes are pooled, so a size tells its value.
  for (int a = 0; a < longest; ++a) sizes[a] = select(greater(length, splat(T(a))), sizes[a], -one);
  for (int k = 0; k < p.count; ++k) {
    const Vec<T> own = absolute<T>(p.x[k]);
    Vec<T> size_value{};
    for (int a = 0; a < longest; ++a) size_value = select(equal(own, sizes[a]), pooled[a], size_value);
    z[k] = select(greater(zero, p.x[k]), zero - size_value, size_value);
  }
  return unsure & all_lanes<T>;
}

}  // namespace regmax::REGMAX_ISA
