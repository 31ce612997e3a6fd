// Floating-point numbers as integers, for decisions that rounding must not make. The numbers of a row are
// multiples of one power of two, its unit: in that unit sums and products are exact.
//
// Three integer types do the same: 64 bits, enough for most rows of float32, 128 bits, and a wide one for scores of any
// size.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

using Int128 = __int128;

// mantissa 2^exponent, with an odd mantissa unless it is zero: a double, or the product of two.
struct Dyadic {
  Int128 mantissa;
  int exponent;

  static Dyadic of(double value) {
    if (value == 0) return {0, 0};
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const int field = static_cast<int>(bits >> 52 & 0x7ff);
    const uint64_t fraction = (bits & ((uint64_t{1} << 52) - 1)) | (field ? uint64_t{1} << 52 : 0);  // subnormal: 0
    const int even = __builtin_ctzll(fraction);
    const auto mantissa = static_cast<int64_t>(fraction >> even);
    return {bits >> 63 ? -mantissa : mantissa, (field ? field : 1) - 1075 + even};
  }
  friend Dyadic operator*(Dyadic a, Dyadic b) { return {a.mantissa * b.mantissa, a.exponent + b.exponent}; }
};

// A unit that divides all numbers added to it, and how many bits the largest takes.
class Unit {
 public:
  void add(Dyadic number) {
    if (number.mantissa == 0) return;
    least_ = number.exponent < least_ ? number.exponent : least_;
    const Int128 size = number.mantissa < 0 ? -number.mantissa : number.mantissa;
    const auto high = static_cast<uint64_t>(size >> 64), low = static_cast<uint64_t>(size);
    const int bits = high ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll(low);
    most_ = number.exponent + bits > most_ ? number.exponent + bits : most_;
  }
  int exponent() const { return least_; }
  int bits() const { return most_ - least_; }

 private:
  int least_ = std::numeric_limits<int>::max() / 2, most_ = std::numeric_limits<int>::min() / 2;
};

// fraction 2^exponent, rounded.
struct Scaled {
  double fraction;
  int exponent;
};

// An integer type has +, - and the following four functions.
inline void from_dyadic(Dyadic number, int unit, Int128* integer) {
  *integer = number.mantissa ? number.mantissa * (Int128{1} << (number.exponent - unit)) : 0;
}
inline Int128 times(Int128 a, int64_t factor) { return a * factor; }
inline int sign(Int128 a) { return (a > 0) - (a < 0); }
inline Scaled to_scaled(Int128 a) { return {static_cast<double>(a), 0}; }

inline void from_dyadic(Dyadic number, int unit, int64_t* integer) {
  *integer = number.mantissa ? static_cast<int64_t>(number.mantissa) * (int64_t{1} << (number.exponent - unit)) : 0;
}
inline int64_t times(int64_t a, int64_t factor) { return a * factor; }
inline int sign(int64_t a) { return (a > 0) - (a < 0); }
inline Scaled to_scaled(int64_t a) { return {static_cast<double>(a), 0}; }

// Two doubles, whose sum has about 106 bits: not exact, but enough for the last bit of float64 weights if
// nothing has to be decided.
class Twofold {
 public:
  Twofold() = default;
  Twofold(double high, double low) : high_(high + low), low_(low - (high_ - high)) {}

  friend Twofold operator+(Twofold a, Twofold b) {
    const double sum = a.high_ + b.high_, part = sum - a.high_;
    return Twofold(sum, (a.high_ - (sum - part)) + (b.high_ - part) + (a.low_ + b.low_));
  }
  friend Twofold operator-(Twofold a, Twofold b) { return a + Twofold(-b.high_, -b.low_); }
  friend Twofold times(Twofold a, int64_t factor) {
    const double f = static_cast<double>(factor), product = a.high_ * f;
    return Twofold(product, std::fma(a.high_, f, -product) + a.low_ * f);
  }
  friend int sign(Twofold a) { return (a.high_ > 0) - (a.high_ < 0); }
  friend Scaled to_scaled(Twofold a) { return {a.high_, 0}; }
  friend void from_dyadic(Dyadic number, int unit, Twofold* result) {
    const double high = static_cast<double>(number.mantissa);
    const double low = static_cast<double>(number.mantissa - static_cast<Int128>(high));
    *result = Twofold(std::ldexp(high, number.exponent - unit), std::ldexp(low, number.exponent - unit));
  }

 private:
  double high_ = 0, low_ = 0;
};

// In two's complement. It holds any double, the product of two small ones, and d^2 times as much.
class WideInteger {
 public:
  static constexpr int limbs = 56, bits = 64 * limbs;

  friend WideInteger operator+(WideInteger a, const WideInteger& b) {
    unsigned carry = 0;
    for (int i = 0; i < limbs; ++i) {
      const uint64_t sum = a.limb_[i] + b.limb_[i];
      const uint64_t total = sum + carry;
      carry = (sum < b.limb_[i]) | (total < sum);
      a.limb_[i] = total;
    }
    return a;
  }
  friend WideInteger operator-(const WideInteger& a, const WideInteger& b) { return a + (-b); }
  WideInteger operator-() const {
    WideInteger negative;
    uint64_t carry = 1;
    for (int i = 0; i < limbs; ++i) {
      negative.limb_[i] = ~limb_[i] + carry;
      carry &= negative.limb_[i] == 0;
    }
    return negative;
  }

  friend WideInteger times(const WideInteger& a, int64_t factor) {
    const WideInteger size = factor < 0 ? -a : a;
    const auto multiplier = static_cast<uint64_t>(factor < 0 ? -factor : factor);
    WideInteger product;
    uint64_t carry = 0;
    for (int i = 0; i < limbs; ++i) {
      const auto term = static_cast<unsigned __int128>(size.limb_[i]) * multiplier + carry;
      product.limb_[i] = static_cast<uint64_t>(term);
      carry = static_cast<uint64_t>(term >> 64);
    }
    return product;
  }

  friend int sign(const WideInteger& a) {
    if (a.limb_[limbs - 1] >> 63) return -1;
    for (uint64_t limb : a.limb_) {
      if (limb) return 1;
    }
    return 0;
  }

  friend Scaled to_scaled(const WideInteger& a) {
    if (sign(a) < 0) {
      const Scaled size = to_scaled(-a);
      return {-size.fraction, size.exponent};
    }
    int top = limbs - 1;
    while (top > 0 && !a.limb_[top]) --top;
    double fraction = 0;
    for (int i = top; i >= 0 && i > top - 3; --i) {
      fraction += std::ldexp(static_cast<double>(a.limb_[i]), 64 * (i - top));
    }
    return {fraction, 64 * top};
  }

  friend void from_dyadic(Dyadic number, int unit, WideInteger* integer) {
    *integer = WideInteger();
    if (number.mantissa == 0) return;
    const auto size = static_cast<unsigned __int128>(number.mantissa < 0 ? -number.mantissa : number.mantissa);
    const int shift = number.exponent - unit, first = shift / 64, rest = shift % 64;
    const uint64_t low = static_cast<uint64_t>(size), high = static_cast<uint64_t>(size >> 64);
    integer->limb_[first] = low << rest;
    integer->limb_[first + 1] = high << rest | (rest ? low >> (64 - rest) : 0);
    integer->limb_[first + 2] = rest ? high >> (64 - rest) : 0;
    if (number.mantissa < 0) *integer = -*integer;
  }

 private:
  uint64_t limb_[limbs] = {};
};

}  // namespace regmax::REGMAX_ISA
