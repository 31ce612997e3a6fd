// float32 products of single pairs of queries and keys, in the order of operations of the float path (multiply_panel),
// so that their bits are the same.
#pragma once

#if defined(__AVX512F__)

#include <cstdint>

#include "simd/transpose.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// The numbers `first` to first + 3 of 16 rows, one vector each.
template <class At>
REGMAX_INLINE void load_columns(const At& at, int64_t first, Vec<float> (&columns)[4]) {
  for (int j = 0; j < 4; ++j) columns[j] = join_pieces<float>([&](int i) { return at(j + 4 * i) + first; });
  transpose_pieces(columns);
}

// 16 rows of e numbers at `rows`, by dimension: e vectors.
inline void transpose_group(const float* rows, int64_t e, float* columns) {
  Vec<float> four[4];
  for (int64_t i = 0; i < e; i += 4) {
    load_columns([=](int r) { return rows + r * e; }, i, four);
    for (int c = 0; c < 4; ++c) store<float>(columns + (i + c) * lanes<float>, four[c]);
  }
}

// <row owners[i] of the group, b(i)> for 16 pairs.
template <class B>
inline Vec<float> multiply_pairs(const float* columns, const int32_t* owners, const B& b, int64_t e) {
  const __m512i permutation = _mm512_loadu_si512(owners);
  Vec<float> sums{}, right[4];
  for (int64_t i = 0; i < e; i += 4) {
    load_columns(b, i, right);
    for (int c = 0; c < 4; ++c) {
      const Vec<float> left = _mm512_permutexvar_ps(permutation, load(columns + (i + c) * lanes<float>));
      sums = times_plus(left, right[c], sums);
    }
  }
  return sums;
}

}  // namespace regmax::REGMAX_ISA

#endif
