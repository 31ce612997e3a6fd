// gamma != 1: scores divided before a mapping, products after. Built once, for the baseline instruction set.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "calls.hpp"
#include "threads.hpp"

namespace regmax {

// 1 / gamma in the type of the scores; finite, so that 0 / gamma is 0.
template <class T>
T reciprocal(double gamma) {
  constexpr double most = std::numeric_limits<T>::max();
  return static_cast<T>(1 / gamma < most ? 1 / gamma : most);
}

// The largest kept score, -inf if none is kept. NaN is skipped.
template <class T>
T largest_kept(const T* x, const uint8_t* mask, int64_t d) {
  constexpr int64_t kLanes = 16;  // independent maxima: compilers vectorise them without -ffast-math
  constexpr T nothing = -std::numeric_limits<T>::infinity();
  T top[kLanes], scores[kLanes];
  for (T& lane : top) lane = nothing;
  for (int64_t i = 0; i < d; i += kLanes) {
    const int64_t count = d - i < kLanes ? d - i : kLanes;
    for (int64_t lane = 0; lane < kLanes; ++lane) scores[lane] = lane < count ? x[i + lane] : nothing;
    // A select, not a branch: masks are hard to predict.
    for (int64_t lane = 0; mask && lane < count; ++lane)
      scores[lane] = mask[i + lane] ? scores[lane] : nothing;
    for (int64_t lane = 0; lane < kLanes; ++lane)
      top[lane] = scores[lane] > top[lane] ? scores[lane] : top[lane];
  }
  T result = nothing;
  for (const T lane : top) result = lane > result ? lane : result;
  return result;
}

// out = (x - origin) / gamma. Finite scores stay finite: -inf would mean deletion.
template <class T>
void divide_row(const T* x, int64_t d, T origin, T scale, T* out) {
  constexpr T most = std::numeric_limits<T>::max(), infinity = std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < d; ++i) {
    T z = (x[i] - origin) * scale;
    z = z < -most ? -most : z;
    z = z > most ? most : z;
    out[i] = std::abs(x[i]) < infinity ? z : x[i];
  }
}

// Calls row(i) for every row, in blocks on at most `threads` threads.
template <class Row>
void for_each_row(int64_t n, int64_t d, int32_t threads, Row row) {
  const int64_t block = d < (1 << 14) ? (1 << 14) / d : 1;
  struct Context {
    Row& row;
    int64_t n, block;
  } context{row, n, block};
  run_jobs((n + block - 1) / block, threads,
           [](void* memory, int64_t job) {
             const Context& c = *static_cast<Context*>(memory);
             const int64_t end = (job + 1) * c.block < c.n ? (job + 1) * c.block : c.n;
             for (int64_t i = job * c.block; i < end; ++i) c.row(i);
           },
           &context);
}

inline bool has_gamma(const regmax_rows& rows) { return rows.gammas || rows.gamma != 1; }

template <class T>
T scale_of(const regmax_rows& rows, int64_t i) {
  return reciprocal<T>(rows.gammas ? rows.gammas[i] : rows.gamma);
}

// Every row of x over gamma. Mappings onto the simplex do not change if a constant is added to a row, so
// theirs are divided relative to the largest kept score; a proximal operator's are not.
template <class T>
void divide_scores(const regmax_rows& rows, T* out) {
  const bool shifted = rows.kernel != REGMAX_PROX_TV1D && rows.kernel != REGMAX_PROX_OSCAR;
  for_each_row(rows.n, rows.d, rows.threads, [&](int64_t i) {
    const T* x = static_cast<const T*>(rows.x) + i * rows.d;
    const int64_t mask_row = rows.mask ? (i / rows.mask_repeat) % rows.mask_rows : 0;
    const uint8_t* mask = rows.mask ? rows.mask + mask_row * rows.d : nullptr;
    const T top = shifted ? largest_kept(x, mask, rows.d) : 0;
    const T origin = std::abs(top) < std::numeric_limits<T>::infinity() ? top : 0;
    divide_row(x, rows.d, origin, scale_of<T>(rows, i), out + i * rows.d);
  });
}

// J v / gamma from J v, in place.
template <class T>
void divide_products(const regmax_rows& rows) {
  for_each_row(rows.n, rows.d, rows.threads, [&](int64_t i) {
    T* out = static_cast<T*>(rows.out) + i * rows.d;
    const T scale = scale_of<T>(rows, i);
    for (int64_t j = 0; j < rows.d; ++j) out[j] *= scale;
  });
}

}  // namespace regmax
