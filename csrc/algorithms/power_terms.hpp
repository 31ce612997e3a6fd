// The terms of weights that are powers of the scores (powers.hpp), in float32, of whole rows or of one row per lane.
//
// Rough terms have about four digits and serve Newton's first steps. Careful ones take c / m in two parts: scores that
// are equal have the same rounding errors, which add up, and in rows with many small weights they change the sum of the
// terms, and thereby the largest weight, by many units in the last place. Careful terms are lifted
// (simd/exp2_log2.hpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "simd/exp2_log2.hpp"
#include "simd/reduce.hpp"

namespace regmax::REGMAX_ISA {

// The terms of one vector; zero outside the support.
template <class T>
struct PowerTerms {
  Vec<T> r, power, rw;  // w^(1/a), w^(1/a - 1), w^(1/a + 1)
};

// w = (1 + c x / m)_+ and what rounding took from it: nothing that counts if w is small.
template <class T>
struct CarefulShare {
  Vec<T> w, taken;
  Where<T> inside;

  REGMAX_INLINE CarefulShare(Vec<T> x, Vec<T> rate, Vec<T> rate_rest, Vec<T> least) {
    const Vec<T> one = splat(T(1)), share = -x * rate;
    const Vec<T> rest = product_error<T>(-x, rate, share) - x * rate_rest, exact = (one - share) - rest;
    inside = greater(exact, least);
    w = select(inside, exact, one);
    taken = select(inside & greater(exact, splat(T(0.5))), ((one - exact) - share) - rest, Vec<T>{});
  }
};

// Powers by logarithms, for any exponent 1/a - 1.
template <class T>
struct GeneralTerms {
  Vec<T> exponent;

  REGMAX_INLINE PowerTerms<T> rough(Vec<T> x, Vec<T> rate) const {
    const Vec<T> w = times_plus(x, rate, splat(T(1))), least = splat(T(1e-6));
    const Vec<T> power = rough_exp2<T>(exponent * rough_log2<T>(larger(w, least)));
    return terms(select(greater(w, least), power, Vec<T>{}), w);
  }
  REGMAX_INLINE PowerTerms<T> careful(Vec<T> x, Vec<T> rate, Vec<T> rate_rest) const {
    const CarefulShare<T> share(x, rate, rate_rest, splat(8 * rounding<T>));
    const Vec<T> logarithm = times_plus(share.taken, splat(T(log2_e)), log2_of<T>(share.w));
    return terms(select(share.inside, lifted_exp2(exponent * logarithm), Vec<T>{}), share.w);
  }

 private:
  static REGMAX_INLINE PowerTerms<T> terms(Vec<T> power, Vec<T> w) {
    const Vec<T> r = power * w;
    return {r, power, r * w};
  }
};

// Powers by squaring, for an integer 1/a. `Exponent` has the bits of 1/a - 1.
template <class T, class Exponent>
struct IntegerTerms {
  Exponent exponent;
  Vec<T> least;  // of w: smaller terms vanish in T

  REGMAX_INLINE PowerTerms<T> rough(Vec<T> x, Vec<T> rate) const {
    const Vec<T> w = times_plus(x, rate, splat(T(1)));
    Vec<T> base = select(greater(w, least), w, Vec<T>{}), power = splat(T(1));
    for (int k = 0;; ++k, base *= base) {
      power = exponent.if_bit(k, [&] { return power * base; }, power);
      if (k == exponent.last_bit) break;
    }
    const Vec<T> r = power * w;
    return {r, power, r * w};
  }
  // The bases and the power are sums of two numbers.
  REGMAX_INLINE PowerTerms<T> careful(Vec<T> x, Vec<T> rate, Vec<T> rate_rest) const {
    const CarefulShare<T> share(x, rate, rate_rest, least);
    Vec<T> base = select(share.inside, share.w, Vec<T>{}), base_rest = share.taken;
    Vec<T> power = splat(static_cast<T>(lifted_one)), power_rest{};
    for (int k = 0;; ++k) {
      const Vec<T> product = power * base;
      const auto rest = [&] {
        return times_plus(power, base_rest, times_plus(power_rest, base, product_error<T>(power, base, product)));
      };
      power_rest = exponent.if_bit(k, rest, power_rest);
      power = exponent.if_bit(k, [&] { return product; }, power);
      if (k == exponent.last_bit) break;
      const Vec<T> square = base * base;
      base_rest = times_plus(base + base, base_rest, product_error<T>(base, base, square));
      base = square;
    }
    const Vec<T> r = times_plus(power, share.w, times_plus(power_rest, share.w, power * share.taken));
    return {r, power, r * share.w};
  }
};

constexpr int exponent_bits = 7;

// 1/a - 1 of one row, and of one row per lane. A lane's power does not depend on the bits of the others.
template <class T>
struct RowExponent {
  int value, last_bit;

  explicit RowExponent(int number) : value(number), last_bit(31 - __builtin_clz(static_cast<unsigned>(number))) {}

  template <class Product>
  REGMAX_INLINE Vec<T> if_bit(int k, const Product& product, Vec<T> otherwise) const {
    return value >> k & 1 ? product() : otherwise;
  }
};

template <class T>
struct LaneExponents {
  Where<T> has[exponent_bits];
  int last_bit = 0;

  explicit LaneExponents(const int* values) {
    int all = 0;
    for (int k = 0; k < exponent_bits; ++k) {
      uint32_t set = 0;
      for (int r = 0; r < lanes<T>; ++r) set |= static_cast<uint32_t>(values[r] >> k & 1) << r;
      has[k] = from_bits<T>(set);
      all |= (set != 0) << k;
    }
    last_bit = all ? 31 - __builtin_clz(static_cast<unsigned>(all)) : 0;
  }

  template <class Product>
  REGMAX_INLINE Vec<T> if_bit(int k, const Product& product, Vec<T> otherwise) const {
    return select(has[k], product(), otherwise);
  }
};

// 1/a - 1 of every row if it is an integer of at most `exponent_bits` bits, else 0; a in two parts.
inline void integer_exponents(Vec<float> theta, Vec<float> theta_rest, int* values) {
  Vec<double> strength[2], rest[2];
  widen(theta, strength);
  widen(theta_rest, rest);
  for (int h = 0; h < 2; ++h) {
    const Vec<double> inverse = splat(1.0) / ((strength[h] - splat(1.0)) + rest[h]);
    for (int k = 0; k < lanes<double>; ++k) {
      const double nearest = std::nearbyint(inverse[k]);
      const bool fits = nearest >= 2 && nearest <= (1 << exponent_bits) && std::fabs(inverse[k] - nearest) < 1e-9;
      values[h * lanes<double> + k] = fits ? static_cast<int>(nearest) - 1 : 0;
    }
  }
}

// The least w whose power is not rounded to zero: w^(exponent + 1) = 2^-150.
template <class T>
inline Vec<T> least_share(Vec<T> exponent) {
  return larger(normal_exp2<T>(larger(splat(T(-150)) / (exponent + splat(T(1))), splat(T(-100)))),
                splat(8 * rounding<T>));
}

}  // namespace regmax::REGMAX_ISA
