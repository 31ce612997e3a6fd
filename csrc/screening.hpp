// The passes over whole rows, in SIMD: the maximum, the few candidates near it, and the way back.
#pragma once

#include <cstdint>
#include <limits>

#include "lane_mappings.hpp"
#include "simd.hpp"

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
  for (; i < d; i += w) {
    a = larger(d - i < w ? load_some(x + i, static_cast<int>(d - i), lowest) : load(x + i), a);
  }
  return larger(a, b);
}

template <class T>
inline bool has_minus_infinity(const T* x, int64_t d) {
  constexpr int w = lanes<T>;
  const Vec<T> bound = splat(std::numeric_limits<T>::lowest());
  uint32_t found = 0;
  for (int64_t i = 0; i < d; i += w) {
    found |= bits(greater(bound, d - i < w ? load_some(x + i, static_cast<int>(d - i), T(0)) : load(x + i)));
  }
  return found != 0;
}

// Writes x - top for every score not at or below the cut (NaN is neither) to `candidates`, and their bits to `words`.
// Returns how many there are; where it is more than max_candidates, the rest is not looked at.
// `candidates` has room for 64 numbers and one vector more than that.
template <class T>
inline int find_candidates(const T* x, int64_t d, T top, T cut, T* candidates, uint64_t* words) {
  constexpr int w = lanes<T>;
  constexpr int per_word = 64 / w;
  const Vec<T> tops = splat(top), cuts = splat(cut);
  int count = 0;
  for (int64_t i = 0; i < d; i += 64, ++words) {
    uint64_t word = 0;
    Vec<T> relative[per_word] = {};
    for (int c = 0; c < per_word; ++c) {
      const int64_t left = d - i - c * w;
      if (left <= 0) break;
      const T* p = x + i + c * w;
      relative[c] =
          (left < w ? load_some(p, static_cast<int>(left), -std::numeric_limits<T>::infinity()) : load(p)) - tops;
      word |= static_cast<uint64_t>(bits(not_at_most(relative[c], cuts))) << (c * w);
    }
    *words = word;
    if (!word) continue;
    for (int c = 0; c < per_word && word >> (c * w); ++c) {
      const uint32_t chosen = static_cast<uint32_t>(word >> (c * w)) & all_lanes<T>;
      store<T>(candidates + count, compress(chosen, relative[c]));
      count += __builtin_popcount(chosen);
    }
    if (count > max_candidates) break;
  }
  return count;
}

// The bits of the positive numbers of a row.
template <class T>
inline void find_support(const T* y, int64_t d, uint64_t* words) {
  constexpr int w = lanes<T>;
  for (int64_t i = 0; i < d; i += 64, ++words) {
    uint64_t word = 0;
    for (int c = 0; c < 64 && i + c < d; c += w) {
      const int64_t left = d - i - c;
      const Vec<T> v = left < w ? load_some(y + i + c, static_cast<int>(left), T(0)) : load(y + i + c);
      word |= static_cast<uint64_t>(bits(greater(v, Vec<T>{}))) << c;
    }
    *words = word;
  }
}

// Packs the numbers at the bits of one word, of `left` numbers that follow p, to `packed`; returns how many.
template <class T>
inline int gather_word(const T* p, int64_t left, uint64_t word, T* packed) {
  constexpr int w = lanes<T>;
  int count = 0;
  for (int c = 0; c < 64 && word >> c; c += w) {
    const Vec<T> v = left - c < w ? load_some(p + c, static_cast<int>(left - c), T(0)) : load(p + c);
    const uint32_t chosen = static_cast<uint32_t>(word >> c) & all_lanes<T>;
    store<T>(packed + count, compress(chosen, v));
    count += __builtin_popcount(chosen);
  }
  return count;
}

// The inverse of find_candidates: spreads the values of the candidates over the row, zeros elsewhere.
template <class T>
inline void spread_candidates(const T* values, const uint64_t* words, int64_t d, T* y) {
  constexpr int w = lanes<T>;
  for (int64_t i = 0; i < d; i += 64, ++words) {
    const uint64_t word = *words;
    for (int c = 0; c < 64; c += w) {
      const int64_t left = d - i - c;
      if (left <= 0) break;
      const uint32_t chosen = static_cast<uint32_t>(word >> c) & all_lanes<T>;
      const Vec<T> v = expand(chosen, load(values));
      values += __builtin_popcount(chosen);
      if (left < w) {
        store_some<T>(y + i + c, static_cast<int>(left), v);
      } else {
        store<T>(y + i + c, v);
      }
    }
  }
}

// One bit per candidate: which follow the candidate before without a gap, and which have a lower neighbour.
struct Runs {
  uint64_t adjacent, left_edge, right_edge;
};

inline Runs find_runs(const uint64_t* words, int64_t d, int count) {
  uint64_t adjacent = 0, carry = 0;
  int done = 0;
  for (int64_t i = 0; i < d; i += 64, ++words) {
    const uint64_t word = *words;
    if (word) adjacent |= pack_bits(word & (word << 1 | carry), word) << done;
    done += __builtin_popcountll(word);
    carry = word >> 63;
  }
  words -= (d + 63) / 64;
  const bool at_begin = words[0] & 1, at_end = words[(d - 1) / 64] >> ((d - 1) % 64) & 1;
  const uint64_t left_edge = ~adjacent & ~static_cast<uint64_t>(at_begin);
  const uint64_t right_edge = ~(adjacent >> 1) & ~(static_cast<uint64_t>(at_end) << (count - 1));
  return {adjacent, left_edge, right_edge};
}

}  // namespace regmax::REGMAX_ISA
