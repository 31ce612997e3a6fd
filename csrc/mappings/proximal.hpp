// The proximal operators, kernels without a simplex: every kept position takes part, and every row is scalar.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "algorithms/isotonic.hpp"
#include "algorithms/sorted_blocks.hpp"
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
struct ProxTv1d : Proximal, PenalisedNorm<ProxTv1d> {
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
struct ProxOscar : Proximal, PenalisedNorm<ProxOscar> {
  static constexpr Joins joins = Joins::nothing;

  template <class T>
  static void map(ScalarRow<T>& row, double lam) {
    Workspace& w = row.w;
    if (lam == 0) {
      row.choose_unshifted();
      for (int64_t i = 0; i < row.m; ++i) w.y[i] = w.x[i] + 0.0;  // no negative zeros
      return;
    }
    const bool is_sure = sizeof(T) == sizeof(float) ? map_by_value(row, lam) : map_by_rank(row, lam);
    if (row.is_final(is_sure)) return;
    Ranked* const ranked = IsotonicSpace(w.pooling, row.m).ranked;
    for (int64_t i = 0; i < row.m; ++i) ranked[i] = {std::fabs(static_cast<double>(row.x[i])), i};
    sort_decreasing(ranked, row.m);
    for (int64_t k = 0; k < row.m; ++k) w.x[k] = ranked[k].value;
    if (!solve_again(row, is_sure, lam, true, [](auto& exact) { return exact.pool_sorted(), true; })) return;
    std::copy_n(w.y, row.m, w.space);
    for (int64_t k = 0; k < row.m; ++k) {
      const int64_t i = ranked[k].position;
      w.y[i] = w.space[k] > 0 ? std::copysign(w.space[k], static_cast<double>(row.x[i])) : 0;
    }
  }

  template <class T>
  static void multiply(const CompactedRow<T>& row, double lam, Workspace& w) {
    if (lam == 0 || multiply_few(row)) return;
    T* const sizes = write_sizes(row, w);
    for (int64_t i = 0; i < row.m; ++i) w.v[i] = with_sign_of(row.y[i], static_cast<double>(row.v[i]));
    average_equal(sizes, row.m, w);
    const bool moves = std::count(sizes, sizes + row.m, T(0)) == 1;
    for (int64_t i = 0; i < row.m; ++i) {
      row.v[i] = row.y[i] != 0 || moves ? static_cast<T>(with_sign_of(row.y[i], w.v[i])) : 0;
    }
  }

  // The k-th largest |z| of m has the weight lam (m - k).
  template <class T>
  static double strength_grad(const CompactedRow<T>& row, double, Workspace& w) {
    T *const sizes = write_sizes(row, w), *const u = reinterpret_cast<T*>(w.v);
    double total = 0;
    for (int64_t i = 0; i < row.m; ++i) {
      u[i] = row.y[i] != 0 ? with_sign_of(row.y[i], row.v[i]) : 0;
      total += static_cast<double>(u[i]);
    }
    return sum_by_rank(sizes, u, row.m, w) - static_cast<double>(row.m) * total;
  }

 private:
  // sign(y) v, without a branch; the sum turns -0 into 0.
  template <class T, class Value>
  static Value with_sign_of(T y, Value v) {
    return v * std::copysign(Value(1), static_cast<Value>(y)) + 0;
  }

  // The sizes |y|, in w.x.
  template <class T>
  static T* write_sizes(const CompactedRow<T>& row, Workspace& w) {
    T* const sizes = reinterpret_cast<T*>(w.x);
    for (int64_t i = 0; i < row.m; ++i) sizes[i] = row.y[i] < 0 ? -row.y[i] : row.y[i];
    return sizes;
  }

  static double margin_of(int64_t m, double largest, double lam) {
    return doubt(m, largest + lam * static_cast<double>(m - 1));
  }

  // Both return whether rounding decided nothing.
  template <class T>
  static bool map_by_value(ScalarRow<T>& row, double lam) {
    row.choose_unread();
    SortedSizes<T> sizes(row.x, row.m, lam, row.gamma, row.w);
    const double m = static_cast<double>(row.m), largest = static_cast<double>(sizes.largest()) / row.gamma;
    // Prefix sums are as large as the row is long.
    const bool is_sure = sizes.write(margin_of(row.m, largest, lam) * (1 + m / 8), row.w.y);
    for (int64_t i = 0; i < row.m; ++i) row.w.y[i] = with_sign_of(row.x[i], row.w.y[i]);
    return is_sure;
  }
  template <class T>
  static bool map_by_rank(ScalarRow<T>& row, double lam) {
    Workspace& w = row.w;
    row.choose_unshifted();
    const IsotonicSpace space(w.pooling, row.m);
    const auto weight = [&](int64_t k) { return lam * static_cast<double>(row.m - 1 - k); };
    rank_sizes(row.x, row.m, w.y, w, space.ranked);
    for (int64_t k = 0; k < row.m; ++k) space.ranked[k].value = std::fabs(w.x[space.ranked[k].position]);
    return prox_owl(w.x, row.m, weight, space, margin_of(row.m, largest_size(row), lam), w.y);
  }

  // J v is zero off the groups of sizes that v touches. After sparsemax they are few: false if they are not.
  template <class T>
  static bool multiply_few(const CompactedRow<T>& row) {
    T sizes[few_sizes];
    double sums[few_sizes];
    int count = 0;
    for (int64_t i = 0; i < row.m; i += lanes<T>) {
      uint32_t touched = ~bits(equal(load_left(row.v + i, row.m - i, T(0)), Vec<T>{})) & all_lanes<T>;
      for (; touched; touched &= touched - 1) {
        const int64_t k = i + __builtin_ctz(touched);
        const T size = row.y[k] < 0 ? -row.y[k] : row.y[k];
        int j = 0;
        while (j < count && sizes[j] != size) ++j;
        if (j == few_sizes) return false;
        if (j == count) sizes[count] = size, sums[count++] = 0;
        sums[j] += with_sign_of(row.y[k], static_cast<double>(row.v[k]));
      }
    }
    write_few(row, sizes, sums, count);
    return true;
  }

  // The smallest number has no penalty: a zero that is the only one moves with its score.
  template <class T>
  static void write_few(const CompactedRow<T>& row, const T* sizes, const double* sums, int count) {
    constexpr T none = std::numeric_limits<T>::quiet_NaN();
    int64_t members[few_sizes] = {};
    for (int64_t i = 0; i < row.m; i += lanes<T>) {
      const Vec<T> size = absolute<T>(load_left(row.y + i, row.m - i, none));
      for (int j = 0; j < count; ++j) members[j] += __builtin_popcount(bits(equal(size, splat(sizes[j]))));
    }
    Vec<T> means[few_sizes];
    for (int j = 0; j < count; ++j) {
      const bool is_constant = sizes[j] == 0 && members[j] > 1;
      means[j] = splat(is_constant ? T(0) : static_cast<T>(sums[j] / static_cast<double>(members[j])));
    }
    for (int64_t i = 0; i < row.m; i += lanes<T>) {
      const Vec<T> y = load_left(row.y + i, row.m - i, none), size = absolute<T>(y), zero{};
      Vec<T> product{};
      for (int j = 0; j < count; ++j) product = select(equal(size, splat(sizes[j])), means[j], product);
      store_left<T>(row.v + i, row.m - i, select(greater(zero, y), zero - product, product));
    }
  }
};

// prox_oscar for a result that is projected onto the simplex next: numbers without weight there may be zero.
struct LeadingOscar : ProxOscar {
  static bool fits_vectors(double lam) { return lam > 0 && lam <= 0.125; }

  // The Jacobian product on few numbers, one row per lane, for directions that are zero elsewhere.
  struct Few {
    static constexpr Joins joins = Joins::anywhere;

    struct Product {
      static constexpr int sums = 1, factors = 1;
      static constexpr bool reads_weights = true;

      template <class T>
      static REGMAX_INLINE Vec<T> root(Vec<T> y, Vec<T>) {
        return y;
      }
      template <class T>
      static REGMAX_INLINE void add(Where<T>, Vec<T>, Vec<T>, Vec<T>, Vec<T>*) {}
      template <class V>
      static REGMAX_INLINE void find_factors(const V*, V, V scale, V, V* f) {
        f[0] = scale;
      }
      template <class V>
      static REGMAX_INLINE V multiply(V, V, V v, const V* f) {
        return f[0] * v;
      }
    };

    template <class T>
    static void average_lanes(const Vec<T>* y, Vec<T>* v, int count, IntVec<T>) {
      const Vec<T> one = splat(T(1)), zero{};
      Vec<T> sizes[max_candidates], turned[max_candidates];
      for (int k = 0; k < count; ++k) {
        sizes[k] = absolute<T>(y[k]);
        turned[k] = select(greater(zero, y[k]), zero - v[k], v[k]);
      }
      for (int k = 0; k < count; ++k) {
        Vec<T> sum{}, size{};
        for (int j = 0; j < count; ++j) {
          const Where<T> same = equal(sizes[j], sizes[k]);
          sum = add_where(same, sum, turned[j]);
          size = add_where(same, size, one);
        }
        const Vec<T> mean = sum / size;
        v[k] = select(greater(zero, y[k]), zero - mean, mean);
      }
    }
  };
};

template <class Mapping>
constexpr bool leads = std::is_same_v<Mapping, LeadingOscar>;

}  // namespace regmax::REGMAX_ISA
