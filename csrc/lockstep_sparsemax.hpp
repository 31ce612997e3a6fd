// sparsemax of rows in groups, up to a length for which sums in T are good. Rows stay rows: what each of them
// adds up, a vector of partial sums, is finished for the whole group together.
//
// The maxima by lane are scores of the row, and their threshold bounds the row's from below (lockstep.hpp).
// A round of Michelot's (simplex.hpp) over the whole row makes it the threshold of the scores above it: of
// most rows the final one. So their weights are written at once, and counted: where fewer have weight than
// were added up, the row goes on.
#pragma once

#include <cstdint>
#include <limits>

#include "lane_mappings.hpp"
#include "lockstep.hpp"
#include "row_vectors.hpp"
#include "screening.hpp"
#include "transpose.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

// Of longer rows, screening (lockstep.hpp) is quicker for those with few candidates.
constexpr int64_t unscreened_sparsemax = 256, longest_sparsemax = 2048;

template <class T>
class SparsemaxLockstep {
 public:
  static constexpr int64_t streamed_row = 128;  // shorter rows take longer to compute than to store

  explicit SparsemaxLockstep(const Workspace& w)
      : words_(w.words), copies_(static_cast<T*>(w.copies)), copy_stride_(w.copy_stride) {}

  // Maps the rows; returns the bits of those that are left to do: the ones that are not finite.
  uint32_t run(const LaneRows<T>& rows) {
    find_rows(rows);
    return with_vectors<T>(rows.d, [&](auto vectors) { return map(rows, vectors); });
  }

 private:
  // Rows that do not end with a vector are copied, and padded.
  void find_rows(const LaneRows<T>& rows) {
    for (int r = 0; r < lanes<T>; ++r) {
      const bool whole = rows.length[r] == rows.d && rows.d % lanes<T> == 0;
      x_[r] = whole ? rows.x[r] : pad(rows.x[r], rows.length[r], rows.d, copies_ + r * copy_stride_);
    }
  }

  static const T* pad(const T* x, int64_t length, int64_t d, T* copy) {
    constexpr T lowest = -std::numeric_limits<T>::infinity();
    for (int64_t i = 0; i < d; i += lanes<T>) {
      store<T>(copy + i, i < length ? load_left(x + i, length - i, lowest) : splat(lowest));
    }
    return copy;
  }

  template <class Vectors>
  uint32_t map(const LaneRows<T>& rows, Vectors vectors) {
    find_lower_bounds(vectors);
    uint32_t pending = 0, left = 0;
    for (int r = 0; r < lanes<T>; ++r) pending |= static_cast<uint32_t>(rows.length[r] != 0) << r;
    before_ = splat(std::numeric_limits<T>::infinity());
    while (pending) {
      for_rows_of(pending, [&](int r) __attribute__((always_inline)) { add_up(rows, r, vectors); });
      const Steps steps = find_steps();
      left |= pending & steps.undefined;
      pending &= ~left;
      const uint32_t far = steps.far & steps.decreasing;
      uint32_t fewer = 0;
      for_rows_of(pending & ~far, [&](int r) __attribute__((always_inline)) {
        fewer |= static_cast<uint32_t>(write(rows, r, vectors) != counts_[r]) << r;
      });
      // Rounding may keep a row from settling: it ends when a round has not left fewer than the one before.
      pending &= far | (fewer & steps.decreasing);
      if (pending) store<T>(tau_, load(tau_) + load(step_));
    }
    return left;
  }

  // The first round is of all rows.
  template <class Visit>
  static REGMAX_INLINE void for_rows_of(uint32_t chosen, const Visit& visit) {
    if (chosen == all_lanes<T>) {
      for (int r = 0; r < lanes<T>; ++r) visit(r);
    } else {
      for (; chosen; chosen &= chosen - 1) visit(__builtin_ctz(chosen));
    }
  }

  template <class Vectors>
  void find_lower_bounds(Vectors vectors) {
    T maxima[lanes<T> * lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) store<T>(maxima + r * lanes<T>, largest(x_[r], vectors));
    Vec<T> x[lanes<T>];
    rows_to_lanes<T>(maxima, lanes<T>, lanes<T>, x);
    Vec<T> top = x[0];
    for (int k = 1; k < lanes<T>; ++k) top = larger(x[k], top);
    for (int k = 0; k < lanes<T>; ++k) x[k] -= top;
    const int rounds = vectors <= 4 ? 2 : 3;
    store<T>(top_, top);
    store<T>(tau_, lane_threshold<T>(x, lanes<T>, splat(T(-1)), rounds).tau - splat(16 * rounding<T>));
  }

  static REGMAX_INLINE Vec<T> largest(const T* x, int64_t vectors) { return lane_maxima(x, vectors * lanes<T>); }
  template <int64_t n>
  static REGMAX_INLINE Vec<T> largest(const T* x, Constant<n>) {
    Vec<T> result = load(x);
    for (int i = 1; i < n; ++i) result = larger(load(x + i * lanes<T>), result);
    return result;
  }

  // The sums, still by lane, and the number of a row's scores above tau, relative to it; their bits go to
  // words_. NaN is above, and spoils the sum.
  template <class Vectors>
  REGMAX_INLINE void add_up(const LaneRows<T>& rows, int r, Vectors vectors) {
    const Vec<T> top = splat(top_[r]), tau = splat(tau_[r]);
    Vec<T> sums[unrolled] = {};
    uint64_t* const words = words_ + r * rows.words;
    int count = 0;
    for_words<T>(vectors, [&](int64_t i, auto size) __attribute__((always_inline)) {
      Vec<T> relative[vectors_per_word<T>] = {};
      Where<T> above[vectors_per_word<T>] = {};
      uint64_t word = 0;
      for (int c = 0; c < size; ++c) {
        relative[c] = load(x_[r] + (i + c) * lanes<T>) - top;
        above[c] = not_at_most(relative[c], tau);
        word |= static_cast<uint64_t>(bits(above[c])) << (c * lanes<T>);
      }
      words[i / vectors_per_word<T>] = word;
      count += __builtin_popcountll(word);
      if (!is_constant<Vectors> && !word) return;
      for (int c = 0; c < size; ++c)
        sums[c % unrolled] = add_where(above[c], sums[c % unrolled], relative[c] - tau);
    });
    sums_[r] = total<T>(sums);
    counts_[r] = count;
  }

  struct Steps {
    uint32_t undefined, far, decreasing;
  };

  // The steps of Newton's that lead from tau to the threshold of what is above it. A step is not added to tau
  // but kept: next to tau, it would be rounded. Where it is large next to the weights, they would be rounded:
  // such rows must come nearer first.
  Steps find_steps() {
    const Vec<T> sum = sum_rows<T>(sums_);
    const Vec<T> counts = __builtin_convertvector(load_integers<T>(counts_), Vec<T>);
    store<T>(step_, (sum - splat(T(1))) / counts);
    const Steps steps{~bits(equal(sum, sum)), bits(greater(sum, splat(T(3)))), bits(greater(before_, counts))};
    before_ = counts;
    return steps;
  }

  // Returns how many scores have weight.
  template <class Vectors>
  REGMAX_INLINE int write(const LaneRows<T>& rows, int r, Vectors vectors) {
    const Vec<T> top = splat(top_[r]), tau = splat(tau_[r]), step = splat(step_[r]), zero{};
    T* const y = rows.y + r * rows.d;
    const uint64_t* const above = words_ + r * rows.words;
    uint64_t* const support = rows.support ? rows.support + r * rows.words : nullptr;
    const bool streamed = rows.streamed;
    const int64_t d = rows.d;
    int count = 0;
    for_words<T>(vectors, [&](int64_t i, auto size) __attribute__((always_inline)) {
      uint64_t word = 0;
      const T* const x = x_[r] + i * lanes<T>;
      if (!is_constant<Vectors> && !above[i / vectors_per_word<T>]) {
        for (int c = 0; c < size; ++c) put_vector<T>(y, i + c, d, zero, streamed, vectors);
      } else {
        for (int c = 0; c < size; ++c) {
          const Vec<T> weight = larger(load(x + c * lanes<T>) - top - tau - step, zero);
          word |= static_cast<uint64_t>(bits(greater(weight, zero))) << (c * lanes<T>);
          put_vector<T>(y, i + c, d, weight, streamed, vectors);
        }
      }
      if (support) support[i / vectors_per_word<T>] = word;
      count += __builtin_popcountll(word);
    });
    return count;
  }

  uint64_t* words_;
  T* copies_;
  int64_t copy_stride_;
  const T* x_[lanes<T>];
  T top_[lanes<T>], tau_[lanes<T>], step_[lanes<T>];
  Int<T> counts_[lanes<T>] = {};
  Vec<T> sums_[lanes<T>] = {}, before_;
};

}  // namespace regmax::REGMAX_ISA
