// fusedmax's whole-row tier: flat rows, in which every score may have weight, as at the start of training.
// Each lane follows the taut string of one row (algorithms/lane_taut_strings.hpp); unreliable lanes go to the
// level tier.
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/lane_simplex.hpp"
#include "algorithms/lane_taut_strings.hpp"
#include "algorithms/workspace.hpp"
#include "simd/prefix_sums.hpp"
#include "simd/reduce.hpp"

namespace regmax::REGMAX_ISA {

class WholeSegments {
  using V = Vec<float>;

 public:
  explicit WholeSegments(Workspace& w) : w_(w), groups_(w.groups, w.d), strings_(copies(), w.copy_stride, groups_) {}

  // Maps those of the `wanted` rows that are flat, and returns their bits. A row may be stored in
  // Workspace::copies already.
  uint32_t map(const float* const* x, const int64_t* lengths, const float* lam, const float* lam_rest,
               uint32_t wanted) {
    uint32_t flat = 0;
    float sizes[lanes<float>] = {};
    for (int r = 0; r < lanes<float>; ++r) {
      lam_[r] = wanted >> r & 1 ? lam[r] : 0;
      if (!(wanted >> r & 1) || !copy_flat(x[r], lengths[r], r)) continue;
      flat |= 1u << r;
      sizes[r] = static_cast<float>(lengths[r]);
    }
    if (!flat) return 0;
    flat &= ~strings_.run(sizes, lam_, margin_, counts_);
    if (!flat) return 0;
    pad_groups(sizes);
    uint32_t small = 0;
    flat &= ~find_support(&small);
    for (uint32_t rest = flat; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      if (small >> r & 1 && x[r] == copies() + r * w_.copy_stride) {
        flat &= ~(1u << r);  // the scores were overwritten by rounded ones, which have too few digits for small weights
      } else {
        project(x[r], static_cast<double>(lam[r]) + static_cast<double>(lam_rest[r]), r);
      }
    }
    return flat;
  }

  // The bits of those mapped rows that are a single segment.
  uint32_t single(uint32_t mapped) const {
    uint32_t found = 0;
    for (int r = 0; r < lanes<float>; ++r) found |= static_cast<uint32_t>(counts_[r] == 1) << r;
    return found & mapped;
  }

  // Calls visit(begin, end, weight, repeats) for every group of a mapped row; `repeats` says that the
  // previous group has the same weight.
  template <class Visit>
  REGMAX_INLINE void each_segment(int r, int64_t length, const Visit& visit) const {
    float before = -1;
    int64_t begin = 0;
    for (int64_t g = r; begin < length; g += lanes<float>) {
      const int64_t end = static_cast<int64_t>(groups_.ends[g]);
      const float weight = groups_.values[g];
      visit(begin, end, weight, weight == before);
      before = weight;
      begin = end;
    }
  }

 private:
  float* copies() const { return static_cast<float*>(w_.copies); }

  // Copies a row relative to its mean if no score is far above it. NaN and infinities fail the test.
  bool copy_flat(const float* x, int64_t length, int r) {
    if (length > LaneStrings::longest || !(lam_[r] > 0)) return false;
    const V first = splat(x[0]);
    V high = first, low = first, sum{}, squares{};
    for (int64_t i = 0; i < length; i += lanes<float>) {
      const V v = load_left(x + i, length - i, x[0]), step = v - first;
      high = larger(v, high);
      low = smaller(v, low);
      sum += step;
      squares += step * step;
    }
    const double size = static_cast<double>(length), shift = sum_lanes(sum) / size;
    const auto mean = static_cast<float>(shift);  // less x[0]
    const float above = flat_lams * lam_[r] + flat_shares / static_cast<float>(length);
    const uint32_t far_above = bits(not_at_most(high - first, splat(mean + above)));
    if (far_above || bits(not_at_most(splat(mean - 8), low - first))) return false;
    const auto lam = static_cast<double>(lam_[r]);
    const double spread = std::sqrt(larger(sum_lanes(squares) / size - shift * shift, 0.0));
    const double pooled = smaller(spread / (pooled_lams * lam), 1.0) * spread;
    if (spread > lam / 4 && pooled * size > (spread > lam ? 1 : flat_spread)) return false;
    float* const copy = copies() + r * w_.copy_stride;
    for (int64_t i = 0; i < length; i += lanes<float>) {
      store<float>(copy + i, load_left(x + i, length - i, x[0]) - first - splat(mean));
    }
    store<float>(copy + length, V{});
    size_[r] = max_lanes<float>(larger(high - first, first - low)) + lam_[r];
    margin_[r] = 6 * rounding<float> * size_[r];
    return true;
  }

  // Pads all chains to the largest number of groups.
  void pad_groups(const float* sizes) {
    most_ = 1;
    for (int count : counts_) most_ = count > most_ ? count : most_;
    for (int r = 0; r < lanes<float>; ++r) {
      for (int64_t g = counts_[r]; g < most_; ++g) {
        groups_.values[g * lanes<float> + r] = nothing<float>;
        groups_.ends[g * lanes<float> + r] = sizes[r];
      }
    }
  }

  // Calls visit(values, sizes), both vectors, group by group.
  template <class Visit>
  REGMAX_INLINE void each_group(const Visit& visit) const {
    V begin{};
    for (int g = 0; g < most_; ++g) {
      const V end = load(groups_.ends + g * lanes<float>);
      visit(groups_.values + g * lanes<float>, end - begin);
      begin = end;
    }
  }

  // The threshold of the pooled scores; returns the rows in which it did not settle, or rounding may decide. `small`
  // are the rows whose weights are much smaller than the scores.
  uint32_t find_support(uint32_t* small) {
    const V zero{};
    const Threshold<float> threshold = lane_michelot<float>(splat(nothing<float> / 2), 64, [&](V tau) {
      LaneSum<float> sum;
      V count{};
      each_group([&](const float* values, V size) {
        const V z = load(values);
        const Where<float> above = greater(z, tau);
        sum.add(select(above, z * size, zero));
        count = add_where(above, count, size);
      });
      return LaneTotals<float>{sum.total, count};
    });
    const V tau = threshold.tau;
    V nearest = splat(-nothing<float>), before = nearest;  // to the threshold, or of two neighbours
    V top = splat(nothing<float>);
    each_group([&](const float* values, V) {
      const V z = load(values);
      nearest = smaller(smaller(absolute<float>(z - tau), absolute<float>(z - before)), nearest);
      top = larger(z, top);
      before = select(greater(splat(nothing<float> / 2), z), splat(-nothing<float>), z);
    });
    store<float>(tau_, tau);
    *small = bits(greater(load(size_), (top - tau) * 8));
    return threshold.unsettled | doubtful<float>(nearest, load(margin_) * 2);
  }

  // From pooled scores to weights. The support is known: its values are computed again, in double from the scores
  // themselves, because the pooled scores are rounded to the last digits of lam and of the largest score, not to those
  // of the weights.
  void project(const float* x, double lam, int r) {
    const int count = counts_[r];
    if (count == 1) {
      value_of(0, r) = 1 / end_of(0, r);
      return;
    }
    const double origin = static_cast<double>(x[0]);
    const auto length = static_cast<int64_t>(end_of(count - 1, r));
    if (count * summed_segment > length) {
      double* const sums = w_.x;
      prefix_sums(x, length, sums, [&](Vec<double> values, int64_t) { return values - splat(origin); });
      project_groups(lam, r, [&](int64_t begin, int64_t end, bool) { return sums[end] - sums[begin]; });
    } else {
      project_groups(lam, r, [&](int64_t begin, int64_t end, bool inside) {
        return inside ? sum_less(x + begin, end - begin, x[0]) : 0;
      });
    }
  }

  // total_of(begin, end, inside) is the sum of the scores of a group, inside the support or not. Whether a group is
  // inside is hard to predict: nothing branches on it.
  template <class Total>
  REGMAX_INLINE void project_groups(double lam, int r, const Total& total_of) {
    double* const z = w_.v;
    const int count = counts_[r];
    double sum = -1, support = 0, before = 0;
    int64_t begin = 0;
    for (int g = 0; g < count; ++g) {
      const auto end = static_cast<int64_t>(end_of(g, r));
      const bool inside = value_of(g, r) > tau_[r];
      const double after = g + 1 < count ? rise(g, r) : 0, size = static_cast<double>(end - begin);
      const double total = total_of(begin, end, inside) + lam * (after - before), counts = inside;
      z[g] = total / size + (counts - 1) * 1e300;
      sum += counts * total;
      support += counts * size;
      before = after;
      begin = end;
    }
    const Vec<double> tau = splat(sum / support);
    for (int g = 0; g < count; g += lanes<double>) store<double>(z + g, larger(load(z + g) - tau, Vec<double>{}));
    for (int g = 0; g < count; ++g) value_of(g, r) = static_cast<float>(z[g]);
  }

  // The scores relative to the origin, which fills up the last vector.
  static double sum_less(const float* x, int64_t m, float origin) {
    const Vec<double> less = splat(static_cast<double>(origin));
    Vec<double> sums[2] = {};
    for (int64_t i = 0; i < m; i += lanes<float>) {
      Vec<double> wide[2];
      widen(load_left(x + i, m - i, origin), wide);
      for (int h = 0; h < 2; ++h) sums[h] += wide[h] - less;
    }
    return sum_lanes(sums[0] + sums[1]);
  }

  float end_of(int g, int r) const { return groups_.ends[int64_t{g} * lanes<float> + r]; }
  float& value_of(int g, int r) { return groups_.values[int64_t{g} * lanes<float> + r]; }
  // 1 if the group after g is higher, -1 if it is lower.
  double rise(int g, int r) { return 2 * static_cast<int>(value_of(g + 1, r) > value_of(g, r)) - 1; }

  Workspace& w_;
  LaneGroups groups_;
  LaneStrings strings_;
  float lam_[lanes<float>], tau_[lanes<float>];
  float size_[lanes<float>] = {}, margin_[lanes<float>] = {};  // of scores less lam, and their rounding
  int counts_[lanes<float>];
  int most_ = 1;
};

}  // namespace regmax::REGMAX_ISA
