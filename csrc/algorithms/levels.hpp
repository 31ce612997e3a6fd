// Numbers of a row by value: the levels of equal, or pooled, numbers of a sorted copy, and sums over them. A number's
// value tells its level, so no permutation is needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "algorithms/workspace.hpp"
#include "runtime/tuning.hpp"
#include "simd/prefix_sums.hpp"
#include "simd/reduce.hpp"
#include "simd/row_sorting.hpp"

namespace regmax::REGMAX_ISA {

// Sorted numbers in levels, each known by its least number. Most numbers are often in one level: a vector
// comparison finds the others, which are looked up one by one.
template <class T>
class Levels {
 public:
  // `sorted` becomes the levels' least numbers; size(j) is how many numbers level j has.
  template <class Size>
  Levels(T* sorted, int64_t count, const Size& size) : least_(sorted), count_(count) {
    int64_t largest = 0, end = 0;
    for (int64_t j = 0; j < count; ++j) {
      if (size(j) > largest) {
        largest = size(j);
        common_ = j;
        highest_ = sorted[end];
      }
      end += size(j);
      sorted[j] = sorted[end - 1];  // j < end: what is overwritten has been read
    }
  }

  int64_t common() const { return common_; }

  // y[k] = values[level of x[k]], rounded to T. Few levels are compared with all numbers: no branch, no search.
  void write(const T* x, int64_t m, const double* values, double* y) const {
    if (count_ > compared_levels) {
      for (int64_t k = 0; k < m; ++k) y[k] = values[common_];
      return find_others(x, m, [&](int64_t k, int64_t level) { y[k] = values[level]; });
    }
    constexpr int64_t step = unrolled * lanes<T>;
    for (int64_t i = 0; i < m; i += step) compare_with_all(x + i, m - i, values, y + i);
  }

  // Calls take(k, level) for every x[k] that is not in the common level.
  template <class Take>
  void find_others(const T* x, int64_t m, const Take& take) const {
    const Vec<T> low = splat(least_[common_]), high = splat(highest_);
    for (int64_t i = 0; i < m; i += lanes<T>) {
      const Vec<T> v = load_left(x + i, m - i, highest_);
      uint32_t others = bits(greater(low, v)) | bits(greater(v, high));
      for (; others; others &= others - 1) {
        const int64_t k = i + __builtin_ctz(others);
        take(k, find(x[k]));
      }
    }
  }

 private:
  // The first level whose least number is not above the value.
  int64_t find(T value) const {
    const T* first = least_;  // the level is among the n from here on; no branch depends on the value
    for (int64_t n = count_, half; n > 1; n -= half) {
      half = n / 2;
      first += half & -static_cast<int64_t>(first[half - 1] > value);
    }
    return first - least_;
  }

  // At most `unrolled` vectors. A number is in the last of the levels, from the lowest on, whose least number it
  // reaches.
  REGMAX_INLINE void compare_with_all(const T* x, int64_t left, const double* values, double* y) const {
    Vec<T> v[unrolled], found[unrolled];
    for (int c = 0; c < unrolled; ++c) {
      v[c] = left > c * lanes<T> ? load_left(x + c * lanes<T>, left - c * lanes<T>, highest_) : splat(highest_);
      found[c] = splat(static_cast<T>(values[count_ - 1]));
    }
    for (int64_t j = count_ - 2; j >= 0; --j) {
      const Vec<T> least = splat(least_[j]), value = splat(static_cast<T>(values[j]));
      for (int c = 0; c < unrolled; ++c) found[c] = select(greater(least, v[c]), found[c], value);
    }
    T weights[unrolled * lanes<T>];
    for (int c = 0; c < unrolled; ++c) store<T>(weights + c * lanes<T>, found[c]);
    for (int k = 0; k < unrolled * lanes<T>; k += lanes<double>) {
      store_left<double>(y + k, left - k, load_doubles(weights + k));
      if (left - k <= lanes<double>) break;
    }
  }

  T* least_;
  int64_t count_, common_ = 0;
  T highest_ = 0;
};

// The ends of the atoms of m sorted numbers: `ends` gets the number of scores up to each. Extra ends are
// harmless, so rounding may add some. Two vectors after the numbers are overwritten.
template <class T>
inline int64_t find_ends(T* sorted, int64_t m, double lam, int64_t* ends) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  for (int k = 0; k < 2; ++k) store<T>(sorted + m + k * lanes<T>, splat(lowest));
  const Vec<T> least = splat(static_cast<T>(lam * (1 - 4 * static_cast<double>(rounding<T>))));
  int64_t count = 0;
  for (int64_t i = 0; i < m; i += 64) {  // a mispredicted branch in 64 scores instead of in every vector
    uint64_t found = 0;
    for (int64_t k = i; k < i + 64 && k < m; k += lanes<T>) {
      found |= static_cast<uint64_t>(bits(not_at_most(load(sorted + k) - load(sorted + k + 1), least))) << (k - i);
    }
    if (m - i < 64) found &= (uint64_t{1} << (m - i)) - 1;
    for (; found; found &= found - 1) ends[count++] = i + __builtin_ctzll(found) + 1;
  }
  return count;
}

// Sorts m weights to `sorted`, which has room for another vector. Often most of them are equal: only the others go
// through the network.
template <class T>
inline void sort_weights(const T* y, int64_t m, T* sorted, T* space) {
  const T common = y[m / 2];
  int64_t others = 0;
  for (int64_t i = 0; i < m; i += lanes<T>) {
    const Vec<T> weights = load_left(y + i, m - i, common);
    others += append<T>(sorted + others, ~bits(equal(weights, splat(common))) & all_lanes<T>, weights);
  }
  sort_row(sorted, others, space);
  T* const place = std::partition_point(sorted, sorted + others, [=](T weight) { return weight > common; });
  std::memmove(place + m - others, place, static_cast<std::size_t>(sorted + others - place) * sizeof(T));
  std::fill_n(place, m - others, common);
}

// Averages w.v over the groups of equal numbers among the m numbers y; w.y, w.space and w.ends are
// overwritten.
template <class T>
inline void average_equal(const T* y, int64_t m, Workspace& w) {
  T* const sorted = reinterpret_cast<T*>(w.y);
  sort_weights(y, m, sorted, reinterpret_cast<T*>(w.space));
  const int64_t count = find_ends(sorted, m, 0, w.ends);
  const auto size = [&](int64_t j) { return w.ends[j] - (j > 0 ? w.ends[j - 1] : 0); };
  const Levels<T> levels(sorted, count, size);
  double* const means = w.space;
  for (int64_t j = 0; j < count; ++j) means[j] = 0;
  levels.find_others(y, m, [&](int64_t k, int64_t level) {
    means[level] += w.v[k];
    w.v[k] = 0;
  });
  means[levels.common()] = sum_of(w.v, m);
  for (int64_t j = 0; j < count; ++j) means[j] /= static_cast<double>(size(j));
  levels.write(y, m, means, w.v);
}

// sum_k k u_(k) in the decreasing order of the m numbers y; equal ones share the mean of their ranks. w.y,
// w.space and w.ends are overwritten.
template <class T>
inline double sum_by_rank(const T* y, const T* u, int64_t m, Workspace& w) {
  T* const sorted = reinterpret_cast<T*>(w.y);
  sort_weights(y, m, sorted, reinterpret_cast<T*>(w.space));
  const int64_t count = find_ends(sorted, m, 0, w.ends);
  const auto begin = [&](int64_t j) { return j > 0 ? w.ends[j - 1] : 0; };
  const Levels<T> levels(sorted, count, [&](int64_t j) { return w.ends[j] - begin(j); });
  const auto rank = [&](int64_t j) { return static_cast<double>(begin(j) + w.ends[j] + 1) / 2; };
  double total = 0, others = 0, sum = 0;
  for (int64_t k = 0; k < m; ++k) total += static_cast<double>(u[k]);
  levels.find_others(y, m, [&](int64_t k, int64_t level) {
    others += static_cast<double>(u[k]);
    sum += rank(level) * static_cast<double>(u[k]);
  });
  return sum + rank(levels.common()) * (total - others);
}

}  // namespace regmax::REGMAX_ISA
