// Lane masks and lane moves without mask registers: Where<T> is a vector of ones or zeros. Part of
// vector.hpp.
#pragma once

namespace regmax::REGMAX_ISA {

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

// a b + c, rounded once if the machine can.
#if defined(__FMA__)
inline Vec<float> times_plus(Vec<float> a, Vec<float> b, Vec<float> c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec<double> times_plus(Vec<double> a, Vec<double> b, Vec<double> c) { return _mm256_fmadd_pd(a, b, c); }
#else
template <class V, class = decltype(V{}[0])>
inline V times_plus(V a, V b, V c) {
  return a * b + c;
}
#endif
template <class V, class = decltype(V{}[0])>
inline V nearly_inverse(V a) {
  return 1 / a;
}
template <class V, class = decltype(V{}[0])>
inline V nearly_square_root(V a) {
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
inline __m256i indices(uint64_t bytes) { return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes))); }
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

}  // namespace regmax::REGMAX_ISA
