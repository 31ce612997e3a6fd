// Lane masks and lane moves for AVX-512: Where<T> is a mask register. Part of vector.hpp.
#pragma once

namespace regmax::REGMAX_ISA {

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
inline IntVec<float> add_where(__mmask16 m, IntVec<float> a, IntVec<float> b) {
  return (IntVec<float>)_mm512_mask_add_epi32((__m512i)a, m, (__m512i)a, (__m512i)b);
}
inline IntVec<double> add_where(__mmask8 m, IntVec<double> a, IntVec<double> b) {
  return (IntVec<double>)_mm512_mask_add_epi64((__m512i)a, m, (__m512i)a, (__m512i)b);
}
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
// 1/a up to rounding.
inline Vec<float> nearly_inverse(Vec<float> a) {
  const Vec<float> c = _mm512_rcp14_ps(a);
  return _mm512_fmadd_ps(c, _mm512_fnmadd_ps(a, c, _mm512_set1_ps(1)), c);
}
// The square root up to rounding, in a quarter of the time; smaller than the root for subnormal numbers.
inline Vec<float> nearly_square_root(Vec<float> a) {
  const Vec<float> c = _mm512_rsqrt14_ps(_mm512_max_ps(a, _mm512_set1_ps(1.1754944e-38f))), root = a * c;
  // c / 2 by its exponent: the multiplier ports are the bottleneck.
  const Vec<float> half = _mm512_castsi512_ps(_mm512_sub_epi32((__m512i)c, _mm512_set1_epi32(1 << 23)));
  return _mm512_fmadd_ps(half, _mm512_fnmadd_ps(root, root, a), root);
}
inline Vec<double> nearly_square_root(Vec<double> a) { return _mm512_sqrt_pd(a); }

// Compacts the lanes of m to the front. (Compressing to memory directly is microcoded on Zen 4.)
inline Vec<float> compress(uint32_t m, Vec<float> v) { return _mm512_maskz_compress_ps(__mmask16(m), v); }
inline Vec<double> compress(uint32_t m, Vec<double> v) { return _mm512_maskz_compress_pd(__mmask8(m), v); }
// The inverse: expands the front of v to the lanes of m, zeros elsewhere. (The asm keeps the compiler from
// expanding directly from memory, which is microcoded too.)
inline Vec<float> expand(uint32_t m, Vec<float> v) {
  asm("" : "+v"(v));
  return _mm512_maskz_expand_ps(__mmask16(m), v);
}
inline Vec<double> expand(uint32_t m, Vec<double> v) {
  asm("" : "+v"(v));
  return _mm512_maskz_expand_pd(__mmask8(m), v);
}

}  // namespace regmax::REGMAX_ISA
