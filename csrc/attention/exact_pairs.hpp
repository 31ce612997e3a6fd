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

// The e numbers of 16 rows, by dimension: e vectors.
template <class At>
inline void transpose_group(const At& at, int64_t e, float* columns) {
  Vec<float> four[4];
  for (int64_t i = 0; i < e; i += 4) {
    load_columns(at, i, four);
    for (int c = 0; c < 4; ++c) store<float>(columns + (i + c) * lanes<float>, four[c]);
  }
}

// <row owners[i] of the group, keys[i]> for 16 pairs. The addresses of 16 keys do not fit the registers: they are read
// once for 16 dimensions.
__attribute__((noinline)) inline Vec<float> multiply_pairs(const float* columns, const int32_t* owners,
                                                           const float* const* keys, int64_t e) {
  const __m512i permutation = _mm512_loadu_si512(owners);
  Vec<float> sums{};
  for (int64_t i = 0; i < e; i += 16) {
    Vec<float> right[4][4];
    for (int j = 0; j < 4; ++j) {
      const float* const at[4] = {keys[j] + i, keys[j + 4] + i, keys[j + 8] + i, keys[j + 12] + i};
      for (int c = 0; c < 4; ++c) right[c][j] = join_pieces<float>([&](int row) { return at[row] + 4 * c; });
    }
    for (int c = 0; c < 4; ++c) {
      transpose_pieces(right[c]);
      for (int d = 0; d < 4; ++d) {
        const float* const left = columns + (i + 4 * c + d) * lanes<float>;
        sums = times_plus(_mm512_permutexvar_ps(permutation, load(left)), right[c][d], sums);
      }
    }
  }
  return sums;
}

}  // namespace regmax::REGMAX_ISA

#endif
