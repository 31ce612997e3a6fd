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
  double log_g, slope;  // log g and s at one Z
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
  return {log_g, (q - 1) * c / a + (2 - q) * a / b};
}

// The same for q = 3, where the powers are products that need no keeping.
inline PowerSums cubic_power_sums(const double* x, int64_t m, double largest) {
  constexpr int w = lanes<double>;
  const Vec<double> shift = splat(largest), scale = splat(1 / largest), zero{};
  Vec<double> a{}, b{}, c{};
  for (int64_t i = 0; i < m; i += w) {
    const Vec<double> t = larger((load_left(x + i, m - i, -1.0) + shift) * scale, zero), square = t * t;
    c += t;
    a += square;
    b += square * t;
  }
  const double sum_a = sum_lanes(a), sum_b = sum_lanes(b), sum_c = sum_lanes(c);
  const double log_g = std::log(largest * sum_a) - std::log(sum_b) / 3;
  return {log_g, 2 * sum_c / sum_a - sum_a / sum_b};
}

// Newton in log Z. A step that leaves the bracket or is not half the one before gives way to bisection: near the
// kinks, where scores enter the support, Newton alone can cycle. y receives the weights of the m scores, which are
// relative to their maximum and above -1: others have none.
inline void sqpnorm_weights(const double* x, int64_t m, double p, double* y) {
  const double q = p / (p - 1);
  const double slack = 1e-12;  // constant scores have their root at the lower end: rounding must not exclude it
  double low = -2 / q * std::log(static_cast<double>(m)) - slack, high = 0;
  double u = high, step = HUGE_VAL;  // u = log Z
  const bool cubic = p == 1.5;       // smooth, so a small step leaves an error of its square
  const double tolerance = cubic ? 1e-9 : 1e-15;
  const auto evaluate = [&] {
    return cubic ? cubic_power_sums(x, m, std::exp(u)) : power_sums(x, m, std::exp(u), q, y);
  };
  PowerSums sums = evaluate();
  for (int round = 0; round < 200 && std::fabs(sums.log_g) > 1e-16; ++round) {
    (sums.log_g > 0 ? high : low) = u;
    const double newton = -sums.log_g / sums.slope;
    const bool trusted = u + newton > low && u + newton < high && std::fabs(newton) < std::fabs(step) / 2;
    step = trusted ? newton : (low + high) / 2 - u;
    u += step;
    sums = evaluate();
    if (std::fabs(step) <= (trusted ? tolerance : 1e-15)) break;
  }
  if (cubic) {
    const double largest = std::exp(u);
    for (int64_t i = 0; i < m; ++i) {
      const double z = larger(x[i] + largest, 0);
      y[i] = z * z;
    }
  }
  normalise(y, m);
}

}  // namespace regmax::REGMAX_ISA
