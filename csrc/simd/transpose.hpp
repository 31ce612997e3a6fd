// Transposes between rows and lanes (one row per lane of a vector).
//
// The unit is a tile of lanes<T> rows by 16 bytes: vector j of it holds the 16-byte pieces of the rows j, j +
// Q, j + 2 Q, ... for the Q numbers of a piece. A Q x Q transpose inside every 16-byte piece then gives one
// vector per column, with the rows in order; the same steps in reverse undo it.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
constexpr int piece = 16 / static_cast<int>(sizeof(T));

// A shuffle of two vectors: lane i takes lane Pick::from(i) of a followed by b.
template <class Pick, class V, std::size_t... I>
inline V shuffle(V a, V b, std::index_sequence<I...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, Pick::from(I)...);
#else
  typedef Int<std::decay_t<decltype(a[0])>> integers __attribute__((vector_size(vector_bytes)));
  return __builtin_shuffle(a, b, integers{Pick::from(I)...});
#endif
}

// Inside every piece of `size` lanes out of `all`: a0 b0 a1 b1 ... of the lower (upper) half.
template <int all, int size, int half>
struct Interleave {
  static constexpr int from(int i) { return i / size * size + half * size / 2 + i % size / 2 + (i % 2 ? all : 0); }
};

// Inside every piece of four: the lower (upper) pair of a, then that of b.
template <int all, int half>
struct Pairs {
  static constexpr int from(int i) { return i / 4 * 4 + half * 2 + i % 2 + (i % 4 < 2 ? 0 : all); }
};

// Inside every block of `size` lanes: every second unit of a's, from the first (second) on, then of b's.
template <int all, int size, int unit, int half>
struct Alternate {
  static constexpr int from(int i) {
    const int place = i % size / unit, units = size / unit;
    return i / size * size + (place % (units / 2) * 2 + half) * unit + i % unit + (place < units / 2 ? 0 : all);
  }
};

// Adds neighbouring units of n vectors, and leaves n / 2.
template <class T, int size, int unit, int n>
REGMAX_INLINE void add_neighbours(Vec<T>* v) {
  constexpr int all = lanes<T>;
  const auto each = std::make_index_sequence<all>();
  for (int i = 0; i < n / 2; ++i) {
    v[i] = shuffle<Alternate<all, size, unit, 0>>(v[2 * i], v[2 * i + 1], each) +
           shuffle<Alternate<all, size, unit, 1>>(v[2 * i], v[2 * i + 1], each);
  }
}

// From n vectors, each the sums of lanes<T> / n rows by lane, to one: first inside the pieces of 16 bytes.
template <class T, int n = lanes<T>>
REGMAX_INLINE Vec<T> add_rows(Vec<T>* v) {
  if constexpr (n == 1) {
    return v[0];
  } else {
    constexpr bool inside = n * piece<T> > lanes<T>;
    add_neighbours<T, inside ? piece<T> : lanes<T>, inside ? 1 : piece<T>, n>(v);
    return add_rows<T, n / 2>(v);
  }
}

// The sums of lanes<T> vectors, that of v[r] in lane r.
template <class T>
inline Vec<T> sum_rows(const Vec<T>* v) {
  Vec<T> sums[lanes<T>];
  for (int r = 0; r < lanes<T>; ++r) sums[r] = v[r];
  return add_rows<T>(sums);
}

inline void transpose_pieces(Vec<float> (&v)[4]) {
  constexpr int all = lanes<float>;
  const auto each = std::make_index_sequence<all>();
  const Vec<float> a = shuffle<Interleave<all, 4, 0>>(v[0], v[1], each);
  const Vec<float> b = shuffle<Interleave<all, 4, 1>>(v[0], v[1], each);
  const Vec<float> c = shuffle<Interleave<all, 4, 0>>(v[2], v[3], each);
  const Vec<float> d = shuffle<Interleave<all, 4, 1>>(v[2], v[3], each);
  v[0] = shuffle<Pairs<all, 0>>(a, c, each);
  v[1] = shuffle<Pairs<all, 1>>(a, c, each);
  v[2] = shuffle<Pairs<all, 0>>(b, d, each);
  v[3] = shuffle<Pairs<all, 1>>(b, d, each);
}

inline void transpose_pieces(Vec<double> (&v)[2]) {
  constexpr int all = lanes<double>;
  const auto each = std::make_index_sequence<all>();
  const Vec<double> a = shuffle<Interleave<all, 2, 0>>(v[0], v[1], each);
  v[1] = shuffle<Interleave<all, 2, 1>>(v[0], v[1], each);
  v[0] = a;
}

// 16 bytes from each of at(0), at(1), ..., in one vector, and the inverse.
template <class T, class At>
REGMAX_INLINE Vec<T> join_pieces(const At& at) {
#if defined(__AVX512F__)
  __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i*)at(0)));
  v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)at(1)), 1);
  v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)at(2)), 2);
  return (Vec<T>)_mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)at(3)), 3);
#elif defined(__AVX2__)
  const __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)at(0)));
  return (Vec<T>)_mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i*)at(1)), 1);
#else
  Vec<T> v;
  for (int i = 0; i < vector_bytes / 16; ++i) std::memcpy(reinterpret_cast<char*>(&v) + 16 * i, at(i), 16);
  return v;
#endif
}

template <class T>
inline void store_pieces(T* p, int64_t stride, Vec<T> v) {
#if defined(__AVX512F__)
  _mm_storeu_si128((__m128i*)p, _mm512_castsi512_si128((__m512i)v));
  _mm_storeu_si128((__m128i*)(p + stride), _mm512_extracti32x4_epi32((__m512i)v, 1));
  _mm_storeu_si128((__m128i*)(p + 2 * stride), _mm512_extracti32x4_epi32((__m512i)v, 2));
  _mm_storeu_si128((__m128i*)(p + 3 * stride), _mm512_extracti32x4_epi32((__m512i)v, 3));
#elif defined(__AVX2__)
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128((__m256i)v));
  _mm_storeu_si128((__m128i*)(p + stride), _mm256_extracti128_si256((__m256i)v, 1));
#else
  for (int i = 0; i < vector_bytes / 16; ++i)
    std::memcpy(p + i * stride, reinterpret_cast<const char*>(&v) + 16 * i, 16);
#endif
}

// columns[k] = column k of the lanes<T> rows at `rows`, for k < count rounded up to whole pieces.
template <class T>
inline void rows_to_lanes(const T* rows, int64_t stride, int count, Vec<T>* columns) {
  constexpr int q = piece<T>;
  for (int k = 0; k < count; k += q) {
    Vec<T> v[q];
    for (int j = 0; j < q; ++j) v[j] = join_pieces<T>([&](int i) { return rows + (j + i * q) * stride + k; });
    transpose_pieces(v);
    for (int j = 0; j < q; ++j) columns[k + j] = v[j];
  }
}

template <class T>
inline void lanes_to_rows(const Vec<T>* columns, int count, T* rows, int64_t stride) {
  constexpr int q = piece<T>;
  for (int k = 0; k < count; k += q) {
    Vec<T> v[q];
    for (int j = 0; j < q; ++j) v[j] = columns[k + j];
    transpose_pieces(v);
    for (int j = 0; j < q; ++j) store_pieces<T>(rows + j * stride + k, q * stride, v[j]);
  }
}

}  // namespace regmax::REGMAX_ISA
