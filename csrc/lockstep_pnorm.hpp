// sqpnormmax of short rows with many candidates: in lockstep with all of their scores. What a row costs does
// not depend on how many of them matter.
#pragma once

#include <cstdint>
#include <limits>

#include "lane_mappings.hpp"
#include "lane_pnorm.hpp"
#include "lockstep.hpp"
#include "screening.hpp"
#include "transpose.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

// Which way a row goes depends on itself alone, so that its bits do not depend on the others in its group.
constexpr int64_t short_row = 128;

template <class T>
class DensePnorm {
 public:
  explicit DensePnorm(const Workspace&) {}

  // Maps the rows; returns the bits of those that are left to do: the ones that are not finite.
  uint32_t run(const LaneRows<T>& rows) {
    load_columns(rows);
    subtract_top();
    const uint32_t left = find_root();
    store<T>(top_, tops_);
    store<T>(tau_, taus_);
    store<T>(factor_, factors_);
    for (int r = 0; r < lanes<T>; ++r) {
      if (rows.length[r] && !(left >> r & 1)) rows.support ? write<true>(rows, r) : write<false>(rows, r);
    }
    return left;
  }

 private:
  static constexpr int coarse_columns = 16;

  // Rows that are not whole, or not of whole tiles, are padded first.
  void load_columns(const LaneRows<T>& rows) {
    bool whole = rows.d % unrolled == 0;
    for (int r = 0; r < lanes<T>; ++r)
      whole &= rows.length[r] == rows.d && rows.x[r] == rows.x[0] + r * rows.d;
    count_ = static_cast<int>((rows.d + unrolled - 1) / unrolled * unrolled);
    if (!whole) pad_rows(rows);
    rows_to_lanes<T>(whole ? rows.x[0] : padded_, whole ? rows.d : short_row, count_, x_);
  }

  void pad_rows(const LaneRows<T>& rows) {
    constexpr T lowest = -std::numeric_limits<T>::infinity();
    for (int r = 0; r < lanes<T>; ++r) {
      for (int i = 0; i < count_; i += lanes<T>) {
        const int64_t left = rows.length[r] - i;
        store<T>(padded_ + r * short_row + i,
                 left > 0 ? load_left(rows.x[r] + i, left, lowest) : splat(lowest));
      }
      if (rows.length[r] == 0) padded_[r * short_row] = 0;
    }
  }

  // The columns become relative to the maximum. The maxima of every coarse_columns-th column stay: as scores
  // of the row, they give a first guess of the root at little cost.
  void subtract_top() {
    coarse_count_ = count_ < coarse_columns ? count_ : coarse_columns;
    for (int k = 0; k < coarse_count_; ++k) coarse_[k] = x_[k];
    for (int k = coarse_count_; k < count_; ++k) {
      coarse_[k % coarse_columns] = larger(x_[k], coarse_[k % coarse_columns]);
    }
    tops_ = coarse_[0];
    for (int k = 1; k < coarse_count_; ++k) tops_ = larger(coarse_[k], tops_);
    for (int k = 0; k < coarse_count_; ++k) coarse_[k] -= tops_;
    for (int k = 0; k < count_; ++k) x_[k] -= tops_;
  }

  uint32_t find_root() {
    Vec<T> largest = splat(T(1));
    lane_cubic_root<T>(coarse_, coarse_count_, 6, &largest);
    const CubicRoot<T> root = lane_cubic_root<T>(x_, count_, 32, &largest);
    taus_ = -largest;
    factors_ = splat(T(1)) / root.sum;
    uint32_t undefined = 0;  // NaN is lost in z
    for (int k = 0; k < count_; ++k) undefined |= ~bits(equal(x_[k], x_[k]));
    return (root.unsettled | undefined) & all_lanes<T>;
  }

  template <bool with_bits>
  void write(const LaneRows<T>& rows, int r) {
    const Vec<T> top = splat(top_[r]), tau = splat(tau_[r]), factor = splat(factor_[r]), zero{};
    const T* const x = rows.x[r];
    T* const y = rows.y + r * rows.d;
    const int64_t length = rows.length[r];
    uint64_t words[short_row / 64] = {};
    const auto weigh = [&](int64_t i, Vec<T> v) {
      const Vec<T> z = larger(v - top - tau, zero), weight = z * z * factor;
      if (with_bits) words[i / 64] |= static_cast<uint64_t>(bits(greater(weight, zero))) << (i % 64);
      return weight;
    };
    int64_t i = 0;
    for (; i + lanes<T> <= length; i += lanes<T>) put<T>(y + i, weigh(i, load(x + i)), rows.streamed);
    if (i < length) {
      store_left<T>(y + i, rows.d - i,
                    weigh(i, load_left(x + i, length - i, -std::numeric_limits<T>::infinity())));
      i += lanes<T>;
    }
    for (; i < rows.d; i += lanes<T>) store_left<T>(y + i, rows.d - i, zero);
    for (int64_t j = 0; with_bits && j < rows.words; ++j) rows.support[r * rows.words + j] = words[j];
  }

  int count_ = 0, coarse_count_ = 0;
  Vec<T> tops_, taus_, factors_;
  T top_[lanes<T>], tau_[lanes<T>], factor_[lanes<T>];
  Vec<T> x_[short_row], coarse_[coarse_columns];
  T padded_[lanes<T> * short_row];
};

}  // namespace regmax::REGMAX_ISA
