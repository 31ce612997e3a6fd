// Sums of scores and of multiples of lam in double, compared without rounding errors.
//
// A sum is s + q lam, with an integer q. Scores that are multiples of one power of two (DoubleGrid) have exact sums s,
// and exact products of sums and counts. Then every comparison of means is the sign of
//
//     p + q lam,        p = s_1 n_2 - s_2 n_1 and q = q_1 n_2 - q_2 n_1 exact,
//
// and a product and a sum that are rounded once have this sign. Nothing is left in doubt: ties are found, and are ties.
#pragma once

#include <cmath>
#include <cstdint>

#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// Multiples of a power of two for `count` numbers of less than `size`, and one more: their sums, multiplied by a count,
// and differences of two such products are exact in double.
class DoubleGrid {
 public:
  DoubleGrid(double size, int64_t count) {
    int exponent, digits;
    std::frexp(size, &exponent);
    std::frexp(static_cast<double>(count + 1), &digits);
    shift_ = std::ldexp(1.5, exponent + 2 * digits + 1 - 53 + 52);
  }

  bool has(double number) const { return (number + shift_) - shift_ == number; }
  Where<double> has(Vec<double> numbers) const { return equal((numbers + shift_) - shift_, numbers); }

 private:
  double shift_;
};

// The sum of n scores, s + q lam; the mean is that over n.
struct ExactSum {
  Vec<double> s, q, n;
};

REGMAX_INLINE ExactSum choose(Where<double> where, const ExactSum& a, const ExactSum& b) {
  return {select(where, a.s, b.s), select(where, a.q, b.q), select(where, a.n, b.n)};
}

// a b + c, rounded once.
REGMAX_INLINE Vec<double> exact_times_plus(Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(__FMA__)
  return times_plus(a, b, c);
#else
  for (int i = 0; i < lanes<double>; ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
#endif
}

// mean(a) - mean(b), times both counts: its sign is exact.
REGMAX_INLINE Vec<double> difference(const ExactSum& a, const ExactSum& b, Vec<double> lam) {
  return exact_times_plus(a.q * b.n - b.q * a.n, lam, a.s * b.n - b.s * a.n);
}

}  // namespace regmax::REGMAX_ISA
