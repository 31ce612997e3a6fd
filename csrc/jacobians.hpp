// J v on one row, from its weights y: gathered, without gaps, in double.
//
// The Jacobian of every mapping here is symmetric. For sparsemax it is the projection on the support's
// vectors of sum zero; pooling first averages v inside each group. The proximal operators average only.
#pragma once

#include <cmath>
#include <cstdint>

#include "mappings.hpp"

namespace regmax::REGMAX_ISA {

inline double mean_of(const double* v, int64_t m) { return sum_of(v, m) / static_cast<double>(m); }

inline void subtract_mean(double* v, int64_t m) {
  const double mean = mean_of(v, m);
  for (int64_t i = 0; i < m; ++i) v[i] -= mean;
}

inline void average_chains(double* v, int64_t m, const uint8_t* joined) {
  for (int64_t begin = 0, end; begin < m; begin = end) {
    for (end = begin + 1; end < m && joined[end]; ++end) continue;
    const double mean = mean_of(v + begin, end - begin);
    for (int64_t i = begin; i < end; ++i) v[i] = mean;
  }
}

// Averages sign(y) v over the groups of equal |y|, in O(m log m).
inline void average_equal_sizes(double* v, const double* y, int64_t m, Ranked* ranked) {
  bool same = true;
  for (int64_t i = 0; i < m; ++i) same &= y[i] == y[0];
  if (same) {  // uniform weights are common, and need no sorting
    const double mean = mean_of(v, m);
    for (int64_t i = 0; i < m; ++i) v[i] = mean;
    return;
  }
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

// On the support, with N = |y|_p,
//     M = 1/(p-1) [ N^(p-2) diag(y^(2-p)) - (2-p) N^(-2) y y^T ],   J v = M v - M 1 (1^T M v) / (1^T M 1).
inline void sqpnorm_product(double* v, const double* y, int64_t m, double p, double* powers) {
  double norm = 0, along = 0, total = 0;
  for (int64_t i = 0; i < m; ++i) {
    powers[i] = std::pow(y[i], 2 - p);
    norm += y[i] * y[i] / powers[i];  // y^p
    along += y[i] * v[i];
    total += y[i];
  }
  const double log_norm = std::log(norm) / p;
  const double diagonal = std::exp((p - 2) * log_norm) / (p - 1);
  const double rank_one = (2 - p) * std::exp(-2 * log_norm) / (p - 1);
  double sum_mv = 0, sum_m1 = 0;
  for (int64_t i = 0; i < m; ++i) {
    v[i] = diagonal * powers[i] * v[i] - rank_one * along * y[i];
    powers[i] = diagonal * powers[i] - rank_one * total * y[i];
    sum_mv += v[i];
    sum_m1 += powers[i];
  }
  // A single weight is one whatever the scores: there M 1 is its own rounding.
  const double ratio = sum_m1 > 0 ? sum_mv / sum_m1 : 0;
  for (int64_t i = 0; i < m; ++i) v[i] = m == 1 ? 0 : v[i] - ratio * powers[i];
}

// The same for p = 1.5, where with s = sum y^1.5, M = 2 s^(-1/3) [ diag(y^(1/2)) - y y^T / (2 s) ].
inline void cubic_product(double* v, const double* y, int64_t m) {
  constexpr int w = lanes<double>;
  Vec<double> s{}, along{}, total{}, roots{}, rooted{};
  for (int64_t i = 0; i < m; i += w) {
    const Vec<double> yi = load_left(y + i, m - i, 0.0), vi = load_left(v + i, m - i, 0.0),
                      root = square_root(yi);
    s += yi * root;
    along += yi * vi;
    total += yi;
    roots += root;
    rooted += root * vi;
  }
  const double sum = sum_lanes(s), half = 0.5 / sum, sum_y = sum_lanes(total);
  const double sum_m1 = sum_lanes(roots) - half * sum_y * sum_y;
  const double sum_mv = sum_lanes(rooted) - half * sum_y * sum_lanes(along);
  const double ratio = sum_mv / sum_m1, scale = m == 1 ? 0 : 2 / std::cbrt(sum);
  const double along_y = half * (sum_lanes(along) - ratio * sum_y);
  for (int64_t i = 0; i < m; i += w) {
    const Vec<double> yi = load_left(y + i, m - i, 0.0), vi = load_left(v + i, m - i, 0.0);
    store_left<double>(v + i, m - i, scale * (square_root(yi) * (vi - ratio) - along_y * yi));
  }
}

// The same for weights that have no sign; `y` are those of w.x.
template <class T>
inline void average_equal_weights(const T* y, int64_t m, Workspace& w) {
  if (sizeof(T) == sizeof(float) && m > few_scores) return average_equal(y, m, w);
  average_equal_sizes(w.v, w.x, m, IsotonicSpace(w.pooling, m).ranked);
}

// Replaces w.v by J v. `y` holds the m >= 1 weights of the support (of all kept positions for the proximal
// operators), and w.x the same in double.
template <class T>
inline void multiply_row(int32_t kernel, const T* y, int64_t m, double theta, Workspace& w) {
  const bool strengthless = theta == 0;
  switch (kernel) {
    case REGMAX_SPARSEMAX:
      return subtract_mean(w.v, m);
    case REGMAX_FUSEDMAX:
      subtract_mean(w.v, m);
      if (!strengthless) average_chains(w.v, m, w.joined);
      return;
    case REGMAX_OSCARMAX:
      subtract_mean(w.v, m);
      if (!strengthless) average_equal_weights(y, m, w);
      return;
    case REGMAX_SQPNORMMAX:
      if (theta == 2) return subtract_mean(w.v, m);
      if (theta == 1.5) return cubic_product(w.v, w.x, m);
      return sqpnorm_product(w.v, w.x, m, theta, w.space);
    case REGMAX_PROX_TV1D:
      if (!strengthless) average_chains(w.v, m, w.joined);
      return;
    default:
      if (strengthless) return;
      average_equal_sizes(w.v, w.x, m, IsotonicSpace(w.pooling, m).ranked);
      for (int64_t i = 0; i < m; ++i) w.v[i] = w.x[i] == 0 ? 0 : w.v[i];
  }
}

}  // namespace regmax::REGMAX_ISA
