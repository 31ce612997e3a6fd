// The passes over whole rows, in SIMD: the maximum, the few candidates near it, and the way back.
//
// A row is read in words of 64 numbers, one bit each. Whole words and the rest at the end are the same code, inlined
// twice: once with the number of vectors known to the compiler, once with a partial vector at the end.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "lane_mappings.hpp"
#include "simd.hpp"

namespace regmax::REGMAX_ISA {

inline int64_t words_of(int64_t d) { return (d + 63) / 64; }

inline void choose_all(uint64_t* words, int64_t d) {
  for (int64_t i = 0; i < words_of(d); ++i) words[i] = ~uint64_t{0};
  if (d % 64) words[d / 64] = ~uint64_t{0} >> (64 - d % 64);
}

// A row's largest numbers by lane. NaN passes unnoticed here: find_candidates catches it.
template <class T>
inline Vec<T> lane_maxima(const T* x, int64_t d) {
  constexpr int w = lanes<T>;
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  Vec<T> a = splat(lowest), b = a;
  int64_t i = 0;
  for (; i + 2 * w <= d; i += 2 * w) {
    a = larger(load(x + i), a);
    b = larger(load(x + i + w), b);
  }
  for (; i < d; i += w) a = larger(load_left(x + i, d - i, lowest), a);
  return larger(a, b);
}

// The same, and whether a score is -inf.
template <class T>
inline Vec<T> lane_maxima(const T* x, int64_t d, bool* minus_infinity) {
  constexpr int w = lanes<T>;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  Vec<T> a = splat(-infinity), b = a, least = splat(infinity), low = least;
  int64_t i = 0;
  for (; i + 2 * w <= d; i += 2 * w) {
    const Vec<T> u = load(x + i), v = load(x + i + w);
    a = larger(u, a);
    b = larger(v, b);
    least = smaller(u, least);
    low = smaller(v, low);
  }
  for (; i < d; i += w) {
    a = larger(load_left(x + i, d - i, -infinity), a);
    least = smaller(load_left(x + i, d - i, infinity), least);
  }
  *minus_infinity = bits(equal(smaller(least, low), splat(-infinity))) != 0;
  return larger(a, b);
}

// How many scores are above top + level.
template <class T>
inline int64_t count_above(const T* x, int64_t d, T top, T level) {
  const Vec<T> tops = splat(top), levels = splat(level);
  int64_t count = 0;
  for (int64_t i = 0; i < d; i += lanes<T>) {
    const Vec<T> v = load_left(x + i, d - i, -std::numeric_limits<T>::infinity());
    count += __builtin_popcount(bits(greater(v - tops, levels)));
  }
  return count;
}

template <class T>
REGMAX_INLINE uint32_t lanes_of(uint64_t word, int first) {
  return static_cast<uint32_t>(word >> first) & all_lanes<T>;
}

// One word of find_candidates: of min(left, 64) scores.
template <class T>
REGMAX_INLINE int word_candidates(const T* x, int64_t left, Vec<T> top, Vec<T> cut, T* candidates, uint64_t* word) {
  constexpr int w = lanes<T>;
  uint64_t found = 0;
  Vec<T> relative[64 / w];
  const int size = static_cast<int>(left < 64 ? left : 64);
  for (int c = 0; c < size; c += w) {
    relative[c / w] = load_left(x + c, left - c, -std::numeric_limits<T>::infinity()) - top;
    found |= static_cast<uint64_t>(bits(not_at_most(relative[c / w], cut))) << c;
  }
  *word = found;
  int count = 0;
  if (found) {
    for (int c = 0; c < size; c += w) count += append<T>(candidates + count, lanes_of<T>(found, c), relative[c / w]);
  }
  return count;
}

// Writes x - top for every score not at or below the cut (NaN is neither) to `candidates`, and their bits to `words`.
// Returns how many there are; where it is more than max_candidates, the rest is not looked at.
// `candidates` has room for 64 numbers and one vector more than that.
template <class T>
inline int find_candidates(const T* x, int64_t d, T top, T cut, T* candidates, uint64_t* words) {
  const Vec<T> tops = splat(top), cuts = splat(cut);
  int count = 0;
  int64_t i = 0;
  for (; i + 64 <= d && count <= max_candidates; i += 64) {
    count += word_candidates<T>(x + i, 64, tops, cuts, candidates + count, words++);
  }
  if (i < d && count <= max_candidates) {
    count += word_candidates<T>(x + i, d - i, tops, cuts, candidates + count, words);
  }
  return count;
}

// The same without a limit; `candidates` has room for d numbers and one vector.
template <class T>
inline int64_t collect_candidates(const T* x, int64_t d, T top, T cut, T* candidates, uint64_t* words) {
  const Vec<T> tops = splat(top), cuts = splat(cut);
  int64_t count = 0, i = 0;
  for (; i + 64 <= d; i += 64) count += word_candidates<T>(x + i, 64, tops, cuts, candidates + count, words++);
  if (i < d) count += word_candidates<T>(x + i, d - i, tops, cuts, candidates + count, words);
  return count;
}

// A word per 64 numbers of a row, of the bits that `test` gives for each vector; behind the row, it sees zeros.
template <class T, class Test>
REGMAX_INLINE void make_words(const T* x, int64_t d, uint64_t* words, const Test& test) {
  for (int64_t i = 0; i < d; i += 64, ++words) {
    uint64_t word = 0;
    for (int c = 0; c < 64 && i + c < d; c += lanes<T>) {
      word |= static_cast<uint64_t>(bits(test(load_left(x + i + c, d - i - c, T(0)))) & all_lanes<T>) << c;
    }
    *words = word;
  }
}

// y != 0, which NaN is too.
template <class T>
inline void find_nonzero(const T* y, int64_t d, uint64_t* words) {
  make_words(y, d, words, [](Vec<T> v) { return Where<T>(~equal(v, Vec<T>{})); });
}

template <class T>
inline void find_positive(const T* y, int64_t d, uint64_t* words) {
  make_words(y, d, words, [](Vec<T> v) { return greater(v, Vec<T>{}); });
}

// y_i = y_{i-1}; zeros do not count unless told.
template <class T>
inline void find_repeated(const T* y, int64_t d, bool zeros, uint64_t* words) {
  if (zeros) {
    choose_all(words, d);
  } else {
    find_nonzero(y, d, words);
  }
  words[0] &= ~uint64_t{1};
  for (int64_t i = 1; i < d; i += lanes<T>) {
    const Vec<T> v = load_left(y + i, d - i, T(0)), before = load_left(y + i - 1, d - i, T(0));
    const uint64_t different = ~bits(equal(v, before)) & all_lanes<T>;
    words[i / 64] &= ~(different << (i % 64));
    if (i % 64 > 64 - lanes<T> && i / 64 + 1 < words_of(d)) words[i / 64 + 1] &= ~(different >> (64 - i % 64));
  }
}

// The bits of at most 64 mask bytes, each 0 or 1.
inline uint64_t mask_word(const uint8_t* keep, int64_t left) {
#if defined(__AVX512BW__)
  const __m512i bytes = _mm512_maskz_loadu_epi8(~uint64_t{0} >> (left < 64 ? 64 - left : 0), keep);
  return _mm512_test_epi8_mask(bytes, bytes);
#else
  uint8_t some[64] = {};
  if (left < 64) keep = static_cast<const uint8_t*>(std::memcpy(some, keep, static_cast<std::size_t>(left)));
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) {
    uint64_t bytes;
    std::memcpy(&bytes, keep + 8 * i, 8);
    word |= (bytes * 0x0102040810204080 >> 56) << (8 * i);
  }
  return word;
#endif
}

// The bits of a mask row; nullptr keeps all.
inline void find_kept(const uint8_t* keep, int64_t d, uint64_t* words) {
  if (!keep) return choose_all(words, d);
  for (int64_t i = 0; i < d; i += 64) *words++ = mask_word(keep + i, d - i);
}

// How many scores from the front a mask row keeps, -1 where it keeps others too.
inline int64_t prefix_length(const uint8_t* keep, int64_t d) {
  int64_t length = 0;
  for (int64_t i = 0; i < d; i += 64) {
    const uint64_t word = mask_word(keep + i, d - i);
    if (word & (word + 1)) return -1;   // not ones, then zeros
    if (word && length < i) return -1;  // ones behind zeros
    length += __builtin_popcountll(word);
  }
  return length;
}

// Packs the numbers at the bits of one word, of `left` numbers that follow p; returns how many.
template <class T>
REGMAX_INLINE int gather_word(const T* p, int64_t left, uint64_t word, T* packed) {
  const int size = static_cast<int>(left < 64 ? left : 64);
  int count = 0;
  for (int c = 0; c < size; c += lanes<T>) {
    count += append<T>(packed + count, lanes_of<T>(word, c), load_left(p + c, left - c, T(0)));
  }
  return count;
}

// Spreads packed values over the bits of one word, zeros elsewhere; returns how many it took.
template <class T>
REGMAX_INLINE int spread_word(const T* values, uint64_t word, int64_t left, T* y) {
  const int size = static_cast<int>(left < 64 ? left : 64);
  int count = 0;
  for (int c = 0; c < size; c += lanes<T>) {
    const uint32_t chosen = lanes_of<T>(word, c);
    store_left<T>(y + c, left - c, expand(chosen, load(values + count)));
    count += __builtin_popcount(chosen);
  }
  return count;
}

// Packs the numbers at the bits of a row; `packed` has room for a vector more. Returns how many.
template <class T>
inline int64_t gather_row(const T* x, const uint64_t* words, int64_t d, T* packed) {
  int64_t count = 0;
  for (int64_t i = 0; i < d; i += 64, ++words) {
    if (*words) count += gather_word<T>(x + i, d - i, *words, packed + count);
  }
  return count;
}

// Spreads packed values over a row.
template <class T>
inline void spread_row(const T* values, const uint64_t* words, int64_t d, T* y) {
  int64_t i = 0;
  for (; i + 64 <= d; i += 64, ++words) {
    if (*words) {
      values += spread_word<T>(values, *words, 64, y + i);
    } else {
      for (int c = 0; c < 64; c += lanes<T>) store<T>(y + i + c, Vec<T>{});
    }
  }
  if (i < d) spread_word<T>(values, *words, d - i, y + i);
}

// The bits of a row without its deleted positions, moved to where they are in the whole row. `words` may
// be `kept` itself.
inline void spread_row_bits(const uint64_t* packed, const uint64_t* kept, int64_t d, uint64_t* words) {
  int64_t from = 0;
  for (int64_t i = 0; i < words_of(d); ++i) {
    const int count = __builtin_popcountll(kept[i]);
    uint64_t bits = 0;
    if (count) {
      bits = packed[from / 64] >> (from % 64);
      if (from % 64 + count > 64) bits |= packed[from / 64 + 1] << (64 - from % 64);
    }
    words[i] = spread_bits(bits, kept[i]);
    from += count;
  }
}

// One bit per candidate: which follow the candidate before without a gap, and which have a lower neighbour.
struct Runs {
  uint64_t adjacent, left_edge, right_edge;
};

inline Runs find_runs(const uint64_t* words, int64_t d, int count) {
  uint64_t adjacent = 0, carry = 0;
  int done = 0;
  for (int64_t i = 0; i < words_of(d); ++i) {
    const uint64_t word = words[i];
    adjacent |= pack_bits(word & (word << 1 | carry), word) << done;
    done += __builtin_popcountll(word);
    carry = word >> 63;
  }
  const uint64_t at_begin = words[0] & 1, at_end = words[(d - 1) / 64] >> ((d - 1) % 64) & 1;
  return {adjacent, ~adjacent & ~at_begin, ~(adjacent >> 1) & ~(at_end << (count - 1))};
}

}  // namespace regmax::REGMAX_ISA
