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

template <class T>
class LockstepProducts {
 public:
  // `words` holds as many words as the rows of a group have.
  LockstepProducts(int32_t kernel, uint64_t* words) : kernel_(kernel), words_(words) {}

  // Multiplies the rows; returns the bits of those that are left to do: dense ones, and empty ones, which may
  // be NaN.
  uint32_t run(const ProductRows<T>& rows) {
    uint32_t left = 0;
    int most = 1;
    for (int r = 0; r < lanes<T>; ++r) {
      int count = rows.active >> r & 1 ? gather(rows, r) : 0;
      if (count == 0 || count > max_candidates) left |= 1u << r;
      if (count > max_candidates) count = 0;
      pad(r, count);
      if (count > most) most = count;
    }
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
  bool needs_weights() const { return kernel_ == REGMAX_OSCARMAX || kernel_ == REGMAX_SQPNORMMAX; }

  const uint64_t* support(const ProductRows<T>& rows, int r) const {
    return (rows.support ? rows.support : words_) + r * rows.words;
  }

  int gather(const ProductRows<T>& rows, int r) {
    const T *const y = rows.y + r * rows.d, *const v = rows.v + r * rows.d;
    if (!rows.support) find_positive(y, rows.d, words_ + r * rows.words);
    const uint64_t* const words = support(rows, r);
    const uint64_t* const joined_words = rows.joined ? rows.joined + r * rows.words : nullptr;
    uint64_t joined = 0;
    int count = 0;
    for (int64_t i = 0; i < rows.d && count <= max_candidates; i += 64) {
      const uint64_t word = words[i / 64];
      if (!word) continue;
      if (joined_words) joined |= pack_bits(joined_words[i / 64], word) << count;
      if (needs_weights()) gather_word(y + i, rows.d - i, word, y_values(r) + count);
      count += gather_word(v + i, rows.d - i, word, v_values(r) + count);
    }
    joined_[r] = static_cast<Int<T>>(joined);
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
    if (needs_weights()) rows_to_lanes<T>(y_values(0), stride, count, y_);
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
  Int<T> joined_[lanes<T>];
  T counts_[lanes<T>];
  Vec<T> v_[max_candidates], y_[max_candidates];
  T v_values_[lanes<T> * stride], y_values_[lanes<T> * stride];
};

}  // namespace regmax::REGMAX_ISA
