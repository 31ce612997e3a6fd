// The forward pass: the scores of a block of queries, the weights of its rows by the tiers of rows/, and sums
// of values.
//
// With AVX-512 VNNI, groups of rows are screened in 8 bits first (screened_rows.hpp); only the rows that this leaves
// are scored in full.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "attention/attention_mapping.hpp"
#include "attention/blocks.hpp"
#include "attention/packed_keys.hpp"
#include "attention/query_rows.hpp"
#include "attention/screen.hpp"
#include "attention/screened_rows.hpp"
#include "attention/weights.hpp"
#include "rows/cascade.hpp"
#include "rows/csr_rows.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
struct ForwardScratch {
  T *queries, *scores, *maxima, *weights, *out;
  int32_t* columns;
  Workspace workspace;
  ScreenScratchOf<T> screen;

  ForwardScratch(Cutter& cutter, const regmax_attention& call)
      : queries(cutter.take<T>(rows_per_block<T>(call) * call.e)),
        scores(cutter.take<T>(rows_per_block<T>(call) * scores_stride<T>(call))),
        maxima(cutter.take<T>(rows_per_block<T>(call) * lanes<T>)),
        weights(cutter.take<T>(call.keys)),
        out(cutter.take<T>(call.strides ? rows_per_block<T>(call) * call.e_v : 0)),
        columns(cutter.take<int32_t>(call.mask && call.mask_rows > 1 ? lanes<T> * call.keys : 0)),
        workspace(cutter, call.keys),
        screen(cutter, call, may_screen<T>(call)) {}
};

// Updates the maxima by lane with x[begin, end). NaN is ignored: screening catches it. Returns whether a score is -inf.
template <class T>
inline bool widen_maxima(const T* x, int64_t begin, int64_t end, T* maxima) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  Vec<T> top = load(maxima), low = splat(infinity);
  for (int64_t i = begin; i < end; i += lanes<T>) {
    top = larger(load_left(x + i, end - i, -infinity), top);
    low = smaller(load_left(x + i, end - i, infinity), low);
  }
  store<T>(maxima, top);
  return bits(equal(low, splat(-infinity))) != 0;
}

template <class T>
class ForwardBlock {
 public:
  ForwardBlock(const regmax_attention& call, const AttentionMapping<T>& mapping, const PackedKeys<T>& keys,
               const QueryBlock& block, ForwardScratch<T>& s, bool is_screening = false)
      : call_(call),
        mapping_(mapping),
        keys_(keys),
        block_(block),
        s_(s),
        kv_head_(block.head / call.groups),
        is_screening_(is_screening),
        rows_(call, keys, block, s.columns) {}

  bool run(regmax_weights_block& weights) {
    if (!weigh(weights)) return false;
    if (call_.dense) write_dense(weights);
    sum_values(weights);
    return true;
  }

  // Whether the backward pass should recompute these weights instead of reading them: they are many, and
  // cheap.
  bool better_recomputed(const regmax_weights_block& weights) const {
    return is_dense(call_, block_, weights.size) && 4 * costly_rows_ < block_.rows;
  }

  // Only the weights.
  bool weigh(regmax_weights_block& weights) {
    rows_.find_lengths();
    return mapping_.map(*this, weights);
  }

  // Maps the rows to compressed rows of weights; false if memory was exhausted.
  template <class Mapping>
  bool map(regmax_weights_block& weights) {
    CsrRows<T> out(weights, block_.rows, Mapping::joins == Joins::neighbours);
    Cascade<T, Mapping> cascade(rows_.longest(), forced_tier(), s_.workspace, true);
    if (!screen(cascade, out)) {
      count_ = block_.rows;
      for (int64_t r = 0; r < count_; ++r) scored_[r] = r;
    }
    if (count_ > 0) score();
    for (int64_t first = 0; first < count_; first += lanes<T>) {
      const uint32_t rows = fill_group(first, out), fast = rows & fast_rows<Mapping>(scored_ + first, count_ - first);
      cascade.run(out.group, fast, rows & ~fast, out);
    }
    costly_rows_ = cascade.costly_rows();
    return !out.failed();
  }

 private:
  T* scores(int64_t r) const { return s_.scores + r * stride_; }

  // The bits of the rows that the vector tiers may map, of the first `left` of these rows, at most a group.
  template <class Mapping>
  uint32_t fast_rows(const int64_t* rows, int64_t left) const {
    uint32_t fast = 0;
    for (int r = 0; r < lanes<T> && r < left; ++r)
      fast |= static_cast<uint32_t>(Mapping::fits_vectors(rows_.theta(rows[r]))) << r;
    return fast;
  }

  // Maps the rows that 8 bits can screen, and lists the others; false if none can be screened.
  template <class Mapping>
  bool screen([[maybe_unused]] Cascade<T, Mapping>& cascade, [[maybe_unused]] CsrRows<T>& out) {
#if defined(__AVX512F__)
    if constexpr (can_screen<T>) {
      if (!is_screening_ || !cascade.screens()) return false;
      ScreenedRows<Mapping> screened(call_, keys_.screened, keys_.kept, block_, rows_,
                                     {s_.queries, s_.scores, stride_, s_.maxima}, s_.screen);
      if (!screened.is_possible()) return false;
      const auto fast = [this](const int64_t* rows, int64_t left) { return fast_rows<Mapping>(rows, left); };
      count_ = screened.run(cascade, out, fast, scored_);
      return true;
    }
#endif
    return false;
  }

  // Scores the listed rows.
  void score() {
    int64_t longest = 0, shortest = call_.keys, first = call_.keys;
    bool by_panel = !call_.bias;
    for (int64_t k = 0; k < count_; ++k) {
      const int64_t r = scored_[k];
      longest = std::max(longest, rows_.end(r));
      shortest = std::min(shortest, rows_.end(r));
      first = std::min(first, rows_.begin(r));
      by_panel = by_panel && rows_.begin(r) == 0 && !rows_.has_gaps(r) && !is_tiny(rows_.gamma(r));
      rows_.scale_query(r, s_.queries + k * call_.e);
    }
    const int64_t tiled = (count_ + score_rows - 1) / score_rows * score_rows;
    for (int64_t i = count_ * call_.e; i < tiled * call_.e; ++i) s_.queries[i] = 0;
    for (int64_t i = 0; i < tiled * lanes<T>; ++i) s_.maxima[i] = -std::numeric_limits<T>::infinity();
    done_ = 0;
    if (has_few_queries(call_)) {
      return multiply_in_place(s_.queries, count_, call_.e, keys_.at(kv_head_), keys_.stride(),
                               keys_.kept.index(kv_head_), longest, s_.scores, stride_);
    }
    keys_.need_panels(kv_head_);
    // Maxima come with the products, for the panels that all rows cover and if no bias or mask follows.
    const int64_t whole = by_panel ? shortest / panel_width<T> : 0;
    for (int64_t p = first / panel_width<T>; p < panels_of<T>(longest); ++p) {
      multiply_panel(s_.queries, tiled, call_.e, keys_.panel(kv_head_, p), longest - p * panel_width<T>,
                     s_.scores + p * panel_width<T>, stride_, p < whole ? s_.maxima : nullptr);
    }
    done_ = whole * panel_width<T>;
  }

  // The group of scored rows from the k-th on; returns the bits of those that have scores.
  uint32_t fill_group(int64_t first, CsrRows<T>& out) {
    uint32_t rows = 0;
    out.begin();
    for (int r = 0; r < lanes<T> && first + r < count_; ++r) {
      const int64_t i = scored_[first + r];
      const ScoreRow<T> row = rows_.finish(i, r, scores(first + r));
      const double gamma = rows_.gamma(i);
      if (is_tiny(gamma)) {
        divide_row(row.x, row.length, max_lanes<T>(lane_maxima(row.x, row.length)), gamma, row.x);
      }
      out.add(r, i, row.x, row.length, row.columns, rows_.theta(i));
      const bool has_deleted = widen_maxima(row.x, done_, row.length, s_.maxima + (first + r) * lanes<T>);
      const bool is_finite = !has_deleted && (done_ == 0 || (rows_.is_bounded(i) && keys_.are_bounded(kv_head_)));
      out.group.finite |= static_cast<uint32_t>(is_finite) << r;
      rows |= static_cast<uint32_t>(row.length > 0) << r;
    }
    out.group.maxima = s_.maxima + first * lanes<T>;
    return rows;
  }

  void write_dense(const regmax_weights_block& weights) const {
    T* const dense = static_cast<T*>(call_.dense) + block_.row(call_) * call_.keys;
    for (int64_t r = 0; r < block_.rows; ++r) {
      expand(typed<T>(weights.values) + weights.starts[r], weights.columns + weights.starts[r], weights.counts[r], 0,
             call_.keys, dense + r * call_.keys);
    }
  }

  void sum_values(const regmax_weights_block& weights) {
    const int64_t depth = block_.depth(call_);
    const HeadRows rows = head_rows(call_, part_v, kv_head_);
    const T* const v = typed<T>(call_.v) + rows.begin;
    T* const out = static_cast<T*>(call_.out);
    const bool dense = is_dense(call_, block_, weights.size);
    const Dropout dropout(call_.dropout_p, call_.seed);
    for (int64_t r = 0; r < block_.rows; ++r) {
      const int64_t count = weights.counts[r];
      const int32_t* const columns = weights.columns + weights.starts[r];
      const T* const y = typed<T>(weights.values) + weights.starts[r];
      const T* const kept = dropout.drop(block_.row(call_) + r, y, columns, count, s_.weights);
      if (dense) {
        expand(kept, columns, count, 0, depth, scores(r));
      } else {
        sum_rows(kept, columns, count, v, rows.stride, call_.e_v, out + rows_.place_of(part_out, r));
      }
    }
    if (!dense) return;
    T* const product = call_.strides ? s_.out : out + rows_.place_of(part_out, 0);
    multiply<T>({s_.scores, stride_, 1}, v, rows.stride, block_.rows, depth, call_.e_v, product, false);
    for (int64_t r = 0; call_.strides && r < block_.rows; ++r) {
      std::copy_n(product + r * call_.e_v, call_.e_v, out + rows_.place_of(part_out, r));
    }
  }

  const regmax_attention& call_;
  const AttentionMapping<T>& mapping_;
  const PackedKeys<T>& keys_;
  const QueryBlock block_;
  ForwardScratch<T>& s_;
  const int64_t kv_head_;
  const bool is_screening_;  // whether keys_ has the keys in 8 bits
  QueryRows<T> rows_;
  const int64_t stride_ = scores_stride<T>(call_);
  int64_t costly_rows_ = 0;
  int64_t done_ = 0;                // the maxima of every row cover this many scores
  int64_t scored_[64], count_ = 0;  // the rows of the block that are scored
};

// With `weights` nullptr a block's weights are freed once its output is written; so are those of dense blocks
// that the backward pass recomputes.
template <class T>
int32_t attention_forward(const regmax_attention& call, regmax_weights* weights) {
  const int64_t blocks = kv_heads(call) * blocks_per_kv_head<T>(call);
  if (weights) {
    weights->item_size = sizeof(T);
    weights->count = blocks;
    weights->blocks = static_cast<regmax_weights_block*>(
        std::calloc(static_cast<std::size_t>(blocks) + 1, sizeof(regmax_weights_block)));
    if (!weights->blocks) return REGMAX_OUT_OF_MEMORY;
  }
  return with_attention_mapping<T>(call, [&](const AttentionMapping<T>& mapping) {
    const bool is_screening = may_screen<T>(call) && (has_few_queries(call) || call.keys >= mapping.least_screened);
    PackedKeys<T> keys(call, is_screening);
    if (!keys) return int32_t{REGMAX_OUT_OF_MEMORY};
    keys.pack_all();
    return run_with_scratch<ForwardScratch<T>>(
        blocks, call.threads, call, [&](int64_t job, ForwardScratch<T>& scratch) {
          const QueryBlock block = query_block<T>(call, job);
          ForwardBlock<T> forward(call, mapping, keys, block, scratch, is_screening);
          regmax_weights_block unwanted{};
          regmax_weights_block& wanted = weights ? weights->blocks[job] : unwanted;
          const bool done = forward.run(wanted);
          if (!weights || (call.recompute && forward.better_recomputed(wanted))) free_block(wanted);
          return done;
        });
  });
}

}  // namespace regmax::REGMAX_ISA
