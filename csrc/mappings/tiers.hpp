// What the tiers in rows/ hand to a mapping, and the parts that several mappings share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

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
enum class Whole { no, by_moments, by_segments };

// --- The lane tier: one row per lane ---

template <class T>
struct LaneProblem {
  Vec<T> x[max_candidates];  // candidate k of every row relative to its maximum, `nothing` after the last
  int count;                 // columns in use
  int counts[lanes<T>];      // candidates of each row
  Vec<T> theta, lengths;
  Vec<T> cuts;  // every score above the cut is a candidate
};

// One row after screening.
template <class T>
struct ScreenedRow {
  const T* x;
  int64_t length;
  T top;
  const uint64_t* words;  // the bits of the candidates
  int count;
  bool may_have_deleted;  // false if no score is -inf
};

// A mapping whose lanes need no facts about a row but its candidates.
template <class T>
struct PlainLanes {
  bool add_row(int, const ScreenedRow<T>&) { return true; }
  uint64_t joined(int, const T*) const { return 0; }
};

// --- The scalar tier: one row, in double ---

// A row of m >= 1 finite scores without gaps. A mapping chooses candidates, whose scores relative to the
// maximum are then w.x and whose bits are w.chosen, and writes their weights to w.y.
template <class T>
class ScalarRow {
 public:
  ScalarRow(const T* scores, int64_t size, Workspace& workspace)
      : x(scores), m(size), w(workspace), top(max_lanes<T>(lane_maxima(scores, size))) {}

  // The scores above the bound become the candidates.
  void choose_above(T bound) {
    T* const candidates = static_cast<T*>(w.candidates);
    count = find_candidates(x, m, top, bound, m, candidates, w.chosen);
    for (int64_t k = 0; k < count; ++k) w.x[k] = static_cast<double>(candidates[k]);
  }

  // All scores, as they are: for proximal operators, which have no threshold.
  void choose_all() {
    set_all(w.chosen, m);
    for (int64_t i = 0; i < m; ++i) w.x[i] = static_cast<double>(x[i]);
    count = m;
  }

  // y = (z - tau)_+ for z with maximum 0.
  void project(const double* z) {
    const double tau = simplex_threshold(z, count, w.space);
    for (int64_t k = 0; k < count; ++k) w.y[k] = larger(z[k] - tau, 0);
    normalise(w.y, count);
  }

  void spread_evenly() {
    set_all(w.chosen, m);
    std::fill_n(w.y, m, 1 / static_cast<double>(m));
    count = m;
    is_uniform = true;
  }

  const T* x;
  int64_t m;
  Workspace& w;
  T top;
  int64_t count = 0;
  bool is_uniform = false;
};

// The nonzero weights of one row and a direction v, both compacted; v is to be replaced by J v.
template <class T>
struct CompactedRow {
  const T* y;
  T* v;
  const uint8_t* joined;  // nullptr unless the mapping joins neighbours
  int64_t m;

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
