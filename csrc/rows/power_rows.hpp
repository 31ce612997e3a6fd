// The whole-row tier of mappings whose weights are powers of the scores (algorithms/powers.hpp). The maxima by lane
// give a first guess of each row's root and thereby a cut. The candidates are compacted, and every round passes over
// those of each row that still moves; the rows' sums are finished, and their steps taken, together. The first rounds
// are rough. The last pass of a row writes its weights over its scores.
#pragma once

#include <cstdint>

#include "algorithms/powers.hpp"
#include "mappings/tiers.hpp"
#include "rows/group.hpp"
#include "simd/candidates.hpp"
#include "simd/row_vectors.hpp"
#include "simd/transpose.hpp"

namespace regmax::REGMAX_ISA {

template <class T, class Powers>
class PowerRows {
 public:
  explicit PowerRows(const Workspace& w)
      : words_(w.words), copies_(static_cast<T*>(w.copies)), copy_stride_(w.copy_stride) {}

  // Maps the `wanted` rows; returns the bits of those that are left: rows that are not finite, did not settle, or whose
  // cut was too high.
  template <class Out>
  uint32_t run(const RowGroup<T>& rows, uint32_t wanted, Out& out) {
    const Powers powers(load(rows.theta) - splat(T(1)) + load(rows.theta_rest));
    const Vec<T> start = guess(rows, wanted, powers);
    const uint32_t found = gather(rows, wanted);
    Vec<T> m = start, sum = splat(T(1));
    const uint32_t left = (settle(powers, found, &m, &sum) | bits(greater(m, start)) | ~found) & wanted;
    store<T>(sums_, sum * splat(careful_scale<T>));
    for (uint32_t rest = wanted & ~left; rest; rest &= rest - 1) write(rows, __builtin_ctz(rest), out);
    return left;
  }

 private:
  static constexpr int most_rounds = 12;
  // After a step below `last_step` the error, which is about its square, is below rounding; after one below
  // `rough_step` rough terms no longer serve.
  static constexpr T last_step = sizeof(T) == sizeof(float) ? T(2.5e-4) : T(4e-9), rough_step = T(0.02);

  T* scores(int r) { return copies_ + r * copy_stride_; }

  // An upper bound of m, usually, and the cut that follows from it.
  Vec<T> guess(const RowGroup<T>& rows, uint32_t wanted, const Powers& powers) {
    T maxima[lanes<T> * lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) {
      const Vec<T> row = !(wanted >> r & 1) ? Vec<T>{}
                         : rows.maxima      ? load(rows.maxima + r * lanes<T>)
                                            : lane_maxima(rows.x[r], rows.length[r]);
      store<T>(maxima + r * lanes<T>, row);
    }
    Vec<T> x[lanes<T>];
    rows_to_lanes<T>(maxima, lanes<T>, lanes<T>, x);
    Vec<T> top = x[0];
    for (int k = 1; k < lanes<T>; ++k) top = larger(x[k], top);
    for (int k = 0; k < lanes<T>; ++k) x[k] -= top;
    for (int k = 0; rows.scaled && k < lanes<T>; ++k) x[k] *= load(rows.scale);
    store<T>(top_, top);
    const Vec<T> start = smaller(guess_root<T>(x, lanes<T>, powers) * splat(T(1.002)), splat(T(1)));
    const Vec<T> cut = splat(T(-1 - 32 * rounding<T>)) * start / powers.c();
    store<T>(cut_, rows.scaled ? cut * load(rows.gamma) * splat(1 + 8 * rounding<T>) : cut);
    return start;
  }

  // The candidates of every row, padded to whole vectors; returns the bits of the rows that have them.
  uint32_t gather(const RowGroup<T>& rows, uint32_t wanted) {
    const int64_t row_words = words_of(rows.d);
    uint32_t gathered = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      counts_[r] = 0;
      const int64_t length = wanted >> r & 1 ? rows.length[r] : 0;
      uint64_t* const words = words_ + r * row_words;
      for (int64_t i = words_of(length); i < row_words; ++i) words[i] = 0;
      if (!length) continue;
      T* const x = scores(r);
      const int64_t count = find_row_candidates(rows, r, top_[r], Cut<T>(cut_[r]), length, x, words);
      if (count > length) continue;
      for (int64_t i = 0; rows.scaled && i < count; i += lanes<T>) store<T>(x + i, load(x + i) * splat(rows.scale[r]));
      store<T>(x + count, splat(nothing<T>));
      counts_[r] = count;
      gathered |= 1u << r;
    }
    return gathered;
  }

  // Moves m to the roots and replaces the scores of the rows that settle by r, scaled; returns the rows that do not,
  // and those in which rounding or the last step counts. The last step is kept apart from m, where it would be rounded.
  uint32_t settle(const Powers& powers, uint32_t wanted, Vec<T>* m, Vec<T>* sum) {
    uint32_t moving = wanted, rough = wanted;  // settled rows take one more pass
    Vec<T> sums[3][lanes<T>] = {};
    T rates[lanes<T>], rests[lanes<T>], exponents[lanes<T>], vanishing[lanes<T>], doubts[lanes<T>], steep[lanes<T>];
    store<T>(exponents, powers.exponent);
    store<T>(doubts, powers.vanishing_doubt());
    store<T>(steep, powers.steep_w());
    Vec<T> shift{};
    uint32_t open = wanted, unsure = 0;
    PowerSums<T> totals{};
    for (int round = 0; open && round < most_rounds; ++round) {
      const Vec<T> rate = powers.c() / *m;
      store<T>(rates, rate);
      store<T>(rests, times_plus(rate, shift, quotient_rest<T>(powers.c(), *m, rate)));
      store<T>(vanishing, log2_of<T>(*sum) + splat(FloatBits<T>::least));
      for (uint32_t rest = open; rest; rest &= rest - 1) {
        const int r = __builtin_ctz(rest);
        const Vec<T> row_rate = splat(rates[r]), rest_of_rate = splat(rests[r]), exponent = splat(exponents[r]);
        const auto careful = [&](Vec<T> x) { return careful_power_terms<T>(x, row_rate, rest_of_rate, exponent); };
        if (!(moving >> r & 1)) {
          SmallWeights<T> small{exponent, splat(vanishing[r])};
          add_up(r, sums, 1 / careful_scale<T>, careful, [&](T* x, const CarefulTerms<T>& terms) {
            store<T>(x, terms.r);
            small.add(terms);
          });
          unsure |= static_cast<uint32_t>(small.are_unsure(doubts[r], steep[r])) << r;
        } else if (rough >> r & 1) {
          add_up(r, sums, T(1), [&](Vec<T> x) { return rough_power_terms<T>(x, row_rate, exponent); });
        } else {
          add_up(r, sums, 1 / careful_scale<T>, careful);
        }
      }
      totals = {sum_rows<T>(sums[0]), sum_rows<T>(sums[1]), sum_rows<T>(sums[2])};
      *sum = totals.s;
      open = moving;
      if (!open) break;
      // Each row's step depends on that row only.
      Vec<T> step = powers.step(totals, *m);
      if (open & ~rough) step = select(from_bits<T>(rough), step, accurate_step(powers, totals, *m, shift));
      const Vec<T> size = absolute<T>(step);
      // Only a step from accurate sums is the last; NaN is never small.
      const uint32_t small = bits(greater(splat(last_step), size)), near = bits(greater(splat(rough_step), size));
      const Vec<T> change = step * splat(T(ln_2));
      shift = select(from_bits<T>(moving & ~rough & small), times_plus(change * T(0.5), change, change), shift);
      moving &= rough | ~small;
      *m = select(from_bits<T>(moving), stepped<T>(*m, step), *m);
      rough &= ~near;
    }
    // Where a weight is about to vanish the step after a small one may be no smaller. Rows that never settle, such as
    // rows with NaN, do not keep the others from this check: the sums of a settled row are those of its last pass.
    const Vec<T> sensitivity = powers.sensitivity(totals);
    const Vec<T> error = absolute<T>(accurate_step(powers, totals, *m, shift)) * larger(sensitivity, splat(T(1)));
    *m -= *m * shift;
    return open | unsure | bits(greater(sensitivity, splat(T(8)))) | bits(greater(error, splat(T(4e-7))));
  }

  struct Ignore {
    template <class Terms>
    void operator()(T*, const Terms&) const {}
  };

  // The sums of a row's terms, times `unit`; calls visit(x, terms) for every vector x.
  template <class Terms, class Visit = Ignore>
  REGMAX_INLINE void add_up(int r, Vec<T> (&sums)[3][lanes<T>], T unit, const Terms& terms_of,
                            const Visit& visit = {}) {
    T* const x = scores(r);
    LaneSum<T> totals[3];
    for (int64_t begin = 0; begin < counts_[r]; begin += stretch) {
      const int64_t end = counts_[r] - begin < stretch ? counts_[r] : begin + stretch;
      Vec<T> s{}, c{}, rw{};
      for (int64_t i = begin; i < end; i += lanes<T>) {
        const auto terms = terms_of(load(x + i));
        visit(x + i, terms);
        s += terms.r;
        c += terms.power;
        rw += terms.rw;
      }
      totals[0].add(s);
      totals[1].add(c);
      totals[2].add(rw);
    }
    for (int k = 0; k < 3; ++k) sums[k][r] = totals[k].total * splat(unit);
  }

  template <class Out>
  void write(const RowGroup<T>& rows, int r, Out& out) {
    const Vec<T> sum = splat(sums_[r]);
    const T* values = scores(r);
    const uint64_t* const words = words_ + r * words_of(rows.d);
    auto row = out.begin_whole(r);
    const int64_t vectors = (rows.d + lanes<T> - 1) / lanes<T>;
    for_words<T>(vectors, [&](int64_t i, auto size) __attribute__((always_inline)) {
      const uint64_t word = words[i / vectors_per_word<T>];
      uint64_t support = 0;
      if (!word) {
        row.put_zeros(i, size);
      } else {
        for (int c = 0; c < size; ++c) {
          const uint32_t chosen = lanes_of<T>(word, c * lanes<T>);
          const Vec<T> weights = expand(chosen, load(values)) / sum;
          values += __builtin_popcount(chosen);
          const uint32_t positive = bits(greater(weights, Vec<T>{}));
          support |= static_cast<uint64_t>(positive) << (c * lanes<T>);
          row.put(i + c, weights, positive);
        }
      }
      row.put_word(i / vectors_per_word<T>, support);
    });
    out.end_whole(r);
  }

  static constexpr int64_t stretch = 8 * lanes<T>;  // partial sums: their rounding does not grow with the row

  uint64_t* words_;
  T* copies_;
  int64_t copy_stride_;
  int64_t counts_[lanes<T>];
  T top_[lanes<T>], cut_[lanes<T>], sums_[lanes<T>];
};

}  // namespace regmax::REGMAX_ISA
