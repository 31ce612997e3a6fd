// The cascade of tiers: the one place that chooses how a group of rows is mapped.
#pragma once

#include <cstdint>
#include <type_traits>

#include "rows/lane_rows.hpp"
#include "rows/level_rows.hpp"
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
// whole-row tier, those of fusedmax to the level tier (with the candidates of the lane tier if rounding may have
// decided something there), and what these leave to the scalar tier. A forced tier (runtime/tiers.hpp) removes the
// others, except the scalar one, which serves what the forced one leaves.
template <class T, class Mapping>
class Cascade {
 public:
  // `has_maxima`: the maxima by lane come with the scores, and the lane tier saves a pass.
  Cascade(int64_t d, Tier forced, Workspace& w, bool has_maxima = false)
      : w_(w),
        lanes_first_(forced == Tier::any ? d > whole_first(has_maxima) : forced == Tier::lanes),
        whole_(forced == Tier::any || forced == Tier::whole),
        levels_(by_segments && (forced == Tier::any || forced == Tier::levels)),
        lane_rows_(w),
        whole_rows_(w),
        level_rows_(w) {}

  // Maps the rows of `fast`, and those of `slow` by the scalar tier.
  template <class Out>
  void run(const RowGroup<T>& rows, uint32_t fast, uint32_t slow, Out& out) {
    uint32_t left = fast, doubtful = 0;
    if (lanes_first_ && left) left = lane_rows_.run(rows, left, out);
    const uint32_t before = left;
    if constexpr (by_segments) {
      if (levels_ && lanes_first_) doubtful = left & lane_rows_.doubtful_rows();
      if (doubtful) left &= ~level_rows_.solve_known(rows, doubtful, lane_rows_, out);
    }
    uint32_t cheap = 0;
    if (whole_ && (left & ~doubtful)) {
      left = (left & doubtful) | whole_rows_.run(rows, left & ~doubtful, out);
      if constexpr (by_segments) cheap = whole_rows_.single_segments();
    }
    if (levels_ && left) left = level_rows_.run(rows, left, out);
    if (by_segments) costly_ += __builtin_popcount(before & ~left & ~cheap);
    for (left |= slow; left; left &= left - 1) costly_ += !map_scalar_row<T, Mapping>(__builtin_ctz(left), w_, out);
  }

  // Whether a tier that needs no whole rows comes first.
  bool screens() const { return by_powers ? whole_ : lanes_first_; }

  // Maps rows whose scores are known by bounds; returns the bits of those that need all their scores. The others get
  // the same bits as from run().
  template <class Out>
  uint32_t run_bounded(const RowGroup<T>& rows, uint32_t wanted, Out& out) {
    if (!wanted) return 0;
    if constexpr (by_powers) return whole_rows_.run(rows, wanted, out);
    return lane_rows_.run(rows, wanted, out);
  }

  // How many rows took a tier whose cost per score is far above a pass.
  int64_t costly_rows() const { return costly_; }

 private:
  static constexpr bool by_segments = Mapping::template whole<T> == Whole::by_segments;
  static constexpr bool by_powers = Mapping::template whole<T> == Whole::by_powers;
  static constexpr int64_t whole_first(bool has_maxima) {
    return has_maxima ? first_with_maxima<Mapping> : Mapping::whole_first;
  }

  Workspace& w_;
  bool lanes_first_, whole_, levels_;
  std::conditional_t<by_powers, NoRows, LaneRows<T, Mapping>> lane_rows_;
  WholeRows<T, Mapping> whole_rows_;
  std::conditional_t<by_segments, LevelRows<Mapping>, NoRows> level_rows_;
  int64_t costly_ = 0;
};

}  // namespace regmax::REGMAX_ISA
