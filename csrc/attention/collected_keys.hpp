// The keys of a row whose scores may be above a level, from approximate scores and their errors.
#pragma once

#if defined(__AVX512F__)

#include <cstdint>
#include <limits>

#include "attention/screened_keys.hpp"

namespace regmax::REGMAX_ISA {

// Approximate scores of one row, the maxima by lane of each of its panels, and the errors of the panels, `step` apart.
struct PanelRow {
  static constexpr float relative_slack = 2e-6f;  // of comparisons, relative to the numbers compared

  const float* x;
  int64_t length;
  const float *tops, *errors;
  int64_t step;

  Vec<float> error(int64_t p) const { return splat(errors[p * step]); }

  // What an approximate score in panel p has at least if the score may be at least `level`.
  Vec<float> bound(int64_t p, Vec<float> level) const {
    const Vec<float> least = level - absolute<float>(level) * splat(relative_slack);
    return larger(least - error(p), splat(std::numeric_limits<float>::lowest()));
  }

  // The bits of the scores of panel p that are not below a bound.
  uint64_t hits(int64_t p, Vec<float> bound) const {
    const int64_t first = p * screen_panel, left = length - first;
    uint64_t found = 0;
    for (int64_t i = 0; i < screen_panel; i += lanes<float>)
      found |= static_cast<uint64_t>(_mm512_cmp_ps_mask(load(x + first + i), bound, _CMP_GE_OQ)) << i;
    return left >= screen_panel ? found : found & ((uint64_t{1} << left) - 1);
  }

  // Calls use(p) for the panels with hits, until it returns false; returns whether it never did. Panels are marked
  // first: a branch on every one would often be mispredicted.
  template <class Use>
  bool each_hit_panel(Vec<float> level, const Use& use) const {
    const int64_t panels = panels_of<float>(length);
    for (int64_t begin = 0; begin < panels; begin += 64) {
      const int64_t end = panels - begin < 64 ? panels : begin + 64;
      uint64_t marks = 0;
      for (int64_t p = begin; p < end; ++p) {
        const __mmask16 hit = _mm512_cmp_ps_mask(load(tops + p * lanes<float>), bound(p, level), _CMP_GE_OQ);
        marks |= static_cast<uint64_t>(hit != 0) << (p - begin);
      }
      for (; marks; marks &= marks - 1) {
        if (!use(begin + __builtin_ctzll(marks))) return false;
      }
    }
    return true;
  }
};

// Writes the places of the bits that choose(p) has for the panels whose scores may be at least `level`, by lane;
// returns their number, -1 if they are more than most_rescored.
template <class Choose>
inline int64_t collect_chosen(const PanelRow& row, Vec<float> level, int32_t* places, const Choose& choose) {
  const __m512i counting = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int64_t n = 0;
  const bool done = row.each_hit_panel(level, [&](int64_t p) {
    const uint64_t chosen = choose(p);
    for (int64_t i = 0; i < screen_panel; i += lanes<float>) {
      const __mmask16 some = static_cast<__mmask16>(chosen >> i);
      const __m512i all = _mm512_add_epi32(counting, _mm512_set1_epi32(static_cast<int32_t>(p * screen_panel + i)));
      _mm512_storeu_si512(places + n, _mm512_maskz_compress_epi32(some, all));
      n += __builtin_popcount(some);
    }
    return n <= most_rescored;
  });
  return done ? n : -1;
}

// The places whose score may be at least `level`.
inline int64_t collect(const PanelRow& row, Vec<float> level, int32_t* places) {
  return collect_chosen(row, level, places, [&](int64_t p) { return row.hits(p, row.bound(p, level)); });
}

// Lower bounds of the levels of a tier's PruningCut.
struct PruningLevels {
  float low, high, alone;
};

// The same without places that the cut leaves out: those that are certainly below `high`, unless both neighbours may
// be above `low`; and those certainly below `alone` of which no neighbour is left. As there, what lies beyond the ends
// of a word or of the row counts as high, and here also what lies beyond the ends of a panel
// (docs/derivations/int8.md).
inline int64_t collect_pruned(const PanelRow& row, const PruningLevels& levels, int32_t* places) {
  return collect_chosen(row, splat(levels.low), places, [&](int64_t p) {
    const auto hits = [&](float level) { return row.hits(p, row.bound(p, splat(level))); };
    const uint64_t found = hits(levels.low), strong = hits(levels.high);
    const int64_t first = p * screen_panel, left = row.length - first;
    const uint64_t begins = uint64_t{1} << (-first & 63) | 1;  // of the panel, and of a word in it
    const uint64_t ends = begins >> 1 | uint64_t{1} << ((left < screen_panel ? left : screen_panel) - 1);
    const uint64_t chosen = found & (strong | ((found << 1 | begins) & (found >> 1 | ends)));
    return chosen & (hits(levels.alone) | chosen << 1 | begins | chosen >> 1 | ends);
  });
}

}  // namespace regmax::REGMAX_ISA

#endif
