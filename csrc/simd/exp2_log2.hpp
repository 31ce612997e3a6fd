// exp2 and log2 of vectors, to about two units in the last place. Both split off the exponent with integer
// operations and evaluate a series on an interval around 0, of as many terms as the type has digits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
struct FloatBits {
  static constexpr bool is_float = sizeof(T) == 4;
  static constexpr int mantissa = is_float ? 23 : 52;
  static constexpr Int<T> bias = is_float ? 127 : 1023;
  // Added to a small number it leaves the nearest integer in the low bits.
  static constexpr T shifter = is_float ? T(12582912) : T(6755399441055744);  // 1.5 * 2^mantissa
  static constexpr int exp_terms = is_float ? 7 : 13, log_terms = is_float ? 5 : 11;
  // Below `low` 2^x may be subnormal, below `least` it is 0.
  static constexpr T low = is_float ? T(-100) : T(-1000), least = is_float ? T(-150) : T(-1075);
};

template <class T>
REGMAX_INLINE IntVec<T> as_integers(Vec<T> v) {
  return (IntVec<T>)v;
}
template <class T>
REGMAX_INLINE Vec<T> as_numbers(IntVec<T> v) {
  return (Vec<T>)v;
}

// Sums and differences modulo 2^32 or 2^64: lanes whose result is not used may overflow.
template <class T>
struct Words {
  typedef std::make_unsigned_t<Int<T>> type __attribute__((vector_size(vector_bytes)));
};
template <class T>
REGMAX_INLINE IntVec<T> add_modulo(IntVec<T> a, IntVec<T> b) {
  return (IntVec<T>)((typename Words<T>::type)a + (typename Words<T>::type)b);
}
template <class T>
REGMAX_INLINE IntVec<T> subtract_modulo(IntVec<T> a, IntVec<T> b) {
  return (IntVec<T>)((typename Words<T>::type)a - (typename Words<T>::type)b);
}

// ln(2)^k / k!
template <class T>
constexpr T exp2_coefficient(int k) {
  double coefficient = 1;
  for (int i = 1; i <= k; ++i) coefficient *= 0.69314718055994530942 / i;
  return static_cast<T>(coefficient);
}

// 2^(f + k) for |f| at most about 1/2 and the integer k in the low bits of `shifted`.
template <class T, int terms>
REGMAX_INLINE Vec<T> shifted_exp2(Vec<T> f, Vec<T> shifted) {
  Vec<T> series = splat(exp2_coefficient<T>(terms));
  for (int k = terms - 1; k >= 0; --k) series = times_plus(series, f, splat(exp2_coefficient<T>(k)));
  return as_numbers<T>(add_modulo<T>(as_integers<T>(series), as_integers<T>(shifted) << FloatBits<T>::mantissa));
}

// 2^x for `low` <= x < bias.
template <class T, int terms = FloatBits<T>::exp_terms>
REGMAX_INLINE Vec<T> normal_exp2(Vec<T> x) {
  const Vec<T> shifter = splat(FloatBits<T>::shifter), shifted = x + shifter;
  return shifted_exp2<T, terms>(x - (shifted - shifter), shifted);
}

// 2^x - 1 for 0 <= x < bias, with a small relative error also near 0.
template <class T>
REGMAX_INLINE Vec<T> exp2_minus_one(Vec<T> x) {
  using Bits = FloatBits<T>;
  constexpr int terms = Bits::exp_terms;
  const Vec<T> shifted = x + splat(Bits::shifter), f = x - (shifted - splat(Bits::shifter)), one = splat(T(1));
  Vec<T> series = splat(exp2_coefficient<T>(terms));
  for (int k = terms - 1; k > 0; --k) series = times_plus(series, f, splat(exp2_coefficient<T>(k)));
  const Vec<T> scale = as_numbers<T>(add_modulo<T>(as_integers<T>(one), as_integers<T>(shifted) << Bits::mantissa));
  return times_plus(scale, series * f, scale - one);
}

// 2^x for x < bias, also if the result is subnormal. Every NaN gives a number: callers select it away.
template <class T>
REGMAX_INLINE Vec<T> exp2_of(Vec<T> x) {
  using Bits = FloatBits<T>;
  constexpr T up = T(64), down = T(5.421010862427522e-20);  // 2^-64
  const Where<T> is_low = greater(splat(Bits::low), x);
  if (__builtin_expect(!bits(is_low), 1)) return normal_exp2<T>(x);
  const Where<T> vanishes = greater(splat(Bits::least), x);
  x = select(vanishes, splat(Bits::least), x);
  const Vec<T> power = normal_exp2<T>(select(is_low, x + splat(up), x));
  return select(vanishes, Vec<T>{}, select(is_low, power * splat(down), power));
}

// x = 2^exponent f with f in [sqrt(1/2), sqrt(2)), for normal positive x.
template <class T>
REGMAX_INLINE Vec<T> split_exponent(Vec<T> x, Vec<T>* f) {
  using Bits = FloatBits<T>;
  const IntVec<T> half_root = as_integers<T>(splat(T(0.70710678118654752440)));
  const IntVec<T> offset = IntVec<T>{} + ((Bits::bias + 1) << Bits::mantissa);  // keeps the shifted number positive
  const IntVec<T> k = (add_modulo<T>(as_integers<T>(x), offset - half_root) >> Bits::mantissa) - (Bits::bias + 1);
  *f = as_numbers<T>(subtract_modulo<T>(as_integers<T>(x), k << Bits::mantissa));
  return as_numbers<T>(as_integers<T>(splat(Bits::shifter)) + k) - splat(Bits::shifter);
}

constexpr double log2_e = 1.4426950408889634074, ln_2 = 0.69314718055994530942;

// ln(1 + h) - h for h in [sqrt(1/2) - 1, sqrt(2) - 1): ln(1 + h) = 2 atanh t, and 2 t = h - t h.
template <class T>
REGMAX_INLINE Vec<T> ln_rest(Vec<T> h) {
  using Bits = FloatBits<T>;
  const Vec<T> t = h / (h + splat(T(2))), square = t * t;
  Vec<T> series = splat(T(2) / T(2 * Bits::log_terms + 1));
  for (int j = Bits::log_terms - 1; j > 0; --j) series = times_plus(series, square, splat(T(2) / T(2 * j + 1)));
  return t * (series * square - h);
}

// 1 / x up to 13 %, for positive normal x; exactly at powers of two, between which it is linear.
template <class T>
REGMAX_INLINE Vec<T> rough_inverse(Vec<T> x) {
  const IntVec<T> one = as_integers<T>(splat(T(1)));
  return as_numbers<T>(one + (one - as_integers<T>(x)));
}

// log2 x for normal positive x. The relative error is small near 1, too.
template <class T>
REGMAX_INLINE Vec<T> log2_of(Vec<T> x) {
  Vec<T> f;
  const Vec<T> exponent = split_exponent<T>(x, &f), h = f - splat(T(1));  // exact
  return times_plus(h + ln_rest<T>(h), splat(T(log2_e)), exponent);
}

// x^power, times 2^up, for normal x, and for powers of at least 2^lowest: smaller ones become this number. Both x and
// the power are given in two parts. The digits that rounding takes from power * log2 x count if it is large.
template <class T, int up>
REGMAX_INLINE Vec<T> accurate_power(Vec<T> x, Vec<T> x_rest, Vec<T> power, Vec<T> power_rest, T lowest) {
  constexpr T scale = T(log2_e), scale_rest = T(log2_e - static_cast<double>(scale));
  const Vec<T> factor = power * splat(scale);
  const Vec<T> factor_rest =
      times_plus(power, splat(scale_rest), product_error<T>(power, splat(scale), factor)) + power_rest * splat(scale);
  Vec<T> f;
  const Vec<T> exponent = split_exponent<T>(x, &f), h = f - splat(T(1));
  // power * exponent + factor * (ln f + x_rest / x), each product with its rest
  const Vec<T> first = power * exponent, second = factor * h, logarithm = first + second;
  const Vec<T> first_rest = times_plus(power_rest, exponent, product_error<T>(power, exponent, first));
  const Vec<T> second_rest = times_plus(factor_rest, h, product_error<T>(factor, h, second));
  const Vec<T> small = times_plus(x_rest, rough_inverse<T>(x), ln_rest<T>(h));
  const Vec<T> rest = ((first - logarithm) + second) + times_plus(factor, small, first_rest + second_rest);
  const Vec<T> shifter = splat(FloatBits<T>::shifter + up);
  const Vec<T> shifted = larger(logarithm + rest, splat(lowest)) + shifter;
  const Vec<T> fraction = larger((logarithm - (shifted - shifter)) + rest, splat(T(-0.75)));
  return shifted_exp2<T, FloatBits<T>::exp_terms>(fraction, shifted);
}

// log2(1 - s) for s in [0, 1): the logarithm of w = 1 - s, and what rounding took from w.
template <class T>
REGMAX_INLINE Vec<T> log2_one_minus(Vec<T> s, Vec<T> w) {
  return times_plus((splat(T(1)) - w) - s, splat(T(log2_e)), log2_of<T>(w));
}

// --- The same to four digits ---

// 2^x for x < bias; below the normal range the result is its end.
template <class T>
REGMAX_INLINE Vec<T> rough_exp2(Vec<T> x) {
  return normal_exp2<T, 4>(larger(x, splat(-static_cast<T>(FloatBits<T>::bias - 1))));
}

template <class T>
REGMAX_INLINE Vec<T> rough_log2(Vec<T> x) {
  Vec<T> f;
  const Vec<T> exponent = split_exponent<T>(x, &f), t = (f - splat(T(1))) / (f + splat(T(1))), square = t * t;
  const Vec<T> series = times_plus(square, splat(T(0.5770780)), splat(T(0.9617967)));
  return times_plus(t, times_plus(series, square, splat(T(2.8853901))), exponent);
}

}  // namespace regmax::REGMAX_ISA
