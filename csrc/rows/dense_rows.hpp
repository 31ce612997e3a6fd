// The rows of an argmax call: makes groups of them, and writes weights as dense rows with their bits.
#pragma once

#include <cstdint>
#include <cstring>

#include "mappings/tiers.hpp"
#include "rows/group.hpp"
#include "rows/masks.hpp"
#include "runtime/calls.hpp"
#include "simd/prefix_sums.hpp"
#include "simd/row_vectors.hpp"
#include "simd/streaming.hpp"

namespace regmax::REGMAX_ISA {

template <class Word>
inline Word* bits_row(Word* bits, int64_t i, int64_t d) {
  return bits ? bits + i * words_of(d) : nullptr;
}

// `value` at the kept positions of a row, zero elsewhere.
template <class T>
inline void fill_kept(T* y, const uint8_t* keep, int64_t d, T value) {
  for (int64_t i = 0; i < d; ++i) y[i] = keep && !keep[i] ? T(0) : value;
}

template <class T>
class DenseRows {
 public:
  static constexpr bool unrolls_short_rows = true;
  static constexpr bool may_be_bounded = false;

  DenseRows(const Rows<T>& call, int64_t begin, Workspace& w)
      : call_(call),
        w_(w),
        lengths_(call.mask, call.d, begin),
        plain_(!call.mask.bytes && !call.theta.per_row && !call.gamma.per_row),
        streamed_(call.may_stream() && is_streamed(call.y, call.n, call.d)),
        words_(words_of(call.d)) {
    group.d = call.d;
    group.scaled = call.has_gamma();
  }

  // Makes the group of `count` rows from `first` on. Returns the bits of the rows that fast tiers may map;
  // the others have no scores, or a strength for which those are not accurate enough.
  template <class Mapping>
  uint32_t next(int64_t first, int count) {
    first_ = first;
    const uint32_t all = all_lanes<T> >> (lanes<T> - count);
    if (!plain_) return choose<Mapping>(first, count);
    for (int r = 0; r < lanes<T>; ++r) group.x[r] = call_.x + (first + r) * call_.d;
    if (count != count_) {  // lengths and strengths are those of the previous group, if that was as large
      for (int r = 0; r < lanes<T>; ++r) {
        group.length[r] = r < count ? call_.d : 0;
        group.set_theta(r, call_.theta.shared);
        group.set_gamma(r, call_.gamma.shared);
      }
      count_ = count;
    }
    return Mapping::fits_vectors(call_.theta.shared) && group.fits(call_.gamma.shared) ? all : 0;
  }

  // The group of row i alone, for the scalar tier.
  void at(int64_t i) { first_ = i; }

  void finish() const {
    if (streamed_) finish_streams();
  }

  // --- What the tiers call ---

  template <class Joined>
  void write_candidates(int r, const T* values, const uint64_t* words, int count, const Joined& joined) {
    prefetch_next(r);
    if (kept_[r]) {
      expand_row_bits(words, kept_[r], call_.d, kept_[r]);
      words = kept_[r];
    }
    expand_row(values, words, call_.d, y(r), streamed_);
    if (call_.support) write_bits(nonzero_candidates(values, count), words, support(r));
    if (call_.joined) write_bits(joined(), words, this->joined(r));
    if (call_.listed) list_candidates(r, values, count);
  }

  struct WholeRow {
    T* y;
    uint64_t* support;
    int64_t d;
    bool streamed;

    REGMAX_INLINE void put(int64_t i, Vec<T> weights, uint32_t) {
      put_left<T>(y + i * lanes<T>, d - i * lanes<T>, weights, streamed);
    }
    template <class Size>
    REGMAX_INLINE void put_zeros(int64_t i, Size size) {
      for (int c = 0; c < size; ++c) put(i + c, Vec<T>{}, 0);
    }
    REGMAX_INLINE void put_word(int64_t i, uint64_t word) {
      if (support) support[i] = word;
    }
  };

  REGMAX_INLINE WholeRow begin_whole(int r) {
    prefetch_next(r);
    return {y(r), call_.support ? support(r) : nullptr, call_.d, streamed_};
  }
  REGMAX_INLINE void end_whole(int r) { list_row(r); }

  template <class Segments>
  void write_segments(int r, int64_t length, const Segments& segments) {
    uint64_t* const kept = kept_[r];
    T* const weights = kept ? static_cast<T*>(w_.candidates) : y(r);
    uint64_t* const support_words = cleared(call_.support ? support(r) : w_.chosen);
    uint64_t* const joined_words = cleared(call_.joined ? joined(r) : w_.kept);
    // The positions at which a segment begins; the other weights are joined.
    uint64_t* const begins = joined_words;
    segments.each_segment(r, length, [&](int64_t begin, int64_t end, T weight, bool repeats) {
      fill_run(weights, begin, end, length, weight);
      begins[begin / 64] |= static_cast<uint64_t>(!repeats) << (begin % 64);
    });
    nonzero_bits(weights, length, support_words);
    for (int64_t i = 0; i < words_of(length); ++i) joined_words[i] = support_words[i] & ~begins[i];
    if (kept) {
      expand_row(weights, kept, call_.d, y(r));
      expand_in_place(support_words, kept);
      expand_in_place(joined_words, kept);
    } else if (length < call_.d) {
      fill_run(y(r), length, call_.d, call_.d, T(0));
    }
    list_row(r);
  }

  SourceRow<T> scalar_row(int r) const {
    const int64_t i = first_ + r;
    return {call_.x + i * call_.d, mask_row(call_.mask, i, call_.d), call_.d, call_.theta.of(i), call_.gamma.of(i)};
  }

  // Weights at the bits of `words`. `kept` are the bits of the scores that were not deleted.
  template <class Mapping>
  void write_chosen(int r, const T* values, const uint64_t* words, const uint64_t* kept, bool) {
    expand_row(values, words, call_.d, y(r));
    if (call_.support) nonzero_bits(y(r), call_.d, support(r));
    list_row(r);
    if (!call_.joined) return;
    if (Mapping::joins == Joins::anywhere) return nonzero_bits(y(r), call_.d, joined(r));
    if (Mapping::on_simplex && count_bits(kept, call_.d) == call_.d) return find_joined(y(r), joined(r));
    find_joined(y(r), kept, !Mapping::on_simplex, joined(r));
  }

  // Fills a row that has no result; it has no bits.
  void fill(int r, T value) {
    fill_kept(y(r), mask_row(call_.mask, first_ + r, call_.d), call_.d, value);
    if (call_.support) clear_bits(support(r), call_.d);
    if (call_.joined) clear_bits(joined(r), call_.d);
    list_row(r);
  }

  RowGroup<T> group;

 private:
  T* y(int r) const { return call_.y + (first_ + r) * call_.d; }
  uint64_t* support(int r) const { return call_.support + (first_ + r) * words_; }
  uint64_t* joined(int r) const { return call_.joined + (first_ + r) * words_; }

  REGMAX_INLINE void prefetch_next(int r) const { prefetch_row(call_.x + (first_ + r + lanes<T>)*call_.d, call_.d); }

  // Rows with masks, or with their own strengths.
  template <class Mapping>
  uint32_t choose(int64_t first, int count) {
    uint32_t fast = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      group.length[r] = 0;
      if (r >= count) continue;
      const double theta = call_.theta.of(first + r), gamma = call_.gamma.of(first + r);
      const int64_t length = lengths_.next();
      group.set_theta(r, theta);
      group.set_gamma(r, gamma);
      group.x[r] = call_.x + (first + r) * call_.d;
      group.length[r] = length;
      kept_[r] = nullptr;
      if (!Mapping::fits_vectors(theta) || !group.fits(gamma)) continue;
      if (length < 0) take_out_deleted<Mapping>(r);
      fast |= static_cast<uint32_t>(group.length[r] > 0) << r;
    }
    return fast;
  }

  template <class Mapping>
  void take_out_deleted(int r) {
    T* const copy = static_cast<T*>(w_.copies) + r * w_.copy_stride;
    if (Mapping::joins == Joins::neighbours) {  // deletion changes adjacency
      kept_[r] = w_.kept_bits + r * words_;
      mask_bits(lengths_.keep(), call_.d, kept_[r]);
      group.length[r] = compact_row(group.x[r], kept_[r], call_.d, copy);
    } else {
      group.length[r] = call_.d;
      hide_deleted(group.x[r], lengths_.keep(), call_.d, copy);
    }
    group.x[r] = copy;
  }

  // One bit per candidate: it has weight.
  static uint64_t nonzero_candidates(const T* values, int count) {
    uint64_t zeros = 0;
    for (int k = 0; k < count; k += lanes<T>)
      zeros |= static_cast<uint64_t>(bits(equal(load(values + k), Vec<T>{})) & all_lanes<T>) << k;
    return ~zeros & (~uint64_t{0} >> (64 - count));
  }

  // Lists the weights among the candidates of a row, if they are few.
  void list_candidates(int r, const T* values, int count) const {
    T weights[REGMAX_LISTED + lanes<T>] = {};
    const uint64_t nonzero = nonzero_candidates(values, count);
    const int m = __builtin_popcountll(nonzero);
    if (m <= REGMAX_LISTED) gather_few(values, &nonzero, count, weights);
    put_listed(r, weights, m);
  }

  // The same of a row that is written.
  void list_row(int r) const {
    if (!call_.listed) return;
    T weights[REGMAX_LISTED + lanes<T>] = {};
    const int64_t m = count_bits(support(r), call_.d);
    if (m <= REGMAX_LISTED) compact_row(y(r), support(r), call_.d, weights);
    put_listed(r, weights, m);
  }

  void put_listed(int r, const T* weights, int64_t m) const {
    static constexpr T none[REGMAX_LISTED] = {};
    std::memcpy(call_.listed + (first_ + r) * REGMAX_LISTED, m <= REGMAX_LISTED ? weights : none, sizeof none);
  }

  // Moves one bit per candidate to the candidates' positions.
  void write_bits(uint64_t flags, const uint64_t* words, uint64_t* out) const {
    for (int64_t i = 0; i < words_; ++i) {
      out[i] = expand_bits(flags, words[i]);
      flags >>= __builtin_popcountll(words[i]);  // at most many_candidates < 64
    }
  }

  uint64_t* cleared(uint64_t* words) const {
    clear_bits(words, call_.d);
    return words;
  }

  void expand_in_place(uint64_t* words, const uint64_t* kept) {
    std::memcpy(w_.words, words, static_cast<std::size_t>(words_) * sizeof(uint64_t));
    expand_row_bits(w_.words, kept, call_.d, words);
  }

  // The same if all positions are kept, on the simplex.
  void find_joined(const T* y, uint64_t* joined) const {
    uint64_t carry = 0;
    for (int64_t i = 0; i < call_.d; i += 64) {
      uint64_t same = 0;  // as the next
      for (int64_t k = i; k < i + 64 && k < call_.d; k += lanes<T>) {
        const Vec<T> value = load_left(y + k, call_.d - k, T(0)), next = load_left(y + k + 1, call_.d - k - 1, T(0));
        same |= static_cast<uint64_t>(bits(equal(value, next)) & bits(greater(value, Vec<T>{}))) << (k - i);
      }
      joined[i / 64] = same << 1 | carry;
      carry = same >> 63;
    }
  }

  // A position is joined if it has the same value as the kept position before it, so that the weights and the
  // mask determine the segments. Zeros are no segment on the simplex.
  void find_joined(const T* y, const uint64_t* kept, bool zeros, uint64_t* joined) const {
    int64_t before = -1;
    for (int64_t word = 0; word < words_; ++word) {
      joined[word] = 0;
      for (uint64_t rest = kept[word]; rest; rest &= rest - 1) {
        const int64_t i = word * 64 + __builtin_ctzll(rest);
        const bool same = before >= 0 && y[i] == y[before] && (zeros || y[i] != 0);
        joined[word] |= static_cast<uint64_t>(same) << (i % 64);
        before = i;
      }
    }
  }

  const Rows<T>& call_;
  Workspace& w_;
  PrefixLengths lengths_;
  bool plain_, streamed_;
  int64_t words_, first_ = 0;
  int count_ = 0;
  uint64_t* kept_[lanes<T>] = {};  // nullptr, or the bits of a compacted row's positions, to be overwritten
};

}  // namespace regmax::REGMAX_ISA
