// Sums and quotients in two parts: a number, and what rounding took from it. One row per lane.
#pragma once

#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
struct TwoParts {
  Vec<T> first{}, rest{};

  REGMAX_INLINE void add(Vec<T> v) {
    const Vec<T> sum = first + v, part = sum - first;
    rest += (first - (sum - part)) + (v - part);
    first = sum;
  }
  REGMAX_INLINE void add_product(Vec<T> a, Vec<T> b) {
    const Vec<T> product = a * b;
    rest += product_error<T>(a, b, product);
    add(product);
  }
};

// numerator - quotient * m, exactly, if the quotient is one up to rounding.
template <class T>
REGMAX_INLINE Vec<T> remainder(Vec<T> numerator, Vec<T> m, Vec<T> quotient) {
#if defined(__FMA__)
  return times_plus(-quotient, m, numerator);
#else
  const Vec<T> product = quotient * m;
  return (numerator - product) - product_error<T>(quotient, m, product);
#endif
}

// What rounding took from the quotient of a numerator in two parts and m.
template <class T>
REGMAX_INLINE Vec<T> quotient_rest(Vec<T> numerator, Vec<T> numerator_rest, Vec<T> m, Vec<T> quotient) {
  return (remainder<T>(numerator, m, quotient) + numerator_rest) / m;
}

template <class T>
REGMAX_INLINE TwoParts<T> operator/(const TwoParts<T>& sum, Vec<T> m) {
  const Vec<T> inverse = splat(T(1)) / m, first = sum.first * inverse;
  return {first, (remainder<T>(sum.first, m, first) + sum.rest) * inverse};
}

// a - b, rounded once.
template <class T>
REGMAX_INLINE Vec<T> difference(const TwoParts<T>& a, const TwoParts<T>& b) {
  TwoParts<T> sum = a;
  sum.add(-b.first);
  return sum.first + (sum.rest - b.rest);
}

}  // namespace regmax::REGMAX_ISA
