// sqpnormmax's Jacobian products of short rows for p = 1.5 (lane_jacobians.hpp has the formula): in passes
// over whole rows, without gathering. The five sums of a group's rows are finished together.
#pragma once

#include <cstdint>

#include "lane_jacobians.hpp"
#include "lockstep_products.hpp"
#include "streaming.hpp"
#include "transpose.hpp"

namespace regmax::REGMAX_ISA {

constexpr int64_t short_pnorm_product = 128;

template <class T>
class ShortPnormProducts {
 public:
  static constexpr int64_t streamed_row = 64;

  // Multiplies the rows; returns the bits of those that are left to do: empty ones, which may be NaN.
  uint32_t run(const ProductRows<T>& rows) {
    uint32_t left = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      const int count = rows.active >> r & 1 ? add_up(rows, r) : 0;
      left |= static_cast<uint32_t>(count == 0) << r;
      counts_[r] = static_cast<T>(count);
    }
    find_factors();
    for (int r = 0; r < lanes<T>; ++r) {
      if (!(left >> r & 1)) multiply(rows, r);
    }
    return left & rows.active;
  }

 private:
  // v off the support is not looked at: it may be anything.
  static Vec<T> supported(Vec<T> y, Vec<T> v) { return select(greater(y, Vec<T>{}), v, Vec<T>{}); }

  int add_up(const ProductRows<T>& rows, int r) {
    const T *const y = rows.y + r * rows.d, *const v = rows.v + r * rows.d;
    Vec<T> s{}, along{}, total{}, roots{}, rooted{};
    int count = 0;
    for (int64_t i = 0; i < rows.d; i += lanes<T>) {
      const Vec<T> yi = load_left(y + i, rows.d - i, T(0)), root = square_root(yi);
      const Vec<T> vi = supported(yi, load_left(v + i, rows.d - i, T(0)));
      s += yi * root;
      along += yi * vi;
      total += yi;
      roots += root;
      rooted += root * vi;
      count += __builtin_popcount(bits(greater(yi, Vec<T>{})));
      store<T>(roots_[r] + i, root);
    }
    s_[r] = s;
    along_[r] = along;
    total_[r] = total;
    root_sum_[r] = roots;
    rooted_[r] = rooted;
    return count;
  }

  void find_factors() {
    const Vec<T> s = sum_rows<T>(s_), along = sum_rows<T>(along_), total = sum_rows<T>(total_);
    const PnormFactors<T> factors =
        lane_pnorm_factors<T>(s, along, total, sum_rows<T>(root_sum_), sum_rows<T>(rooted_));
    // A single weight is one whatever the scores.
    const Where<T> several = greater(load(counts_), splat(T(1)));
    store<T>(scale_, select(several, factors.scale, Vec<T>{}));
    store<T>(ratio_, factors.ratio);
    store<T>(along_y_, factors.along_y);
  }

  void multiply(const ProductRows<T>& rows, int r) {
    const Vec<T> scale = splat(scale_[r]), ratio = splat(ratio_[r]), along_y = splat(along_y_[r]);
    const T *const y = rows.y + r * rows.d, *const v = rows.v + r * rows.d;
    T* const out = rows.out + r * rows.d;
    for (int64_t i = 0; i < rows.d; i += lanes<T>) {
      const Vec<T> yi = load_left(y + i, rows.d - i, T(0)), vi = load_left(v + i, rows.d - i, T(0));
      const Vec<T> product = supported(yi, scale * (load(roots_[r] + i) * (vi - ratio) - along_y * yi));
      rows.d - i >= lanes<T> ? put<T>(out + i, product, rows.streamed)
                             : store_some<T>(out + i, static_cast<int>(rows.d - i), product);
    }
  }

  T counts_[lanes<T>], scale_[lanes<T>], ratio_[lanes<T>], along_y_[lanes<T>];
  Vec<T> s_[lanes<T>] = {}, along_[lanes<T>] = {}, total_[lanes<T>] = {}, root_sum_[lanes<T>] = {},
         rooted_[lanes<T>] = {};
  T roots_[lanes<T>][short_pnorm_product];
};

}  // namespace regmax::REGMAX_ISA
