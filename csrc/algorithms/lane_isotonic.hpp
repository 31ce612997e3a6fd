// Sorted pooling on few candidates, one row per lane (isotonic.hpp has the derivation).
#pragma once

#include <cstdint>

#include "algorithms/lane_simplex.hpp"
#include "simd/lane_sorting.hpp"

namespace regmax::REGMAX_ISA {

// The prefix m* of the sorted scores with the largest A(m). Pooled scores and tau leave out the mean of its
// penalty weights, lam (m* + 1) / 2, so that they are no larger than the scores.
template <class T>
struct LanePrefix {
  Vec<T> length, tau, centre;
  Vec<T> lead;  // A(m*) less the largest A(m) of a longer prefix
  int longest;
};

template <class T>
inline LanePrefix<T> lane_best_prefix(const Vec<T>* sorted, int count, Vec<T> lam) {
  Vec<T> sum{}, length{}, mean{}, best = splat(nothing<T>), after = best;
  int longest = 0;
  for (int k = 1; k <= count; ++k) {
    sum += sorted[k - 1];
    const Vec<T> rest = (sum - splat(T(1))) * one_over<T>(k);
    const Vec<T> bound = rest + lam * splat(T(k + 1) / 2);
    const Where<T> worse = greater(best, bound);
    length = select(worse, length, splat(T(k)));
    mean = select(worse, mean, rest);
    after = select(worse, larger(after, bound), splat(nothing<T>));
    best = larger(best, bound);
    if (bits(worse) != all_lanes<T>) longest = k;
  }
  return {length, mean, lam * (length + splat(T(1))) * splat(T(0.5)), best - after, longest};
}

// Pools x_(k) + lam k over the first m* scores: z are the slopes of the least concave majorant of their
// partial sums. From a vertex a, the next one is the b with the steepest mean over (a, b], the last one on
// ties. The search ends where no further score is above that mean. goes_on(a) says whether numbers after z[a] are
// wanted.
template <class T, class GoesOn>
REGMAX_INLINE void lane_pool_sorted(const Vec<T>* sorted, const LanePrefix<T>& prefix, Vec<T> lam, Vec<T>* z,
                                    const GoesOn& goes_on) {
  const Vec<T> most_pull = lam * prefix.length - prefix.centre;
  Vec<T> vertex{}, slope{};
  for (int a = 0; a < prefix.longest; ++a) {
    const Where<T> starts = equal(vertex, splat(T(a)));
    if (bits(starts)) {
      Vec<T> steepest = splat(nothing<T>), end = splat(T(a + 1)), sum{};
      for (int b = a + 1; b <= prefix.longest; ++b) {
        sum += sorted[b - 1] + (lam * splat(T(b)) - prefix.centre);
        const Vec<T> mean = sum * one_over<T>(b - a);
        const Where<T> takes = ~greater(steepest, mean) & ~greater(splat(T(b)), prefix.length);
        end = select(takes, splat(T(b)), end);
        steepest = select(takes, mean, steepest);
        if ((b - a) % 4 == 0 && b < prefix.longest) {
          const Where<T> steeper = starts & greater(sorted[b] + most_pull, steepest);
          if (!bits(steeper)) break;
        }
      }
      vertex = select(starts, end, vertex);
      slope = select(starts, steepest, slope);
    }
    z[a] = slope;
    if (!goes_on(a)) return;
  }
}

template <class T>
inline void lane_pool_sorted(const Vec<T>* sorted, const LanePrefix<T>& prefix, Vec<T> lam, Vec<T>* z) {
  lane_pool_sorted<T>(sorted, prefix, lam, z, [](int) { return true; });
}

// The weights of the blocks that the pooled scores z form: the means of x_(k) + lam k less tau. z itself is a mean of
// numbers that are larger than the weights, and has lost their last digits.
template <class T>
inline void lane_block_weights(const Vec<T>* sorted, const LanePrefix<T>& prefix, Vec<T> lam, const Vec<T>* z,
                               Vec<T>* y) {
  const Vec<T> one = splat(T(1)), middle = (prefix.length + one) * splat(T(0.5));
  Vec<T> sum{}, size{}, mean{}, sizes[max_candidates];
  for (int a = 0; a < prefix.longest; ++a) {  // prefix sums in each block ...
    const Where<T> goes_on = a > 0 ? equal(z[a], z[a - 1]) : Where<T>{};
    const Vec<T> term = (sorted[a] - prefix.tau) + lam * (splat(T(a + 1)) - middle);
    sum = y[a] = add_where(goes_on, term, sum);
    size = sizes[a] = add_where(goes_on, one, size);
  }
  for (int a = prefix.longest - 1; a >= 0; --a) {  // ... whose last one is copied backwards
    const Vec<T> last = y[a] / sizes[a];
    mean = y[a] = a + 1 < prefix.longest ? select(equal(z[a], z[a + 1]), mean, last) : last;
  }
}

// The lanes in which rounding may have decided: blocks whose means nearly agree, a block in which a partial sum
// nearly reaches its share of the mean, or a last block with nearly no weight.
template <class T>
inline uint32_t lane_doubtful_blocks(const Vec<T>* sorted, const LanePrefix<T>& prefix, Vec<T> lam, const Vec<T>* z,
                                     Vec<T> margin) {
  Vec<T> excess{}, nearest = prefix.lead;
  for (int a = 0; a < prefix.longest; ++a) {
    excess += sorted[a] + (lam * splat(T(a + 1)) - prefix.centre) - z[a];
    const Vec<T> next = a + 1 < prefix.longest ? z[a + 1] : z[a];
    const Where<T> goes_on = greater(prefix.length, splat(T(a + 1))), falls = greater(z[a], next);
    const Vec<T> gap = select(goes_on, select(falls, z[a] - next, -excess), z[a] - prefix.tau);
    nearest = select(greater(prefix.length, splat(T(a))), smaller(gap, nearest), nearest);
    excess = select(falls, Vec<T>{}, excess);
  }
  return doubtful<T>(nearest, margin);
}

}  // namespace regmax::REGMAX_ISA
