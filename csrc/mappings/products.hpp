// Jacobian products. For every mapping here J is symmetric, and J v depends on v only through a few sums over
// the support: a `Product` states the terms of these sums, the factors that they give, and the product of one
// position. The tiers supply the loops (rows/jacobian_product.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "mappings/tiers.hpp"

namespace regmax::REGMAX_ISA {

// sparsemax's J: v minus its mean over the support. Segments and clusters average v over each group first.
struct CentredProduct {
  static constexpr int sums = 1, factors = 2;
  static constexpr bool reads_weights = false;

  // The function of a weight and of the strength less one that the terms need; it is computed once per weight.
  template <class T>
  static REGMAX_INLINE Vec<T> root(Vec<T> y, Vec<T>) {
    return y;
  }
  // Adds a vector's terms; v may be anything off the support.
  template <class T>
  static REGMAX_INLINE void add(Where<T> supported, Vec<T>, Vec<T>, Vec<T> v, Vec<T>* s) {
    s[0] = add_where(supported, s[0], v);
  }
  // The factors of a row (V is double), or of one row per lane, from the sums and the size of the support; the
  // product is multiplied by `scale`, 1 / gamma. The last argument but one is the strength less
  // one.
  template <class V>
  static REGMAX_INLINE void find_factors(const V* s, V count, V scale, V, V* f) {
    f[0] = scale;
    f[1] = -scale * (s[0] / count);
  }
  // J v at one position of the support, from the weight and its root.
  template <class V>
  static REGMAX_INLINE V multiply(V, V, V v, const V* f) {
    return times_plus(f[0], v, f[1]);
  }
};

// Applies a Product to a compacted row, in T, with sums in double. Roots that cost more than memory are kept in
// `roots`.
template <class T, class Product>
inline void multiply_compacted(const CompactedRow<T>& row, double theta, T* roots = nullptr) {
  const T* const y = row.y;
  T* const v = row.v;
  const int64_t m = row.m;
  const Where<T> all = from_bits<T>(all_lanes<T>);
  const Vec<T> less_one = splat(static_cast<T>(theta - 1));
  double sums[Product::sums] = {}, factors[Product::factors];
  sum_terms<T>(m, sums, [&](int64_t i, Vec<T>* s) {
    const Vec<T> yi = load_left(y + i, m - i, T(0)), root = Product::template root<T>(yi, less_one);
    if (roots) store<T>(roots + i, root);
    Product::template add<T>(all, yi, root, load_left(v + i, m - i, T(0)), s);
  });
  Product::find_factors(sums, static_cast<double>(m), 1.0, theta - 1, factors);
  Vec<T> f[Product::factors];
  for (int k = 0; k < Product::factors; ++k) f[k] = splat(static_cast<T>(factors[k]));
  for (int64_t i = 0; i < m; i += lanes<T>) {
    const Vec<T> yi = load_left(y + i, m - i, T(0));
    const Vec<T> root = roots ? load(roots + i) : Product::template root<T>(yi, less_one);
    store_left<T>(v + i, m - i, Product::multiply(yi, root, load_left(v + i, m - i, T(0)), f));
  }
}

// The same steps in double, for what is averaged over groups: widen() fills w.x with y and w.v with v, and
// narrow() writes w.v back.
template <class T>
inline void widen(const CompactedRow<T>& row, Workspace& w) {
  for (int64_t k = 0; k < row.m; ++k) {
    w.x[k] = static_cast<double>(row.y[k]);
    w.v[k] = static_cast<double>(row.v[k]);
  }
}

template <class T>
inline void narrow(const CompactedRow<T>& row, const Workspace& w) {
  for (int64_t k = 0; k < row.m; ++k) row.v[k] = static_cast<T>(w.v[k]);
}

inline void subtract_mean(double* v, int64_t m) {
  const double mean = mean_of(v, m);
  for (int64_t i = 0; i < m; ++i) v[i] -= mean;
}

inline void average_segments(double* v, int64_t m, const uint8_t* joined) {
  for (int64_t begin = 0, end; begin < m; begin = end) {
    for (end = begin + 1; end < m && joined[end] & shares_segment; ++end) continue;
    const double mean = mean_of(v + begin, end - begin);
    for (int64_t i = begin; i < end; ++i) v[i] = mean;
  }
}

// Averages sign(y) v over the groups of equal |y|, in O(m log m).
inline void average_equal_sizes(double* v, const double* y, int64_t m, Ranked* ranked) {
  for (int64_t i = 0; i < m; ++i) ranked[i] = {std::fabs(y[i]), i};
  sort_decreasing(ranked, m);
  for (int64_t begin = 0, end; begin < m; begin = end) {
    double sum = 0;
    for (end = begin; end < m && ranked[end].value == ranked[begin].value; ++end) {
      const int64_t i = ranked[end].position;
      sum += y[i] < 0 ? -v[i] : v[i];
    }
    const double mean = sum / static_cast<double>(end - begin);
    for (int64_t k = begin; k < end; ++k) v[ranked[k].position] = y[ranked[k].position] < 0 ? -mean : mean;
  }
}

// --- Gradients of strengths ---
//
// On the support x / gamma = grad Omega(y) + tau. Differentiating it, dy/dtheta = -J g with g = d/dtheta grad
// Omega(y), so the derivative of <v, y> is -<u, g> with u = J v. For gamma it is -<u, x> / gamma^2, which is
// -<u, grad Omega(y)> / gamma because u sums to zero: it depends on y only, so scores far from zero lose no
// digits. A mapping defines two functions of a row of y and u = J v (or J v / gamma):
//
//   strength_grad(row, theta, w)   -<u, g>
//   gamma_grad(row, theta, w)      -<u, grad Omega(y)>
//
// J averages over groups, so any subgradient of the penalty serves as g.

template <class T>
inline double dot(const T* a, const T* b, int64_t m) {
  double sum[1] = {};
  sum_terms<T>(m, sum, [&](int64_t i, Vec<T>* s) {
    s[0] = times_plus(load_left(a + i, m - i, T(0)), load_left(b + i, m - i, T(0)), s[0]);
  });
  return sum[0];
}

// Mappings of powers define `Grads`: the terms of sums over the support, and what follows from them, also for one row
// per lane (rows/row_numbers.hpp). Terms of zeros are zero.
template <class Grads, class T>
inline typename Grads::template Of<double> grads_of(const CompactedRow<T>& row, double theta) {
  const Vec<T> less_one = splat(static_cast<T>(theta - 1));
  double sums[Grads::sums] = {};
  sum_terms<T>(row.m, sums, [&](int64_t i, Vec<T>* s) {
    const int64_t left = row.m - i;
    Grads::template add<T>(load_left(row.y + i, left, T(0)), load_left(row.v + i, left, T(0)), less_one, s);
  });
  return {sums, theta};
}

// Omega(y) and its derivative in theta.
struct OmegaValue {
  double value, slope;
};

// The gradients of strengths, and Omega, from those sums.
template <class Sums>
struct PowerStrengths {
  using Grads = Sums;

  template <class T>
  static double strength_grad(const CompactedRow<T>& row, double theta, Workspace&) {
    return grads_of<Grads>(row, theta).strength;
  }
  template <class T>
  static double gamma_grad(const CompactedRow<T>& row, double theta, Workspace&) {
    return grads_of<Grads>(row, theta).gamma;
  }
  template <class T>
  static OmegaValue omega(const CompactedRow<T>& row, double theta, int64_t, Workspace&) {
    const auto grads = grads_of<Grads>(row, theta);
    return {grads.value, grads.slope};
  }
};

// gamma's gradient if Omega is half the squared norm plus lam times a penalty.
template <class Mapping>
struct PenalisedNorm {
  template <class T>
  static double gamma_grad(const CompactedRow<T>& row, double lam, Workspace& w) {
    return lam * Mapping::strength_grad(row, lam, w) - dot(row.v, row.y, row.m);
  }
};

// log2 and exp2 of a double, and of one number per lane.
inline double log2_in_double(double v) { return std::log2(v); }
inline double exp2_in_double(double v) { return std::exp2(v); }
inline Vec<double> log2_in_double(Vec<double> v) { return log2_of<double>(v); }
inline Vec<double> exp2_in_double(Vec<double> v) { return exp2_of<double>(v); }

// The gradient of sum |y_i+1 - y_i|: minus the sum over the edges of sign(y_i+1 - y_i) (u_i+1 - u_i).
template <class T>
inline double total_variation_grad(const CompactedRow<T>& row) {
  const T *const y = row.y, *const u = row.v;
  const int64_t m = row.m;
  const auto is_apart = [&](int64_t k) { return row.apart && row.apart[k]; };
  double sum = 0;
  for (int64_t k = 1; k < m; ++k) {
    const double before = static_cast<double>(u[k - 1]), after = static_cast<double>(u[k]);
    if (is_apart(k)) {  // the weights fall to zero and rise again
      sum += before + after;
    } else if (y[k] != y[k - 1]) {
      sum += y[k] > y[k - 1] ? after - before : before - after;
    }
  }
  if (is_apart(0)) sum += static_cast<double>(u[0]);
  if (is_apart(m)) sum += static_cast<double>(u[m - 1]);
  return -sum;
}

// The gradients of both strengths of a row.
struct StrengthGrad {
  double theta, gamma;
};

// The sums of a whole row without deleted positions, in which y and u are zero off the support.
struct RowSums {
  double total_variation_grad, inner;  // as above; <u, y>
};

// Words of 64 positions without weights, and without the end of a segment, add nothing.
template <class T>
inline RowSums whole_row_sums(const T* y, const T* u, const uint64_t* support, int64_t d) {
  constexpr int64_t stretch = lanes<T> < 8 ? 1 : lanes<T> / 4;  // words; sums in T run over 16 vectors or more
  const int64_t words = words_of(d);
  double edges = 0, inner = 0;
  for (int64_t first = 0; first < words; first += stretch) {
    const int64_t last = words - first < stretch ? words : first + stretch;
    Vec<T> of_edges{}, of_products{};
    for (int64_t word = first; word < last; ++word) {
      if (!(support[word] | (word + 1 < words ? support[word + 1] & 1 : 0))) continue;
      for (int64_t i = 64 * word; i < 64 * (word + 1) && i < d; i += lanes<T>) {
        // Filled with the last weight: there is no edge after it.
        const Vec<T> weight = load_left(y + i, d - i, y[d - 1]), next = load_left(y + i + 1, d - 1 - i, y[d - 1]);
        const Vec<T> product = load_left(u + i, d - i, T(0)), after = load_left(u + i + 1, d - 1 - i, T(0));
        const Vec<T> change = after - product;
        of_products = times_plus(weight, product, of_products);
        of_edges = add_where(greater(next, weight), of_edges, change);
        of_edges = add_where(greater(weight, next), of_edges, -change);
      }
    }
    edges += sum_lanes(of_edges);
    inner += sum_lanes(of_products);
  }
  return {-edges, inner};
}

// sum |y_i+1 - y_i| over the kept positions.
template <class T>
inline double total_variation(const CompactedRow<T>& row) {
  const auto weight = [&](int64_t k) { return static_cast<double>(row.y[k]); };
  double sum = (row.apart[0] ? weight(0) : 0) + (row.apart[row.m] ? weight(row.m - 1) : 0);
  for (int64_t k = 1; k < row.m; ++k)
    sum += row.apart[k] ? weight(k - 1) + weight(k) : std::fabs(weight(k) - weight(k - 1));
  return sum;
}

// The few joined positions of a row, whose v is replaced by group means in place.
class JoinedPositions {
 public:
  // At most `most_joined` positions are joined.
  JoinedPositions(const uint64_t* support, const uint64_t* joined, int64_t words) : support_(support) {
    for (int64_t i = 0; i < words; ++i) {
      for (uint64_t rest = support[i] & joined[i]; rest; rest &= rest - 1) {
        positions_[count_++] = static_cast<int32_t>(64 * i + __builtin_ctzll(rest));
      }
    }
  }

  // Joined to the position before. False if that one is not adjacent, because positions between are deleted.
  template <class T>
  bool average_segments(T* v) const {
    for (int k = 0; k < count_; ++k) {
      if (positions_[k] == 0 || !has_weight(positions_[k] - 1)) return false;
    }
    for (int first = 0, last; first < count_; first = last) {
      const int32_t begin = positions_[first] - 1;
      for (last = first + 1; last < count_ && positions_[last] == positions_[last - 1] + 1;) ++last;
      T sum = v[begin];
      for (int k = first; k < last; ++k) sum += v[positions_[k]];
      const T mean = sum / static_cast<T>(last - first + 1);
      for (int32_t i = begin; i <= positions_[last - 1]; ++i) v[i] = mean;
    }
    return true;
  }

  template <class T>
  bool average_clusters(const T* y, T* v) const {
    constexpr int size = most_joined + lanes<T>;
    T weights[size] = {}, values[most_joined], means[size];  // no weight is zero
    for (int k = 0; k < count_; ++k) weights[k] = y[positions_[k]], values[k] = v[positions_[k]];
    for (int k = 0; k < count_; k += lanes<T>) {
      const Vec<T> own = load(weights + k), one = splat(T(1));
      Vec<T> sum{}, count{};
      for (int j = 0; j < count_; ++j) {
        const Where<T> same = equal(own, splat(weights[j]));
        sum = add_where(same, sum, splat(values[j]));
        count = add_where(same, count, one);
      }
      store<T>(means + k, sum / count);
    }
    for (int k = 0; k < count_; ++k) v[positions_[k]] = means[k];
    return true;
  }

 private:
  bool has_weight(int32_t i) const { return support_[i / 64] >> (i % 64) & 1; }

  const uint64_t* support_;
  int count_ = 0;
  int32_t positions_[most_joined];
};

}  // namespace regmax::REGMAX_ISA
