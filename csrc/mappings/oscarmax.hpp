// oscarmax: sort, pool by isotonic regression, project on the simplex (algorithms/isotonic.hpp).
//
// The cut. tau >= tau_sparsemax + lam, but scores close below tau may matter. With K candidates above the cut
// b, and L scores above a lower cut c, neither those between nor those below matter if tau >= b + lam (K + 1
// + L) / 2 and tau >= c + lam (L + 1 + d) / 2: the certificate, tested after solving. Rows that fail are tested again
// with more levels, from b to tau - lam (d + 1), below which nothing matters: the same holds between every two of them.
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/isotonic.hpp"
#include "algorithms/lane_group_weights.hpp"
#include "algorithms/lane_isotonic.hpp"
#include "algorithms/sorted_blocks.hpp"
#include "mappings/products.hpp"
#include "simd/prefix_sums.hpp"

namespace regmax::REGMAX_ISA {

struct Oscarmax : HasLam, PenalisedNorm<Oscarmax> {
  static constexpr bool on_simplex = true;
  static constexpr Joins joins = Joins::anywhere;

  // --- Lane tier ---
  static bool fits_vectors(double lam) { return lam <= 0.125; }  // arithmetic in T stays as accurate as the scores
  static double cut_slack(double lam) { return 0.75 * max_candidates * lam; }
  static constexpr int64_t least_screened = least_screened_oscarmax;

  template <class T>
  class Lanes {
   public:
    Vec<T> cut(const Vec<T>* maxima, const LaneProblem<T>& p) {
      const Vec<T> tau = maxima_threshold<T>(maxima);
      const Vec<T> low = tau - p.theta * (p.lengths + splat(T(max_candidates))) * splat(T(0.5));
      store<T>(low_cut_, low);
      return larger(tau - p.theta * splat(T(0.75) * max_candidates), low);
    }

    Cut<T> row_cut(int, T cut, T, bool) const { return Cut<T>(cut); }

    // False for uniform rows, which the scalar tier recognises.
    bool add_row(int r, const ScreenedRow<T>& row) {
      if (row.count == row.length && is_one_cluster(row.x, row.length, row.top, row.theta, row.gamma)) return false;
      // Too many of them only make the certificate stricter.
      low_count_[r] = static_cast<T>(count_above(row.x, row.length, row.top, row.lowest(low_cut_[r] * row.gamma)));
      rows_[r] = row;
      return true;
    }

    uint32_t solve(LaneProblem<T>& p, Vec<T>* y) {
      const int count = p.count;
      const Vec<T> lam = p.theta, zero{};
      Vec<T> sorted[max_candidates], z[max_candidates], w[max_candidates];
      sort_lanes<T>(p.x, count, sorted);
      const LanePrefix<T> prefix = lane_best_prefix<T>(sorted, count, lam);
      lane_pool_sorted<T>(sorted, prefix, lam, z);
      const Vec<T> margin = lane_doubt<T>(lam * splat(T(2 * max_candidates)) - p.cuts);
      uint32_t unsure = lane_doubtful_blocks<T>(sorted, prefix, lam, z, margin);
      lane_block_weights<T>(sorted, prefix, lam, z, w);
      Vec<T> lowest{};
      for (int a = 0; a < prefix.longest; ++a) {
        const Where<T> inside = greater(prefix.length, splat(T(a)));
        w[a] = select(inside, larger(w[a], zero), zero);
        lowest = select(inside, sorted[a], lowest);
      }
      lane_settle<T>(w, prefix.longest);
      const Where<T> deep = greater(larger(-lowest, lam * prefix.length), w[0] * splat(plain_depth<T>));
      const Where<T> precise = deep | greater(prefix.length, splat(T(few_summed)));
      if (bits(precise)) write_clusters(sorted, prefix, lam, z, precise, w);
      unsure |= bits(greater(-lowest, w[0] * splat(most_depth<T>)));
      for (int a = 1; a < prefix.longest; ++a) w[a] = smaller(w[a], w[a - 1]);  // restores the order after rounding
      mark_equal(w, prefix.longest);
      // Equal scores are pooled, so a score's value tells its weight: no permutation is needed.
      for (int k = 0; k < count; ++k) y[k] = zero;
      for (int a = 0; a < prefix.longest; ++a) {
        const Where<T> inside = greater(prefix.length, splat(T(a)));
        for (int k = 0; k < count; ++k) y[k] = select(inside & equal(p.x[k], sorted[a]), w[a], y[k]);
      }
      read_marks(y, count);
      const Vec<T> tau = prefix.tau + prefix.centre;
      const uint32_t open = bits(greater(least_tau(p) + margin, tau)) & ~unsure;
      return unsure | (open ? undecided(p, open, tau - margin) : 0);
    }

    uint64_t joined(int r, const T*) const { return static_cast<uint64_t>(joined_[r]); }

   private:
    // Weights from sums in T of more numbers than this would have lost digits.
    static constexpr int few_summed = 8;

    // The weights of the clusters that the pooled scores z form, in the lanes of `wanted`: the penalty pulls the k-th
    // largest score up by k lam.
    static void write_clusters(const Vec<T>* sorted, const LanePrefix<T>& prefix, Vec<T> lam, const Vec<T>* z,
                               Where<T> wanted, Vec<T>* w) {
      GroupedCandidates<T> clusters;
      clusters.x = sorted, clusters.count = prefix.longest, clusters.lam = lam;
      for (int a = 0; a < prefix.longest; ++a) {
        clusters.inside[a] = greater(prefix.length, splat(T(a)));
        clusters.joined[a] = a > 0 ? clusters.inside[a] & equal(z[a], z[a - 1]) : Where<T>{};
        clusters.pulls[a] = splat(T(a + 1));
      }
      lane_group_weights(clusters, wanted, w);
    }

    // The least tau with which the candidates decide the row.
    Vec<T> least_tau(const LaneProblem<T>& p) const {
      T counts[lanes<T>];
      for (int r = 0; r < lanes<T>; ++r) counts[r] = static_cast<T>(p.counts[r] + 1);
      const Vec<T> half = p.theta * splat(T(0.5)), low_counts = load(low_count_);
      return larger(p.cuts + half * (load(counts) + low_counts),
                    load(low_cut_) + half * (low_counts + p.lengths + splat(T(1))));
    }

    // The `open` lanes that more levels do not decide either.
    uint32_t undecided(const LaneProblem<T>& p, uint32_t open, Vec<T> tau) const {
      constexpr int levels = certificate_levels;
      uint32_t left = 0;
      for (; open; open &= open - 1) {
        const int r = __builtin_ctz(open);
        if (p.counts[r] == 0) continue;
        const ScreenedRow<T>& row = rows_[r];
        const T bottom = tau[r] - row.theta * static_cast<T>(row.length + 1);
        T bounds[levels], lowest[levels];
        int64_t counts[levels + 1];  // of the scores above each bound; below the last one is the rest of the row
        for (int j = 0; j < levels; ++j) {
          bounds[j] = p.cuts[r] + (bottom < p.cuts[r] ? bottom - p.cuts[r] : T(0)) * (T(j) / (levels - 1));
          lowest[j] = row.lowest(bounds[j] * row.gamma);
        }
        count_above<levels>(row.x, row.length, row.top, lowest, counts);
        counts[0] = p.counts[r];
        counts[levels] = row.length;
        bool decided = true;
        for (int j = 0; j < levels; ++j)
          decided &= bounds[j] + row.theta * (static_cast<T>(counts[j] + counts[j + 1] + 1) / 2) <= tau[r];
        left |= static_cast<uint32_t>(!decided) << r;
      }
      return left;
    }

    // Equal weights, which are neighbours in sorted order, get a sign; read_marks turns it into bits.
    static void mark_equal(Vec<T>* sorted, int count) {
      Where<T> before{};
      for (int a = 0; a < count; ++a) {
        const Where<T> same = a + 1 < count ? equal(sorted[a], sorted[a + 1]) : Where<T>{};
        sorted[a] = select(same | before, -sorted[a], sorted[a]);
        before = same;
      }
    }

    void read_marks(Vec<T>* y, int count) {
      const Vec<T> zero{};
      IntVec<T> joined{};
      for (int k = 0; k < count; ++k) {
        const Where<T> marked = greater(zero, y[k]);
        joined = add_where(marked, joined, IntVec<T>{} + (Int<T>{1} << k));
        y[k] = larger(select(marked, -y[k], y[k]), zero);  // no negative zeros
      }
      store_integers<T>(joined_, joined);
    }

    T low_cut_[lanes<T>] = {}, low_count_[lanes<T>] = {};
    ScreenedRow<T> rows_[lanes<T>] = {};
    Int<T> joined_[lanes<T>] = {};
  };

  // --- Whole-row tier: none; sorting a whole row is the scalar tier's ---
  template <class T>
  static constexpr Whole whole = Whole::no;
  static constexpr int64_t whole_first = 0;

  // --- Scalar tier ---
  template <class T>
  static void map(ScalarRow<T>& row, double lam) {
    if (lam == 0) return row.map_sparsemax();
    if (is_one_cluster(row.x, row.m, row.top, lam, row.gamma)) return row.spread_evenly();
    for (double bound = -1;;) {
      row.choose_above(bound);
      const double tau = try_candidates(row, lam, bound);
      if (tau == HUGE_VAL) return;
      bound = tau - lam * (static_cast<double>(row.m) + 1) - 4 * margin_of(row, lam);
    }
  }

  // --- Jacobian product ---
  using Product = CentredProduct;
  static constexpr int64_t product_whole_first = whole_first_joined_product;
  static bool fits_products(double lam, bool) { return lam != 0; }

  template <class T>
  static void average_lanes(const Vec<T>* y, Vec<T>* v, int count, IntVec<T>) {
    const Vec<T> one = splat(T(1));
    uint32_t different = 0;
    for (int k = 1; k < count; ++k) different |= ~bits(equal(y[k], y[0]));
    if (!(different & all_lanes<T>)) {  // uniform weights are common
      Vec<T> sum{};
      for (int k = 0; k < count; ++k) sum += v[k];
      for (int k = 0; k < count; ++k) v[k] = sum / splat(static_cast<T>(count));
      return;
    }
    Vec<T> means[max_candidates];
    for (int k = 0; k < count; ++k) {
      Vec<T> sum{}, size{};
      for (int j = 0; j < count; ++j) {
        const Where<T> same = equal(y[j], y[k]);
        sum = add_where(same, sum, v[j]);
        size = add_where(same, size, one);
      }
      means[k] = sum / size;
    }
    for (int k = 0; k < count; ++k) v[k] = means[k];
  }
  template <class T>
  static bool average_few(const JoinedPositions& joined, const T* y, T* v) {
    return joined.average_clusters(y, v);
  }

  // A uniform row: J v is the mean minus the mean. False for all others.
  template <class T>
  static bool multiply_whole(const T* y, const T*, const uint64_t* support, const uint64_t*, int64_t d, T, T* out,
                             Workspace&) {
    if (count_bits(support, d) < d) return false;
    const Vec<T> same = splat(y[0]);
    for (int64_t i = 0; i < d; i += lanes<T>) {
      if (bits(equal(load_left(y + i, d - i, y[0]), same)) != all_lanes<T>) return false;
    }
    fill_run(out, 0, d, d, T(0));
    return true;
  }

  // A single cluster has weight one in total, whatever the scores: J is zero.
  template <class T>
  static bool is_constant(const CompactedRow<T>& row) {
    return row.all_equal();
  }
  template <class T>
  static void multiply(const CompactedRow<T>& row, double lam, Workspace& w) {
    widen(row, w);
    subtract_mean(w.v, row.m);
    if (lam != 0) average_clusters(row, w);
    narrow(row, w);
  }

  // --- Gradients of strengths: the penalty is sum_k (d - k) y_(k), and J v sums to zero, so d has no effect ---
  template <class T>
  static double strength_grad(const CompactedRow<T>& row, double, Workspace& w) {
    if (row.all_equal()) return 0;
    return row.m <= few_ranks ? sum_by_few_ranks(row) : sum_by_rank(row.y, row.v, row.m, w);
  }
  // The same, one row per lane: at most REGMAX_LISTED weights, and zeros after them.
  template <class T>
  struct LaneStrengths {
    void add_row(int, const uint64_t*, int64_t, int) {}

    void sum(const Vec<T>* y, const Vec<T>* u, int count, double* sums) const {
      DoubleSum<T> total;
      Where<T> differ{};
      for (int i = 0; i < count; ++i) {
        Vec<T> of_row{};
        for (int j = 0; j < i; ++j) of_row += select(greater(y[i], y[j]), u[j], u[i]);
        total.add(of_row);
        differ = differ | (greater(y[i], Vec<T>{}) & ~equal(y[i], y[0]));
      }
      total.write(sums);
      // Of a single cluster J is zero.
      for (int r = 0; r < lanes<T>; ++r) sums[r] = bits(differ) >> r & 1 ? sums[r] : 0;
    }
  };

  // sum_k (d - k) y_(k) over the d kept positions.
  template <class T>
  static OmegaValue omega(const CompactedRow<T>& row, double lam, int64_t d, Workspace& w) {
    double sum = 0;
    for (int64_t k = 0; k < row.m; ++k) sum += static_cast<double>(row.y[k]);
    const CompactedRow<T> weights{row.y, const_cast<T*>(row.y), nullptr, row.m};
    const bool few = row.m <= few_ranks;
    const double by_rank = few ? sum + sum_by_few_ranks(weights) : sum_by_rank(row.y, row.y, row.m, w);
    const double pairs = static_cast<double>(d) * sum - by_rank;
    return {dot(row.y, row.y, row.m) / 2 + lam * pairs, pairs};
  }

 private:
  // max - min <= lam m / 2: the whole row is one cluster (isotonic.hpp). Ties count if nothing was rounded: fma has
  // the sign of the exact difference.
  template <class T>
  static bool is_one_cluster(const T* x, int64_t m, T top, double lam, double gamma) {
    Vec<T> low = splat(top);
    for (int64_t i = 0; i < m; i += lanes<T>) low = smaller(load_left(x + i, m - i, top), low);
    const double high = static_cast<double>(top), least = -static_cast<double>(max_lanes<T>(-low));
    const double range = high - least, half = static_cast<double>(m) / 2, scaled = lam * gamma;
    if (range <= scaled * half * (1 - 1e-15)) return true;
    const double back = high - range, error = (high - (range + back)) + (back - least);
    return error == 0 && std::fma(lam, gamma, -scaled) == 0 && std::fma(scaled, half, -range) >= 0;
  }

  template <class T>
  static double margin_of(const ScalarRow<T>& row, double lam) {
    const double m = static_cast<double>(row.m);
    return doubt(row.m, 1 + lam * m) * (1 + m / 8);  // prefix sums are as large as the row is long
  }

  // Writes the weights and returns HUGE_VAL if the candidates decide the row; otherwise returns a lower bound
  // of its threshold. By value, in float32: the prefix sums of sorted scores are exact enough in double.
  template <class T>
  static double try_candidates(ScalarRow<T>& row, double lam, double bound) {
    const double margin = margin_of(row, lam);
    if (sizeof(T) == sizeof(float) && row.count > few_scores) {
      return finish(row, SortedBlocks<T>(row.chosen_scores(), row.count, row.top, lam, row.gamma, margin, row.w), lam,
                    bound);
    }
    return finish(row, RankedScores(row.w.x, row.count, lam, margin, IsotonicSpace(row.w.pooling, row.m)), lam, bound);
  }
  template <class T, class Scores>
  static double finish(ScalarRow<T>& row, Scores scores, double lam, double bound) {
    if (!is_decided(scores.tau(), bound, row.count, row.m, lam, margin_of(row, lam))) return scores.tau();
    const bool is_sure = scores.write_weights(row.w.y);
    if (!row.is_final(is_sure)) solve_again(row, is_sure, lam);
    return HUGE_VAL;
  }

  template <class T>
  static void solve_again(ScalarRow<T>& row, bool is_sure, double lam) {
    const T* const scores = row.chosen_scores();
    Ranked* const ranked = IsotonicSpace(row.w.pooling, row.m).ranked;
    for (int64_t k = 0; k < row.count; ++k) ranked[k] = {static_cast<double>(scores[k]), k};
    sort_decreasing(ranked, row.count);
    for (int64_t k = 0; k < row.count; ++k) row.w.x[k] = ranked[k].value;
    if (!row.solve_again(is_sure, lam, [](auto& exact) { return exact.pool_sorted(), true; })) return;
    double* const y = row.w.space;
    std::copy_n(row.w.y, row.count, y);
    for (int64_t k = 0; k < row.count; ++k) row.w.y[ranked[k].position] = y[k];
  }

  // sum_k k u_(k) up to the sum of u: of every two weights the smaller one ranks after the other. Of two equal
  // ones, whose u are equal, it may be either.
  template <class T>
  static double sum_by_few_ranks(const CompactedRow<T>& row) {
    double sum = 0;
    for (int64_t i = 1; i < row.m; ++i) {
      T of_row = 0;
      for (int64_t j = 0; j < i; ++j) of_row += row.y[i] > row.y[j] ? row.v[j] : row.v[i];
      sum += static_cast<double>(of_row);
    }
    return sum;
  }

  // Averages w.v over the groups of equal weights.
  template <class T>
  static void average_clusters(const CompactedRow<T>& row, Workspace& w) {
    if (row.all_equal()) {  // uniform weights are common, and need no sorting
      const double mean = mean_of(w.v, row.m);
      for (int64_t i = 0; i < row.m; ++i) w.v[i] = mean;
    } else if (sizeof(T) == sizeof(float) && row.m > few_scores) {
      average_equal(row.y, row.m, w);
    } else {
      average_equal_sizes(w.v, w.x, row.m, IsotonicSpace(w.pooling, row.m).ranked);
    }
  }
};

}  // namespace regmax::REGMAX_ISA
