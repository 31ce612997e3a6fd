// Total variation's segments as the straight pieces of a taut string.
//
// With partial sums S and the dual u_k in [-lam, lam] on every edge, the string k -> S_k + u_k of least
// length through that tube has the slopes z. From a knot a with dual u_a, the slopes possible up to b are
// those between
//
//     low = max over k of (S_k - S_a - u_a - lam) / (k - a),
//     high = min over k of (S_k - S_a - u_a + lam) / (k - a).
//
// As long as low <= high the string may be straight. When the next lower bound exceeds high, it bends upwards
// where high was attained, at the tube's upper edge; likewise downwards. Then it starts again from there.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/tuning.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

inline double reciprocal(int64_t i) {
  constexpr int size = 1024;
  return i <= size ? reciprocals<double, size>.of[i] : 1.0 / static_cast<double>(i);
}

// A straight piece of the string.
struct StringPiece {
  int64_t end;
  int rise;      // the next piece is higher (1), lower (-1), or there is none (0)
  int64_t read;  // the first score that was not read
};

// The piece from score `begin` on, with dual `dual` there. Its only branch is the bend: which bound moves at
// a step is unpredictable.
inline StringPiece follow_piece(const double* x, int64_t m, double lam, int64_t begin, double dual) {
  double low = -HUGE_VAL, high = HUGE_VAL, sum = -dual;
  int64_t low_end = begin, high_end = begin, i = begin;
  for (; i + 1 < m; ++i) {
    sum += x[i];
    const double factor = reciprocal(i + 1 - begin), upper = (sum + lam) * factor, lower = (sum - lam) * factor;
    if ((lower > high) | (upper < low)) return {lower > high ? high_end : low_end, lower > high ? 1 : -1, i};
    high_end = upper <= high ? i + 1 : high_end;
    low_end = lower >= low ? i + 1 : low_end;
    high = smaller(upper, high);
    low = larger(lower, low);
  }
  const double slope = (sum + x[i]) * reciprocal(m - begin);  // the string's end is fixed
  if (slope > high) return {high_end, 1, m};
  if (slope < low) return {low_end, -1, m};
  return {m, 0, m};
}

// Which scores share their value with the previous one, and if not, whether the value rises (1) or falls
// (-1). Pieces read on beyond their ends; returns false as soon as that exceeds a few times the way covered.
inline bool follow_taut_string(const double* x, int64_t m, double lam, uint8_t* joined, int8_t* rises) {
  int64_t readings = 0;
  double dual = 0;
  int rise = 0;
  for (int64_t begin = 0; begin < m;) {
    const StringPiece piece = follow_piece(x, m, lam, begin, dual);
    for (int64_t i = begin; i < piece.end; ++i) joined[i] = i > begin, rises[i] = 0;
    rises[begin] = static_cast<int8_t>(rise);
    readings += piece.read - begin;
    if (readings > string_readings * piece.end + first_readings) return false;
    rise = piece.rise;
    dual = rise * lam;
    begin = piece.end;
  }
  return true;
}

}  // namespace regmax::REGMAX_ISA
