// The scalar tier: one row of any kind, in double. Deleted scores are compacted away, the rest is mapped, and
// the output expands the result.
#pragma once

#include <cstdint>
#include <limits>

#include "mappings/tiers.hpp"
#include "rows/masks.hpp"

namespace regmax::REGMAX_ISA {

// The bits of the scores that the mask keeps and that are not -inf, in w.kept; returns false if one of them
// is NaN or +inf.
template <class T>
inline bool find_scores(const SourceRow<T>& row, Workspace& w, int64_t* count) {
  const Vec<T> lowest = splat(-std::numeric_limits<T>::infinity());
  const Vec<T> highest = splat(std::numeric_limits<T>::max());
  uint64_t *const unusable = w.chosen, *const finite = w.words;
  make_words(row.x, row.d, unusable, [&](Vec<T> v) { return not_at_most(v, highest); });
  make_words(row.x, row.d, finite, [&](Vec<T> v) { return not_at_most(v, lowest); });
  mask_bits(row.keep, row.d, w.kept);
  uint64_t bad = 0;
  *count = 0;
  for (int64_t i = 0; i < words_of(row.d); ++i) {
    bad |= unusable[i] & w.kept[i];
    w.kept[i] &= finite[i];
    *count += __builtin_popcountll(w.kept[i]);
  }
  return bad == 0;
}

// Writes the weights of a mapped row, of which w.kept are the bits of the scores.
template <class T, class Mapping, class Out>
bool write_scalar_row(int r, const ScalarRow<T>& scores, int64_t d, Workspace& w, Out& out) {
  T* const values = static_cast<T*>(w.candidates);
  for (int64_t k = 0; k < scores.count; ++k) values[k] = static_cast<T>(w.y[k]);
  uint64_t* words = w.chosen;
  if (scores.m < d) {
    words = w.words;
    expand_row_bits(w.chosen, w.kept, d, words);
  }
  out.template write_chosen<Mapping>(r, values, words, w.kept, scores.is_uniform && scores.m == d);
  return scores.is_uniform;
}

// Maps row r of an output. A row with NaN or +inf among its kept scores is NaN; one without kept scores is
// zero.
template <class T, class Mapping, class Out>
bool map_scalar_row(int r, Workspace& w, Out& out) {
  const SourceRow<T> row = out.scalar_row(r);
  int64_t kept = 0;
  const bool defined = find_scores(row, w, &kept);
  if (!defined || kept == 0) {
    out.fill(r, defined ? T(0) : std::numeric_limits<T>::quiet_NaN());
    return true;
  }
  const T* x = row.x;
  if (kept < row.d) {
    compact_row(x, w.kept, row.d, static_cast<T*>(w.compacted));
    x = static_cast<const T*>(w.compacted);
  }
  ScalarRow<T> scores(x, kept, row.gamma, w);
  Mapping::map(scores, row.theta);
  return write_scalar_row<T, Mapping>(r, scores, row.d, w, out);
}

// The same for a row of `length` finite scores x of which the candidates are known.
template <class T, class Mapping, class Out>
void map_known_row(int r, const T* x, int64_t length, const uint64_t* candidates, Workspace& w, Out& out) {
  const SourceRow<T> row = out.scalar_row(r);
  clear_bits(w.kept, row.d);
  set_bits(w.kept, 0, length);
  ScalarRow<T> scores(x, length, row.gamma, w);
  scores.choose_words(candidates);
  Mapping::map_known(scores, row.theta);
  write_scalar_row<T, Mapping>(r, scores, row.d, w, out);
}

}  // namespace regmax::REGMAX_ISA
