// The passes over whole rows, in SIMD: the maximum, the few candidates near it, and the way back.
//
// A row is read in words of 64 numbers, one bit each. Whole words and the rest at the end are the same code,
// inlined twice: once with the number of vectors known to the compiler, once with a partial vector at the
// end.
#pragma once

#include <cstdint>
#include <limits>

#include "lane_mappings.hpp"
#include "simd.hpp"
#include "streaming.hpp"
#include "words.hpp"

namespace regmax::REGMAX_ISA {

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

// One word of find_candidates: of min(left, 64) scores.
template <class T>
REGMAX_INLINE int word_candidates(const T* x, int64_t left, Vec<T> top, Vec<T> cut, T* candidates,
                                  uint64_t* word) {
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
    for (int c = 0; c < size; c += w)
      count += append<T>(candidates + count, lanes_of<T>(found, c), relative[c / w]);
  }
  return count;
}

// The bits of the scores of whole words that are not at or below the cut, NaN among them; returns a bit for
// every word that has any. At most 64 words.
template <class T>
inline uint64_t mark_candidates(const T* x, int64_t words, Vec<T> top, Vec<T> cut, uint64_t* found) {
  uint64_t some = 0;
  for (int64_t i = 0; i < words; ++i) {
    uint64_t word = 0;
    for (int c = 0; c < 64; c += lanes<T>) {
      word |= static_cast<uint64_t>(bits(not_at_most(load(x + 64 * i + c) - top, cut))) << c;
    }
    found[i] = word;
    some |= static_cast<uint64_t>(word != 0) << i;
  }
  return some;
}

// Adds what word_candidates finds in the whole words of a long row. Few words have any, and a branch on every
// word would often be guessed wrong: all are marked first.
template <class T>
inline int long_candidates(const T* x, int64_t d, Vec<T> top, Vec<T> cut, T* candidates, uint64_t* words) {
  int count = 0;
  for (int64_t i = 0; i + 64 <= d && count <= max_candidates; i += 64 * 64) {
    const int64_t whole = (d - i) / 64 < 64 ? (d - i) / 64 : 64;
    for (uint64_t some = mark_candidates<T>(x + i, whole, top, cut, words + i / 64);
         some && count <= max_candidates; some &= some - 1) {
      const int64_t word = i / 64 + __builtin_ctzll(some);
      for (int c = 0; c < 64; c += lanes<T>) {
        count += append<T>(candidates + count, lanes_of<T>(words[word], c), load(x + 64 * word + c) - top);
      }
    }
  }
  return count;
}

constexpr int64_t marked_row = 256;

// Writes x - top for every score not at or below the cut (NaN is neither) to `candidates`, and their bits to
// `words`. Returns how many there are; where it is more than max_candidates, the rest is not looked at.
// `candidates` has room for 64 numbers and one vector more than that.
template <class T>
inline int find_candidates(const T* x, int64_t d, T top, T cut, T* candidates, uint64_t* words) {
  const Vec<T> tops = splat(top), cuts = splat(cut);
  int64_t i = d > marked_row ? d / 64 * 64 : 0;
  int count = i ? long_candidates<T>(x, d, tops, cuts, candidates, words) : 0;
  words += i / 64;
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
  for (; i + 64 <= d; i += 64)
    count += word_candidates<T>(x + i, 64, tops, cuts, candidates + count, words++);
  if (i < d) count += word_candidates<T>(x + i, d - i, tops, cuts, candidates + count, words);
  return count;
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
REGMAX_INLINE int spread_word(const T* values, uint64_t word, int64_t left, T* y, bool streamed) {
  const int size = static_cast<int>(left < 64 ? left : 64);
  int count = 0;
  for (int c = 0; c < size; c += lanes<T>) {
    const uint32_t chosen = lanes_of<T>(word, c);
    const Vec<T> spread = expand(chosen, load(values + count));
    left - c >= lanes<T> ? put<T>(y + c, spread, streamed)
                         : store_some<T>(y + c, static_cast<int>(left - c), spread);
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

// Up to this length, spreading a word that has no bits costs less than a branch that guesses wrong.
constexpr int64_t dense_row = 512;

// Spreads packed values over a row, which is written past the caches if told (streaming.hpp).
template <class T>
inline void spread_row(const T* values, const uint64_t* words, int64_t d, T* y, bool streamed = false) {
  int64_t i = 0;
  for (; i + 64 <= d; i += 64, ++words) {
    if (d <= dense_row || *words) {
      values += spread_word<T>(values, *words, 64, y + i, streamed);
    } else {
      for (int c = 0; c < 64; c += lanes<T>) put<T>(y + i + c, Vec<T>{}, streamed);
    }
  }
  if (i < d) spread_word<T>(values, *words, d - i, y + i, streamed);
}

}  // namespace regmax::REGMAX_ISA
