// oscarmax on few candidates, one row per lane (isotonic.hpp has the derivation).
#pragma once

#include <cstdint>

#include "lane_mappings.hpp"

namespace regmax::REGMAX_ISA {

struct Comparator {
  int a, b;
};

// Batcher's merge exchange (Knuth, Algorithm 5.2.2M) as a list of comparators, at compile time.
template <int n>
struct Network {
  Comparator list[n * n / 2] = {};
  int length = 0;

  constexpr Network() {
    for (int p = n / 2; p > 0; p /= 2) {
      for (int q = n / 2, r = 0, d = p;; d = q - p, q /= 2, r = p) {
        for (int i = 0; i + d < n; ++i) {
          if ((i & p) == r) list[length++] = {i, i + d};
        }
        if (q == p) break;
      }
    }
  }
};

template <class V>
inline void put_larger_first(V& a, V& b) {
  const V large = larger(a, b);
  b = smaller(a, b);
  a = large;
}

template <int n, class V, std::size_t... I>
inline void run_network(V* x, std::index_sequence<I...>) {
  constexpr Network<n> network;
  (put_larger_first(x[network.list[I].a], x[network.list[I].b]), ...);
}

// Sorts n columns, decreasing, those from `count` on being `nothing`.
template <int n, class T>
inline void sort_columns(const Vec<T>* x, int count, Vec<T>* sorted) {
  Vec<T> v[n];
  for (int k = 0; k < n; ++k) v[k] = k < count ? x[k] : splat(nothing<T>);
  constexpr Network<n> network;
  run_network<n>(v, std::make_index_sequence<network.length>());
  for (int k = 0; k < n; ++k) sorted[k] = v[k];
}

template <class T>
inline void sort_lanes(const Vec<T>* x, int count, Vec<T>* sorted) {
  if (count <= 8) return sort_columns<8, T>(x, count, sorted);
  if (count <= 16) return sort_columns<16, T>(x, count, sorted);
  return sort_columns<32, T>(x, count, sorted);
}

// The prefix m* of the sorted scores with the largest A(m). Pooled scores and tau are kept without the mean
// of its weights, lam (m* + 1) / 2, so that they are no larger than the scores.
template <class T>
struct LanePrefix {
  Vec<T> length, tau, centre;
  int longest;
};

template <class T>
inline LanePrefix<T> lane_best_prefix(const Vec<T>* sorted, int count, Vec<T> lam) {
  Vec<T> sum{}, length{}, mean{}, best = splat(nothing<T>);
  int longest = 0;
  for (int k = 1; k <= count; ++k) {
    sum += sorted[k - 1];
    const Vec<T> rest = (sum - splat(T(1))) * one_over<T>(k);
    const Vec<T> bound = rest + lam * splat(T(k + 1) / 2);
    const Where<T> worse = greater(best, bound);
    length = select(worse, length, splat(T(k)));
    mean = select(worse, mean, rest);
    best = larger(best, bound);
    if (bits(worse) != all_lanes<T>) longest = k;
  }
  return {length, mean, lam * (length + splat(T(1))) * splat(T(0.5)), longest};
}

// Pools x_(k) + lam k over the first m* scores: z are the slopes of the least concave majorant of their
// partial sums. From a vertex a, the next one is the b with the steepest mean over (a, b], the last such b on
// ties.
template <class T>
inline void lane_pool_sorted(const Vec<T>* sorted, const LanePrefix<T>& prefix, Vec<T> lam, Vec<T>* z) {
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
      }
      vertex = select(starts, end, vertex);
      slope = select(starts, steepest, slope);
    }
    z[a] = slope;
  }
}

// Gives weights that are equal, which are neighbours where they decrease, a sign.
template <class T>
inline void lane_mark_equal(Vec<T>* sorted, int count) {
  Where<T> before{};
  for (int a = 0; a < count; ++a) {
    const Where<T> same = a + 1 < count ? equal(sorted[a], sorted[a + 1]) : Where<T>{};
    sorted[a] = select(same | before, -sorted[a], sorted[a]);
    before = same;
  }
}

// A mapping's by-products: A(m*), for the certificate that no other score matters, and a bit for every
// candidate whose weight is another's too.
template <class T>
struct OscarFacts {
  Vec<T> tau;
  IntVec<T> joined;
};

template <class T>
inline OscarFacts<T> lane_oscarmax(const Vec<T>* x, int count, Vec<T> lam, Vec<T>* y) {
  const Vec<T> zero{};
  Vec<T> sorted[max_candidates], w[max_candidates];
  sort_lanes<T>(x, count, sorted);
  const LanePrefix<T> prefix = lane_best_prefix<T>(sorted, count, lam);
  lane_pool_sorted<T>(sorted, prefix, lam, w);
  for (int a = 0; a < prefix.longest; ++a) {
    const Where<T> inside = greater(prefix.length, splat(T(a)));
    w[a] = select(inside, larger(w[a] - prefix.tau, zero), zero);
    if (a > 0) w[a] = smaller(w[a], w[a - 1]);  // rounding may have put neighbours out of order
  }
  lane_settle<T>(w, prefix.longest);
  lane_mark_equal<T>(w, prefix.longest);
  // Equal scores are pooled, so a score's value says which weight is its own: no permutation to carry along.
  for (int k = 0; k < count; ++k) y[k] = zero;
  for (int a = 0; a < prefix.longest; ++a) {
    const Where<T> inside = greater(prefix.length, splat(T(a)));
    for (int k = 0; k < count; ++k) y[k] = select(inside & equal(x[k], sorted[a]), w[a], y[k]);
  }
  IntVec<T> joined{};
  for (int k = 0; k < count; ++k) {
    const Where<T> marked = greater(zero, y[k]);
    joined = add_where(marked, joined, IntVec<T>{} + (Int<T>{1} << k));
    y[k] = larger(select(marked, -y[k], y[k]), zero);  // zeros without sign
  }
  return {prefix.tau + prefix.centre, joined};
}

}  // namespace regmax::REGMAX_ISA
