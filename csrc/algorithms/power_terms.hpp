// The terms of weights that are powers of the scores (powers.hpp), of whole rows or of one row per lane.
//
// Rough terms have about four digits and serve Newton's first steps. Careful ones take c / m and 1/a in two parts or in
// double: scores that are equal have the same rounding errors, which add up; in rows with many small weights they
// change the sum of the terms, and thereby the largest weight, by many units in the last place. Careful terms are
// scaled: none of them is rounded as a subnormal number, so that a weight is rounded once.
#pragma once

#include <cmath>
#include <cstdint>

#include "simd/exp2_log2.hpp"
#include "simd/reduce.hpp"
#include "simd/two_parts.hpp"

namespace regmax::REGMAX_ISA {

// The terms of one vector; zero outside the support.
template <class T>
struct PowerTerms {
  Vec<T> r, power, rw;  // w^(1/a), w^(1/a - 1), w^(1/a + 1)
};

// `rate` is c / m and `exponent` 1/a - 1.
template <class T>
REGMAX_INLINE PowerTerms<T> power_terms(Vec<T> x, Vec<T> rate, Vec<T> exponent) {
  const Vec<T> share = -x * rate, w = splat(T(1)) - share;
  const Where<T> inside = greater(w, splat(8 * rounding<T>));  // at the threshold up to rounding: no weight
  const Vec<T> safe = select(inside, w, splat(T(1))), lost = select(inside, share, Vec<T>{});
  const Vec<T> power = select(inside, exp2_of<T>(exponent * log2_one_minus<T>(lost, safe)), Vec<T>{});
  const Vec<T> r = power * safe;
  return {r, power, r * safe};
}

constexpr int careful_scale_bits = 64;
template <class T>
constexpr T careful_scale = T(18446744073709551616.0);  // 2^64

// r / sum; `inverse` is 1 / sum, and a product and its correction take less time than a quotient. A result below the
// normal numbers takes the processor a hundred times as long: its digits are those of an integer instead.
template <class T>
REGMAX_INLINE Vec<T> share_of(Vec<T> r, Vec<T> sum, Vec<T> inverse) {
  using Bits = FloatBits<T>;
  const Where<T> small = greater(sum * splat(smallest_normal<T>), r) & greater(r, Vec<T>{});
  const Vec<T> normal = select(small, Vec<T>{}, r), product = normal * inverse;
  const Vec<T> quotient = times_plus(remainder<T>(normal, sum, product), inverse, product);
  if (__builtin_expect(!bits(small), 1)) return quotient;
  const Vec<T> unit = splat(T(1) / smallest_normal<T>), shifter = splat(T(Int<T>{1} << Bits::mantissa));
  const Vec<T> integer = select(small, r, Vec<T>{}) * unit / sum * shifter + shifter;
  const Vec<T> digits = as_numbers<T>(subtract_modulo<T>(as_integers<T>(integer), as_integers<T>(shifter)));
  return select(small, digits, quotient);
}

// Careful terms, and w also where it is not positive.
template <class T>
struct CarefulTerms : PowerTerms<T> {
  Vec<T> w;
};

// c / m in double, and in two parts.
struct CarefulRate {
  Vec<double> wide[2];
  Vec<float> first, rest;

  REGMAX_INLINE explicit CarefulRate(const Vec<double>* rate) : wide{rate[0], rate[1]}, first(narrow(rate)) {
    Vec<double> rests[2];
    widen(first, rests);
    for (int h = 0; h < 2; ++h) rests[h] = wide[h] - rests[h];
    rest = narrow(rests);
  }
};

// w = (1 + c x / m)_+, and what rounding took from it.
template <class T>
struct CarefulShare {
  Vec<T> w, taken;
  Where<T> inside;

  REGMAX_INLINE CarefulShare(Vec<T> x, const CarefulRate& rate, Vec<T> least) {
    const Vec<T> one = splat(T(1)), share = -x * rate.first, about = one - share;
    const Vec<T> rest = (product_error<T>(-x, rate.first, share) - x * rate.rest) - ((one - about) - share);
    w = about - rest;
    inside = greater(w, least);
    keep((about - w) - rest);
  }
  // From w in float64.
  REGMAX_INLINE CarefulShare(const Vec<double>* wide, Vec<float> least) {
    w = narrow(wide);
    inside = greater(w, least);
    Vec<double> rounded[2];
    widen(w, rounded);
    for (int h = 0; h < 2; ++h) rounded[h] = wide[h] - rounded[h];
    keep(narrow(rounded));
  }

 private:
  REGMAX_INLINE void keep(Vec<T> rest) { taken = select(inside, rest, Vec<T>{}); }
};

// Powers by logarithms, for any exponent 1/a - 1, in two parts.
template <class T>
struct GeneralTerms {
  Vec<T> exponent, exponent_rest;

  REGMAX_INLINE PowerTerms<T> rough(Vec<T> x, Vec<T> rate) const {
    const Vec<T> w = times_plus(x, rate, splat(T(1))), least = splat(T(1e-6));
    const Vec<T> power = rough_exp2<T>(exponent * rough_log2<T>(larger(w, least)));
    const Vec<T> chosen = select(greater(w, least), power, Vec<T>{}), r = chosen * w;
    return {r, chosen, r * w};
  }
  REGMAX_INLINE CarefulTerms<T> careful(Vec<T> x, const CarefulRate& rate) const {
    return careful(CarefulShare<T>(x, rate, splat(8 * rounding<T>)));
  }
  REGMAX_INLINE CarefulTerms<T> careful(const CarefulShare<T>& share) const {
    const Vec<T> safe = select(share.inside, share.w, splat(T(1)));
    // Below it the scaled power would be subnormal; such a weight is zero.
    constexpr T lowest = -FloatBits<T>::bias + 1 - careful_scale_bits;
    const Vec<T> scaled = accurate_power<T, careful_scale_bits>(safe, share.taken, exponent, exponent_rest, lowest);
    const Vec<T> power = select(share.inside, scaled, Vec<T>{}), r = times_plus(power, share.taken, power * safe);
    return {{r, power, r * safe}, share.w};
  }
};

// Powers by squaring, for an integer 1/a >= 3. The binary digits of 1/a - 1 are used from the first on, so that no
// intermediate product is smaller than the result.
template <class T, class Exponent>
struct IntegerTerms {
  Exponent exponent;
  Vec<T> least_rough, least;  // of w: smaller terms do not count, or vanish

  REGMAX_INLINE PowerTerms<T> rough(Vec<T> x, Vec<T> rate) const {
    const Vec<T> w = times_plus(x, rate, splat(T(1))), base = select(greater(w, least_rough), w, Vec<T>{});
    Vec<T> power = exponent.first(base);
    for (int k = exponent.last_bit - 1; k >= 0; --k) {
      power *= power;
      if (exponent.may_have(k)) power = exponent.choose(k, power * base, power);
    }
    const Vec<T> r = power * w;  // NaN if the score is
    return {r, power, r * w};
  }
  // In double, which has digits to spare.
  REGMAX_INLINE CarefulTerms<T> careful(Vec<T> x, const CarefulRate& rate) const {
    const Vec<double> one = splat(1.0), scale = splat(careful_scale<double>);
    Vec<double> wide[2], lowest[2], base[2], power[2];
    widen(x, wide);
    widen(least, lowest);
    for (int h = 0; h < 2; ++h) {
      wide[h] = times_plus(wide[h], rate.wide[h], one);
      base[h] = select(greater(wide[h], lowest[h]), wide[h], Vec<double>{});
      power[h] = exponent.first(h, base[h]);
    }
    for (int k = exponent.last_bit - 1; k >= 0; --k) {
      for (int h = 0; h < 2; ++h) power[h] *= power[h];
      if (!exponent.may_have(k)) continue;
      for (int h = 0; h < 2; ++h) power[h] = exponent.choose(h, k, power[h] * base[h], power[h]);
    }
    for (int h = 0; h < 2; ++h) power[h] *= scale, base[h] *= power[h];
    const Vec<T> r = narrow(base), w = narrow(wide);
    return {{r, narrow(power), r * w}, w};
  }
};

constexpr int exponent_bits = 7;

// 1/a - 1 of one row, and of one row per lane. A lane's power does not depend on the others: squares of 1 are exact.
template <class T>
struct RowExponent {
  int value, last_bit;

  explicit RowExponent(int number) : value(number), last_bit(31 - __builtin_clz(static_cast<unsigned>(number))) {}

  bool may_have(int k) const { return value >> k & 1; }
  REGMAX_INLINE Vec<T> first(Vec<T> base) const { return base; }
  REGMAX_INLINE Vec<T> choose(int, Vec<T> product, Vec<T>) const { return product; }
  // The same of one half of a vector, in double.
  REGMAX_INLINE Vec<double> first(int, Vec<double> base) const { return base; }
  REGMAX_INLINE Vec<double> choose(int, int, Vec<double> product, Vec<double>) const { return product; }
};

template <class T>
struct LaneExponents {
  Where<T> has[exponent_bits];
  Where<double> half_has[2][exponent_bits];
  int some = 1, last_bit;

  explicit LaneExponents(const int* values) {
    for (int k = 0; k < exponent_bits; ++k) {
      uint32_t set = 0;
      for (int r = 0; r < lanes<T>; ++r) set |= static_cast<uint32_t>(values[r] >> k & 1) << r;
      has[k] = from_bits<T>(set);
      for (int h = 0; h < 2; ++h) half_has[h][k] = from_bits<double>(set >> (h * lanes<double>)&all_lanes<double>);
      some |= (set != 0) << k;
    }
    last_bit = 31 - __builtin_clz(static_cast<unsigned>(some));
  }

  bool may_have(int k) const { return some >> k & 1; }
  REGMAX_INLINE Vec<T> first(Vec<T> base) const { return choose(last_bit, base, splat(T(1))); }
  REGMAX_INLINE Vec<T> choose(int k, Vec<T> product, Vec<T> otherwise) const {
    return select(has[k], product, otherwise);
  }
  REGMAX_INLINE Vec<double> first(int h, Vec<double> base) const { return choose(h, last_bit, base, splat(1.0)); }
  REGMAX_INLINE Vec<double> choose(int h, int k, Vec<double> product, Vec<double> otherwise) const {
    return select(half_has[h][k], product, otherwise);
  }
};

// 1/a - 1 of every row if it is an integer from 2 on of at most `exponent_bits` bits, else 0; the strength is given in
// two parts.
inline void integer_exponents(Vec<float> theta, Vec<float> theta_rest, int* values) {
  Vec<double> strength[2], rest[2];
  widen(theta, strength);
  widen(theta_rest, rest);
  for (int h = 0; h < 2; ++h) {
    const Vec<double> inverse = splat(1.0) / ((strength[h] - splat(1.0)) + rest[h]);
    for (int k = 0; k < lanes<double>; ++k) {
      const double nearest = std::nearbyint(inverse[k]);
      const bool fits = nearest >= 3 && nearest <= (1 << exponent_bits) && std::fabs(inverse[k] - nearest) < 1e-9;
      values[h * lanes<double> + k] = fits ? static_cast<int>(nearest) - 1 : 0;
    }
  }
}

// The w whose term w^(exponent + 1) is 2^-digits.
template <class T>
inline Vec<T> least_share(Vec<T> exponent, T digits) {
  return larger(normal_exp2<T>(larger(splat(-digits) / (exponent + splat(T(1))), splat(T(-100)))),
                splat(8 * rounding<T>));
}

// How small w may be in the rough and in the careful terms of integer powers. The smallest weight is 2^-150 S after
// rounding, S >= 1, and doubts about it (`vanishing_doubt`) do not reach below 2^-160.
constexpr float rough_digits = 64, careful_digits = 160;

}  // namespace regmax::REGMAX_ISA
