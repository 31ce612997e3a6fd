// How attention is cut into jobs: blocks of query rows whose scores fit the cache.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <limits>

#include "attention/gemm.hpp"
#include "runtime/calls.hpp"
#include "runtime/scratch.hpp"

namespace regmax::REGMAX_ISA {

// A multiple of 16, and with it of score_rows and of the lanes of a group.
template <class T>
inline int64_t rows_per_block(const regmax_attention& call) {
  const int64_t fitting = attention_scores_bytes / (static_cast<int64_t>(sizeof(T)) * (call.keys + 1)) / 16 * 16;
  return fitting < 16 ? 16 : fitting > 64 ? 64 : fitting;
}

// The distance between rows of scores: whole panels, and 16 numbers that keep rows off the same cache sets.
template <class T>
inline int64_t scores_stride(const regmax_attention& call) {
  return panels_of<T>(call.keys) * panel_width<T> + 16;
}

inline int64_t kv_heads(const regmax_attention& call) { return call.heads / call.groups; }

// The keys that query i can see, before any mask.
inline int64_t visible_keys(const regmax_attention& call, int64_t i) {
  return call.is_causal && i + 1 < call.keys ? i + 1 : call.keys;
}

// Strengths of a row, rows being counted over heads and queries.
inline double theta_of(const regmax_attention& call, int64_t row) {
  return call.thetas ? call.thetas[call.theta_rows > 1 ? row : row / call.queries] : call.theta;
}

inline double gamma_of(const regmax_attention& call, int64_t row) {
  return call.gammas ? call.gammas[call.gamma_rows > 1 ? row : row / call.queries] : call.gamma;
}

// Whether scores are divided by gamma row by row, relative to the largest: the products would overflow.
inline bool is_tiny(double gamma) { return gamma < 1e-6; }

// Where the rows of a head begin, and how far apart they are.
struct HeadRows {
  int64_t begin, stride;
};

// The part's strides are call.strides[3 * part] and the two after it.
enum Part { part_q, part_k, part_v, part_out };

inline HeadRows head_rows(const regmax_attention& call, Part part, int64_t head) {
  const bool shared = part == part_k || part == part_v;
  if (!call.strides) {
    const int64_t width = part == part_q || part == part_k ? call.e : call.e_v;
    return {head * (shared ? call.keys : call.queries) * width, width};
  }
  const int64_t heads = shared ? call.batch_heads / call.groups : call.batch_heads;
  const int64_t* const strides = call.strides + 3 * part;
  return {head / heads * strides[0] + head % heads * strides[1], strides[2]};
}

// As in decoding: keys are read where they are, once for all heads that share them.
inline bool has_few_queries(const regmax_attention& call) { return call.queries < few_queries; }

// How many heads a block may extend over. The rows of heads that share keys are contiguous.
inline int64_t heads_per_block(const regmax_attention& call) { return has_few_queries(call) ? call.groups : 1; }

// Some query rows of one head, or with few queries of several that share keys.
struct QueryBlock {
  int64_t head, first, rows;  // rows `first` to first + rows, counted from query 0 of the head

  int64_t row(const regmax_attention& call) const { return head * call.queries + first; }
  // Most blocks have one head: then nothing is divided.
  int64_t head_of(const regmax_attention& call, int64_t r) const {
    return first + r < call.queries ? head : head + (first + r) / call.queries;
  }
  int64_t query(const regmax_attention& call, int64_t r) const {
    return first + r < call.queries ? first + r : (first + r) % call.queries;
  }

  // The keys that some query of the block can see.
  int64_t depth(const regmax_attention& call) const {
    const int64_t last = first + rows - 1;
    return visible_keys(call, last < call.queries ? last : call.queries - 1);
  }
};

template <class T>
inline int64_t blocks_per_kv_head(const regmax_attention& call) {
  const int64_t rows = rows_per_block<T>(call), heads = heads_per_block(call);
  return call.groups / heads * ((heads * call.queries + rows - 1) / rows);
}

template <class T>
inline QueryBlock query_block(const regmax_attention& call, int64_t job) {
  const int64_t heads = heads_per_block(call), rows = rows_per_block<T>(call), all = heads * call.queries;
  const int64_t blocks = (all + rows - 1) / rows, first = job % blocks * rows;
  return {job / blocks * heads, first, all - first < rows ? all - first : rows};
}

// Whether a block with `size` weights is multiplied as a dense matrix.
inline bool is_dense(const regmax_attention& call, const QueryBlock& block, int64_t size) {
  return static_cast<double>(size) > dense_share * static_cast<double>(block.rows * block.depth(call));
}

// A bias over gamma. Finite biases stay finite: -inf would delete the key.
template <class T>
inline T times_factor(T bias, T factor) {
  constexpr T lowest = std::numeric_limits<T>::lowest();
  const T product = bias * factor;
  return product < lowest && bias >= lowest ? lowest : product;
}

template <class T>
inline const T* typed(const void* p) {
  return static_cast<const T*>(p);
}

// Memory for the duration of a call, aligned to a cache line: a vector that crosses lines is read twice.
template <class T>
class Memory {
 public:
  explicit Memory(int64_t count) : all_(std::malloc(sizeof(T) * static_cast<std::size_t>(count + 1) + line)) {
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(all_);
    if (all_) at_ = reinterpret_cast<T*>((address + line - 1) / line * line);
  }
  ~Memory() { std::free(all_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  T* get() const { return at_; }
  explicit operator bool() const { return at_ != nullptr; }

 private:
  static constexpr std::size_t line = 64;

  void* all_;
  T* at_ = nullptr;
};

}  // namespace regmax::REGMAX_ISA
