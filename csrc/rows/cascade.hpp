// The cascade of tiers: the one place that chooses how a group of rows is mapped.
#pragma once

#include <cstdint>
#include <type_traits>

#include "rows/lane_rows.hpp"
#include "rows/scalar_row.hpp"
#include "rows/whole_rows.hpp"
#include "runtime/tiers.hpp"

namespace regmax::REGMAX_ISA {

// The row length up to which the whole-row tier comes first if the maxima by lane are known.
template <class Mapping, class = void>
constexpr int64_t first_with_maxima = Mapping::whole_first;
template <class Mapping>
constexpr int64_t first_with_maxima<Mapping, std::void_t<decltype(Mapping::whole_first_with_maxima)>> =
    Mapping::whole_first_with_maxima;

// Short rows of some mappings go to the whole-row tier at once; all others to the lane tier, then to the
// whole-row tier, and what these leave to the scalar tier. A forced tier (runtime/tiers.hpp) removes the
// others, except the scalar one, which serves what the forced one leaves.
template <class T, class Mapping>
class Cascade {
 public:
  // `has_maxima`: the maxima by lane come with the scores, and the lane tier saves a pass.
  Cascade(int64_t d, Tier forced, Workspace& w, bool has_maxima = false)
      : w_(w),
        lanes_first_(forced == Tier::any ? d > whole_first(has_maxima) : forced == Tier::lanes),
        whole_(forced == Tier::any || forced == Tier::whole),
        lane_rows_(w),
        whole_rows_(w) {}

  // Maps the rows of `fast`, and those of `slow` by the scalar tier.
  template <class Out>
  void run(const RowGroup<T>& rows, uint32_t fast, uint32_t slow, Out& out) {
    uint32_t left = fast;
    const uint32_t later = whole_first_rows(rows);
    if (lanes_first_ && left & ~later) left = lane_rows_.run(rows, left & ~later, out) | (left & later);
    if (whole_ && left) {
      const uint32_t before = left;
      left = whole_rows_.run(rows, left, out);
      if (Mapping::template whole<T> == Whole::by_segments) costly_ += __builtin_popcount(before & ~left);
    }
    for (left |= slow; left; left &= left - 1) costly_ += !map_scalar_row<T, Mapping>(__builtin_ctz(left), w_, out);
  }

  // Whether a tier that needs no whole rows comes first.
  bool screens() const { return lanes_first_ || (by_powers && whole_); }

  // Maps rows whose scores are known by bounds; returns the bits of those that need all their scores. The others get
  // the same bits as from run().
  template <class Out>
  uint32_t run_bounded(const RowGroup<T>& rows, uint32_t wanted, Out& out) {
    uint32_t left = wanted;
    const uint32_t later = whole_first_rows(rows);
    if (lanes_first_ && left & ~later) left = lane_rows_.run(rows, left & ~later, out) | (left & later);
    if constexpr (by_powers) {
      // Rows that the lane tier leaves here need not be those that it leaves in run().
      const uint32_t chosen = lanes_first_ ? left & later : left;
      if (whole_ && chosen) left = (left & ~chosen) | whole_rows_.run(rows, chosen, out);
    }
    return left;
  }

  // How many rows took a tier whose cost per score is far above a pass.
  int64_t costly_rows() const { return costly_; }

 private:
  static constexpr bool by_powers = Mapping::template whole<T> == Whole::by_powers;
  static constexpr int64_t whole_first(bool has_maxima) {
    return has_maxima ? first_with_maxima<Mapping> : Mapping::whole_first;
  }

  // The rows of a mapping with powers that skip the lane tier: short ones that squares serve, and longer ones with a
  // strength that leaves many candidates. Only a row's own strength and length decide.
  uint32_t whole_first_rows(const RowGroup<T>& rows) const {
    if constexpr (by_powers) {
      if (!whole_) return 0;
      const Vec<T> theta = load(rows.theta);
      uint32_t chosen = 0;
      if (rows.d <= Mapping::Squares::whole_first) chosen = bits(equal(theta, splat(static_cast<T>(Mapping::squares))));
      if (rows.d > max_candidates) chosen |= bits(greater(splat(static_cast<T>(Mapping::least_lane_strength)), theta));
      return chosen;
    }
    return 0;
  }

  Workspace& w_;
  bool lanes_first_, whole_;
  // In float64 powers have no vector tiers.
  std::conditional_t<by_powers && sizeof(T) == sizeof(double), NoRows, LaneRows<T, Mapping>> lane_rows_;
  WholeRows<T, Mapping> whole_rows_;
  int64_t costly_ = 0;
};

}  // namespace regmax::REGMAX_ISA
