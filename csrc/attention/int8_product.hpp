// Products of 8-bit queries and keys by AVX-512 VNNI, and float32 products of single pairs in the order of operations
// of the float path, so that their bits are the same.
#pragma once

#if defined(__AVX512F__)

#include <cstdint>

#include "attention/gemm.hpp"
#include "attention/screened_keys.hpp"

namespace regmax::REGMAX_ISA {

// A panel of approximate scores of 16 queries, in x, and their maxima over the panel's vectors, in tops.
struct PanelOut {
  float* x;
  int64_t x_row;
  float* tops;
  int64_t tops_row;
};

// sums += the products of four unsigned bytes of a and four signed bytes of b, in every lane. As an instruction, since
// the rest of this file is compiled for AVX-512 without VNNI; gcc 12 also spills the intrinsic's sums.
REGMAX_INLINE __m512i add_bytes(__m512i a, __m512i b, __m512i sums) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
  return sums;
}

__attribute__((noinline)) inline void multiply_integers(const uint8_t* q, const float* q_scales, int64_t e,
                                                        const int8_t* panel, const int32_t* offsets,
                                                        const float* scales, const PanelOut& out) {
  constexpr int rows = 8, vectors = 3;
  static_assert(screen_panel == vectors * lanes<float>, "a panel of keys is three vectors");
  for (int64_t first = 0; first < lanes<float>; first += rows) {
    __m512i sums[rows][vectors];
    for (int r = 0; r < rows; ++r) {
      for (int w = 0; w < vectors; ++w) sums[r][w] = _mm512_setzero_si512();
    }
    const uint8_t* const bytes = q + first * e;
    for (int64_t i = 0; i < e; i += 4) {
      __m512i keys[vectors];
      for (int w = 0; w < vectors; ++w) keys[w] = _mm512_loadu_si512(panel + i * screen_panel + w * 64);
      for (int r = 0; r < rows; ++r) {
        int32_t four;
        __builtin_memcpy(&four, bytes + r * e + i, 4);
        const __m512i query = _mm512_set1_epi32(four);
        for (int w = 0; w < vectors; ++w) sums[r][w] = add_bytes(query, keys[w], sums[r][w]);
      }
    }
    __m512 scale[vectors];
    __m512i offset[vectors];
    for (int w = 0; w < vectors; ++w) {
      scale[w] = _mm512_loadu_ps(scales + w * lanes<float>);
      offset[w] = _mm512_loadu_si512(offsets + w * lanes<float>);
    }
    for (int r = 0; r < rows; ++r) {
      const __m512 q_scale = _mm512_set1_ps(q_scales[first + r]);
      __m512 x[vectors];
      for (int w = 0; w < vectors; ++w) {
        const __m512i sum = _mm512_add_epi32(sums[r][w], offset[w]);
        x[w] = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale[w]), q_scale);
        _mm512_storeu_ps(out.x + (first + r) * out.x_row + w * lanes<float>, x[w]);
      }
      _mm512_storeu_ps(out.tops + (first + r) * out.tops_row, _mm512_max_ps(_mm512_max_ps(x[0], x[1]), x[2]));
    }
  }
}

// Approximate scores of one query and the keys at(0), at(1), ..., where keys are copied in 8 bits: x[j] for j < n,
// whole vectors being written. Here the key's bytes are the unsigned ones; q has zeros after its e bytes. Sums are
// below 2^24, so exact in float32.
template <class At>
inline void multiply_copied(const int8_t* q, float q_scale, int32_t q_sum, int64_t e, const At& at, const float* scales,
                            const int32_t* index, int64_t n, float* x) {
  const __m512i flips = _mm512_set1_epi8(-128);
  const Vec<float> offset = splat(static_cast<float>(128 * q_sum));
  for (int64_t j = 0; j < n; j += lanes<float>) {
    Vec<float> sums[lanes<float>];
    float own_scales[lanes<float>];
    for (int i = 0; i < lanes<float>; ++i) {
      const int64_t place = j + i < n ? j + i : n - 1, key = index ? index[place] : place;
      const int8_t* const bytes = at(key);
      __m512i sum = _mm512_setzero_si512();
      for (int64_t b = 0; b < e; b += 64) {
        const __mmask64 some = e - b < 64 ? (uint64_t{1} << (e - b)) - 1 : ~uint64_t{0};
        sum = add_bytes(_mm512_xor_si512(_mm512_maskz_loadu_epi8(some, bytes + b), flips), _mm512_loadu_si512(q + b),
                        sum);
      }
      sums[i] = _mm512_cvtepi32_ps(sum);
      own_scales[i] = scales[key];
    }
    store<float>(x + j, (sum_rows<float>(sums) - offset) * load(own_scales) * splat(q_scale));
  }
}

// The numbers `first` to first + 3 of 16 rows, one vector each.
template <class At>
REGMAX_INLINE void load_columns(const At& at, int64_t first, Vec<float> (&columns)[4]) {
  for (int j = 0; j < 4; ++j) columns[j] = join_pieces<float>([&](int i) { return at(j + 4 * i) + first; });
  transpose_pieces(columns);
}

// <a(i), b(i)> for 16 pairs of rows, each sum in the order of multiply_panel.
template <class A, class B>
inline Vec<float> multiply_pairs(const A& a, const B& b, int64_t e) {
  Vec<float> sums{}, left[4], right[4];
  for (int64_t i = 0; i < e; i += 4) {
    load_columns(a, i, left);
    load_columns(b, i, right);
    for (int c = 0; c < 4; ++c) sums = times_plus(left[c], right[c], sums);
  }
  return sums;
}

// The same with one a for all.
template <class B>
inline Vec<float> multiply_rows(const float* a, const B& b, int64_t e) {
  Vec<float> sums{}, right[4];
  for (int64_t i = 0; i < e; i += 4) {
    load_columns(b, i, right);
    for (int c = 0; c < 4; ++c) sums = times_plus(splat(a[i + c]), right[c], sums);
  }
  return sums;
}

}  // namespace regmax::REGMAX_ISA

#endif
