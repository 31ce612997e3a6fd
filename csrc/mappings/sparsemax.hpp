// sparsemax: y = (x - tau)_+, the projection on the simplex (algorithms/simplex.hpp).
//
// The cut. The row's maxima by lane are a subset of its scores, and the threshold of a subset is a lower
// bound of the row's: scores at or below it have no weight.
#pragma once

#include <cstdint>

#include "algorithms/lane_simplex.hpp"
#include "mappings/products.hpp"

namespace regmax::REGMAX_ISA {

struct Sparsemax : JoinsNothing {
  static constexpr bool on_simplex = true;
  static bool accepts(double) { return true; }
  static bool is_sparsemax(double) { return true; }

  // --- Lane tier ---
  static bool fits_vectors(double) { return true; }
  static double cut_slack(double) { return 0; }
  static constexpr int64_t least_screened = least_screened_row;

  template <class T>
  struct Lanes : PlainLanes<T> {
    Vec<T> cut(const Vec<T>* maxima, const LaneProblem<T>&) { return maxima_threshold<T>(maxima); }
    uint32_t solve(LaneProblem<T>& p, Vec<T>* y) { return lane_project<T>(p.x, p.count, y); }
  };

  // --- Whole-row tier: the sum of z = (x - tau)_+ over the scores above a first tau moves it to their own
  // ---
  template <class T>
  static constexpr Whole whole = Whole::by_moments;
  static constexpr int64_t whole_first = whole_first_sparsemax;
  static constexpr int64_t whole_first_with_maxima = whole_first_sparsemax_with_maxima;

  template <class T>
  struct Moments {
    static constexpr int powers = 1;

    static Vec<T> guess(const Vec<T>* maxima, bool is_short) {
      return lane_threshold<T>(maxima, lanes<T>, splat(T(-1)), is_short ? 2 : 3).tau;
    }
    static REGMAX_INLINE void add(Where<T> above, Vec<T> z, Vec<T>* sums) { sums[0] = add_where(above, sums[0], z); }
    // The step from tau to the threshold of exactly these scores, for weights of type Weight. Returns the far
    // lanes, whose step is so large next to the weights that these would be rounded.
    template <class Weight>
    static uint32_t find_step(const Vec<T>* sums, Vec<T> count, Vec<T>, Vec<T>* step, Vec<T>*) {
      *step = (sums[0] - splat(T(1))) / count;
      return bits(greater(sums[0], splat(T(2))));
    }
    // Rounding may keep a row from settling: then the count of the scores above tau no longer decreases.
    static constexpr bool count_decreases = true;
  };

  // --- Scalar tier ---
  template <class T>
  static void map(ScalarRow<T>& row, double) {
    row.map_sparsemax();
  }

  // --- Jacobian product ---
  using Product = CentredProduct;
  static constexpr int64_t product_whole_first = whole_first_product;
  static bool fits_products(double, bool) { return true; }

  template <class T>
  static void multiply(const CompactedRow<T>& row, double theta, Workspace&) {
    multiply_compacted<T, Product>(row, theta);
  }

  // --- Gradients of strengths ---
  template <class T>
  static double strength_grad(const CompactedRow<T>&, double, Workspace&) {
    return 0;
  }
  template <class T>
  static double gamma_grad(const CompactedRow<T>& row, double, Workspace&) {
    return -dot(row.v, row.y, row.m);
  }
  template <class T>
  static OmegaValue omega(const CompactedRow<T>& row, double, int64_t, Workspace&) {
    return {dot(row.y, row.y, row.m) / 2, 0};
  }
};

}  // namespace regmax::REGMAX_ISA
