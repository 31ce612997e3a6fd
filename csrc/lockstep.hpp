// Rows in groups, one per SIMD lane: screen each row, solve its few candidates in lockstep with the others',
// write it.
//
// A lower bound of sparsemax's threshold comes free with the maximum: the maxima by lane are scores of the
// row, and the threshold of any of its scores bounds that of all from below. What may lie below that bound
// and still matter:
//
// - sparsemax: nothing.
// - fusedmax: scores down to tau_sparsemax - 4 lam (mappings.hpp).
// - oscarmax: scores close below tau >= tau_sparsemax + lam, tested afterwards in two steps (isotonic.hpp,
//   Selection). With K candidates above the cut b, and L scores above a lower cut c, neither those between
//   nor those below matter if tau >= b + lam (K + 1 + L) / 2 and tau >= c + lam (L + 1 + d) / 2.
// - sqpnormmax: the root for the maxima is a guess of the threshold, tested afterwards: the candidates above
// a cut decide the row if their own threshold is not below it.
//
// Rows that are not of this kind -- NaN, many candidates, a guess that failed, strengths beyond what T
// resolves -- are left to rows.hpp.
#pragma once

#include <cstdint>

#include "lane_mappings.hpp"
#include "lane_pnorm.hpp"
#include "lane_sorting.hpp"
#include "regmax.h"
#include "row_vectors.hpp"
#include "screening.hpp"
#include "transpose.hpp"

namespace regmax::REGMAX_ISA {

// The rows of a group: d apart in y, words apart in support and joined, which may be nullptr.
template <class T>
struct LaneRows {
  const T* x[lanes<T>];
  T* y;
  uint64_t* support;
  uint64_t* joined;
  int64_t d, words;
  bool streamed;             // whether y is written past the caches
  int64_t length[lanes<T>];  // scores from the front; those behind are deleted, and 0 is an idle lane
  uint64_t* kept[lanes<T>];  // nullptr, or the bits of where those scores are in the row, to be overwritten
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

  // Maps the rows; returns the bits of those that are left to do. `words` in the constructor holds as many
  // words as the rows have.
  uint32_t run(const LaneRows<T>& rows) {
    find_cuts(rows);
    uint32_t left = screen(rows);
    if (left == all_lanes<T>) return left;
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
    deleted_ = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      store<T>(values(r), rows.length[r] ? maxima(rows.x[r], rows.length[r], r) : Vec<T>{});
      lengths[r] = static_cast<T>(rows.length[r]);
    }
    lengths_ = load(lengths);
    theta_ = load(rows.theta);
    rows_to_lanes<T>(values(0), stride, lanes<T>, x_);
    Vec<T> top = x_[0];
    for (int k = 1; k < lanes<T>; ++k) top = larger(top, x_[k]);
    for (int k = 0; k < lanes<T>; ++k) x_[k] -= top;
    store<T>(top_, top);
    cuts_ = cuts() - splat(16 * rounding<T>);
    store<T>(cut_, cuts_);
  }

  // A chain must know what is deleted from it.
  Vec<T> maxima(const T* x, int64_t length, int r) {
    if (kernel != REGMAX_FUSEDMAX) return lane_maxima(x, length);
    bool deleted;
    const Vec<T> result = lane_maxima(x, length, &deleted);
    deleted_ |= static_cast<uint32_t>(deleted) << r;
    return result;
  }

  Vec<T> cuts() {
    const Vec<T> lowest = splat(T(-1));
    if (kernel == REGMAX_SQPNORMMAX) {
      Vec<T> largest = -lowest;
      lane_cubic_root<T>(x_, lanes<T>, 5, &largest);
      return -largest;
    }
    const Vec<T> tau = lane_threshold<T>(x_, lanes<T>, lowest, 3).tau;
    if (kernel == REGMAX_FUSEDMAX) return tau - theta_ * 4;
    if (kernel != REGMAX_OSCARMAX) return tau;
    const Vec<T> low = tau - theta_ * (lengths_ + splat(T(max_candidates))) * splat(T(0.5));
    store<T>(low_cut_, low);
    return larger(tau - theta_ * splat(T(0.75) * max_candidates), low);
  }

  uint32_t screen(const LaneRows<T>& rows) {
    uint32_t left = deleted_;
    count_ = 1;
    for (int r = 0; r < lanes<T>; ++r) {
      const T* const x = rows.x[r];
      const int64_t length = left >> r & 1 ? 0 : rows.length[r];
      uint64_t* const words = words_ + r * rows.words;
      int count = length ? find_candidates(x, length, top_[r], cut_[r], values(r), words) : 0;
      for (int64_t i = words_of(length); i < rows.words; ++i) words[i] = 0;
      if (count > max_candidates || is_long_chain(count, length)) {
        left |= 1u << r;
        count = 0;
      }
      if (kernel == REGMAX_FUSEDMAX && count) keep_runs(find_runs(words, length, count), r);
      if (kernel == REGMAX_OSCARMAX && count) {
        low_count_[r] = static_cast<T>(count_above(x, length, top_[r], low_cut_[r]));
      }
      for (int k = 0; k < max_candidates; k += lanes<T>) store<T>(values(r) + count + k, splat(nothing<T>));
      if (count == 0) values(r)[0] = 0;
      counts_[r] = count;
      count_ = count > count_ ? count : count_;
    }
    return left;
  }

  // Whether a row is better off as a whole chain (lockstep_chains.hpp): here, chains cost the square of their
  // length.
  static bool is_long_chain(int count, int64_t length) {
    return kernel == REGMAX_FUSEDMAX && sizeof(T) == sizeof(float) && count == length && count > 16;
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
      const RunBits<T> runs{load_integers<T>(adjacent_), load_integers<T>(left_edge_),
                            load_integers<T>(right_edge_)};
      return lane_fusedmax<T>(x_, count_, runs, theta_, y_);
    } else if constexpr (kernel == REGMAX_OSCARMAX) {
      const OscarFacts<T> facts = lane_oscarmax<T>(x_, count_, theta_, y_);
      store_integers<T>(joined_, facts.joined);
      return bits(greater(least_tau(), facts.tau));
    } else if constexpr (kernel == REGMAX_SQPNORMMAX) {
      Vec<T> tau;
      return lane_sqpnormmax<T>(x_, count_, y_, &tau) | bits(greater(cuts_, tau));
    } else {
      return lane_sparsemax<T>(x_, count_, y_);
    }
  }

  // oscarmax's certificate: the least tau with which the candidates decide the row.
  Vec<T> least_tau() const {
    T counts[lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) counts[r] = static_cast<T>(counts_[r] + 1);
    const Vec<T> half = theta_ * splat(T(0.5)), low_counts = load(low_count_);
    return larger(cuts_ + half * (load(counts) + low_counts),
                  load(low_cut_) + half * (low_counts + lengths_ + splat(T(1))));
  }

  void write(const LaneRows<T>& rows, int r) {
    prefetch_row(rows.x[r] + lanes<T> * rows.d, rows.d);
    const uint64_t* words = words_ + r * rows.words;
    if (rows.kept[r]) {
      spread_row_bits(words, rows.kept[r], rows.d, rows.kept[r]);
      words = rows.kept[r];
    }
    spread_row(values(r), words, rows.d, rows.y + r * rows.d, rows.streamed);
    if (rows.support) write_bits(positive_bits(r), words, rows.words, rows.support + r * rows.words);
    if (rows.joined) write_bits(joined_bits(r), words, rows.words, rows.joined + r * rows.words);
  }

  // One bit per candidate: it has weight.
  uint64_t positive_bits(int r) {
    uint64_t positive = 0;
    for (int k = 0; k < max_candidates; k += lanes<T>) {
      positive |= static_cast<uint64_t>(bits(greater(load(values(r) + k), Vec<T>{}))) << k;
    }
    return positive & (~uint64_t{0} >> (64 - counts_[r]));
  }

  // One bit per candidate: it follows the one before without a gap, and they have the same weight. Of
  // oscarmax, the bits are known already.
  uint64_t joined_bits(int r) {
    if (kernel == REGMAX_OSCARMAX) return static_cast<uint64_t>(joined_[r]);
    uint64_t same = 0;
    for (int k = 0; k < max_candidates; k += lanes<T>) {
      same |= static_cast<uint64_t>(bits(equal(load(values(r) + k), load(values(r) + k - 1)))) << k;
    }
    return same & static_cast<uint64_t>(adjacent_[r]);
  }

  static void write_bits(uint64_t flags, const uint64_t* words, int64_t count, uint64_t* out) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = spread_bits(flags, words[i]);
      flags >>= __builtin_popcountll(words[i]);  // at most max_candidates < 64
    }
  }

  uint64_t* words_;
  int count_ = 1;
  int counts_[lanes<T>];
  uint32_t deleted_ = 0;  // rows with -inf
  Vec<T> theta_, lengths_, cuts_;
  Vec<T> x_[max_candidates], y_[max_candidates];
  T top_[lanes<T>], cut_[lanes<T>], low_cut_[lanes<T>] = {}, low_count_[lanes<T>] = {};
  Int<T> adjacent_[lanes<T>] = {}, left_edge_[lanes<T>] = {}, right_edge_[lanes<T>] = {};
  Int<T> joined_[lanes<T>] = {};  // oscarmax's
  T values_[lanes<T> * (stride + 1)] = {};
};

}  // namespace regmax::REGMAX_ISA
