// How attention is cut into jobs: blocks of query rows whose scores fit the cache.
#pragma once

#include <cstdint>
#include <cstdlib>

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

// Some query rows of one head.
struct QueryBlock {
  int64_t head, first, rows;

  int64_t row(const regmax_attention& call) const { return head * call.queries + first; }
};

template <class T>
inline int64_t blocks_per_head(const regmax_attention& call) {
  const int64_t rows = rows_per_block<T>(call);
  return (call.queries + rows - 1) / rows;
}

template <class T>
inline QueryBlock query_block(const regmax_attention& call, int64_t job) {
  const int64_t per_head = blocks_per_head<T>(call), rows = rows_per_block<T>(call);
  const int64_t first = job % per_head * rows;
  return {job / per_head, first, call.queries - first < rows ? call.queries - first : rows};
}

// Whether a block with `size` weights is multiplied as a dense matrix.
inline bool is_dense(const regmax_attention& call, const QueryBlock& block, int64_t size) {
  const int64_t depth = visible_keys(call, block.first + block.rows - 1);
  return static_cast<double>(size) > dense_share * static_cast<double>(block.rows * depth);
}

template <class T>
inline const T* typed(const void* p) {
  return static_cast<const T*>(p);
}

// Memory for the duration of a call.
template <class T>
class Memory {
 public:
  explicit Memory(int64_t count) : at_(static_cast<T*>(std::malloc(sizeof(T) * static_cast<std::size_t>(count + 1)))) {}
  ~Memory() { std::free(at_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  T* get() const { return at_; }
  explicit operator bool() const { return at_ != nullptr; }

 private:
  T* at_;
};

}  // namespace regmax::REGMAX_ISA
