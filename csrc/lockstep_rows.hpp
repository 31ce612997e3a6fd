// sparsemax, and sqpnormmax for p = 1.5, of rows in groups, up to a length for which sums in T are good. Rows
// stay rows: what each of them adds up, vectors of partial sums, is finished for the whole group together.
//
// Both weights are functions of z = (x - tau)_+: z itself, and z^2 / sum z^2. The maxima by lane are scores
// of the row, and their threshold is a first tau (lockstep.hpp). The sums of z (z^2, z^3) over the scores
// above it give the threshold of exactly these scores: of most rows the final one. So their weights are
// written at once, and counted: where the scores with weight are not those that were added up, the row goes
// on.
#pragma once

#include <cstdint>
#include <limits>

#include "lane_mappings.hpp"
#include "lane_pnorm.hpp"
#include "lockstep.hpp"
#include "row_vectors.hpp"
#include "screening.hpp"
#include "transpose.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

constexpr int64_t longest_lockstep_row = 2048;

template <class T, int32_t kernel>
class RowLockstep {
 public:
  // Of longer rows, screening (lockstep.hpp) is quicker for those with few candidates.
  static constexpr int64_t unscreened_row = kernel == REGMAX_SPARSEMAX ? 256 : 128;

  explicit RowLockstep(const Workspace& w)
      : words_(w.words), copies_(static_cast<T*>(w.copies)), copy_stride_(w.copy_stride) {}

  // Maps the rows; returns the bits of those that are left to do: the ones that are not finite, or that
  // rounding keeps from settling.
  uint32_t run(const LaneRows<T>& rows) {
    find_rows(rows);
    const int64_t padded = (rows.d + lanes<T> - 1) / lanes<T> * lanes<T>;
    return with_vectors<T>(padded, [&](auto vectors) { return map(rows, vectors); });
  }

 private:
  static constexpr int powers = kernel == REGMAX_SPARSEMAX ? 1 : 3;
  static constexpr int most_rounds = 16;
  // Additions wait for each other: long rows have several sums, short ones few, which must be added up too.
  static constexpr int sums_of(int64_t) { return unrolled; }
  template <int64_t n>
  static constexpr int sums_of(Constant<n>) {
    return n <= 2 ? 1 : n <= 4 ? 2 : unrolled;
  }

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
    guess_thresholds(vectors);
    before_ = splat(std::numeric_limits<T>::infinity());
    uint32_t pending = 0, left = 0;
    for (int r = 0; r < lanes<T>; ++r) pending |= static_cast<uint32_t>(rows.length[r] != 0) << r;
    for (int round = 0; pending && round < most_rounds; ++round) {
      if (round > 0) store<T>(tau_, load(tau_) + load(step_));
      for_rows_of(pending, [&](int r) __attribute__((always_inline)) { add_up(rows, r, vectors); });
      const Steps steps = find_steps();
      left |= pending & steps.undefined;
      pending &= ~left;
      uint32_t others = 0;
      for_rows_of(pending & ~steps.far, [&](int r) __attribute__((always_inline)) {
        others |= static_cast<uint32_t>(write(rows, r, vectors) != counts_[r]) << r;
      });
      pending &= steps.far | (others & steps.decreasing);
    }
    return left | pending;
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
  void guess_thresholds(Vectors vectors) {
    T maxima[lanes<T> * lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) store<T>(maxima + r * lanes<T>, largest(x_[r], vectors));
    Vec<T> x[lanes<T>];
    rows_to_lanes<T>(maxima, lanes<T>, lanes<T>, x);
    Vec<T> top = x[0];
    for (int k = 1; k < lanes<T>; ++k) top = larger(x[k], top);
    for (int k = 0; k < lanes<T>; ++k) x[k] -= top;
    store<T>(top_, top);
    store<T>(tau_, guess(x, vectors <= 4 ? 2 : 3) - splat(16 * rounding<T>));
  }

  static Vec<T> guess(const Vec<T>* x, int rounds) {
    const Vec<T> lowest = splat(T(-1));
    if (kernel == REGMAX_SPARSEMAX) return lane_threshold<T>(x, lanes<T>, lowest, rounds).tau;
    Vec<T> tau = lowest;
    for (int round = 0; round < 3; ++round) tau += lane_cubic_step<T>(lane_cubic_sums<T>(x, lanes<T>, -tau));
    return tau;
  }

  static REGMAX_INLINE Vec<T> largest(const T* x, int64_t vectors) {
    return lane_maxima(x, vectors * lanes<T>);
  }
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
    constexpr int parts = sums_of(Vectors());
    Vec<T> sums[powers][parts] = {};
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
      for (int c = 0; c < size; ++c) {
        Vec<T>& sum = sums[0][c % parts];
        if constexpr (powers == 1) {
          sum = add_where(above[c], sum, relative[c] - tau);
        } else {
          const Vec<T> z = select(above[c], relative[c] - tau, Vec<T>{}), z2 = z * z;
          sum += z;
          sums[1][c % parts] += z2;
          sums[2][c % parts] = times_plus(z2, z, sums[2][c % parts]);
        }
      }
    });
    for (int k = 0; k < powers; ++k) {
      sums_[k][r] = sums[k][0];
      for (int c = 1; c < parts; ++c) sums_[k][r] += sums[k][c];
    }
    counts_[r] = count;
  }

  // `decreasing` says where fewer scores were added up than in the round before. Rounding may keep a row of
  // sparsemax from settling: then it is not.
  struct Steps {
    uint32_t undefined, far, decreasing;
  };

  // The steps that lead from tau up to the threshold of what is above it. A step is not added to tau but
  // kept: next to tau, it would be rounded. Where it is large next to the weights, they would be rounded:
  // such rows are far, and must come nearer first.
  Steps find_steps() {
    const Vec<T> count = __builtin_convertvector(load_integers<T>(counts_), Vec<T>);
    const Vec<T> s1 = sum_rows<T>(sums_[0]);
    const uint32_t undefined = ~bits(equal(s1, s1)) & all_lanes<T>;
    if constexpr (kernel == REGMAX_SPARSEMAX) {
      store<T>(step_, (s1 - splat(T(1))) / count);
      const uint32_t decreasing = bits(greater(before_, count));
      before_ = count;
      return {undefined, bits(greater(s1, splat(T(3)))), decreasing};
    } else {
      constexpr int newton_steps = sizeof(T) == sizeof(float) ? 3 : 4;
      constexpr T small_step = sizeof(T) == sizeof(float) ? T(1e-4) : T(4e-9);
      const CubicSums<T> sums{s1, sum_rows<T>(sums_[1]), sum_rows<T>(sums_[2])};
      CubicSums<T> moved = sums;
      Vec<T> step{}, last{};
      for (int k = 0; k < newton_steps; ++k) {
        step += last = lane_cubic_step<T>(moved);
        moved = lane_move_sums<T>(sums, count, step);
      }
      store<T>(step_, step);
      store<T>(factor_, splat(T(1)) / moved.s2);
      // Convergence is quadratic: what follows a last step this small is below rounding.
      const Vec<T> largest = -load(tau_) - step;
      const uint32_t near = bits(greater(moved.s2 * splat(T(4)), sums.s2)) &
                            bits(greater(largest * splat(small_step), larger(last, -last)));
      return {undefined, ~near & all_lanes<T>, all_lanes<T>};
    }
  }

  // Returns how many scores have weight.
  template <class Vectors>
  REGMAX_INLINE int write(const LaneRows<T>& rows, int r, Vectors vectors) {
    const Vec<T> top = splat(top_[r]), tau = splat(tau_[r]), step = splat(step_[r]), zero{};
    const Vec<T> factor = splat(factor_[r]);
    T* const y = rows.y + r * rows.d;
    const uint64_t* const above = words_ + r * rows.words;
    uint64_t* const support = rows.support ? rows.support + r * rows.words : nullptr;
    const bool streamed = rows.streamed;
    const int64_t d = rows.d;
    prefetch_row(rows.x[r] + lanes<T> * rows.d, rows.d);
    const bool skips = !is_constant<Vectors> && step_[r] >= 0;
    int count = 0;
    for_words<T>(vectors, [&](int64_t i, auto size) __attribute__((always_inline)) {
      uint64_t word = 0;
      const T* const x = x_[r] + i * lanes<T>;
      const auto put = [&](int c, Vec<T> weight) __attribute__((always_inline)) {
        const int64_t at = (i + c) * lanes<T>;
        put_left<T>(y + at, d - at, weight, streamed);
      };
      if (skips && !above[i / vectors_per_word<T>]) {
        for (int c = 0; c < size; ++c) put(c, zero);
      } else {
        for (int c = 0; c < size; ++c) {
          const Vec<T> z = larger(load(x + c * lanes<T>) - top - tau - step, zero);
          const Vec<T> weight = kernel == REGMAX_SPARSEMAX ? z : z * z * factor;
          word |= static_cast<uint64_t>(bits(greater(z, zero))) << (c * lanes<T>);
          put(c, weight);
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
  T top_[lanes<T>], tau_[lanes<T>], step_[lanes<T>], factor_[lanes<T>] = {};
  Int<T> counts_[lanes<T>] = {};
  Vec<T> sums_[powers][lanes<T>] = {}, before_;
};

}  // namespace regmax::REGMAX_ISA
