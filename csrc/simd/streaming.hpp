// Non-temporal stores, for results that the caches would evict before they are read. Such a store does not
// fetch the line that it overwrites, and evicts no other. The price: a result that is read at once comes from
// memory (runtime/tuning.hpp has the figures).
#pragma once

#include <cstdint>

#include "runtime/tuning.hpp"
#include "simd/vector.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace regmax::REGMAX_ISA {

constexpr int64_t cache_line = 64;

// Whether n rows of d numbers are streamed. Rows must begin and end with a cache line: a line that is
// streamed in parts is slow, and one that is streamed in part and stored in part is slower.
template <class T>
inline bool is_streamed(const T* rows, int64_t n, int64_t d) {
  const int64_t row_bytes = d * static_cast<int64_t>(sizeof(T));
  return n * row_bytes >= streamed_bytes && row_bytes % cache_line == 0 &&
         reinterpret_cast<uintptr_t>(rows) % cache_line == 0;
}

// p is aligned to a vector. Other threads may read it after finish_streams() and their own synchronisation.
template <class T>
inline void stream(T* p, Vec<T> v) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(p), (__m512i)v);
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), (__m256i)v);
#elif defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), (__m128i)v);
#else
  store<T>(p, v);
#endif
}

inline void finish_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

template <class T>
REGMAX_INLINE void put(T* p, Vec<T> v, bool streamed) {
  streamed ? stream<T>(p, v) : store<T>(p, v);
}

// The same of no more than the first `left` lanes, if there are any.
template <class T>
REGMAX_INLINE void put_left(T* p, int64_t left, Vec<T> v, bool streamed) {
  if (left >= lanes<T>) return put<T>(p, v, streamed);
  if (left > 0) store_some<T>(p, static_cast<int>(left), v);
}

}  // namespace regmax::REGMAX_ISA
