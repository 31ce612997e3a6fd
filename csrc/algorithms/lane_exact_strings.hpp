// Taut strings (taut_string.hpp) of long chains, one per lane, in double, without rounding errors in any
// decision: sums are s + q lam with integers q (exact_sums.hpp). Every lane is at its own position, as in
// lane_taut_strings.hpp.
#pragma once

#include <cstdint>
#include <cstring>

#include "algorithms/exact_sums.hpp"
#include "runtime/tuning.hpp"
#include "simd/reduce.hpp"
#include "simd/transpose.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// The current pieces of lanes<double> strings.
class ExactPieces {
  using V = Vec<double>;
  using W = Where<double>;

 public:
  ExactPieces(V sizes, V lam) : lam_(lam), size_(sizes) {}

  uint32_t unfinished() const { return bits(greater(size_, V{})); }
  V begin() const { return begin_; }
  V place() const { return begin_ + n_; }

  // Reads a few more scores. Steps after the end of a lane's piece are harmless: only its first end counts. `closed`
  // are the lanes whose piece has ended, with this sum.
  template <int steps>
  REGMAX_INLINE ExactSum follow(const V* scores, uint32_t active, uint32_t* closed) {
    const V one = splat(1.0), zero{};
    W open = from_bits<double>(active);
    ExactSum end{};
    for (int j = 0; j < steps; ++j) {
      n_ += 1;
      s_ += scores[j];
      const W inner = greater(size_, n_);  // the string's end is fixed
      const V capacity = select(inner, one, zero), up = q_ + capacity, down = q_ - capacity;
      const V over = s_ * high_.n - high_.s * n_, under = s_ * low_.n - low_.s * n_;
      const W rises = open & greater(times_lam(down * high_.n - high_.q * n_, over), zero);
      const W falls = open & greater(zero, times_lam(up * low_.n - low_.q * n_, under));
      const W goes_on = inner & ~(rises | falls);
      end = choose(rises, high_, end);
      end = choose(falls, low_, end);
      end = choose(open & ~(inner | rises | falls), {s_, q_, n_}, end);
      up_ = select(rises, one, up_);
      up_ = select(falls, -one, up_);
      open = open & goes_on;
      high_ = choose(greater(times_lam(up * high_.n - high_.q * n_, over), zero), high_, {s_, up, n_});
      low_ = choose(greater(zero, times_lam(down * low_.n - low_.q * n_, under)), low_, {s_, down, n_});
    }
    *closed = active & ~bits(open);
    return end;
  }

  // Goes back to where the pieces ended, and begins the next ones. Idle lanes stay where they are.
  REGMAX_INLINE void restart(const ExactSum& end, uint32_t closed, uint32_t active) {
    const W ended = from_bits<double>(closed), open = from_bits<double>(active & ~closed);
    const V one = splat(1.0), zero{};
    begin_ = add_where(ended, begin_, end.n);
    size_ = add_where(ended, size_, -end.n);
    q_ = select(ended, -up_, q_);
    s_ = select(ended, zero, s_);
    n_ = select(open, n_, zero);
    high_ = choose(ended, {one, zero, zero}, high_);
    low_ = choose(ended, {-one, zero, zero}, low_);
  }

 private:
  V times_lam(V q, V s) const { return exact_times_plus(q, lam_, s); }

  V lam_, size_;                 // scores from the piece's begin to the string's end
  V begin_{}, n_{}, s_{}, q_{};  // of the piece: what is read of it
  V up_{};                       // the dual where the last piece ended, in lam
  ExactSum high_{splat(1.0), V{}, V{}}, low_{splat(-1.0), V{}, V{}};  // the piece's bounds: infinite
};

// The pieces of the strings of lanes<float> rows, those of row r from r * stride on.
struct StringPieces {
  double* sums;    // of scores
  int32_t* codes;  // 8 end + q + 2: where the piece ends, and q
  int64_t sums_stride, codes_stride;
  int counts[lanes<float>];

  static int64_t end_of(int32_t code) { return code >> 3; }
  static double q_of(int32_t code) { return static_cast<double>((code & 7) - 2); }
};

class LaneExactStrings {
  using V = Vec<double>;

 public:
  static constexpr int64_t longest = int64_t{1} << 24;  // codes are 32 bits

  // Row r begins at x + r stride; a vector after its end may be read.
  LaneExactStrings(const float* x, int64_t stride, StringPieces* out) : x_(x), stride_(stride), out_(out) {
    for (int i = 0; i < lanes<double>; ++i) lane_[i] = i;
  }

  // Follows the strings of rows with these sizes, which are zero for none. Returns the rows that are slow: their pieces
  // are not complete.
  uint32_t run(const double* sizes, const double* lam) {
    ExactPieces pieces[2] = {{load(sizes), load(lam)}, {load(sizes + half), load(lam + half)}};
    std::memset(out_->counts, 0, sizeof out_->counts);
    const auto unfinished = [&] { return pieces[0].unfinished() | pieces[1].unfinished() << half; };
    uint32_t active = unfinished(), slow = 0;
    int64_t readings = 0;
    bool is_short = false;  // pieces of one or two scores: fewer steps are wasted after their ends
    for (int64_t round = 1; active; ++round) {
      V scores[2][piece<float>];
      read(pieces, scores);
      readings += is_short ? 2 : piece<float>;
      const uint32_t closed =
          is_short ? follow<2>(pieces, scores, active) : follow<piece<float>>(pieces, scores, active);
      is_short = 2 * __builtin_popcount(closed) > __builtin_popcount(active);
      if (logged_ > log_size) read_log();
      active &= unfinished();
      if (round % rounds_between_checks == 0) {
        const V least = splat(static_cast<double>(readings - first_exact_readings) / exact_readings);
        for (int h = 0; h < 2; ++h)
          slow |= (active >> (h * half) & bits(greater(least, pieces[h].place()))) << (h * half);
        active &= ~slow;
      }
    }
    read_log();
    return slow;
  }

 private:
  static constexpr int half = lanes<double>, log_size = 256;
  static constexpr int64_t rounds_between_checks = 8;

  // Returns the lanes whose pieces ended.
  template <int steps>
  REGMAX_INLINE uint32_t follow(ExactPieces* pieces, const V (&scores)[2][piece<float>], uint32_t active) {
    uint32_t all = 0;
    for (int h = 0; h < 2; ++h) {
      const uint32_t own = active >> (h * half) & all_lanes<double>;
      uint32_t closed;
      const ExactSum end = pieces[h].follow<steps>(scores[h], own, &closed);
      pieces[h].restart(end, closed, own);
      log(h, end, pieces[h].begin(), closed);
      all |= closed << (h * half);
    }
    return all;
  }

  REGMAX_INLINE void read(const ExactPieces* pieces, V (&scores)[2][piece<float>]) {
    for (int h = 0; h < 2; ++h)
      store_integers<double>(places_ + h * half, __builtin_convertvector(pieces[h].place(), IntVec<double>));
    Vec<float> together[piece<float>];
    for (int j = 0; j < piece<float>; ++j) {
      together[j] = join_pieces<float>([&](int i) {
        const int r = j + i * piece<float>;
        return x_ + r * stride_ + places_[r];
      });
    }
    transpose_pieces(together);
    for (int j = 0; j < piece<float>; ++j) {
      V wide[2];
      widen(together[j], wide);
      for (int h = 0; h < 2; ++h) scores[h][j] = wide[h];
    }
  }

  REGMAX_INLINE void log(int h, const ExactSum& end, V place, uint32_t closed) {
    const IntVec<double> q = __builtin_convertvector(end.q, IntVec<double>) + 2;
    const IntVec<double> codes = __builtin_convertvector(place, IntVec<double>) << 3 | q;
    // compress moves the bits of integers.
    const V entries = (V)(codes << 4 | (load_integers<double>(lane_) + h * half));
    store<double>(entries_ + logged_, compress(closed, entries));
    store<double>(sums_ + logged_, compress(closed, end.s));
    logged_ += __builtin_popcount(closed);
  }

  void read_log() {
    for (int i = 0; i < logged_; ++i) {
      int64_t entry;
      std::memcpy(&entry, entries_ + i, sizeof entry);
      const int r = static_cast<int>(entry & 15), count = out_->counts[r]++;
      out_->sums[r * out_->sums_stride + count] = sums_[i];
      out_->codes[r * out_->codes_stride + count] = static_cast<int32_t>(entry >> 4);
    }
    logged_ = 0;
  }

  const float* x_;
  int64_t stride_;
  StringPieces* out_;
  Int<double> lane_[lanes<double>], places_[lanes<float>];
  double entries_[log_size + 4 * lanes<double>], sums_[log_size + 4 * lanes<double>];
  int logged_ = 0;
};

}  // namespace regmax::REGMAX_ISA
