// The lane tier of mappings whose weights are powers of the scores (algorithms/lane_powers.hpp).
//
// The cut. The root of the maxima by lane is a guess, usually an upper bound, of the row's root m: scores at or below
// -m / c have no weight. The candidates decide the row if their own root is not above the guess.
#pragma once

#include <cstdint>

#include "algorithms/lane_powers.hpp"
#include "mappings/tiers.hpp"

namespace regmax::REGMAX_ISA {

// An upper bound of the roots, usually, and the cut that follows from it.
template <class T, class Powers>
inline Vec<T> power_cut(const Powers& powers, Vec<T> start) {
  return splat(T(-1 - 32 * rounding<T>)) * start / powers.c();
}

template <class T, class Powers>
class PowerLanes : public PlainLanes<T> {
 public:
  Vec<T> cut(const Vec<T>* maxima, const LaneProblem<T>& p) {
    const Powers powers(p.theta - splat(T(1)) + p.theta_rest);
    integer_exponents(p.theta, p.theta_rest, integers_);
    start_ = guess_roots<T>(maxima, lanes<T>, powers, integers_, all_lanes<T>);
    return power_cut<T>(powers, start_);
  }

  uint32_t solve(LaneProblem<T>& p, Vec<T>* y) {
    const Powers powers(p.theta - splat(T(1)) + p.theta_rest);
    Vec<T> m = start_;
    const uint32_t left = lane_power_weights(p.x, p.count, powers, integers_, all_lanes<T>, &m, y);
    return left | bits(greater(m, start_));
  }

 private:
  Vec<T> start_;
  int integers_[lanes<T>];  // 1/a - 1 of the rows for which it is an integer, else 0
};

}  // namespace regmax::REGMAX_ISA
