// The backward pass, on the nonzero weights only. With P the weights, D dropout's factors and dO the
// output's gradient,
//
//     dP = D (dO V^T),   dS = J dP row by row,   dQ = c dS K,   dK = c dS^T Q,   dV = (D P)^T dO
//
// for c = scale / gamma; the bias has the gradient dS / gamma, and each row gives that of its strengths.
//
// A job has a range of keys, all of them if there are enough heads, and loops over the blocks of queries:
// sums run in the order of the rows, so neither threads nor ranges change a bit. Blocks with many weights are
// expanded and multiplied densely; if the forward pass did not store them, they are recomputed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "attention/blocks.hpp"
#include "attention/forward.hpp"
#include "attention/weights.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
struct BackwardScratch {
  ForwardScratch<T> forward;
  T *out_grad, *scores_grad, *dense_weights;

  BackwardScratch(Cutter& cutter, const regmax_attention& call)
      : forward(cutter, call),
        out_grad(cutter.take<T>(rows_per_block<T>(call) * call.e_v)),
        scores_grad(cutter.take<T>(rows_per_block<T>(call) * call.keys)),
        dense_weights(cutter.take<T>(rows_per_block<T>(call) * scores_stride<T>(call))) {}
};

// The nonzero weights of one query.
template <class T>
struct WeightRow {
  const int32_t* columns;
  const T* values;
  const uint8_t* joined;  // nullptr unless the mapping joins neighbours
  int64_t count;
};

// The weights of a block of queries, stored or recomputed.
template <class T>
struct BlockWeights {
  int64_t size, start[64], count[64];
  const int32_t* columns;
  const T* values;
  const uint8_t* joined;

  WeightRow<T> row(int64_t r) const {
    return {columns + start[r], values + start[r], joined ? joined + start[r] : nullptr, count[r]};
  }
};

template <class T>
class Backward {
 public:
  Backward(const regmax_attention& call, const AttentionMapping<T>& mapping)
      : call_(call),
        mapping_(mapping),
        dropout_(call.dropout_p, call.seed),
        keys_(call, false),
        panels_(kv_heads(call) * panel_numbers()) {}

  int32_t run() {
    if (!panels_ || !keys_) return REGMAX_OUT_OF_MEMORY;
    run_jobs(
        kv_heads(call_), call_.threads, [](void* self, int64_t head) { static_cast<Backward*>(self)->pack(head); },
        this);
    if (missing_.load()) keys_.kept.read_rows();
    const int64_t ranges = ranges_per_head();
    const int32_t status = run_with_scratch<BackwardScratch<T>>(
        kv_heads(call_) * ranges, call_.threads, call_, [this, ranges](int64_t job, BackwardScratch<T>& scratch) {
          const int64_t range = job % ranges;
          return differentiate(job / ranges, call_.keys * range / ranges, call_.keys * (range + 1) / ranges, scratch);
        });
    return status == REGMAX_OK && call_.bias_grad ? differentiate_bias() : status;
  }

 private:
  int64_t panel_numbers() const { return panels_of<T>(call_.keys) * panel_width<T> * call_.e_v; }
  int64_t blocks() const { return blocks_per_kv_head<T>(call_); }
  const T* values_of(int64_t kv_head) const { return typed<T>(call_.v) + kv_head * call_.keys * call_.e_v; }
  const T* keys_of(int64_t kv_head) const { return typed<T>(call_.k) + kv_head * call_.keys * call_.e; }
  int64_t depth(const QueryBlock& block) const { return block.depth(call_); }

  int64_t stored(const QueryBlock& block) const {
    return call_.starts[block.row(call_) + block.rows] - call_.starts[block.row(call_)];
  }

  // Only dense blocks multiply by the transpose of all values, and only what was not kept needs the keys.
  void pack(int64_t kv_head) {
    bool dense = false, missing = false;
    for (int64_t b = 0; b < blocks(); ++b) {
      const QueryBlock block = query_block<T>(call_, kv_head * blocks() + b);
      missing |= stored(block) == 0;
      dense |= is_dense(call_, block, stored(block));
    }
    if (missing) {
      keys_.pack(kv_head);
      missing_.store(true);
    }
    if (missing || dense) {
      pack_panels(values_of(kv_head), call_.e_v, nullptr, call_.keys, call_.e_v,
                  panels_.get() + kv_head * panel_numbers());
    }
  }

  // With few heads, ranges of keys share out the work.
  int64_t ranges_per_head() const {
    const int64_t heads = kv_heads(call_), most = call_.keys / 64 + 1, wanted = (call_.threads + heads - 1) / heads;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
  }

  // The gradients of the keys and values from begin to end, and with the first of them those of the queries.
  bool differentiate(int64_t kv_head, int64_t begin, int64_t end, BackwardScratch<T>& s) {
    T* const k_grad = static_cast<T*>(call_.k_grad) + kv_head * call_.keys * call_.e;
    T* const v_grad = static_cast<T*>(call_.v_grad) + kv_head * call_.keys * call_.e_v;
    std::memset(k_grad + begin * call_.e, 0, static_cast<std::size_t>((end - begin) * call_.e) * sizeof(T));
    std::memset(v_grad + begin * call_.e_v, 0, static_cast<std::size_t>((end - begin) * call_.e_v) * sizeof(T));
    regmax_weights_block again{};
    bool done = true;
    for (int64_t b = 0; b < blocks() && done; ++b) {
      const QueryBlock block = query_block<T>(call_, kv_head * blocks() + b);
      BlockWeights<T> weights;
      done = find_weights(block, again, weights, s);
      if (done) differentiate_block(block, weights, begin, end, k_grad, v_grad, s);
    }
    free_block(again);
    return done;
  }

  bool find_weights(const QueryBlock& block, regmax_weights_block& again, BlockWeights<T>& weights,
                    BackwardScratch<T>& s) {
    const int64_t* const starts = call_.starts + block.row(call_);
    if (stored(block) > 0) {
      for (int64_t r = 0; r < block.rows; ++r)
        weights.start[r] = starts[r] - starts[0], weights.count[r] = starts[r + 1] - starts[r];
      weights.size = stored(block);
      weights.columns = call_.columns + starts[0];
      weights.values = typed<T>(call_.values) + starts[0];
      weights.joined = call_.joined ? call_.joined + starts[0] : nullptr;
      return true;
    }
    again.rows = again.size = 0;
    if (!ForwardBlock<T>(call_, mapping_, keys_, block, s.forward).weigh(again)) return false;
    for (int64_t r = 0; r < block.rows; ++r) weights.start[r] = again.starts[r], weights.count[r] = again.counts[r];
    weights.size = again.size;
    weights.columns = again.columns;
    weights.values = typed<T>(again.values);
    weights.joined = again.joined;
    return true;
  }

  void differentiate_block(const QueryBlock& block, const BlockWeights<T>& weights, int64_t begin, int64_t end,
                           T* k_grad, T* v_grad, BackwardScratch<T>& s) {
    const bool dense = is_dense(call_, block, weights.size);
    T* const q_grad = begin == 0 ? static_cast<T*>(call_.q_grad) + block.row(call_) * call_.e : nullptr;
    if (!is_constant(block, weights)) {
      differentiate_scores(block, weights, dense, s);
      if (q_grad) differentiate_strengths(block, weights, s);
      scale_scores(block, weights, call_.scale, s);
      if (dense) {
        multiply_densely(block, weights, begin, end, q_grad, k_grad, s);
      } else {
        multiply_sparsely(block, weights, begin, end, q_grad, k_grad, s);
      }
    } else if (q_grad) {
      std::memset(q_grad, 0, static_cast<std::size_t>(block.rows * call_.e) * sizeof(T));
    }
    add_values(block, weights, dense, begin, end, v_grad, s);
  }

  // Whether a row's weights do not depend on its scores.
  bool is_constant(const WeightRow<T>& row) const {
    return row.count == 0 ||
           (row.values[0] == row.values[0] && mapping_.is_constant({row.values, nullptr, row.joined, row.count}));
  }

  bool is_constant(const QueryBlock& block, const BlockWeights<T>& weights) const {
    for (int64_t r = 0; r < block.rows; ++r) {
      if (!is_constant(weights.row(r))) return false;
    }
    return true;
  }

  // Replaces v by J v.
  void multiply_row(const WeightRow<T>& row, T* v, double theta, Workspace& w) const {
    if (is_constant(row)) {
      std::memset(v, 0, static_cast<std::size_t>(row.count) * sizeof(T));
    } else if (row.values[0] != row.values[0]) {
      for (int64_t k = 0; k < row.count; ++k) v[k] = std::numeric_limits<T>::quiet_NaN();
    } else {
      mapping_.multiply({row.values, v, row.joined, row.count}, theta, w);
    }
  }

  // dS on the support, in s.scores_grad.
  void differentiate_scores(const QueryBlock& block, const BlockWeights<T>& weights, bool dense,
                            BackwardScratch<T>& s) {
    if (dense) multiply_by_values(block, s);
    const T* const v = values_of(block.head / call_.groups);
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t place = block.row(call_) + r;
      const WeightRow<T> row = weights.row(r);
      const T* const out_grad = typed<T>(call_.out_grad) + place * call_.e_v;
      const T* const line = s.forward.scores + r * scores_stride<T>(call_);
      T* const grad = s.scores_grad + weights.start[r];
      for (int64_t k = 0; k < row.count; ++k) {
        grad[k] = dense ? line[row.columns[k]] : inner_product(out_grad, v + row.columns[k] * call_.e_v, call_.e_v);
      }
      if (dropout_.active()) {
        for (int64_t k = 0; k < row.count; ++k) grad[k] *= static_cast<T>(dropout_.factor(place, row.columns[k]));
      }
      if (call_.dense_grad) {
        const T* const added = typed<T>(call_.dense_grad) + place * call_.keys;
        for (int64_t k = 0; k < row.count; ++k) grad[k] += added[row.columns[k]];
      }
      multiply_row(row, grad, theta_of(call_, place), s.forward.workspace);
    }
  }

  // Multiplies dS by a factor over gamma.
  void scale_scores(const QueryBlock& block, const BlockWeights<T>& weights, double factor, BackwardScratch<T>& s) {
    for (int64_t r = 0; r < block.rows; ++r) {
      const T number = static_cast<T>(factor / gamma_of(call_, block.row(call_) + r));
      for (int64_t k = 0; k < weights.count[r]; ++k) s.scores_grad[weights.start[r] + k] *= number;
    }
  }

  // CompactedRow::apart, from the bits of `joined`; nullptr if the mapping joins no neighbours.
  static const uint8_t* find_gaps(const WeightRow<T>& row, uint8_t* apart) {
    if (!row.joined) return nullptr;
    for (int64_t k = 0; k < row.count; ++k) apart[k] = (row.joined[k] & zero_before) != 0;
    apart[row.count] = (row.joined[row.count - 1] & zero_after) != 0;
    return apart;
  }

  void differentiate_strengths(const QueryBlock& block, const BlockWeights<T>& weights, BackwardScratch<T>& s) {
    if (!call_.theta_grad && !call_.gamma_grad) return;
    for (int64_t r = 0; r < block.rows; ++r) {
      const WeightRow<T> row = weights.row(r);
      if (is_constant(row)) continue;
      const int64_t place = block.row(call_) + r;
      double theta_grad = std::numeric_limits<double>::quiet_NaN(), gamma_grad = theta_grad;
      if (row.values[0] == row.values[0]) {
        Workspace& w = s.forward.workspace;
        const CompactedRow<T> weights_row{row.values, s.scores_grad + weights.start[r], row.joined, row.count,
                                          find_gaps(row, w.joined)};
        const double theta = theta_of(call_, place);
        theta_grad = call_.theta_grad ? mapping_.strength_grad(weights_row, theta, w) : 0;
        gamma_grad = call_.gamma_grad ? mapping_.gamma_grad(weights_row, theta, w) : 0;
      }
      if (call_.theta_grad) call_.theta_grad[place] = theta_grad;
      if (call_.gamma_grad) call_.gamma_grad[place] = gamma_grad / gamma_of(call_, place);
    }
  }

  // Heads may share a slice of the bias. A job has a block of queries of all heads with one slice, all queries if
  // they share a row, so that sums run in the order of the heads. It finds dS again, which costs little next to the
  // gradients of keys and values.
  int32_t differentiate_bias() {
    const int64_t slices = *std::max_element(call_.bias_slices, call_.bias_slices + call_.heads) + 1;
    const int64_t per_head = blocks() / (call_.groups / heads_per_block(call_));  // of a head, or of several
    const bool is_split = call_.bias_rows > 1 && !has_few_queries(call_);
    const int64_t parts = is_split ? per_head : 1, jobs = has_few_queries(call_) ? 1 : slices * parts;
    return run_with_scratch<BackwardScratch<T>>(
        jobs, call_.threads, call_, [this, per_head, parts, jobs](int64_t job, BackwardScratch<T>& scratch) {
          bool done = true;
          for (int64_t i = 0; i < kv_heads(call_) * blocks() && done; ++i) {
            const int64_t head = query_block<T>(call_, i).head;
            const bool wanted = parts == 1 || i % per_head == job % parts;
            if (jobs == 1 || (wanted && call_.bias_slices[head] == job / parts)) done = add_to_bias(i, scratch);
          }
          return done;
        });
  }

  bool add_to_bias(int64_t job, BackwardScratch<T>& s) {
    const QueryBlock block = query_block<T>(call_, job);
    regmax_weights_block again{};
    BlockWeights<T> weights;
    const bool done = find_weights(block, again, weights, s);
    if (done && !is_constant(block, weights)) {
      differentiate_scores(block, weights, is_dense(call_, block, weights.size), s);
      scale_scores(block, weights, 1, s);
      for (int64_t r = 0; r < block.rows; ++r) {
        const int64_t slice = call_.bias_slices[block.head_of(call_, r)];
        const int64_t line = slice * call_.bias_rows + (call_.bias_rows > 1 ? block.query(call_, r) : 0);
        T* const bias_grad = static_cast<T*>(call_.bias_grad) + line * call_.keys;
        const WeightRow<T> row = weights.row(r);
        for (int64_t k = 0; k < row.count; ++k) bias_grad[row.columns[k]] += s.scores_grad[weights.start[r] + k];
      }
    }
    free_block(again);
    return done;
  }

  // s.forward.scores = dO V^T for a whole block.
  void multiply_by_values(const QueryBlock& block, BackwardScratch<T>& s) {
    const int64_t tiled = (block.rows + score_rows - 1) / score_rows * score_rows;
    const T* const out_grad = typed<T>(call_.out_grad) + block.row(call_) * call_.e_v;
    for (int64_t i = 0; i < tiled * call_.e_v; ++i) s.out_grad[i] = i < block.rows * call_.e_v ? out_grad[i] : 0;
    const T* panel = panels_.get() + block.head / call_.groups * panel_numbers();
    for (int64_t p = 0; p < panels_of<T>(depth(block)); ++p, panel += panel_width<T> * call_.e_v) {
      multiply_panel<T>(s.out_grad, tiled, call_.e_v, panel, depth(block) - p * panel_width<T>,
                        s.forward.scores + p * panel_width<T>, scores_stride<T>(call_), nullptr);
    }
  }

  // dQ where q_grad is not nullptr, and dK from begin to end.
  void multiply_densely(const QueryBlock& block, const BlockWeights<T>& weights, int64_t begin, int64_t end, T* q_grad,
                        T* k_grad, BackwardScratch<T>& s) {
    const int64_t stride = scores_stride<T>(call_), seen = depth(block);
    for (int64_t r = 0; r < block.rows; ++r) {
      const WeightRow<T> row = weights.row(r);
      expand(s.scores_grad + weights.start[r], row.columns, row.count, 0, seen, s.forward.scores + r * stride);
    }
    const T* const keys = keys_of(block.head / call_.groups);
    if (q_grad) multiply<T>({s.forward.scores, stride, 1}, keys, block.rows, seen, call_.e, q_grad, false);
    const int64_t last = end < seen ? end : seen;
    multiply<T>({s.forward.scores + begin, 1, stride}, typed<T>(call_.q) + block.row(call_) * call_.e, last - begin,
                block.rows, call_.e, k_grad + begin * call_.e, true);
  }

  void multiply_sparsely(const QueryBlock& block, const BlockWeights<T>& weights, int64_t begin, int64_t end, T* q_grad,
                         T* k_grad, BackwardScratch<T>& s) {
    const T *const keys = keys_of(block.head / call_.groups), *const q = typed<T>(call_.q) + block.row(call_) * call_.e;
    for (int64_t r = 0; r < block.rows; ++r) {
      const WeightRow<T> row = weights.row(r);
      const T* const grad = s.scores_grad + weights.start[r];
      if (q_grad) sum_rows(grad, row.columns, row.count, keys, call_.e, call_.e, q_grad + r * call_.e);
      for (int64_t k = 0; k < row.count; ++k) {
        const int32_t j = row.columns[k];
        if (j >= begin && j < end) add_multiple(grad[k], q + r * call_.e, call_.e, k_grad + j * call_.e);
      }
    }
  }

  void add_values(const QueryBlock& block, const BlockWeights<T>& weights, bool dense, int64_t begin, int64_t end,
                  T* v_grad, BackwardScratch<T>& s) {
    const int64_t stride = scores_stride<T>(call_), last = end < depth(block) ? end : depth(block);
    const T* const out_grad = typed<T>(call_.out_grad) + block.row(call_) * call_.e_v;
    for (int64_t r = 0; r < block.rows && last > begin; ++r) {
      const WeightRow<T> row = weights.row(r);
      const T* const y = dropout_.drop(block.row(call_) + r, row.values, row.columns, row.count, s.forward.weights);
      if (dense) {
        expand(y, row.columns, row.count, begin, last, s.dense_weights + r * stride);
        continue;
      }
      for (int64_t k = 0; k < row.count; ++k) {
        const int32_t j = row.columns[k];
        if (j >= begin && j < end) add_multiple(y[k], out_grad + r * call_.e_v, call_.e_v, v_grad + j * call_.e_v);
      }
    }
    if (!dense) return;
    multiply<T>({s.dense_weights, 1, stride}, out_grad, last - begin, block.rows, call_.e_v, v_grad + begin * call_.e_v,
                true);
  }

  const regmax_attention& call_;
  const AttentionMapping<T>& mapping_;
  const Dropout dropout_;
  PackedKeys<T> keys_;
  Memory<T> panels_;
  std::atomic<bool> missing_{false};  // the forward pass did not store some block
};

template <class T>
int32_t attention_backward(const regmax_attention& call) {
  return with_attention_mapping<T>(
      call, [&](const AttentionMapping<T>& mapping) { return Backward<T>(call, mapping).run(); });
}

}  // namespace regmax::REGMAX_ISA
