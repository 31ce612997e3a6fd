// Jacobian products of one row of attention weights, in place and in T (jacobians.hpp has the formulas).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "attention_flat.hpp"
#include "attention_products.hpp"
#include "jacobians.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

// The nonzero weights of one row.
template <class T>
struct WeightRow {
  const int32_t* columns;
  const T* values;
  const uint8_t* joined;  // nullptr for mappings without chains
  int64_t count;

  // One group has all the weight, whatever the scores: J is zero. (sqpnormmax knows no groups but single
  // weights.)
  bool is_one_group(int32_t kernel) const {
    if (count == 0) return true;
    if (kernel == REGMAX_SPARSEMAX || kernel == REGMAX_SQPNORMMAX)
      return count == 1 && values[0] == values[0];
    if (values[0] != values[count - 1]) return false;
    if (joined) return !std::memchr(joined + 1, 0, static_cast<std::size_t>(count - 1));
    for (int64_t k = 1; k < count; ++k) {
      if (values[k] != values[0]) return false;
    }
    return true;
  }
};

template <class T>
class RowProduct {
 public:
  RowProduct(int32_t kernel, double theta, double scale) : kernel_(kernel), theta_(theta), scale_(scale) {}

  // Replaces v by scale J v.
  void multiply(const WeightRow<T>& row, T* v, Workspace& w) const {
    if (row.is_one_group(kernel_)) {
      std::memset(v, 0, static_cast<std::size_t>(row.count) * sizeof(T));
    } else if (row.values[0] != row.values[0]) {
      for (int64_t k = 0; k < row.count; ++k) v[k] = std::numeric_limits<T>::quiet_NaN();
    } else if (kernel_ == REGMAX_SPARSEMAX) {
      centre(v, row.count);
    } else if (kernel_ == REGMAX_SQPNORMMAX && theta_ == 1.5) {
      multiply_by_sqpnorm(row.values, v, row.count);
    } else {
      multiply_in_double(row, v, w);
    }
  }

 private:
  void multiply_in_double(const WeightRow<T>& row, T* v, Workspace& w) const {
    for (int64_t k = 0; k < row.count; ++k) {
      w.x[k] = static_cast<double>(row.values[k]);
      w.v[k] = static_cast<double>(v[k]);
    }
    if (row.joined) std::memcpy(w.joined, row.joined, static_cast<std::size_t>(row.count));
    multiply_row(kernel_, row.values, row.count, theta_, w);
    for (int64_t k = 0; k < row.count; ++k) v[k] = static_cast<T>(scale_ * w.v[k]);
  }

  // v = scale (v - its mean)
  void centre(T* v, int64_t count) const {
    double sum = 0;
    for (int64_t begin = 0; begin < count; begin += stretch) {
      const int64_t end = begin + stretch < count ? begin + stretch : count;
      Vec<T> sums{};
      int64_t k = begin;
      for (; k + lanes<T> <= end; k += lanes<T>) sums += load(v + k);
      sum += static_cast<double>(sum_of<T>(sums));
      for (; k < end; ++k) sum += static_cast<double>(v[k]);
    }
    const T mean = static_cast<T>(sum / static_cast<double>(count));
    for (int64_t k = 0; k < count; ++k) v[k] = static_cast<T>(scale_) * (v[k] - mean);
  }

  // For p = 1.5 and s = sum y^1.5, J's M is 2 s^(-1/3) [ diag(y^(1/2)) - y y^T / (2 s) ] (jacobians.hpp); y
  // sums to one.
  void multiply_by_sqpnorm(const T* y, T* v, int64_t count) const {
    RowSums sums = sum_products(y, v, count);
    const double s = sums.of[0], along = sums.of[1], roots = sums.of[2], rooted = sums.of[3], half = 0.5 / s;
    const double ratio = (rooted - half * along) / (roots - half);
    const double scale = 2 * scale_ / std::cbrt(s), along_y = half * (along - ratio);
    const Vec<T> ratios = splat(static_cast<T>(ratio)), scales = splat(static_cast<T>(scale));
    const Vec<T> slopes = splat(static_cast<T>(along_y));
    for (int64_t k = 0; k < count; k += lanes<T>) {
      const int some = static_cast<int>(count - k < lanes<T> ? count - k : lanes<T>);
      const Vec<T> weight = load_part(y + k, some), direction = load_part(v + k, some);
      const Vec<T> product = scales * (nearly_square_root(weight) * (direction - ratios) - slopes * weight);
      store_some<T>(v + k, some, product);
    }
  }

  // sum y^1.5, <y, v>, sum y^(1/2), <y^(1/2), v>
  static RowSums sum_products(const T* y, const T* v, int64_t count) {
    RowSums total;
    for (int64_t begin = 0; begin < count; begin += stretch) {
      const int64_t end = begin + stretch < count ? begin + stretch : count;
      Vec<T> sums[4] = {};
      for (int64_t k = begin; k < end; k += lanes<T>) {
        const int some = static_cast<int>(end - k < lanes<T> ? end - k : lanes<T>);
        const Vec<T> weight = load_part(y + k, some), direction = load_part(v + k, some),
                     root = nearly_square_root(weight);
        sums[0] = multiply_add(weight, root, sums[0]);
        sums[1] = multiply_add(weight, direction, sums[1]);
        sums[2] += root;
        sums[3] = multiply_add(root, direction, sums[3]);
      }
      for (int i = 0; i < 4; ++i) total.of[i] += static_cast<double>(sum_of<T>(sums[i]));
    }
    return total;
  }

  static Vec<T> load_part(const T* p, int some) {
    return some < lanes<T> ? load_some(p, some, T(0)) : load(p);
  }

  int32_t kernel_;
  double theta_, scale_;
};

}  // namespace regmax::REGMAX_ISA
