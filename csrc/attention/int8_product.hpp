// Products of 8-bit queries and keys by AVX-512 VNNI.
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

// The 8-bit keys of a panel, with what turns products into scores.
struct IntegerPanel {
  const int8_t* keys;
  const int32_t* offsets;
  const float* scales;
};

constexpr int panel_vectors = static_cast<int>(screen_panel / lanes<float>);

// Writes the scores of one query from its sums over a panel.
REGMAX_INLINE void write_scores(const __m512i (&sums)[panel_vectors], const IntegerPanel& panel, float q_scale,
                                float* x, float* tops) {
  __m512 top = _mm512_set1_ps(-__builtin_inff());
  for (int w = 0; w < panel_vectors; ++w) {
    const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[w]), _mm512_loadu_ps(panel.scales + w * lanes<float>));
    const __m512 score = _mm512_mul_ps(scaled, _mm512_set1_ps(q_scale));
    _mm512_storeu_ps(x + w * lanes<float>, score);
    top = _mm512_max_ps(top, score);
  }
  _mm512_storeu_ps(tops, top);
}

// The queries' bytes, 128 more than the integers, are in groups of four of every query, as quantise_lanes writes them.
__attribute__((noinline)) inline void multiply_integers(const int8_t* q, const float* q_scales, int64_t e,
                                                        const IntegerPanel& panel, const PanelOut& out) {
  constexpr int rows = 8;
  for (int64_t first = 0; first < lanes<float>; first += rows) {
    __m512i sums[rows][panel_vectors];
    for (int r = 0; r < rows; ++r) {
      for (int w = 0; w < panel_vectors; ++w) sums[r][w] = _mm512_loadu_si512(panel.offsets + w * lanes<float>);
    }
    const int8_t* const bytes = q + 4 * first;
    for (int64_t i = 0; i < e; i += 4) {
      __m512i keys[panel_vectors];
      for (int w = 0; w < panel_vectors; ++w) keys[w] = _mm512_loadu_si512(panel.keys + i * screen_panel + w * 64);
      for (int r = 0; r < rows; ++r) {
        int32_t four;
        __builtin_memcpy(&four, bytes + i * lanes<float> + 4 * r, 4);
        const __m512i query = _mm512_set1_epi32(four);
        for (int w = 0; w < panel_vectors; ++w) sums[r][w] = add_bytes(query, keys[w], sums[r][w]);
      }
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < rows; ++r) {
      write_scores(sums[r], panel, q_scales[first + r], out.x + (first + r) * out.x_row,
                   out.tops + (first + r) * out.tops_row);
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
        __builtin_prefetch(bytes + b + prefetched_copy);
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

}  // namespace regmax::REGMAX_ISA

#endif
