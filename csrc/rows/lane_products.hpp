// Jacobian products, lane tier: gathers the few weights of each row, multiplies one row per lane, expands.
// Rows with many weights are left, and so are rows without any, which may be NaN.
#pragma once

#include <cstdint>

#include "mappings/products.hpp"
#include "rows/group.hpp"
#include "simd/candidates.hpp"
#include "simd/transpose.hpp"

namespace regmax::REGMAX_ISA {

template <class T, class Mapping>
class LaneProducts {
  using Product = typename Mapping::Product;
  static constexpr int most_candidates = lane_candidates<Mapping>;
  static constexpr bool clusters = Mapping::joins == Joins::anywhere;
  static constexpr bool reads_weights = Product::reads_weights || clusters;

 public:
  explicit LaneProducts(const Workspace& w) : words_(w.words) {}

  uint32_t run(const ProductGroup<T>& rows, uint32_t wanted) {
    uint32_t left = ~wanted & all_lanes<T>;
    int most = 1, found[lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) found[r] = wanted >> r & 1 ? find(rows, r) : 0;
    for (int r = 0; r < lanes<T>; ++r) {
      const int count = found[r] <= most_candidates ? found[r] : 0;
      gather(rows, r, count);
      left |= static_cast<uint32_t>(count == 0) << r;
      pad(r, count);
      if (count > most) most = count;
    }
    if (left == all_lanes<T>) return wanted;
    multiply(most, load(rows.scale), load(rows.less_one));
    for (int r = 0; r < lanes<T>; ++r) {
      if (!(left >> r & 1)) expand_row(v_values(r), support(rows, r), rows.d, rows.out + r * rows.d, rows.streamed);
    }
    return left & wanted;
  }

 private:
  static constexpr int64_t stride = most_candidates + 64 + lanes<T>;

  T* v_values(int r) { return v_values_ + r * stride; }
  T* y_values(int r) { return y_values_ + r * stride; }

  const uint64_t* support(const ProductGroup<T>& rows, int r) const {
    return (rows.support ? rows.support : words_) + r * rows.words;
  }

  // Lists and prefetches a row's weights; returns their number, which is not exact beyond most_candidates.
  int find(const ProductGroup<T>& rows, int r) {
    if (!rows.support) positive_bits(rows.y + r * rows.d, rows.d, words_ + r * rows.words);
    const uint64_t* const words = support(rows, r);
    const uint64_t* const joined_words = rows.joined ? rows.joined + r * rows.words : nullptr;
    const T *const y = rows.y + r * rows.d, *const v = rows.v + r * rows.d;
    int count = 0;
    for (int64_t i = 0; i < rows.words && count <= most_candidates; ++i) count += __builtin_popcountll(words[i]);
    if (count > most_candidates) return count;
    uint64_t joined = 0;
    const bool listed = is_listed(rows.d);
    count = 0;
    for (int64_t i = 0; i < rows.words; ++i) {
      const uint64_t word = words[i];
      if (joined_words) joined |= compact_bits(joined_words[i], word) << count;
      count +=
          listed ? list_bits(word, static_cast<int32_t>(64 * i), positions_[r] + count) : __builtin_popcountll(word);
    }
    joined_[r] = static_cast<Int<T>>(joined);
    if (!listed) return count;
    for (int k = 0; k < count; ++k) __builtin_prefetch(v + positions_[r][k]);
    for (int k = 0; reads_row(rows, r) && k < count; ++k) __builtin_prefetch(y + positions_[r][k]);
    return count;
  }

  void gather(const ProductGroup<T>& rows, int r, int count) {
    const T *const y = rows.y + r * rows.d, *const v = rows.v + r * rows.d;
    if (!is_listed(rows.d)) {
      if (!count) return;
      compact(v, support(rows, r), rows.d, v_values(r));
      if (reads_weights) compact(y, support(rows, r), rows.d, y_values(r));
      return;
    }
    for (int k = 0; k < count; ++k) v_values(r)[k] = v[positions_[r][k]];
    if (reads_row(rows, r)) {
      for (int k = 0; k < count; ++k) y_values(r)[k] = y[positions_[r][k]];
    } else {
      for (int k = 0; k < count; ++k) y_values(r)[k] = static_cast<T>(k + 1);  // any distinct numbers
    }
  }

  // Shorter rows are compacted a vector at a time: gathering weight by weight costs a few branch mispredictions a row.
  static bool is_listed(int64_t d) { return d > compacted_row || d % lanes<T>; }

  static void compact(const T* row, const uint64_t* words, int64_t d, T* values) {
    for (int64_t i = 0; i < d; i += lanes<T>) {
      const uint32_t chosen = lanes_of<T>(words[i / 64], static_cast<int>(i % 64));
      store<T>(values, REGMAX_ISA::compress(chosen, load(row + i)));
      values += __builtin_popcount(chosen);
    }
  }

  // Clusters need the weights only of rows with joined ones.
  bool reads_row(const ProductGroup<T>& rows, int r) const {
    return reads_weights && !(clusters && rows.joined && !joined_[r]);
  }

  // Most words hold few bits: the first four are listed without a branch on their number.
  static int list_bits(uint64_t word, int32_t first, int32_t* positions) {
    const int count = __builtin_popcountll(word);
    for (int k = 0; k < 4; ++k, word &= word - 1) positions[k] = first + (word ? __builtin_ctzll(word) : 0);
    for (int k = 4; k < count; ++k, word &= word - 1) positions[k] = first + __builtin_ctzll(word);
    return count;
  }

  void pad(int r, int count) {
    for (int k = count; k < most_candidates; k += lanes<T>) {
      store<T>(v_values(r) + k, Vec<T>{});
      store<T>(y_values(r) + k, Vec<T>{});
    }
    if (count == 0) y_values(r)[0] = 1;
    counts_[r] = static_cast<T>(count ? count : 1);
  }

  void multiply(int count, Vec<T> scale, Vec<T> less_one) {
    rows_to_lanes<T>(v_values(0), stride, count, v_);
    if (reads_weights) rows_to_lanes<T>(y_values(0), stride, count, y_);
    const Where<T> all = from_bits<T>(all_lanes<T>);
    Vec<T> roots[most_candidates], sums[Product::sums] = {}, factors[Product::factors];
    for (int k = 0; k < count; ++k) {
      if (Product::reads_weights) roots[k] = Product::template root<T>(y_[k], less_one);
      Product::template add<T>(all, y_[k], roots[k], v_[k], sums);
    }
    Product::find_factors(sums, load(counts_), scale, less_one, factors);
    for (int k = 0; k < count; ++k) v_[k] = Product::multiply(y_[k], roots[k], v_[k], factors);
    if constexpr (Mapping::joins != Joins::nothing)
      Mapping::template average_lanes<T>(y_, v_, count, load_integers<T>(joined_));
    lanes_to_rows<T>(v_, count, v_values(0), stride);
  }

  uint64_t* words_;
  int32_t positions_[lanes<T>][most_candidates + 4];
  Int<T> joined_[lanes<T>];
  T counts_[lanes<T>];
  Vec<T> v_[most_candidates], y_[most_candidates];
  T v_values_[lanes<T> * stride], y_values_[lanes<T> * stride];
};

}  // namespace regmax::REGMAX_ISA
