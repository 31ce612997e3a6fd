// The proximal operators, kernels without a simplex: every kept position takes part, and every row is scalar.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "algorithms/isotonic.hpp"
#include "algorithms/total_variation.hpp"
#include "mappings/products.hpp"
#include "simd/row_sorting.hpp"

namespace regmax::REGMAX_ISA {

struct Proximal : HasLam {
  static constexpr bool on_simplex = false;
  static bool is_sparsemax(double) { return false; }
  static bool fits_products(double, bool) { return false; }
  template <class T>
  static constexpr Whole whole = Whole::no;

 protected:
  template <class T>
  static double largest_size(const ScalarRow<T>& row) {
    double size = 0;
    for (int64_t i = 0; i < row.m; ++i) size = larger(size, std::fabs(row.w.x[i]));
    return size;
  }

  // As ScalarRow::solve_again, but without a projection. A result may be as small as gamma lam: numbers next to which
  // twofold sums would lose its digits are for integers.
  template <class T, class Pool>
  static bool solve_again(ScalarRow<T>& row, bool is_sure, double lam, bool clamped, const Pool& pool) {
    const ExactScores scores{row.w.x, row.m, 0, lam, row.gamma};
    const auto solve = [&](auto& exact) {
      if (!pool(exact)) return false;
      exact.write_means(row.w.y, clamped);
      return true;
    };
    if constexpr (sizeof(T) == sizeof(double)) {
      constexpr double spare = 2.8e14;  // 2^48: a sum in twofold doubles has 104 digits, a result 53 and a few more
      const double size = largest_size(row) * static_cast<double>(row.m);
      if (is_sure && size < spare * row.gamma * lam) return with_accurate_row(scores, solve);
    }
    return with_exact_row(scores, solve);
  }
};

// prox_tv1d: argmin 1/2 |z - x|^2 + lam sum |z_{i+1} - z_i|. J averages over segments.
struct ProxTv1d : Proximal {
  static constexpr Joins joins = Joins::neighbours;

  template <class T>
  static void map(ScalarRow<T>& row, double lam) {
    Workspace& w = row.w;
    row.choose_unshifted();
    const double margin = doubt(row.m, largest_size(row) + lam);
    const bool is_sure = prox_tv(w.x, row.m, lam, margin, TvSpace(w.pooling, row.m), w.y, w.joined, w.rises);
    if (row.is_final(is_sure) || lam == 0) return;
    for (int64_t i = 0; i < row.m; ++i) w.x[i] = static_cast<double>(row.x[i]);
    solve_again(row, is_sure, lam, false,
                [&](auto& exact) { return exact.pool_chains([](int64_t k) { return k == 0 ? 1 : 0; }); });
  }
  template <class T>
  static void multiply(const CompactedRow<T>& row, double lam, Workspace& w) {
    widen(row, w);
    if (lam != 0) average_segments(w.v, row.m, row.joined);
    narrow(row, w);
  }
  template <class T>
  static double strength_grad(const CompactedRow<T>& row, double, Workspace&) {
    return total_variation_grad(row);
  }
  template <class T>
  static double gamma_grad(const CompactedRow<T>& row, double lam, Workspace& w) {
    return lam * strength_grad(row, lam, w) - dot(row.v, row.y, row.m);
  }
};

// The sizes of m finite numbers with their positions, in decreasing order. In float32 a number's bits and its
// position make a key that compares like a double, so that a sorting network carries the positions. w.space and
// `spare`, m numbers, are overwritten.
template <class T>
inline void rank_sizes(const T* x, int64_t m, double* spare, Workspace& w, Ranked* ranked) {
  if constexpr (sizeof(T) == sizeof(float)) {
    for (int64_t i = 0; i < m; ++i) {
      uint32_t bits;
      std::memcpy(&bits, x + i, sizeof bits);
      const uint64_t key = static_cast<uint64_t>(bits & 0x7fffffff) << 32 | static_cast<uint64_t>(i);
      std::memcpy(w.space + i, &key, sizeof key);
    }
    sort_row(w.space, m, spare);
    for (int64_t k = 0; k < m; ++k) {
      uint64_t key;
      std::memcpy(&key, w.space + k, sizeof key);
      const int64_t i = static_cast<int64_t>(key & 0xffffffff);
      ranked[k] = {std::fabs(static_cast<double>(x[i])), i};
    }
  } else {
    for (int64_t i = 0; i < m; ++i) ranked[i] = {std::fabs(static_cast<double>(x[i])), i};
    sort_decreasing(ranked, m);
  }
}

// prox_oscar: the OWL prox with weights lam (m - k). J averages sign(z) v over groups of equal |z|.
struct ProxOscar : Proximal {
  static constexpr Joins joins = Joins::nothing;

  template <class T>
  static void map(ScalarRow<T>& row, double lam) {
    Workspace& w = row.w;
    row.choose_unshifted();
    const IsotonicSpace space(w.pooling, row.m);
    const auto weight = [&](int64_t k) { return lam * static_cast<double>(row.m - 1 - k); };
    const double margin = doubt(row.m, largest_size(row) + weight(0));
    rank_sizes(row.x, row.m, w.y, w, space.ranked);
    for (int64_t k = 0; k < row.m; ++k) space.ranked[k].value = std::fabs(w.x[space.ranked[k].position]);
    const bool is_sure = prox_owl(w.x, row.m, weight, space, margin, w.y);
    if (row.is_final(is_sure) || lam == 0) return;
    for (int64_t i = 0; i < row.m; ++i) space.ranked[i] = {std::fabs(static_cast<double>(row.x[i])), i};
    sort_decreasing(space.ranked, row.m);
    for (int64_t k = 0; k < row.m; ++k) w.x[k] = space.ranked[k].value;
    if (!solve_again(row, is_sure, lam, true, [](auto& exact) { return exact.pool_sorted(), true; })) return;
    std::copy_n(w.y, row.m, w.space);
    for (int64_t k = 0; k < row.m; ++k) {
      const int64_t i = space.ranked[k].position;
      w.y[i] = w.space[k] > 0 ? std::copysign(w.space[k], static_cast<double>(row.x[i])) : 0;
    }
  }
  template <class T>
  static void multiply(const CompactedRow<T>& row, double lam, Workspace& w) {
    if (lam == 0) return;
    Ranked* const ranked = IsotonicSpace(w.pooling, row.m).ranked;
    rank_sizes(row.y, row.m, w.y, w, ranked);
    const auto is_negative = [&](int64_t k) { return row.y[ranked[k].position] < 0; };
    for (int64_t begin = 0, end; begin < row.m; begin = end) {
      double sum = 0;
      for (end = begin; end < row.m && ranked[end].value == ranked[begin].value; ++end) {
        const double v = static_cast<double>(row.v[ranked[end].position]);
        sum += is_negative(end) ? -v : v;
      }
      // The smallest number has no penalty: a zero that is the only one moves with its score.
      const bool is_constant = ranked[begin].value == 0 && end - begin > 1;
      const double mean = is_constant ? 0 : sum / static_cast<double>(end - begin);
      for (int64_t k = begin; k < end; ++k) row.v[ranked[k].position] = static_cast<T>(is_negative(k) ? -mean : mean);
    }
  }

  // The k-th largest |z| of m has the weight lam (m - k).
  template <class T>
  static double strength_grad(const CompactedRow<T>& row, double, Workspace& w) {
    Ranked* const ranked = IsotonicSpace(w.pooling, row.m).ranked;
    rank_sizes(row.y, row.m, w.y, w, ranked);
    double sum = 0;
    for (int64_t k = 0; k < row.m; ++k) {
      const int64_t i = ranked[k].position;
      const double u = static_cast<double>(row.v[i]);
      sum += static_cast<double>(row.m - 1 - k) * (row.y[i] > 0 ? u : row.y[i] < 0 ? -u : 0);
    }
    return -sum;
  }
  template <class T>
  static double gamma_grad(const CompactedRow<T>& row, double lam, Workspace& w) {
    return lam * strength_grad(row, lam, w) - dot(row.v, row.y, row.m);
  }
};

}  // namespace regmax::REGMAX_ISA
