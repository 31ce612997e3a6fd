// Sorted pooling of long rows by value: equal scores are pooled, so a score's value tells its block, and no
// permutation is needed (isotonic.hpp has the mathematics).
//
// A block can end only between sorted neighbours that are more than lam apart: elsewhere x_(k) + lam k rises,
// and rising neighbours are pooled. The stretches between such ends are the atoms of the pooling. For a large
// lam most scores are in one atom, and in one block.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "algorithms/isotonic.hpp"
#include "algorithms/workspace.hpp"
#include "runtime/tuning.hpp"
#include "simd/prefix_sums.hpp"
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
    return std::partition_point(least_, least_ + count_, [=](T least) { return least > value; }) - least_;
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
  for (int64_t i = 0; i < m; i += lanes<T>) {
    uint32_t found = bits(not_at_most(load(sorted + i) - load(sorted + i + 1), least));
    if (m - i < lanes<T>) found &= (1u << (m - i)) - 1;
    for (; found; found &= found - 1) ends[count++] = i + __builtin_ctz(found) + 1;
  }
  return count;
}

// The blocks of the candidates of one row, in the workspace's arrays.
template <class T>
class SortedBlocks {
 public:
  // The m scores have the maximum `top`; w.v, w.space, w.y and w.ends are overwritten.
  SortedBlocks(const T* scores, int64_t m, T top, double lam, double gamma, double margin, Workspace& w)
      : scores_(scores), m_(m), lam_(lam), margin_(margin), w_(w), sorted_(reinterpret_cast<T*>(w.v)), sums_(w.space) {
    std::memcpy(sorted_, scores, static_cast<std::size_t>(m) * sizeof(T));
    sort_row(sorted_, m, reinterpret_cast<T*>(w.y));
    const Vec<double> tops = splat(static_cast<double>(top)), inverse = splat(1 / gamma);
    prefix_sums(sorted_, m, sums_, [&](Vec<double> v, int64_t) { return (v - tops) * inverse; });
    ends_ = find_ends(sorted_, m, lam * gamma, w.ends);
    best_ = best_end();
  }

  double tau() const { return best_.tau; }

  // Returns whether rounding decided nothing.
  bool write_weights(double* y) {
    const IsotonicSpace space(w_.pooling, m_);
    const int64_t count = pool(space.blocks);
    const double tau = (best_.sum - 1) / static_cast<double>(best_.length);
    const bool sure = is_sure(space.blocks, count) && space.blocks[count - 1].mean() - tau > margin_ &&
                      best_.tau - best_.after > margin_;
    // The weights of the blocks, and 0 for the scores after the prefix, replace the prefix sums.
    double total = 0;
    for (int64_t j = 0; j < count; ++j) {
      sums_[j] = larger(space.blocks[j].mean() - tau, 0);
      total += static_cast<double>(space.blocks[j].count) * sums_[j];
    }
    for (int64_t j = 0; j < count; ++j) sums_[j] /= total;
    sums_[count] = 0;
    const int64_t after = m_ - best_.length;
    const Levels<T> levels(sorted_, count + (after > 0),
                           [&](int64_t j) { return j < count ? space.blocks[j].count : after; });
    for (int64_t k = 0; k < m_; ++k) y[k] = sums_[levels.common()];
    levels.find_others(scores_, m_, [&](int64_t k, int64_t level) { y[k] = sums_[level]; });
    return sure;
  }

 private:
  Prefix best_end() const {
    Prefix best = no_prefix;
    for (int64_t i = 0; i < ends_; ++i) best.add(w_.ends[i], sums_[w_.ends[i]], lam_);
    return best;
  }

  // The atom of scores begin to end, with weights centred on the best prefix (isotonic.hpp).
  Block atom(int64_t begin, int64_t end) const {
    const double place = static_cast<double>(begin + end - best_.length) / 2;
    return {sums_[end] - sums_[begin] + lam_ * place * static_cast<double>(end - begin), end - begin};
  }

  // Pools the atoms of the best prefix.
  int64_t pool(Block* blocks) const {
    int64_t count = 0, begin = 0;
    for (int64_t i = 0; begin < best_.length; begin = w_.ends[i++]) {
      count = push_block(blocks, count, atom(begin, w_.ends[i]));
    }
    return count;
  }

  bool is_sure(const Block* blocks, int64_t count) const {
    int64_t begin = 0, i = 0;
    return is_certain(blocks, count, margin_, [&](const Block& block, const auto& visit) {
      for (const int64_t end = begin + block.count; begin < end; begin = w_.ends[i++]) {
        const Block part = atom(begin, w_.ends[i]);
        visit(part.sum, part.count);
      }
    });
  }

  const T* scores_;
  int64_t m_;
  double lam_, margin_;
  Workspace& w_;
  T* sorted_;
  double* sums_;
  int64_t ends_;
  Prefix best_;
};

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
  for (int64_t k = 0; k < m; ++k) w.v[k] = means[levels.common()];
  levels.find_others(y, m, [&](int64_t k, int64_t level) { w.v[k] = means[level]; });
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
