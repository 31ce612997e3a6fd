// fusedmax on rows of which every score may count (flat ones, as at the start of training): whole rows as
// chains, several at a time (lane_strings.hpp). What those cannot answer for is left to mappings.hpp.
#pragma once

#include <cstdint>

#include "lane_mappings.hpp"
#include "lane_strings.hpp"
#include "prefix_sums.hpp"
#include "simplex.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

// A sum whose rounding does not add up (Kahan).
struct LaneSum {
  Vec<float> total{}, excess{};

  void add(Vec<float> v) {
    const Vec<float> corrected = v - excess, sum = total + corrected;
    excess = sum - total - corrected;
    total = sum;
  }
};

class FlatChains {
  using V = Vec<float>;

 public:
  explicit FlatChains(Workspace& w)
      : w_(w), groups_(w.groups, w.d), strings_(copies(), w.copy_stride, groups_) {}

  // Finds the weights of those among the `wanted` rows that are flat, and returns their bits. A row may stand
  // where Workspace::copies holds its copy.
  uint32_t map(const float* const* x, const int64_t* lengths, const float* lam, uint32_t wanted) {
    uint32_t flat = 0;
    float sizes[lanes<float>] = {};
    for (int r = 0; r < lanes<float>; ++r) {
      lam_[r] = wanted >> r & 1 ? lam[r] : 0;
      if (!(wanted >> r & 1) || !copy_flat(x[r], lengths[r], r)) continue;
      flat |= 1u << r;
      sizes[r] = static_cast<float>(lengths[r]);
    }
    if (!flat) return 0;
    flat &= ~strings_.run(sizes, lam_, counts_);
    pad_groups(sizes);
    return flat & ~project();
  }

  // Calls visit(begin, end, weight, repeats) for every group of a row so mapped, where `repeats` says that
  // the group before has the same weight.
  template <class Visit>
  REGMAX_INLINE void each_run(int r, int64_t length, const Visit& visit) const {
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

  // Copies a row relative to its mean if all its scores are above what screening would cut off
  // (mappings.hpp), the mean being a bound of sparsemax's threshold as good as any where they are. NaN and
  // infinities are not.
  bool copy_flat(const float* x, int64_t length, int r) const {
    if (length > LaneStrings::longest || !(lam_[r] > 0)) return false;
    const V first = splat(x[0]);
    V high = first, low = first, sum{};
    for (int64_t i = 0; i < length; i += lanes<float>) {
      const V v = load_left(x + i, length - i, x[0]);
      high = larger(v, high);
      low = smaller(v, low);
      sum += v - first;
    }
    const float mean = static_cast<float>(sum_lanes(sum) / static_cast<double>(length));  // less x[0]
    const V cut = splat(mean - 1 / static_cast<float>(length) - 4 * lam_[r]);
    if (bits(not_at_most(cut, low - first)) || bits(not_at_most(high - first, splat(mean + 8)))) return false;
    float* const copy = copies() + r * w_.copy_stride;
    for (int64_t i = 0; i < length; i += lanes<float>) {
      store<float>(copy + i, load_left(x + i, length - i, x[0]) - first - splat(mean));
    }
    store<float>(copy + length, V{});
    return true;
  }

  // All chains get as many groups as the one that has most.
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

  // Calls visit(values, sizes), vectors both, for group after group.
  template <class Visit>
  REGMAX_INLINE void each_group(const Visit& visit) const {
    V begin{};
    for (int g = 0; g < most_; ++g) {
      const V end = load(groups_.ends + g * lanes<float>);
      visit(groups_.values + g * lanes<float>, end - begin);
      begin = end;
    }
  }

  // From pooled scores to weights, by Michelot's rounds (simplex.hpp) on the groups. Returns the bits of the
  // rows for which they do not end.
  uint32_t project() {
    const V one = splat(1.0f), zero{};
    V tau = splat(nothing<float> / 2), before = splat(-nothing<float>);
    Where<float> fewer = equal(one, one);
    for (int round = 0; round < 64 && bits(fewer); ++round) {
      LaneSum sum;
      V left{};
      each_group([&](const float* values, V size) {
        const V z = load(values);
        const Where<float> above = greater(z, tau);
        sum.add(select(above, z * size, zero));
        left = add_where(above, left, size);
      });
      fewer = greater(before, left);
      tau = select(fewer, (sum.total - one) / left, tau);
      before = left;
    }
    LaneSum sum;
    each_group([&](const float* values, V size) { sum.add(larger(load(values) - tau, zero) * size); });
    const V factor = one / sum.total;
    each_group([&](float* values, V) { store<float>(values, larger(load(values) - tau, zero) * factor); });
    return bits(fewer);
  }

  Workspace& w_;
  LaneGroups groups_;
  LaneStrings strings_;
  float lam_[lanes<float>];
  int counts_[lanes<float>];
  int most_ = 1;
};

}  // namespace regmax::REGMAX_ISA
