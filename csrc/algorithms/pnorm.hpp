// sqpnormmax: y = argmin over the simplex of 1/2 |y|_p^2 - <x, y>, 1 < p < 2, q = p / (p - 1) > 2.
//
// With z = (x - tau)_+, y = |z|_q^(2-q) z^(q-1), and tau makes it sum to one. Write Z = max z = max x - tau,
// w = z / Z in [0, 1]: no power overflows, and those that underflow are zero weights. With A = sum w^(q-1), B
// = sum w^q and C = sum w^(q-2) over w > 0,
//
//     g(Z) = sum y = Z A B^((2-q)/q),      s = d log g / d log Z = (q-1) C / A + (2-q) A / B.
//
// By Cauchy-Schwarz A^2 <= B C, so s >= C / A >= 1: g grows, Newton's method in log Z is well scaled, and
// |log g| bounds the error of log Z. By Hoelder g <= Z n^(2/q), so the root lies in [n^(-2/q), 1].
#pragma once

#include <cmath>
#include <cstdint>

#include "algorithms/powers.hpp"
#include "algorithms/simplex.hpp"

namespace regmax::REGMAX_ISA {

struct PnormSums {
  double log_g, slope;  // log g and s at one Z

  // The logarithm of a product near 1 has more digits than a sum of large logarithms.
  PnormSums(double largest, double a, double b, double c, double p) {
    const double q = p / (p - 1);
    log_g = std::log(largest * a * std::pow(b, (2 - q) / q));
    slope = (q - 1) * c / a + (2 - q) * a / b;
  }
};

// The powers w^(q-1), written to `powers`, and their sums, at Z; x relative to its maximum, all above -1.
inline PnormSums pnorm_sums(const double* x, int64_t m, double largest, double p, double* powers) {
  const Vec<double> rate = splat(1 / largest), exponent = splat(1 / (p - 1) - 1);
  double sums[3] = {};
  sum_terms<double>(m, sums, [&](int64_t i, Vec<double>* part) {
    const PowerTerms<double> terms = power_terms<double>(load_left(x + i, m - i, nothing<double>), rate, exponent);
    store_left<double>(powers + i, m - i, terms.r);
    part[0] += terms.r;
    part[1] += terms.rw;
    part[2] += terms.power;
  });
  return {largest, sums[0], sums[1], sums[2], p};
}

// log Z by Newton's method; evaluate(u) gives the sums at log Z = u. A step that leaves the bracket, or is
// not half the previous one, is replaced by bisection: at the kinks, where scores enter the support, pure
// Newton can cycle.
template <class Evaluate>
inline double find_log_largest(int64_t m, double q, const Evaluate& evaluate) {
  // Constant scores have their root at the lower end of the bracket: rounding must not exclude it.
  const double slack = 1e-6;
  double low = -2 / q * std::log(static_cast<double>(m)) - slack, high = 0;
  double u = high, step = HUGE_VAL;
  for (int round = 0; round < 200; ++round) {
    const PnormSums sums = evaluate(u);
    (sums.log_g > 0 ? high : low) = u;
    const double newton = -sums.log_g / sums.slope;
    const bool trusted = u + newton >= low && u + newton <= high && std::fabs(newton) < std::fabs(step) / 2;
    step = trusted ? newton : (low + high) / 2 - u;
    u += step;
    if (std::fabs(step) <= (trusted ? 1e-9 : 1e-15)) break;  // Newton's convergence is quadratic
  }
  return u;
}

// The weights of m scores, relative to their maximum and above -1; lower scores have none. `precise` has the same
// scores, or is nullptr if double has digits to spare.
inline void sqpnorm_weights(const double* x, const LongScores* precise, int64_t m, double p, double* y) {
  const double q = p / (p - 1);
  const double u = find_log_largest(m, q, [&](double at) { return pnorm_sums(x, m, std::exp(at), p, y); });
  const double largest = std::exp(u);
  double sum = 0;
  if (precise) {
    const LongPowerSums sums = long_power_sums(*precise, m, 1 / static_cast<long double>(largest), p - 1, y);
    const long double exponent = (p - 2) / static_cast<long double>(p);
    const long double log_g = std::log(static_cast<long double>(largest)) + std::log(sums.s / long_scale) +
                              std::log(sums.r / long_scale) * exponent;
    const long double slope = ((sums.c / sums.s - 1) - (sums.s / sums.r - 1) * (2 - p)) / (p - 1) + 1;
    const long double root = largest * (1 - log_g / slope);
    sum = static_cast<double>(long_power_sums(*precise, m, 1 / root, p - 1, y).s);
  } else {
    pnorm_sums(x, m, largest, p, y);
    sum = sum_of(y, m);
  }
  for (int64_t i = 0; i < m; ++i) y[i] /= sum;
}

}  // namespace regmax::REGMAX_ISA
