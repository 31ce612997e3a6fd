// The forward pass: the scores of a block of queries, the weights of its rows by the tiers of rows/, and sums
// of values.
//
// Keys that a mask deletes for all queries are left out when keys are packed. Masks that differ from query to
// query are applied row by row: a row that keeps a range of keys is a part of the scores, others are compacted.
//
// With AVX-512 VNNI, groups of rows are screened in 8 bits first (screen.hpp); only the rows that this leaves are
// scored in full.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "attention/blocks.hpp"
#include "attention/masks.hpp"
#include "attention/packed_keys.hpp"
#include "attention/screen.hpp"
#include "attention/weights.hpp"
#include "mappings/mapping.hpp"
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

// Whether a mapping's cut follows from the threshold of the maxima by lane (mappings/mapping.hpp).
template <class Mapping, class = void>
constexpr bool cuts_by_threshold = false;
template <class Mapping>
constexpr bool cuts_by_threshold<Mapping, std::void_t<decltype(Mapping::cut_slack(0.0))>> = true;

template <class T>
class ForwardBlock;

// A mapping as attention sees it: this code is compiled once for all mappings.
template <class T>
struct AttentionMapping {
  bool (*map)(ForwardBlock<T>& block, regmax_weights_block& weights);
  bool (*is_constant)(const CompactedRow<T>& row);
  void (*multiply)(const CompactedRow<T>& row, double theta, Workspace& w);
  double (*strength_grad)(const CompactedRow<T>& row, double theta, Workspace& w);
  double (*gamma_grad)(const CompactedRow<T>& row, double theta, Workspace& w);
  int64_t least_screened;
};

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
        is_screening_(is_screening) {}

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
    for (int64_t r = 0; r < block_.rows; ++r) find_length(r);
    return mapping_.map(*this, weights);
  }

  // Maps the rows to compressed rows of weights; false if memory was exhausted.
  template <class Mapping>
  bool map(regmax_weights_block& weights) {
    CsrRows<T> out(weights, block_.rows, Mapping::joins == Joins::neighbours);
    Cascade<T, Mapping> cascade(longest_row(), forced_tier(), s_.workspace, true);
    count_ = 0;
#if defined(__AVX512F__)
    if constexpr (can_screen<T>) {
      if (cascade.screens()) screen<Mapping>(cascade, out);
    }
#endif
    if (!is_screened_) {
      for (int64_t r = 0; r < block_.rows; ++r) rows_[count_++] = r;
    }
    if (count_ > 0) score();
    for (int64_t first = 0; first < count_; first += lanes<T>) {
      const uint32_t rows = fill_group(first, out), fast = rows & fast_rows<Mapping>(rows_ + first, count_ - first);
      cascade.run(out.group, fast, rows & ~fast, out);
    }
    costly_rows_ = cascade.costly_rows();
    return !out.failed();
  }

 private:
  T* scores(int64_t r) const { return s_.scores + r * stride_; }

  // Where row r of the block is, in q or out.
  int64_t place_of(Part part, int64_t r) const {
    const HeadRows rows = head_rows(call_, part, block_.head_of(call_, r));
    return rows.begin + block_.query(call_, r) * rows.stride;
  }
  const uint8_t* mask_row(int64_t r) const {
    const int64_t slice = call_.mask_slices[block_.head_of(call_, r)];
    return call_.mask + (slice * call_.mask_rows + block_.query(call_, r)) * call_.keys;
  }

  // The packed keys that a query needs: those that it sees, from the first to the last that its own mask keeps.
  void find_length(int64_t r) {
    const int64_t visible = visible_keys(call_, block_.query(call_, r));
    begin_[r] = 0, gaps_[r] = false;
    if (!keys_.kept.has_rows()) {
      length_[r] = keys_.kept.count(kv_head_, visible);
      return;
    }
    const KeptRange& range = keys_.kept.range(block_.head_of(call_, r), block_.query(call_, r));
    length_[r] = range.end < visible ? range.end : visible;
    if (!range.whole && range.end > visible) length_[r] = end_of_nonzero(mask_row(r), visible);
    gaps_[r] = !range.whole;
    begin_[r] = range.begin < length_[r] ? range.begin : length_[r];
  }

  // The bits of the rows that the vector tiers may map, of the first `left` of these rows, at most a group.
  template <class Mapping>
  uint32_t fast_rows(const int64_t* rows, int64_t left) const {
    uint32_t fast = 0;
    for (int r = 0; r < lanes<T> && r < left; ++r)
      fast |= static_cast<uint32_t>(Mapping::fits_vectors(theta_of(call_, block_.row(call_) + rows[r]))) << r;
    return fast;
  }

#if defined(__AVX512F__)
  // Maps the rows that 8 bits can screen; the others are left in rows_.
  template <class Mapping>
  void screen(Cascade<T, Mapping>& cascade, CsrRows<T>& out) {
    const auto& keys = keys_.screened;
    const bool few = has_few_queries(call_);
    if (!is_screening_ || !(few || keys.usable(kv_head_))) return;
    if (shortest_row() < (few ? least_screened_row : Mapping::least_screened)) return;
    is_screened_ = true;
    ScreenCounts counts{};
    for (int64_t first = 0; first < block_.rows; first += lanes<T>) {
      const int64_t rest = block_.rows - first < lanes<T> ? block_.rows - first : lanes<T>;
      int64_t rows[lanes<T>];
      for (int64_t r = 0; r < rest; ++r) rows[r] = first + r;
      uint32_t left = all_lanes<T> >> (lanes<T> - rest);
      if (few || keys.is_worth_it(kv_head_)) {
        ScreenedGroup group(call_, keys, kv_head_, s_.queries, s_.screen);
        const uint32_t bounded = screen_group<Mapping>(group, rows, rest, left & fast_rows<Mapping>(rows, rest), out);
        left &= ~bounded | cascade.run_bounded(out.group, bounded, out);
        counts.rows += rest;
        counts.fallbacks += __builtin_popcount(left);
        counts.rescored += group.rescored;
        for (int64_t r = 0; r < rest; ++r) counts.candidates += left >> r & 1 ? 0 : group.candidates[r];
        if (!few && !has_paid_off<Mapping>(rest, __builtin_popcount(left), group.rescored, length_[rows[rest - 1]])) {
          keys.skip(kv_head_);
        }
      }
      for (; left; left &= left - 1) rows_[count_++] = first + __builtin_ctz(left);
    }
    count_screened(counts);
  }

  // Whether screening this many rows took less time than scoring them: it saves about .6 of the product, but those that
  // fall back cost whole tiles of it. A single one says little about the next groups.
  template <class Mapping>
  static bool has_paid_off(int64_t rows, int64_t fallbacks, int64_t rescored, int64_t length) {
    const int64_t again = fallbacks > 1 ? (fallbacks + score_rows - 1) / score_rows * score_rows : fallbacks;
    const int64_t cost = cuts_by_threshold<Mapping> ? screen_scores * rows + rescored_scores * rescored
                                                    : lane_screen_scores * rows + lane_rescored_scores * rescored;
    return 5 * (cost + again * length) <= 3 * rows * length;
  }

  int64_t shortest_row() const {
    int64_t shortest = call_.keys;
    for (int64_t r = 0; r < block_.rows; ++r) shortest = std::min(shortest, length_[r] - begin_[r]);
    return shortest;
  }

  // Approximate scores of a group of rows, and the exact maxima by lane; returns the rows for which this succeeded.
  template <class Mapping>
  uint32_t screen_group(ScreenedGroup& group, const int64_t* rows, int64_t count, uint32_t wanted, CsrRows<T>& out) {
    int64_t longest = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      T* const query = s_.queries + r * call_.e;
      const bool is_wanted = wanted >> r & 1 && !is_tiny(gamma_of(call_, block_.row(call_) + rows[r < count ? r : 0]));
      if (is_wanted) scale_query(rows[r], query);
      if (!group.add_query(r, is_wanted ? query : nullptr)) wanted &= ~(1u << r);
      if (r < count) longest = length_[rows[r]] > longest ? length_[rows[r]] : longest;
    }
    if (has_few_queries(call_)) {
      group.multiply_copy(keys_.kept.index(kv_head_), longest, s_.scores, stride_, count);
    } else {
      group.multiply(longest, s_.scores, stride_);
    }
    out.begin();
    float distances[lanes<T>] = {};
    for (int r = 0; r < count; ++r) {
      if (!(wanted >> r & 1)) continue;
      const int64_t i = rows[r];
      const double theta = theta_of(call_, block_.row(call_) + i);
      const Line line = finish_line(i, r, scores(r));
      out.add(r, i, line.x, line.length, line.columns, theta);
      const bool is_shifted = has_few_queries(call_) || call_.bias || gaps_[i] || begin_[i] > 0;
      const BoundedRow bounded{line.x, line.length, line.columns, bias_row(i), bias_factor(i), is_shifted};
      if (line.length < least_screened_row || !group.add_row(r, bounded)) wanted &= ~(1u << r);
      out.group.errors[r] = group.largest_error[r];
      out.group.finite |= static_cast<uint32_t>(!group.has_deleted[r]) << r;
      if constexpr (cuts_by_threshold<Mapping>) {
        distances[r] = static_cast<float>(Mapping::cut_slack(theta));
      } else {
        distances[r] = static_cast<float>(1.01 * Mapping::reach(theta));
      }
    }
    wanted = cuts_by_threshold<Mapping> ? group.find_by_threshold(wanted, distances, s_.maxima)
                                        : group.find_by_lane(wanted, distances, s_.maxima);
    out.group.maxima = s_.maxima;
    out.group.bounded = &group;
    return wanted;
  }
#endif

  // Scores the rows of rows_.
  void score() {
    int64_t longest = 0, shortest = call_.keys, first = call_.keys;
    bool by_panel = !call_.bias;
    for (int64_t k = 0; k < count_; ++k) {
      const int64_t r = rows_[k];
      longest = length_[r] > longest ? length_[r] : longest;
      shortest = length_[r] < shortest ? length_[r] : shortest;
      first = begin_[r] < first ? begin_[r] : first;
      by_panel = by_panel && begin_[r] == 0 && !gaps_[r] && !is_tiny(gamma_of(call_, block_.row(call_) + r));
      scale_query(r, s_.queries + k * call_.e);
    }
    const int64_t tiled = (count_ + score_rows - 1) / score_rows * score_rows;
    for (int64_t i = count_ * call_.e; i < tiled * call_.e; ++i) s_.queries[i] = 0;
    for (int64_t i = 0; i < tiled * lanes<T>; ++i) s_.maxima[i] = -std::numeric_limits<T>::infinity();
    done_ = 0;
    if (has_few_queries(call_)) {
      return multiply_in_place(s_.queries, count_, call_.e, keys_.at(kv_head_), keys_.stride(),
                               keys_.kept.index(kv_head_), longest, s_.scores, stride_);
    }
    // Maxima come with the products, for the panels that all rows cover and if no bias or mask follows.
    const int64_t whole = by_panel ? shortest / panel_width<T> : 0;
    for (int64_t p = first / panel_width<T>; p < panels_of<T>(longest); ++p) {
      multiply_panel(s_.queries, tiled, call_.e, keys_.panel(kv_head_, p), s_.scores + p * panel_width<T>, stride_,
                     p < whole ? s_.maxima : nullptr);
    }
    done_ = whole * panel_width<T>;
  }

  void scale_query(int64_t r, T* scaled) {
    const T* const q = typed<T>(call_.q) + place_of(part_q, r);
    const double gamma = gamma_of(call_, block_.row(call_) + r);
    const T factor = static_cast<T>(is_tiny(gamma) ? call_.scale : call_.scale / gamma);
    Vec<T> largest{};
    for (int64_t i = 0; i < call_.e; i += lanes<T>) {
      const Vec<T> numbers = splat(factor) * load(q + i);
      store<T>(scaled + i, numbers);
      largest = larger(absolute<T>(numbers), largest);
    }
    is_bounded_[r] = max_lanes<T>(largest) <= bounded_number;
  }

  int64_t longest_row() const {
    int64_t longest = 0;
    for (int64_t r = 0; r < block_.rows; ++r) longest = length_[r] > longest ? length_[r] : longest;
    return longest;
  }

  // The group of scored rows from the k-th on; returns the bits of those that have scores.
  uint32_t fill_group(int64_t first, CsrRows<T>& out) {
    uint32_t rows = 0;
    out.begin();
    for (int r = 0; r < lanes<T> && first + r < count_; ++r) {
      const int64_t i = rows_[first + r];
      const Line line = finish_line(i, r, scores(first + r));
      const double gamma = gamma_of(call_, block_.row(call_) + i);
      if (is_tiny(gamma)) {
        divide_row(line.x, line.length, max_lanes<T>(lane_maxima(line.x, line.length)), gamma, line.x);
      }
      out.add(r, i, line.x, line.length, line.columns, theta_of(call_, block_.row(call_) + i));
      const bool has_deleted = widen_maxima(line.x, done_, line.length, s_.maxima + (first + r) * lanes<T>);
      const bool is_finite = !has_deleted && (done_ == 0 || (is_bounded_[i] && keys_.are_bounded(kv_head_)));
      out.group.finite |= static_cast<uint32_t>(is_finite) << r;
      rows |= static_cast<uint32_t>(line.length > 0) << r;
    }
    out.group.maxima = s_.maxima + first * lanes<T>;
    return rows;
  }

  struct Line {
    T* x;
    int64_t length;
    const int32_t* columns;
  };

  // Row i of the block from its scores of all packed keys: with its bias, without the keys that its own mask deletes. r
  // is its place in the group.
  Line finish_line(int64_t i, int r, T* all) {
    const int64_t begin = begin_[i];
    Line line{all + begin, length_[i] - begin, keys_.kept.index(kv_head_)};
    if (begin > 0) line.columns = keys_.kept.columns_from(begin);
    if (call_.bias) add_bias(i, line);
    if (gaps_[i]) {
      int32_t* const kept = s_.columns + r * call_.keys;
      line.length = compact_scores(line.x, mask_row(i), begin, line.length, kept);
      line.columns = kept;
    }
    return line;
  }

  // The biases of a row's keys, nullptr without any, and the factor that they are multiplied by.
  const T* bias_row(int64_t i) const {
    if (!call_.bias) return nullptr;
    const int64_t slice = call_.bias_slices[block_.head_of(call_, i)];
    const int64_t line = slice * call_.bias_rows + (call_.bias_rows > 1 ? block_.query(call_, i) : 0);
    return typed<T>(call_.bias) + line * call_.keys;
  }
  T bias_factor(int64_t i) const {
    const double gamma = gamma_of(call_, block_.row(call_) + i);
    return static_cast<T>(is_tiny(gamma) ? 1 : 1 / gamma);
  }

  void add_bias(int64_t i, const Line& line) const {
    const T* const bias = bias_row(i);
    const T factor = bias_factor(i);
    if (factor == 1 && !line.columns) {
      for (int64_t j = 0; j < line.length; ++j) line.x[j] += bias[j];
      return;
    }
    for (int64_t j = 0; j < line.length; ++j)
      line.x[j] += times_factor(bias[line.columns ? line.columns[j] : j], factor);
  }

  // x begins at key `begin`.
  static int64_t compact_scores(T* x, const uint8_t* keep, int64_t begin, int64_t length, int32_t* columns) {
    int64_t m = 0;
    for (int64_t j = 0; j < length; ++j) {
      x[m] = x[j];
      columns[m] = static_cast<int32_t>(begin + j);
      m += keep[begin + j] != 0;
    }
    return m;
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
        sum_rows(kept, columns, count, v, rows.stride, call_.e_v, out + place_of(part_out, r));
      }
    }
    if (!dense) return;
    T* const product = call_.strides ? s_.out : out + place_of(part_out, 0);
    multiply<T>({s_.scores, stride_, 1}, v, rows.stride, block_.rows, depth, call_.e_v, product, false);
    for (int64_t r = 0; call_.strides && r < block_.rows; ++r) {
      std::copy_n(product + r * call_.e_v, call_.e_v, out + place_of(part_out, r));
    }
  }

  const regmax_attention& call_;
  const AttentionMapping<T>& mapping_;
  const PackedKeys<T>& keys_;
  const QueryBlock block_;
  ForwardScratch<T>& s_;
  const int64_t kv_head_;
  const bool is_screening_;  // whether keys_ has the keys in 8 bits
  bool is_screened_ = false;
  const int64_t stride_ = scores_stride<T>(call_);
  int64_t costly_rows_ = 0;
  int64_t done_ = 0;              // the maxima of every row cover this many scores
  int64_t rows_[64], count_ = 0;  // the rows of the block that are scored
  int64_t begin_[64] = {}, length_[64] = {};
  bool gaps_[64] = {};        // the row's own mask deletes keys between these
  bool is_bounded_[64] = {};  // the scaled query, by bounded_number
};

// Calls use(mapping) with the AttentionMapping of a call; kernels off the simplex have none.
template <class T, class Use>
inline int32_t with_attention_mapping(const regmax_attention& call, const Use& use) {
  return with_mapping(call.kernel, call.theta, call.thetas, call.heads * call.theta_rows, [&](auto kind) {
    using Mapping = decltype(kind);
    if constexpr (Mapping::on_simplex) {
      const AttentionMapping<T> mapping{
          [](ForwardBlock<T>& block, regmax_weights_block& weights) { return block.template map<Mapping>(weights); },
          Mapping::template is_constant<T>,
          Mapping::template multiply<T>,
          Mapping::template strength_grad<T>,
          Mapping::template gamma_grad<T>,
          Mapping::least_screened};
      return use(mapping);
    } else {
      return int32_t{REGMAX_BAD_ARGUMENT};
    }
  });
}

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
