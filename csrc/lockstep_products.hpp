// Jacobian products of rows in groups, one per SIMD lane: gather each row's few weights, multiply, spread.
#pragma once

#include <cstdint>

#include "calls.hpp"
#include "lane_jacobians.hpp"
#include "screening.hpp"
#include "transpose.hpp"

namespace regmax::REGMAX_ISA {

// The rows of a group: d apart in y, v and out, words apart in support and joined, which may be nullptr.
template <class T>
struct ProductRows {
  const T* y;
  const T* v;
  T* out;
  const uint64_t* support;
  const uint64_t* joined;
  int64_t d, words;
  bool streamed;    // whether `out` is written past the caches
  uint32_t active;  // a bit for each row that takes part
};

constexpr int64_t packed_row = 128;

// Whether J depends on the weights themselves, and not only on which there are, and which of them are joined.
inline bool reads_weights(int32_t kernel) { return kernel == REGMAX_OSCARMAX || kernel == REGMAX_SQPNORMMAX; }

template <class T>
class LockstepProducts {
 public:
  // `words` holds as many words as the rows of a group have.
  LockstepProducts(int32_t kernel, uint64_t* words) : kernel_(kernel), words_(words) {}

  // Multiplies the rows; returns the bits of those that are left to do: dense ones, and empty ones, which may
  // be NaN.
  uint32_t run(const ProductRows<T>& rows) {
    uint32_t left = 0;
    int most = 1, found[lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) found[r] = rows.active >> r & 1 ? find(rows, r) : 0;
    for (int r = 0; r < lanes<T>; ++r) {
      const int count = found[r] <= max_candidates ? found[r] : 0;
      if (rows.d > packed_row) gather(rows, r, count);
      left |= static_cast<uint32_t>(count == 0) << r;
      pad(r, count);
      if (count > most) most = count;
    }
    if (left == all_lanes<T>) return rows.active;
    multiply(most);
    for (int r = 0; r < lanes<T>; ++r) {
      if (!(left >> r & 1))
        spread_row(v_values(r), support(rows, r), rows.d, rows.out + r * rows.d, rows.streamed);
    }
    return left & rows.active;
  }

 private:
  static constexpr int64_t stride = max_candidates + 64 + lanes<T>;

  T* v_values(int r) { return v_values_ + r * stride; }
  T* y_values(int r) { return y_values_ + r * stride; }

  const uint64_t* support(const ProductRows<T>& rows, int r) const {
    return (rows.support ? rows.support : words_) + r * rows.words;
  }

  // Finds a row's weights, if they are not too many, and packs their joined; short rows' v and y too, while
  // those of long rows are only fetched. Returns how many there are.
  int find(const ProductRows<T>& rows, int r) {
    if (!rows.support) find_positive(rows.y + r * rows.d, rows.d, words_ + r * rows.words);
    return rows.d <= packed_row ? gather_short(rows, r) : list(rows, r);
  }

  int gather_short(const ProductRows<T>& rows, int r) {
    const T *const y = rows.y + r * rows.d, *const v = rows.v + r * rows.d;
    const uint64_t* const words = support(rows, r);
    const uint64_t* const joined_words = rows.joined ? rows.joined + r * rows.words : nullptr;
    uint64_t joined = 0;
    int count = 0;
    for (int64_t i = 0; i < rows.d; i += 64) {
      const uint64_t word = words[i / 64];
      if (count + __builtin_popcountll(word) > max_candidates) return max_candidates + 1;
      if (joined_words) joined |= pack_bits(joined_words[i / 64], word) << count;
      if (reads_weights(kernel_)) gather_word(y + i, rows.d - i, word, y_values(r) + count);
      count += gather_word(v + i, rows.d - i, word, v_values(r) + count);
    }
    joined_[r] = static_cast<Int<T>>(joined);
    return count;
  }

  // Most lines of a long row hold no weight, and are not touched. Those that do are far apart: they are on
  // their way while the other rows of the group are listed.
  int list(const ProductRows<T>& rows, int r) {
    const T *const y = rows.y + r * rows.d, *const v = rows.v + r * rows.d;
    const uint64_t* const words = support(rows, r);
    const uint64_t* const joined_words = rows.joined ? rows.joined + r * rows.words : nullptr;
    uint64_t joined = 0;
    int count = 0;
    for (int64_t i = 0; i < rows.words; ++i) {
      const uint64_t word = words[i];
      if (count + __builtin_popcountll(word) > max_candidates) return max_candidates + 1;
      if (joined_words) joined |= pack_bits(joined_words[i], word) << count;
      count += list_bits(word, static_cast<int32_t>(64 * i), positions_[r] + count);
    }
    for (int k = 0; k < count; ++k) __builtin_prefetch(v + positions_[r][k]);
    joined_[r] = static_cast<Int<T>>(joined);
    for (int k = 0; reads_row(rows, r) && k < count; ++k) __builtin_prefetch(y + positions_[r][k]);
    return count;
  }

  void gather(const ProductRows<T>& rows, int r, int count) {
    const T *const y = rows.y + r * rows.d, *const v = rows.v + r * rows.d;
    for (int k = 0; k < count; ++k) v_values(r)[k] = v[positions_[r][k]];
    if (reads_row(rows, r)) {
      for (int k = 0; k < count; ++k) y_values(r)[k] = y[positions_[r][k]];
    } else {
      for (int k = 0; k < count; ++k) y_values(r)[k] = static_cast<T>(k + 1);  // any, but all different
    }
  }

  // Of oscarmax, only rows with joined weights need them.
  bool reads_row(const ProductRows<T>& rows, int r) const {
    return reads_weights(kernel_) && !(kernel_ == REGMAX_OSCARMAX && rows.joined && !joined_[r]);
  }

  // Most words hold few bits: the first ones are listed without a branch on how many there are.
  static int list_bits(uint64_t word, int32_t first, int32_t* positions) {
    const int count = __builtin_popcountll(word);
    for (int k = 0; k < 4; ++k, word &= word - 1) positions[k] = first + (word ? __builtin_ctzll(word) : 0);
    for (int k = 4; k < count; ++k, word &= word - 1) positions[k] = first + __builtin_ctzll(word);
    return count;
  }

  void pad(int r, int count) {
    for (int k = count; k < max_candidates; k += lanes<T>) {
      store<T>(v_values(r) + k, Vec<T>{});
      store<T>(y_values(r) + k, Vec<T>{});
    }
    if (count == 0) y_values(r)[0] = 1;
    counts_[r] = static_cast<T>(count ? count : 1);
  }

  void multiply(int count) {
    rows_to_lanes<T>(v_values(0), stride, count, v_);
    if (reads_weights(kernel_)) rows_to_lanes<T>(y_values(0), stride, count, y_);
    if (kernel_ == REGMAX_SQPNORMMAX) {
      lane_sqpnorm_product<T>(y_, v_, count);
    } else {
      lane_subtract_mean<T>(v_, count, load(counts_));
    }
    if (kernel_ == REGMAX_FUSEDMAX) lane_average_chains<T>(v_, count, load_integers<T>(joined_));
    if (kernel_ == REGMAX_OSCARMAX) lane_average_equal<T>(y_, v_, count);
    lanes_to_rows<T>(v_, count, v_values(0), stride);
  }

  int32_t kernel_;
  uint64_t* words_;
  int32_t positions_[lanes<T>][max_candidates + 4];
  Int<T> joined_[lanes<T>];
  T counts_[lanes<T>];
  Vec<T> v_[max_candidates], y_[max_candidates];
  T v_values_[lanes<T> * stride], y_values_[lanes<T> * stride];
};

}  // namespace regmax::REGMAX_ISA
