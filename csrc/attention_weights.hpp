// Attention weights as they come out of the forward pass: compressed rows, in blocks that are filled in any
// order.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "calls.hpp"
#include "simd.hpp"

namespace regmax::REGMAX_ISA {

// Appends rows to a block. Every row announces the most entries it may have, so that pushing needs no check.
template <class T>
class RowWriter {
 public:
  RowWriter(regmax_weights_block& block, bool chained) : block_(block), chained_(chained) {}

  // Begins the next row; false where memory is exhausted. Whole vectors are written behind the last entry.
  bool begin(int64_t most) {
    first_ = block_.size;
    const int64_t needed = block_.size + most + lanes<T>;
    return needed <= block_.capacity || grow(needed);
  }

  void push(int32_t column, T value, bool joined) {
    block_.columns[block_.size] = column;
    static_cast<T*>(block_.values)[block_.size] = value;
    if (chained_) block_.joined[block_.size] = joined;
    ++block_.size;
  }

  // The same for some lanes of a vector of weights, which stand at place `first` on of a row with those
  // columns. Equal weights here are those of one group.
  void append(Vec<T> y, uint32_t chosen, int64_t first, const int32_t* columns) {
    store<T>(static_cast<T*>(block_.values) + block_.size, compress(chosen, y));
    const int count = __builtin_popcount(chosen);
    write_columns(chosen, first, columns, block_.columns + block_.size);
    if (chained_) std::memset(block_.joined + block_.size, 1, static_cast<std::size_t>(count));
    if (chained_ && block_.size == first_) block_.joined[first_] = 0;
    block_.size += count;
  }

  // A run of equal weights at places begin to end; `joined` says that the one before is of the same group.
  void append_run(T weight, int64_t begin, int64_t end, bool joined, const int32_t* columns) {
    const int64_t count = end - begin;
    T* const values = static_cast<T*>(block_.values) + block_.size;
    int32_t* const out = block_.columns + block_.size;
    for (int64_t k = 0; k < count; k += lanes<T>) store<T>(values + k, splat(weight));
    for (int64_t k = 0; k < count; ++k)
      out[k] = columns ? columns[begin + k] : static_cast<int32_t>(begin + k);
    std::memset(block_.joined + block_.size, 1, static_cast<std::size_t>(count));
    block_.joined[block_.size] = joined;
    block_.size += count;
  }

  void end() { block_.counts[block_.rows++] = static_cast<int32_t>(block_.size - first_); }

 private:
  template <class Item>
  static bool resize(Item*& items, int64_t bytes) {
    void* const memory = std::realloc(items, static_cast<std::size_t>(bytes));
    if (memory) items = static_cast<Item*>(memory);
    return memory != nullptr;
  }

  static void write_columns(uint32_t chosen, int64_t first, const int32_t* columns, int32_t* out) {
    if constexpr (sizeof(T) == sizeof(int32_t)) {
      if (!columns) {
        IntVec<T> places;
        for (int k = 0; k < lanes<T>; ++k) places[k] = static_cast<int32_t>(first) + k;
        const Vec<T> packed =
            compress(chosen, (Vec<T>)places);  // the bits of integers, which compress only moves
        std::memcpy(out, &packed, sizeof packed);
        return;
      }
    }
    for (; chosen; chosen &= chosen - 1) {
      const int64_t place = first + __builtin_ctz(chosen);
      *out++ = columns ? columns[place] : static_cast<int32_t>(place);
    }
  }

  bool grow(int64_t needed) {
    const int64_t capacity = needed > 2 * block_.capacity ? needed : 2 * block_.capacity;
    if (!resize(block_.columns, capacity * 4) ||
        !resize(block_.values, capacity * static_cast<int64_t>(sizeof(T))) ||
        (chained_ && !resize(block_.joined, capacity))) {
      return false;
    }
    block_.capacity = capacity;
    return true;
  }

  regmax_weights_block& block_;
  bool chained_;
  int64_t first_ = 0;
};

// Frees a block's memory; its rows are empty then.
inline void free_block(regmax_weights_block& block) {
  std::free(block.columns);
  std::free(block.values);
  std::free(block.joined);
  const int64_t rows = block.rows;
  block = {};
  block.rows = rows;
}

// Whether a row keeps its first keys and no others, flat rows being of that kind: then it needs no gathering.
inline bool is_prefix(const int32_t* columns, int64_t count) {
  return count > 0 && columns[count - 1] == count - 1;
}

// The part of a row at columns from begin to end, with its zeros.
template <class T>
inline void spread(const T* values, const int32_t* columns, int64_t count, int64_t begin, int64_t end,
                   T* line) {
  if (is_prefix(columns, count)) {
    const int64_t last = count < end ? count : end, done = last > begin ? last - begin : 0;
    std::memcpy(line, values + begin, static_cast<std::size_t>(done) * sizeof(T));
    std::memset(line + done, 0, static_cast<std::size_t>(end - begin - done) * sizeof(T));
    return;
  }
  std::memset(line, 0, static_cast<std::size_t>(end - begin) * sizeof(T));
  for (int64_t k = 0; k < count; ++k) {
    if (columns[k] >= begin && columns[k] < end) line[columns[k] - begin] = values[k];
  }
}

// Dropout decides by a hash of the seed and the place: the same in every pass, whatever the number of threads
// (splitmix64, two rounds of its finaliser).
class Dropout {
 public:
  Dropout(double p, uint64_t seed)
      : bound_(static_cast<uint64_t>(p * 9007199254740992.0)), seed_(seed), p_(p) {}

  bool active() const { return p_ > 0; }

  // The factor of the weight at a place: 0, or 1 / (1 - p).
  double factor(int64_t row, int32_t column) const {
    const uint64_t place = static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(column);
    return mixed(mixed(place ^ seed_) + seed_) >> 11 < bound_ ? 0 : 1 / (1 - p_);
  }

 private:
  static uint64_t mixed(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

  uint64_t bound_, seed_;
  double p_;
};

}  // namespace regmax::REGMAX_ISA
