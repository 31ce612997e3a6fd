// The whole-row tier of mappings whose weights are powers of the scores (algorithms/powers.hpp). The maxima by lane
// give a first guess of each row's root and thereby a cut. The candidates are compacted, and every round passes over
// those of each row that still moves; the rows' sums are finished, and their steps taken, together. The first rounds
// are rough. The last pass of a row writes its weights over its scores.
#pragma once

#include <cstdint>

#include "mappings/power_lanes.hpp"
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
    integer_exponents(load(rows.theta), load(rows.theta_rest), integers_);
    const Vec<T> start = guess(rows, wanted, powers);
    const uint32_t found = gather(rows, wanted);
    Vec<T> m = start, sum;
    const uint32_t left = (settle(powers, found, &m, &sum) | bits(greater(m, start)) | ~found) & wanted;
    store<T>(sums_, sum);
    for (uint32_t rest = wanted & ~left; rest; rest &= rest - 1) write(rows, __builtin_ctz(rest), out);
    return left;
  }

 private:
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
    const Vec<T> start = guess_roots<T>(x, lanes<T>, powers, integers_, wanted);
    const Vec<T> cut = power_cut<T>(powers, start);
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

  // Moves m to the roots and replaces the scores of the rows that settle by r; returns the rows that do not.
  uint32_t settle(const Powers& powers, uint32_t wanted, Vec<T>* m, Vec<T>* sum) {
    RootSearch<T> search(*m, wanted);
    Vec<T> sums[3][lanes<T>] = {};
    store<T>(exponents_, powers.exponent);
    store<T>(least_, least_share<T>(powers.exponent));
    PowerSums<T> totals{};
    uint32_t open = wanted;  // settled rows take one more pass
    for (int round = 0; open && round < most_power_rounds; ++round) {
      Vec<T> rest;
      store<T>(rates_, search.rate(powers, &rest));
      store<T>(rests_, rest);
      for (uint32_t rows = open; rows; rows &= rows - 1) {
        const int r = __builtin_ctz(rows);
        const bool rough = search.rough >> r & 1, last = !(search.moving >> r & 1);
        if (integers_[r]) {
          add_up(r, sums, rough, last, IntegerTerms<T, RowExponent<T>>{RowExponent<T>(integers_[r]), splat(least_[r])});
        } else {
          add_up(r, sums, rough, last, GeneralTerms<T>{splat(exponents_[r])});
        }
      }
      totals = {sum_rows<T>(sums[0]), sum_rows<T>(sums[1]), sum_rows<T>(sums[2])};
      open = search.moving;
      const uint32_t rough = search.rough;
      if (open & ~rough) search.take_careful(accurate_step(powers, lowered(totals), search.m, search.shift));
      if (rough) search.take_rough(powers.step(totals, search.m));
    }
    *sum = totals.s;
    const Vec<T> step = accurate_step(powers, lowered(totals), search.m, search.shift);
    const uint32_t left = search.finish(powers, totals, step) | open;
    *m = search.m;
    return left;
  }

  template <class Terms>
  REGMAX_INLINE void add_up(int r, Vec<T> (&sums)[3][lanes<T>], bool rough, bool last, const Terms& terms) {
    const Vec<T> rate = splat(rates_[r]), rest = splat(rests_[r]);
    if (rough) {
      add_terms<false>(r, sums, [&](Vec<T> x) { return terms.rough(x, rate); });
    } else if (last) {
      add_terms<true>(r, sums, [&](Vec<T> x) { return terms.careful(x, rate, rest); });
    } else {
      add_terms<false>(r, sums, [&](Vec<T> x) { return terms.careful(x, rate, rest); });
    }
  }

  template <bool last, class Terms>
  REGMAX_INLINE void add_terms(int r, Vec<T> (&sums)[3][lanes<T>], const Terms& terms_of) {
    T* const x = scores(r);
    LaneSum<T> totals[3];
    for (int64_t begin = 0; begin < counts_[r]; begin += stretch) {
      const int64_t end = counts_[r] - begin < stretch ? counts_[r] : begin + stretch;
      Vec<T> s{}, c{}, rw{};
      for (int64_t i = begin; i < end; i += lanes<T>) {
        const PowerTerms<T> terms = terms_of(load(x + i));
        if (last) store<T>(x + i, terms.r);
        s += terms.r;
        c += terms.power;
        rw += terms.rw;
      }
      totals[0].add(s);
      totals[1].add(c);
      totals[2].add(rw);
    }
    for (int k = 0; k < 3; ++k) sums[k][r] = totals[k].total;
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
  int integers_[lanes<T>];  // 1/a - 1 of the rows for which it is an integer, else 0
  T top_[lanes<T>], cut_[lanes<T>], sums_[lanes<T>];
  T rates_[lanes<T>], rests_[lanes<T>], exponents_[lanes<T>], least_[lanes<T>];
};

}  // namespace regmax::REGMAX_ISA
