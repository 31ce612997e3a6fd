// The piecewise linear mappings in exact arithmetic, for rows in which rounding would make a decision: a
// score at the threshold, segments that just touch, clusters that just join.
//
// Scores are integers relative to the largest (integers.hpp), gamma and gamma lam too. Pooling gives groups
// of candidates, each with the sum of its pooled scores; a comparison of means is the sign of a product of
// sums and counts. Weights are rounded once, in the end.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <type_traits>

#include "algorithms/integers.hpp"

namespace regmax::REGMAX_ISA {

// Memory for a row. Few candidates need no allocation; many are rare.
template <class Item>
class Items {
 public:
  explicit Items(int64_t size) {
    const auto count = static_cast<std::size_t>(size);
    items_ = count * sizeof(Item) <= sizeof few_ ? new (few_) Item[count] : new (std::nothrow) Item[count];
  }
  ~Items() {
    if (static_cast<void*>(items_) != few_) delete[] items_;
  }
  Items(const Items&) = delete;
  Items& operator=(const Items&) = delete;

  bool failed() const { return !items_; }
  Item* begin() { return items_; }
  Item& operator[](int64_t i) { return items_[i]; }
  const Item& operator[](int64_t i) const { return items_[i]; }

 private:
  static_assert(std::is_trivially_destructible_v<Item>);
  alignas(16) char few_[2048];
  Item* items_;
};

// The candidates of a row as a mapping hands them over.
struct ExactScores {
  const double* x;  // scores, neither shifted nor scaled
  int64_t m;
  double top, lam, gamma;
};

template <class Int>
struct ExactGroup {
  Int sum;
  int64_t count;
};

// The sign of mean(a) - mean(b).
template <class Int>
inline int compare_means(const ExactGroup<Int>& a, const ExactGroup<Int>& b) {
  return sign(times(a.sum, b.count) - times(b.sum, a.count));
}

// Joins equal neighbours.
template <class Int>
inline int64_t join_equal(ExactGroup<Int>* groups, int64_t begin, int64_t end) {
  int64_t count = begin + 1;
  for (int64_t g = begin + 1; g < end; ++g) {
    if (compare_means(groups[count - 1], groups[g]) == 0) {
      groups[count - 1] = {groups[count - 1].sum + groups[g].sum, groups[count - 1].count + groups[g].count};
    } else {
      groups[count++] = groups[g];
    }
  }
  return count;
}

// The taut string (taut_string.hpp) of one chain, as a funnel: from the last fixed knot, the apex, to the
// newest point, the tube's upper edge has a convex minorant and its lower edge a concave majorant. A point of
// one that crosses the other's first side fixes that side. Every point is added and removed once: O(m).
template <class Int>
class ExactString {
 public:
  explicit ExactString(int64_t m) : sums_(m + 1), upper_(m + 2), lower_(m + 2) {}
  bool failed() const { return sums_.failed() || upper_.failed() || lower_.failed(); }

  // Appends the chain's groups and returns their number.
  int64_t pool(const Int* x, int64_t m, Int lam, ExactGroup<Int>* groups) {
    lam_ = lam;
    apex_ = {0, Int{}};
    groups_ = groups;
    count_ = 0;
    sums_[0] = Int{};
    for (int64_t k = 0; k < m; ++k) sums_[k + 1] = sums_[k] + x[k];
    clear(upper_, upper_head_, upper_tail_);
    clear(lower_, lower_head_, lower_tail_);
    for (int64_t k = 1; k < m; ++k) {
      add({k, sums_[k] + lam_}, 1, upper_, &upper_head_, &upper_tail_, lower_, &lower_head_, &lower_tail_);
      add({k, sums_[k] - lam_}, -1, lower_, &lower_head_, &lower_tail_, upper_, &upper_head_, &upper_tail_);
    }
    add({m, sums_[m]}, 1, upper_, &upper_head_, &upper_tail_, lower_, &lower_head_, &lower_tail_);
    for (int64_t i = upper_head_ + 1; i < upper_tail_; ++i) fix(upper_[i]);
    return join_equal(groups, 0, count_);
  }

 private:
  struct Point {
    int64_t k;
    Int height;
  };

  void clear(Items<Point>& side, int64_t& head, int64_t& tail) {
    head = 0;
    tail = 1;
    side[0] = apex_;
  }

  // The sign of slope(a, b) - slope(b, c).
  static int bend(const Point& a, const Point& b, const Point& c) {
    return sign(times(b.height - a.height, c.k - b.k) - times(c.height - b.height, b.k - a.k));
  }

  // Adds a point to one side of the funnel; `up` is 1 for the upper side.
  void add(Point point, int up, Items<Point>& side, int64_t* head, int64_t* tail, Items<Point>& other,
           int64_t* other_head, int64_t* other_tail) {
    while (*tail - *head > 1 && up * bend(side[*tail - 2], side[*tail - 1], point) >= 0) --*tail;
    if (*tail - *head == 1) {
      // The point sees the apex: it may lie beyond the other side's first edges, which are then fixed.
      while (*other_tail - *other_head > 1 && up * bend(apex_, other[*other_head + 1], point) > 0) {
        ++*other_head;
        fix(other[*other_head]);
        side[*head] = apex_;
      }
    }
    side[(*tail)++] = point;
  }

  void fix(Point knot) {
    groups_[count_++] = {knot.height - apex_.height, knot.k - apex_.k};
    apex_ = knot;
  }

  Items<Int> sums_;
  Items<Point> upper_, lower_;
  int64_t upper_head_ = 0, upper_tail_ = 0, lower_head_ = 0, lower_tail_ = 0;
  Point apex_{};
  Int lam_{};
  ExactGroup<Int>* groups_ = nullptr;
  int64_t count_ = 0;
};

// Nonincreasing isotonic regression: appends a score to groups with falling means; returns their number.
template <class Int>
inline int64_t push_group(ExactGroup<Int>* groups, int64_t count, ExactGroup<Int> group) {
  for (; count > 0 && compare_means(groups[count - 1], group) <= 0; --count) {
    group = {groups[count - 1].sum + group.sum, groups[count - 1].count + group.count};
  }
  groups[count] = group;
  return count + 1;
}

// The scores of one row as integers.
template <class Int>
class ExactRow {
 public:
  ExactRow(const ExactScores& scores, int unit) : scores_(scores), unit_(unit), x_(scores.m), groups_(scores.m) {
    if (failed()) return;
    const Int top = integer(Dyadic::of(scores.top));
    gamma_ = integer(Dyadic::of(scores.gamma));
    lam_ = integer(Dyadic::of(scores.gamma) * Dyadic::of(scores.lam));
    for (int64_t k = 0; k < scores.m; ++k) x_[k] = integer(Dyadic::of(scores.x[k])) - top;
  }

  bool failed() const { return x_.failed() || groups_.failed(); }

  // --- Pooling, each to `count_` groups ---

  void pool_nothing() {
    for (int64_t k = 0; k < scores_.m; ++k) groups_[k] = {x_[k], 1};
    count_ = scores_.m;
  }

  // Chains of candidates; `edges(k)` has bit 0 if candidate k begins a chain, bits 1 and 2 if a score without
  // weight precedes or follows it.
  template <class Edges>
  bool pool_chains(const Edges& edges) {
    ExactString<Int> string(scores_.m);
    if (string.failed()) return false;
    for (int64_t begin = 0, end; begin < scores_.m; begin = end) {
      for (end = begin + 1; end < scores_.m && !(edges(end) & 1); ++end) {
      }
      if (edges(begin) & 2) x_[begin] = x_[begin] - lam_;
      if (edges(end - 1) & 4) x_[end - 1] = x_[end - 1] - lam_;
      count_ += string.pool(x_.begin() + begin, end - begin, lam_, groups_.begin() + count_);
    }
    return true;
  }

  // Scores sorted decreasingly, less gamma lam (m - 1 - k) up to a shift.
  void pool_sorted() {
    for (int64_t k = 0; k < scores_.m; ++k)
      count_ = push_group(groups_.begin(), count_, {x_[k] - times(lam_, scores_.m - 1 - k), 1});
  }

  // --- Results: a number for each candidate, in the order of the groups ---

  void write_weights(double* y) {
    const ExactGroup<Int> support = find_support();
    int64_t k = 0;
    for (int64_t g = 0; g < count_; ++g) {
      const ExactGroup<Int>& group = groups_[g];
      const Int excess = times(group.sum, support.count) - times(support.sum, group.count);
      const Scaled scaled = to_scaled(excess);
      const double size = static_cast<double>(group.count) * static_cast<double>(support.count);
      const double weight = std::ldexp(scaled.fraction / size / scores_.gamma, scaled.exponent + unit_);
      for (const int64_t end = k + group.count; k < end; ++k) y[k] = sign(excess) > 0 ? weight : 0;
    }
  }

  // The pooled scores themselves, negative ones as zero if `clamped`.
  void write_means(double* z, bool clamped) const {
    int64_t k = 0;
    for (int64_t g = 0; g < count_; ++g) {
      const Scaled scaled = to_scaled(groups_[g].sum);
      const double size = static_cast<double>(groups_[g].count) * scores_.gamma;
      const double mean = std::ldexp(scaled.fraction / size, scaled.exponent + unit_);
      const double value = (clamped && mean < 0) || mean == 0 ? 0 : mean;
      for (const int64_t end = k + groups_[g].count; k < end; ++k) z[k] = value;
    }
  }

 private:
  Int integer(Dyadic number) const {
    Int result;
    from_dyadic(number, unit_, &result);
    return result;
  }

  // Michelot's rounds (simplex.hpp): the groups above the threshold, (sum - gamma) / count, of those before.
  ExactGroup<Int> find_support() const {
    ExactGroup<Int> support = total_above(nullptr);
    for (;;) {
      const ExactGroup<Int> fewer = total_above(&support);
      if (fewer.count == support.count) return support;
      support = fewer;
    }
  }
  ExactGroup<Int> total_above(const ExactGroup<Int>* threshold) const {
    ExactGroup<Int> total{Int{} - gamma_, 0};
    for (int64_t g = 0; g < count_; ++g) {
      if (threshold && compare_means(groups_[g], *threshold) <= 0) continue;
      total = {total.sum + groups_[g].sum, total.count + groups_[g].count};
    }
    return total;
  }

  const ExactScores& scores_;
  int unit_;
  Items<Int> x_;
  Items<ExactGroup<Int>> groups_;
  Int gamma_{}, lam_{};
  int64_t count_ = 0;
};

template <class Int, class Solve>
inline bool with_row(const ExactScores& scores, int unit, const Solve& solve) {
  ExactRow<Int> row(scores, unit);
  return !row.failed() && solve(row);
}

// Calls solve(row) with the smallest integers that hold the row. Returns false if there is no memory or solve
// says so: then the rounded result stands.
template <class Solve>
inline bool with_exact_row(const ExactScores& scores, const Solve& solve) {
  Unit unit;
  const Dyadic gamma = Dyadic::of(scores.gamma), lam = Dyadic::of(scores.lam);
  unit.add(gamma);
  unit.add(gamma * lam);
  unit.add(Dyadic::of(scores.top));
  for (int64_t k = 0; k < scores.m; ++k) unit.add(Dyadic::of(scores.x[k]));
  int length_bits = 1;
  while (scores.m >> length_bits) ++length_bits;
  const int needed = unit.bits() + 3 * length_bits + 4;  // of lam m, summed, multiplied by a count
  if (needed <= 63) return with_row<int64_t>(scores, unit.exponent(), solve);
  if (needed <= 127) return with_row<Int128>(scores, unit.exponent(), solve);
  return needed < WideInteger::bits && with_row<WideInteger>(scores, unit.exponent(), solve);
}

// The same in twofold doubles, for rows in which everything was decided in double already.
template <class Solve>
inline bool with_accurate_row(const ExactScores& scores, const Solve& solve) {
  return with_row<Twofold>(scores, 0, solve);
}

}  // namespace regmax::REGMAX_ISA
