// The Jacobian product of one row on its own.
#pragma once

#include <cstdint>
#include <limits>

#include "jacobians.hpp"
#include "one_row.hpp"

namespace regmax::REGMAX_ISA {

// One row of a Jacobian product; keep, support and joined may be nullptr.
template <class T>
struct RowIn {
  const T* y;
  const T* v;
  const uint64_t* support;
  const uint64_t* joined;
  const uint8_t* keep;
  int64_t d;
};

template <class T>
bool has_nan(const T* y, int64_t d) {
  bool found = false;
  for (int64_t i = 0; i < d; ++i) found |= y[i] != y[i];
  return found;
}

// The chains of the gathered positions, off the bits, or off equal weights at neighbouring kept positions.
template <class T>
void find_chains(const RowIn<T>& row, const uint64_t* taken, Workspace& w) {
  int64_t before = -1, k = 0;
  for (int64_t word = 0; word < words_of(row.d); ++word) {
    for (uint64_t rest = w.kept[word]; rest; rest &= rest - 1) {
      const int64_t i = word * 64 + __builtin_ctzll(rest);
      const uint64_t bit = rest & -rest;
      if (taken[word] & bit) {
        w.joined[k++] = row.joined ? (row.joined[word] & bit) != 0 : before >= 0 && row.y[before] == row.y[i];
      }
      before = i;
    }
  }
}

template <class T>
void gather_doubles(const T* x, const uint64_t* words, int64_t d, Workspace& w, double* packed) {
  T* const buffer = static_cast<T*>(w.candidates);
  const int64_t m = gather_row(x, words, d, buffer);
  for (int64_t k = 0; k < m; ++k) packed[k] = static_cast<double>(buffer[k]);
}

// J acts on the support, or on every kept position for the proximal operators.
template <class T>
void jacobian_product_row(int32_t kernel, double theta, const RowIn<T>& row, T* out, Workspace& w) {
  if (!row.support) find_nonzero(row.y, row.d, w.words);
  const uint64_t* const support = row.support ? row.support : w.words;
  find_kept(row.keep, row.d, w.kept);
  int64_t m = 0;
  for (int64_t i = 0; i < words_of(row.d); ++i) {
    w.chosen[i] = w.kept[i] & (on_simplex(kernel) ? support[i] : ~uint64_t{0});
    m += __builtin_popcountll(w.chosen[i]);
  }
  // A row of NaN comes without support bits, as a row of zeros does: y tells them apart.
  const RowOut<T> result{out, nullptr, nullptr, row.keep, row.d};
  if (has_nan(row.y, row.d)) return fill_row(result, std::numeric_limits<T>::quiet_NaN());
  if (m == 0) return fill_row(result, T(0));
  gather_doubles(row.v, w.chosen, row.d, w, w.v);
  gather_doubles(row.y, w.chosen, row.d, w, w.x);
  if (has_chains(kernel) && theta != 0) find_chains(row, w.chosen, w);
  T* const values = static_cast<T*>(w.candidates);  // these are y, and become J v
  multiply_row(kernel, values, m, theta, w);
  for (int64_t k = 0; k < m; ++k) values[k] = static_cast<T>(w.v[k]);
  spread_row(values, w.chosen, row.d, out);
}

}  // namespace regmax::REGMAX_ISA
