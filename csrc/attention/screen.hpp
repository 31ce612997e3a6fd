// Screening in 8 bits: the scores of a group of queries up to a proven error, by AVX-512 VNNI, and exact scores of the
// few keys that the bounds leave.
//
// With q = q^ + rest and k = k^ + rest (quantise.hpp), |q.k - q^.k^| <= |q| |k - k^| + |q - q^| |k^|, and q^.k^ is an
// integer times two scales. A further g |q| |k| covers the rounding of the float path, whose scores are bounded, and of
// this file (docs/derivations/int8.md). Errors are per query and panel of keys.
//
// The tiers need two things of a row, its maxima by lane, as far as they move the cut, and the scores above the cut.
// For each lane the keys that may hold its maximum are scored again in the float path's order of operations; so are,
// once a tier knows its cut, the keys that may be above it. Both have the bits of the float path, and so have the
// weights.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "attention/int8_product.hpp"
#include "attention/masks.hpp"
#include "attention/screened_keys.hpp"
#include "rows/group.hpp"

namespace regmax::REGMAX_ISA {

// In place of ScreenScratch if nothing is screened.
struct NoScratch {
  NoScratch(Cutter&, const regmax_attention&, bool) {}
};

#if defined(__AVX512F__)

// Memory for a group of 16 queries.
struct ScreenScratch {
  uint8_t* queries;
  float *errors, *tops, *scores, *more_scores;
  int32_t *places, *more_places;

  ScreenScratch(Cutter& cutter, const regmax_attention& call, bool wanted) {
    const int64_t rows = wanted ? lanes<float> : 0, panels = panels_of<float>(call.keys) + 1;
    queries = cutter.take<uint8_t>(rows * (call.e + 64));
    errors = cutter.take<float>(rows * panels);
    tops = cutter.take<float>(rows * panels * lanes<float>);
    scores = cutter.take<float>(rows * most_rescored);
    more_scores = cutter.take<float>(most_rescored + lanes<float>);
    places = cutter.take<int32_t>(rows * most_rescored);
    more_places = cutter.take<int32_t>(most_rescored + lanes<float>);
  }
};

// One row of the group: positions 0, ..., length - 1.
struct BoundedRow {
  const float* query;  // as the float path has it
  float* x;            // approximate scores
  int64_t length;
  const int32_t* columns;  // the key of each position; nullptr if these are 0, 1, ...
  const float* bias;       // of each key, or nullptr
  float bias_factor;
  bool shifted;  // whether positions are not those of the panels, or x has a bias
};

class ScreenedGroup final : public BoundedScores<float> {
 public:
  ScreenedGroup(const regmax_attention& call, const ScreenedKeys& keys, int64_t head, ScreenScratch& s)
      : call_(call),
        keys_(keys),
        head_(head),
        s_(s),
        k_(typed<float>(call.k) + head_rows(call, part_k, head).begin),
        stride_(head_rows(call, part_k, head).stride) {}

  // Quantises the query of row r; false if it cannot be bounded.
  bool add_query(int r, const float* q) {
    RowBounds& bounds = bounds_[r];
    uint8_t* const bytes = query_bytes(r);
    const bool done = q && quantise(q, call_.e, reinterpret_cast<int8_t*>(bytes), &bounds, !few_);
    if (!done) {
      bounds = {};
      std::memset(bytes, few_ ? 0 : 128, static_cast<std::size_t>(call_.e));
    }
    if (few_) std::memset(bytes + call_.e, 0, static_cast<std::size_t>(-call_.e & 63));
    scales_[r] = bounds.scale;
    return done;
  }

  // Approximate scores of all queries and the first `longest` keys.
  void multiply(int64_t longest, float* x, int64_t x_row) {
    panels_ = panels_of<float>(longest);
    const float *const key_errors = keys_.errors(head_), *const key_norms = keys_.norms(head_);
    // Twice what rounding in the float path needs: the rest covers rounding here, comparisons included.
    const float g = slack_of(call_.e);
    largest_norm_ = 0;
    for (int64_t p = 0; p < panels_; ++p) largest_norm_ = key_norms[p] > largest_norm_ ? key_norms[p] : largest_norm_;
    for (int r = 0; r < lanes<float>; ++r) {
      const RowBounds& q = bounds_[r];
      float largest = 0;
      for (int64_t p = 0; p < panels_; ++p) {
        const float error = (q.norm * key_errors[p] + (q.error + g * q.norm) * key_norms[p]) * 1.0001f + tiny_error;
        s_.errors[r * panels_ + p] = error;
        largest = error > largest ? error : largest;
      }
      largest_error[r] = largest;
    }
    for (int64_t p = 0; p < panels_; ++p) {
      multiply_integers(s_.queries, scales_, call_.e, keys_.panel(head_, p), keys_.offsets(head_, p),
                        keys_.scales(head_, p),
                        {x + p * screen_panel, x_row, s_.tops + p * lanes<float>, panels_ * lanes<float>});
    }
  }

  // The same from the copy of the keys that the call has, with one error for all of them.
  void multiply_copy(const int32_t* index, int64_t longest, float* x, int64_t x_row, int64_t rows) {
    panels_ = panels_of<float>(longest);
    const float *const bounds = call_.screen_bounds + 2 * head_, *const scales = call_.screen_scales + first_copied();
    const int8_t* const copy = call_.screen + first_copied() * call_.e;
    largest_norm_ = bounds[1];
    for (int r = 0; r < rows; ++r) {
      const RowBounds& q = bounds_[r];
      largest_error[r] =
          (q.norm * bounds[0] + (q.error + slack_of(call_.e) * q.norm) * bounds[1]) * 1.0001f + tiny_error;
      multiply_copied(
          reinterpret_cast<const int8_t*>(query_bytes(r)), q.scale, q.sum, call_.e,
          [&](int64_t key) { return copy + key * call_.e; }, scales, index, longest, x + r * x_row);
    }
  }

  // Finds the keys of row r that may hold a maximum by lane. Maxima that are farther than `reach` below the largest
  // need not be exact. False if the keys are too many, or x is not finite.
  bool add_row(int r, const BoundedRow& row, float reach) {
    rows_[r] = row;
    counts_[r] = 0;
    if (!finish_tops(r)) return false;
    const Vec<float> lowest = splat(std::numeric_limits<float>::lowest());
    Vec<float> low = splat(-std::numeric_limits<float>::infinity());
    const Errors error = errors(r);
    const float* const top = tops(r, 0);
    for (int64_t p = 0; p < panels_of<float>(row.length); ++p)
      low = larger(load(top + p * lanes<float>) - error[p], low);
    low = larger(low - absolute<float>(low) * splat(relative_slack), lowest);
    floors_[r] = _mm512_reduce_max_ps(low) - reach;
    low = larger(low, splat(floors_[r]));
    return collect(r, low, places(r), &counts_[r]);
  }

  // The maxima by lane of the rows of `wanted`.
  void find_maxima(uint32_t wanted, float* maxima) {
    Pair pairs[lanes<float>];
    int count = 0;
    for (; wanted; wanted &= wanted - 1) {
      const int r = __builtin_ctz(wanted);
      // Below the floor any number will do.
      store<float>(maxima + r * lanes<float>, splat(floors_[r] - (1 + absolute_of(floors_[r]))));
      rescored += counts_[r];
      if (few_) {
        rescore(r, places(r), counts_[r], scores(r));
        for (int64_t k = 0; k < counts_[r]; ++k) widen_maximum(r, k, maxima);
        continue;
      }
      for (int64_t k = 0; k < counts_[r]; ++k) {
        pairs[count++] = {r, k};
        if (count == lanes<float>) count = score_pairs(pairs, count, maxima);
      }
    }
    score_pairs(pairs, count, maxima);
  }

  bool find_above(int r, float level, ListedScores<float>* listed) override {
    int64_t count = 0;
    if (!collect(r, splat(level), s_.more_places, &count)) return false;
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

  float largest_error[lanes<float>] = {};
  bool has_deleted[lanes<float>] = {};  // whether a score is -inf
  int64_t rescored = 0, candidates[lanes<float>] = {};

 private:
  static constexpr float relative_slack = 2e-6f;  // of comparisons, relative to the numbers compared
  static constexpr float tiny_error = 1e-30f;     // what underflows in the float path

  uint8_t* query_bytes(int r) const { return s_.queries + r * (few_ ? (call_.e + 63) / 64 * 64 : call_.e); }
  int64_t first_copied() const { return head_ * call_.screen_stride; }

  float* tops(int r, int64_t p) const { return s_.tops + (r * panels_ + p) * lanes<float>; }
  // The errors of a row's panels, `step` apart.
  struct Errors {
    const float* at;
    int64_t step;
    Vec<float> operator[](int64_t p) const { return splat(at[p * step]); }
  };
  Errors errors(int r) const {
    return rows_[r].shifted ? Errors{largest_error + r, 0} : Errors{s_.errors + r * panels_, 1};
  }
  int32_t* places(int r) const { return s_.places + r * most_rescored; }
  float* scores(int r) const { return s_.scores + r * most_rescored; }

  // The maxima of the panels that the row does not fill or whose scores have changed; false if a score is NaN or
  // large. Products being bounded, a score is -inf if and only if it is so here.
  bool finish_tops(int r) {
    const BoundedRow& row = rows_[r];
    constexpr float lowest = -std::numeric_limits<float>::infinity();
    if (!(bounds_[r].norm * largest_norm_ < 1e30f)) return false;
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

  // The places whose score may be at least `level`, by lane; false if they are too many.
  bool collect(int r, Vec<float> level, int32_t* found, int64_t* count) const {
    const BoundedRow& row = rows_[r];
    const Vec<float> lowest = splat(std::numeric_limits<float>::lowest());
    const Vec<float> least = level - absolute<float>(level) * splat(relative_slack);
    const Errors error = errors(r);
    const float* const top = tops(r, 0);
    int64_t n = 0;
    for (int64_t p = 0; p < panels_of<float>(row.length); ++p) {
      const Vec<float> bound = larger(least - error[p], lowest);
      if (!bits(not_below(load(top + p * lanes<float>), bound))) continue;
      const int64_t first = p * screen_panel, left = row.length - first;
      uint64_t hits = 0;
      for (int w = 0; w * lanes<float> < screen_panel; ++w) {
        const Vec<float> x = load(row.x + first + w * lanes<float>);
        hits |= static_cast<uint64_t>(bits(not_below(x, bound))) << (w * lanes<float>);
      }
      if (left < screen_panel) hits &= (uint64_t{1} << left) - 1;
      if (n + __builtin_popcountll(hits) > most_rescored) return false;
      for (; hits; hits &= hits - 1) found[n++] = static_cast<int32_t>(first + __builtin_ctzll(hits));
    }
    *count = n;
    return true;
  }

  static Where<float> not_below(Vec<float> a, Vec<float> b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }

  // Number k of the keys of row r that may hold a maximum.
  struct Pair {
    int r;
    int64_t k;
  };

  int64_t key(int r, int32_t place) const { return rows_[r].columns ? rows_[r].columns[place] : place; }
  const float* key_at(int64_t j) const { return k_ + j * stride_; }
  static float absolute_of(float x) { return x < 0 ? -x : x; }

  float with_bias(int r, int64_t j, float x) const {
    const BoundedRow& row = rows_[r];
    return row.bias ? x + times_factor(row.bias[j], row.bias_factor) : x;
  }

  // Scores at most 16 pairs, with the float path's bits, and updates the maxima. Returns 0.
  int score_pairs(const Pair* pairs, int count, float* maxima) {
    if (count == 0) return 0;
    const float *queries[lanes<float>], *keys[lanes<float>];
    for (int i = 0; i < lanes<float>; ++i) {
      const Pair& pair = pairs[i < count ? i : 0];
      queries[i] = rows_[pair.r].query;
      keys[i] = key_at(key(pair.r, places(pair.r)[pair.k]));
    }
    float x[lanes<float>];
    store<float>(x, multiply_pairs([&](int i) { return queries[i]; }, [&](int i) { return keys[i]; }, call_.e));
    for (int i = 0; i < count; ++i) {
      const Pair& pair = pairs[i];
      const int32_t place = places(pair.r)[pair.k];
      scores(pair.r)[pair.k] = with_bias(pair.r, key(pair.r, place), x[i]);
      widen_maximum(pair.r, pair.k, maxima);
    }
    return 0;
  }

  void widen_maximum(int r, int64_t k, float* maxima) const {
    float& top = maxima[r * lanes<float> + places(r)[k] % lanes<float>];
    if (scores(r)[k] > top) top = scores(r)[k];
  }

  // The scores of row r at `count` places, with the float path's bits; whole vectors are written.
  void rescore(int r, const int32_t* at, int64_t count, float* out) const {
    if (few_ && count > 0) {
      int32_t index[most_rescored];
      for (int64_t k = 0; k < count; ++k) index[k] = static_cast<int32_t>(key(r, at[k]));
      multiply_in_place(rows_[r].query, 1, call_.e, k_, stride_, index, count, out, 0);
      for (int64_t k = 0; rows_[r].bias && k < count; ++k) out[k] = with_bias(r, index[k], out[k]);
      return;
    }
    for (int64_t k = 0; k < count; k += lanes<float>) {
      const float* keys[lanes<float>];
      for (int i = 0; i < lanes<float>; ++i) keys[i] = key_at(key(r, at[k + i < count ? k + i : k]));
      store_left<float>(out + k, count - k, multiply_rows(rows_[r].query, [&](int i) { return keys[i]; }, call_.e));
    }
    for (int64_t k = 0; rows_[r].bias && k < count; ++k) out[k] = with_bias(r, key(r, at[k]), out[k]);
  }

  const regmax_attention& call_;
  const ScreenedKeys& keys_;
  const int64_t head_;
  ScreenScratch& s_;
  const float* const k_;
  const int64_t stride_;
  const bool few_ = has_few_queries(call_);  // then keys are read where they are, and so are their copies
  int64_t panels_ = 0, counts_[lanes<float>] = {};
  RowBounds bounds_[lanes<float>] = {};
  float scales_[lanes<float>] = {}, floors_[lanes<float>] = {}, largest_norm_ = 0;
  BoundedRow rows_[lanes<float>] = {};
};

template <class T>
using ScreenScratchOf = std::conditional_t<can_screen<T>, ScreenScratch, NoScratch>;

#else

template <class T>
using ScreenScratchOf = NoScratch;

#endif

}  // namespace regmax::REGMAX_ISA
