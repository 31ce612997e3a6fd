// Rows of weights as compressed sparse rows: what attention writes instead of dense rows.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "mappings/tiers.hpp"
#include "rows/group.hpp"
#include "runtime/calls.hpp"

namespace regmax::REGMAX_ISA {

// Appends rows to a block, in the order in which the tiers finish them. Weights below the normal numbers, which powers
// of the scores may have, are left out: no output would change, but each operation on them takes a hundred times as
// long.
template <class T>
class CsrRows {
 public:
  static constexpr bool unrolls_short_rows = false;  // attention spends its time elsewhere
  static constexpr bool may_be_bounded = true;

  CsrRows(regmax_weights_block& block, int64_t rows, bool joins_neighbours)
      : block_(block), joins_neighbours_(joins_neighbours) {
    block.rows = rows;
    for (int64_t r = 0; r < rows; ++r) block.starts[r] = block.counts[r] = 0;
  }

  // Whether memory was exhausted: then rows are missing.
  bool failed() const { return failed_; }

  // Begins a group.
  void begin() {
    for (int r = 0; r < lanes<T>; ++r) group.length[r] = 0, group.theta[r] = 0;
    group.d = 1;
    group.bounded = nullptr;
    group.finite = 0;
  }

  // Row r of the group is row `place` of the block: its scores and its strength; `columns` are their columns, nullptr
  // if these are 0, 1, ...
  void add(int r, int64_t place, const T* x, int64_t length, const int32_t* columns, double theta) {
    places_[r] = place;
    group.errors[r] = 0;
    group.x[r] = x;
    group.length[r] = length;
    group.set_theta(r, theta);
    theta_[r] = theta;
    group.d = length > group.d ? length : group.d;
    columns_[r] = columns;
  }

  // --- What the tiers call ---

  template <class Joined>
  void write_candidates(int r, const T* values, const uint64_t* words, int count, const Joined& joined) {
    if (!reserve(count)) return;
    const uint64_t flags = joins_neighbours_ ? joined() : 0;
    begin_row(r);
    int64_t before = -1;
    for (int64_t i = 0, k = 0; k < count; ++i) {
      for (uint64_t rest = words[i]; rest; rest &= rest - 1, ++k) {
        const int64_t place = 64 * i + __builtin_ctzll(rest);
        if (!joins_neighbours_) {
          push_positive(column(r, place), values[k]);
        } else if (values[k] > 0) {
          begin_weights(place, before, flags >> k & 1);
          push(column(r, place), values[k]);
          before = place;
        }
      }
    }
    if (joins_neighbours_) begin_weights(group.length[r], before, false);
    end_row(r);
  }

  template <class Joined>
  void write_listed(int r, const T* values, const int32_t* places, int count, const Joined& joined) {
    if (!reserve(count)) return;
    begin_row(r);
    const uint64_t flags = joins_neighbours_ ? joined() : 0;
    int64_t before = -1;
    for (int k = 0; k < count; ++k) {
      if (!joins_neighbours_) {
        push_positive(column(r, places[k]), values[k]);
      } else if (values[k] > 0) {
        begin_weights(places[k], before, flags >> k & 1);
        push(column(r, places[k]), values[k]);
        before = places[k];
      }
    }
    if (joins_neighbours_) begin_weights(group.length[r], before, false);
    end_row(r);
  }

  struct WholeRow {
    CsrRows* out;
    int r;

    REGMAX_INLINE void put(int64_t i, Vec<T> weights, uint32_t positive) {
      if (out) out->append(r, weights, positive & ~bits(greater(splat(smallest_normal<T>), weights)), i * lanes<T>);
    }
    template <class Size>
    REGMAX_INLINE void put_zeros(int64_t, Size) {}
    REGMAX_INLINE void put_word(int64_t, uint64_t) {}
  };

  WholeRow begin_whole(int r) {
    if (!reserve(group.length[r])) return {nullptr, r};
    begin_row(r);
    return {this, r};
  }
  void end_whole(int r) { end_row(r); }

  template <class Segments>
  void write_segments(int r, int64_t length, const Segments& segments) {
    if (!reserve(length)) return;
    begin_row(r);
    int64_t before = -1;
    segments.each_segment(r, length, [&](int64_t begin, int64_t end, T weight, bool repeats) {
      if (!(weight > 0)) return;
      if (joins_neighbours_) begin_weights(begin, before, repeats);
      append_segment(r, weight, begin, end);
      before = end - 1;
    });
    if (joins_neighbours_) begin_weights(length, before, false);
    end_row(r);
  }

  SourceRow<T> scalar_row(int r) const { return {group.x[r], nullptr, group.length[r], theta_[r], 1}; }

  // A weight is joined if it equals that of the kept position before it.
  template <class Mapping>
  void write_chosen(int r, const T* values, const uint64_t* words, const uint64_t* kept, bool is_uniform) {
    const int64_t length = group.length[r];
    if (!reserve(length)) return;
    begin_row(r);
    if (is_uniform) {
      if (joins_neighbours_) begin_weights(0, -1, false);
      append_segment(r, values[0], 0, length);
      return end_row(r);
    }
    // Deleted positions do not count: `place` is that among the kept ones.
    int64_t place = 0, before = -1;
    T last = 0;
    for (int64_t i = 0; i < words_of(length); ++i) {
      for (uint64_t rest = kept[i]; rest; rest &= rest - 1, ++place) {
        const T y = words[i] & rest & -rest ? *values++ : T(0);
        if (y < smallest_normal<T>) continue;
        if (joins_neighbours_) begin_weights(place, before, before == place - 1 && y == last);
        push(column(r, 64 * i + __builtin_ctzll(rest)), y);
        before = place;
        last = y;
      }
    }
    if (joins_neighbours_) begin_weights(place, before, false);
    end_row(r);
  }

  // A row without a result: NaN for every score that is not deleted, or no weight at all.
  void fill(int r, T value) {
    if (!reserve(group.length[r])) return;
    begin_row(r);
    for (int64_t i = 0; value != 0 && i < group.length[r]; ++i) {
      if (group.x[r][i] < std::numeric_limits<T>::lowest()) continue;
      if (joins_neighbours_) block_.joined[block_.size] = 0;
      push(column(r, i), value);
    }
    end_row(r);
  }

  RowGroup<T> group;

 private:
  int32_t column(int r, int64_t i) const { return columns_[r] ? columns_[r][i] : static_cast<int32_t>(i); }
  T* values() const { return static_cast<T*>(block_.values); }

  void begin_row(int r) { block_.starts[places_[r]] = block_.size; }
  void end_row(int r) { block_.counts[places_[r]] = static_cast<int32_t>(block_.size - block_.starts[places_[r]]); }

  void push(int32_t column, T value) {
    block_.columns[block_.size] = column;
    values()[block_.size] = value;
    ++block_.size;
  }

  // Without a branch on the weight, which would often be mispredicted.
  void push_positive(int32_t column, T value) {
    block_.columns[block_.size] = column;
    values()[block_.size] = value;
    block_.size += value > 0;
  }

  // Marks the next weight, at `place`, and the last one, at `before` (-1: none). With `place` the row's length,
  // which has no weight, only the last one: reserve() leaves room.
  void begin_weights(int64_t place, int64_t before, bool joined) {
    const bool gap = place != before + 1;
    if (gap && before >= 0) block_.joined[block_.size - 1] |= zero_after;
    block_.joined[block_.size] = static_cast<uint8_t>((joined ? shares_segment : 0) | (gap ? zero_before : 0));
  }

  // The positive lanes of a vector of weights that begins at position `first` of row r.
  REGMAX_INLINE void append(int r, Vec<T> weights, uint32_t positive, int64_t first) {
    store<T>(values() + block_.size, compress(positive, weights));
    int32_t* out = block_.columns + block_.size;
    block_.size += __builtin_popcount(positive);
    if constexpr (sizeof(T) == sizeof(int32_t)) {
      if (!columns_[r]) {
        IntVec<T> places{};
        for (int k = 0; k < lanes<T>; ++k) places[k] = k;  // a constant, unlike first + k
        places += static_cast<int32_t>(first);
        const Vec<T> compacted = compress(positive, (Vec<T>)places);  // moves the bits of integers
        std::memcpy(out, &compacted, sizeof compacted);
        return;
      }
    }
    for (; positive; positive &= positive - 1) *out++ = column(r, first + __builtin_ctz(positive));
  }

  // Equal weights at positions begin to end, the first of which is marked.
  void append_segment(int r, T weight, int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    T* const out = values() + block_.size;
    for (int64_t k = 0; k < count; k += lanes<T>) store<T>(out + k, splat(weight));
    for (int64_t k = 0; k < count; ++k) block_.columns[block_.size + k] = column(r, begin + k);
    if (joins_neighbours_) {
      std::memset(block_.joined + block_.size + 1, shares_segment, static_cast<std::size_t>(count - 1));
    }
    block_.size += count;
  }

  // Room for a row of at most `most` weights, and for whole vectors after the last.
  bool reserve(int64_t most) {
    const int64_t needed = block_.size + most + lanes<T>;
    if (needed <= block_.capacity) return true;
    // At first 16 weights a row: short rows would reallocate at every other row.
    const int64_t ample = block_.capacity ? 2 * block_.capacity : 16 * block_.rows;
    const int64_t capacity = needed > ample ? needed : ample;
    if (resize(block_.columns, capacity * 4) && resize(block_.values, capacity * int64_t{sizeof(T)}) &&
        (!joins_neighbours_ || resize(block_.joined, capacity))) {
      block_.capacity = capacity;
      return true;
    }
    failed_ = true;
    return false;
  }

  template <class Item>
  static bool resize(Item*& items, int64_t bytes) {
    void* const memory = std::realloc(items, static_cast<std::size_t>(bytes));
    if (memory) items = static_cast<Item*>(memory);
    return memory != nullptr;
  }

  regmax_weights_block& block_;
  double theta_[lanes<T>] = {};
  bool joins_neighbours_, failed_ = false;
  int64_t places_[lanes<T>] = {};
  const int32_t* columns_[lanes<T>] = {};
};

}  // namespace regmax::REGMAX_ISA
