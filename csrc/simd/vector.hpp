// Vectors of T, as wide as the instruction set has them. Arithmetic uses the compilers' vector operators;
// this file adds the operations that those lack. Where<T> is a lane mask; bits() turns it into an integer.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define REGMAX_INLINE inline __attribute__((always_inline))

namespace regmax::REGMAX_ISA {

// Not std::max: the linker may merge its instances with those of another instruction set.
inline double larger(double a, double b) { return a > b ? a : b; }
inline double smaller(double a, double b) { return a < b ? a : b; }

#if defined(__AVX512F__) || defined(REGMAX_WIDE)  // REGMAX_WIDE tests 512-bit vectors on any machine
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;  // SSE2, NEON
#endif

template <class T>
constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));
template <class T>
constexpr uint32_t all_lanes = (uint32_t{1} << lanes<T>)-1;
// The integers that compilers give as the result of a comparison.
#if defined(__clang__)
using Long = long long;
using Word = std::conditional_t<sizeof(long) == 4, long, int32_t>;  // long on Windows
#else
using Long = int64_t;
using Word = int32_t;
#endif
template <class T>
using Int = std::conditional_t<sizeof(T) == 4, Word, Long>;

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(vector_bytes)));
  typedef Int<T> integers __attribute__((vector_size(vector_bytes)));
};
template <class T>
using Vec = typename Vector<T>::type;
template <class T>
using IntVec = typename Vector<T>::integers;

template <class T>
inline Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class T>
inline IntVec<T> load_integers(const Int<T>* p) {
  IntVec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class T>
inline void store(T* p, Vec<T> v) {
  std::memcpy(p, &v, sizeof v);
}

template <class T>
inline void store_integers(Int<T>* p, IntVec<T> v) {
  std::memcpy(p, &v, sizeof v);
}

template <class T>
inline Vec<T> splat(T value) {
  return value - Vec<T>{};
}

// The score of an empty place: far below every candidate, and finite.
template <class T>
constexpr T nothing = T(-1e30);

// 1/1, 1/2, ... as a table: a product is cheaper than a quotient.
template <class T, int size>
struct Reciprocals {
  T of[size + 1];

  constexpr Reciprocals() : of() {
    for (int i = 1; i <= size; ++i) of[i] = T(1) / T(i);
  }
};

template <class T, int size>
constexpr Reciprocals<T, size> reciprocals;

template <class T>
constexpr T smallest_normal = sizeof(T) == 4 ? T(1.17549436e-38) : T(2.2250738585072014e-308);
// The unit roundoff.
template <class T>
constexpr T rounding = sizeof(T) == 4 ? T(6e-8) : T(1.2e-16);

}  // namespace regmax::REGMAX_ISA

#if defined(__AVX512F__)
#include "simd/avx512.hpp"
#else
#include "simd/portable.hpp"
#endif

namespace regmax::REGMAX_ISA {

template <class T>
REGMAX_INLINE Vec<T> absolute(Vec<T> v) {
  return (Vec<T>)((IntVec<T>)v & std::numeric_limits<Int<T>>::max());  // without the sign bit
}

// a b - product, exactly: what rounding took from the product.
template <class T>
REGMAX_INLINE Vec<T> product_error(Vec<T> a, Vec<T> b, Vec<T> product) {
#if defined(__FMA__)
  return times_plus(a, b, -product);
#else  // Dekker's product of halves
  const Vec<T> splitter = splat(T(sizeof(T) == 4 ? (1 << 12) + 1 : (1 << 27) + 1));
  const Vec<T> wide_a = a * splitter, wide_b = b * splitter;
  const Vec<T> a1 = wide_a - (wide_a - a), a2 = a - a1, b1 = wide_b - (wide_b - b), b2 = b - b1;
  return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2;
#endif
}

// The first `count` lanes from p, the others `fill`.
template <class T>
inline Vec<T> load_some(const T* p, int count, T fill) {
  T buffer[lanes<T>];
  store<T>(buffer, splat(fill));
  std::memcpy(buffer, p, static_cast<std::size_t>(count) * sizeof(T));
  return load<T>(buffer);
}

template <class T>
inline void store_some(T* p, int count, Vec<T> v) {
  T buffer[lanes<T>];
  store<T>(buffer, v);
  std::memcpy(p, buffer, static_cast<std::size_t>(count) * sizeof(T));
}

#if defined(__AVX512F__)
inline __mmask16 first(int count) { return static_cast<__mmask16>((1u << count) - 1); }
template <>
inline Vec<float> load_some(const float* p, int count, float fill) {
  return _mm512_mask_loadu_ps(splat(fill), first(count), p);
}
template <>
inline Vec<double> load_some(const double* p, int count, double fill) {
  return _mm512_mask_loadu_pd(splat(fill), static_cast<__mmask8>(first(count)), p);
}
template <>
inline void store_some(float* p, int count, Vec<float> v) {
  _mm512_mask_storeu_ps(p, first(count), v);
}
template <>
inline void store_some(double* p, int count, Vec<double> v) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>(first(count)), v);
}
#endif

// The first min(left, lanes<T>) numbers at p; the other lanes are `fill`.
template <class T>
REGMAX_INLINE Vec<T> load_left(const T* p, int64_t left, T fill) {
  return left >= lanes<T> ? load(p) : load_some(p, static_cast<int>(left), fill);
}

template <class T>
REGMAX_INLINE void store_left(T* p, int64_t left, Vec<T> v) {
  left >= lanes<T> ? store<T>(p, v) : store_some<T>(p, static_cast<int>(left), v);
}

// Compacts the lanes of `chosen` to p, which has room for a whole vector; returns how many there are.
template <class T>
REGMAX_INLINE int append(T* p, uint32_t chosen, Vec<T> v) {
  store<T>(p, compress(chosen, v));
  return __builtin_popcount(chosen);
}

// The bits of `source` at the set bits of m, compacted to the low end, and the inverse.
#if defined(__BMI2__)
inline uint64_t compact_bits(uint64_t source, uint64_t m) { return _pext_u64(source, m); }
inline uint64_t expand_bits(uint64_t source, uint64_t m) { return _pdep_u64(source, m); }
#else
inline uint64_t compact_bits(uint64_t source, uint64_t m) {
  uint64_t result = 0;
  for (int k = 0; m; m &= m - 1, ++k) result |= (source >> __builtin_ctzll(m) & 1) << k;
  return result;
}
inline uint64_t expand_bits(uint64_t source, uint64_t m) {
  uint64_t result = 0;
  for (; m; m &= m - 1, source >>= 1) result |= (source & 1) << __builtin_ctzll(m);
  return result;
}
#endif

}  // namespace regmax::REGMAX_ISA
