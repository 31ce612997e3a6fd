// Rows in groups, one per SIMD lane: screen each row, solve its few candidates in lockstep with the others', write
// it.
//
// A lower bound of every threshold comes free with the maximum: the maxima by lane are scores of the row, and the
// simplex threshold of any of its scores bounds that of all from below. What may lie below tau and still matter:
//   sparsemax   nothing;
//   fusedmax    scores down to tau_sparsemax - 4 lam (mappings.hpp);
//   oscarmax    scores above tau - lam (K + 1 + d) / 2 for K candidates, tau >= tau_sparsemax + lam (isotonic.hpp);
//   sqpnormmax  its own threshold is only known to be at least max - 1.
// Rows that are not of this kind -- NaN, many candidates, strengths beyond what T resolves -- are left to rows.hpp.
#pragma once

#include <cstdint>
#include <limits>

#include "calls.hpp"
#include "lane_mappings.hpp"
#include "lane_pnorm.hpp"
#include "lane_sorting.hpp"
#include "screening.hpp"
#include "transpose.hpp"

namespace regmax::REGMAX_ISA {

// One row of a group: its scores, and where the result goes. support and joined may be nullptr.
template <class T>
struct LaneRow {
  const T* x;
  int64_t length;  // 0: the lane is idle
  T theta;
  T* y;
  uint64_t* support;
  uint64_t* joined;
};

// Whether a strength leaves lockstep arithmetic in T as accurate as the scores.
inline bool suits_lockstep(int32_t kernel, double theta) {
  switch (kernel) {
    case REGMAX_SPARSEMAX:
      return true;
    case REGMAX_FUSEDMAX:
      return theta <= 1;
    case REGMAX_OSCARMAX:
      return theta <= 0.125;
    default:
      return kernel == REGMAX_SQPNORMMAX && theta == 1.5;
  }
}

template <class T>
class Lockstep {
 public:
  static constexpr int rows = lanes<T>;

  // `words` holds rows * (d + 63) / 64 words.
  Lockstep(int32_t kernel, int64_t d, uint64_t* words)
      : kernel_(kernel), words_per_row_((d + 63) / 64), words_(words) {
    store<T>(values_, Vec<T>{});
  }

  // Maps the rows; returns the bits of those that are left to do.
  uint32_t run(const LaneRow<T> (&row)[lanes<T>]) {
    uint32_t left = screen(row);
    left |= solve();
    lanes_to_rows<T>(y_, count_, values(0), stride);
    for (int r = 0; r < rows; ++r) {
      if (row[r].length && !(left >> r & 1)) write(row[r], r);
    }
    return left;
  }

 private:
  static constexpr int64_t stride = max_candidates + 64 + lanes<T>;

  T* values(int r) { return values_ + lanes<T> + r * stride; }
  uint64_t* words(int r) { return words_ + r * words_per_row_; }

  uint32_t screen(const LaneRow<T> (&row)[lanes<T>]) {
    find_cuts(row);
    uint32_t left = 0;
    count_ = 1;
    for (int r = 0; r < rows; ++r) {
      int count = 0;
      if (row[r].length) {
        count = find_candidates(row[r].x, row[r].length, top_[r], cut_[r], values(r), words(r));
        if (count > max_candidates || (kernel_ == REGMAX_FUSEDMAX && has_minus_infinity(row[r].x, row[r].length))) {
          left |= 1u << r;
          count = 0;
        }
      }
      if (count && kernel_ == REGMAX_FUSEDMAX) keep_runs(find_runs(words(r), row[r].length, count), r);
      for (int k = count; k < max_candidates; k += lanes<T>) store<T>(values(r) + k, splat(nothing<T>));
      if (!count) values(r)[0] = 0;
      counts_[r] = count;
      if (count > count_) count_ = count;
    }
    return left;
  }

  void find_cuts(const LaneRow<T> (&row)[lanes<T>]) {
    T lengths[lanes<T>], thetas[lanes<T>];
    for (int r = 0; r < rows; ++r) {
      store<T>(values(r), row[r].length ? lane_maxima(row[r].x, row[r].length) : Vec<T>{});
      lengths[r] = static_cast<T>(row[r].length);
      thetas[r] = row[r].theta;
    }
    theta_ = load(thetas);
    rows_to_lanes<T>(values(0), stride, rows, x_);
    Vec<T> top = x_[0];
    for (int k = 1; k < rows; ++k) top = larger(top, x_[k]);
    store<T>(top_, top);
    for (int k = 0; k < rows; ++k) x_[k] -= top;
    store<T>(cut_, cuts(load(lengths)) - splat(16 * rounding<T>));
  }

  Vec<T> cuts(Vec<T> lengths) const {
    const Vec<T> lowest = splat(T(-1));
    if (kernel_ == REGMAX_SQPNORMMAX) return lowest;
    const Vec<T> tau = lane_threshold<T>(x_, rows, lowest, 3).tau;
    if (kernel_ == REGMAX_FUSEDMAX) return tau - theta_ * 4;
    if (kernel_ == REGMAX_OSCARMAX) return tau - theta_ * (lengths + splat(T(max_candidates - 1))) / 2;
    return tau;
  }

  void keep_runs(const Runs& runs, int r) {
    adjacent_[r] = static_cast<Int<T>>(runs.adjacent);
    left_edge_[r] = static_cast<Int<T>>(runs.left_edge);
    right_edge_[r] = static_cast<Int<T>>(runs.right_edge);
  }

  uint32_t solve() {
    rows_to_lanes<T>(values(0), stride, count_, x_);
    uint32_t undefined = 0;
    for (int k = 0; k < count_; ++k) undefined |= ~bits(equal(x_[k], x_[k]));
    return (undefined & all_lanes<T>) | map();
  }

  uint32_t map() {
    switch (kernel_) {
      case REGMAX_FUSEDMAX: {
        const RunBits<T> runs{load_integers<T>(adjacent_), load_integers<T>(left_edge_),
                              load_integers<T>(right_edge_)};
        return lane_fusedmax<T>(x_, count_, runs, theta_, y_);
      }
      case REGMAX_OSCARMAX:
        return lane_oscarmax<T>(x_, count_, theta_, y_);
      case REGMAX_SQPNORMMAX:
        return lane_sqpnormmax<T>(x_, count_, y_);
      default:
        return lane_sparsemax<T>(x_, count_, y_);
    }
  }

  // One bit per candidate: it has weight; it has the same weight as the candidate before.
  void find_flags(int r, uint64_t* positive, uint64_t* repeated) {
    *positive = *repeated = 0;
    for (int k = 0; k < counts_[r]; k += lanes<T>) {
      const Vec<T> y = load(values(r) + k);
      *positive |= static_cast<uint64_t>(bits(greater(y, Vec<T>{}))) << k;
      *repeated |= static_cast<uint64_t>(bits(equal(y, load(values(r) + k - 1)))) << k;
    }
  }

  void write(const LaneRow<T>& row, int r) {
    spread_candidates(values(r), words(r), row.length, row.y);
    if (!row.support && !row.joined) return;
    uint64_t positive, repeated;
    find_flags(r, &positive, &repeated);
    repeated &= positive & static_cast<uint64_t>(adjacent_[r]);
    for (int64_t i = 0; i < row.length; i += 64) {
      const uint64_t word = words(r)[i / 64];
      if (row.support) row.support[i / 64] = spread_bits(positive, word);
      if (row.joined) row.joined[i / 64] = spread_bits(repeated, word);
      const int count = __builtin_popcountll(word);
      positive = count < 64 ? positive >> count : 0;
      repeated = count < 64 ? repeated >> count : 0;
    }
  }

  int32_t kernel_;
  int64_t words_per_row_;
  uint64_t* words_;
  int count_ = 1;
  int counts_[lanes<T>];
  T top_[lanes<T>], cut_[lanes<T>];
  Int<T> adjacent_[lanes<T>] = {}, left_edge_[lanes<T>] = {}, right_edge_[lanes<T>] = {};
  Vec<T> theta_;
  Vec<T> x_[max_candidates], y_[max_candidates];
  T values_[lanes<T> * (stride + 1)];
};

}  // namespace regmax::REGMAX_ISA
