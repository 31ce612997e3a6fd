// Stores past the caches, for results so large that the caches would not keep them until they are read. Such
// a store need not fetch the line that it overwrites, and pushes nothing else out.
//
// It is a trade: who reads a streamed result at once fetches it from memory, twice as slow as from a shared
// cache. Mapping and then reading 4 MB took 5 to 20 percent less where the results' memory was not cached, as
// in training, where others use it in between, and 10 to 25 percent more where the same few MB were reused.
#pragma once

#include <cstdint>

#include "simd.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace regmax::REGMAX_ISA {

constexpr int64_t cache_line = 64;
constexpr int64_t streamed_bytes = int64_t{1} << 21;  // what a core has to itself of most machines' caches

// Whether n rows of d numbers go past the caches. Rows begin and end with a line: a line that is streamed in
// parts is slow, and one that is streamed in part and stored in part slower.
template <class T>
inline bool is_streamed(const T* rows, int64_t n, int64_t d) {
  const int64_t row_bytes = d * static_cast<int64_t>(sizeof(T));
  return n * row_bytes >= streamed_bytes && row_bytes % cache_line == 0 &&
         reinterpret_cast<uintptr_t>(rows) % cache_line == 0;
}

// p is aligned to a vector. Other threads may read it after finish_streams() and whatever else they wait for.
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

// The same of no more than the first `left` lanes.
template <class T>
REGMAX_INLINE void put_left(T* p, int64_t left, Vec<T> v, bool streamed) {
  left >= lanes<T> ? put<T>(p, v, streamed) : store_some<T>(p, static_cast<int>(left), v);
}

}  // namespace regmax::REGMAX_ISA
