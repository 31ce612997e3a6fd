// The whole-row tier: rows of which many scores count, in passes over the whole row. By moments (rows/moment_rows.hpp),
// by powers (rows/power_rows.hpp), or by segments (fusedmax): the mapping solves the rows, and the tier only writes
// them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mappings/tiers.hpp"
#include "rows/group.hpp"
#include "rows/masks.hpp"
#include "rows/moment_rows.hpp"
#include "rows/power_rows.hpp"

namespace regmax::REGMAX_ISA {

template <class T, class Mapping>
class SegmentRows {
 public:
  explicit SegmentRows(Workspace& w) : w_(w), segments_(w) {}

  template <class Out>
  uint32_t run(const RowGroup<T>& rows, uint32_t wanted, Out& out) {
    const T* x[lanes<T>];
    for (int r = 0; r < lanes<T>; ++r) x[r] = rows.scaled && wanted >> r & 1 ? divided(rows, r) : rows.x[r];
    const uint32_t mapped = segments_.map(x, rows.length, rows.theta, rows.theta_rest, wanted);
    for (uint32_t rest = mapped; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      out.write_segments(r, rows.length[r], segments_);
    }
    mapped_ = mapped;
    return wanted & ~mapped;
  }

  // The rows that the last call mapped to a single segment.
  uint32_t single_segments() const { return segments_.single(mapped_); }

 private:
  const T* divided(const RowGroup<T>& rows, int r) const {
    T* const copy = static_cast<T*>(w_.copies) + r * w_.copy_stride;
    const T top = max_lanes<T>(lane_maxima(rows.x[r], rows.length[r]));
    divide_row(rows.x[r], rows.length[r], top, static_cast<double>(rows.gamma[r]), copy);
    return copy;
  }

  Workspace& w_;
  typename Mapping::template Segments<T> segments_;
  uint32_t mapped_ = 0;
};

// By powers, except the rows with the strength that squares serve.
template <class T, class Mapping>
class PowerOrSquareRows {
  using Powers = typename Mapping::template Powers<T>;
  struct Nothing {
    explicit Nothing(const Workspace&) {}
  };
  static constexpr bool has_powers = !std::is_void_v<Powers>;

 public:
  explicit PowerOrSquareRows(Workspace& w) : powers_(w), squares_(w) {}

  template <class Out>
  uint32_t run(const RowGroup<T>& rows, uint32_t wanted, Out& out) {
    const uint32_t squares = bits(equal(load(rows.theta), splat(static_cast<T>(Mapping::squares)))) & wanted;
    uint32_t left = wanted & ~squares;
    if constexpr (has_powers) {
      if (left) left = powers_.run(rows, left, out);
    }
    // Squares read whole rows, for which bounds do not serve.
    if (rows.bounded) return left | squares;
    return squares ? left | squares_.run(rows, squares, out) : left;
  }

 private:
  std::conditional_t<has_powers, PowerRows<T, Powers>, Nothing> powers_;
  MomentRows<T, typename Mapping::Squares> squares_;
};

// A mapping without such a tier leaves all rows.
struct NoRows {
  explicit NoRows(Workspace&) {}
  template <class Rows, class Out>
  uint32_t run(const Rows&, uint32_t wanted, Out&) {
    return wanted;
  }
};

template <class T, class Mapping, bool by_powers>
struct PowersOrNothing {
  using type = NoRows;
};
template <class T, class Mapping>
struct PowersOrNothing<T, Mapping, true> {
  using type = PowerOrSquareRows<T, Mapping>;
};

template <class T, class Mapping>
using WholeRows = std::conditional_t<
    Mapping::template whole<T> == Whole::by_moments, MomentRows<T, Mapping>,
    std::conditional_t<Mapping::template whole<T> == Whole::by_segments, SegmentRows<T, Mapping>,
                       typename PowersOrNothing<T, Mapping, Mapping::template whole<T> == Whole::by_powers>::type>>;

}  // namespace regmax::REGMAX_ISA
