// How attention is cut into jobs: blocks of query rows, whose scores fit the cache, and what every block
// looks up.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "attention_products.hpp"
#include "calls.hpp"
#include "threads.hpp"

namespace regmax::REGMAX_ISA {

// The share of nonzero weights from which on dense products are faster.
constexpr double dense_share = 0.4;

constexpr int64_t scores_bytes = 384 << 10;  // of one block: a good part of a level-two cache

// A multiple of 16, and with it of score_rows and of the lanes of a group.
template <class T>
inline int64_t rows_per_block(const regmax_attention& call) {
  const int64_t fitting = scores_bytes / (static_cast<int64_t>(sizeof(T)) * (call.keys + 1)) / 16 * 16;
  return fitting < 16 ? 16 : fitting > 64 ? 64 : fitting;
}

// Scores of one row, with room for whole panels. The odd vector keeps rows from falling on the same cache
// lines.
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

// Whether a block with so many weights is multiplied as a dense one.
inline bool is_dense(const regmax_attention& call, const QueryBlock& block, int64_t size) {
  const int64_t depth = visible_keys(call, block.first + block.rows - 1);
  return static_cast<double>(size) > dense_share * static_cast<double>(block.rows * depth);
}

template <class T>
inline const T* typed(const void* p) {
  return static_cast<const T*>(p);
}

// Memory that lives as long as a call.
template <class T>
class Memory {
 public:
  explicit Memory(int64_t count)
      : at_(static_cast<T*>(std::malloc(sizeof(T) * static_cast<std::size_t>(count + 1)))) {}
  ~Memory() { std::free(at_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  T* get() const { return at_; }
  explicit operator bool() const { return at_ != nullptr; }

 private:
  T* at_;
};

// Cuts a thread's scratch into arrays, each on a cache line of its own. With nullptr it only measures.
class Cutter {
 public:
  explicit Cutter(void* memory) : next_(static_cast<char*>(memory)) {}

  template <class T>
  T* take(int64_t count) {
    T* const array = reinterpret_cast<T*>(next_);
    const int64_t bytes = (static_cast<int64_t>(sizeof(T)) * count + 63) / 64 * 64;
    next_ = next_ ? next_ + bytes : nullptr;
    bytes_ += bytes;
    return array;
  }

  int64_t bytes() const { return bytes_; }

 private:
  char* next_;
  int64_t bytes_ = 0;
};

// Runs job(i, scratch) for i < jobs, with a thread's scratch as a `Scratch` made from a Cutter and the call.
template <class Scratch, class Job>
int32_t run_with_scratch(const regmax_attention& call, int64_t jobs, const Job& job) {
  struct Context {
    const regmax_attention& call;
    const Job& job;
    std::size_t bytes;
    std::atomic<bool> failed;
  };
  Cutter measure(nullptr);
  Scratch(measure, call);
  Context context{call, job, static_cast<std::size_t>(measure.bytes()), {false}};
  run_jobs(
      jobs, call.threads > 0 ? call.threads : 1,
      [](void* opaque, int64_t i) {
        Context& c = *static_cast<Context*>(opaque);
        void* const memory = thread_scratch(c.bytes);
        if (memory) {
          Cutter cutter(memory);
          Scratch scratch(cutter, c.call);
          if (c.job(i, scratch)) return;
        }
        c.failed.store(true, std::memory_order_relaxed);
      },
      &context);
  return context.failed.load() ? REGMAX_OUT_OF_MEMORY : REGMAX_OK;
}

}  // namespace regmax::REGMAX_ISA
