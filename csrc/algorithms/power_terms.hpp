// The terms of weights that are powers of the scores (powers.hpp), of whole rows or of one row per lane.
//
// Rough terms have about four digits and serve Newton's first steps. Careful ones take c / m and 1/a in two parts:
// scores that are equal have the same rounding errors, which add up; in rows with many small weights they change the
// sum of the terms, and thereby the largest weight, by many units in the last place. Careful terms are scaled: none of
// them is rounded as a subnormal number, so that a weight is rounded once.
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

// r / sum. A quotient below the normal numbers takes the processor a hundred times as long: its digits are those of an
// integer instead.
template <class T>
REGMAX_INLINE Vec<T> share_of(Vec<T> r, Vec<T> sum) {
  using Bits = FloatBits<T>;
  const Where<T> small = greater(sum * splat(smallest_normal<T>), r) & greater(r, Vec<T>{});
  if (__builtin_expect(!bits(small), 1)) return r / sum;
  const Vec<T> unit = splat(T(1) / smallest_normal<T>), shifter = splat(T(Int<T>{1} << Bits::mantissa));
  const Vec<T> integer = select(small, r, Vec<T>{}) * unit / sum * shifter + shifter;
  const Vec<T> digits = as_numbers<T>(subtract_modulo<T>(as_integers<T>(integer), as_integers<T>(shifter)));
  return select(small, digits, select(small, Vec<T>{}, r) / sum);
}

// Careful terms, and w also where it is not positive.
template <class T>
struct CarefulTerms : PowerTerms<T> {
  Vec<T> w;
};

// c / m in two parts.
template <class T>
struct CarefulRate {
  Vec<T> first, rest;
};

// w = (1 + c x / m)_+, and what rounding took from it.
template <class T>
struct CarefulShare {
  Vec<T> w, taken;
  Where<T> inside;

  REGMAX_INLINE CarefulShare(Vec<T> x, const CarefulRate<T>& rate, Vec<T> least) {
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
  REGMAX_INLINE CarefulTerms<T> careful(Vec<T> x, const CarefulRate<T>& rate) const {
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
    Vec<T> power = exponent.first(base, splat(T(1)));
    for (int k = exponent.last_bit - 1; k >= 0; --k) {
      power *= power;
      if (exponent.may_have(k)) power = exponent.choose(k, power * base, power);
    }
    const Vec<T> r = power * w;  // NaN if the score is
    return {r, power, r * w};
  }
  // The power is a sum of two numbers, and so is its base.
  REGMAX_INLINE CarefulTerms<T> careful(Vec<T> x, const CarefulRate<T>& rate) const {
    const CarefulShare<T> share(x, rate, least);
    const Vec<T> base = select(share.inside, share.w, Vec<T>{});
    Vec<T> power = exponent.first(base, splat(T(1))), rest = exponent.first(share.taken, Vec<T>{});
    for (int k = exponent.last_bit - 1; k >= 0; --k) {
      if (k == 0) power *= half_scale, rest *= half_scale;
      const Vec<T> square = power * power;
      rest = times_plus(power + power, rest, product_error<T>(power, power, square));
      power = square;
      if (!exponent.may_have(k)) continue;
      const Vec<T> product = power * base;
      const Vec<T> error = times_plus(rest, base, product_error<T>(power, base, product));
      rest = exponent.choose(k, times_plus(power, share.taken, error), rest);
      power = exponent.choose(k, product, power);
    }
    const Vec<T> r = times_plus(power, base, times_plus(rest, base, power * share.taken));
    return {{r, power, r * base}, share.w};
  }

 private:
  static constexpr T half_scale = T(4294967296.0);  // 2^32: its square is `careful_scale`
};

constexpr int exponent_bits = 7;

// 1/a - 1 of one row, and of one row per lane. A lane's power does not depend on the others: squares of 1 are exact.
template <class T>
struct RowExponent {
  int value, last_bit;

  explicit RowExponent(int number) : value(number), last_bit(31 - __builtin_clz(static_cast<unsigned>(number))) {}

  bool may_have(int k) const { return value >> k & 1; }
  REGMAX_INLINE Vec<T> first(Vec<T> base, Vec<T>) const { return base; }
  REGMAX_INLINE Vec<T> choose(int, Vec<T> product, Vec<T>) const { return product; }
};

template <class T>
struct LaneExponents {
  Where<T> has[exponent_bits];
  int some = 1, last_bit;

  explicit LaneExponents(const int* values) {
    for (int k = 0; k < exponent_bits; ++k) {
      uint32_t set = 0;
      for (int r = 0; r < lanes<T>; ++r) set |= static_cast<uint32_t>(values[r] >> k & 1) << r;
      has[k] = from_bits<T>(set);
      some |= (set != 0) << k;
    }
    last_bit = 31 - __builtin_clz(static_cast<unsigned>(some));
  }

  bool may_have(int k) const { return some >> k & 1; }
  REGMAX_INLINE Vec<T> first(Vec<T> base, Vec<T> one) const { return choose(last_bit, base, one); }
  REGMAX_INLINE Vec<T> choose(int k, Vec<T> product, Vec<T> otherwise) const {
    return select(has[k], product, otherwise);
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
