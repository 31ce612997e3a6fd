// Maps the rows of a block of queries that 8 bits can screen (screen.hpp); the others are left to the float path.
#pragma once

#if defined(__AVX512F__)

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "attention/query_rows.hpp"
#include "attention/screen.hpp"
#include "rows/cascade.hpp"
#include "rows/csr_rows.hpp"

namespace regmax::REGMAX_ISA {

// Whether a mapping's cut follows from the threshold of the maxima by lane (mappings/mapping.hpp).
template <class Mapping, class = void>
constexpr bool cuts_by_threshold = false;
template <class Mapping>
constexpr bool cuts_by_threshold<Mapping, std::void_t<decltype(Mapping::cut_slack(0.0))>> = true;

// How far the upper level of a mapping's PruningCut may be below that threshold; as far as the cut if it does not
// prune.
template <class Mapping, class = void>
constexpr bool prunes_candidates = false;
template <class Mapping>
constexpr bool prunes_candidates<Mapping, std::void_t<decltype(Mapping::prune_slack(0.0))>> = true;

// Memory of the float path that screening uses, too.
struct ScreenedScores {
  float *queries, *scores;
  int64_t stride;  // of the scores' rows
  float* maxima;
};

template <class Mapping>
class ScreenedRows {
 public:
  ScreenedRows(const regmax_attention& call, const ScreenedKeys& keys, const KeptKeys& kept, const QueryBlock& block,
               QueryRows<float>& rows, const ScreenedScores& s, ScreenScratch& scratch)
      : call_(call),
        keys_(keys),
        kept_(kept),
        block_(block),
        kv_head_(block.head / call.groups),
        rows_(rows),
        s_(s),
        scratch_(scratch) {}

  // Whether the rows are long enough, and the keys could be rounded.
  bool is_possible() const {
    return (few_ || keys_.usable(kv_head_)) &&
           rows_.shortest() >= (few_ ? least_screened_row : Mapping::least_screened);
  }

  // Writes the rows that are left to `left`, and returns their number. fast(rows, count) has the bits of the rows that
  // the vector tiers may map.
  template <class Fast>
  int64_t run(Cascade<float, Mapping>& cascade, CsrRows<float>& out, const Fast& fast, int64_t* left) {
    int64_t count = 0;
    ScreenCounts counts{};
    for (int64_t first = 0; first < block_.rows; first += lanes<float>) {
      const int64_t rest = block_.rows - first < lanes<float> ? block_.rows - first : lanes<float>;
      int64_t rows[lanes<float>];
      for (int64_t r = 0; r < rest; ++r) rows[r] = first + r;
      uint32_t missing = all_lanes<float> >> (lanes<float> - rest);
      if (few_ || keys_.is_worth_it(kv_head_)) {
        ScreenedGroup group(call_, keys_, kv_head_, s_.queries, scratch_);
        const uint32_t bounded = bound(group, rows, rest, missing & fast(rows, rest), out);
        missing &= ~bounded | cascade.run_bounded(out.group, bounded, out);
        counts.rows += rest;
        counts.fallbacks += __builtin_popcount(missing);
        counts.rescored += group.rescored;
        for (int64_t r = 0; r < rest; ++r) counts.candidates += missing >> r & 1 ? 0 : group.candidates[r];
        if (!few_ && !has_paid_off(rest, __builtin_popcount(missing), group.rescored, rows_.end(rows[rest - 1]))) {
          keys_.skip(kv_head_);
        }
      }
      for (; missing; missing &= missing - 1) left[count++] = first + __builtin_ctz(missing);
    }
    count_screened(counts);
    return count;
  }

 private:
  // Whether screening this many rows took less time than scoring them: it saves about .6 of the product, but those that
  // fall back cost whole tiles of it. A single one says little about the next groups.
  static bool has_paid_off(int64_t rows, int64_t fallbacks, int64_t rescored, int64_t length) {
    const int64_t again = fallbacks > 1 ? (fallbacks + score_rows - 1) / score_rows * score_rows : fallbacks;
    const int64_t cost = cuts_by_threshold<Mapping> ? screen_scores * rows + rescored_scores * rescored
                                                    : lane_screen_scores * rows + lane_rescored_scores * rescored;
    return 5 * (cost + again * length) <= 3 * rows * length;
  }

  // Approximate scores of a group of rows, and the exact maxima by lane; returns the rows for which this succeeded.
  uint32_t bound(ScreenedGroup& group, const int64_t* rows, int64_t count, uint32_t wanted, CsrRows<float>& out) {
    int64_t longest = 0;
    for (int r = 0; r < lanes<float>; ++r) {
      float* const query = s_.queries + r * call_.e;
      const bool is_wanted = wanted >> r & 1 && !is_tiny(rows_.gamma(rows[r < count ? r : 0]));
      if (is_wanted) {
        rows_.scale_query(rows[r], query);
      } else {
        wanted &= ~(1u << r);
        std::fill_n(query, call_.e, 0.0f);
      }
      if (r < count) longest = rows_.end(rows[r]) > longest ? rows_.end(rows[r]) : longest;
    }
    wanted = group.add_queries(s_.queries, wanted);
    if (few_) {
      group.multiply_copy(kept_.index(kv_head_), longest, s_.scores, s_.stride, wanted);
    } else {
      group.multiply(longest, s_.scores, s_.stride);
    }
    out.begin();
    float distances[lanes<float>] = {}, pruned[lanes<float>] = {};
    for (int r = 0; r < count; ++r) {
      if (!(wanted >> r & 1)) continue;
      const int64_t i = rows[r];
      const double theta = rows_.theta(i);
      const ScoreRow<float> row = rows_.finish(i, r, s_.scores + r * s_.stride);
      out.add(r, i, row.x, row.length, row.columns, theta);
      const bool is_shifted = few_ || call_.bias || rows_.has_gaps(i) || rows_.begin(i) > 0;
      const BoundedRow bounded{row.x, row.length, row.columns, rows_.bias_row(i), rows_.bias_factor(i), is_shifted};
      if (row.length < least_screened_row || !group.add_row(r, bounded)) wanted &= ~(1u << r);
      out.group.errors[r] = group.largest_error[r];
      out.group.finite |= static_cast<uint32_t>(!group.has_deleted[r]) << r;
      if constexpr (cuts_by_threshold<Mapping>) {
        pruned[r] = distances[r] = static_cast<float>(Mapping::cut_slack(theta));
        if constexpr (prunes_candidates<Mapping>) pruned[r] = static_cast<float>(Mapping::prune_slack(theta));
      } else {
        distances[r] = static_cast<float>(1.01 * Mapping::reach(theta));
      }
    }
    wanted = cuts_by_threshold<Mapping> ? group.find_by_threshold(wanted, distances, pruned, s_.maxima)
                                        : group.find_by_lane(wanted, distances, s_.maxima);
    out.group.maxima = s_.maxima;
    out.group.bounded = &group;
    return wanted;
  }

  const regmax_attention& call_;
  const ScreenedKeys& keys_;
  const KeptKeys& kept_;
  const QueryBlock& block_;
  const int64_t kv_head_;
  QueryRows<float>& rows_;
  const ScreenedScores s_;
  ScreenScratch& scratch_;
  const bool few_ = has_few_queries(call_);
};

}  // namespace regmax::REGMAX_ISA

#endif
