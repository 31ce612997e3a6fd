// The whole-row tier by moments (sparsemax, sqpnormmax, entmax at alpha = 1.5): weights are functions of z = (x -
// tau)_+. A first tau comes from the maxima by lane. The sums of powers of z over the scores above it give the
// threshold of exactly these scores, which for most rows is the final one: so their weights are written at once, and
// counted. If the scores with weight are not those that were added up, the row takes another round. The sums of a
// group's rows, a vector of partial sums each, are finished together.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "mappings/tiers.hpp"
#include "rows/group.hpp"
#include "rows/moment_weights.hpp"
#include "simd/row_vectors.hpp"
#include "simd/transpose.hpp"

namespace regmax::REGMAX_ISA {

template <class T, class Mapping>
class MomentRows {
  template <class Number>
  using Moments = typename Mapping::template Moments<Number>;

 public:
  explicit MomentRows(const Workspace& w)
      : words_(w.words), copies_(static_cast<T*>(w.copies)), copy_stride_(w.copy_stride) {}

  // Maps the `wanted` rows; returns the bits of those that are left: rows that are not finite, or that
  // rounding keeps from settling.
  template <class Out>
  uint32_t run(const RowGroup<T>& rows, uint32_t wanted, Out& out) {
    row_words_ = words_of(rows.d);
    int64_t padded = (rows.d + lanes<T> - 1) / lanes<T> * lanes<T>;
    // Short rows are padded further, to a length for which the loops are unrolled.
    while (Out::unrolls_short_rows && padded < 8 * lanes<T> && (padded & (padded - 1))) padded += lanes<T>;
    find_rows(rows, wanted, padded);
    if constexpr (!Out::unrolls_short_rows) return map(rows, wanted, padded / lanes<T>, out);
    return with_vectors<T>(padded, [&](auto vectors) { return map(rows, wanted, vectors, out); });
  }

 private:
  static constexpr int powers = Moments<T>::powers, most_rounds = 16, accurate_row = 128;
  static constexpr bool has_squares = powers > 1;
  // In words of 64 scores. A relative error of the sums of powers is one of all weights.
  static constexpr int stretch = sizeof(T) == sizeof(double) ? 1 : powers > 1 ? 2 : 4;
  // Short rows have few partial sums: these must be added up in the end.
  static constexpr int parts_of(int64_t) { return unrolled; }
  template <int64_t n>
  static constexpr int parts_of(Constant<n>) {
    return n <= 2 ? 1 : n <= 4 ? 2 : unrolled;
  }

  // Rows that do not end with a vector are copied, and padded with -inf.
  void find_rows(const RowGroup<T>& rows, uint32_t wanted, int64_t padded) {
    const int first = __builtin_ctz(wanted);
    for (int n = 0; n < lanes<T>; ++n) {
      const int r = (first + n) % lanes<T>;
      if (!(wanted >> r & 1)) {
        x_[r] = x_[first];  // any row that may be read
      } else {
        x_[r] =
            rows.length[r] == padded ? rows.x[r] : pad(rows.x[r], rows.length[r], padded, copies_ + r * copy_stride_);
      }
    }
  }

  static const T* pad(const T* x, int64_t length, int64_t d, T* copy) {
    constexpr T lowest = -std::numeric_limits<T>::infinity();
    for (int64_t i = 0; i < d; i += lanes<T>)
      store<T>(copy + i, i < length ? load_left(x + i, length - i, lowest) : splat(lowest));
    return copy;
  }

  template <class Vectors, class Out>
  uint32_t map(const RowGroup<T>& rows, uint32_t wanted, Vectors vectors, Out& out) {
    guess_thresholds(rows, wanted, vectors);
    if (rows.scaled) divide(rows, wanted, vectors);
    Vec<T> before = splat(std::numeric_limits<T>::infinity());
    uint32_t pending = wanted, left = 0;
    for (int round = 0; pending && round < most_rounds; ++round) {
      if (round > 0) store<T>(tau_, load(tau_) + load(step_));
      for_rows_of(pending, [&](int r) __attribute__((always_inline)) { add_up(r, vectors); });
      const Vec<T> count = __builtin_convertvector(load_integers<T>(counts_), Vec<T>);
      const Steps steps = find_steps(count, vectors * lanes<T> > accurate_row);
      const uint32_t decreasing = Moments<T>::count_decreases ? bits(greater(before, count)) : all_lanes<T>;
      before = count;
      left |= pending & steps.undefined;
      pending &= ~left;
      uint32_t others = 0;
      for_rows_of(pending & ~steps.far, [&](int r) __attribute__((always_inline)) {
        const Written written = write(r, vectors, out);
        others |= static_cast<uint32_t>(written == Written::others) << r;
        left |= static_cast<uint32_t>(written == Written::doubtful) << r;
      });
      left |= pending & others & ~decreasing;
      pending &= steps.far | (others & decreasing);
    }
    return left | pending;
  }

  // The first round is usually of all rows.
  template <class Visit>
  static REGMAX_INLINE void for_rows_of(uint32_t chosen, const Visit& visit) {
    if (chosen == all_lanes<T>) {
      for (int r = 0; r < lanes<T>; ++r) visit(r);
    } else {
      for (; chosen; chosen &= chosen - 1) visit(__builtin_ctz(chosen));
    }
  }

  template <class Vectors>
  void guess_thresholds(const RowGroup<T>& rows, uint32_t wanted, Vectors vectors) {
    T maxima[lanes<T> * lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) {
      const Vec<T> row = wanted >> r & 1 ? lane_maxima(x_[r], vectors * lanes<T>) : Vec<T>{};
      store<T>(maxima + r * lanes<T>, row);
    }
    Vec<T> x[lanes<T>];
    store<T>(top_, relative_maxima(rows, maxima, x));
    store<T>(tau_, Moments<T>::guess(x, vectors <= 4) - splat(16 * rounding<T>));
  }

  // Copies the rows divided by gamma, relative to their maxima.
  template <class Vectors>
  void divide(const RowGroup<T>& rows, uint32_t wanted, Vectors vectors) {
    for_rows_of(wanted, [&](int r) __attribute__((always_inline)) {
      T* const copy = copies_ + r * copy_stride_;
      const Vec<T> top = splat(top_[r]), scale = splat(rows.scale[r]);
      for (int64_t i = 0; i < vectors; ++i) store<T>(copy + i * lanes<T>, (load(x_[r] + i * lanes<T>) - top) * scale);
      x_[r] = copy;
      top_[r] = 0;
    });
  }

  // The sums, by lane, over a row's scores above tau, and their number; their bits go to words_. NaN is
  // above, and spoils the sums.
  template <class Vectors>
  REGMAX_INLINE void add_up(int r, Vectors vectors) {
    const Vec<T> top = splat(top_[r]), tau = splat(tau_[r]);
    constexpr int parts = parts_of(Vectors());
    Vec<T> sums[parts][powers] = {};
    LaneSum<T> totals[powers];
    uint64_t* const words = words_ + r * row_words_;
    int count = 0;
    const auto fold = [&]() __attribute__((always_inline)) {
      for (int k = 0; k < powers; ++k) {
        Vec<T> sum = sums[0][k];
        for (int c = 1; c < parts; ++c) sum += sums[c][k];
        totals[k].add(sum);
      }
    };
    for_words<T>(vectors, [&](int64_t i, auto size) __attribute__((always_inline)) {
      // Not initialised: zeroing them took 15 % of the core's samples in attention on 32 keys (AVX2).
      Vec<T> relative[vectors_per_word<T>];
      Where<T> above[vectors_per_word<T>];
      uint64_t word = 0;
      for (int c = 0; c < size; ++c) {
        relative[c] = load(x_[r] + (i + c) * lanes<T>) - top;
        above[c] = not_at_most(relative[c], tau);
        word |= static_cast<uint64_t>(bits(above[c])) << (c * lanes<T>);
      }
      words[i / vectors_per_word<T>] = word;
      count += __builtin_popcountll(word);
      if (!is_constant<Vectors> && !word) return;
      for (int c = 0; c < size; ++c) Moments<T>::add(above[c], relative[c] - tau, sums[c % parts]);
      // Partial sums over short stretches: their rounding does not grow with the row.
      if (!is_constant<Vectors> && i / vectors_per_word<T> % stretch == stretch - 1) {
        fold();
        std::memset(sums, 0, sizeof sums);
      }
    });
    fold();
    for (int k = 0; k < powers; ++k) sums_[k][r] = totals[k].total;
    counts_[r] = count;
  }

  // Rows of sqpnormmax with many small weights beside large ones: S_1 / S_2 times the largest z exceeds the first
  // number, or the second if a weight is large. It is at most 2.2 in rows of 16 to 2,048 scores N(0, 1), and exceeds
  // the first in one of 1,000 flat rows of 2,048 (0.03 N(0, 1)). In float32 the weights of such rows were off by up to
  // 25 units in the last place, and by 5 if a weight is large.
  static constexpr T many_small_weights = 4, some_small_weights = T(2.5), large_weight = T(0.25);

  struct Steps {
    uint32_t undefined, far;  // rows that are left; rows that must come nearer before they are written
  };

  // The steps from tau to the threshold of the scores above it. A step is kept apart from tau, where it would
  // be rounded.
  Steps find_steps(Vec<T> count, bool is_long) {
    Vec<T> sums[powers], step{}, factor{};
    for (int k = 0; k < powers; ++k) sums[k] = sum_rows<T>(sums_[k]);
    uint32_t undefined = ~bits(equal(sums[0], sums[0])) & all_lanes<T>;
    uint32_t far = 0;
    const Vec<T> tau = load(tau_);
    Vec<T> rest{};
    if (sizeof(T) == sizeof(double) || !is_long)
      far = Moments<T>::template find_step<T>(sums, count, tau, &step, &factor);
    if constexpr (sizeof(T) == sizeof(float)) {
      const uint32_t wide = is_long ? all_lanes<T> : powers > 2 ? bits(greater(count, splat(T(few_cubes)))) : 0;
      if (wide)
        far = (far & ~wide) | (wide & find_step_in_double(count, tau, from_bits<T>(wide), &step, &rest, &factor));
    }
    // The threshold in two numbers: a score as large as the first loses nothing when it is subtracted.
    const Vec<T> moved = tau + step, part = moved - tau;
    rest += (tau - (moved - part)) + (step - part);
    if constexpr (has_squares) {
      const Vec<T> ratio = times_plus(-count, step, sums[0]) * factor;
      // The sum of squares loses digits if it is moved far: if it was a multiple of what it becomes.
      const Vec<T> largest = moved * moved * factor;
      const Where<T> precise =
          greater(splat(Moments<T>::small_weight), largest) | greater(sums[1] * factor, splat(Moments<T>::largest_sum));
      precise_ = bits(precise);
      if (precise_) store<T>(slope_, ratio + ratio);
      if constexpr (sizeof(T) == sizeof(float) && powers > 2) {
        const Vec<T> most =
            select(greater(largest, splat(large_weight)), splat(some_small_weights), splat(many_small_weights));
        undefined |= bits(greater(-moved * ratio, most)) & ~far;
      }
    }
    store<T>(threshold_, moved);
    store<T>(rest_, rest);
    store<T>(step_, step);
    store<T>(factor_, factor);
    return {undefined, far};
  }

  // The sums of long rows lose too many digits in float32 when they are moved to the new threshold, and so do sums of
  // cubes of more numbers than this: of 3,000,000 rows of 2 to 64 scores of sqpnormmax 113 were off by up to 6.8 units
  // in the last place of the largest weight.
  static constexpr int few_cubes = 12;

  // The steps of the `wanted` rows. `rest` is what rounding the step takes from it.
  uint32_t find_step_in_double(Vec<T> count, Vec<T> tau, Where<T> wanted, Vec<T>* step, Vec<T>* rest,
                               Vec<T>* factor) const {
    Vec<double> wide[powers][2], counts[2], taus[2], steps[2], factors[2] = {};
    for (int k = 0; k < powers; ++k) sum_rows_in_double(sums_[k], wide[k]);
    widen(count, counts);
    widen(tau, taus);
    uint32_t far = 0;
    for (int h = 0; h < 2; ++h) {
      Vec<double> half[powers];
      for (int k = 0; k < powers; ++k) half[k] = wide[k][h];
      far |= Moments<double>::template find_step<T>(half, counts[h], taus[h], steps + h, factors + h)
             << (h * lanes<double>);
    }
    const Vec<T> nearest = narrow(steps);
    Vec<double> rounded[2];
    widen(nearest, rounded);
    for (int h = 0; h < 2; ++h) steps[h] -= rounded[h];
    *step = select(wanted, nearest, *step);
    *rest = select(wanted, narrow(steps), *rest);
    *factor = select(wanted, narrow(factors), *factor);
    return far;
  }

  // Whether the scores with weight are those that were added up, and which side of the threshold a score is on
  // is certain.
  enum class Written { finally, others, doubtful };

  template <class Vectors, class Out>
  REGMAX_INLINE Written write(int r, Vectors vectors, Out& out) {
    if constexpr (!Out::unrolls_short_rows) {  // if writing is expensive, rows that are not final are not written
      NoRow<T> none;
      const Written found = settle(r, vectors, none);
      if (found != Written::finally) return found;
    }
    auto row = out.begin_whole(r);
    const Written written = Out::unrolls_short_rows ? settle(r, vectors, row) : put(r, vectors, row);
    out.end_whole(r);
    return written;
  }

  template <class Vectors, class Row>
  REGMAX_INLINE Written put(int r, Vectors vectors, Row& row) {
    if constexpr (has_squares) {
      SquareWeights<T> weights{splat(threshold_[r]), splat(rest_[r]), splat(factor_[r])};
      return put_weights(r, vectors, row, weights);
    } else {
      LinearWeights<T> weights{splat(threshold_[r]), splat(rest_[r])};
      return put_weights(r, vectors, row, weights);
    }
  }

  // Puts a row's weights. If the row is a precise one and their sum is not one, moves the threshold and puts them
  // again.
  template <class Vectors, class Row>
  REGMAX_INLINE Written settle(int r, Vectors vectors, Row& row) {
    if constexpr (has_squares) {
      if (precise_ >> r & 1) return settle_precise(r, vectors, row);
    }
    return put(r, vectors, row);
  }

  template <class Vectors, class Row>
  Written settle_precise(int r, Vectors vectors, Row& row) {
    T excess;
    const Written written = put_summed(r, vectors, row, &excess);
    if (written != Written::finally || !(std::fabs(excess) > 2 * rounding<T>)) return written;
    rest_[r] += excess / slope_[r];
    return put_summed(r, vectors, row, &excess);
  }

  // `excess` is what the sum of the weights exceeds one by.
  template <class Vectors, class Row>
  __attribute__((noinline)) Written put_summed(int r, Vectors vectors, Row& row, T* excess) {
    SummedSquares<T> weights{{splat(threshold_[r]), splat(rest_[r]), splat(factor_[r])}};
    const Written written = put_weights(r, vectors, row, weights);
    *excess = excess_of_one(weights.total);
    return written;
  }

  template <class Vectors, class Row, class Weights>
  REGMAX_INLINE Written put_weights(int r, Vectors vectors, Row& row, Weights& weights_of) {
    const Vec<T> top = splat(top_[r]), margin = splat(-32 * rounding<T> * threshold_[r]);
    Vec<T> nearest = splat(std::numeric_limits<T>::infinity());
    const uint64_t* const above = words_ + r * row_words_;
    const bool skips = !is_constant<Vectors> && step_[r] >= 0;
    int count = 0;
    for_words<T>(vectors, [&](int64_t i, auto size) __attribute__((always_inline)) {
      uint64_t word = 0;
      const T* const x = x_[r] + i * lanes<T>;
      if (skips && !above[i / vectors_per_word<T>]) {
        row.put_zeros(i, size);
      } else {
        for (int c = 0; c < size; ++c) {
          Vec<T> z;
          const Vec<T> weights = weights_of(load(x + c * lanes<T>) - top, c, &z);
          const uint32_t positive = bits(greater(z, Vec<T>{}));
          nearest = smaller(absolute<T>(z), nearest);
          word |= static_cast<uint64_t>(positive) << (c * lanes<T>);
          row.put(i + c, weights, positive);
        }
        weights_of.end_word();
      }
      row.put_word(i / vectors_per_word<T>, word);
      count += __builtin_popcountll(word);
    });
    if (count != counts_[r]) return Written::others;
    return doubtful<T>(nearest, margin) ? Written::doubtful : Written::finally;
  }

  uint64_t* words_;
  T* copies_;
  int64_t copy_stride_, row_words_ = 0;
  const T* x_[lanes<T>];
  T top_[lanes<T>], tau_[lanes<T>], step_[lanes<T>], factor_[lanes<T>];
  T threshold_[lanes<T>], rest_[lanes<T>];  // tau + step
  uint32_t precise_ = 0;                    // the rows with precise squares (algorithms/precise_squares.hpp)
  T slope_[lanes<T>];                       // how much the sum of their weights falls per unit of the threshold
  Int<T> counts_[lanes<T>] = {};
  Vec<T> sums_[powers][lanes<T>] = {};
};

}  // namespace regmax::REGMAX_ISA
