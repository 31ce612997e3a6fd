// The rows of a block of queries: the keys that each one needs, its scaled query, and its scores with bias and mask.
//
// Keys that a mask deletes for all queries are left out when keys are packed. Masks that differ from query to
// query are applied row by row: a row that keeps a range of keys is a part of the scores, others are compacted.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/blocks.hpp"
#include "attention/masks.hpp"
#include "attention/packed_keys.hpp"

namespace regmax::REGMAX_ISA {

// A row's scores of the keys that it keeps.
template <class T>
struct ScoreRow {
  T* x;
  int64_t length;
  const int32_t* columns;  // the key of each score; nullptr if these are 0, 1, ...
};

template <class T>
class QueryRows {
 public:
  // `columns` has room for the keys of a group of rows, if rows have masks of their own.
  QueryRows(const regmax_attention& call, const PackedKeys<T>& keys, const QueryBlock& block, int32_t* columns)
      : call_(call),
        keys_(keys),
        block_(block),
        kv_head_(block.head / call.groups),
        q_(head_rows(call, part_q, block.head)),
        out_(head_rows(call, part_out, block.head)),
        columns_(columns) {}

  void find_lengths() {
    for (int64_t r = 0; r < block_.rows; ++r) find_length(r);
  }

  // Of row r: its first packed key, the end of its packed keys, and whether its own mask deletes keys between these.
  int64_t begin(int64_t r) const { return begin_[r]; }
  int64_t end(int64_t r) const { return end_[r]; }
  bool has_gaps(int64_t r) const { return gaps_[r]; }

  int64_t longest() const {
    int64_t longest = 0;
    for (int64_t r = 0; r < block_.rows; ++r) longest = end_[r] > longest ? end_[r] : longest;
    return longest;
  }
  int64_t shortest() const {
    int64_t shortest = call_.keys;
    for (int64_t r = 0; r < block_.rows; ++r) shortest = std::min(shortest, end_[r] - begin_[r]);
    return shortest;
  }

  double theta(int64_t r) const { return theta_of(call_, block_.row(call_) + r); }
  double gamma(int64_t r) const { return gamma_of(call_, block_.row(call_) + r); }

  // Where row r is, in q or out.
  int64_t place_of(Part part, int64_t r) const {
    const int64_t head = block_.head_of(call_, r);
    const HeadRows rows = head == block_.head ? (part == part_q ? q_ : out_) : head_rows(call_, part, head);
    return rows.begin + block_.query(call_, r) * rows.stride;
  }

  // The query of row r times scale / gamma.
  void scale_query(int64_t r, T* scaled) {
    const T* const q = typed<T>(call_.q) + place_of(part_q, r);
    const T factor = static_cast<T>(is_tiny(gamma(r)) ? call_.scale : call_.scale / gamma(r));
    Vec<T> largest{};
    for (int64_t i = 0; i < call_.e; i += lanes<T>) {
      const Vec<T> numbers = splat(factor) * load(q + i);
      store<T>(scaled + i, numbers);
      largest = larger(absolute<T>(numbers), largest);
    }
    is_bounded_[r] = bits(greater(largest, splat(static_cast<T>(bounded_number)))) == 0;
  }
  // Whether the scaled query is, by bounded_number.
  bool is_bounded(int64_t r) const { return is_bounded_[r]; }

  // Row r from its scores of all packed keys: with its bias, without the keys that its own mask deletes. `lane` is its
  // place in the group.
  ScoreRow<T> finish(int64_t r, int lane, T* scores) {
    const int64_t begin = begin_[r];
    ScoreRow<T> row{scores + begin, end_[r] - begin, keys_.kept.index(kv_head_)};
    if (begin > 0) row.columns = keys_.kept.columns_from(begin);
    if (call_.bias) add_bias(r, row);
    if (gaps_[r]) {
      int32_t* const kept = columns_ + lane * call_.keys;
      row.length = compact(row.x, mask_row(r), begin, row.length, kept);
      row.columns = kept;
    }
    return row;
  }

  // The biases of row r's keys, nullptr without any, and the factor that they are multiplied by.
  const T* bias_row(int64_t r) const {
    if (!call_.bias) return nullptr;
    const int64_t slice = call_.bias_slices[block_.head_of(call_, r)];
    const int64_t line = slice * call_.bias_rows + (call_.bias_rows > 1 ? block_.query(call_, r) : 0);
    return typed<T>(call_.bias) + line * call_.keys;
  }
  T bias_factor(int64_t r) const { return static_cast<T>(is_tiny(gamma(r)) ? 1 : 1 / gamma(r)); }

 private:
  const uint8_t* mask_row(int64_t r) const {
    const int64_t slice = call_.mask_slices[block_.head_of(call_, r)];
    return call_.mask + (slice * call_.mask_rows + block_.query(call_, r)) * call_.keys;
  }

  // The packed keys that a query needs: those that it sees, from the first to the last that its own mask keeps.
  void find_length(int64_t r) {
    const int64_t visible = visible_keys(call_, block_.query(call_, r));
    begin_[r] = 0, gaps_[r] = false;
    if (!keys_.kept.has_rows()) {
      end_[r] = keys_.kept.count(kv_head_, visible);
      return;
    }
    const KeptRange& range = keys_.kept.range(block_.head_of(call_, r), block_.query(call_, r));
    end_[r] = range.end < visible ? range.end : visible;
    if (!range.whole && range.end > visible) end_[r] = end_of_nonzero(mask_row(r), visible);
    gaps_[r] = !range.whole;
    begin_[r] = range.begin < end_[r] ? range.begin : end_[r];
  }

  void add_bias(int64_t r, const ScoreRow<T>& row) const {
    const T* const bias = bias_row(r);
    const T factor = bias_factor(r);
    if (factor == 1 && !row.columns) {
      for (int64_t j = 0; j < row.length; ++j) row.x[j] += bias[j];
      return;
    }
    for (int64_t j = 0; j < row.length; ++j) row.x[j] += times_factor(bias[row.columns ? row.columns[j] : j], factor);
  }

  // x begins at key `begin`.
  static int64_t compact(T* x, const uint8_t* keep, int64_t begin, int64_t length, int32_t* columns) {
    int64_t m = 0;
    for (int64_t j = 0; j < length; ++j) {
      x[m] = x[j];
      columns[m] = static_cast<int32_t>(begin + j);
      m += keep[begin + j] != 0;
    }
    return m;
  }

  const regmax_attention& call_;
  const PackedKeys<T>& keys_;
  const QueryBlock block_;
  const int64_t kv_head_;
  const HeadRows q_, out_;  // of the block's first head
  int32_t* const columns_;
  int64_t begin_[64] = {}, end_[64] = {};
  bool gaps_[64] = {}, is_bounded_[64] = {};
};

}  // namespace regmax::REGMAX_ISA
