// Jacobian products of rows with many weights, in passes over the whole row: nothing is gathered, because
// most of it would be. What has no weight counts as zero, whatever v is there.
#pragma once

#include <cmath>
#include <cstdint>

#include "one_product.hpp"
#include "prefix_sums.hpp"
#include "regmax.h"

namespace regmax::REGMAX_ISA {

template <class T>
class DenseProduct {
 public:
  DenseProduct(const RowIn<T>& row, T* out, Workspace& w) : row_(row), out_(out), w_(w) {
    if (!row.support) find_positive(row.y, row.d, w.words);
    support_ = row.support ? row.support : w.words;
    for (int64_t i = 0; i < words_of(row.d); ++i) count_ += __builtin_popcountll(support_[i]);
  }

  // False where the row is none of these, and nothing is written. A row of NaN has no support bits.
  bool multiply(int32_t kernel, double theta) {
    if (count_ < 2) return false;
    if (kernel == REGMAX_SPARSEMAX) return subtract_mean();
    if (kernel == REGMAX_FUSEDMAX) return row_.joined && theta != 0 && average_chains();
    if (kernel == REGMAX_OSCARMAX) return theta != 0 && count_ == row_.d && annihilate_uniform();
    return theta == 1.5 && multiply_cubic();
  }

 private:
  static constexpr int64_t stretch = 64 * lanes<T>;  // summed in T; stretches are added in double

  Where<T> supported(int64_t i) const {
    return from_bits<T>(lanes_of<T>(support_[i / 64], static_cast<int>(i % 64)));
  }
  Vec<T> y(int64_t i) const { return load_left(row_.y + i, row_.d - i, T(0)); }
  Vec<T> v(int64_t i) const {
    return select(supported(i), load_left(row_.v + i, row_.d - i, T(0)), Vec<T>{});
  }

  // Adds up what add(i, sums) adds to the sums for every vector of the row.
  template <int count, class Add>
  void sum_row(double (&totals)[count], const Add& add) const {
    for (int64_t begin = 0; begin < row_.d; begin += stretch) {
      Vec<T> sums[count] = {};
      const int64_t end = row_.d - begin < stretch ? row_.d : begin + stretch;
      for (int64_t i = begin; i < end; i += lanes<T>) add(i, sums);
      for (int k = 0; k < count; ++k) totals[k] += sum_lanes(sums[k]);
    }
  }

  bool subtract_mean() const {
    double sum[1] = {};
    sum_row(sum, [&](int64_t i, Vec<T>* sums) { sums[0] += v(i); });
    const Vec<T> mean = splat(static_cast<T>(sum[0] / static_cast<double>(count_)));
    for (int64_t i = 0; i < row_.d; i += lanes<T>) {
      store_left<T>(out_ + i, row_.d - i, select(supported(i), v(i) - mean, Vec<T>{}));
    }
    return true;
  }

  // Every group's mean minus the mean of all. False where a group goes on behind a deleted position.
  bool average_chains() {
    uint64_t before = 0;
    for (int64_t i = 0; i < words_of(row_.d); ++i) {
      if (row_.joined[i] & ~(support_[i] << 1 | before)) return false;
      before = support_[i] >> 63;
    }
    double* const sums = w_.x;
    prefix_sums(row_.v, row_.d, sums, [&](Vec<double> v, int64_t i) {
      return select(from_bits<double>(lanes_of<double>(support_[i / 64], static_cast<int>(i % 64))), v,
                    Vec<double>{});
    });
    write_means(sums, sums[row_.d] / static_cast<double>(count_));
    return true;
  }

  // A run ends where a group begins and where the support ends.
  void write_means(const double* sums, double mean) {
    int64_t begin = 0;
    uint64_t before = 0;
    bool inside = false;
    const auto finish = [&](int64_t end) {
      const double value = (sums[end] - sums[begin]) / static_cast<double>(end - begin) - mean;
      fill_run(out_, begin, end, row_.d, inside ? static_cast<T>(value) : T(0));
      begin = end;
    };
    for (int64_t word = 0; word < words_of(row_.d); ++word) {
      const uint64_t has = support_[word], had = has << 1 | before;
      before = has >> 63;
      for (uint64_t edges = (has & ~row_.joined[word]) | (had & ~has); edges; edges &= edges - 1) {
        const int64_t end = word * 64 + __builtin_ctzll(edges);
        if (end >= row_.d) break;
        if (end > begin) finish(end);
        inside = has & edges & -edges;
      }
    }
    finish(row_.d);
  }

  // All weights equal: J v is the mean minus the mean.
  bool annihilate_uniform() const {
    const Vec<T> same = splat(row_.y[0]);
    uint32_t different = 0;
    for (int64_t i = 0; i < row_.d; i += lanes<T>) {
      different |= ~bits(equal(load_left(row_.y + i, row_.d - i, row_.y[0]), same));
    }
    if (different & all_lanes<T>) return false;
    fill_run(out_, 0, row_.d, row_.d, T(0));
    return true;
  }

  // p = 1.5 (jacobians.hpp has the formula).
  bool multiply_cubic() const {
    double sums[5] = {};
    sum_row(sums, [&](int64_t i, Vec<T>* s) {
      const Vec<T> yi = y(i), vi = v(i), root = nearly_square_root(yi);
      s[0] = times_plus(yi, root, s[0]);
      s[1] = times_plus(yi, vi, s[1]);
      s[2] += yi;
      s[3] += root;
      s[4] = times_plus(root, vi, s[4]);
    });
    const double half = 0.5 / sums[0], along = sums[1], total = sums[2];
    const double ratio = (sums[4] - half * total * along) / (sums[3] - half * total * total);
    const Vec<T> scale = splat(static_cast<T>(2 / std::cbrt(sums[0]))), ratios = splat(static_cast<T>(ratio));
    const Vec<T> along_y = splat(static_cast<T>(half * (along - ratio * total)));
    for (int64_t i = 0; i < row_.d; i += lanes<T>) {
      const Vec<T> yi = y(i), product = scale * (nearly_square_root(yi) * (v(i) - ratios) - along_y * yi);
      store_left<T>(out_ + i, row_.d - i, select(supported(i), product, Vec<T>{}));
    }
    return true;
  }

  const RowIn<T>& row_;
  T* out_;
  Workspace& w_;
  const uint64_t* support_;
  int64_t count_ = 0;
};

}  // namespace regmax::REGMAX_ISA
