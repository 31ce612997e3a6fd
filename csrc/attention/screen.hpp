// Screening in 8 bits: exact scores of the few keys that the bounds of approximate_scores.hpp leave.
//
// The tiers need two things of a row, its maxima by lane, as far as they move the cut, and the scores above the cut.
// The keys that may be among either are scored again in the float path's order of operations. Both have the bits of the
// float path, and so have the weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "algorithms/lane_simplex.hpp"
#include "attention/approximate_scores.hpp"
#include "attention/collected_keys.hpp"
#include "attention/exact_pairs.hpp"
#include "attention/masks.hpp"
#include "rows/group.hpp"

namespace regmax::REGMAX_ISA {

#if defined(__AVX512F__)

// One row of the group: positions 0, ..., length - 1.
struct BoundedRow {
  float* x;  // approximate scores
  int64_t length;
  const int32_t* columns;  // the key of each position; nullptr if these are 0, 1, ...
  const float* bias;       // of each key, or nullptr
  float bias_factor;
  bool shifted;  // whether positions are not those of the panels, or x has a bias
};

class ScreenedGroup final : public ApproximateScores, public BoundedScores<float> {
 public:
  // `queries` are those of the rows, one after the other, as the float path has them.
  ScreenedGroup(const regmax_attention& call, const ScreenedKeys& keys, int64_t head, const float* queries,
                ScreenScratch& s)
      : ApproximateScores(call, keys, head, s),
        k_(typed<float>(call.k) + head_rows(call, part_k, head).begin),
        stride_(head_rows(call, part_k, head).stride),
        rows_queries_(queries) {}

  // Row r, whose approximate scores are known: lower bounds of its maxima by lane. False if a score is not finite.
  bool add_row(int r, const BoundedRow& row) {
    rows_[r] = row;
    if (!finish_tops(r)) return false;
    Vec<float> low = splat(-std::numeric_limits<float>::infinity());
    const PanelRow own = panels(r);
    for (int64_t p = 0; p < panels_of<float>(row.length); ++p)
      low = larger(load(own.tops + p * lanes<float>) - own.error(p), low);
    const Vec<float> lowest = splat(std::numeric_limits<float>::lowest());
    store<float>(lows(r), larger(low - absolute<float>(low) * splat(PanelRow::relative_slack), lowest));
    return true;
  }

  // The maxima by lane of the rows of `wanted`, for a cut that is at most slack[r] below their threshold: exact if they
  // are above the threshold, or near it. Also scores all keys that may be above the cut, unless a PruningCut leaves
  // them out whose upper level is at most pruned[r] below the threshold. If a maximum is so
  // near to the threshold that others, which are below it, would move the threshold by rounding, all maxima of the row
  // are exact. Returns the rows for which this succeeded: not those with too many keys.
  uint32_t find_by_threshold(uint32_t wanted, const float* slack, const float* pruned, float* maxima) {
    Vec<float> columns[lanes<float>];
    const Thresholds low = thresholds(s_.lows, wanted, columns);
    const Vec<float> floors = low.top + low.tau - splat(threshold_margin) - absolute<float>(low.top) * splat(4e-6f);
    store<float>(floors_, floors);
    store<float>(levels_, floors - load(slack) * splat(1.00001f));
    float highs[lanes<float>];
    store<float>(highs, floors - load(pruned) * splat(1.00001f));
    for (uint32_t rest = wanted; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      // A deleted score may separate scores that are neighbours: then nothing is pruned.
      const bool prunes = highs[r] > levels_[r] && !has_deleted[r];
      const auto find = [&](const PanelRow& row, int32_t* found) {
        return prunes ? collect_pruned(row, {levels_[r], highs[r], floors_[r]}, found)
                      : collect(row, splat(levels_[r]), found);
      };
      if (!collect_row(r, find)) wanted &= ~(1u << r);
    }
    score_collected(wanted, maxima);
    const Thresholds exact = thresholds(maxima, wanted, columns);
    Vec<float> nearest = splat(1.0f);
    for (const Vec<float>& maximum : columns) nearest = smaller(absolute<float>(maximum - exact.tau), nearest);
    const uint32_t sure = wanted & bits(greater(nearest, splat(least_gap)));
    if (sure == wanted) return sure;
    float reach[lanes<float>];
    store<float>(reach, splat(std::numeric_limits<float>::infinity()));
    return sure | find_by_lane(wanted & ~sure, reach, maxima);
  }

  // The same for other cuts. Maxima that are farther than reach[r] below the largest need not be exact.
  uint32_t find_by_lane(uint32_t wanted, const float* reach, float* maxima) {
    for (uint32_t rest = wanted; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      const Vec<float> low = load(lows(r));
      floors_[r] = max_lanes<float>(low) - reach[r];
      levels_[r] = std::numeric_limits<float>::infinity();
      const Vec<float> level = larger(low, splat(floors_[r]));
      const auto find = [&](const PanelRow& row, int32_t* found) { return collect(row, level, found); };
      if (!collect_row(r, find)) wanted &= ~(1u << r);
    }
    score_collected(wanted, maxima);
    return wanted;
  }

  bool find_above(int r, float level, ListedScores<float>* listed) override {
    if (level >= levels_[r]) {
      *listed = {places(r), scores(r), counts_[r]};
      candidates[r] = counts_[r];
      return true;
    }
    const int64_t count = collect(panels(r), splat(level), s_.more_places);
    if (count < 0) return false;
    // Scores that are known already are not computed again.
    int32_t missing[most_rescored + lanes<float>];
    int64_t absent[most_rescored], absences = 0, known = 0;
    for (int64_t k = 0; k < count; ++k) {
      const int32_t place = s_.more_places[k];
      while (known < counts_[r] && places(r)[known] < place) ++known;
      if (known < counts_[r] && places(r)[known] == place) {
        s_.more_scores[k] = scores(r)[known];
      } else {
        absent[absences] = k;
        missing[absences++] = place;
      }
    }
    float added[most_rescored + lanes<float>];
    rescore(r, missing, absences, added);
    for (int64_t k = 0; k < absences; ++k) s_.more_scores[absent[k]] = added[k];
    rescored += absences;
    candidates[r] = count;
    *listed = {s_.more_places, s_.more_scores, count};
    return true;
  }

  bool has_deleted[lanes<float>] = {};  // whether a score is -inf
  int64_t rescored = 0, candidates[lanes<float>] = {};

 private:
  // docs/derivations/int8.md: what rounding may do to a threshold, of scores relative to the largest.
  static constexpr float threshold_margin = 1e-4f, least_gap = 3e-5f;

  float* lows(int r) const { return s_.lows + r * lanes<float>; }
  // The keys of row r that are scored again, in order.
  int32_t* places(int r) const { return s_.places + starts_[r]; }
  float* scores(int r) const { return s_.scores + starts_[r]; }

  // The threshold of every row's maxima, relative to the largest; `columns` has those by lane, relative too.
  struct Thresholds {
    Vec<float> top, tau;
  };
  Thresholds thresholds(const float* maxima, uint32_t wanted, Vec<float> (&columns)[lanes<float>]) const {
    rows_to_lanes<float>(maxima, lanes<float>, lanes<float>, columns);
    Vec<float> top = columns[0];
    for (const Vec<float>& column : columns) top = larger(column, top);
    for (Vec<float>& column : columns) column = select(from_bits<float>(wanted), column - top, Vec<float>{});
    return {top, maxima_threshold<float>(columns)};
  }

  // The maxima of the panels that the row does not fill or whose scores have changed; false if a score is NaN or
  // large. Products being bounded, a score is -inf if and only if it is so here.
  bool finish_tops(int r) {
    const BoundedRow& row = rows_[r];
    constexpr float lowest = -std::numeric_limits<float>::infinity();
    if (!are_products_bounded(r)) return false;
    uint32_t bad = 0, deleted = 0;
    for (int64_t p = row.shifted ? 0 : row.length / screen_panel; p < panels_of<float>(row.length); ++p) {
      Vec<float> top = splat(lowest);
      for (int64_t i = p * screen_panel; i < (p + 1) * screen_panel && i < row.length; i += lanes<float>) {
        const Vec<float> x = load_left(row.x + i, row.length - i, lowest);
        bad |= bits(not_at_most(x, splat(1e30f)));
        deleted |= bits(equal(load_left(row.x + i, row.length - i, 0.0f), splat(lowest)));
        top = larger(x, top);
      }
      store<float>(tops(r, p), top);
    }
    has_deleted[r] = deleted != 0;
    return !bad;
  }

  PanelRow panels(int r) const {
    const bool shifted = rows_[r].shifted;
    return {rows_[r].x, rows_[r].length, tops(r, 0), shifted ? largest_error + r : panel_errors(r), shifted ? 0 : 1};
  }

  // Adds keys of row r to those that are scored again: find(panels, places) writes their places, and returns their
  // number, or -1 if they are too many; then this returns false.
  template <class Find>
  bool collect_row(int r, const Find& find) {
    starts_[r] = collected_;
    counts_[r] = 0;
    const int64_t count = find(panels(r), s_.places + collected_);
    if (count < 0) return false;
    for (int64_t k = 0; k < count; ++k) __builtin_prefetch(key_at(key(r, places(r)[k])));
    std::fill_n(s_.owners + collected_, count, r);
    counts_[r] = count;
    collected_ += count;
    return true;
  }

  // Scores the collected keys, and finds the maxima by lane of the rows of `wanted`.
  void score_collected(uint32_t wanted, float* maxima) {
    rescored += collected_ - scored_;
    if (!few_) score_pairs();
    scored_ = collected_;
    for (; wanted; wanted &= wanted - 1) {
      const int r = __builtin_ctz(wanted);
      if (few_) rescore(r, places(r), counts_[r], scores(r));
      // Below the floor any number will do.
      float* const own = maxima + r * lanes<float>;
      store<float>(own, splat(floors_[r] - (1 + absolute_of(floors_[r]))));
      for (int64_t k = 0; k < counts_[r]; ++k) {
        float& top = own[places(r)[k] % lanes<float>];
        top = scores(r)[k] > top ? scores(r)[k] : top;
      }
    }
  }

  // The scores of the keys that were collected since the last time, with the float path's bits.
  void score_pairs() {
    for (int64_t k = collected_; k > 0 && k % lanes<float> != 0; ++k) {
      s_.places[k] = s_.places[k - 1];
      s_.owners[k] = s_.owners[k - 1];
    }
    for (int64_t first = scored_ / lanes<float> * lanes<float>; first < collected_; first += lanes<float>) {
      const float* keys[lanes<float>];
      for (int i = 0; i < lanes<float>; ++i) keys[i] = key_at(key(s_.owners[first + i], s_.places[first + i]));
      store<float>(s_.scores + first, multiply_pairs(s_.columns, s_.owners + first, keys, call_.e));
    }
    for (int64_t k = scored_ / lanes<float> * lanes<float>; call_.bias && k < collected_; ++k)
      s_.scores[k] = with_bias(s_.owners[k], key(s_.owners[k], s_.places[k]), s_.scores[k]);
  }

  int64_t key(int r, int32_t place) const { return rows_[r].columns ? rows_[r].columns[place] : place; }
  const float* key_at(int64_t j) const { return k_ + j * stride_; }
  static float absolute_of(float x) { return x < 0 ? -x : x; }

  float with_bias(int r, int64_t j, float x) const {
    const BoundedRow& row = rows_[r];
    return row.bias ? x + times_factor(row.bias[j], row.bias_factor) : x;
  }

  // The scores of row r at `count` places, with the float path's bits; whole vectors are written.
  void rescore(int r, const int32_t* at, int64_t count, float* out) const {
    if (few_ && count > 0) {
      int32_t index[most_rescored];
      for (int64_t k = 0; k < count; ++k) index[k] = static_cast<int32_t>(key(r, at[k]));
      multiply_in_place(rows_queries_ + r * call_.e, 1, call_.e, k_, stride_, index, count, out, 0);
      for (int64_t k = 0; rows_[r].bias && k < count; ++k) out[k] = with_bias(r, index[k], out[k]);
      return;
    }
    for (int64_t k = 0; k < count; k += lanes<float>) {
      const float* keys[lanes<float>];
      for (int i = 0; i < lanes<float>; ++i) keys[i] = key_at(key(r, at[k + i < count ? k + i : k]));
      int32_t owners[lanes<float>];
      std::fill_n(owners, lanes<float>, r);
      store_left<float>(out + k, count - k, multiply_pairs(s_.columns, owners, keys, call_.e));
    }
    for (int64_t k = 0; rows_[r].bias && k < count; ++k) out[k] = with_bias(r, key(r, at[k]), out[k]);
  }

  const float* const k_;
  const int64_t stride_;
  const float* const rows_queries_;  // as the float path has them, one after the other
  int64_t collected_ = 0, scored_ = 0, starts_[lanes<float>] = {}, counts_[lanes<float>] = {};
  // Of every row: scores below the floor are in no maximum that matters; scores at or above the level are collected.
  float floors_[lanes<float>] = {}, levels_[lanes<float>] = {};
  BoundedRow rows_[lanes<float>] = {};
};

#endif

}  // namespace regmax::REGMAX_ISA
