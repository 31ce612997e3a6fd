// Jacobian products of rows in groups, one per SIMD lane: gather each row's few weights, multiply, spread.
#pragma once

#include <cstdint>

#include "calls.hpp"
#include "lane_jacobians.hpp"
#include "screening.hpp"
#include "transpose.hpp"

namespace regmax::REGMAX_ISA {

// One row of a group; support and joined may be nullptr.
template <class T>
struct LaneProduct {
  const T* y;
  const T* v;
  T* out;  // nullptr: the lane is idle
  const uint64_t* support;
  const uint64_t* joined;
};

template <class T>
class LockstepProducts {
 public:
  static constexpr int rows = lanes<T>;

  // `words` holds rows * (d + 63) / 64 words.
  LockstepProducts(int32_t kernel, int64_t d, uint64_t* words) : kernel_(kernel), d_(d), words_(words) {}

  // Multiplies the rows; returns the bits of those that are left to do: dense ones, and empty ones, which may be NaN.
  uint32_t run(const LaneProduct<T> (&row)[lanes<T>]) {
    uint32_t left = 0;
    int most = 1;
    for (int r = 0; r < rows; ++r) {
      int count = row[r].out ? gather(row[r], r) : 0;
      if (row[r].out && (count == 0 || count > max_candidates)) left |= 1u << r;
      if (count > max_candidates) count = 0;
      pad(r, count);
      if (count > most) most = count;
    }
    multiply(most);
    for (int r = 0; r < rows; ++r) {
      if (row[r].out && !(left >> r & 1)) spread_row(v_values(r), words(row[r], r), d_, row[r].out);
    }
    return left;
  }

 private:
  static constexpr int64_t stride = max_candidates + 64 + lanes<T>;

  T* v_values(int r) { return v_values_ + r * stride; }
  T* y_values(int r) { return y_values_ + r * stride; }
  bool needs_weights() const { return kernel_ == REGMAX_OSCARMAX || kernel_ == REGMAX_SQPNORMMAX; }

  const uint64_t* words(const LaneProduct<T>& row, int r) const {
    return row.support ? row.support : words_ + r * ((d_ + 63) / 64);
  }

  int gather(const LaneProduct<T>& row, int r) {
    if (!row.support) find_positive(row.y, d_, words_ + r * ((d_ + 63) / 64));
    const uint64_t* const support = words(row, r);
    uint64_t joined = 0;
    int count = 0;
    for (int64_t i = 0; i < d_ && count <= max_candidates; i += 64) {
      const uint64_t word = support[i / 64];
      if (!word) continue;
      if (row.joined) joined |= pack_bits(row.joined[i / 64], word) << count;
      if (needs_weights()) gather_word(row.y + i, d_ - i, word, y_values(r) + count);
      count += gather_word(row.v + i, d_ - i, word, v_values(r) + count);
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
  int64_t d_;
  uint64_t* words_;
  Int<T> joined_[lanes<T>];
  T counts_[lanes<T>];
  Vec<T> v_[max_candidates], y_[max_candidates];
  T v_values_[lanes<T> * stride], y_values_[lanes<T> * stride];
};

}  // namespace regmax::REGMAX_ISA
