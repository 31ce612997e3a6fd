// Taut strings (taut_string.hpp) of long chains, one per lane, in float.
//
// Every lane is at a place of its own. A round loads the next 16 bytes of every chain, transposes them, and
// steps along; a lane whose piece ends waits for the end of the round, and then goes back to where its string
// bent. There is no branch on what a lane finds.
//
// Sums are kept in two floats, so that their rounding does not add up: what is compared is off by a few ulp
// of a piece's sum. Where that is not small against lam, the lane is not answered for.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd.hpp"
#include "transpose.hpp"

namespace regmax::REGMAX_ISA {

// The groups of lanes<float> chains: group g of chain r at [g * lanes + r].
struct LaneGroups {
  float* values;
  float* ends;

  static constexpr int64_t bytes_per_score = 2 * vector_bytes;

  LaneGroups(void* memory, int64_t d)
      : values(static_cast<float*>(memory)), ends(values + (d + 1) * lanes<float>) {}
};

class LaneStrings {
  using V = Vec<float>;
  using W = Where<float>;

 public:
  static constexpr int64_t longest = int64_t{1} << 24;  // places are floats, and shifted integers

  // Chain r begins at x + r stride, with a vector to spare behind its end.
  LaneStrings(const float* x, int64_t stride, LaneGroups groups) : x_(x), groups_(groups) {
    for (int r = 0; r < lanes<float>; ++r) origin_[r] = static_cast<int32_t>(r * stride);
  }

  // Pools the chains of those sizes; counts[r] says how many groups there are. Returns the bits of the chains
  // that took too long, or whose sums are too large.
  uint32_t run(const float* sizes, const float* lam, int* counts) {
    std::memset(counts, 0, lanes<float> * sizeof(int));
    size_ = load(sizes);
    lam_ = load(lam);
    begin_ = count_ = sum_ = rest_ = V{};
    unsure_ = W{};
    start_pieces(equal(lam_, lam_));
    W active = greater(size_, V{});
    for (int64_t rounds = budget(sizes); bits(active) && rounds > 0; --rounds) {
      open_ = active;
      up_ = W{};
      follow();
      active = close(active);
      if (logged_ > log_size) read_log(counts);
    }
    read_log(counts);
    return bits(W(active | unsure_));
  }

 private:
  static constexpr int log_size = 256;
  static constexpr float far = 1e30f;  // no slope yet

  // As in taut_string.hpp: eight readings of every score.
  static int64_t budget(const float* sizes) {
    float most = 0;
    for (int r = 0; r < lanes<float>; ++r) most = sizes[r] > most ? sizes[r] : most;
    return static_cast<int64_t>(most) * 8 / piece<float> + 8;
  }

  void follow() {
    int32_t places[lanes<float>];
    const IntVec<float> at =
        load_integers<float>(origin_) + __builtin_convertvector(begin_ + count_, IntVec<float>);
    std::memcpy(places, &at, sizeof at);
    V scores[piece<float>];
    for (int j = 0; j < piece<float>; ++j) scores[j] = gather_pieces(x_, places + j);
    transpose_pieces(scores);
    for (int j = 0; j < piece<float>; ++j) step(rest_ += scores[j]);
    const V sum = sum_ + rest_;
    rest_ -= sum - sum_;
    sum_ = sum;
  }

  // One score further, where the piece's sum is sum_ + rest. What follows the step that closes a piece does
  // no harm: its length and slope are kept by then.
  REGMAX_INLINE void step(V rest) {
    count_ += 1;
    const W inner = greater(size_, count_);  // the string's end is fixed
    const V capacity = select(inner, lam_, V{}), factor = nearly_inverse(count_), sum = sum_ + rest;
    const V upper = (sum + capacity) * factor, lower = (sum - capacity) * factor;
    const W rises = open_ & greater(lower, high_), falls = open_ & greater(low_, upper);
    up_ = up_ | rises;
    length_ = select(falls, low_length_, select(rises, high_length_, length_));
    slope_ = select(falls, low_, select(rises, high_, select(open_, upper, slope_)));
    open_ = open_ & ~(rises | falls) & inner;
    high_length_ = select(greater(upper, high_), high_length_, count_);
    low_length_ = select(greater(low_, lower), low_length_, count_);
    high_ = smaller(upper, high_);
    low_ = larger(lower, low_);
  }

  // Ends the pieces that are not open any more; returns which lanes go on.
  W close(W active) {
    const W closed = active & ~open_;
    const V end = begin_ + length_, total = slope_ * length_;
    unsure_ = unsure_ | (closed & greater(larger(total, -total), lam_ * 64));
    log(bits(closed), end);
    begin_ = select(closed, end, begin_);
    size_ = select(closed, size_ - length_, size_);
    sum_ = select(closed, select(up_, -lam_, lam_), sum_);  // minus the dual at the bend
    rest_ = select(closed, V{}, rest_);
    count_ = select(open_, count_, V{});
    start_pieces(closed);
    return active & greater(size_, V{});
  }

  void start_pieces(W where) {
    high_ = select(where, splat(far), high_);
    low_ = select(where, splat(-far), low_);
    length_ = size_;  // unless the string bends
  }

  void log(uint32_t closed, V end) {
    IntVec<float> lane;
    for (int r = 0; r < lanes<float>; ++r) lane[r] = r;
    // The bits of integers, which compress only moves.
    const V entries = (V)((__builtin_convertvector(end, IntVec<float>) << 4) | lane);
    store<float>(entries_ + logged_, compress(closed, entries));
    store<float>(slopes_ + logged_, compress(closed, slope_));
    logged_ += __builtin_popcount(closed);
  }

  void read_log(int* counts) {
    for (int i = 0; i < logged_; ++i) {
      int32_t entry;
      std::memcpy(&entry, entries_ + i, sizeof entry);
      const int lane = entry & 15;
      const int64_t place = int64_t{counts[lane]++} * lanes<float> + lane;
      groups_.values[place] = slopes_[i];
      groups_.ends[place] = static_cast<float>(entry >> 4);
    }
    logged_ = 0;
  }

  const float* x_;
  LaneGroups groups_;
  int32_t origin_[lanes<float>];
  V lam_, size_;                                     // scores from the piece's begin to the chain's end
  V begin_, count_, sum_, rest_;                     // of the piece: how much is read of it, minus its dual
  V high_{}, high_length_{}, low_{}, low_length_{};  // the bounds of its slope, and where they were met
  V length_{}, slope_{};                             // its end
  W open_, up_, unsure_;
  float entries_[log_size + 2 * lanes<float>], slopes_[log_size + 2 * lanes<float>];
  int logged_ = 0;
};

}  // namespace regmax::REGMAX_ISA
