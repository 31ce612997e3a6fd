// Horizontal sums, and sums of arrays in double.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/transpose.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

// Lane i takes lane i + by, cyclically.
template <int by>
struct Rotated {
  static constexpr int from(int i) { return (i + by) % lanes<double>; }
};

template <int by>
REGMAX_INLINE Vec<double> rotated(Vec<double> v) {
  return shuffle<Rotated<by>>(v, v, std::make_index_sequence<lanes<double>>());
}

inline double sum_lanes(Vec<double> v) {
  if constexpr (lanes<double> > 4) v += rotated<4>(v);
  if constexpr (lanes<double> > 2) v += rotated<2>(v);
  return (v + rotated<1>(v))[0];
}

typedef float HalfVector __attribute__((vector_size(vector_bytes / 2)));

// The two halves of a vector, in double, and the inverse.
#if defined(__AVX512F__)  // the compiler's own code goes through memory
inline void widen(Vec<float> v, Vec<double>* wide) {
  wide[0] = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
  wide[1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
}

inline Vec<float> narrow(const Vec<double>* wide) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(wide[0])), _mm512_cvtpd_ps(wide[1]), 1);
}
#else
inline void widen(Vec<float> v, Vec<double>* wide) {
  HalfVector halves[2];
  std::memcpy(halves, &v, sizeof v);
  for (int h = 0; h < 2; ++h) wide[h] = __builtin_convertvector(halves[h], Vec<double>);
}

inline Vec<float> narrow(const Vec<double>* wide) {
  const HalfVector halves[2] = {__builtin_convertvector(wide[0], HalfVector),
                                __builtin_convertvector(wide[1], HalfVector)};
  Vec<float> v;
  std::memcpy(&v, halves, sizeof v);
  return v;
}
#endif

// The sum of the two halves of a vector, in double; vectors of double stay as they are.
REGMAX_INLINE Vec<double> add_halves(Vec<float> v) {
  Vec<double> wide[2];
  widen(v, wide);
  return wide[0] + wide[1];
}
REGMAX_INLINE Vec<double> add_halves(Vec<double> v) { return v; }

inline double sum_lanes(Vec<float> v) { return sum_lanes(add_halves(v)); }

template <class T>
inline T max_lanes(Vec<T> v) {
  T top = v[0];
  for (int i = 1; i < lanes<T>; ++i) top = v[i] > top ? v[i] : top;
  return top;
}

// `sum_rows` in double: the sums of the first half of the rows, then of the second.
inline void sum_rows_in_double(const Vec<float>* v, Vec<double> (&sums)[2]) {
  constexpr int half = lanes<double>;
  for (int h = 0; h < 2; ++h) {
    Vec<double> rows[half];
    for (int r = 0; r < half; ++r) rows[r] = add_halves(v[h * half + r]);
    sums[h] = add_rows<double>(rows);
  }
}

// A compensated sum (Kahan), lane by lane.
template <class T>
struct LaneSum {
  Vec<T> total{}, excess{};

  REGMAX_INLINE void add(Vec<T> v) {
    const Vec<T> corrected = v - excess, sum = total + corrected;
    excess = sum - total - corrected;
    total = sum;
  }
};

// A sum in double, lane by lane.
template <class T>
class DoubleSum {
 public:
  REGMAX_INLINE void add(Vec<double> v) { totals_[0] += v; }
  REGMAX_INLINE void add(Vec<float> v) {
    Vec<double> wide[2];
    widen(v, wide);
    for (int h = 0; h < halves; ++h) totals_[h] += wide[h];
  }
  // A number per lane.
  void write(double* sums) const {
    for (int h = 0; h < halves; ++h) store<double>(sums + h * lanes<double>, totals_[h]);
  }

 private:
  static constexpr int halves = lanes<T> / lanes<double>;

  Vec<double> totals_[halves] = {};
};

inline double sum_of(const double* x, int64_t m) {
  constexpr int w = lanes<double>;
  Vec<double> a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * w <= m; i += 4 * w) {
    a += load(x + i);
    b += load(x + i + w);
    c += load(x + i + 2 * w);
    d += load(x + i + 3 * w);
  }
  for (; i < m; i += w) a += load_left(x + i, m - i, 0.0);
  return sum_lanes((a + b) + (c + d));
}

inline double mean_of(const double* x, int64_t m) { return sum_of(x, m) / static_cast<double>(m); }

// Sums of n terms over an array of m numbers: add(i, sums) adds the terms of the vector at i. Partial sums
// run in T over short stretches, whose totals are added in double.
template <class T, int n, class Add>
REGMAX_INLINE void sum_terms(int64_t m, double (&totals)[n], const Add& add) {
  constexpr int64_t stretch = 16 * lanes<T>;
  for (int64_t begin = 0; begin < m; begin += stretch) {
    Vec<T> sums[n] = {};
    const int64_t end = m - begin < stretch ? m : begin + stretch;
    for (int64_t i = begin; i < end; i += lanes<T>) add(i, sums);
    for (int k = 0; k < n; ++k) totals[k] += sum_lanes(sums[k]);
  }
}

}  // namespace regmax::REGMAX_ISA
