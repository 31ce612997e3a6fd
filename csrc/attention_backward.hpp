// The backward pass, on the nonzero weights alone. With P the weights, D dropout's factors and dO the output's
// gradient,
//
//     dP = D (dO V^T),   dS = J dP row by row,   dQ = scale dS K,   dK = scale dS^T Q,   dV = (D P)^T dO.
//
// First blocks of queries (dS and dQ), then ranges of keys (dK and dV): every number is summed in the order of the
// rows, so that neither threads nor ranges change a bit. Blocks with many weights are spread out and multiplied
// densely.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "attention_blocks.hpp"
#include "attention_flat.hpp"
#include "attention_weights.hpp"
#include "jacobians.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
struct BackwardScratch {
  T *grads, *scores, *weights;
  Workspace workspace;

  BackwardScratch(Cutter& cutter, const regmax_attention& call)
      : grads(cutter.take<T>(rows_per_block<T>(call) * call.e_v)),
        scores(cutter.take<T>(rows_per_block<T>(call) * scores_stride<T>(call))),
        weights(cutter.take<T>(rows_per_block<T>(call) * scores_stride<T>(call))),
        workspace(cutter.take<char>(Workspace::bytes(call.keys)), call.keys) {}
};

template <class T>
class Backward {
 public:
  Backward(const regmax_attention& call, const AttentionGradients<T>& grads)
      : call_(call), grads_(grads), dropout_(call.dropout_p, call.seed), panels_(kv_heads(call) * panel_numbers()) {}

  int32_t run() {
    if (!panels_) return REGMAX_OUT_OF_MEMORY;
    run_jobs(
        kv_heads(call_), call_.threads,
        [](void* self, int64_t head) { static_cast<Backward*>(self)->pack_values(head); }, this);
    const int32_t status = run_with_scratch<BackwardScratch<T>>(
        call_, call_.heads * blocks_per_head<T>(call_), [this](int64_t job, BackwardScratch<T>& scratch) {
          differentiate_rows(query_block<T>(call_, job), scratch);
          return true;
        });
    if (status != REGMAX_OK) return status;
    const int64_t ranges = ranges_per_head();
    return run_with_scratch<BackwardScratch<T>>(call_, kv_heads(call_) * ranges,
                                                [&](int64_t job, BackwardScratch<T>& scratch) {
                                                  differentiate_keys(job / ranges, job % ranges, ranges, scratch);
                                                  return true;
                                                });
  }

 private:
  int64_t panel_numbers() const { return panels_of<T>(call_.keys) * panel_width<T> * call_.e_v; }
  const T* values_of(int64_t kv_head) const { return typed<T>(call_.v) + kv_head * call_.keys * call_.e_v; }
  const T* keys_of(int64_t kv_head) const { return typed<T>(call_.k) + kv_head * call_.keys * call_.e; }
  int64_t depth(const QueryBlock& block) const { return visible_keys(call_, block.first + block.rows - 1); }

  bool is_dense(const QueryBlock& block) const {
    const int64_t row = block.row(call_), size = grads_.starts[row + block.rows] - grads_.starts[row];
    return static_cast<double>(size) > dense_share * static_cast<double>(block.rows * depth(block));
  }

  // Only dense blocks multiply by the transpose of all values.
  void pack_values(int64_t kv_head) {
    const int64_t blocks = call_.groups * blocks_per_head<T>(call_);
    for (int64_t b = 0; b < blocks; ++b) {
      if (!is_dense(query_block<T>(call_, kv_head * blocks + b))) continue;
      pack_panels(values_of(kv_head), nullptr, call_.keys, call_.e_v, panels_.get() + kv_head * panel_numbers());
      return;
    }
  }

  void differentiate_rows(const QueryBlock& block, BackwardScratch<T>& s) {
    const bool dense = is_dense(block);
    const int64_t stride = scores_stride<T>(call_), kv_head = block.head / call_.groups;
    if (dense) multiply_by_values(block, s);
    T* const q_grad = grads_.q + block.row(call_) * call_.e;
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t row = block.row(call_) + r, begin = grads_.starts[row], count = grads_.starts[row + 1] - begin;
      const int32_t* const columns = grads_.columns + begin;
      T* const scores_grad = grads_.scores + begin;
      T* const line = s.scores + r * stride;
      differentiate_weights(row, kv_head, dense ? line : nullptr);
      multiply_by_jacobian(begin, count, s.workspace);
      if (dense) {
        spread(scores_grad, columns, count, 0, depth(block), line);
      } else {
        sum_rows(scores_grad, columns, count, keys_of(kv_head), call_.e, q_grad + r * call_.e);
      }
    }
    if (dense) multiply<T>({s.scores, stride, 1}, keys_of(kv_head), block.rows, depth(block), call_.e, q_grad, false);
  }

  // s.scores = dO V^T for a whole block.
  void multiply_by_values(const QueryBlock& block, BackwardScratch<T>& s) {
    const int64_t tiled = (block.rows + score_rows - 1) / score_rows * score_rows;
    const T* const out_grad = grads_.out + block.row(call_) * call_.e_v;
    for (int64_t i = 0; i < tiled * call_.e_v; ++i) s.grads[i] = i < block.rows * call_.e_v ? out_grad[i] : 0;
    const T* panel = panels_.get() + block.head / call_.groups * panel_numbers();
    for (int64_t p = 0; p < panels_of<T>(depth(block)); ++p, panel += panel_width<T> * call_.e_v) {
      multiply_panel<T>(s.grads, tiled, call_.e_v, panel, s.scores + p * panel_width<T>, scores_stride<T>(call_),
                        nullptr);
    }
  }

  // dP on the row's support, in grads_.scores: from a line of products, or by inner products.
  void differentiate_weights(int64_t row, int64_t kv_head, const T* line) {
    const int64_t begin = grads_.starts[row], count = grads_.starts[row + 1] - begin;
    const int32_t* const columns = grads_.columns + begin;
    T* const grad = grads_.scores + begin;
    if (!line) {
      const T *const v = values_of(kv_head), *const out_grad = grads_.out + row * call_.e_v;
      for (int64_t k = 0; k < count; ++k) grad[k] = inner_product(out_grad, v + columns[k] * call_.e_v, call_.e_v);
    } else if (is_prefix(columns, count)) {
      std::memcpy(grad, line, static_cast<std::size_t>(count) * sizeof(T));
    } else {
      for (int64_t k = 0; k < count; ++k) grad[k] = line[columns[k]];
    }
    if (!dropout_.active()) return;
    for (int64_t k = 0; k < count; ++k) grad[k] *= static_cast<T>(dropout_.factor(row, columns[k]));
  }

  // Replaces dP by scale J dP.
  void multiply_by_jacobian(int64_t begin, int64_t count, Workspace& w) {
    T* const grad = grads_.scores + begin;
    const T* const y = grads_.values + begin;
    if (count == 0) return;
    if (y[0] != y[0]) {
      for (int64_t k = 0; k < count; ++k) grad[k] = std::numeric_limits<T>::quiet_NaN();
    } else if (call_.kernel == REGMAX_SPARSEMAX) {
      centre(grad, count, static_cast<T>(call_.scale));
    } else if (call_.kernel == REGMAX_SQPNORMMAX && call_.theta == 1.5 && count > 1) {
      multiply_by_sqpnorm(y, grad, count);
    } else if (is_one_group(begin, count)) {
      std::memset(grad, 0, static_cast<std::size_t>(count) * sizeof(T));
    } else {
      for (int64_t k = 0; k < count; ++k) w.x[k] = static_cast<double>(y[k]), w.v[k] = static_cast<double>(grad[k]);
      if (grads_.joined) std::memcpy(w.joined, grads_.joined + begin, static_cast<std::size_t>(count));
      multiply_row(call_.kernel, w, count, call_.theta);
      for (int64_t k = 0; k < count; ++k) grad[k] = static_cast<T>(call_.scale * w.v[k]);
    }
  }

  // For p = 1.5 and s = sum y^1.5, J's M is 2 s^(-1/3) [ diag(y^(1/2)) - y y^T / (2 s) ] (jacobians.hpp); y sums to
  // one.
  void multiply_by_sqpnorm(const T* y, T* v, int64_t count) const {
    RowSums sums = sum_products(y, v, count);
    const double s = sums.of[0], along = sums.of[1], roots = sums.of[2], rooted = sums.of[3], half = 0.5 / s;
    const double ratio = (rooted - half * along) / (roots - half);
    const double scale = 2 * call_.scale / std::cbrt(s), along_y = half * (along - ratio);
    const Vec<T> ratios = splat(static_cast<T>(ratio)), scales = splat(static_cast<T>(scale));
    const Vec<T> slopes = splat(static_cast<T>(along_y));
    for (int64_t k = 0; k < count; k += lanes<T>) {
      const int some = static_cast<int>(count - k < lanes<T> ? count - k : lanes<T>);
      const Vec<T> weight = load_part(y + k, some), direction = load_part(v + k, some);
      const Vec<T> product = scales * (square_root(weight) * (direction - ratios) - slopes * weight);
      store_some<T>(v + k, some, product);
    }
  }

  // sum y^1.5, <y, v>, sum y^(1/2), <y^(1/2), v>
  static RowSums sum_products(const T* y, const T* v, int64_t count) {
    RowSums total;
    for (int64_t begin = 0; begin < count; begin += stretch) {
      const int64_t end = begin + stretch < count ? begin + stretch : count;
      Vec<T> sums[4] = {};
      for (int64_t k = begin; k < end; k += lanes<T>) {
        const int some = static_cast<int>(end - k < lanes<T> ? end - k : lanes<T>);
        const Vec<T> weight = load_part(y + k, some), direction = load_part(v + k, some), root = square_root(weight);
        sums[0] = multiply_add(weight, root, sums[0]);
        sums[1] = multiply_add(weight, direction, sums[1]);
        sums[2] += root;
        sums[3] = multiply_add(root, direction, sums[3]);
      }
      for (int i = 0; i < 4; ++i) total.of[i] += static_cast<double>(sum_of<T>(sums[i]));
    }
    return total;
  }

  static Vec<T> load_part(const T* p, int some) { return some < lanes<T> ? load_some(p, some, T(0)) : load(p); }

  // One group has all the weight, whatever the scores.
  bool is_one_group(int64_t begin, int64_t count) const {
    if (call_.kernel == REGMAX_SQPNORMMAX) return count == 1;  // equal weights are no group here
    const T* const y = grads_.values + begin;
    if (y[0] != y[count - 1]) return false;
    if (grads_.joined)
      return count == 1 || !std::memchr(grads_.joined + begin + 1, 0, static_cast<std::size_t>(count - 1));
    for (int64_t k = 1; k < count; ++k) {
      if (y[k] != y[0]) return false;
    }
    return true;
  }

  // v = scale (v - its mean)
  static void centre(T* v, int64_t count, T scale) {
    double sum = 0;
    for (int64_t begin = 0; begin < count; begin += stretch) {
      const int64_t end = begin + stretch < count ? begin + stretch : count;
      Vec<T> sums{};
      int64_t k = begin;
      for (; k + lanes<T> <= end; k += lanes<T>) sums += load(v + k);
      sum += static_cast<double>(sum_of<T>(sums));
      for (; k < end; ++k) sum += static_cast<double>(v[k]);
    }
    const T mean = static_cast<T>(sum / static_cast<double>(count));
    for (int64_t k = 0; k < count; ++k) v[k] = scale * (v[k] - mean);
  }

  // With few heads, ranges of keys share out the work.
  int64_t ranges_per_head() const {
    const int64_t heads = kv_heads(call_), most = call_.keys / 64 + 1;
    const int64_t wanted = heads >= call_.threads ? 1 : 2 * ((call_.threads + heads - 1) / heads);
    return wanted < most ? wanted : most;
  }

  void differentiate_keys(int64_t kv_head, int64_t range, int64_t ranges, BackwardScratch<T>& s) {
    const int64_t begin = call_.keys * range / ranges, end = call_.keys * (range + 1) / ranges;
    T* const k_grad = grads_.k + kv_head * call_.keys * call_.e;
    T* const v_grad = grads_.v + kv_head * call_.keys * call_.e_v;
    std::memset(k_grad + begin * call_.e, 0, static_cast<std::size_t>((end - begin) * call_.e) * sizeof(T));
    std::memset(v_grad + begin * call_.e_v, 0, static_cast<std::size_t>((end - begin) * call_.e_v) * sizeof(T));
    const int64_t blocks = call_.groups * blocks_per_head<T>(call_);
    for (int64_t b = 0; b < blocks; ++b) {
      const QueryBlock block = query_block<T>(call_, kv_head * blocks + b);
      if (is_dense(block)) {
        add_dense(block, begin, end < depth(block) ? end : depth(block), k_grad, v_grad, s);
      } else {
        add_sparse(block, begin, end, k_grad, v_grad);
      }
    }
  }

  void add_sparse(const QueryBlock& block, int64_t begin, int64_t end, T* k_grad, T* v_grad) {
    for (int64_t row = block.row(call_); row < block.row(call_) + block.rows; ++row) {
      for (int64_t place = grads_.starts[row]; place < grads_.starts[row + 1]; ++place) {
        const int32_t column = grads_.columns[place];
        if (column < begin || column >= end) continue;
        add_multiple(grads_.scores[place], typed<T>(call_.q) + row * call_.e, call_.e, k_grad + column * call_.e);
        add_multiple(dropped(row, place), grads_.out + row * call_.e_v, call_.e_v, v_grad + column * call_.e_v);
      }
    }
  }

  void add_dense(const QueryBlock& block, int64_t begin, int64_t end, T* k_grad, T* v_grad, BackwardScratch<T>& s) {
    const int64_t stride = scores_stride<T>(call_), first = block.row(call_), width = end - begin;
    if (width <= 0) return;
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t start = grads_.starts[first + r], count = grads_.starts[first + r + 1] - start;
      const int32_t* const columns = grads_.columns + start;
      spread(grads_.scores + start, columns, count, begin, end, s.scores + r * stride);
      spread(dropped_row(first + r, s.workspace), columns, count, begin, end, s.weights + r * stride);
    }
    multiply<T>({s.scores, 1, stride}, typed<T>(call_.q) + first * call_.e, width, block.rows, call_.e,
                k_grad + begin * call_.e, true);
    multiply<T>({s.weights, 1, stride}, grads_.out + first * call_.e_v, width, block.rows, call_.e_v,
                v_grad + begin * call_.e_v, true);
  }

  // A weight as the output saw it.
  T dropped(int64_t row, int64_t place) const {
    const T y = grads_.values[place];
    return dropout_.active() ? y * static_cast<T>(dropout_.factor(row, grads_.columns[place])) : y;
  }

  const T* dropped_row(int64_t row, Workspace& w) const {
    const int64_t start = grads_.starts[row], count = grads_.starts[row + 1] - start;
    if (!dropout_.active()) return grads_.values + start;
    T* const weights = static_cast<T*>(w.packed);
    for (int64_t k = 0; k < count; ++k) weights[k] = dropped(row, start + k);
    return weights;
  }

  const regmax_attention& call_;
  const AttentionGradients<T>& grads_;
  const Dropout dropout_;
  Memory<T> panels_;
};

template <class T>
int32_t attention_backward(const regmax_attention& call, const AttentionGradients<T>& grads) {
  return Backward<T>(call, grads).run();
}

}  // namespace regmax::REGMAX_ISA
