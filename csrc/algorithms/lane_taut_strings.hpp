// Taut strings (taut_string.hpp) of long chains, one per lane, in float.
//
// Every lane is at its own position. A round loads the next 16 bytes of every chain, transposes them, and
// steps along; a lane whose piece ends waits for the end of the round, then goes back to where its string
// bent. There is no branch on a lane's values.
//
// Sums are kept in two floats, so that rounding does not accumulate: comparisons are off by a few ulp of a
// piece's sum. If that is not small next to lam, the lane is marked unreliable; such rows take the scalar
// tier.
#pragma once

#include <cstdint>
#include <cstring>

#include "runtime/tuning.hpp"
#include "simd/transpose.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// The groups of lanes<float> chains: group g of chain r at [g * lanes + r].
struct LaneGroups {
  float* values;
  float* ends;

  static constexpr int64_t bytes_per_score = 2 * vector_bytes;

  LaneGroups(void* memory, int64_t d) : values(static_cast<float*>(memory)), ends(values + (d + 1) * lanes<float>) {}
};

// How the lanes' pieces end in one round; the first members are bits of lanes. `gap` is how far the slope stays
// from the nearest bound at a score inside the piece.
struct PieceEnds {
  uint32_t closed, up, unsure;
  Vec<float> length, slope, gap;
};

// The lanes' current pieces. All of it lives in registers.
class LanePieces {
  using V = Vec<float>;
  using W = Where<float>;

 public:
  LanePieces(V sizes, V lam, V margin) : lam_(lam), margin_(margin), size_(sizes) {}

  uint32_t unfinished() const { return bits(greater(size_, V{})); }
  V begin() const { return begin_; }
  V place() const { return begin_ + count_; }

  // Reads a few more scores. Steps after the end of a lane's piece are harmless: only its first end counts.
  REGMAX_INLINE PieceEnds follow(const V (&scores)[piece<float>], uint32_t active) {
    PieceEnds ends{0, 0, 0, size_, V{}, splat(far)};
    W open = from_bits<float>(active), up{};
    for (V x : scores) {
      count_ += 1;
      rest_ += x;
      const W inner = greater(size_, count_);  // the string's end is fixed
      // The dual at the last knot, which sum_ contains, is +-lam or 0: these sums do not round it.
      const V factor = nearly_inverse(count_), width = select(inner, lam_, V{});
      const V upper = (sum_ + width + rest_) * factor, lower = (sum_ - width + rest_) * factor;
      const W rises = open & greater(lower, high_), falls = open & greater(low_, upper);
      const W last = open & ~(rises | falls | inner);
      const V high_gap = smaller(high_ - upper, upper - low_), low_gap = smaller(lower - low_, high_ - lower);
      ends.length = select(rises, high_length_, ends.length);
      ends.length = select(falls, low_length_, ends.length);
      ends.slope = select(rises, high_, ends.slope);
      ends.slope = select(falls, low_, ends.slope);
      ends.slope = select(last, upper, ends.slope);
      ends.gap = select(rises, high_gap_, ends.gap);
      ends.gap = select(falls, low_gap_, ends.gap);
      ends.gap = select(last, high_gap, ends.gap);
      up = up | rises;
      open = open & inner & ~(rises | falls);
      const W stays_high = greater(upper, high_), stays_low = greater(low_, lower);
      high_length_ = select(stays_high, high_length_, count_);
      high_gap_ = select(stays_high, high_gap_, high_gap);
      low_length_ = select(stays_low, low_length_, count_);
      low_gap_ = select(stays_low, low_gap_, low_gap);
      high_ = smaller(upper, high_);
      low_ = larger(lower, low_);
    }
    const V sum = sum_ + rest_, total = ends.slope * ends.length;
    rest_ -= sum - sum_;
    sum_ = sum;
    ends.up = bits(up);
    ends.closed = active & ~bits(open);
    ends.unsure = ends.closed & (bits(greater(larger(total, -total), lam_ * 64)) | ~bits(greater(ends.gap, margin_)));
    return ends;
  }

  // Goes back to where the pieces ended, and begins the next ones. Idle lanes stay where they are.
  REGMAX_INLINE void restart(const PieceEnds& ends, uint32_t active) {
    const W closed = from_bits<float>(ends.closed), open = from_bits<float>(active & ~ends.closed);
    begin_ = add_where(closed, begin_, ends.length);
    size_ = add_where(closed, size_, -ends.length);
    sum_ = select(closed, select(from_bits<float>(ends.up), -lam_, lam_), sum_);  // minus the dual there
    rest_ = select(closed, V{}, rest_);
    count_ = select(open, count_, V{});
    high_ = select(closed, splat(far), high_);
    low_ = select(closed, splat(-far), low_);
  }

 private:
  static constexpr float far = 1e30f;  // no slope yet

  V lam_, margin_, size_;                 // scores from the piece's begin to the chain's end
  V begin_{}, count_{}, sum_{}, rest_{};  // of the piece: what is read of it, minus its dual
  V high_ = splat(far), high_length_{}, low_ = splat(-far), low_length_{};  // its slope's bounds, and where met
  V high_gap_ = splat(far), low_gap_ = splat(far);                          // from the other bounds there
};

class LaneStrings {
  using V = Vec<float>;

 public:
  static constexpr int64_t longest = int64_t{1} << 24;  // places are floats, and shifted integers

  // Chain r begins at x + r stride; a vector after its end may be read.
  LaneStrings(const float* x, int64_t stride, LaneGroups groups) : x_(x), groups_(groups) {
    for (int r = 0; r < lanes<float>; ++r) {
      origin_[r] = static_cast<int32_t>(r * stride);
      lane_[r] = r;
    }
  }

  // Pools chains of the given sizes; counts[r] is the number of groups. Returns the bits of unreliable
  // chains: those that are slow, whose sums are too large, or in which slopes within the margin decided.
  uint32_t run(const float* sizes, const float* lam, const float* margin, int* counts) {
    std::memset(counts, 0, lanes<float> * sizeof(int));
    LanePieces pieces(load(sizes), load(lam), load(margin));
    uint32_t active = pieces.unfinished(), unsure = 0;
    for (int64_t round = 1; active; ++round) {
      V scores[piece<float>];
      read(pieces.place(), scores);
      const PieceEnds ends = pieces.follow(scores, active);
      pieces.restart(ends, active);
      log(ends, pieces.begin());
      if (logged_ > log_size) read_log(counts);
      unsure |= ends.unsure;
      active &= pieces.unfinished() & ~unsure;
      if (round % rounds_between_checks == 0) {
        const uint32_t slow = active & bits(greater(splat(least_progress(round)), pieces.place()));
        unsure |= slow;
        active &= ~slow;
      }
    }
    read_log(counts);
    return unsure;
  }

 private:
  static constexpr int log_size = 256;

  static constexpr int64_t rounds_between_checks = 8;

  // Where a lane must have arrived, for `lane_readings` readings of every score.
  static float least_progress(int64_t round) {
    return static_cast<float>(round * piece<float> - first_lane_readings) / static_cast<float>(lane_readings);
  }

  REGMAX_INLINE void read(V place, V (&scores)[piece<float>]) {
    const IntVec<float> at = load_integers<float>(origin_) + __builtin_convertvector(place, IntVec<float>);
    std::memcpy(places_, &at, sizeof at);
    for (int j = 0; j < piece<float>; ++j)
      scores[j] = join_pieces<float>([&](int i) { return x_ + places_[j + i * piece<float>]; });
    transpose_pieces(scores);
  }

  REGMAX_INLINE void log(const PieceEnds& ends, V end) {
    // compress moves the bits of integers.
    const V entries = (V)((__builtin_convertvector(end, IntVec<float>) << 4) | load_integers<float>(lane_));
    store<float>(entries_ + logged_, compress(ends.closed, entries));
    store<float>(slopes_ + logged_, compress(ends.closed, ends.slope));
    logged_ += __builtin_popcount(ends.closed);
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
  Int<float> origin_[lanes<float>], lane_[lanes<float>], places_[lanes<float>];
  float entries_[log_size + 2 * lanes<float>], slopes_[log_size + 2 * lanes<float>];
  int logged_ = 0;
};

}  // namespace regmax::REGMAX_ISA
