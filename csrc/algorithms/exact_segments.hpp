// fusedmax of rows of which the candidates are known, in double: nothing is decided by rounding.
//
// A row is shortened: every run of scores that are no candidates becomes one separator, low enough to stay below the
// threshold tau with what its neighbours lend it, 2 lam: then its edges pull its neighbours in full, as those of the
// run do. tau is at least the largest score less gamma and 2 lam. The pieces of the shortened row's taut string are the
// segments (lane_exact_strings.hpp), of which Michelot's rounds (simplex.hpp) find the support.
//
// Rows whose scores fit a DoubleGrid are solved exactly. In others every decision has to be clear by more than rounding
// can change: the string keeps away from the tube inside its pieces, their slopes from each other and from tau.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "algorithms/exact_sums.hpp"
#include "algorithms/lane_exact_strings.hpp"
#include "algorithms/workspace.hpp"
#include "simd/bitset.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

class ExactSegments {
  using V = Vec<double>;

 public:
  explicit ExactSegments(const Workspace& w) : w_(w), x_(static_cast<float*>(w.terms)), stride_(w.copy_stride) {
    pieces_.sums = static_cast<double*>(w.groups);
    pieces_.codes = static_cast<int32_t*>(w.changes);
    pieces_.sums_stride = w.d + 1;
    pieces_.codes_stride = stride_;
  }

  // Row r of the next call of follow(), with the bits of its candidates, which become those of the shortened row. False
  // if lam, the penalty times gamma, is rounded.
  bool add(int r, const float* x, int64_t length, uint64_t* words, double penalty, double gamma) {
    const double lam = penalty * gamma;
    if (std::fma(penalty, gamma, -lam) != 0 || length > LaneExactStrings::longest) return false;
    const int64_t count = shorten(x, length, words, row(r));
    words_[r] = words;
    lam_[r] = lam;
    gamma_[r] = gamma;
    sizes_[r] = static_cast<double>(count);
    separate(r, count);
    return true;
  }

  // Returns the rows whose strings were followed to their ends.
  uint32_t follow(uint32_t rows) {
    for (int r = 0; r < lanes<float>; ++r) {
      if (!(rows >> r & 1)) sizes_[r] = 0;
    }
    return rows & ~LaneExactStrings(x_, stride_, &pieces_).run(sizes_, lam_);
  }

  // The weights of a row; false if rounding may have decided something.
  bool settle(int r) {
    load_pieces(r);
    find_support(r);
    return on_grid_[r] || is_clear(r);
  }

  // Calls visit(begin, end, weight, repeats) for every segment of the row that was settled last; `repeats` says that
  // the previous segment has the same weight.
  template <class Visit>
  REGMAX_INLINE void each_segment(int r, int64_t length, const Visit& visit) const {
    const uint64_t* const words = words_[r];
    const int32_t* const codes = codes_of(r);
    const int pieces = pieces_.counts[r];
    float before = -1;
    int64_t begin = 0, word = 0, passed = 0, in_word = __builtin_popcountll(words[0]);
    for (int g = 0; g < pieces; ++g) {
      int64_t end = length;
      if (g + 1 < pieces) {
        const int64_t score = StringPieces::end_of(codes[g]);  // the first of the next piece, in the shortened row
        while (score >= passed + in_word) {
          passed += in_word;
          in_word = __builtin_popcountll(words[++word]);
        }
        end = 64 * word + __builtin_ctzll(expand_bits(uint64_t{1} << (score - passed), words[word]));
      }
      const auto weight = static_cast<float>(y()[g]);
      visit(begin, end, weight, weight == before);
      before = weight;
      begin = end;
    }
  }

 private:
  // Of the row that is settled: its pieces' sums, and their weights.
  double* s() const { return w_.space; }
  double* q() const { return w_.v; }
  double* n() const { return w_.x; }
  double* y() const { return w_.y; }
  float* row(int r) const { return x_ + r * stride_; }
  const int32_t* codes_of(int r) const { return pieces_.codes + r * pieces_.codes_stride; }
  ExactSum piece_at(int64_t g) const { return {load(s() + g), load(q() + g), load(n() + g)}; }

  // The candidates, and `nothing` for every run of other scores; returns how many they are.
  static int64_t shorten(const float* x, int64_t length, uint64_t* words, float* shortened) {
    int64_t count = 0;
    uint64_t before = 1;  // whether the last score was a candidate; a run at the row's begin needs a separator, too
    for (int64_t i = 0; i < length; i += 64) {
      const uint64_t candidates = words[i / 64];
      const int64_t left = length - i;
      const uint64_t inside = left < 64 ? ~(~uint64_t{0} << left) : ~uint64_t{0};
      const uint64_t separators = ~candidates & (candidates << 1 | before) & inside;
      before = candidates >> 63;
      words[i / 64] = candidates | separators;
      for (int c = 0; c < 64 && c < left; c += lanes<float>) {
        const Vec<float> v = load_left(x + i + c, left - c, 0.0f);
        const Where<float> separates = from_bits<float>(lanes_of<float>(separators, c));
        count += append<float>(shortened + count, lanes_of<float>(candidates | separators, c),
                               select(separates, splat(nothing<float>), v));
      }
    }
    return count;
  }

  // Gives the separators their score, and finds out whether the row fits a grid.
  void separate(int r, int64_t count) {
    const Vec<float> none = splat(nothing<float>);
    Vec<float> top = none, extent{};
    for (int64_t k = 0; k < count; k += lanes<float>) {
      const Vec<float> v = load_left(row(r) + k, count - k, nothing<float>);
      top = larger(v, top);
      extent = larger(select(greater(v, none), absolute<float>(v), Vec<float>{}), extent);
    }
    const double lowest = static_cast<double>(max_lanes<float>(top)) - gamma_[r] - 4 * lam_[r];
    // Few digits: multiples of a large power of two.
    int exponent;
    std::frexp(lowest, &exponent);
    const double unit = std::ldexp(1, exponent - 8);
    const double separator = std::floor(lowest / unit) * unit;
    size_[r] = std::max({static_cast<double>(max_lanes<float>(extent)), gamma_[r], std::fabs(separator)});
    const DoubleGrid grid(size_[r], count);
    bool fits = grid.has(gamma_[r]) && grid.has(separator);
    uint32_t rounded = 0;
    for (int64_t k = 0; k < count; k += lanes<float>) {
      Vec<float> v = load_left(row(r) + k, count - k, 0.0f);
      v = select(equal(v, none), splat(static_cast<float>(separator)), v);
      store<float>(row(r) + k, v);
      V wide[2];
      widen(v, wide);
      for (const V& w : wide) rounded |= ~bits(grid.has(w)) & all_lanes<double>;
    }
    on_grid_[r] = fits && !rounded;
  }

  void load_pieces(int r) {
    const int32_t* const codes = codes_of(r);
    const double* const sums = pieces_.sums + r * pieces_.sums_stride;
    const int64_t count = pieces_.counts[r];
    int64_t begin = 0;
    for (int64_t g = 0; g < count; ++g) {
      const int64_t end = StringPieces::end_of(codes[g]);
      s()[g] = sums[g];
      q()[g] = StringPieces::q_of(codes[g]);
      n()[g] = static_cast<double>(end - begin);
      begin = end;
    }
    for (int64_t g = count; g < count + lanes<double>; ++g) s()[g] = -1e300, q()[g] = 0, n()[g] = 1;
  }

  void find_support(int r) {
    const int64_t count = pieces_.counts[r];
    const V lam = splat(lam_[r]), zero{};
    support_ = total(count, r, [&](const ExactSum& piece) { return greater(piece.s, splat(-1e299)); });
    for (double before = HUGE_VAL; before > support_.n[0];) {
      before = support_.n[0];
      const ExactSum bound = support_;
      support_ = total(count, r, [&](const ExactSum& piece) { return greater(difference(piece, bound, lam), zero); });
    }
    const V scale = support_.n * splat(gamma_[r]);
    for (int64_t g = 0; g < count; g += lanes<double>) {
      const ExactSum piece = piece_at(g);
      store<double>(y() + g, larger(difference(piece, support_, lam), zero) / (piece.n * scale));
    }
    // Equal means of different sizes may be rounded differently.
    for (int64_t g = 1; g < count; ++g) {
      const double step = y()[g] - y()[g - 1];
      if (step != 0 && std::fabs(step) <= 1e-15 * y()[g] && are_equal(g, r)) y()[g] = y()[g - 1];
    }
  }

  bool are_equal(int64_t g, int r) const {
    const double p = s()[g] * n()[g - 1] - s()[g - 1] * n()[g], d = q()[g] * n()[g - 1] - q()[g - 1] * n()[g];
    return std::fma(d, lam_[r], p) == 0;
  }

  template <class Above>
  ExactSum total(int64_t count, int r, const Above& above) const {
    ExactSum sum{};
    for (int64_t g = 0; g < count; g += lanes<double>) {
      const ExactSum piece = piece_at(g);
      const Where<double> counts = above(piece);
      sum = {add_where(counts, sum.s, piece.s), add_where(counts, sum.q, piece.q), add_where(counts, sum.n, piece.n)};
    }
    return {splat(sum_lanes(sum.s) - gamma_[r]), splat(sum_lanes(sum.q)), splat(sum_lanes(sum.n))};
  }

  // Whether every decision is clear of rounding: the dual inside the pieces, their slopes, and the threshold.
  bool is_clear(int r) const {
    const int64_t count = pieces_.counts[r];
    const double sums = sizes_[r] * size_[r] * 0x1p-48, slopes = sums, duals = sizes_[r] * sums;
    const double lam = lam_[r], tau = (support_.s[0] + support_.q[0] * lam) / support_.n[0];
    const float* x = row(r);
    double dual = 0, before = HUGE_VAL;
    for (int64_t g = 0; g < count; ++g) {
      const double z = (s()[g] + q()[g] * lam) / n()[g];
      if (!(std::fabs(z - before) > slopes && std::fabs(z - tau) > slopes)) return false;
      before = z;
      const float* const end = x + static_cast<int64_t>(n()[g]);
      double inside = dual, largest = 0;
      for (; x + 1 < end; ++x) {
        inside += static_cast<double>(*x) - z;
        largest = std::max(std::fabs(inside), largest);
      }
      ++x;
      if (!(largest < lam - duals)) return false;
      dual -= q()[g] * lam;
    }
    return true;
  }

  const Workspace& w_;
  float* x_;
  int64_t stride_;
  StringPieces pieces_;
  const uint64_t* words_[lanes<float>] = {};
  double sizes_[lanes<float>] = {}, lam_[lanes<float>] = {}, gamma_[lanes<float>] = {};
  double size_[lanes<float>] = {};  // of the largest number
  bool on_grid_[lanes<float>] = {};
  ExactSum support_;
};

}  // namespace regmax::REGMAX_ISA
