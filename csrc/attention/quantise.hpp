// A row of float32 numbers as 8-bit integers, with bounds of what that loses.
//
// x = scale n + rest, n integers in [-127, 127]. The bounds are of the numbers as they are stored: `rest` is measured,
// not estimated, and every bound is rounded up. docs/derivations/int8.md has the proof.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "regmax.h"
#include "simd/vector.hpp"

#if defined(__AVX512F__)

namespace regmax::REGMAX_ISA {

struct RowBounds {
  float scale;
  float error;  // >= |rest|
  float norm;   // >= |x| and >= |scale n|
  int32_t sum;  // of n
};

// In this range no square overflows, and what underflows is below the slack of the bounds.
constexpr float least_scale = 1e-10f, largest_scale = 1e10f;

// The share by which sums of e rounded terms are rounded up.
inline float slack_of(int64_t e) { return static_cast<float>(e + 16) * 1.2e-7f; }

// The sum of the lanes modulo 2^32: the integers of NaN and infinities, which are not used, overflow.
inline int32_t sum_modulo(__m512i integers) {
  uint32_t parts[lanes<float>], total = 0;
  _mm512_storeu_si512(parts, integers);
  for (const uint32_t part : parts) total += part;
  return static_cast<int32_t>(total);
}

// Writes n for the `e` numbers of x, a multiple of 16; false if x has NaN or infinities, or a size out of range. A zero
// row has scale 0.
inline bool quantise(const float* x, int64_t e, int8_t* n, RowBounds* bounds) {
  Vec<float> top{};
  for (int64_t i = 0; i < e; i += lanes<float>) top = larger(absolute<float>(load(x + i)), top);
  const float largest = _mm512_reduce_max_ps(top);
  const float scale = largest / 127, inverse = largest > 0 ? 127 / largest : 0;
  Vec<float> rests{}, squares{};
  __m512i sums = _mm512_setzero_si512();
  for (int64_t i = 0; i < e; i += lanes<float>) {
    const Vec<float> number = load(x + i);
    const __m512i integers = _mm512_cvtps_epi32(number * inverse);  // rounds to nearest
    const Vec<float> whole = _mm512_cvtepi32_ps(integers);
    const Vec<float> rest = times_plus(-whole, splat(scale), number);
    rests = times_plus(rest, rest, rests);
    squares = times_plus(whole, whole, squares);
    sums = _mm512_add_epi32(sums, integers);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(n + i), _mm512_cvtsepi32_epi8(integers));
  }
  const float slack = 1 + slack_of(e);
  bounds->scale = scale;
  bounds->error = std::sqrt(_mm512_reduce_add_ps(rests)) * slack + scale * 1e-6f;
  bounds->norm = scale * std::sqrt(_mm512_reduce_add_ps(squares)) * slack + bounds->error;
  bounds->sum = sum_modulo(sums);
  // NaN fails every comparison.
  return (scale >= least_scale && scale <= largest_scale && bounds->error <= scale * static_cast<float>(e)) ||
         (largest == 0 && bounds->error == 0);
}

// The bounds of 16 rows, one per lane.
struct LaneBounds {
  Vec<float> scale, error, norm;
  __m512i sum;
  uint32_t usable;  // the rows that quantise() would not refuse
};

// The same for 16 rows, one per lane, of which columns has e vectors. n gets four numbers of every row, a byte each,
// then the next four, `step` bytes apart: as the 8-bit products need them, and without horizontal sums. With
// is_unsigned the bytes have 128 added.
inline LaneBounds quantise_lanes(const float* columns, int64_t e, bool is_unsigned, int8_t* n, int64_t step) {
  Vec<float> top{};
  for (int64_t i = 0; i < e; ++i) top = larger(absolute<float>(load(columns + i * lanes<float>)), top);
  const Vec<float> scale = top / splat(127.0f);
  const Vec<float> inverse = select(greater(top, Vec<float>{}), splat(127.0f) / top, Vec<float>{});
  const __m512i byte = _mm512_set1_epi32(255), flips = _mm512_set1_epi8(is_unsigned ? -128 : 0);
  Vec<float> rests{}, squares{};
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < e; i += 4) {
    __m512i four = _mm512_setzero_si512();
    for (int c = 3; c >= 0; --c) {
      const Vec<float> number = load(columns + (i + c) * lanes<float>);
      const __m512i integers = _mm512_cvtps_epi32(number * inverse);  // rounds to nearest
      const Vec<float> whole = _mm512_cvtepi32_ps(integers);
      const Vec<float> rest = times_plus(-whole, scale, number);
      rests = times_plus(rest, rest, rests);
      squares = times_plus(whole, whole, squares);
      sum = _mm512_add_epi32(sum, integers);
      four = _mm512_or_si512(_mm512_slli_epi32(four, 8), _mm512_and_si512(integers, byte));
    }
    _mm512_storeu_si512(n + i / 4 * step, _mm512_xor_si512(four, flips));
  }
  const Vec<float> slack = splat(1 + slack_of(e));
  LaneBounds bounds;
  bounds.scale = scale;
  bounds.error = _mm512_sqrt_ps(rests) * slack + scale * splat(1e-6f);
  bounds.norm = scale * _mm512_sqrt_ps(squares) * slack + bounds.error;
  bounds.sum = sum;
  // NaN fails every comparison.
  const auto at_most = [](Vec<float> a, Vec<float> b) { return bits(_mm512_cmp_ps_mask(a, b, _CMP_LE_OQ)); };
  const Vec<float> most = scale * splat(static_cast<float>(e)), zero{};
  bounds.usable =
      (at_most(splat(least_scale), scale) & at_most(scale, splat(largest_scale)) & at_most(bounds.error, most)) |
      (bits(equal(top, zero)) & bits(equal(bounds.error, zero)));
  return bounds;
}

}  // namespace regmax::REGMAX_ISA

#endif

namespace regmax::REGMAX_ISA {

// regmax_quantise.
inline int32_t quantise_rows(const float* x, int64_t rows, int64_t e, int8_t* integers, float* scales, float* errors,
                             float* norms) {
#if defined(__AVX512F__)
  for (int64_t i = 0; i < rows; ++i) {
    RowBounds bounds{};
    if (!quantise(x + i * e, e, integers + i * e, &bounds)) {
      std::memset(integers + i * e, 0, static_cast<std::size_t>(e));
      bounds.scale = 0;
      bounds.error = bounds.norm = std::numeric_limits<float>::infinity();
    }
    scales[i] = bounds.scale;
    errors[i] = bounds.error;
    norms[i] = bounds.norm;
  }
  return REGMAX_OK;
#else
  (void)x, (void)rows, (void)e, (void)integers, (void)scales, (void)errors, (void)norms;
  return REGMAX_BAD_ARGUMENT;
#endif
}

}  // namespace regmax::REGMAX_ISA
