// The forward pass: scores of a block of queries, weights of its rows, sums of values.
//
// Keys that a mask deletes for all queries are left out when keys are packed: behind that, the rows have no
// gaps. Where every query has a mask of its own, the gaps are closed row by row.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "attention_blocks.hpp"
#include "attention_rows.hpp"

namespace regmax::REGMAX_ISA {

// The keys of every head in panels, without the deleted ones.
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

  const T* panel(int64_t head, int64_t p) const {
    return panels_.get() + head * panel_numbers() + p * panel_width<T> * call_.e;
  }

  // The numbers of the kept keys, nullptr where all are kept.
  const int32_t* index(int64_t head) const {
    return shared_mask() ? index_.get() + head * call_.keys : nullptr;
  }

  // How many of the keys 0, ..., visible - 1 are kept.
  int64_t kept_among(int64_t head, int64_t visible) const {
    if (!shared_mask()) return visible;
    const int32_t* const index = this->index(head);
    int64_t low = 0, high = counts_.get()[head];
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      (index[middle] < visible ? low : high) = index[middle] < visible ? middle + 1 : middle;
    }
    return low;
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
        workspace(cutter.take<char>(Workspace::bytes(call.keys)), call.keys) {}
};

template <class T>
class ForwardBlock {
 public:
  ForwardBlock(const regmax_attention& call, const PackedKeys<T>& keys, const QueryBlock& block,
               ForwardScratch<T>& s)
      : call_(call), keys_(keys), block_(block), s_(s), kv_head_(block.head / call.groups) {}

  bool run(regmax_weights_block& weights, T* out) {
    if (!weigh(weights)) return false;
    sum_values(weights, out);
    return true;
  }

  // Whether the backward pass had better compute these weights again than read them: there are many, and they
  // are cheap.
  bool better_recomputed(const regmax_weights_block& weights) const {
    return is_dense(call_, block_, weights.size) && 4 * general_rows_ < block_.rows;
  }

  // The weights alone.
  bool weigh(regmax_weights_block& weights) {
    for (int64_t r = 0; r < block_.rows; ++r) length_[r] = row_length(block_.first + r);
    score();
    return map(weights);
  }

 private:
  bool row_masks() const { return call_.mask && call_.mask_rows > 1; }
  T* scores(int64_t r) const { return s_.scores + r * stride_; }
  const uint8_t* mask_row(int64_t i) const {
    return call_.mask + (call_.mask_slices[block_.head] * call_.mask_rows + i) * call_.keys;
  }

  // How many packed keys a query needs: those that it sees, or with a mask of its own up to the last one
  // kept.
  int64_t row_length(int64_t i) const {
    int64_t length = visible_keys(call_, i);
    if (!row_masks()) return keys_.kept_among(kv_head_, length);
    for (const uint8_t* keep = mask_row(i); length > 0 && !keep[length - 1];) --length;
    return length;
  }

  void score() {
    int64_t shortest = length_[0], longest = length_[0];
    for (int64_t r = 1; r < block_.rows; ++r) {
      shortest = length_[r] < shortest ? length_[r] : shortest;
      longest = length_[r] > longest ? length_[r] : longest;
    }
    scale_queries();
    const int64_t tiled = (block_.rows + score_rows - 1) / score_rows * score_rows;
    for (int64_t i = 0; i < tiled * lanes<T>; ++i) s_.maxima[i] = -std::numeric_limits<T>::infinity();
    // Maxima come with the products, as far as all rows reach and nothing is changed behind.
    const int64_t whole = call_.bias || row_masks() ? 0 : shortest / panel_width<T>;
    for (int64_t p = 0; p < panels_of<T>(longest); ++p) {
      multiply_panel(s_.queries, tiled, call_.e, keys_.panel(kv_head_, p), s_.scores + p * panel_width<T>,
                     stride_, p < whole ? s_.maxima : nullptr);
    }
    done_ = whole * panel_width<T>;
  }

  void scale_queries() {
    const T* const q = typed<T>(call_.q) + block_.row(call_) * call_.e;
    const T scale = static_cast<T>(call_.scale);
    for (int64_t i = 0; i < block_.rows * call_.e; ++i) s_.queries[i] = scale * q[i];
    for (int64_t i = block_.rows * call_.e; i < rows_per_block<T>(call_) * call_.e; ++i) s_.queries[i] = 0;
  }

  bool map(regmax_weights_block& weights) {
    RowWriter<T> writer(weights, call_.kernel == REGMAX_FUSEDMAX);
    RowMapper<T> mapper(call_.kernel, call_.theta, s_.workspace);
    for (int64_t first = 0; first < block_.rows; first += lanes<T>) {
      ScoreRow<T> group[lanes<T>];
      const int64_t left = block_.rows - first;
      const int count = static_cast<int>(left < lanes<T> ? left : lanes<T>);
      for (int r = 0; r < count; ++r) {
        group[r] = finished_row(first + r, s_.columns + r * call_.keys);
        widen_maxima(group[r].x, done_, group[r].length, s_.maxima + (first + r) * lanes<T>);
      }
      if (!mapper.run(group, count, s_.maxima + first * lanes<T>, writer)) return false;
    }
    general_rows_ = mapper.general_rows();
    return true;
  }

  // Row r with its bias, without the keys that its own mask deletes.
  ScoreRow<T> finished_row(int64_t r, int32_t* columns) {
    T* const x = scores(r);
    ScoreRow<T> row{x, length_[r], keys_.index(kv_head_)};
    const int64_t i = block_.first + r;
    if (call_.bias) {
      const int64_t line = call_.bias_slices[block_.head] * call_.bias_rows + (call_.bias_rows > 1 ? i : 0);
      const T* const bias = typed<T>(call_.bias) + line * call_.keys;
      for (int64_t j = 0; j < row.length; ++j) x[j] += bias[row.column(j)];
    }
    if (!row_masks() || !std::memchr(mask_row(i), 0, static_cast<std::size_t>(row.length))) return row;
    const uint8_t* const keep = mask_row(i);
    int64_t m = 0;
    for (int64_t j = 0; j < row.length; ++j) {
      x[m] = x[j];
      columns[m] = static_cast<int32_t>(j);
      m += keep[j] != 0;
    }
    return {x, m, columns};
  }

  void sum_values(const regmax_weights_block& weights, T* out) {
    const int64_t depth = visible_keys(call_, block_.first + block_.rows - 1);
    const T* const v = typed<T>(call_.v) + kv_head_ * call_.keys * call_.e_v;
    const int32_t* columns = weights.columns;
    const T* y = typed<T>(weights.values);
    const bool dense = is_dense(call_, block_, weights.size);
    for (int64_t r = 0; r < block_.rows; columns += weights.counts[r], y += weights.counts[r], ++r) {
      const T* const kept = drop(r, y, columns, weights.counts[r]);
      if (dense) {
        spread(kept, columns, weights.counts[r], 0, depth, scores(r));
      } else {
        sum_rows(kept, columns, weights.counts[r], v, call_.e_v, out + r * call_.e_v);
      }
    }
    if (dense) multiply<T>({s_.scores, stride_, 1}, v, block_.rows, depth, call_.e_v, out, false);
  }

  const T* drop(int64_t r, const T* y, const int32_t* columns, int64_t count) {
    const Dropout dropout(call_.dropout_p, call_.seed);
    if (!dropout.active()) return y;
    for (int64_t k = 0; k < count; ++k) {
      s_.weights[k] = y[k] * static_cast<T>(dropout.factor(block_.row(call_) + r, columns[k]));
    }
    return s_.weights;
  }

  const regmax_attention& call_;
  const PackedKeys<T>& keys_;
  const QueryBlock block_;
  ForwardScratch<T>& s_;
  const int64_t kv_head_;
  const int64_t stride_ = scores_stride<T>(call_);
  int64_t general_rows_ = 0;
  int64_t done_ = 0;  // how many scores of every row its maxima know
  int64_t length_[64] = {};
};

// Where `weights` is nullptr nobody wants them: a block's are freed when its output is written. So are those
// of dense blocks that the backward pass computes again.
template <class T>
int32_t attention_forward(const regmax_attention& call, T* out, regmax_weights* weights) {
  const int64_t blocks = call.heads * blocks_per_head<T>(call);
  if (weights) {
    weights->item_size = sizeof(T);
    weights->count = blocks;
    weights->blocks = static_cast<regmax_weights_block*>(
        std::calloc(static_cast<std::size_t>(blocks) + 1, sizeof(regmax_weights_block)));
    if (!weights->blocks) return REGMAX_OUT_OF_MEMORY;
  }
  PackedKeys<T> keys(call);
  if (!keys) return REGMAX_OUT_OF_MEMORY;
  run_jobs(
      kv_heads(call), call.threads, [](void* k, int64_t head) { static_cast<PackedKeys<T>*>(k)->pack(head); },
      &keys);
  return run_with_scratch<ForwardScratch<T>>(call, blocks, [&](int64_t job, ForwardScratch<T>& scratch) {
    const QueryBlock block = query_block<T>(call, job);
    ForwardBlock<T> forward(call, keys, block, scratch);
    T* const block_out = out + block.row(call) * call.e_v;
    regmax_weights_block unwanted{};
    regmax_weights_block& wanted = weights ? weights->blocks[job] : unwanted;
    const bool done = forward.run(wanted, block_out);
    if (!weights || (call.recompute && forward.better_recomputed(wanted))) free_block(wanted);
    return done;
  });
}

}  // namespace regmax::REGMAX_ISA
