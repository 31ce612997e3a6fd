// What the tiers in rows/ hand to a mapping, and the parts that several mappings share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "algorithms/exact.hpp"
#include "algorithms/powers.hpp"
#include "algorithms/simplex.hpp"
#include "algorithms/workspace.hpp"
#include "runtime/tuning.hpp"
#include "simd/candidates.hpp"
#include "simd/reduce.hpp"

namespace regmax::REGMAX_ISA {

// Which weights a mapping joins, that is, gives one common value; the meaning of the bits `joined`.
enum class Joins {
  nothing,
  neighbours,  // segments: the bit says that a weight shares its segment with the kept position before it
  anywhere     // clusters: the bit says that a weight may have others equal to it
};

// How a mapping solves whole rows, several at a time (rows/whole_rows.hpp).
enum class Whole { no, by_moments, by_segments, by_powers };

// --- The lane tier: one row per lane ---

// How many candidates, or weights in a Jacobian product, a row of a mapping has there at most.
template <class Mapping, class = void>
constexpr int lane_candidates = max_candidates;
template <class Mapping>
constexpr int lane_candidates<Mapping, std::void_t<decltype(Mapping::most_candidates)>> = Mapping::most_candidates;

template <class T>
struct LaneProblem {
  Vec<T> x[many_candidates];  // candidate k of every row relative to its maximum, `nothing` after the last
  int count;                  // columns in use
  int counts[lanes<T>];       // candidates of each row
  Vec<T> theta, lengths;
  int maxima;   // how many maxima of each row the cut is found from
  Vec<T> cuts;  // every score above the cut is a candidate
};

// One row after screening.
template <class T>
struct ScreenedRow {
  const T* x;
  int64_t length;
  T top, theta;
  const uint64_t* words;  // the bits of the candidates
  int count;
  bool may_have_deleted;  // false if no score is -inf
  T gamma;                // of the scores: a cut of the divided scores is multiplied by it
  T error;                // how far x may be from the scores, candidates excepted

  // No score above `level`, relative to the top, has its x at or below this.
  T lowest(T level) const {
    const T size = (top < 0 ? -top : top) + (level < 0 ? -level : level);
    return error > 0 ? level - error - 16 * rounding<T> * size : level;
  }
};

// A mapping whose lanes need no facts about a row but its candidates.
template <class T>
struct PlainLanes {
  Cut<T> row_cut(int, T cut, T, bool) const { return Cut<T>(cut); }
  bool add_row(int, const ScreenedRow<T>&) { return true; }
  uint64_t joined(int, const T*) const { return 0; }
};

// --- The scalar tier: one row, in double ---

// How far rounding may move the mean of some of m numbers of the given size. Decisions by less than this are
// left to exact arithmetic.
inline double doubt(int64_t m, double size) { return static_cast<double>(m + 32) * 2.3e-16 * size; }

// A row of m >= 1 finite scores without gaps. A mapping chooses candidates, whose scores relative to the
// maximum, in units of gamma, are then w.x and whose bits are w.chosen, and writes their weights to w.y.
template <class T>
class ScalarRow {
 public:
  ScalarRow(const T* scores, int64_t size, double gamma_, Workspace& workspace)
      : x(scores), m(size), gamma(gamma_), w(workspace), top(max_lanes<T>(lane_maxima(scores, size))) {}

  // The scores above the (negative) bound become the candidates. Rounding may add some, but misses none.
  void choose_above(double bound) {
    constexpr double largest = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min();
    const double cut = smaller(bound * gamma * (1 + 8 * static_cast<double>(rounding<T>)), -least);
    if (!(cut > -largest / 2)) return choose_all();
    count = find_candidates(x, m, top, Cut<T>(static_cast<T>(cut)), m, candidates(), w.chosen);
    if (count < m) compact_row(x, w.chosen, m, candidates());
    read_candidates();
  }

  void choose_all() {
    set_all(w.chosen, m);
    count = m;
    read_candidates();
  }

  // Those with bits in `words`.
  void choose_words(const uint64_t* words) {
    std::copy_n(words, words_of(m), w.chosen);
    count = compact_row(x, words, m, candidates());
    read_candidates();
  }

  // All scores, as they are: for proximal operators, which have no threshold.
  void choose_unshifted() {
    choose_unread();
    for (int64_t i = 0; i < m; ++i) w.x[i] = static_cast<double>(x[i]) / gamma;
  }

  // All scores, for a solver that reads them itself.
  void choose_unread() {
    set_all(w.chosen, m);
    count = m;
  }

  // The candidates' scores as the row has them.
  const T* chosen_scores() const { return count < m ? candidates() : x; }

  // y = (z - tau)_+ for z with maximum 0; returns whether no z is as close to tau as `margin`.
  bool project(const double* z, double margin) {
    const double tau = simplex_threshold(z, count, w.space);
    double nearest = HUGE_VAL;
    for (int64_t k = 0; k < count; ++k) {
      nearest = smaller(nearest, std::fabs(z[k] - tau));
      w.y[k] = larger(z[k] - tau, 0);
    }
    normalise(w.y, count);
    return nearest > margin;
  }

  // The weights of the candidates again, in exact arithmetic unless rounding decided nothing (`is_sure`):
  // then float32 weights are final, and float64 weights only need more digits. w.x holds the scores as the
  // row has them, and pool(row) pools an ExactRow. Returns false if memory is exhausted; then the rounded
  // weights stay.
  template <class Pool>
  bool solve_again(bool is_sure, double lam, const Pool& pool) {
    const ExactScores scores{w.x, count, static_cast<double>(top), lam, gamma};
    const auto solve = [&](auto& row) {
      if (!pool(row)) return false;
      row.write_weights(w.y);
      return true;
    };
    if constexpr (sizeof(T) == sizeof(double)) {
      if (is_sure) return with_accurate_row(scores, solve);
    }
    return with_exact_row(scores, solve);
  }
  // Whether weights solved in double are rounded finally to T.
  static bool is_final(bool is_sure) { return is_sure && sizeof(T) == sizeof(float); }

  // Calls solve(scores) with the candidates' scores in long double for float64 rows, with nullptr for float32 rows.
  template <class Solve>
  void with_precise_scores(const Solve& solve) const {
    if constexpr (sizeof(T) == sizeof(double)) {
      const LongScores scores{chosen_scores(), top, gamma};
      solve(&scores);
    } else {
      solve(nullptr);
    }
  }

  void restore_scores() {
    for (int64_t k = 0; k < count; ++k) w.x[k] = static_cast<double>(chosen_scores()[k]);
  }

  void map_sparsemax() {
    choose_above(-1);
    const bool is_sure = project(w.x, doubt(count, 1));
    if (is_final(is_sure)) return;
    restore_scores();
    solve_again(is_sure, 0, [](auto& row) { return row.pool_nothing(), true; });
  }

  void spread_evenly() {
    set_all(w.chosen, m);
    std::fill_n(w.y, m, 1 / static_cast<double>(m));
    count = m;
    is_uniform = true;
  }

  const T* x;
  int64_t m;
  double gamma;
  Workspace& w;
  T top;
  int64_t count = 0;
  bool is_uniform = false;

 private:
  T* candidates() const { return static_cast<T*>(w.candidates); }

  // Halves, so that the difference of the largest numbers does not overflow.
  void read_candidates() {
    const T* const scores = chosen_scores();
    const double half = static_cast<double>(top) / 2;
    for (int64_t k = 0; k < count; ++k) w.x[k] = (static_cast<double>(scores[k]) / 2 - half) / gamma * 2;
  }
};

// What a byte `joined` says about a weight and the kept positions next to it. Jacobian products need the first
// bit only; attention reads CompactedRow::apart off the others.
enum : uint8_t { shares_segment = 1, zero_before = 2, zero_after = 4 };

// The nonzero weights of one row and a direction v, both compacted; v is to be replaced by J v, or is J v
// already (gradients of strengths).
template <class T>
struct CompactedRow {
  const T* y;
  T* v;
  const uint8_t* joined;  // nullptr unless the mapping joins neighbours
  int64_t m;
  // Gradients of strengths, if the mapping joins neighbours: m + 1 flags, 1 if kept positions without weight lie
  // before weight k, or after the last one.
  const uint8_t* apart = nullptr;

  bool all_equal() const {
    return y[0] == y[m - 1] && std::all_of(y, y + m, [first = y[0]](T weight) { return weight == first; });
  }
};

// What mappings have in common that join nothing, or whose strength is a lam.
struct JoinsNothing {
  static constexpr Joins joins = Joins::nothing;

  // A single weight is one, whatever the scores: J is zero.
  template <class T>
  static bool is_constant(const CompactedRow<T>& row) {
    return row.m == 1;
  }
};

struct HasLam {
  static bool accepts(double lam) { return lam >= 0 && std::isfinite(lam); }
  static bool is_sparsemax(double lam) { return lam == 0; }
};

}  // namespace regmax::REGMAX_ISA
