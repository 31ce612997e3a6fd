// The lane tier: screens each row and solves the few candidates of all rows of a group together, one row per
// lane. Rows with NaN, with many candidates, or whose certificate fails are left.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "mappings/tiers.hpp"
#include "rows/group.hpp"
#include "simd/candidates.hpp"
#include "simd/transpose.hpp"

namespace regmax::REGMAX_ISA {

// How many vectors of maxima the cut of a long row is found from.
template <class Lanes, class = void>
constexpr int maxima_vectors = 1;
template <class Lanes>
constexpr int maxima_vectors<Lanes, std::void_t<decltype(Lanes::maxima_vectors)>> = Lanes::maxima_vectors;

// Rows with a larger strength are left at once.
template <class T, class Mapping, class = void>
constexpr T most_lane_theta = std::numeric_limits<T>::infinity();
template <class T, class Mapping>
constexpr T most_lane_theta<T, Mapping, std::void_t<decltype(Mapping::template most_lane_theta<T>)>> =
    Mapping::template most_lane_theta<T>;

template <class T, class Mapping>
class LaneRows {
 public:
  explicit LaneRows(const Workspace& w) : words_(w.words) {}

  // Maps the `wanted` rows of a group; returns the bits of those that are left.
  template <class Out>
  uint32_t run(const RowGroup<T>& rows, uint32_t all, Out& out) {
    const uint32_t wanted = all & ~bits(greater(load(rows.theta), splat(most_lane_theta<T, Mapping>)));
    doubtful_ = 0;
    if (!wanted) return all;
    find_cuts(rows, wanted);
    uint32_t left = screen(rows, wanted);
    if ((left & wanted) == wanted) return all;
    const uint32_t screened = wanted & ~left;
    left |= solve();
    if constexpr (Mapping::joins == Joins::neighbours) doubtful_ = screened & mapping_.doubtful_lanes();
    lanes_to_rows<T>(y_, p_.count, values(0), stride);
    const int64_t words = words_of(rows.d);
    for (int r = 0; r < lanes<T>; ++r) {
      if (!((wanted & ~left) >> r & 1)) continue;
      const auto joined = [&] { return mapping_.joined(r, values(r)); };
      if constexpr (Out::may_be_bounded) {
        if (rows.bounded) {
          out.write_listed(r, values(r), places(r), p_.counts[r], joined);
          continue;
        }
      }
      out.write_candidates(r, values(r), words_ + r * words, p_.counts[r], joined);
    }
    return (left & wanted) | (all & ~wanted);
  }

  // The rows of the last call that were left because rounding may have decided something, and the bits of their
  // candidates.
  uint32_t doubtful_rows() const { return doubtful_; }
  const uint64_t* words_of_row(int r, int64_t d) const { return words_ + r * words_of(d); }

 private:
  static constexpr int most_candidates = lane_candidates<Mapping>;
  static constexpr int64_t stride = most_candidates + 64 + lanes<T>;

  T* values(int r) { return values_ + lanes<T> + r * stride; }
  int32_t* places(int r) { return places_ + r * stride; }

  void find_cuts(const RowGroup<T>& rows, uint32_t wanted) {
    T lengths[lanes<T>];
    deleted_ = rows.maxima ? wanted & ~rows.finite : 0;
    constexpr int most = maxima_vectors<typename Mapping::template Lanes<T>>;
    const int vectors = rows.maxima || rows.d < many_maxima_row ? 1 : most;
    for (int r = 0; r < lanes<T>; ++r) {
      lengths[r] = static_cast<T>(rows.length[r]);
      if (!(wanted >> r & 1)) {
        for (int k = 0; k < vectors; ++k) store<T>(values(r) + k * lanes<T>, Vec<T>{});
      } else if (vectors > 1) {
        many_maxima<most>(rows.x[r], rows.length[r], values(r));
      } else {
        store<T>(values(r), find_maxima(rows, r));
      }
    }
    p_.maxima = vectors * lanes<T>;
    p_.lengths = load(lengths);
    p_.theta = load(rows.theta);
    Vec<T> maxima[most * lanes<T>];
    rows_to_lanes<T>(values(0), stride, p_.maxima, maxima);
    Vec<T> top = maxima[0];
    for (int k = 1; k < p_.maxima; ++k) top = larger(top, maxima[k]);
    for (int k = 0; k < p_.maxima; ++k) maxima[k] -= top;
    for (int k = 0; rows.scaled && k < p_.maxima; ++k) maxima[k] *= load(rows.scale);
    store<T>(top_, top);
    p_.cuts = mapping_.cut(maxima, p_) - splat(16 * rounding<T>);
    // Cuts are negative: the factor makes up for rounding.
    store<T>(cut_, rows.scaled ? p_.cuts * load(rows.gamma) * splat(1 + 8 * rounding<T>) : p_.cuts);
  }

  Vec<T> find_maxima(const RowGroup<T>& rows, int r) {
    if (rows.maxima) return load(rows.maxima + r * lanes<T>);
    if (Mapping::joins != Joins::neighbours) return lane_maxima(rows.x[r], rows.length[r]);
    bool deleted;
    const Vec<T> maxima = lane_maxima(rows.x[r], rows.length[r], &deleted);
    deleted_ |= static_cast<uint32_t>(deleted) << r;
    return maxima;
  }

  // The candidates of every row, padded with `nothing`; returns the rows that are left.
  uint32_t screen(const RowGroup<T>& rows, uint32_t wanted) {
    uint32_t left = 0;
    const int64_t row_words = words_of(rows.d);
    p_.count = 1;
    for (int r = 0; r < lanes<T>; ++r) {
      const int64_t length = wanted >> r & 1 ? rows.length[r] : 0;
      uint64_t* const words = words_ + r * row_words;
      const T gamma = rows.scaled ? rows.gamma[r] : T(1);
      int count = 0;
      if (length) {
        const auto cut = mapping_.row_cut(r, cut_[r], gamma, (deleted_ >> r & 1) != 0);
        count =
            static_cast<int>(find_row_candidates(rows, r, top_[r], cut, most_candidates, values(r), words, places(r)));
      }
      for (int64_t i = words_of(length); i < row_words; ++i) words[i] = 0;
      if (count > most_candidates ||
          (count && !mapping_.add_row(r, {rows.x[r], length, top_[r], rows.theta[r], words, count,
                                          (deleted_ >> r & 1) != 0, gamma, rows.errors[r]}))) {
        left |= 1u << r;
        count = 0;
      }
      for (int k = 0; rows.scaled && k < count; k += lanes<T>)
        store<T>(values(r) + k, load(values(r) + k) * splat(rows.scale[r]));
      for (int k = 0; k < most_candidates; k += lanes<T>) store<T>(values(r) + count + k, splat(nothing<T>));
      if (count == 0) values(r)[0] = 0;
      p_.counts[r] = count;
      p_.count = count > p_.count ? count : p_.count;
    }
    return left;
  }

  // Returns the rows with NaN, and those for which the mapping's result is not reliable.
  uint32_t solve() {
    p_.count = (p_.count + unrolled - 1) / unrolled * unrolled;
    rows_to_lanes<T>(values(0), stride, p_.count, p_.x);
    uint32_t undefined = 0;
    for (int k = 0; k < p_.count; ++k) undefined |= ~bits(equal(p_.x[k], p_.x[k]));
    return (undefined & all_lanes<T>) | mapping_.solve(p_, y_);
  }

  uint64_t* words_;
  uint32_t deleted_ = 0;  // rows that may have scores of -inf
  uint32_t doubtful_ = 0;
  typename Mapping::template Lanes<T> mapping_;
  LaneProblem<T> p_;
  Vec<T> y_[most_candidates];
  T top_[lanes<T>], cut_[lanes<T>];
  T values_[lanes<T> * (stride + 1)] = {};
  int32_t places_[lanes<T> * stride];  // of the candidates, if the rows are bounded
};

}  // namespace regmax::REGMAX_ISA
