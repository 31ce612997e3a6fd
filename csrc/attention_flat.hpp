// Rows of which many scores count (flat ones, as at the start of training), in passes over the whole row in
// SIMD.
//
// sparsemax: Michelot's rounds (simplex.hpp). sqpnormmax at p = 1.5: Newton's (lane_pnorm.hpp). fusedmax and
// oscarmax only where all weights are equal. Sums are taken in T over short stretches, and in double over
// those.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "attention_products.hpp"
#include "attention_weights.hpp"
#include "lane_mappings.hpp"
#include "regmax.h"

namespace regmax::REGMAX_ISA {

constexpr int64_t stretch = 1024;

// Sums of up to four numbers per score.
struct RowSums {
  double of[4] = {};
};

// Adds term(x - top, where) for every vector of the row; lanes behind its end are `nothing`.
template <class T, class Term>
inline RowSums sum_row(const T* x, int64_t d, T top, const Term& term) {
  RowSums total;
  for (int64_t begin = 0; begin < d; begin += stretch) {
    const int64_t end = begin + stretch < d ? begin + stretch : d;
    Vec<T> sums[3] = {};
    int64_t i = begin;
    for (; i + lanes<T> <= end; i += lanes<T>) term(load(x + i) - splat(top), sums);
    if (i < end) term(load_some(x + i, static_cast<int>(end - i), nothing<T>) - splat(top), sums);
    for (int s = 0; s < 3; ++s) total.of[s] += static_cast<double>(sum_of<T>(sums[s]));
  }
  return total;
}

template <class T>
class FlatRow {
 public:
  FlatRow(const T* x, int64_t d, T top, const int32_t* columns)
      : x_(x), d_(d), top_(top), columns_(columns) {}

  // Writes the row; false where it is none of these, and nothing is written.
  bool write(int32_t kernel, double theta, RowWriter<T>& writer) const {
    if (!is_finite()) return false;
    if (kernel == REGMAX_SPARSEMAX) return write_sparsemax(writer);
    if (kernel == REGMAX_SQPNORMMAX) return theta == 1.5 && write_sqpnormmax(writer);
    if (kernel == REGMAX_FUSEDMAX ? !is_one_chain(theta) : !is_one_cluster(theta)) return false;
    append(writer, [this](Vec<T>) { return splat(T(1) / static_cast<T>(d_)); }, 1);
    return true;
  }

 private:
  // Neither NaN nor infinity: times zero, either leaves NaN.
  bool is_finite() const {
    const RowSums sums = sum_row(x_, d_, T(0), [](Vec<T> x, Vec<T>* s) { s[0] += x * splat(T(0)); });
    return sums.of[0] == sums.of[0];
  }

  bool write_sparsemax(RowWriter<T>& writer) const {
    double tau = -1, left = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 40; ++round) {
      const Vec<T> bound = splat(static_cast<T>(tau));
      const RowSums sums = sum_row(x_, d_, top_, [bound](Vec<T> x, Vec<T>* s) {
        const Where<T> above = greater(x, bound);
        s[0] = add_where(above, s[0], x);
        s[1] = add_where(above, s[1], splat(T(1)));
      });
      if (sums.of[1] >= left || sums.of[1] == 0) {
        append_normalised(writer, [bound](Vec<T> x) { return larger(x - bound, Vec<T>{}); });
        return true;
      }
      left = sums.of[1];
      tau = (sums.of[0] - 1) / left;
    }
    return false;
  }

  bool write_sqpnormmax(RowWriter<T>& writer) const {
    double largest = start_of_newton();
    for (int round = 0; round < 24; ++round) {
      const Vec<T> shift = splat(static_cast<T>(largest));
      const RowSums sums = sum_row(x_, d_, top_, [shift](Vec<T> x, Vec<T>* s) {
        const Vec<T> z = larger(x + shift, Vec<T>{}), z2 = z * z;
        s[0] += z;
        s[1] += z2;
        s[2] += z2 * z;
      });
      const double s1 = sums.of[0], s2 = sums.of[1], s3 = sums.of[2], r = s2 * s2 * s2 / s3;
      const double step = (r - 1) * s2 * s3 / ((2 * r + 1) * (2 * s1 * s3 - s2 * s2));
      largest -= step;
      // Convergence is quadratic: what is left behind such a step is below rounding.
      if (!(step > std::sqrt(rounding<T>) / 4 * largest)) {
        const Vec<T> final_shift = splat(static_cast<T>(largest));
        append_normalised(writer, [final_shift](Vec<T> x) {
          const Vec<T> z = larger(x + final_shift, Vec<T>{});
          return z * z;
        });
        return true;
      }
    }
    return false;
  }

  // At or above the root Z, from where Newton's steps descend. For Z >= -low, low being the row's minimum,
  // g(Z) = S_2 / S_3^(1/3) >= d^(2/3) (Z + low)^2 / Z: the larger Z at which that is one. Never above 1.
  double start_of_newton() const {
    const double low = static_cast<double>(lowest()) - static_cast<double>(top_);
    const double a = std::cbrt(static_cast<double>(d_) * static_cast<double>(d_));
    const double start = (1 - 2 * a * low + std::sqrt(1 - 4 * a * low)) / (2 * a) * (1 + 1e-6);
    return start < 1 ? start : 1;
  }

  T lowest() const {
    Vec<T> low = splat(top_);
    int64_t i = 0;
    for (; i + lanes<T> <= d_; i += lanes<T>) low = smaller(load(x_ + i), low);
    if (i < d_) low = smaller(load_some(x_ + i, static_cast<int>(d_ - i), top_), low);
    T result = low[0];
    for (int lane = 1; lane < lanes<T>; ++lane) result = low[lane] < result ? low[lane] : result;
    return result;
  }

  // One group: no partial sum of x - mean exceeds lam (tv.hpp).
  bool is_one_chain(double lam) const {
    const double mean = mean_of_row();
    double sum = 0, largest = 0, smallest = 0;
    for (int64_t i = 0; i + 1 < d_; ++i) {
      sum += static_cast<double>(x_[i] - top_) - mean;
      largest = sum > largest ? sum : largest;
      smallest = sum < smallest ? sum : smallest;
      if (i % 64 == 63 && (largest > lam || smallest < -lam)) return false;
    }
    return largest <= lam && smallest >= -lam;
  }

  double mean_of_row() const {
    constexpr T none = nothing<T> / 2;  // what is behind the end
    const RowSums sums = sum_row(
        x_, d_, top_, [](Vec<T> x, Vec<T>* s) { s[0] = add_where(greater(x, splat(none)), s[0], x); });
    return sums.of[0] / static_cast<double>(d_);
  }

  // max - min <= lam d / 2 (isotonic.hpp).
  bool is_one_cluster(double lam) const {
    return static_cast<double>(top_) - static_cast<double>(lowest()) <= lam * static_cast<double>(d_) / 2;
  }

  // The weights are weigh(x - top) over their sum, so that rounding in tau does not show.
  template <class Weigh>
  void append_normalised(RowWriter<T>& writer, const Weigh& weigh) const {
    const RowSums sums = sum_row(x_, d_, top_, [&](Vec<T> x, Vec<T>* s) { s[0] += weigh(x); });
    append(writer, weigh, static_cast<T>(1 / sums.of[0]));
  }

  template <class Weigh>
  void append(RowWriter<T>& writer, const Weigh& weigh, T factor) const {
    int64_t i = 0;
    for (; i + lanes<T> <= d_; i += lanes<T>) {
      const Vec<T> y = weigh(load(x_ + i) - splat(top_)) * splat(factor);
      writer.append(y, bits(greater(y, Vec<T>{})), i, columns_);
    }
    if (i == d_) return;
    const int some = static_cast<int>(d_ - i);
    const Vec<T> y = weigh(load_some(x_ + i, some, nothing<T>) - splat(top_)) * splat(factor);
    writer.append(y, bits(greater(y, Vec<T>{})) & ((1u << some) - 1), i, columns_);
  }

  const T* x_;
  int64_t d_;
  T top_;
  const int32_t* columns_;
};

}  // namespace regmax::REGMAX_ISA
