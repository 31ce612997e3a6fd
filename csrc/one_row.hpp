// One row on its own: what is deleted is taken out, the rest mapped, and the result put back in its places.
#pragma once

#include <cstdint>
#include <limits>

#include "mappings.hpp"
#include "screening.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

// One row's ends in the caller's arrays; keep, support and joined may be nullptr.
template <class T>
struct RowOut {
  T* y;
  uint64_t* support;
  uint64_t* joined;
  const uint8_t* keep;
  int64_t d;
};

inline void clear_bits(uint64_t* words, int64_t d) {
  for (int64_t i = 0; words && i < words_of(d); ++i) words[i] = 0;
}

// Fills the row with `value` at kept positions, zero elsewhere; no bits. With NaN, that is a row that has no
// result.
template <class T>
void fill_row(const RowOut<T>& row, T value) {
  for (int64_t i = 0; i < row.d; ++i) row.y[i] = row.keep && !row.keep[i] ? T(0) : value;
  clear_bits(row.support, row.d);
  clear_bits(row.joined, row.d);
}

// The bits of the scores that the mask keeps and that are not -inf, in w.kept; false where one is NaN or
// +inf.
template <class T>
bool find_scores(const T* x, const uint8_t* keep, int64_t d, Workspace& w, int64_t* count) {
  const Vec<T> lowest = splat(-std::numeric_limits<T>::infinity()),
               highest = splat(std::numeric_limits<T>::max());
  uint64_t* const unusable = w.chosen;
  make_words(x, d, unusable, [&](Vec<T> v) { return not_at_most(v, highest); });
  make_words(x, d, w.words, [&](Vec<T> v) { return not_at_most(v, lowest); });
  find_kept(keep, d, w.kept);
  uint64_t bad = 0;
  *count = 0;
  for (int64_t i = 0; i < words_of(d); ++i) {
    bad |= unusable[i] & w.kept[i];
    w.kept[i] &= w.words[i];
    *count += __builtin_popcountll(w.kept[i]);
  }
  return bad == 0;
}

// oscarmax's groups can be anywhere: whether a weight is another's too is left to who reads it. In a chain, a
// position is joined if it has the same value as the kept one before: whoever has the weights alone finds
// the same groups. Zeros are no group on the simplex.
template <class T>
void write_joined(int32_t kernel, const RowOut<T>& row, const uint64_t* kept, bool complete) {
  if (!has_chains(kernel)) return find_nonzero(row.y, row.d, row.joined);
  const bool zeros = !on_simplex(kernel);
  if (complete) return find_repeated(row.y, row.d, zeros, row.joined);
  int64_t before = -1;
  for (int64_t word = 0; word < words_of(row.d); ++word) {
    row.joined[word] = 0;
    for (uint64_t rest = kept[word]; rest; rest &= rest - 1) {
      const int64_t i = word * 64 + __builtin_ctzll(rest);
      const bool same = before >= 0 && row.y[i] == row.y[before] && (zeros || row.y[i] != 0);
      row.joined[word] |= static_cast<uint64_t>(same) << (i % 64);
      before = i;
    }
  }
}

// Writes the weights w.y at the bits of w.chosen, which count the kept scores only.
template <class T>
void write_row(int32_t kernel, int64_t kept, int64_t chosen, Workspace& w, const RowOut<T>& row) {
  T* const values = static_cast<T*>(w.candidates);
  for (int64_t k = 0; k < chosen; ++k) values[k] = static_cast<T>(w.y[k]);
  uint64_t* words = w.chosen;
  if (kept < row.d) {
    words = w.words;
    spread_row_bits(w.chosen, w.kept, row.d, words);
  }
  spread_row(values, words, row.d, row.y);
  if (row.support) find_nonzero(row.y, row.d, row.support);
  if (row.joined) write_joined(kernel, row, w.kept, kept == row.d);
}

template <class T>
void argmax_row(int32_t kernel, const T* x, double theta, Workspace& w, const RowOut<T>& row) {
  int64_t kept = 0;
  if (!find_scores(x, row.keep, row.d, w, &kept)) return fill_row(row, std::numeric_limits<T>::quiet_NaN());
  if (kept == 0) return fill_row(row, T(0));
  if (kept < row.d) {
    gather_row(x, w.kept, row.d, static_cast<T*>(w.packed));
    x = static_cast<const T*>(w.packed);
  }
  const int64_t chosen = map_row(kernel, x, kept, theta, w);
  write_row(kernel, kept, chosen, w, row);
}

struct GivenWeights {
  const double* weights;

  double operator()(int64_t k) const { return weights[k]; }
};

// Nothing is deleted here: a row that is not finite has no result.
template <class T>
void prox_owl_row(const T* x, const double* weights, Workspace& w, const RowOut<T>& row) {
  int64_t kept = 0;
  if (!find_scores(x, nullptr, row.d, w, &kept) || kept < row.d) {
    return fill_row(row, std::numeric_limits<T>::quiet_NaN());
  }
  for (int64_t i = 0; i < row.d; ++i) w.x[i] = static_cast<double>(x[i]);
  prox_owl(w.x, row.d, GivenWeights{weights}, IsotonicSpace(w.pooling, row.d), w.y);
  for (int64_t i = 0; i < row.d; ++i) row.y[i] = static_cast<T>(w.y[i]);
}

}  // namespace regmax::REGMAX_ISA
