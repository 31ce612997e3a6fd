// Means of v over the few joined weights of a row, in place.
#pragma once

#include <cstdint>

#include "simd.hpp"

namespace regmax::REGMAX_ISA {

class JoinedWeights {
 public:
  static constexpr int most = 16;

  // No more than `most` positions are joined.
  JoinedWeights(const uint64_t* support, const uint64_t* joined, int64_t words) : support_(support) {
    for (int64_t i = 0; i < words; ++i) {
      for (uint64_t rest = support[i] & joined[i]; rest; rest &= rest - 1) {
        positions_[count_++] = static_cast<int32_t>(64 * i + __builtin_ctzll(rest));
      }
    }
  }

  // Chains: a position is joined to the one before. False where that is farther away, behind deleted ones.
  template <class T>
  bool average_runs(T* v) const {
    for (int k = 0; k < count_; ++k) {
      if (positions_[k] == 0 || !has_weight(positions_[k] - 1)) return false;
    }
    for (int first = 0, last; first < count_; first = last) {
      const int32_t begin = positions_[first] - 1;
      for (last = first + 1; last < count_ && positions_[last] == positions_[last - 1] + 1;) ++last;
      T sum = v[begin];
      for (int k = first; k < last; ++k) sum += v[positions_[k]];
      const T mean = sum / static_cast<T>(last - first + 1);
      for (int32_t i = begin; i <= positions_[last - 1]; ++i) v[i] = mean;
    }
    return true;
  }

  // Groups of equal weights, wherever they are.
  template <class T>
  bool average_equals(const T* y, T* v) const {
    T means[most];
    for (int k = 0; k < count_; ++k) {
      T sum{}, size{};
      for (int j = 0; j < count_; ++j) {
        const bool same = y[positions_[j]] == y[positions_[k]];
        sum += same ? v[positions_[j]] : T(0);
        size += same ? T(1) : T(0);
      }
      means[k] = sum / size;
    }
    for (int k = 0; k < count_; ++k) v[positions_[k]] = means[k];
    return true;
  }

 private:
  bool has_weight(int32_t i) const { return support_[i / 64] >> (i % 64) & 1; }

  const uint64_t* support_;
  int count_ = 0;
  int32_t positions_[most];
};

}  // namespace regmax::REGMAX_ISA
