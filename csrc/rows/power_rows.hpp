// The whole-row tier of mappings whose weights are powers of the scores (algorithms/powers.hpp). The maxima by lane
// give a first guess of each row's root and thereby a cut. The candidates are compacted, and every round passes over
// those of each row that still moves; the rows' sums are finished, and their steps taken, together. The first rounds
// are rough. Most rows need one careful pass, after which their terms follow a small last step (SlopedRows). Short
// rows, and rows with few candidates, are solved one per lane.
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
      : words_(w.words),
        copies_(static_cast<T*>(w.copies)),
        terms_(static_cast<T*>(w.terms)),
        changes_(static_cast<T*>(w.changes)),
        copy_stride_(w.copy_stride) {}

  // Maps the `wanted` rows; returns the bits of those that are left: rows that are not finite, did not settle, or whose
  // cut was too high.
  template <class Out>
  uint32_t run(const RowGroup<T>& rows, uint32_t wanted, Out& out) {
    const Powers powers(load(rows.theta) - splat(T(1)), load(rows.theta_rest));
    integer_exponents(load(rows.theta), load(rows.theta_rest), integers_);
    uint32_t brief =
        rows.d <= few_powers && !rows.bounded ? wanted & bits(greater(splat(most_short_power), powers.a)) : 0;
    if (brief) brief = finite_rows(rows, brief);
    uint32_t left = 0;
    if (brief) left = map_short(rows, brief, powers, out);
    if (wanted & ~brief) left |= map_long(rows, wanted & ~brief, powers, out);
    return left;
  }

 private:
  T* scores(int r) { return copies_ + r * copy_stride_; }
  T* terms(int r) { return terms_ + r * copy_stride_; }
  T* changes(int r) { return changes_ + r * copy_stride_; }

  template <class Out>
  uint32_t map_long(const RowGroup<T>& rows, uint32_t wanted, const Powers& powers, Out& out) {
    const Vec<T> start = guess(rows, wanted, powers);
    const uint32_t found = gather(rows, wanted), few = few_candidates(found);
    Vec<T> m = smaller(even_roots(powers, found), start), sum = splat(T(1));
    UnsureRows unsure{~found, 0};
    if (found & ~few) unsure |= settle(powers, found & ~few, &m, &sum);
    if (few) unsure |= settle_few(powers, few, &m, &sum);
    unsure.left |= cut_too_high(rows, bits(greater(m, start)) & ~unsure.left, powers, m);
    return write_settled(rows, wanted, unsure, m, sum, out);
  }

  // Short rows with a small strength keep most of their scores: all are candidates.
  template <class Out>
  uint32_t map_short(const RowGroup<T>& rows, uint32_t wanted, const Powers& powers, Out& out) {
    const int count = static_cast<int>(rows.d);
    Vec<T> x[few_powers], y[few_powers], counts{}, total{};
    rows_to_lanes<T>(few_, few_stride, count, x);
    Vec<T> top = x[0];
    for (int k = 1; k < count; ++k) top = larger(x[k], top);
    for (int k = 0; k < count; ++k) {
      const Where<T> inside = greater(x[k], splat(nothing<T>));
      const Vec<T> relative = rows.scaled ? (x[k] - top) * load(rows.scale) : x[k] - top;
      x[k] = larger(select(inside, relative, splat(nothing<T>)), splat(nothing<T>));
      total = select(inside, total + relative, total);
      counts = add_where(inside, counts, splat(T(1)));
    }
    store<T>(top_, top);
    Vec<T> m = smaller(powers.even_root(counts, total / counts), splat(T(1))), sum = splat(T(1));
    const UnsureRows unsure = lane_powers(x, count, powers, integers_, wanted, &m, &sum, y);
    lanes_to_rows<T>(y, count, few_, few_stride);
    return write_settled(rows, wanted, unsure, m, sum, out);
  }

  // Copies short rows; returns the bits of those whose scores are all finite.
  uint32_t finite_rows(const RowGroup<T>& rows, uint32_t wanted) {
    uint32_t finite = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      T* const x = few_ + r * few_stride;
      const int64_t length = wanted >> r & 1 ? rows.length[r] : 0;
      uint32_t undefined = length == 0;
      for (int k = 0; k < few_powers; k += lanes<T>) {
        const Vec<T> scores = k < length ? load_left(rows.x[r] + k, length - k, nothing<T>) : splat(nothing<T>);
        store<T>(x + k, scores);
        undefined |= bits(not_at_most(absolute<T>(scores), splat(-nothing<T>)));
      }
      finite |= static_cast<uint32_t>(!undefined) << r;
      counts_[r] = length;
      values_[r] = x;
      words_[r] = (uint64_t{1} << length) - 1;
    }
    return finite;
  }

  // Writes the rows that are sure; returns the others.
  template <class Out>
  uint32_t write_settled(const RowGroup<T>& rows, uint32_t wanted, UnsureRows unsure, Vec<T> m, Vec<T> sum, Out& out) {
    uint32_t left = unsure.left & wanted;
    store<T>(sums_, sum * splat(careful_scale<T>));
    left |= settle_steep(rows, unsure.doubtful & wanted & ~left, m);
    for (uint32_t rest = wanted & ~left; rest; rest &= rest - 1) write(rows, __builtin_ctz(rest), out);
    return left;
  }

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
    store<T>(cut_, cut_of(rows, powers, start));
    return start;
  }

  // The scores above it, relative to the top, may have weight if the root is m.
  static Vec<T> cut_of(const RowGroup<T>& rows, const Powers& powers, Vec<T> m) {
    const Vec<T> cut = splat(T(-1 - 32 * rounding<T>)) * m / powers.c();
    return rows.scaled ? cut * load(rows.gamma) * splat(1 + 8 * rounding<T>) : cut;
  }

  // The candidates of every row, padded to whole steps of a pass; returns the bits of the rows that have them.
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
      for (int k = 0; k < step; k += lanes<T>) store<T>(x + count + k, splat(nothing<T>));
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

  // Of the `suspect` rows, whose root m is larger than the guess, those whose cut excluded a score that has weight.
  uint32_t cut_too_high(const RowGroup<T>& rows, uint32_t suspect, const Powers& powers, Vec<T> m) const {
    if (!suspect || rows.bounded) return suspect;
    T cuts[lanes<T>];
    store<T>(cuts, cut_of(rows, powers, m));
    uint32_t left = 0;
    for (; suspect; suspect &= suspect - 1) {
      const int r = __builtin_ctz(suspect);
      const bool is_complete = count_above(rows.x[r], rows.length[r], top_[r], cuts[r]) == counts_[r];
      left |= static_cast<uint32_t>(!is_complete) << r;
    }
    return left;
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

  // Moves m to the roots and finds the terms r, scaled, of the rows that settle; they replace the scores of some.
  UnsureRows settle(const Powers& powers, uint32_t wanted, Vec<T>* m, Vec<T>* sum) {
    RootSearch<Powers> search(powers, *m, wanted);
    store<T>(exponents_, powers.exponent);
    store<T>(exponent_rests_, powers.exponent_rest);
    store<T>(least_rough_, least_share<T>(powers.exponent, rough_digits));
    store<T>(least_, least_share<T>(powers.exponent, careful_digits));
    uint32_t open = wanted, doubtful = 0, sloped = 0;  // some settled rows take one more pass
    WideSums totals{};
    for (int round = 0; open && round < most_power_rounds; ++round) {
      const Pass pass(search);
      vanishing_ = 0;
      for (uint32_t rest = open; rest; rest &= rest - 1) {
        const int r = __builtin_ctz(rest);
        if (integers_[r]) {
          const RowExponent<T> exponent(integers_[r]);
          doubtful |=
              add_up(r, pass, IntegerTerms<T, RowExponent<T>>{exponent, splat(least_rough_[r]), splat(least_[r])});
        } else {
          doubtful |= add_up(r, pass, GeneralTerms<T>{splat(exponents_[r]), splat(exponent_rests_[r])});
        }
      }
      for (int h = 0; h < 2; ++h) {
        const int first = h * lanes<double>;
        totals.half[h] = {sum_rows<double>(sums_of_[0] + first), sum_rows<double>(sums_of_[1] + first),
                          Powers::needs_r ? sum_rows<double>(sums_of_[2] + first) : Vec<double>{}};
      }
      open = search.moving;
      if (open) {
        const uint32_t now = search.take(totals, sloped_rows());
        if (now) follow_slopes(now, search.slopes, &search.sum);
        sloped |= now;
        open &= ~now;
      }
    }
    // Rows that never settle, such as rows with NaN, do not keep the others from this check: the sums of a settled row
    // are those of its last pass.
    const uint32_t left = open | search.finish(totals, sloped);
    const Where<T> own = from_bits<T>(wanted);
    *m = select(own, search.m, *m);
    *sum = select(own, search.sum, *sum);
    return {left & wanted, doubtful & wanted};
  }

  SlopedRows<T> sloped_rows() const {
    Vec<T> least[lanes<T>];
    rows_to_lanes<T>(least_w_, lanes<T>, lanes<T>, least);
    for (int k = 1; k < lanes<T>; ++k) least[0] = smaller(least[k], least[0]);
    return {~vanishing_, least[0]};
  }

  // The terms of the rows after their last step, and their sums: added up again, because the weights must sum to one.
  void follow_slopes(uint32_t rows, Vec<T> slopes, Vec<T>* sum) {
    T slope[lanes<T>], sums[lanes<T>];
    store<T>(slope, slopes);
    store<T>(sums, *sum);
    for (; rows; rows &= rows - 1) {
      const int r = __builtin_ctz(rows);
      T* const y = terms(r);
      LaneSum<T> total;
      for (int64_t i = 0; i < counts_[r]; i += lanes<T>) {
        const Vec<T> term = times_plus(splat(slope[r]), load(changes(r) + i), load(y + i));
        store<T>(y + i, term);
        total.add(term);
      }
      sums[r] = static_cast<T>(sum_lanes(total.total) / careful_scale<double>);
      values_[r] = y;
    }
    *sum = load(sums);
  }

  // The numbers of each row that a pass over it needs.
  struct Pass {
    uint32_t moving, rough, smooth;
    double rates[lanes<T>];
    T w[lanes<T>], low_r[lanes<T>], high_r[lanes<T>];

    explicit Pass(const RootSearch<Powers>& search)
        : moving(search.moving), rough(search.rough), smooth(search.smooth) {
      const CarefulRate rate = search.rate();
      const DoubtfulBounds<T> bounds = search.doubtful();
      for (int h = 0; h < 2; ++h) store<double>(rates + h * lanes<double>, rate.wide[h]);
      store<T>(w, bounds.w);
      store<T>(low_r, bounds.low_r);
      store<T>(high_r, bounds.high_r);
    }
  };

  // One pass over a row; the last one replaces its scores. Returns the row's bit if one of its weights is doubtful.
  template <class Terms>
  REGMAX_INLINE uint32_t add_up(int r, const Pass& pass, const Terms& terms_of) {
    const Vec<double> wide[2] = {splat(pass.rates[r]), splat(pass.rates[r])};
    const CarefulRate rate(wide);
    const auto careful = [&](Vec<T> x) { return terms_of.careful(x, rate); };
    const DoubtfulBounds<T> bounds{splat(pass.w[r]), splat(pass.low_r[r]), splat(pass.high_r[r])};
    if (pass.rough >> r & 1) {
      add_rough(r, [&](Vec<T> x) { return terms_of.rough(x, rate.first); });
    } else if (!(pass.moving >> r & 1)) {
      DoubtfulWeights<T> doubtful{bounds};
      add_careful(r, careful, [&](int64_t i, const CarefulTerms<T>& added) {
        store<T>(scores(r) + i, added.r);
        doubtful.add(added);
      });
      return static_cast<uint32_t>(bits(doubtful.found) != 0) << r;
    } else if (pass.smooth >> r & 1) {
      SlopedTerms<T> seen(bounds);
      add_careful(r, careful, [&](int64_t i, const CarefulTerms<T>& added) {
        store<T>(terms(r) + i, added.r);
        store<T>(changes(r) + i, added.power - added.r);
        seen.add(added);
      });
      store<T>(least_w_ + r * lanes<T>, seen.least_w);
      vanishing_ |= static_cast<uint32_t>(bits(seen.vanishing) != 0) << r;
    } else {
      add_careful(r, careful);
    }
    return 0;
  }

  struct Ignore {
    template <class Terms>
    void operator()(int64_t, const Terms&) const {}
  };

  // The sums of a row's rough terms, by lane.
  template <class Terms>
  REGMAX_INLINE void add_rough(int r, const Terms& terms_of) {
    const T* const x = scores(r);
    Vec<T> sums[3][step_vectors] = {};
    for (int64_t i = 0; i < counts_[r]; i += step) {
#pragma GCC unroll 1  // powers are loops of their own
      for (int k = 0; k < step_vectors; ++k) {
        const PowerTerms<T> terms = terms_of(load(x + i + k * lanes<T>));
        sums[0][k] += terms.r;
        sums[1][k] += terms.power;
        if (Powers::needs_r) sums[2][k] += terms.rw;
      }
    }
    for (int n = 0; n < 3; ++n) sums_of_[n][r] = add_halves(sums[n][0] + sums[n][1]);
  }

  // The sums of a row's careful terms; calls visit(i, terms) for every vector. They are compensated after every step:
  // rounding does not grow with the row, and the sum of two equal terms is exact.
  template <class Terms, class Visit = Ignore>
  REGMAX_INLINE void add_careful(int r, const Terms& terms_of, const Visit& visit = {}) {
    const T* const x = scores(r);
    LaneSum<T> totals[3];
    for (int64_t i = 0; i < counts_[r]; i += step) {
      Vec<T> sums[3] = {};
#pragma GCC unroll 1
      for (int k = 0; k < step; k += lanes<T>) {
        const CarefulTerms<T> terms = terms_of(load(x + i + k));
        visit(i + k, terms);
        sums[0] += terms.r;
        sums[1] += terms.power;
        if (Powers::needs_r) sums[2] += terms.rw;
      }
      totals[0].add(sums[0]);
      totals[1].add(sums[1]);
      if (Powers::needs_r) totals[2].add(sums[2]);
    }
    for (int n = 0; n < 3; ++n) sums_of_[n][r] = add_halves(totals[n].total) * splat(1 / careful_scale<double>);
  }

  // Divides the terms of a row by their sum, in place. What follows the last term is not used.
  const T* share(int r) {
    const Vec<T> sum = splat(sums_[r]), inverse = splat(1 / sums_[r]);
    T* const values = values_[r];
    for (int64_t i = 0; i < counts_[r]; i += lanes<T>)
      store<T>(values + i, share_of<T>(load(values + i), sum, inverse));
    return values;
  }

  template <class Out>
  void write(const RowGroup<T>& rows, int r, Out& out) {
    const T* values = share(r);
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
          const Vec<T> weights = expand(chosen, load(values));
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

  // Passes take two vectors at a time: most loops end where the row's neighbours' do.
  static constexpr int step_vectors = 2, step = step_vectors * lanes<T>;
  static constexpr int64_t few_stride = few_powers + lanes<T>;

  uint64_t* words_;
  T *copies_, *terms_, *changes_;
  int64_t copy_stride_;
  Vec<double> sums_of_[3][lanes<T>] = {};  // S, C, R of every row, by lane
  T least_w_[lanes<T> * lanes<T>] = {};
  uint32_t vanishing_ = 0;
  int64_t counts_[lanes<T>];
  T* values_[lanes<T>];     // the terms r of a row's candidates, scaled
  int integers_[lanes<T>];  // 1/a - 1 of the rows for which it is an integer, else 0
  T top_[lanes<T>], cut_[lanes<T>], sums_[lanes<T>];
  T exponents_[lanes<T>], exponent_rests_[lanes<T>], least_rough_[lanes<T>], least_[lanes<T>];
  T few_[lanes<T> * few_stride];
};

}  // namespace regmax::REGMAX_ISA
