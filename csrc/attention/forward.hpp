// The forward pass: the scores of a block of queries, the weights of its rows by the tiers of rows/, and sums
// of values.
//
// Keys that a mask deletes for all queries are left out when keys are packed. Masks that differ from query to
// query are applied row by row: scores are compacted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "attention/blocks.hpp"
#include "attention/weights.hpp"
#include "mappings/mapping.hpp"
#include "rows/cascade.hpp"
#include "rows/csr_rows.hpp"

namespace regmax::REGMAX_ISA {

// The kept keys of every head, in panels.
template <class T>
class PackedKeys {
 public:
  explicit PackedKeys(const regmax_attention& call)
      : call_(call),
        panels_(kv_heads(call) * panel_numbers()),
        index_(shared_mask() ? kv_heads(call) * call.keys : 0),
        counts_(kv_heads(call)) {}

  explicit operator bool() const { return panels_ && index_ && counts_; }

  void pack(int64_t head) {
    int32_t* const kept = shared_mask() ? index_.get() + head * call_.keys : nullptr;
    counts_.get()[head] = kept ? list_kept(head, kept) : call_.keys;
    pack_panels(typed<T>(call_.k) + head * call_.keys * call_.e, kept, counts_.get()[head], call_.e,
                panels_.get() + head * panel_numbers());
  }

  void pack_all() {
    run_jobs(
        kv_heads(call_), call_.threads, [](void* self, int64_t head) { static_cast<PackedKeys*>(self)->pack(head); },
        this);
  }

  const T* panel(int64_t head, int64_t p) const {
    return panels_.get() + head * panel_numbers() + p * panel_width<T> * call_.e;
  }

  // The columns of the kept keys; nullptr if all are kept.
  const int32_t* index(int64_t head) const { return shared_mask() ? index_.get() + head * call_.keys : nullptr; }

  // How many of the keys 0, ..., visible - 1 are kept.
  int64_t kept_among(int64_t head, int64_t visible) const {
    if (!shared_mask()) return visible;
    const int32_t* const kept = index(head);
    return std::partition_point(kept, kept + counts_.get()[head], [=](int32_t j) { return j < visible; }) - kept;
  }

 private:
  bool shared_mask() const { return call_.mask && call_.mask_rows == 1; }
  int64_t panel_numbers() const { return panels_of<T>(call_.keys) * panel_width<T> * call_.e; }

  int64_t list_kept(int64_t head, int32_t* kept) const {
    const uint8_t* const mask = call_.mask + call_.mask_slices[head * call_.groups] * call_.keys;
    int64_t count = 0;
    for (int64_t j = 0; j < call_.keys; ++j) {
      kept[count] = static_cast<int32_t>(j);
      count += mask[j] != 0;
    }
    return count;
  }

  const regmax_attention& call_;
  Memory<T> panels_;
  Memory<int32_t> index_;
  Memory<int64_t> counts_;
};

template <class T>
struct ForwardScratch {
  T *queries, *scores, *maxima, *weights;
  int32_t* columns;
  Workspace workspace;

  ForwardScratch(Cutter& cutter, const regmax_attention& call)
      : queries(cutter.take<T>(rows_per_block<T>(call) * call.e)),
        scores(cutter.take<T>(rows_per_block<T>(call) * scores_stride<T>(call))),
        maxima(cutter.take<T>(rows_per_block<T>(call) * lanes<T>)),
        weights(cutter.take<T>(call.keys)),
        columns(cutter.take<int32_t>(call.mask && call.mask_rows > 1 ? lanes<T> * call.keys : 0)),
        workspace(cutter, call.keys) {}
};

// Updates the maxima by lane with x[begin, end). NaN is ignored: screening catches it.
template <class T>
inline void widen_maxima(const T* x, int64_t begin, int64_t end, T* maxima) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  Vec<T> top = load(maxima);
  for (int64_t i = begin; i < end; i += lanes<T>) top = larger(load_left(x + i, end - i, lowest), top);
  store<T>(maxima, top);
}

template <class T>
class ForwardBlock;

// A mapping as attention sees it: this code is compiled once for all mappings.
template <class T>
struct AttentionMapping {
  bool (*map)(ForwardBlock<T>& block, regmax_weights_block& weights);
  bool (*is_constant)(const CompactedRow<T>& row);
  void (*multiply)(const CompactedRow<T>& row, double theta, Workspace& w);
};

template <class T>
class ForwardBlock {
 public:
  ForwardBlock(const regmax_attention& call, const AttentionMapping<T>& mapping, const PackedKeys<T>& keys,
               const QueryBlock& block, ForwardScratch<T>& s)
      : call_(call), mapping_(mapping), keys_(keys), block_(block), s_(s), kv_head_(block.head / call.groups) {}

  bool run(regmax_weights_block& weights, T* out) {
    if (!weigh(weights)) return false;
    sum_values(weights, out);
    return true;
  }

  // Whether the backward pass should recompute these weights instead of reading them: they are many, and
  // cheap.
  bool better_recomputed(const regmax_weights_block& weights) const {
    return is_dense(call_, block_, weights.size) && 4 * costly_rows_ < block_.rows;
  }

  // Only the weights.
  bool weigh(regmax_weights_block& weights) {
    for (int64_t r = 0; r < block_.rows; ++r) length_[r] = row_length(block_.first + r);
    score();
    return mapping_.map(*this, weights);
  }

  // Maps the scored rows to compressed rows of weights; false if memory was exhausted.
  template <class Mapping>
  bool map(regmax_weights_block& weights) {
    CsrRows<T> out(weights, block_.rows, call_.theta, Mapping::joins == Joins::neighbours);
    Cascade<T, Mapping> cascade(longest_row(), forced_tier(), s_.workspace);
    const bool fits = Mapping::fits_lanes(call_.theta);
    for (int64_t first = 0; first < block_.rows; first += lanes<T>) {
      const uint32_t rows = fill_group(first, out);
      cascade.run(out.group, fits ? rows : 0, fits ? 0 : rows, out);
    }
    costly_rows_ = cascade.costly_rows();
    return !out.failed();
  }

 private:
  bool row_masks() const { return call_.mask && call_.mask_rows > 1; }
  T* scores(int64_t r) const { return s_.scores + r * stride_; }
  const uint8_t* mask_row(int64_t i) const {
    return call_.mask + (call_.mask_slices[block_.head] * call_.mask_rows + i) * call_.keys;
  }

  // How many packed keys a query needs: those that it sees, or up to the last one that its own mask keeps.
  int64_t row_length(int64_t i) const {
    int64_t length = visible_keys(call_, i);
    if (!row_masks()) return keys_.kept_among(kv_head_, length);
    for (const uint8_t* keep = mask_row(i); length > 0 && !keep[length - 1];) --length;
    return length;
  }

  void score() {
    const int64_t longest = longest_row();
    int64_t shortest = longest;
    for (int64_t r = 0; r < block_.rows; ++r) shortest = length_[r] < shortest ? length_[r] : shortest;
    scale_queries();
    const int64_t tiled = (block_.rows + score_rows - 1) / score_rows * score_rows;
    for (int64_t i = 0; i < tiled * lanes<T>; ++i) s_.maxima[i] = -std::numeric_limits<T>::infinity();
    // Maxima come with the products, for the panels that all rows cover and if no bias or mask follows.
    const int64_t whole = call_.bias || row_masks() ? 0 : shortest / panel_width<T>;
    for (int64_t p = 0; p < panels_of<T>(longest); ++p) {
      multiply_panel(s_.queries, tiled, call_.e, keys_.panel(kv_head_, p), s_.scores + p * panel_width<T>, stride_,
                     p < whole ? s_.maxima : nullptr);
    }
    done_ = whole * panel_width<T>;
  }

  void scale_queries() {
    const T* const q = typed<T>(call_.q) + block_.row(call_) * call_.e;
    const T scale = static_cast<T>(call_.scale);
    for (int64_t i = 0; i < block_.rows * call_.e; ++i) s_.queries[i] = scale * q[i];
    for (int64_t i = block_.rows * call_.e; i < rows_per_block<T>(call_) * call_.e; ++i) s_.queries[i] = 0;
  }

  int64_t longest_row() const {
    int64_t longest = 0;
    for (int64_t r = 0; r < block_.rows; ++r) longest = length_[r] > longest ? length_[r] : longest;
    return longest;
  }

  // The group of rows from `first` on; returns the bits of those that have scores.
  uint32_t fill_group(int64_t first, CsrRows<T>& out) {
    const int64_t rest = block_.rows - first;
    uint32_t rows = 0;
    out.begin(first);
    for (int r = 0; r < lanes<T> && r < rest; ++r) {
      add_row(first + r, r, out);
      rows |= static_cast<uint32_t>(out.group.length[r] > 0) << r;
    }
    out.group.maxima = s_.maxima + first * lanes<T>;
    return rows;
  }

  // Adds row i of the block to a group: with its bias, without the keys that its own mask deletes.
  void add_row(int64_t i, int r, CsrRows<T>& out) {
    T* const x = s_.scores + i * stride_;
    int64_t length = length_[i];
    const int32_t* columns = keys_.index(kv_head_);
    const int64_t query = block_.first + i;
    if (call_.bias) {
      const int64_t line = call_.bias_slices[block_.head] * call_.bias_rows + (call_.bias_rows > 1 ? query : 0);
      const T* const bias = typed<T>(call_.bias) + line * call_.keys;
      for (int64_t j = 0; j < length; ++j) x[j] += bias[columns ? columns[j] : j];
    }
    if (row_masks() && std::memchr(mask_row(query), 0, static_cast<std::size_t>(length))) {
      int32_t* const kept = s_.columns + r * call_.keys;
      length = compact_scores(x, mask_row(query), length, kept);
      columns = kept;
    }
    out.add(r, x, length, columns);
    widen_maxima(x, done_, length, s_.maxima + i * lanes<T>);
  }

  static int64_t compact_scores(T* x, const uint8_t* keep, int64_t length, int32_t* columns) {
    int64_t m = 0;
    for (int64_t j = 0; j < length; ++j) {
      x[m] = x[j];
      columns[m] = static_cast<int32_t>(j);
      m += keep[j] != 0;
    }
    return m;
  }

  void sum_values(const regmax_weights_block& weights, T* out) {
    const int64_t depth = visible_keys(call_, block_.first + block_.rows - 1);
    const T* const v = typed<T>(call_.v) + kv_head_ * call_.keys * call_.e_v;
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
        sum_rows(kept, columns, count, v, call_.e_v, out + r * call_.e_v);
      }
    }
    if (dense) multiply<T>({s_.scores, stride_, 1}, v, block_.rows, depth, call_.e_v, out, false);
  }

  const regmax_attention& call_;
  const AttentionMapping<T>& mapping_;
  const PackedKeys<T>& keys_;
  const QueryBlock block_;
  ForwardScratch<T>& s_;
  const int64_t kv_head_;
  const int64_t stride_ = scores_stride<T>(call_);
  int64_t costly_rows_ = 0;
  int64_t done_ = 0;  // the maxima of every row cover this many scores
  int64_t length_[64] = {};
};

// Calls use(mapping) with the AttentionMapping of a call; kernels off the simplex have none.
template <class T, class Use>
inline int32_t with_attention_mapping(const regmax_attention& call, const Use& use) {
  return with_mapping(call.kernel, call.theta, nullptr, 0, [&](auto kind) {
    using Mapping = decltype(kind);
    if constexpr (Mapping::on_simplex) {
      const AttentionMapping<T> mapping{
          [](ForwardBlock<T>& block, regmax_weights_block& weights) { return block.template map<Mapping>(weights); },
          Mapping::template is_constant<T>, Mapping::template multiply<T>};
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
  const int64_t blocks = call.heads * blocks_per_head<T>(call);
  if (weights) {
    weights->item_size = sizeof(T);
    weights->count = blocks;
    weights->blocks = static_cast<regmax_weights_block*>(
        std::calloc(static_cast<std::size_t>(blocks) + 1, sizeof(regmax_weights_block)));
    if (!weights->blocks) return REGMAX_OUT_OF_MEMORY;
  }
  return with_attention_mapping<T>(call, [&](const AttentionMapping<T>& mapping) {
    PackedKeys<T> keys(call);
    if (!keys) return int32_t{REGMAX_OUT_OF_MEMORY};
    keys.pack_all();
    return run_with_scratch<ForwardScratch<T>>(
        blocks, call.threads, call, [&](int64_t job, ForwardScratch<T>& scratch) {
          const QueryBlock block = query_block<T>(call, job);
          ForwardBlock<T> forward(call, mapping, keys, block, scratch);
          T* const block_out = static_cast<T*>(call.out) + block.row(call) * call.e_v;
          regmax_weights_block unwanted{};
          regmax_weights_block& wanted = weights ? weights->blocks[job] : unwanted;
          const bool done = forward.run(wanted, block_out);
          if (!weights || (call.recompute && forward.better_recomputed(wanted))) free_block(wanted);
          return done;
        });
  });
}

}  // namespace regmax::REGMAX_ISA
