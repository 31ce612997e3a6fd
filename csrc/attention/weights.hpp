// Helpers for blocks of compressed rows of weights, and dropout.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "runtime/calls.hpp"

namespace regmax::REGMAX_ISA {

// Frees a block's memory; its rows are empty then.
inline void free_block(regmax_weights_block& block) {
  std::free(block.columns);
  std::free(block.values);
  std::free(block.joined);
  const int64_t rows = block.rows;
  block = {};
  block.rows = rows;
}

// Whether a row's columns are 0, 1, ..., as in flat rows: then it needs no gathering.
inline bool is_prefix(const int32_t* columns, int64_t count) { return count > 0 && columns[count - 1] == count - 1; }

// Expands the part of a row at columns from begin to end to a dense line.
template <class T>
inline void expand(const T* values, const int32_t* columns, int64_t count, int64_t begin, int64_t end, T* line) {
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

// Dropout decides by a hash of the seed and the place (splitmix64, two rounds of its finaliser), so all
// passes agree, whatever the number of threads.
class Dropout {
 public:
  Dropout(double p, uint64_t seed) : bound_(static_cast<uint64_t>(p * 9007199254740992.0)), seed_(seed), p_(p) {}

  bool active() const { return p_ > 0; }

  // The factor of the weight at a place: 0, or 1 / (1 - p).
  double factor(int64_t row, int32_t column) const {
    const uint64_t place = static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(column);
    return mixed(mixed(place ^ seed_) + seed_) >> 11 < bound_ ? 0 : 1 / (1 - p_);
  }

  // A row's weights after dropout: in `buffer`, unless nothing is dropped.
  template <class T>
  const T* drop(int64_t row, const T* y, const int32_t* columns, int64_t count, T* buffer) const {
    if (!active()) return y;
    for (int64_t k = 0; k < count; ++k) buffer[k] = y[k] * static_cast<T>(factor(row, columns[k]));
    return buffer;
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
