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

#include "lane_mappings.hpp"
#include "lane_pnorm.hpp"
#include "lane_sorting.hpp"
#include "regmax.h"
#include "screening.hpp"
#include "transpose.hpp"

namespace regmax::REGMAX_ISA {

// The rows of a group: d apart in x and y, words apart in support and joined, which may be nullptr.
template <class T>
struct LaneRows {
  const T* x;
  T* y;
  uint64_t* support;
  uint64_t* joined;
  int64_t d, words;
  int64_t length[lanes<T>];  // scores that count, from the front; 0: the lane is idle
  T theta[lanes<T>];
};

// Whether a strength leaves lockstep arithmetic in T as accurate as the scores.
inline bool suits_lockstep(int32_t kernel, double theta) {
  if (kernel == REGMAX_FUSEDMAX) return theta <= 1;
  if (kernel == REGMAX_OSCARMAX) return theta <= 0.125;
  return kernel == REGMAX_SPARSEMAX || theta == 1.5;
}

template <class T, int32_t kernel>
class Lockstep {
 public:
  explicit Lockstep(uint64_t* words) : words_(words) {}

  // Maps the rows; returns the bits of those that are left to do. `words` in the constructor holds as many words as
  // the rows have.
  uint32_t run(const LaneRows<T>& rows) {
    find_cuts(rows);
    uint32_t left = screen(rows);
    left |= solve();
    lanes_to_rows<T>(y_, count_, values(0), stride);
    for (int r = 0; r < lanes<T>; ++r) {
      if (rows.length[r] && !(left >> r & 1)) write(rows, r);
    }
    return left;
  }

 private:
  static constexpr int64_t stride = max_candidates + 64 + lanes<T>;

  T* values(int r) { return values_ + lanes<T> + r * stride; }

  void find_cuts(const LaneRows<T>& rows) {
    T lengths[lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) {
      store<T>(values(r), rows.length[r] ? lane_maxima(rows.x + r * rows.d, rows.length[r]) : Vec<T>{});
      lengths[r] = static_cast<T>(rows.length[r]);
    }
    theta_ = load(rows.theta);
    rows_to_lanes<T>(values(0), stride, lanes<T>, x_);
    Vec<T> top = x_[0];
    for (int k = 1; k < lanes<T>; ++k) top = larger(top, x_[k]);
    for (int k = 0; k < lanes<T>; ++k) x_[k] -= top;
    store<T>(top_, top);
    store<T>(cut_, cuts(load(lengths)) - splat(16 * rounding<T>));
  }

  Vec<T> cuts(Vec<T> lengths) const {
    const Vec<T> lowest = splat(T(-1));
    if (kernel == REGMAX_SQPNORMMAX) return lowest;
    const Vec<T> tau = lane_threshold<T>(x_, lanes<T>, lowest, 3).tau;
    if (kernel == REGMAX_FUSEDMAX) return tau - theta_ * 4;
    if (kernel == REGMAX_OSCARMAX) return tau - theta_ * (lengths + splat(T(max_candidates - 1))) / 2;
    return tau;
  }

  uint32_t screen(const LaneRows<T>& rows) {
    uint32_t left = 0;
    count_ = 1;
    for (int r = 0; r < lanes<T>; ++r) {
      const T* const x = rows.x + r * rows.d;
      const int64_t length = rows.length[r];
      uint64_t* const words = words_ + r * rows.words;
      int count = length ? find_candidates(x, length, top_[r], cut_[r], values(r), words) : 0;
      if (count > max_candidates || (kernel == REGMAX_FUSEDMAX && length && has_minus_infinity(x, length))) {
        left |= 1u << r;
        count = 0;
      }
      if (kernel == REGMAX_FUSEDMAX && count) keep_runs(find_runs(words, length, count), r);
      for (int k = 0; k < max_candidates; k += lanes<T>) store<T>(values(r) + count + k, splat(nothing<T>));
      if (count == 0) values(r)[0] = 0;
      counts_[r] = count;
      count_ = count > count_ ? count : count_;
    }
    return left;
  }

  void keep_runs(const Runs& runs, int r) {
    adjacent_[r] = static_cast<Int<T>>(runs.adjacent);
    left_edge_[r] = static_cast<Int<T>>(runs.left_edge);
    right_edge_[r] = static_cast<Int<T>>(runs.right_edge);
  }

  uint32_t solve() {
    count_ = (count_ + unrolled - 1) / unrolled * unrolled;
    rows_to_lanes<T>(values(0), stride, count_, x_);
    uint32_t undefined = 0;
    for (int k = 0; k < count_; ++k) undefined |= ~bits(equal(x_[k], x_[k]));
    return (undefined & all_lanes<T>) | map();
  }

  uint32_t map() {
    if constexpr (kernel == REGMAX_FUSEDMAX) {
      const RunBits<T> runs{load_integers<T>(adjacent_), load_integers<T>(left_edge_), load_integers<T>(right_edge_)};
      return lane_fusedmax<T>(x_, count_, runs, theta_, y_);
    } else if constexpr (kernel == REGMAX_OSCARMAX) {
      return lane_oscarmax<T>(x_, count_, theta_, y_);
    } else if constexpr (kernel == REGMAX_SQPNORMMAX) {
      return lane_sqpnormmax<T>(x_, count_, y_);
    } else {
      return lane_sparsemax<T>(x_, count_, y_);
    }
  }

  void write(const LaneRows<T>& rows, int r) {
    const uint64_t* const words = words_ + r * rows.words;
    spread_row(values(r), words, rows.length[r], rows.y + r * rows.d);
    if (rows.support) write_bits(positive_bits(r), words, rows.length[r], rows.support + r * rows.words);
    if (rows.joined) write_bits(joined_bits(r), words, rows.length[r], rows.joined + r * rows.words);
  }

  // One bit per candidate: it has weight.
  uint64_t positive_bits(int r) {
    uint64_t positive = 0;
    for (int k = 0; k < max_candidates; k += lanes<T>) {
      positive |= static_cast<uint64_t>(bits(greater(load(values(r) + k), Vec<T>{}))) << k;
    }
    return positive & (~uint64_t{0} >> (64 - counts_[r]));
  }

  // One bit per candidate: it follows the one before without a gap, and they have the same weight.
  uint64_t joined_bits(int r) {
    uint64_t same = 0;
    for (int k = 0; k < max_candidates; k += lanes<T>) {
      same |= static_cast<uint64_t>(bits(equal(load(values(r) + k), load(values(r) + k - 1)))) << k;
    }
    return same & static_cast<uint64_t>(adjacent_[r]);
  }

  static void write_bits(uint64_t flags, const uint64_t* words, int64_t length, uint64_t* out) {
    for (int64_t i = 0; i < (length + 63) / 64; ++i) {
      out[i] = words[i] ? spread_bits(flags, words[i]) : 0;
      flags >>= __builtin_popcountll(words[i]);  // at most max_candidates < 64
    }
  }

  uint64_t* words_;
  int count_ = 1;
  int counts_[lanes<T>];
  Vec<T> theta_;
  Vec<T> x_[max_candidates], y_[max_candidates];
  T top_[lanes<T>], cut_[lanes<T>];
  Int<T> adjacent_[lanes<T>] = {}, left_edge_[lanes<T>] = {}, right_edge_[lanes<T>] = {};
  T values_[lanes<T> * (stride + 1)] = {};
};

}  // namespace regmax::REGMAX_ISA
