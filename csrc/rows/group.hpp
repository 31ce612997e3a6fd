// A group of rows, one for each lane of a vector, on its way through the tiers.
//
// A tier maps some rows of a group and writes them to an output, DenseRows (dense_rows.hpp) or CsrRows
// (csr_rows.hpp); it returns the bits of the rows that it leaves to the next tier. An output has
//
//   write_candidates(r, values, words, count, joined)   lane tier: few weights, at the bits of `words`;
//   joined()
//                                                       gives a bit per candidate
//   write_listed(r, values, places, count, joined)      the same at `places`; only if rows are bounded
//   begin_whole(r), put(...), end_whole(...)            whole-row tier: a vector of weights at a time
//   write_segments(r, segments)                         whole-row tier: constant stretches
//   scalar_row(r), write_chosen(...), fill(...)         scalar tier: its input, and what it writes
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/calls.hpp"
#include "simd/candidates.hpp"
#include "simd/transpose.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

struct Mask {
  const uint8_t* bytes;  // nullptr keeps everything
  int64_t rows, repeat;
};

struct Strength {
  double shared;
  const double* per_row;  // nullptr: `shared` serves all

  double of(int64_t i) const { return per_row ? per_row[i] : shared; }
};

// A call on rows (regmax.h) with typed arrays.
template <class T>
struct Rows {
  int32_t kernel, threads;
  const T *x, *v;
  T *y, *out;
  uint64_t *support, *joined, *kept;
  int64_t n, d;
  Mask mask;
  Strength theta, gamma;
  double *value, *theta_grad, *gamma_grad;
  bool read_again;  // y is read soon: it is not streamed
  T* listed;        // the weights of rows that have at most REGMAX_LISTED
  // Rows in half precision (half_rows.hpp).
  bool in_cache = false;             // blocks of rows are converted in scratch memory: nothing is streamed
  const uint16_t* halves = nullptr;  // y of a Jacobian product if `y` is nullptr: it tells which rows are NaN
  uint16_t infinity = 0;             // of that type

  bool has_gamma() const { return gamma.per_row || gamma.shared != 1; }
  // Whether numbers of each row are wanted, which are computed from the row's result.
  bool has_row_numbers() const { return value || theta_grad || gamma_grad; }
  bool may_stream() const { return !in_cache && !read_again && !has_row_numbers(); }

  // Whether a weight of row i is NaN.
  bool is_nan(int64_t i) const {
    if (y) return std::any_of(y + i * d, y + (i + 1) * d, [](T weight) { return weight != weight; });
    const auto is_nan_half = [&](uint16_t weight) { return (weight & 0x7fff) > infinity; };
    return std::any_of(halves + i * d, halves + (i + 1) * d, is_nan_half);
  }
};

// An array that begins at row `begin` of `rows`, as the array of all rows.
template <class T>
inline T* from_row(T* rows, int64_t begin, int64_t d) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(rows) - static_cast<uintptr_t>(begin * d) * sizeof(T));
}

template <class T>
inline Rows<T> typed_rows(const regmax_rows& r) {
  return {r.kernel,
          r.threads,
          static_cast<const T*>(r.x),
          static_cast<const T*>(r.v),
          static_cast<T*>(r.y),
          static_cast<T*>(r.out),
          r.support,
          r.joined,
          r.kept,
          r.n,
          r.d,
          {r.mask, r.mask_rows, r.mask_repeat},
          {r.theta, r.thetas},
          {r.gamma, r.gammas},
          r.value,
          r.theta_grad,
          r.gamma_grad,
          r.read_again != 0,
          static_cast<T*>(r.listed)};
}

// Rows of scores that are known by bounds: those that may be above a level are computed when a tier asks for them.
template <class T>
class BoundedScores {
 public:
  // All scores of row r above `level`, and perhaps some more; false if there are too many to be worth it.
  virtual bool find_above(int r, T level, ListedScores<T>* listed) = 0;

 protected:
  ~BoundedScores() = default;
};

template <class T>
struct RowGroup {
  const T* x[lanes<T>];                          // scores without deleted ones
  int64_t length[lanes<T>] = {};                 // how many; 0 if there is no such row
  T theta[lanes<T>], theta_rest[lanes<T>] = {};  // a strength, and what rounding took from it
  int64_t d;                                     // no row is longer
  const T* maxima = nullptr;                     // nullptr, or lanes<T> numbers per row: its maxima by lane
  BoundedScores<T>* bounded = nullptr;           // not nullptr: x has scores up to `errors`, and this has exact ones
  T errors[lanes<T>] = {};
  uint32_t finite = 0;                 // with maxima: the bits of the rows that are known to have no score of -inf
  bool scaled = false;                 // whether gamma is not 1; the tiers divide the scores as they read them
  T gamma[lanes<T>], scale[lanes<T>];  // gamma and 1 / gamma of each row, if scaled

  // In this range neither gamma nor 1 / gamma times a cut overflows or underflows.
  static bool fits(double value) { return value >= 1e-30 && value <= 1e30; }

  void set_theta(int r, double value) {
    theta[r] = static_cast<T>(value);
    theta_rest[r] = static_cast<T>(value - static_cast<double>(theta[r]));
  }
  void set_gamma(int r, double value) {
    gamma[r] = static_cast<T>(value);
    scale[r] = static_cast<T>(1 / value);
  }
};

// Transposes the rows' maxima by lane to one row per lane, relative to each row's largest, which is returned, and
// divided by gamma.
template <class T>
REGMAX_INLINE Vec<T> relative_maxima(const RowGroup<T>& rows, const T* maxima, Vec<T>* x) {
  rows_to_lanes<T>(maxima, lanes<T>, lanes<T>, x);
  Vec<T> top = x[0];
  for (int k = 1; k < lanes<T>; ++k) top = larger(x[k], top);
  for (int k = 0; k < lanes<T>; ++k) x[k] -= top;
  for (int k = 0; rows.scaled && k < lanes<T>; ++k) x[k] *= load(rows.scale);
  return top;
}

// The candidates of row r of a group (find_candidates); more than `most` if they are too many to be found. If the rows
// are bounded, `places` gets their places, unless it is nullptr.
template <class T, class Cut>
REGMAX_INLINE int64_t find_row_candidates(const RowGroup<T>& rows, int r, T top, const Cut& cut, int64_t most,
                                          T* candidates, uint64_t* words, int32_t* places = nullptr) {
  if (!rows.bounded) return find_candidates(rows.x[r], rows.length[r], top, cut, most, candidates, words);
  // A score at or below this level is at or below the cut, however the difference from the top is rounded.
  const T low = cut.low[0], size = (top < 0 ? -top : top) + (low < 0 ? -low : low);
  ListedScores<T> listed;
  if (!rows.bounded->find_above(r, top + low - 8 * rounding<T> * size, &listed)) return most + 1;
  return listed_candidates(listed, rows.length[r], top, cut, most, candidates, places, words);
}

// One row as the scalar tier reads it.
template <class T>
struct SourceRow {
  const T* x;
  const uint8_t* keep;  // mask bytes, or nullptr
  int64_t d;
  double theta, gamma;
};

// A group of rows of a Jacobian product. Rows are d apart in y, v and out, and `words` apart in support and
// joined, which may be nullptr.
template <class T>
struct ProductGroup {
  const T* y;
  const T* v;
  T* out;
  const uint64_t* support;
  const uint64_t* joined;
  int64_t d, words;
  bool streamed;      // whether `out` is written with non-temporal stores
  const T* scale;     // 1 / gamma of every row
  const T* less_one;  // the strength of every row less one, which has more digits if the strength is near one
};

}  // namespace regmax::REGMAX_ISA
