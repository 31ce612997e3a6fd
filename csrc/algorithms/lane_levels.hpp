// Screening by level sets, one row per lane: which positions may have weight under total variation, whatever lam is.
//
// The positions with z > t are the set A that maximises sum_A (x_i - t) - lam (number of ends of A inside the row). Let
// F(t) be the maximum; F' = -|A|. The threshold is the root of F(tau) = gamma: summing z - tau over the support gives
// gamma. F is convex and falls, so Newton's method from below stays below, and converges as Michelot's rounds do
// (simplex.hpp). The maximum is a recursion over the row: with d_k the gain of the best A in 0..k with k over that of
// the best one without k,
//
//     d_k = clip(d_{k-1}, -lam, lam) + x_k - t,
//
// and k is in A if and only if d_k plus the same from the right, without x_k - t, is positive.
//
// Rounding acts like a change of every score by a few ulp of the scores, of lam and of F, which changes z and tau by no
// more than that. Levels stay further below tau, so the chosen positions contain the support. More positions do no
// harm: the best set for every t >= tau is among the subsets of the chosen ones, in which the edges to other positions
// pull with their full lam.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "runtime/tuning.hpp"
#include "simd/bitset.hpp"
#include "simd/reduce.hpp"
#include "simd/transpose.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

class LaneLevels {
  using V = Vec<float>;

 public:
  static constexpr int64_t longest = int64_t{1} << 24;  // sizes are floats

  // `memory` has room for two vectors per score, `masks` for two bytes, and 16 more.
  LaneLevels(void* memory, void* masks, int64_t d)
      : columns_(static_cast<float*>(memory)),
        gains_(columns_ + d * lanes<float>),
        masks_(static_cast<uint8_t*>(masks)),
        plane_(d + 8) {}

  // The bits of the chosen positions of the `wanted` rows, `words` of 64 for each row. Returns the rows of which all
  // scores are finite.
  uint32_t choose(const float* const* x, const int64_t* lengths, const float* lam, const float* gamma, uint32_t wanted,
                  uint64_t* words, int64_t row_words) {
    wanted = read(x, lengths, wanted);
    lam_ = load(lam);
    gamma_ = load(gamma);
    if (!wanted) return 0;
    is_ragged_ ? find_level<true>(wanted) : find_level<false>(wanted);
    for (uint32_t rest = wanted; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      write_words(r, lengths[r], words + r * row_words);
      for (int64_t i = words_of(lengths[r]); i < row_words; ++i) words[r * row_words + i] = 0;
    }
    return wanted;
  }

 private:
  // The best set at a level.
  struct Best {
    V gain, size;
  };

  V column(int64_t k) const { return load(columns_ + k * lanes<float>); }

  // Transposes the rows; lanes without one repeat another.
  uint32_t read(const float* const* x, const int64_t* lengths, uint32_t wanted) {
    const float* rows[lanes<float>];
    const int first = __builtin_ctz(wanted);
    float sizes[lanes<float>];
    int64_t shortest = lengths[first];
    length_ = 0;
    for (int r = 0; r < lanes<float>; ++r) {
      const int row = wanted >> r & 1 ? r : first;
      rows[r] = x[row];
      sizes[r] = static_cast<float>(lengths[row]);
      shortest = lengths[row] < shortest ? lengths[row] : shortest;
      length_ = lengths[row] > length_ ? lengths[row] : length_;
    }
    sizes_ = load(sizes);
    is_ragged_ = shortest < length_;
    constexpr int q = piece<float>;
    int64_t k = 0;
    for (; k + q <= shortest; k += q) {
      V v[q];
      for (int j = 0; j < q; ++j) v[j] = join_pieces<float>([&](int i) { return rows[j + i * q] + k; });
      transpose_pieces(v);
      for (int j = 0; j < q; ++j) store<float>(columns_ + (k + j) * lanes<float>, v[j]);
    }
    for (; k < length_; ++k) {
      for (int r = 0; r < lanes<float>; ++r)
        columns_[k * lanes<float> + r] = static_cast<float>(k) < sizes[r] ? rows[r][k] : rows[r][0];
    }
    return wanted & find_range();
  }

  // The largest and the mean score; returns the lanes in which all scores are finite.
  uint32_t find_range() {
    V low = column(0), sum{}, undefined{};
    high_ = low;
    for (int64_t k = 0; k < length_; ++k) {
      const V v = column(k);
      high_ = larger(v, high_);
      low = smaller(v, low);
      sum += v;
      undefined += v - v;
    }
    extent_ = larger(absolute<float>(high_), absolute<float>(low));
    mean_ = is_ragged_ ? low : sum / splat(static_cast<float>(length_));
    return bits(equal(undefined, V{}));
  }

  // Levels rise until they settle.
  template <bool is_ragged>
  void find_level(uint32_t wanted) {
    V slack = (extent_ + lam_ + gamma_) * splat(level_rounding);
    // All positions together, and the largest score alone, bound the threshold from below.
    V level = larger(mean_ - gamma_ / sizes_ - extent_ * sizes_ * splat(rounding<float>), high_ - gamma_ - lam_ * 2);
    level -= slack * 2;
    for (int round = 0; round < most_levels; ++round) {
      const Best best = follow<is_ragged>(level);
      if (round == 0) slack += best.gain * splat(level_rounding);
      const V rise = (best.gain - gamma_) / larger(best.size, splat(1.0f)) - slack;
      const Where<float> goes_on = greater(rise, slack);
      if (!(bits(goes_on) & wanted) || round + 1 == most_levels) break;
      level = add_where(goes_on, level, rise);
    }
    mark<is_ragged>(level);
  }

  template <bool is_ragged>
  REGMAX_INLINE V excess(int64_t k, V level, Where<float>* inside) const {
    const V e = column(k) - level;
    if constexpr (!is_ragged) return e;
    *inside = greater(sizes_, splat(static_cast<float>(k)));
    return select(*inside, e, V{});
  }

  // Keeps the gains of every position.
  template <bool is_ragged>
  Best follow(V level) {
    const V one = splat(1.0f), zero{}, lam = lam_, least = -lam;
    V gain = column(0) - level, total{}, size_with = one, size_without{};
    store<float>(gains_, gain);
    for (int64_t k = 1; k < length_; ++k) {
      Where<float> inside{};
      const V e = excess<is_ragged>(k, level, &inside);
      const V above = gain - lam;
      const Where<float> ends = greater(above, zero), begins = greater(least, gain);
      total += larger(above, zero);
      const V with = select(begins, size_without, size_with);
      size_without = select(ends, size_with, size_without);
      size_with = is_ragged ? add_where(inside, with, one) : with + one;
      gain = larger(smaller(gain, lam), least) + e;
      store<float>(gains_ + k * lanes<float>, gain);
    }
    return {total + larger(gain, zero), select(greater(gain, zero), size_with, size_without)};
  }

  // The masks of the lanes in which a position is chosen, from the right.
  template <bool is_ragged>
  void mark(V level) {
    const V lam = lam_, least = -lam;
    V after{};
    for (int64_t k = length_ - 1; k >= 0; --k) {
      Where<float> inside{};
      const uint32_t chosen = bits(greater(load(gains_ + k * lanes<float>) + after, V{}));
      masks_[k] = static_cast<uint8_t>(chosen);
      if (lanes<float> > 8) masks_[plane_ + k] = static_cast<uint8_t>(chosen >> 8);
      after = larger(smaller(after + excess<is_ragged>(k, level, &inside), lam), least);
    }
  }

  // The bits of one row: one of each position's mask.
  void write_words(int r, int64_t length, uint64_t* words) const {
    const uint8_t* const masks = masks_ + r / 8 * plane_;
    for (int64_t first = 0; first < length; first += 64) {
      uint64_t word = 0;
      for (int64_t k = 0; k < 64 && first + k < length; k += 8) {
        uint64_t eight;
        std::memcpy(&eight, masks + first + k, sizeof eight);
        word |= compact_bits(eight >> (r % 8), 0x0101010101010101) << k;
      }
      words[first / 64] = length - first < 64 ? word & ~(~uint64_t{0} << (length - first)) : word;
    }
  }

  static constexpr float level_rounding = 16 * rounding<float>;

  float *columns_, *gains_;
  uint8_t* masks_;
  int64_t plane_;
  V lam_{}, gamma_{}, sizes_{}, high_{}, mean_{}, extent_{};
  int64_t length_ = 0;
  bool is_ragged_ = false;
};

}  // namespace regmax::REGMAX_ISA
