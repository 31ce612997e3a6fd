// A tiny wrapper: vectors of T as wide as the instruction set has them. Arithmetic is by the compilers' operators on
// vectors; here are the few operations that those lack. Where<T> is a lane mask, and bits() makes it an integer.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define REGMAX_INLINE inline __attribute__((always_inline))

namespace regmax::REGMAX_ISA {

// Not std::max and its like: those are templates that translation units of other instruction sets share.
inline double larger(double a, double b) { return a > b ? a : b; }
inline double smaller(double a, double b) { return a < b ? a : b; }

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;  // SSE2, NEON
#endif

template <class T>
constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));
template <class T>
using Int = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

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
inline Vec<T> splat(T value) {
  return value - Vec<T>{};
}

#if defined(__AVX512F__)

template <class T>
using Where = std::conditional_t<sizeof(T) == 4, __mmask16, __mmask8>;

inline __mmask16 greater(Vec<float> a, Vec<float> b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline __mmask8 greater(Vec<double> a, Vec<double> b) { return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ); }
inline __mmask16 not_at_most(Vec<float> a, Vec<float> b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
inline __mmask8 not_at_most(Vec<double> a, Vec<double> b) { return _mm512_cmp_pd_mask(a, b, _CMP_NLE_UQ); }
inline __mmask16 equal(Vec<float> a, Vec<float> b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
inline __mmask8 equal(Vec<double> a, Vec<double> b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
inline __mmask16 has_bit(IntVec<float> flags, int k) {
  return _mm512_test_epi32_mask((__m512i)flags, _mm512_set1_epi32(1 << k));
}
inline __mmask8 has_bit(IntVec<double> flags, int k) {
  return _mm512_test_epi64_mask((__m512i)flags, _mm512_set1_epi64(int64_t{1} << k));
}
inline Vec<float> select(__mmask16 m, Vec<float> a, Vec<float> b) { return _mm512_mask_blend_ps(m, b, a); }
inline Vec<double> select(__mmask8 m, Vec<double> a, Vec<double> b) { return _mm512_mask_blend_pd(m, b, a); }
inline Vec<float> add_where(__mmask16 m, Vec<float> a, Vec<float> b) { return _mm512_mask_add_ps(a, m, a, b); }
inline Vec<double> add_where(__mmask8 m, Vec<double> a, Vec<double> b) { return _mm512_mask_add_pd(a, m, a, b); }
inline uint32_t bits(__mmask16 m) { return m; }
template <class T>
inline Where<T> from_bits(uint32_t m) {
  return static_cast<Where<T>>(m);
}
inline uint32_t bits(__mmask8 m) { return m; }
inline Vec<float> larger(Vec<float> a, Vec<float> b) { return _mm512_max_ps(a, b); }
inline Vec<double> larger(Vec<double> a, Vec<double> b) { return _mm512_max_pd(a, b); }
inline Vec<float> smaller(Vec<float> a, Vec<float> b) { return _mm512_min_ps(a, b); }
inline Vec<double> smaller(Vec<double> a, Vec<double> b) { return _mm512_min_pd(a, b); }
inline Vec<float> times_plus(Vec<float> a, Vec<float> b, Vec<float> c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec<double> times_plus(Vec<double> a, Vec<double> b, Vec<double> c) { return _mm512_fmadd_pd(a, b, c); }
inline Vec<float> square_root(Vec<float> a) { return _mm512_sqrt_ps(a); }
inline Vec<double> square_root(Vec<double> a) { return _mm512_sqrt_pd(a); }

// The lanes of m, packed to the front. (Compressing straight to memory is microcoded on Zen 4.)
inline Vec<float> compress(uint32_t m, Vec<float> v) { return _mm512_maskz_compress_ps(__mmask16(m), v); }
inline Vec<double> compress(uint32_t m, Vec<double> v) { return _mm512_maskz_compress_pd(__mmask8(m), v); }
// The inverse: the front of v spread over the lanes of m, zeros elsewhere.
inline Vec<float> expand(uint32_t m, Vec<float> v) { return _mm512_maskz_expand_ps(__mmask16(m), v); }
inline Vec<double> expand(uint32_t m, Vec<double> v) { return _mm512_maskz_expand_pd(__mmask8(m), v); }

#else

template <class T>
using Where = IntVec<T>;

template <class V>
inline auto greater(V a, V b) {
  return a > b;
}
template <class V>
inline auto not_at_most(V a, V b) {
  return ~(a <= b);
}
template <class V>
inline auto equal(V a, V b) {
  return a == b;
}
template <class I>
inline I has_bit(I flags, int k) {
  return ((flags >> k) & 1) != 0;
}
template <class I, class V>
inline V select(I m, V a, V b) {
  return m ? a : b;
}
template <class I, class V>
inline V add_where(I m, V a, V b) {
  return m ? a + b : a;
}
template <class V, class = decltype(V{}[0])>
inline V larger(V a, V b) {
  return a > b ? a : b;
}
template <class V, class = decltype(V{}[0])>
inline V smaller(V a, V b) {
  return a < b ? a : b;
}

template <class V, class = decltype(V{}[0])>
inline V times_plus(V a, V b, V c) {
  return a * b + c;
}
template <class V, class = decltype(V{}[0])>
inline V square_root(V a) {
  for (unsigned i = 0; i < sizeof(V) / sizeof(a[0]); ++i) a[i] = std::sqrt(a[i]);
  return a;
}

template <class T, std::size_t... I>
inline IntVec<T> lane_bits(std::index_sequence<I...>) {
  return IntVec<T>{(Int<T>{1} << I)...};
}
template <class T>
inline Where<T> from_bits(uint32_t m) {
  return ((IntVec<T>{} + static_cast<Int<T>>(m)) & lane_bits<T>(std::make_index_sequence<lanes<T>>())) != 0;
}

#if defined(__AVX2__)
inline uint32_t bits(IntVec<float> m) { return static_cast<uint32_t>(_mm256_movemask_ps((__m256)m)); }
inline uint32_t bits(IntVec<double> m) { return static_cast<uint32_t>(_mm256_movemask_pd((__m256d)m)); }

// A byte of ones for every set bit of m, which pext and pdep turn into permutations.
inline uint64_t byte_mask(uint32_t m) { return _pdep_u64(m, 0x0101010101010101) * 0xff; }
inline uint32_t doubled(uint32_t m) { return _pdep_u32(m, 0x55) * 3; }
inline __m256i indices(uint64_t bytes) {
  return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
}
constexpr uint64_t identity = 0x0706050403020100;

inline Vec<float> compress(uint32_t m, Vec<float> v) {
  return _mm256_permutevar8x32_ps(v, indices(_pext_u64(identity, byte_mask(m))));
}
inline Vec<float> expand(uint32_t m, Vec<float> v) {
  const uint64_t bytes = byte_mask(m);
  const __m256i kept = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
  const __m256 spread = _mm256_permutevar8x32_ps(v, indices(_pdep_u64(identity, bytes)));
  return _mm256_and_ps(spread, _mm256_castsi256_ps(kept));
}
inline Vec<double> compress(uint32_t m, Vec<double> v) { return (Vec<double>)compress(doubled(m), (Vec<float>)v); }
inline Vec<double> expand(uint32_t m, Vec<double> v) { return (Vec<double>)expand(doubled(m), (Vec<float>)v); }

#else

template <class I>
inline uint32_t bits(I m) {
  uint32_t result = 0;
  for (unsigned i = 0; i < sizeof(I) / sizeof(m[0]); ++i) result |= static_cast<uint32_t>(m[i] & 1) << i;
  return result;
}
template <class V>
inline V compress(uint32_t m, V v) {
  V packed{};
  for (int i = 0, k = 0; m >> i; ++i) {
    if (m >> i & 1) packed[k++] = v[i];
  }
  return packed;
}
template <class V>
inline V expand(uint32_t m, V v) {
  V spread{};
  for (int i = 0, k = 0; m >> i; ++i) {
    if (m >> i & 1) spread[i] = v[k++];
  }
  return spread;
}
#endif
#endif

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

// Up to lanes<T> numbers from p, of which `left` may be read; `fill` in the lanes behind.
template <class T>
REGMAX_INLINE Vec<T> load_left(const T* p, int64_t left, T fill) {
  return left >= lanes<T> ? load(p) : load_some(p, static_cast<int>(left), fill);
}

template <class T>
REGMAX_INLINE void store_left(T* p, int64_t left, Vec<T> v) {
  left >= lanes<T> ? store<T>(p, v) : store_some<T>(p, static_cast<int>(left), v);
}

// Packs the lanes of `chosen` to p, where there is room for a whole vector; returns how many.
template <class T>
REGMAX_INLINE int append(T* p, uint32_t chosen, Vec<T> v) {
  store<T>(p, compress(chosen, v));
  return __builtin_popcount(chosen);
}

// Bits of `source` at the set bits of m, packed to the low end, and the inverse.
#if defined(__BMI2__)
inline uint64_t pack_bits(uint64_t source, uint64_t m) { return _pext_u64(source, m); }
inline uint64_t spread_bits(uint64_t source, uint64_t m) { return _pdep_u64(source, m); }
#else
inline uint64_t pack_bits(uint64_t source, uint64_t m) {
  uint64_t result = 0;
  for (int k = 0; m; m &= m - 1, ++k) result |= (source >> __builtin_ctzll(m) & 1) << k;
  return result;
}
inline uint64_t spread_bits(uint64_t source, uint64_t m) {
  uint64_t result = 0;
  for (; m; m &= m - 1, source >>= 1) result |= (source & 1) << __builtin_ctzll(m);
  return result;
}
#endif

}  // namespace regmax::REGMAX_ISA
