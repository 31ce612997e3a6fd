// The level tier: rows of which a tier's cut excludes too little, or in which it left a decision. Level sets
// (algorithms/lane_levels.hpp) leave few candidates, which are solved exactly, one row per lane: up to max_candidates
// side by side (algorithms/lane_exact_chains.hpp), more by strings (algorithms/exact_segments.hpp). The scalar tier
// solves what rounding may decide, and rows in which strings are slow.
#pragma once

#include <cstdint>

#include "algorithms/exact_segments.hpp"
#include "algorithms/lane_exact_chains.hpp"
#include "algorithms/lane_levels.hpp"
#include "rows/group.hpp"
#include "rows/scalar_row.hpp"
#include "simd/candidates.hpp"

namespace regmax::REGMAX_ISA {

template <class Mapping>
class LevelRows {
  using T = float;

 public:
  explicit LevelRows(Workspace& w) : w_(w), levels_(w.groups, w.space, w.d), segments_(w) {}

  // Maps the `wanted` rows of a group; returns the bits of those that are left.
  template <class Out>
  uint32_t run(const RowGroup<T>& rows, uint32_t wanted, Out& out) {
    const uint32_t known = find_levels(rows, wanted & ~overwritten(rows));
    uint32_t solved = solve_few(rows, known, [&](int r) { return words(rows, r); }, out);
    solved |= solve_many(rows, known & ~solved, out);
    for (uint32_t rest = known & ~solved; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      map_known_row<T, Mapping>(r, rows.x[r], rows.length[r], words(rows, r), w_, out);
    }
    return wanted & ~known;
  }

  // Solves rows of which `found`, the lane tier, has the candidates; returns the bits of those that could be solved.
  template <class Found, class Out>
  uint32_t solve_known(const RowGroup<T>& rows, uint32_t wanted, const Found& found, Out& out) {
    return solve_few(rows, wanted, [&](int r) { return found.words_of_row(r, rows.d); }, out);
  }

 private:
  // Solves the `wanted` rows that have few candidates, at the bits of chosen(r); returns the rows' bits.
  template <class Chosen, class Out>
  uint32_t solve_few(const RowGroup<T>& rows, uint32_t wanted, const Chosen& chosen, Out& out) {
    uint32_t solved = 0;
    filled_ = 0;
    for (uint32_t rest = wanted; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      if (add_row(rows, r, chosen(r), out.scalar_row(r))) solved |= 1u << r;
      if (filled_ == lanes<double>) solve(out);
    }
    if (filled_) solve(out);
    return solved;
  }

  // The same for rows with up to most_exact_scores candidates.
  template <class Out>
  uint32_t solve_many(const RowGroup<T>& rows, uint32_t wanted, Out& out) {
    uint32_t added = 0, solved = 0;
    for (uint32_t rest = wanted; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      const auto source = out.scalar_row(r);
      if (count_bits(words(rows, r), rows.length[r]) > most_exact_scores) continue;
      const bool fits = segments_.add(r, rows.x[r], rows.length[r], words(rows, r), source.theta, source.gamma);
      added |= static_cast<uint32_t>(fits) << r;
    }
    if (!added) return 0;
    for (uint32_t rest = segments_.follow(added); rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      if (!segments_.settle(r)) continue;
      out.write_segments(r, rows.length[r], segments_);
      solved |= 1u << r;
    }
    return solved;
  }

  // The whole-row tier has overwritten rows in its own memory.
  uint32_t overwritten(const RowGroup<T>& rows) const {
    uint32_t found = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      found |= static_cast<uint32_t>(rows.x[r] == static_cast<T*>(w_.copies) + r * w_.copy_stride) << r;
    }
    return found;
  }

  uint32_t find_levels(const RowGroup<T>& rows, uint32_t wanted) {
    if (!wanted || rows.d > LaneLevels::longest) return 0;
    T lam[lanes<T>], gamma[lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) {
      gamma[r] = rows.scaled ? rows.gamma[r] : T(1);
      lam[r] = rows.theta[r] * gamma[r];
    }
    return levels_.choose(rows.x, rows.length, lam, gamma, wanted, w_.kept_bits, words_of(rows.d));
  }

  // Not the memory of a compacted row, which is not among these rows.
  uint64_t* words(const RowGroup<T>& rows, int r) const { return w_.kept_bits + r * words_of(rows.d); }

  // A lane of the problem; false if the row has too many candidates, or if double does not hold them exactly.
  bool add_row(const RowGroup<T>& rows, int r, const uint64_t* chosen, const SourceRow<T>& source) {
    const int64_t length = rows.length[r], count = count_bits(chosen, length);
    const double lam = source.theta * source.gamma;
    if (count > max_candidates || std::fma(source.theta, source.gamma, -lam) != 0) return false;
    T* const x = static_cast<T*>(w_.candidates);
    compact_row(rows.x[r], chosen, length, x);
    if (!fits_grid(x, count, source.gamma)) return false;
    const Adjacency a = find_adjacency(chosen, length, static_cast<int>(count));
    T top = x[0];
    for (int64_t k = 1; k < count; ++k) top = x[k] > top ? x[k] : top;
    const int lane = filled_++;
    if (lane == 0) p_ = ExactProblem{};
    for (int64_t k = 0; k < count; ++k) {
      p_.x[k][lane] = static_cast<double>(x[k]) - static_cast<double>(top);
      p_.q[k][lane] = -static_cast<double>((a.left_edge >> k & 1) + (a.right_edge >> k & 1));
    }
    row_[lane] = r;
    words_[lane] = chosen;
    adjacent_[lane] = a.adjacent;
    p_.adjacent[lane] = static_cast<Int<double>>(a.adjacent);
    p_.counts[lane] = static_cast<double>(count);
    p_.lam[lane] = lam;
    p_.gamma[lane] = source.gamma;
    p_.count = count > p_.count ? static_cast<int>(count) : p_.count;
    return true;
  }

  static bool fits_grid(const T* x, int64_t count, double gamma) {
    double size = gamma;
    for (int64_t k = 0; k < count; ++k) size = larger(size, std::fabs(static_cast<double>(x[k])));
    const DoubleGrid grid(size, max_candidates);
    bool fits = grid.has(gamma);
    for (int64_t k = 0; k < count; ++k) fits &= grid.has(static_cast<double>(x[k]));
    return fits;
  }

  template <class Out>
  void solve(Out& out) {
    Vec<double> y[max_candidates];
    LaneExactChains(p_).solve(y);
    for (int lane = 0; lane < filled_; ++lane) {
      const int count = static_cast<int>(p_.counts[lane]);
      T* const values = values_ + lanes<T>;
      for (int k = 0; k < count; ++k) values[k] = static_cast<T>(y[k][lane]);
      for (int k = count; k < max_candidates; k += lanes<T>) store<T>(values + k, Vec<T>{});
      out.write_candidates(row_[lane], values, words_[lane], count,
                           [&] { return equal_neighbours(values) & adjacent_[lane]; });
    }
    filled_ = 0;
  }

  static uint64_t equal_neighbours(const T* values) {
    uint64_t same = 0;
    for (int k = 0; k < max_candidates; k += lanes<T>)
      same |= static_cast<uint64_t>(bits(equal(load(values + k), load(values + k - 1)))) << k;
    return same;
  }

  Workspace& w_;
  LaneLevels levels_;
  ExactSegments segments_;
  ExactProblem p_;
  int filled_ = 0, row_[lanes<double>];
  const uint64_t* words_[lanes<double>];
  uint64_t adjacent_[lanes<double>];
  T values_[max_candidates + 64 + 2 * lanes<T>] = {};
};

}  // namespace regmax::REGMAX_ISA
