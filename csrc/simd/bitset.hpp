// Rows of bits: a word for every 64 positions of a row, bit i % 64 of word i / 64.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

inline int64_t words_of(int64_t d) { return (d + 63) / 64; }

inline void clear_bits(uint64_t* words, int64_t d) {
  for (int64_t i = 0; i < words_of(d); ++i) words[i] = 0;
}

inline int64_t count_bits(const uint64_t* words, int64_t d) {
  int64_t count = 0;
  for (int64_t i = 0; i < words_of(d); ++i) count += __builtin_popcountll(words[i]);
  return count;
}

inline void set_all(uint64_t* words, int64_t d) {
  for (int64_t i = 0; i < words_of(d); ++i) words[i] = ~uint64_t{0};
  if (d % 64) words[d / 64] = ~uint64_t{0} >> (64 - d % 64);
}

// Sets the bits from begin to end, begin < end.
inline void set_bits(uint64_t* words, int64_t begin, int64_t end) {
  const uint64_t from = ~uint64_t{0} << (begin % 64), to = ~uint64_t{0} >> (63 - (end - 1) % 64);
  const int64_t first = begin / 64, last = (end - 1) / 64;
  if (first == last) {
    words[first] |= from & to;
    return;
  }
  words[first] |= from;
  for (int64_t i = first + 1; i < last; ++i) words[i] = ~uint64_t{0};
  words[last] |= to;
}

template <class T>
REGMAX_INLINE uint32_t lanes_of(uint64_t word, int first) {
  return static_cast<uint32_t>(word >> first) & all_lanes<T>;
}

// A word per 64 numbers of a row: the bits that `test` gives for each vector. The row is zero-padded.
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
inline void nonzero_bits(const T* y, int64_t d, uint64_t* words) {
  make_words(y, d, words, [](Vec<T> v) { return Where<T>(~equal(v, Vec<T>{})); });
}

template <class T>
inline void positive_bits(const T* y, int64_t d, uint64_t* words) {
  make_words(y, d, words, [](Vec<T> v) { return greater(v, Vec<T>{}); });
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

// The bits of a row of mask bytes; nullptr keeps all.
inline void mask_bits(const uint8_t* keep, int64_t d, uint64_t* words) {
  if (!keep) return set_all(words, d);
  for (int64_t i = 0; i < d; i += 64) *words++ = mask_word(keep + i, d - i);
}

// The length of the prefix that a mask row keeps; -1 if it is not a prefix.
inline int64_t prefix_length(const uint8_t* keep, int64_t d) {
  int64_t length = 0;
  for (int64_t i = 0; i < d; i += 64) {
    const uint64_t word = mask_word(keep + i, d - i);
    if (word & (word + 1)) return -1;   // not ones, then zeros
    if (word && length < i) return -1;  // ones after zeros
    length += __builtin_popcountll(word);
  }
  return length;
}

// Expands the bits of a compacted row to the kept positions of the whole row. `words` may be `kept` itself.
inline void expand_row_bits(const uint64_t* compacted, const uint64_t* kept, int64_t d, uint64_t* words) {
  int64_t from = 0;
  for (int64_t i = 0; i < words_of(d); ++i) {
    const int count = __builtin_popcountll(kept[i]);
    uint64_t bits = 0;
    if (count) {
      bits = compacted[from / 64] >> (from % 64);
      if (from % 64 + count > 64) bits |= compacted[from / 64 + 1] << (64 - from % 64);
    }
    words[i] = expand_bits(bits, kept[i]);
    from += count;
  }
}

// The runs of `weak` bits between two `strong` ones. The word's ends count as strong: what lies beyond is not
// known.
inline uint64_t enclosed_runs(uint64_t strong, uint64_t weak) {
  const uint64_t firsts = weak & ~(weak << 1), afters = (weak + firsts) & ~weak;
  const uint64_t follows = compact_bits(strong << 1 | 1, firsts);
  const int ended = __builtin_popcountll(afters);  // all runs but one that reaches the word's end
  const uint64_t precedes = compact_bits(strong, afters) | (ended < 64 ? ~uint64_t{0} << ended : 0);
  const uint64_t enclosed = follows & precedes;
  return expand_bits(enclosed, afters) - expand_bits(enclosed, firsts);
}

// One bit per candidate: it follows the previous candidate without a gap; it has a lower neighbour on the
// left or on the right.
struct Adjacency {
  uint64_t adjacent, left_edge, right_edge;
};

inline Adjacency find_adjacency(const uint64_t* words, int64_t d, int count) {
  uint64_t adjacent = 0, carry = 0;
  int done = 0;
  for (int64_t i = 0; i < words_of(d); ++i) {
    const uint64_t word = words[i];
    adjacent |= compact_bits(word & (word << 1 | carry), word) << done;
    done += __builtin_popcountll(word);
    carry = word >> 63;
  }
  const uint64_t at_begin = words[0] & 1, at_end = words[(d - 1) / 64] >> ((d - 1) % 64) & 1;
  return {adjacent, ~adjacent & ~at_begin, ~(adjacent >> 1) & ~(at_end << (count - 1))};
}

}  // namespace regmax::REGMAX_ISA
