// float16 and bfloat16, converted from and to float32 a vector at a time, rounding to nearest even.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

typedef uint16_t HalfNumbers __attribute__((vector_size(vector_bytes / 2)));  // lanes<float> of them
typedef uint32_t FloatWords __attribute__((vector_size(vector_bytes)));

template <class To, class From>
inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline FloatWords choose(FloatWords where, FloatWords a, FloatWords b) { return (a & where) | (b & ~where); }

struct Bfloat16 {
  static constexpr uint16_t infinity = 0x7f80;

  static REGMAX_INLINE Vec<float> widened(FloatWords half) { return same_bits<Vec<float>>(half << 16); }
  static REGMAX_INLINE FloatWords rounded(Vec<float> v) {
    const FloatWords bits = same_bits<FloatWords>(v), nan = same_bits<FloatWords>(v != v);
    return choose(nan, FloatWords{} + 0x7fc0, (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

struct Float16 {
  static constexpr uint16_t infinity = 0x7c00;

  // The exponent is rebased by a product with 2^112, which also normalises subnormal numbers.
  static REGMAX_INLINE Vec<float> widened(FloatWords half) {
    const FloatWords size = (half & 0x7fff) << 13, sign = (half & 0x8000) << 16;
    const FloatWords special = same_bits<FloatWords>(size >= (FloatWords{} + (0x7c00u << 13)));
    const FloatWords scaled = same_bits<FloatWords>(same_bits<Vec<float>>(size) * splat(0x1p112f));
    return same_bits<Vec<float>>(choose(special, size | 0x7f800000, scaled) | sign);
  }
  static REGMAX_INLINE FloatWords rounded(Vec<float> v) {
    const FloatWords bits = same_bits<FloatWords>(v), sign = bits & 0x80000000, size = bits ^ sign;
    const FloatWords normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    // A sum with 1/2 rounds at the last bit of a subnormal number.
    const FloatWords small = same_bits<FloatWords>(same_bits<Vec<float>>(size) + splat(0.5f)) - 0x3f000000;
    const FloatWords is_small = same_bits<FloatWords>(size < (FloatWords{} + 0x38800000));
    const FloatWords is_large = same_bits<FloatWords>(size >= (FloatWords{} + 0x47800000));
    const FloatWords is_nan = same_bits<FloatWords>(size > (FloatWords{} + 0x7f800000));
    const FloatWords large = choose(is_nan, FloatWords{} + 0x7e00, FloatWords{} + 0x7c00);
    return choose(is_large, large, choose(is_small, small, normal)) | sign >> 16;
  }
};

template <class Half>
inline void widen_numbers(const uint16_t* from, int64_t count, float* to) {
  HalfNumbers half;
  int64_t i = 0;
  for (; i + lanes<float> <= count; i += lanes<float>) {
    std::memcpy(&half, from + i, sizeof half);
    store<float>(to + i, Half::widened(__builtin_convertvector(half, FloatWords)));
  }
  if (i == count) return;
  half = HalfNumbers{};
  std::memcpy(&half, from + i, static_cast<std::size_t>(count - i) * sizeof(uint16_t));
  store_some<float>(to + i, static_cast<int>(count - i), Half::widened(__builtin_convertvector(half, FloatWords)));
}

template <class Half>
inline void round_numbers(const float* from, int64_t count, uint16_t* to) {
  HalfNumbers half;
  int64_t i = 0;
  for (; i + lanes<float> <= count; i += lanes<float>) {
    half = __builtin_convertvector(Half::rounded(load(from + i)), HalfNumbers);
    std::memcpy(to + i, &half, sizeof half);  // of a fixed size: a store
  }
  if (i == count) return;
  half = __builtin_convertvector(Half::rounded(load_left(from + i, count - i, 0.0f)), HalfNumbers);
  std::memcpy(to + i, &half, static_cast<std::size_t>(count - i) * sizeof(uint16_t));
}

}  // namespace regmax::REGMAX_ISA
