// Total variation in one dimension: z = argmin 1/2 |z - x|^2 + lam sum |z_{i+1} - z_i|, in O(m).
//
// Dynamic programming (Johnson 2013). Let f_i(t) be the least cost of positions 0..i given z_i = t, without
// the edge after i. Its derivative is continuous, increasing and piecewise linear,
//
//     f_i'(t) = clip(f_{i-1}'(t), -lam, lam) + t - x_i,
//
// and z_{i-1} follows from z_i by clipping to [lower_{i-1}, upper_{i-1}], the points where f_{i-1}' is -lam
// and lam. The derivative is kept as its knots in a double-ended queue, each with the change of slope and
// intercept there; clipping pops knots from both ends and pushes one at each, so all the clipping together
// costs O(m).
//
// The taut string (taut_string.hpp) is several times faster on most chains, but not linear on all of them: it
// goes first, and gives up early if it is slow.
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/taut_string.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

struct Line {
  double slope, intercept;  // t -> slope t + intercept

  double at(double t) const { return slope * t + intercept; }
  double root(double level) const { return (level - intercept) / slope; }
};

struct Knot {
  double t;
  Line change;  // right of t minus left of t
};

// A position's pull on its neighbours is clipped: between lower and upper it takes the next position's value.
struct Clip {
  double lower, upper;
};

constexpr int64_t tv_bytes_per_score = 2 * sizeof(Knot) + sizeof(Clip);

// The memory of the dynamic programme for m scores.
struct TvSpace {
  Knot* knots;  // 2 m
  Clip* clips;  // m

  TvSpace(void* memory, int64_t m) : knots(static_cast<Knot*>(memory)), clips(reinterpret_cast<Clip*>(knots + 2 * m)) {}
};

// The derivative of the cost so far as a queue of knots: it equals `first` before the first knot and `last`
// after the last.
class CostDerivative {
 public:
  CostDerivative(Knot* knots, int64_t m) : head_(knots + m), tail_(knots + m) {}

  void add_score(double x, double lam, bool first_score) {
    const double edge = first_score ? 0 : lam;  // a clipped message is -lam far left and lam far right
    first_ = {1, -edge - x};
    last_ = {1, edge - x};
  }

  // Clips to [-lam, lam]: flat outside the two points where those levels are met.
  Clip clip(double lam) {
    Line left = first_;
    while (head_ != tail_ && left.at(head_->t) <= -lam) left = sum(left, (head_++)->change);
    Line right = last_;
    while (head_ != tail_ && right.at(tail_[-1].t) >= lam) right = difference(right, (--tail_)->change);
    const double lower = left.root(-lam);
    const double upper = larger(lower, right.root(lam));
    *--head_ = {lower, {left.slope, left.intercept + lam}};
    *tail_++ = {upper, {-right.slope, lam - right.intercept}};
    return {lower, upper};
  }

  double root() const {
    Line line = first_;
    for (const Knot* knot = head_; knot != tail_ && line.at(knot->t) <= 0; ++knot) line = sum(line, knot->change);
    return line.root(0);
  }

 private:
  static Line sum(Line a, Line b) { return {a.slope + b.slope, a.intercept + b.intercept}; }
  static Line difference(Line a, Line b) { return {a.slope - b.slope, a.intercept - b.intercept}; }

  Knot *head_, *tail_;
  Line first_{}, last_{};
};

// Which positions share their value with the previous one, found backwards from the last.
inline void find_joined(const double* x, int64_t m, double lam, TvSpace space, uint8_t* joined, int8_t* rises) {
  CostDerivative cost(space.knots, m);
  for (int64_t i = 0; i < m; ++i) {
    cost.add_score(x[i], lam, i == 0);
    if (i + 1 < m) space.clips[i] = cost.clip(lam);
  }
  double z = cost.root();
  for (int64_t i = m - 1; i > 0; --i) {
    const Clip clip = space.clips[i - 1];
    rises[i] = static_cast<int8_t>((z > clip.upper) - (z < clip.lower));
    joined[i] = rises[i] == 0;
    z = smaller(larger(z, clip.lower), clip.upper);
  }
  joined[0] = 0;
  rises[0] = 0;
}

// A segment's value is the mean of its scores, pulled by lam towards each neighbouring segment. Computed this
// way, not from the knots, it does not carry their rounding, and it is the same number at every position.
inline void fill_segments(const double* x, int64_t m, double lam, const uint8_t* joined, const int8_t* rises,
                          double* z) {
  for (int64_t begin = 0, end; begin < m; begin = end) {
    double total = x[begin];
    for (end = begin + 1; end < m && joined[end]; ++end) total += x[end];
    const double pull = lam * ((end < m ? rises[end] : 0) - rises[begin]);
    const double value = (total + pull) / static_cast<double>(end - begin);
    for (int64_t i = begin; i < end; ++i) z[i] = value;
  }
}

// Whether the solution is certain: segments differ by more than the margin, in the direction that was found,
// and within a segment the dual, the sum of x - z, stays away from its bounds.
inline bool is_certain(const double* x, const double* z, int64_t m, double lam, double margin, const uint8_t* joined,
                       const int8_t* rises) {
  double dual = 0, size = 0;
  int64_t count = 0;
  for (int64_t i = 0; i + 1 < m; ++i) {
    dual += x[i] - z[i];
    size += std::fabs(x[i]) + std::fabs(z[i]);
    ++count;
    if (!joined[i + 1]) {
      if (!((z[i + 1] - z[i]) * rises[i + 1] > margin)) return false;
      dual = -lam * rises[i + 1];
      size = count = 0;
    } else if (!(std::fabs(dual) < lam - static_cast<double>(count + 8) * 2.3e-16 * (size + lam))) {
      return false;
    }
  }
  return true;
}

// z and joined for one chain of m >= 1 scores; `rises` is scratch for m signs. Returns whether rounding made
// no decision, up to a margin between values.
inline bool prox_tv(const double* x, int64_t m, double lam, double margin, TvSpace space, double* z, uint8_t* joined,
                    int8_t* rises) {
  if (lam == 0) {
    for (int64_t i = 0; i < m; ++i) z[i] = x[i], joined[i] = 0;
    return true;
  }
  double low = x[0], high = x[0];
  for (int64_t i = 1; i < m; ++i) low = smaller(low, x[i]), high = larger(high, x[i]);
  if (lam >= static_cast<double>(m) * (high - low)) {
    // No partial sum of x - mean exceeds lam: one segment. Otherwise rounding of a huge lam would swamp the
    // scores.
    for (int64_t i = 0; i < m; ++i) joined[i] = i > 0, rises[i] = 0;
  } else {
    if (!follow_taut_string(x, m, lam, joined, rises)) find_joined(x, m, lam, space, joined, rises);
  }
  fill_segments(x, m, lam, joined, rises, z);
  return is_certain(x, z, m, lam, margin, joined, rises);
}

}  // namespace regmax::REGMAX_ISA
