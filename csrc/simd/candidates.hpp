// Passes over whole rows: the maximum, compacting the candidates near it, and expanding them again.
//
// A row is read in words of 64 numbers, one bit each. Whole words and the remainder share their code, inlined
// twice: once with a constant number of vectors, once with a partial vector at the end.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "runtime/tuning.hpp"
#include "simd/bitset.hpp"
#include "simd/streaming.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// A row's maxima by lane. They ignore NaN: find_candidates catches it. Unless minus_infinity is nullptr, it
// says whether a score is -inf.
template <class T>
REGMAX_INLINE Vec<T> lane_maxima(const T* x, int64_t d, bool* minus_infinity = nullptr) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  Vec<T> top[2] = {splat(-infinity), splat(-infinity)}, low[2] = {splat(infinity), splat(infinity)};
  const auto add = [&](Vec<T> high_v, Vec<T> low_v, int k) __attribute__((always_inline)) {
    top[k] = larger(high_v, top[k]);
    if (minus_infinity) low[k] = smaller(low_v, low[k]);
  };
  int64_t i = 0;
  for (; i + 2 * lanes<T> <= d; i += 2 * lanes<T>) {
    for (int k = 0; k < 2; ++k) add(load(x + i + k * lanes<T>), load(x + i + k * lanes<T>), k);
  }
  for (; i < d; i += lanes<T>) add(load_left(x + i, d - i, -infinity), load_left(x + i, d - i, infinity), 0);
  if (minus_infinity) *minus_infinity = bits(equal(smaller(low[0], low[1]), splat(-infinity))) != 0;
  return larger(top[0], top[1]);
}

// The maxima of `parts` vectors by lane: of the scores that are `parts` vectors apart.
template <int parts, class T>
inline void many_maxima(const T* x, int64_t d, T* maxima) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  Vec<T> top[parts];
  for (int k = 0; k < parts; ++k) top[k] = splat(lowest);
  int64_t i = 0;
  for (; i + parts * lanes<T> <= d; i += parts * lanes<T>) {
    for (int k = 0; k < parts; ++k) top[k] = larger(load(x + i + k * lanes<T>), top[k]);
  }
  for (int k = 0; i < d; i += lanes<T>, ++k) top[k] = larger(load_left(x + i, d - i, lowest), top[k]);
  for (int k = 0; k < parts; ++k) store<T>(maxima + k * lanes<T>, top[k]);
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

// The same for several levels.
template <int n, class T>
inline void count_above(const T* x, int64_t d, T top, const T* levels, int64_t* counts) {
  const Vec<T> tops = splat(top);
  for (int j = 0; j < n; ++j) counts[j] = 0;
  for (int64_t i = 0; i < d; i += lanes<T>) {
    const Vec<T> v = load_left(x + i, d - i, -std::numeric_limits<T>::infinity()) - tops;
    for (int j = 0; j < n; ++j) counts[j] += __builtin_popcount(bits(greater(v, splat(levels[j]))));
  }
}

// Which scores are candidates: those that are not at or below `low`, relative to the row's maximum.
template <class T>
struct Cut {
  Vec<T> low;

  explicit Cut(T level) : low(splat(level)) {}

  static constexpr bool prunes = false;
  REGMAX_INLINE uint32_t strong(Vec<T>) const { return 0; }
  REGMAX_INLINE uint32_t stands_alone(Vec<T>) const { return 0; }
};

// Those above `low` only if they are above `high`, or in a run between such scores or at an end of the row; and of
// these, those without another beside them only if they are above `alone`.
template <class T>
struct PruningCut {
  Vec<T> low, high, alone;

  PruningCut(T low_level, T high_level, T alone_level)
      : low(splat(low_level)), high(splat(high_level)), alone(splat(alone_level)) {}

  static constexpr bool prunes = true;
  REGMAX_INLINE uint32_t strong(Vec<T> relative) const { return bits(not_at_most(relative, high)); }
  REGMAX_INLINE uint32_t stands_alone(Vec<T> relative) const { return bits(not_at_most(relative, alone)); }
};

// The bits of one word; `size` is 64, or the number of scores in the last word.
template <class T, class Cut>
REGMAX_INLINE uint64_t chosen_bits(uint64_t found, uint64_t strong, int size) {
  if (!Cut::prunes) return found;
  const uint64_t after = size < 64 ? ~uint64_t{0} << size : 0;
  return strong | enclosed_runs(strong | after, found & ~strong);
}

// Those of `chosen` that have another beside them or are among those that `stand_alone`. What lies beyond the word's
// ends, or the row's, is not known.
inline uint64_t without_lone_bits(uint64_t chosen, uint64_t stand_alone, int size) {
  const uint64_t ends = 1 | uint64_t{1} << (size - 1);
  return chosen & (stand_alone | chosen << 1 | chosen >> 1 | ends);
}

// One word of find_candidates: of min(left, 64) scores.
template <class T, class Cut>
REGMAX_INLINE int word_candidates(const T* x, int64_t left, Vec<T> top, const Cut& cut, T* candidates, uint64_t* word) {
  constexpr int w = lanes<T>;
  uint64_t found = 0, strong = 0;
  Vec<T> relative[64 / w];
  const int size = static_cast<int>(left < 64 ? left : 64);
  for (int c = 0; c < size; c += w) {
    relative[c / w] = load_left(x + c, left - c, -std::numeric_limits<T>::infinity()) - top;
    found |= static_cast<uint64_t>(bits(not_at_most(relative[c / w], cut.low))) << c;
    strong |= static_cast<uint64_t>(cut.strong(relative[c / w])) << c;
  }
  *word = found = chosen_bits<T, Cut>(found, strong, size);
  int count = 0;
  if (found) {
    if (Cut::prunes) {
      uint64_t alone = 0;
      for (int c = 0; c < size; c += w) alone |= static_cast<uint64_t>(cut.stands_alone(relative[c / w])) << c;
      *word = found = without_lone_bits(found, alone, size);
    }
    for (int c = 0; c < size; c += w) count += append<T>(candidates + count, lanes_of<T>(found, c), relative[c / w]);
  }
  return count;
}

// The bits of the scores that are not at or below the cut, NaN among them, in at most 64 whole words; returns
// a bit for every word that has any.
template <class T, class Cut>
inline uint64_t mark_candidates(const T* x, int64_t words, Vec<T> top, const Cut& cut, uint64_t* found) {
  uint64_t some = 0;
  for (int64_t i = 0; i < words; ++i) {
    uint64_t word = 0, strong = 0;
    for (int c = 0; c < 64; c += lanes<T>) {
      const Vec<T> relative = load(x + 64 * i + c) - top;
      word |= static_cast<uint64_t>(bits(not_at_most(relative, cut.low))) << c;
      strong |= static_cast<uint64_t>(cut.strong(relative)) << c;
    }
    found[i] = word = chosen_bits<T, Cut>(word, strong, 64);
    some |= static_cast<uint64_t>(word != 0) << i;
  }
  return some;
}

// The candidates in the whole words of a long row. Few words have any, and a branch on every word would often
// be mispredicted: all are marked first.
template <class T, class Cut>
inline int64_t long_candidates(const T* x, int64_t d, Vec<T> top, const Cut& cut, int64_t most, T* candidates,
                               uint64_t* words) {
  int64_t count = 0;
  for (int64_t i = 0; i + 64 <= d && count <= most; i += 64 * 64) {
    const int64_t whole = (d - i) / 64 < 64 ? (d - i) / 64 : 64;
    for (uint64_t some = mark_candidates<T>(x + i, whole, top, cut, words + i / 64); some && count <= most;
         some &= some - 1) {
      const int64_t word = i / 64 + __builtin_ctzll(some);
      if (Cut::prunes) {
        uint64_t alone = 0;
        for (int c = 0; c < 64; c += lanes<T>)
          alone |= static_cast<uint64_t>(cut.stands_alone(load(x + 64 * word + c) - top)) << c;
        words[word] = without_lone_bits(words[word], alone, 64);
      }
      for (int c = 0; c < 64; c += lanes<T>) {
        count += append<T>(candidates + count, lanes_of<T>(words[word], c), load(x + 64 * word + c) - top);
      }
    }
  }
  return count;
}

// Compacts x - top of the scores that are not at or below the cut (NaN is neither) to `candidates`, and
// writes their bits to `words`. Returns their count; beyond `most` the search ends early. `candidates` has
// room for min(d, most + 64) numbers and a vector.
template <class T, class Cut>
REGMAX_INLINE int64_t find_candidates(const T* x, int64_t d, T top, const Cut& cut, int64_t most, T* candidates,
                                      uint64_t* words) {
  const Vec<T> tops = splat(top);
  int64_t i = d > marked_row ? d / 64 * 64 : 0;
  int64_t count = i ? long_candidates<T>(x, d, tops, cut, most, candidates, words) : 0;
  words += i / 64;
  for (; i + 64 <= d && count <= most; i += 64)
    count += word_candidates<T>(x + i, 64, tops, cut, candidates + count, words++);
  if (i < d && count <= most) count += word_candidates<T>(x + i, d - i, tops, cut, candidates + count, words);
  return count;
}

// Some scores of a row and their places, in order.
template <class T>
struct ListedScores {
  const int32_t* places;
  const T* scores;
  int64_t count;
};

// Marks the scores of a list that a cut keeps: as chosen_bits and without_lone_bits, but without a branch on each word
// or score, which would often be mispredicted. A score that is not strong is kept if its run begins and ends beside
// strong ones or at the end of a word or of the row.
template <class T>
inline void mark_listed(const ListedScores<T>& listed, int64_t d, T top, const PruningCut<T>& cut, uint8_t* kept) {
  const T low = cut.low[0], high = cut.high[0], alone = cut.alone[0];
  const auto is_strong = [&](int64_t k) { return !(listed.scores[k] - top <= high); };
  bool begun = false, ended = false;
  for (int64_t k = 0, last = -2; k < listed.count; last = listed.places[k++]) {
    const int64_t place = listed.places[k];
    const bool follows = (place % 64 == 0) | (begun & (place == last + 1));
    kept[k] = begun = is_strong(k) | (!(listed.scores[k] - top <= low) & follows);
  }
  for (int64_t k = listed.count - 1, last = -2; k >= 0; last = listed.places[k--]) {
    const int64_t place = listed.places[k];
    const bool precedes = (place % 64 == 63) | (place == d - 1) | (ended & (place == last - 1));
    kept[k] = ended = is_strong(k) | ((kept[k] != 0) & precedes);
  }
  // A score that is dropped had no other beside it, so the order does not matter.
  for (int64_t k = 0; k < listed.count; ++k) {
    const int64_t place = listed.places[k];
    const bool before = (place % 64 == 0) | ((k > 0 && listed.places[k - 1] == place - 1) & (kept[k - (k > 0)] != 0));
    const bool last = k + 1 == listed.count, at_end = (place % 64 == 63) | (place == d - 1);
    const bool after = at_end | ((!last && listed.places[k + 1] == place + 1) & (kept[k + !last] != 0));
    kept[k] &= static_cast<uint8_t>(before | after | !(listed.scores[k] - top <= alone));
  }
}

// The same as find_candidates if the list, of at most most_rescored, has all scores of the row that are not at or below
// the cut; also writes the candidates' places, unless `places` is nullptr.
template <class T, class Cut>
inline int64_t listed_candidates(const ListedScores<T>& listed, int64_t d, T top, const Cut& cut, int64_t most,
                                 T* candidates, int32_t* places, uint64_t* words) {
  uint8_t kept[most_rescored];
  if constexpr (Cut::prunes) mark_listed(listed, d, top, cut, kept);
  std::memset(words, 0, static_cast<std::size_t>((d + 63) / 64) * sizeof(uint64_t));
  const T low = cut.low[0];
  int64_t count = 0;
  for (int64_t k = 0; k < listed.count && count <= most; ++k) {
    const T relative = listed.scores[k] - top;
    const uint64_t is_kept = Cut::prunes ? kept[k] : !(relative <= low);
    words[listed.places[k] / 64] |= is_kept << (listed.places[k] % 64);
    candidates[count] = relative;
    if (places) places[count] = listed.places[k];
    count += static_cast<int64_t>(is_kept);
  }
  return count;
}

// Compacts the numbers at the bits of one word, of the `left` numbers at p; returns their count.
template <class T>
REGMAX_INLINE int compact_word(const T* p, int64_t left, uint64_t word, T* compacted) {
  const int size = static_cast<int>(left < 64 ? left : 64);
  int count = 0;
  for (int c = 0; c < size; c += lanes<T>) {
    count += append<T>(compacted + count, lanes_of<T>(word, c), load_left(p + c, left - c, T(0)));
  }
  return count;
}

// Expands values to the bits of one word, zeros elsewhere; returns how many it took.
template <class T>
REGMAX_INLINE int expand_word(const T* values, uint64_t word, int64_t left, T* y, bool streamed) {
  const int size = static_cast<int>(left < 64 ? left : 64);
  int count = 0;
  for (int c = 0; c < size; c += lanes<T>) {
    const uint32_t chosen = lanes_of<T>(word, c);
    const Vec<T> expanded = expand(chosen, load(values + count));
    left - c >= lanes<T> ? put<T>(y + c, expanded, streamed)
                         : store_some<T>(y + c, static_cast<int>(left - c), expanded);
    count += __builtin_popcount(chosen);
  }
  return count;
}

// Compacts the numbers at the bits of a row; `compacted` has room for a vector more. Returns their count.
template <class T>
inline int64_t compact_row(const T* x, const uint64_t* words, int64_t d, T* compacted) {
  int64_t count = 0;
  for (int64_t i = 0; i < d; i += 64, ++words) {
    if (*words) count += compact_word<T>(x + i, d - i, *words, compacted + count);
  }
  return count;
}

// The same for rows with few bits. Without AVX-512, compacting a vector takes longer than gathering one number.
template <class T>
inline void gather_few(const T* x, const uint64_t* words, int64_t d, T* few) {
#if defined(__AVX512F__)
  if (d <= compacted_row) {  // no branch on each word
    for (int64_t i = 0; i < d; i += lanes<T>) {
      const uint32_t chosen = lanes_of<T>(words[i / 64], static_cast<int>(i % 64));
      few += append<T>(few, chosen, load_left(x + i, d - i, T(0)));
    }
    return;
  }
#endif
  for (int64_t i = 0; i < d; i += 64, ++words) {
    for (uint64_t rest = *words; rest; rest &= rest - 1) *few++ = x[i + __builtin_ctzll(rest)];
  }
}

// Expands values to the bits of a row.
template <class T>
inline void expand_row(const T* values, const uint64_t* words, int64_t d, T* y, bool streamed = false) {
  int64_t i = 0;
  for (; i + 64 <= d; i += 64, ++words) {
    if (d <= expanded_row || *words) {
      values += expand_word<T>(values, *words, 64, y + i, streamed);
    } else {
      for (int c = 0; c < 64; c += lanes<T>) put<T>(y + i + c, Vec<T>{}, streamed);
    }
  }
  if (i < d) expand_word<T>(values, *words, d - i, y + i, streamed);
}

}  // namespace regmax::REGMAX_ISA
