// prox_oscar's values that a projection onto the simplex gives weight, one row per lane: screens the sizes of each row,
// and solves the few largest of all rows of a group together. Rows whose certificate fails are left, and so are rows
// with deleted scores, which change the penalty.
#pragma once

#include <cstdint>

#include "algorithms/lane_leading_sizes.hpp"
#include "rows/group.hpp"
#include "runtime/tuning.hpp"
#include "simd/transpose.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
class LeadingRows {
 public:
  explicit LeadingRows(const Workspace& w) : words_(w.words) {}

  // Maps the `wanted` rows of a group; returns the bits of those that are left.
  template <class Out>
  uint32_t run(const RowGroup<T>& rows, uint32_t wanted, Out& out) {
    if (rows.scaled) return wanted;
    find_cuts(rows, wanted);
    uint32_t left = screen(rows, wanted);
    if ((left & wanted) == wanted) return wanted;
    rows_to_lanes<T>(values(0), stride, count_, x_);
    uint32_t finite = all_lanes<T>;
    for (int k = 0; k < count_; ++k) finite &= bits(equal(x_[k] - x_[k], Vec<T>{}));
    LeadingSizes<T> sizes{x_, count_, lengths_, load(rows.theta), load(rows.theta_rest), {}, {}};
    for (int j = 0; j < size_levels; ++j) sizes.levels[j] = load(levels_[j]), sizes.above[j] = load(above_[j]);
    left |= ~finite | lane_leading_values<T>(sizes, z_);
    lanes_to_rows<T>(z_, count_, values(0), stride);
    for (uint32_t rest = wanted & ~left; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      out.write_candidates(r, values(r), words_ + r * words_of(rows.d), static_cast<int>(above_[0][r]),
                           [] { return 0; });
    }
    return left & wanted;
  }

 private:
  static constexpr int64_t stride = max_candidates + 64 + lanes<T>;

  T* values(int r) { return values_ + r * stride; }

  // The levels below the threshold of the maxima by lane, which bounds that of the scores from below; a value is at
  // least its score less lam (d - 1). Levels decide nothing: the certificate does.
  void find_cuts(const RowGroup<T>& rows, uint32_t wanted) {
    T lengths[lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) {
      lengths[r] = static_cast<T>(rows.length[r]);
      store<T>(values_ + r * lanes<T>, wanted >> r & 1 ? lane_maxima(rows.x[r], rows.length[r]) : Vec<T>{});
    }
    Vec<T> maxima[lanes<T>];
    const Vec<T> top = relative_maxima<T>(rows, values_, maxima), lam = load(rows.theta);
    const Vec<T> tau = top + maxima_threshold<T>(maxima);
    lengths_ = load(lengths);
    const Vec<T> low = tau - lam * (lengths_ + splat(T(max_candidates))) * splat(low_level<T>);
    const Vec<T> high = larger(tau - lam * splat(T(max_candidates)), low);
    const Vec<T> levels[size_levels] = {high, low + (high - low) * splat(middle_level<T>), low};
    for (int j = 0; j < size_levels; ++j) store<T>(levels_[j], levels[j]);
  }

  // The candidates of every row, padded with zeros; returns the rows that are left.
  uint32_t screen(const RowGroup<T>& rows, uint32_t wanted) {
    uint32_t left = 0;
    count_ = 1;
    for (int r = 0; r < lanes<T>; ++r) {
      int64_t above[size_levels] = {};
      int64_t count = wanted >> r & 1 ? find_sizes(rows, r, above) : 0;
      if (count == 0 || count > max_candidates) left |= 1u << r, count = 0;
      for (int k = 0; k < max_candidates; k += lanes<T>) store<T>(values(r) + count + k, Vec<T>{});
      above_[0][r] = static_cast<T>(count);
      for (int j = 1; j < size_levels; ++j) above_[j][r] = static_cast<T>(above[j]);
      count_ = count > count_ ? static_cast<int>(count) : count_;
    }
    return left;
  }

  // Compacts the scores whose sizes are not at or below the cut, and counts those above the lower levels, perhaps too
  // many.
  int64_t find_sizes(const RowGroup<T>& rows, int r, int64_t* above) {
    Vec<T> levels[size_levels];
    for (int j = 0; j < size_levels; ++j) levels[j] = splat(levels_[j][r]);
    T* const candidates = values(r);
    const int64_t length = rows.length[r], row_words = words_of(rows.d);
    uint64_t* const words = words_ + r * row_words;
    int64_t count = 0;
    for (int64_t word = 0; word < row_words; ++word) {
      uint64_t found = 0;
      for (int64_t i = 64 * word; i < 64 * (word + 1) && i < length && count <= max_candidates; i += lanes<T>) {
        const Vec<T> x = load_left(rows.x[r] + i, length - i, T(0)), size = absolute<T>(x);
        uint32_t chosen = bits(not_at_most(size, levels[0]));
        if (length - i < lanes<T>) chosen &= (1u << (length - i)) - 1;
        for (int j = 1; j < size_levels; ++j) above[j] += __builtin_popcount(bits(greater(size, levels[j])));
        count += append<T>(candidates + count, chosen, x);
        found |= static_cast<uint64_t>(chosen) << (i % 64);
      }
      words[word] = found;
    }
    return count;
  }

  uint64_t* words_;
  int count_ = 1;
  Vec<T> lengths_, x_[max_candidates], z_[max_candidates];
  T levels_[size_levels][lanes<T>], above_[size_levels][lanes<T>];
  T values_[lanes<T> * stride];
};

}  // namespace regmax::REGMAX_ISA
