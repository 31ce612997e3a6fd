// fusedmax: pool neighbours by total variation, then project on the simplex (algorithms/total_variation.hpp).
//
// The cut. Pooling changes a score by at most 2 lam and lowers the threshold by at most 2 lam, so a score at
// or below tau_sparsemax - 4 lam is in no level set above tau. Its only effect is that the edges to the
// candidates beside it pull with their full lam: chains of adjacent candidates are then independent.
//
// Pruning. The support maximises sum (x_i - tau) - lam (number of its ends) over sets of positions, where tau
// >= tau_sparsemax - 2 lam. Removing scores at or below tau from one end of a segment saves as many edges as it
// costs, so they are not in the support unless higher scores, or the row's ends, lie on both sides of them. A candidate
// without another beside it has two edges of its own, unless it is at an end of the row: it has no weight at or below
// tau + 2 lam, hence none at or below tau_sparsemax.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "algorithms/lane_chains.hpp"
#include "algorithms/lane_group_weights.hpp"
#include "algorithms/total_variation.hpp"
#include "mappings/fusedmax_whole.hpp"
#include "mappings/products.hpp"
#include "simd/prefix_sums.hpp"

namespace regmax::REGMAX_ISA {

struct Fusedmax : HasLam, PenalisedNorm<Fusedmax> {
  static constexpr bool on_simplex = true;
  static constexpr Joins joins = Joins::neighbours;

  // --- Lane tier ---
  static bool fits_vectors(double lam) { return lam <= 1e6; }  // sums in float do not overflow
  static double cut_slack(double lam) { return 4 * lam; }
  static double prune_slack(double lam) { return 2 * lam; }
  static constexpr int64_t least_screened = least_screened_row;
  // With a larger lam float rows go to the level tier; others would not be accurate in the arithmetic of T.
  template <class T>
  static constexpr T most_lane_theta = sizeof(T) == sizeof(float) ? T(most_lane_lam) : T(1);

  template <class T>
  class Lanes {
   public:
    Vec<T> cut(const Vec<T>* maxima, const LaneProblem<T>& p) {
      store<T>(slack_, p.theta * 2);
      return maxima_threshold<T>(maxima) - p.theta * 4;
    }

    // A deleted score may separate scores that are neighbours: then nothing is pruned.
    PruningCut<T> row_cut(int r, T cut, T gamma, bool may_have_deleted) const {
      const T slack = may_have_deleted ? T(0) : gamma * slack_[r];
      return {cut, cut + slack, cut + 2 * slack};
    }

    // False for rows that are better solved whole, and for rows in which a neighbour of a candidate is -inf:
    // deletion changes adjacency.
    bool add_row(int r, const ScreenedRow<T>& row) {
      if (whole<T> != Whole::no && row.count == row.length && row.count > long_chain) return false;
      const Adjacency a = find_adjacency(row.words, row.length, row.count);
      adjacent_[r] = static_cast<Int<T>>(a.adjacent);
      left_edge_[r] = static_cast<Int<T>>(a.left_edge);
      right_edge_[r] = static_cast<Int<T>>(a.right_edge);
      return !(row.may_have_deleted && touches_deleted(row));
    }

    uint32_t solve(LaneProblem<T>& p, Vec<T>* y) {
      const IntVec<T> left = load_integers<T>(left_edge_), right = load_integers<T>(right_edge_);
      const Vec<T> lam = p.theta;
      Vec<T> x[max_candidates], z[max_candidates];
      for (int k = 0; k < p.count; ++k) {
        x[k] = add_where(has_bit(left, k), p.x[k], -lam);
        x[k] = add_where(has_bit(right, k), x[k], -lam);
      }
      LaneChains<T> chains(x, p.count, load_integers<T>(adjacent_), lam);
      chains.pool(z);
      const Vec<T> size = lam * 4 - p.cuts;  // of scores less lam
      doubtful_ = chains.find_doubtful(z, lane_doubt<T>(size) * 2) | lane_support<T>(z, p.count, y, size);
      Vec<T> lowest{}, largest{};
      for (int k = 0; k < p.count; ++k) {
        lowest = select(greater(y[k], Vec<T>{}), smaller(p.x[k], lowest), lowest);
        largest = larger(largest, y[k]);
      }
      // Each lane by itself: its weights do not depend on the other rows.
      const Where<T> deep = greater(larger(-lowest, lam), largest * splat(plain_depth<T>));
      GroupedCandidates<T> segments;
      if (bits(deep)) find_segments(p, z, y, &segments);
      lane_settle<T>(y, p.count);
      if (bits(deep)) lane_group_weights(segments, deep, y);
      return doubtful_ | bits(greater(-lowest, largest * splat(most_depth<T>)));
    }

    // The lanes in which rounding may have decided: the whole-row tier would leave these rows, too.
    uint32_t doubtful_lanes() const { return doubtful_; }

    // Adjacent candidates of equal weight.
    uint64_t joined(int r, const T* values) const {
      uint64_t same = 0;
      for (int k = 0; k < max_candidates; k += lanes<T>)
        same |= static_cast<uint64_t>(bits(equal(load(values + k), load(values + k - 1)))) << k;
      return same & static_cast<uint64_t>(adjacent_[r]);
    }

   private:
    // The segments of pooled scores z, with weight if y > 0. A segment is pulled down by a lower one beside it and by a
    // neighbour that is no candidate, and up by a higher one.
    void find_segments(const LaneProblem<T>& p, const Vec<T>* z, const Vec<T>* y, GroupedCandidates<T>* g) const {
      const IntVec<T> adjacent = load_integers<T>(adjacent_);
      const IntVec<T> left = load_integers<T>(left_edge_), right = load_integers<T>(right_edge_);
      const Vec<T> zero{}, one = splat(T(1));
      g->x = p.x, g->count = p.count, g->lam = p.theta;
      for (int k = 0; k < p.count; ++k) {
        g->inside[k] = greater(y[k], zero);
        g->joined[k] = Where<T>{};
        g->pulls[k] = add_where(has_bit(left, k), add_where(has_bit(right, k), zero, -one), -one);
        if (k == 0) continue;
        const Where<T> edge = has_bit(adjacent, k);
        g->joined[k] = edge & equal(z[k], z[k - 1]);
        const Vec<T> down = add_where(edge & greater(z[k], z[k - 1]), zero, -one);
        const Vec<T> pull = add_where(edge & greater(z[k - 1], z[k]), down, one);
        g->pulls[k] += pull;
        g->pulls[k - 1] -= pull;
      }
    }

    // Whether a position next to a candidate, but not one itself, holds -inf.
    static bool touches_deleted(const ScreenedRow<T>& row) {
      constexpr T lowest = std::numeric_limits<T>::lowest();
      uint64_t carry = 0;
      bool found = false;
      for (int64_t i = 0; i < words_of(row.length); ++i) {
        const uint64_t word = row.words[i];
        const uint64_t next = i + 1 < words_of(row.length) ? row.words[i + 1] : 0;
        uint64_t beside = ((word << 1 | carry) | (word >> 1 | next << 63)) & ~word;
        for (; beside; beside &= beside - 1) {
          const int64_t place = 64 * i + __builtin_ctzll(beside);
          found |= place < row.length && row.x[place] < lowest;
        }
        carry = word >> 63;
      }
      return found;
    }

    uint32_t doubtful_ = 0;
    T slack_[lanes<T>] = {};
    Int<T> adjacent_[lanes<T>] = {}, left_edge_[lanes<T>] = {}, right_edge_[lanes<T>] = {};
  };

  // --- Whole-row tier, in float32 ---
  template <class T>
  static constexpr Whole whole = sizeof(T) == sizeof(float) ? Whole::by_segments : Whole::no;
  static constexpr int64_t whole_first = 0;
  template <class T>
  using Segments = WholeSegments;

  // --- Scalar tier ---
  template <class T>
  static void map(ScalarRow<T>& row, double lam) {
    if (lam == 0) return row.map_sparsemax();
    if (is_one_segment(row, lam)) return row.spread_evenly();
    row.choose_above(-1);
    const double tau = simplex_threshold(row.w.x, row.count, row.w.space);
    row.choose_above(tau - 4 * lam - doubt(row.m, 1 + lam));
    solve(row, lam);
  }
  // The same if the candidates, which may be all scores, are chosen already.
  template <class T>
  static void map_known(ScalarRow<T>& row, double lam) {
    if (row.count == row.m && is_one_segment(row, lam)) return row.spread_evenly();
    solve(row, lam);
  }

  // --- Jacobian product ---
  using Product = CentredProduct;
  static constexpr int64_t product_whole_first = whole_first_joined_product;
  static bool fits_products(double lam, bool has_joined) { return has_joined && lam != 0; }

  template <class T>
  static void average_lanes(const Vec<T>*, Vec<T>* v, int count, IntVec<T> joined) {
    const Vec<T> one = splat(T(1));
    Vec<T> sum{}, size{}, mean{};
    Vec<T> sizes[max_candidates];
    for (int k = 0; k < count; ++k) {  // prefix sums in each segment ...
      const Where<T> goes_on = has_bit(joined, k);
      sum = v[k] = add_where(goes_on, v[k], sum);
      size = sizes[k] = add_where(goes_on, one, size);
    }
    for (int k = count - 1; k >= 0; --k) {  // ... whose last one is copied backwards
      const Vec<T> last = v[k] / sizes[k];
      mean = k + 1 < count ? select(has_bit(joined, k + 1), mean, last) : last;
      v[k] = mean;
    }
  }
  template <class T>
  static bool average_few(const JoinedPositions& joined, const T*, T* v) {
    return joined.average_segments(v);
  }

  // Rows with many joined weights, by prefix sums. False if a segment spans deleted positions.
  template <class T>
  static bool multiply_whole(const T*, const T* v, const uint64_t* support, const uint64_t* joined, int64_t d, T scale,
                             T* out, Workspace& w) {
    uint64_t before = 0;
    for (int64_t i = 0; i < words_of(d); ++i) {
      if (joined[i] & ~(support[i] << 1 | before)) return false;
      before = support[i] >> 63;
    }
    double* const sums = w.x;
    prefix_sums(v, d, sums, [&](Vec<double> values, int64_t i) {
      const uint32_t chosen = lanes_of<double>(support[i / 64], static_cast<int>(i % 64));
      return select(from_bits<double>(chosen), values, Vec<double>{});
    });
    write_means(sums, sums[d] / static_cast<double>(count_bits(support, d)), support, joined, d, scale, out);
    return true;
  }

  // A single segment has weight one in total, whatever the scores: J is zero.
  template <class T>
  static bool is_constant(const CompactedRow<T>& row) {
    if (row.y[0] != row.y[row.m - 1]) return false;
    return std::all_of(row.joined + 1, row.joined + row.m, [](uint8_t joined) { return joined & shares_segment; });
  }
  template <class T>
  static void multiply(const CompactedRow<T>& row, double lam, Workspace& w) {
    widen(row, w);
    subtract_mean(w.v, row.m);
    if (lam != 0) average_segments(w.v, row.m, row.joined);
    narrow(row, w);
  }

  // --- Gradients of strengths ---
  template <class T>
  static double strength_grad(const CompactedRow<T>& row, double, Workspace&) {
    return total_variation_grad(row);
  }
  // Both of a row without deleted positions.
  template <class T>
  static StrengthGrad whole_row_grads(const T* y, const T* u, const uint64_t* support, int64_t d, double lam) {
    const RowSums sums = whole_row_sums(y, u, support, d);
    return {sums.total_variation_grad, lam * sums.total_variation_grad - sums.inner};
  }
  // lam's gradient, one row per lane: at most REGMAX_LISTED weights, zeros after them, and no deleted positions.
  template <class T>
  class LaneStrengths {
   public:
    void add_row(int r, const uint64_t* support, int64_t d, int count) {
      const Adjacency a = find_adjacency(support, d, count);
      adjacent_[r] = static_cast<Int<T>>(a.adjacent);
      left_edge_[r] = static_cast<Int<T>>(a.left_edge);
      right_edge_[r] = static_cast<Int<T>>(a.right_edge);
    }

    void sum(const Vec<T>* y, const Vec<T>* u, int count, double* sums) const {
      const IntVec<T> adjacent = load_integers<T>(adjacent_);
      const IntVec<T> left = load_integers<T>(left_edge_), right = load_integers<T>(right_edge_);
      DoubleSum<T> total;
      for (int k = 0; k < count; ++k) {
        Vec<T> edges = add_where(has_bit(right, k), add_where(has_bit(left, k), Vec<T>{}, u[k]), u[k]);
        if (k > 0) {
          const Where<T> inner = has_bit(adjacent, k);
          const Vec<T> change = u[k] - u[k - 1];
          edges = add_where(inner & greater(y[k], y[k - 1]), edges, change);
          edges = add_where(inner & greater(y[k - 1], y[k]), edges, -change);
        }
        total.add(-edges);
      }
      total.write(sums);
    }

   private:
    Int<T> adjacent_[lanes<T>] = {}, left_edge_[lanes<T>] = {}, right_edge_[lanes<T>] = {};
  };

  template <class T>
  static OmegaValue omega(const CompactedRow<T>& row, double lam, int64_t, Workspace&) {
    const double steps = total_variation(row);
    return {dot(row.y, row.y, row.m) / 2 + lam * steps, steps};
  }

 private:
  // Pools the candidates and projects them.
  template <class T>
  static void solve(ScalarRow<T>& row, double lam) {
    const double margin = doubt(row.count, 1 + 4 * lam);
    bool is_sure = pool_chains(row, lam, margin);
    double* const z = row.w.v;
    double top = z[0];
    for (int64_t k = 1; k < row.count; ++k) top = larger(top, z[k]);
    for (int64_t k = 0; k < row.count; ++k) z[k] -= top;
    is_sure = row.project(z, margin) && is_sure;
    if (row.is_final(is_sure)) return;
    find_edges(row, row.w.joined);
    row.restore_scores();
    row.solve_again(is_sure, lam,
                    [&](auto& exact) { return exact.pool_chains([&](int64_t k) { return row.w.joined[k]; }); });
  }

  // No partial sum of x - mean comes near lam: the whole row is one segment.
  template <class T>
  static bool is_one_segment(const ScalarRow<T>& row, double lam) {
    const double bound = lam * row.gamma;
    double total[1] = {};
    sum_terms<T>(row.m, total,
                 [&](int64_t i, Vec<T>* s) { s[0] += load_left(row.x + i, row.m - i, row.top) - splat(row.top); });
    const double mean = total[0] / static_cast<double>(row.m);
    double sum = 0, largest = 0, smallest = 0, size = 0;
    for (int64_t i = 0; i + 1 < row.m; ++i) {
      const double score = static_cast<double>(row.x[i] - row.top) - mean;
      sum += score;
      size += std::fabs(score);
      largest = larger(sum, largest);
      smallest = smaller(sum, smallest);
      if (i % 64 == 63 && (largest > bound || smallest < -bound)) return false;
    }
    // Scores less the maximum are rounded to T, and so is the mean.
    const double margin = 4 * static_cast<double>(rounding<T>) * static_cast<double>(row.m) * (size - mean);
    return largest < bound - margin && smallest > margin - bound;
  }

  // Calls visit(begin, end, last) for every chain of adjacent candidates begin to end, the last of which is
  // at position `last`.
  template <class T, class Visit>
  static void for_chains(const ScalarRow<T>& row, const Visit& visit) {
    int64_t begin = 0, k = 0, before = -2;
    for (int64_t word = 0; word < words_of(row.m); ++word) {
      for (uint64_t rest = row.w.chosen[word]; rest; rest &= rest - 1, ++k) {
        const int64_t i = word * 64 + __builtin_ctzll(rest);
        if (k > 0 && i != before + 1) {
          visit(begin, k, before);
          begin = k;
        }
        before = i;
      }
    }
    visit(begin, k, before);
  }

  // Pools every chain into w.v; returns whether rounding decided nothing.
  template <class T>
  static bool pool_chains(ScalarRow<T>& row, double lam, double margin) {
    bool is_sure = true;
    Workspace& w = row.w;
    for_chains(row, [&](int64_t begin, int64_t end, int64_t last) {
      if (last >= end - begin) w.x[begin] -= lam;
      if (last + 1 < row.m) w.x[end - 1] -= lam;
      is_sure &= prox_tv(w.x + begin, end - begin, lam, margin, TvSpace(w.pooling, end - begin), w.v + begin, w.joined,
                         w.rises);
    });
    return is_sure;
  }

  // The edges of the chains, as ExactRow::pool_chains reads them.
  template <class T>
  static void find_edges(const ScalarRow<T>& row, uint8_t* edges) {
    std::fill_n(edges, row.count, uint8_t{0});
    for_chains(row, [&](int64_t begin, int64_t end, int64_t last) {
      edges[begin] = static_cast<uint8_t>(1 | (last >= end - begin ? 2 : 0));
      edges[end - 1] |= static_cast<uint8_t>(last + 1 < row.m ? 4 : 0);
    });
  }

  // Each segment's mean minus the mean of all, times `scale`; zeros off the support. A segment ends where the
  // next begins and where the support ends.
  template <class T>
  static void write_means(const double* sums, double mean, const uint64_t* support, const uint64_t* joined, int64_t d,
                          T scale, T* out) {
    int64_t begin = 0;
    uint64_t before = 0;
    bool inside = false;
    const auto finish = [&](int64_t end) {
      const double value = (sums[end] - sums[begin]) / static_cast<double>(end - begin) - mean;
      fill_run(out, begin, end, d, inside ? static_cast<T>(value) * scale : T(0));
      begin = end;
    };
    for (int64_t word = 0; word < words_of(d); ++word) {
      const uint64_t has = support[word], had = has << 1 | before;
      before = has >> 63;
      for (uint64_t edges = (has & ~joined[word]) | (had & ~has); edges; edges &= edges - 1) {
        const int64_t end = word * 64 + __builtin_ctzll(edges);
        if (end >= d) break;
        if (end > begin) finish(end);
        inside = has & edges & -edges;
      }
    }
    finish(d);
  }
};

}  // namespace regmax::REGMAX_ISA
