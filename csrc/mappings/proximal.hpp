// The proximal operators, kernels without a simplex: every kept position takes part, and every row is scalar.
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/isotonic.hpp"
#include "algorithms/total_variation.hpp"
#include "mappings/products.hpp"

namespace regmax::REGMAX_ISA {

struct Proximal : HasLam {
  static constexpr bool on_simplex = false;
  static bool is_sparsemax(double) { return false; }
  static bool fits_products(double, bool) { return false; }
  template <class T>
  static constexpr Whole whole = Whole::no;
};

// prox_tv1d: argmin 1/2 |z - x|^2 + lam sum |z_{i+1} - z_i|. J averages over segments.
struct ProxTv1d : Proximal {
  static constexpr Joins joins = Joins::neighbours;

  template <class T>
  static void map(ScalarRow<T>& row, double lam) {
    Workspace& w = row.w;
    row.choose_all();
    prox_tv(w.x, row.m, lam, TvSpace(w.pooling, row.m), w.y, w.joined, w.rises);
  }
  template <class T>
  static void multiply(const CompactedRow<T>& row, double lam, Workspace& w) {
    widen(row, w);
    if (lam != 0) average_segments(w.v, row.m, row.joined);
    narrow(row, w);
  }
};

// prox_oscar: the OWL prox with weights lam (m - k). J averages sign(z) v over groups of equal |z|.
struct ProxOscar : Proximal {
  static constexpr Joins joins = Joins::nothing;

  template <class T>
  static void map(ScalarRow<T>& row, double lam) {
    row.choose_all();
    const auto weight = [&](int64_t k) { return lam * static_cast<double>(row.m - 1 - k); };
    prox_owl(row.w.x, row.m, weight, IsotonicSpace(row.w.pooling, row.m), row.w.y);
  }
  template <class T>
  static void multiply(const CompactedRow<T>& row, double lam, Workspace& w) {
    if (lam == 0) return;
    widen(row, w);
    average_equal_sizes(w.v, w.x, row.m, IsotonicSpace(w.pooling, row.m).ranked);
    for (int64_t i = 0; i < row.m; ++i) w.v[i] = w.x[i] == 0 ? 0 : w.v[i];
    narrow(row, w);
  }
};

}  // namespace regmax::REGMAX_ISA
