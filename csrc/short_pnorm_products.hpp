// sqpnormmax's Jacobian products of short rows for p = 1.5 (lane_jacobians.hpp has the formula): in passes
// over whole rows, without gathering. The five sums of a group's rows are finished together.
#pragma once

#include <cstdint>

#include "lane_jacobians.hpp"
#include "lockstep_products.hpp"
#include "row_vectors.hpp"
#include "transpose.hpp"

namespace regmax::REGMAX_ISA {

constexpr int64_t short_pnorm_product = 128;

template <class T>
class ShortPnormProducts {
 public:
  // Multiplies the rows; returns the bits of those that are left to do: empty ones, which may be NaN.
  uint32_t run(const ProductRows<T>& rows) {
    return with_vectors<T>(rows.d, [&](auto vectors) { return multiply_rows(rows, vectors); });
  }

 private:
  template <class Vectors>
  uint32_t multiply_rows(const ProductRows<T>& rows, Vectors vectors) {
    uint32_t left = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      const int count = rows.active >> r & 1 ? add_up(rows, r, vectors) : 0;
      left |= static_cast<uint32_t>(count == 0) << r;
      counts_[r] = static_cast<T>(count);
    }
    find_factors();
    for (int r = 0; r < lanes<T>; ++r) {
      if (!(left >> r & 1)) multiply(rows, r, vectors);
    }
    return left & rows.active;
  }

  template <class Vectors>
  REGMAX_INLINE int add_up(const ProductRows<T>& rows, int r, Vectors vectors) {
    const T *const y = rows.y + r * rows.d, *const v = rows.v + r * rows.d;
    const int64_t d = rows.d;
    Vec<T> s{}, along{}, total{}, roots{}, rooted{};
    int count = 0;
    for (int64_t i = 0; i < vectors; ++i) {
      const Vec<T> yi = load_vector<T>(y, i, d, vectors), root = nearly_square_root(yi);
      const Where<T> positive = greater(yi, Vec<T>{});
      // v off the support is not looked at: it may be anything.
      const Vec<T> vi = select(positive, load_vector<T>(v, i, d, vectors), Vec<T>{});
      s = times_plus(yi, root, s);
      along = times_plus(yi, vi, along);
      total += yi;
      roots += root;
      rooted = times_plus(root, vi, rooted);
      count += __builtin_popcount(bits(positive));
      store<T>(roots_[r] + i * lanes<T>, root);
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
    const Vec<T> scale = select(several, factors.scale, Vec<T>{});
    store<T>(scale_, scale);
    store<T>(shift_, -scale * factors.ratio);
    store<T>(along_y_, -scale * factors.along_y);
  }

  // J v = y^(1/2) (scale v + shift + along_y y^(1/2)).
  template <class Vectors>
  REGMAX_INLINE void multiply(const ProductRows<T>& rows, int r, Vectors vectors) {
    prefetch_row(rows.v + (lanes<T> + r) * rows.d, rows.d);
    prefetch_row(rows.y + (lanes<T> + r) * rows.d, rows.d);
    const Vec<T> scale = splat(scale_[r]), shift = splat(shift_[r]), along = splat(along_y_[r]), zero{};
    const T* const v = rows.v + r * rows.d;
    T* const out = rows.out + r * rows.d;
    const int64_t d = rows.d;
    const bool streamed = rows.streamed;
    for (int64_t i = 0; i < vectors; ++i) {
      const Vec<T> root = load(roots_[r] + i * lanes<T>);
      const Vec<T> product =
          root * times_plus(scale, load_vector<T>(v, i, d, vectors), times_plus(along, root, shift));
      put_vector<T>(out, i, d, select(greater(root, zero), product, zero), streamed, vectors);
    }
  }

  T counts_[lanes<T>], scale_[lanes<T>], shift_[lanes<T>], along_y_[lanes<T>];
  Vec<T> s_[lanes<T>] = {}, along_[lanes<T>] = {}, total_[lanes<T>] = {}, root_sum_[lanes<T>] = {},
         rooted_[lanes<T>] = {};
  T roots_[lanes<T>][short_pnorm_product];
};

}  // namespace regmax::REGMAX_ISA
