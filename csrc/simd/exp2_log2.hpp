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
  static constexpr int exp_terms = is_float ? 7 : 13, log_terms = is_float ? 6 : 12;
  // Below `low` the result may be subnormal, below `least` it is 0.
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

// 2^x for x <= 1, also where the result is subnormal. Every NaN gives a number: callers select it away.
template <class T>
REGMAX_INLINE Vec<T> exp2_of(Vec<T> x) {
  using Bits = FloatBits<T>;
  constexpr T ln2 = T(0.69314718055994530942), up = T(64), down = T(5.421010862427522e-20);  // 2^-64
  const Where<T> vanishes = greater(splat(Bits::least), x), is_low = greater(splat(Bits::low), x);
  x = select(vanishes, splat(Bits::least), x);
  x = select(is_low, x + splat(up), x);
  const Vec<T> shifted = x + splat(Bits::shifter), f = (x - (shifted - splat(Bits::shifter))) * splat(ln2);
  Vec<T> series = splat(T(1));
  for (int k = Bits::exp_terms; k > 0; --k) series = times_plus(series * f, splat(T(1) / T(k)), splat(T(1)));
  const Vec<T> power = as_numbers<T>(add_modulo<T>(as_integers<T>(series), as_integers<T>(shifted) << Bits::mantissa));
  return select(vanishes, Vec<T>{}, select(is_low, power * splat(down), power));
}

// ln x for normal positive x. The relative error is small near 1, too.
template <class T>
REGMAX_INLINE Vec<T> log_of(Vec<T> x) {
  using Bits = FloatBits<T>;
  constexpr T ln2_high = Bits::is_float ? T(0.693359375) : T(0.69314718036912381649);
  constexpr T ln2_low = Bits::is_float ? T(-2.12194440054690581e-4) : T(1.90821492927058770e-10);
  const IntVec<T> half_root = as_integers<T>(splat(T(0.70710678118654752440)));
  const IntVec<T> offset = IntVec<T>{} + ((Bits::bias + 1) << Bits::mantissa);  // keeps the shifted number positive
  const IntVec<T> k = (add_modulo<T>(as_integers<T>(x), offset - half_root) >> Bits::mantissa) - (Bits::bias + 1);
  const Vec<T> f =
      as_numbers<T>(subtract_modulo<T>(as_integers<T>(x), k << Bits::mantissa));  // in [sqrt(1/2), sqrt(2))
  const Vec<T> exponent = as_numbers<T>(as_integers<T>(splat(Bits::shifter)) + k) - splat(Bits::shifter);
  // ln f = 2 atanh t, written as h - t (h - rest) with h = f - 1, which is exact.
  const Vec<T> h = f - splat(T(1)), t = h / (h + splat(T(2))), square = t * t;
  Vec<T> series = splat(T(2) / T(2 * Bits::log_terms + 1));
  for (int j = Bits::log_terms - 1; j > 0; --j) series = times_plus(series, square, splat(T(2) / T(2 * j + 1)));
  const Vec<T> correction = t * (h - series * square);  // 2 t = h - t h
  return times_plus(exponent, splat(ln2_high), h - (correction - exponent * splat(ln2_low)));
}

constexpr double log2_e = 1.4426950408889634074;

// ln(1 - s) for s in [0, 1): the logarithm of w = 1 - s, and what rounding took from w.
template <class T>
REGMAX_INLINE Vec<T> log_one_minus(Vec<T> s, Vec<T> w) {
  return log_of<T>(w) + ((splat(T(1)) - w) - s);
}

}  // namespace regmax::REGMAX_ISA
