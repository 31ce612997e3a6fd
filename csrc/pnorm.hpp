// sqpnormmax: y = argmin over the simplex of 1/2 |y|_p^2 - <x, y>, 1 < p < 2, q = p / (p - 1) > 2.
//
// With z = (x - tau)_+, y = |z|_q^(2-q) z^(q-1), and tau makes it sum to one. Write Z = max z = max x - tau, w = z /
// Z in [0, 1]: no power overflows, and those that underflow are zero weights. With A = sum w^(q-1), B = sum w^q and
// C = sum w^(q-2) over w > 0,
//
//     g(Z) = sum y = Z A B^((2-q)/q),      s = d log g / d log Z = (q-1) C / A + (2-q) A / B.
//
// By Cauchy-Schwarz A^2 <= B C, so s >= C / A >= 1: g grows, Newton's method in log Z is well scaled, and |log g|
// bounds the error of log Z. By Hoelder g <= Z n^(2/q), so the root lies in [n^(-2/q), 1].
#pragma once

#include <cmath>
#include <cstdint>

#include "simplex.hpp"

namespace regmax::REGMAX_ISA {

struct PowerSums {
  double log_g, slope, a;  // log g, s and A at one Z
};

// The powers w^(q-1), written to `powers`, and their sums, at Z; x relative to its maximum, all above -1.
inline PowerSums power_sums(const double* x, int64_t m, double largest, double q, double* powers) {
  double a = 0, b = 0, c = 0;
  for (int64_t i = 0; i < m; ++i) {
    const double w = (x[i] + largest) / largest;
    powers[i] = 0;
    if (w <= 0) continue;
    const double power = std::pow(w, q - 2);
    powers[i] = power * w;
    a += powers[i];
    b += powers[i] * w;
    c += power;
  }
  const double log_g = std::log(largest * a) + (2 - q) / q * std::log(b);
  return {log_g, (q - 1) * c / a + (2 - q) * a / b, a};
}

// Newton in log Z. A step that leaves the bracket or is not half the one before gives way to bisection: near the
// kinks, where scores enter the support, Newton alone can cycle. y receives the weights of the m scores.
inline void sqpnorm_weights(const double* x, int64_t m, double p, double* y) {
  const double q = p / (p - 1);
  const double slack = 1e-12;  // constant scores have their root at the lower end: rounding must not exclude it
  double low = -2 / q * std::log(static_cast<double>(m)) - slack, high = 0;
  double u = high, step = HUGE_VAL;  // u = log Z
  PowerSums sums = power_sums(x, m, 1, q, y);
  for (int round = 0; round < 200 && std::fabs(sums.log_g) > 1e-16; ++round) {
    (sums.log_g > 0 ? high : low) = u;
    const double newton = -sums.log_g / sums.slope;
    const bool trusted = u + newton > low && u + newton < high && std::fabs(newton) < std::fabs(step) / 2;
    step = trusted ? newton : (low + high) / 2 - u;
    u += step;
    sums = power_sums(x, m, std::exp(u), q, y);
    if (std::fabs(step) <= 1e-15) break;
  }
  for (int64_t i = 0; i < m; ++i) y[i] /= sums.a;
}

// m >= 1 scores relative to their maximum. Only x > -1 can have weight; `space` holds 2 m numbers, `index` m.
inline void sqpnormmax(const double* x, int64_t m, double p, double* space, int64_t* index, double* y) {
  int64_t count = 0;
  for (int64_t i = 0; i < m; ++i) {
    space[count] = x[i];
    index[count] = i;
    count += x[i] > -1;
    y[i] = 0;
  }
  double* const weights = space + m;
  sqpnorm_weights(space, count, p, weights);
  for (int64_t k = 0; k < count; ++k) y[index[k]] = weights[k];
}

}  // namespace regmax::REGMAX_ISA
