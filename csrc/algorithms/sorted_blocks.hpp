// Sorted pooling by value: equal scores are pooled, so a score's value tells its block, and no
// permutation is needed (isotonic.hpp has the mathematics).
//
// A block can end only between sorted neighbours that are more than lam apart: elsewhere x_(k) + lam k rises,
// and rising neighbours are pooled. The stretches between such ends are the atoms of the pooling. For a large
// lam most scores are in one atom, and in one block.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "algorithms/isotonic.hpp"
#include "algorithms/levels.hpp"
#include "algorithms/workspace.hpp"
#include "simd/prefix_sums.hpp"
#include "simd/row_sorting.hpp"

namespace regmax::REGMAX_ISA {

// Sorted numbers of one row, their prefix sums, and the blocks of a prefix; in the workspace's w.v, w.space and w.ends.
template <class T>
class SortedNumbers {
 protected:
  SortedNumbers(int64_t m, double lam, Workspace& w)
      : m_(m), lam_(lam), w_(w), sorted_(reinterpret_cast<T*>(w.v)), sums_(w.space) {}

  // Sorts the m numbers at sorted_; pick gives the numbers whose sums count, in units of gamma. w.y is overwritten.
  template <class Pick>
  void sort(double gamma, const Pick& pick) {
    sort_row(sorted_, m_, reinterpret_cast<T*>(w_.y));
    prefix_sums(sorted_, m_, sums_, [&](Vec<double> v, int64_t) { return pick(v); });
    ends_ = find_ends(sorted_, m_, lam_ * gamma, w_.ends);
  }

  // Adds the sum of lam (k + 1/2 - centre / 2) over the ranks k, from 0, up to each end. The sums up to the ends, from
  // that of nothing on, replace the prefix sums.
  void add_penalty(int64_t centre) {
    for (int64_t i = 0; i < ends_; ++i) {
      const double end = static_cast<double>(w_.ends[i]);
      sums_[i + 1] = sums_[w_.ends[i]] + lam_ * (end * (end - static_cast<double>(centre)) / 2);
    }
  }

  // Pools the atoms of the first `length` numbers; returns the number of blocks. The same comparisons, none of them
  // within the margin, lead to the same blocks in exact arithmetic; otherwise `sure` becomes false.
  int64_t pool(int64_t length, Block* blocks, bool* sure) const {
    int64_t count = 0, begin = 0;
    bool clear = *sure;
    for (int64_t i = 0; begin < length; begin = w_.ends[i++]) {
      count = push_block(blocks, count, {sums_[i + 1] - sums_[i], w_.ends[i] - begin},
                         [&](double falls) { clear &= std::fabs(falls) > margin_; });
    }
    *sure = clear;
    return count;
  }

  // Gives each of the m numbers x the value of its block, which replace the prefix sums, or zero after the prefix. The
  // sorted numbers are overwritten.
  void write_values(const T* x, const Block* blocks, int64_t count, int64_t length, double* y) const {
    sums_[count] = 0;
    const Levels<T> levels(sorted_, count + (length < m_),
                           [&](int64_t j) { return j < count ? blocks[j].count : m_ - length; });
    levels.write(x, m_, sums_, y);
  }

  int64_t m_;
  double lam_, margin_ = 0;
  Workspace& w_;
  T* sorted_;
  double* sums_;
  int64_t ends_ = 0;
};

// oscarmax's blocks: those of the candidates of one row.
template <class T>
class SortedBlocks : SortedNumbers<T> {
  using Base = SortedNumbers<T>;
  using Base::ends_, Base::lam_, Base::m_, Base::margin_, Base::sorted_, Base::sums_, Base::w_;

 public:
  // The m scores have the maximum `top`.
  SortedBlocks(const T* scores, int64_t m, T top, double lam, double gamma, double margin, Workspace& w)
      : Base(m, lam, w), scores_(scores) {
    margin_ = margin;
    std::memcpy(sorted_, scores, static_cast<std::size_t>(m) * sizeof(T));
    const Vec<double> tops = splat(static_cast<double>(top)), inverse = splat(1 / gamma);
    this->sort(gamma, [&](Vec<double> v) { return (v - tops) * inverse; });
    for (int64_t i = 0; i < ends_; ++i) best_.add(w.ends[i], sums_[w.ends[i]], lam);
    this->add_penalty(best_.length);
  }

  double tau() const { return best_.tau; }

  // Returns whether rounding decided nothing.
  bool write_weights(double* y) {
    Block* const blocks = IsotonicSpace(w_.pooling, m_).blocks;
    const double tau = (best_.sum - 1) / static_cast<double>(best_.length);
    bool sure = best_.tau - best_.after > margin_;
    const int64_t count = this->pool(best_.length, blocks, &sure);
    sure &= blocks[count - 1].mean - tau > margin_;
    double total = 0;
    for (int64_t j = 0; j < count; ++j) {
      sums_[j] = larger(blocks[j].mean - tau, 0);
      total += static_cast<double>(blocks[j].count) * sums_[j];
    }
    for (int64_t j = 0; j < count; ++j) sums_[j] /= total;
    this->write_values(scores_, blocks, count, best_.length, y);
    return sure;
  }

 private:
  const T* scores_;
  Prefix best_ = no_prefix;
};

// prox_oscar's blocks: those of the sizes |x| of a row. The k-th largest size loses lam (m - k). Blocks with positive
// means fill the prefix at which the sum of what is left is largest; the others are zero.
template <class T>
class SortedSizes : SortedNumbers<T> {
  using Base = SortedNumbers<T>;
  using Base::ends_, Base::lam_, Base::m_, Base::margin_, Base::sorted_, Base::sums_, Base::w_;

 public:
  // w.x is overwritten, too.
  SortedSizes(const T* x, int64_t m, double lam, double gamma, Workspace& w)
      : Base(m, lam, w), inverse_(1 / gamma), sizes_(reinterpret_cast<T*>(w.x)) {
    for (int64_t i = 0; i < m; i += lanes<T>) {
      const Vec<T> size = absolute<T>(load_left(x + i, m - i, T(0)));
      store<T>(sizes_ + i, size);
      store<T>(sorted_ + i, size);
    }
    const Vec<double> inverse = splat(inverse_);
    this->sort(gamma, [&](Vec<double> v) { return v * inverse; });
    this->add_penalty(2 * m - 1);
  }

  T largest() const { return sorted_[0]; }

  // Writes the sizes of the result; returns whether rounding decided nothing, up to a margin between means.
  bool write(double margin, double* y) {
    margin_ = margin;
    Block* const blocks = IsotonicSpace(w_.pooling, m_).blocks;
    bool sure;
    const int64_t length = positive_prefix(&sure), count = this->pool(length, blocks, &sure);
    sure &= count == 0 || blocks[count - 1].mean > margin_;
    for (int64_t j = 0; j < count; ++j) sums_[j] = blocks[j].mean;
    refine_small(blocks, count, length);
    this->write_values(sizes_, blocks, count, length, y);
    return sure;
  }

 private:
  // Not sure unless the mean of every stretch after the prefix is below zero by more than the margin.
  int64_t positive_prefix(bool* sure) const {
    int64_t length = 0;
    double most = 0, after = -HUGE_VAL;
    for (int64_t i = 0; i < ends_; ++i) {
      const int64_t end = w_.ends[i];
      const bool grows = sums_[i + 1] > most;
      after = grows ? -HUGE_VAL : larger(after, sums_[i + 1] + margin_ * static_cast<double>(end));
      length = grows ? end : length;
      most = grows ? sums_[i + 1] : most;
    }
    *sure = after < most + margin_ * static_cast<double>(length);
    return length;
  }

  // Means in which the rounding of the prefix sums would show are computed again, from the block's numbers only.
  void refine_small(const Block* blocks, int64_t count, int64_t length) {
    for (int64_t j = count; j-- > 0 && blocks[j].mean < 1e8 * margin_;) {
      double sum = 0;
      for (const int64_t begin = length - blocks[j].count; length > begin; --length) {
        sum += static_cast<double>(sorted_[length - 1]) * inverse_ - lam_ * static_cast<double>(m_ - length);
      }
      sums_[j] = larger(sum / static_cast<double>(blocks[j].count), 0);
    }
  }

  double inverse_;
  T* sizes_;
};

}  // namespace regmax::REGMAX_ISA
