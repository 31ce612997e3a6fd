// The whole-row tier of mappings whose weights are powers of the scores (algorithms/powers.hpp). The maxima by lane
// give a first guess of each row's root and thereby a cut. The candidates are compacted, and every round passes over
// those of each row that still moves; the rows' sums are finished, and their steps taken, together. The first rounds
// are rough. The last pass of a row writes its weights over its scores. Rows with few candidates are solved one per
// lane.
#pragma once

#include <cstdint>

#include "algorithms/lane_powers.hpp"
#include "algorithms/steep_powers.hpp"
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
    const Powers powers(load(rows.theta) - splat(T(1)), load(rows.theta_rest));
    integer_exponents(load(rows.theta), load(rows.theta_rest), integers_);
    const Vec<T> start = guess(rows, wanted, powers);
    const uint32_t found = gather(rows, wanted), few = few_candidates(found);
    Vec<T> m = smaller(even_roots(powers, found), start), sum = splat(T(1));
    UnsureRows unsure{~found, 0};
    if (found & ~few) unsure |= settle(powers, found & ~few, &m, &sum);
    if (few) unsure |= settle_few(powers, few, &m, &sum);
    uint32_t left = (unsure.left | bits(greater(m, start))) & wanted;
    store<T>(sums_, sum * splat(careful_scale<T>));
    left |= settle_steep(rows, unsure.doubtful & wanted & ~left, m);
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
    store<T>(top_, relative_maxima(rows, maxima, x));
    const Vec<T> start = guess_roots<T>(x, lanes<T>, powers, integers_, wanted);
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
      values_[r] = x;
      gathered |= 1u << r;
    }
    return gathered;
  }

  // A guess of m from the number of candidates and their mean, which is close for flat rows.
  Vec<T> even_roots(const Powers& powers, uint32_t found) {
    T counts[lanes<T>];
    Vec<T> sums[lanes<T>] = {};
    for (int r = 0; r < lanes<T>; ++r) {
      const int64_t count = found >> r & 1 ? counts_[r] : 0;
      for (int64_t i = 0; i < count; i += lanes<T>) sums[r] += load_left(scores(r) + i, count - i, T(0));
      counts[r] = static_cast<T>(count > 0 ? count : 1);
    }
    return powers.even_root(load(counts), sum_rows<T>(sums) / load(counts));
  }

  // Which rows are solved in lanes depends on each row only.
  uint32_t few_candidates(uint32_t found) const {
    uint32_t few = 0;
    for (int r = 0; r < lanes<T>; ++r) few |= static_cast<uint32_t>(counts_[r] <= few_powers) << r;
    return few & found;
  }

  // Solves the rows with doubtful weights again from their root m if steep powers may be the reason; returns the
  // others.
  uint32_t settle_steep(const RowGroup<T>& rows, uint32_t wanted, Vec<T> m) {
    if (rows.scaled || rows.bounded) return wanted;
    uint32_t left = 0;
    for (uint32_t rest = wanted; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      const double a = (static_cast<double>(rows.theta[r]) - 1) + static_cast<double>(rows.theta_rest[r]);
      T* const x = scores(r);
      values_[r] = x;
      bool solved = a > least_steep;
      if (solved) {
        compact_row(rows.x[r], words_ + r * words_of(rows.d), rows.length[r], x);
        solved = steep_terms<Powers>(x, counts_[r], top_[r], a, m[r], sums_ + r);
      }
      left |= static_cast<uint32_t>(!solved) << r;
    }
    return left;
  }

  // Moves m to the roots of rows with few candidates and finds their r, scaled; returns the rows that are left.
  UnsureRows settle_few(const Powers& powers, uint32_t wanted, Vec<T>* m, Vec<T>* sum) {
    int most = 1;
    for (int r = 0; r < lanes<T>; ++r) {
      T* const x = few_ + r * few_stride;
      const int count = wanted >> r & 1 ? static_cast<int>(counts_[r]) : 0;
      for (int k = 0; k < few_powers; k += lanes<T>)
        store<T>(x + k, k < count ? load(scores(r) + k) : splat(nothing<T>));
      if (count > most) most = count;
    }
    Vec<T> x[few_powers], y[few_powers];
    rows_to_lanes<T>(few_, few_stride, most, x);
    const UnsureRows unsure = lane_powers(x, most, powers, integers_, wanted, m, sum, y);
    lanes_to_rows<T>(y, most, few_, few_stride);
    for (uint32_t rest = wanted; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      values_[r] = few_ + r * few_stride;
    }
    return unsure;
  }

  // Moves m to the roots and replaces the scores of the rows that settle by r, scaled.
  UnsureRows settle(const Powers& powers, uint32_t wanted, Vec<T>* m, Vec<T>* sum) {
    RootSearch<Powers> search(powers, *m, wanted);
    double sums[3][lanes<T>] = {};
    store<T>(exponents_, powers.exponent);
    store<T>(exponent_rests_, powers.exponent_rest);
    store<T>(least_rough_, least_share<T>(powers.exponent, rough_digits));
    store<T>(least_, least_share<T>(powers.exponent, careful_digits));
    uint32_t open = wanted, doubtful = 0;  // settled rows take one more pass
    WideSums totals{};
    for (int round = 0; open && round < most_power_rounds; ++round) {
      const Pass pass(search);
      for (uint32_t rest = open; rest; rest &= rest - 1) {
        const int r = __builtin_ctz(rest);
        if (integers_[r]) {
          const RowExponent<T> exponent(integers_[r]);
          doubtful |= add_up(r, pass,
                             IntegerTerms<T, RowExponent<T>>{exponent, splat(least_rough_[r]), splat(least_[r])}, sums);
        } else {
          doubtful |= add_up(r, pass, GeneralTerms<T>{splat(exponents_[r]), splat(exponent_rests_[r])}, sums);
        }
      }
      for (int h = 0; h < 2; ++h) {
        const int first = h * lanes<double>;
        totals.half[h] = {load(sums[0] + first), load(sums[1] + first), load(sums[2] + first)};
      }
      open = search.moving;
      if (open) search.take(totals);
    }
    // Rows that never settle, such as rows with NaN, do not keep the others from this check: the sums of a settled row
    // are those of its last pass.
    const uint32_t left = open | search.finish(totals);
    const Where<T> own = from_bits<T>(wanted);
    *m = select(own, search.m, *m);
    *sum = select(own, totals.narrowed().s, *sum);
    return {left & wanted, doubtful & wanted};
  }

  // The numbers of each row that a pass over it needs.
  struct Pass {
    uint32_t moving, rough;
    T rates[lanes<T>], rests[lanes<T>], w[lanes<T>], low_r[lanes<T>], high_r[lanes<T>];

    explicit Pass(const RootSearch<Powers>& search) : moving(search.moving), rough(search.rough) {
      const CarefulRate<T> rate = search.rate();
      const DoubtfulBounds<T> bounds = search.doubtful();
      store<T>(rates, rate.first);
      store<T>(rests, rate.rest);
      store<T>(w, bounds.w);
      store<T>(low_r, bounds.low_r);
      store<T>(high_r, bounds.high_r);
    }
  };

  // One pass over a row; the last one replaces its scores. Returns the row's bit if one of its weights is doubtful.
  template <class Terms>
  REGMAX_INLINE uint32_t add_up(int r, const Pass& pass, const Terms& terms, double (&sums)[3][lanes<T>]) {
    const CarefulRate<T> rate{splat(pass.rates[r]), splat(pass.rests[r])};
    const auto careful = [&](Vec<T> x) { return terms.careful(x, rate); };
    if (pass.rough >> r & 1) {
      add_terms<8>(r, sums, 1.0, [&](Vec<T> x) { return terms.rough(x, rate.first); });
    } else if (pass.moving >> r & 1) {
      add_terms<2>(r, sums, 1 / careful_scale<double>, careful);
    } else {
      DoubtfulWeights<T> doubtful{{splat(pass.w[r]), splat(pass.low_r[r]), splat(pass.high_r[r])}};
      add_terms<2>(r, sums, 1 / careful_scale<double>, careful, [&](T* x, const CarefulTerms<T>& added) {
        store<T>(x, added.r);
        doubtful.add(added);
      });
      return static_cast<uint32_t>(bits(doubtful.found) != 0) << r;
    }
    return 0;
  }

  struct Ignore {
    template <class Terms>
    void operator()(T*, const Terms&) const {}
  };

  // The sums of a row's terms, times `unit`; calls visit(x, terms) for every vector x. Stretches of so many vectors are
  // added up without compensation: rounding does not grow with the row, and the sum of two equal terms is exact.
  template <int vectors, class Terms, class Visit = Ignore>
  REGMAX_INLINE void add_terms(int r, double (&sums)[3][lanes<T>], double unit, const Terms& terms_of,
                               const Visit& visit = {}) {
    constexpr int64_t stretch = vectors * lanes<T>;
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
        if (Powers::needs_r) rw += terms.rw;
      }
      totals[0].add(s);
      totals[1].add(c);
      if (Powers::needs_r) totals[2].add(rw);
    }
    for (int k = 0; k < 3; ++k) sums[k][r] = sum_lanes(totals[k].total) * unit;
  }

  template <class Out>
  void write(const RowGroup<T>& rows, int r, Out& out) {
    const Vec<T> sum = splat(sums_[r]);
    const T* values = values_[r];
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
          const Vec<T> weights = share_of<T>(expand(chosen, load(values)), sum);
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

  static constexpr int64_t few_stride = few_powers + lanes<T>;

  uint64_t* words_;
  T* copies_;
  int64_t copy_stride_;
  int64_t counts_[lanes<T>];
  const T* values_[lanes<T>];  // the terms r of a row's candidates, scaled
  int integers_[lanes<T>];     // 1/a - 1 of the rows for which it is an integer, else 0
  T top_[lanes<T>], cut_[lanes<T>], sums_[lanes<T>];
  T exponents_[lanes<T>], exponent_rests_[lanes<T>], least_rough_[lanes<T>], least_[lanes<T>];
  T few_[lanes<T> * few_stride];
};

}  // namespace regmax::REGMAX_ISA
