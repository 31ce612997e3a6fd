// Total variation's groups as the pieces of a taut string.
//
// With partial sums S and the dual u_k in [-lam, lam] on every edge, the string k -> S_k + u_k of least length
// through that tube has the slopes z. From a knot a with dual u_a, the slopes possible up to b are those between
//
//     low = max over k of (S_k - S_a - u_a - lam) / (k - a)   and   high = min over k of (S_k - S_a - u_a + lam) / (k
//     - a).
//
// As long as low <= high the string may be straight. When the next lower bound exceeds high, it bends upwards where
// high was attained, at the tube's upper edge; likewise downwards. Then it starts again from there. Only what the
// sums lack to a straight line of slope high (low) is kept: `above` (`below`), so that no step divides but those that
// move a bound.
#pragma once

#include <cstdint>

namespace regmax::REGMAX_ISA {

// One straight piece of the string from score `begin` on; the dual there is `dual`.
struct StringPiece {
  int64_t end;
  int rise;  // what follows is higher (1), lower (-1), or nothing (0)
  int64_t read;
};

inline StringPiece follow_piece(const double* x, int64_t m, double lam, int64_t begin, double dual) {
  double low = x[begin] - dual - lam, high = x[begin] - dual + lam;
  double above = -lam, below = lam;
  int64_t low_end = begin + 1, high_end = begin + 1;
  if (begin + 1 == m) return {m, 0, m};
  for (int64_t i = begin + 1; i < m; ++i) {
    above += x[i] - high;
    below += x[i] - low;
    const double slack = i + 1 < m ? lam : 0;  // the string's end is fixed
    if (above > slack) return {high_end, 1, i};
    if (below < -slack) return {low_end, -1, i};
    const double length = static_cast<double>(i + 1 - begin);
    if (above <= -lam) {
      high += (above + lam) / length;
      above = -lam;
      high_end = i + 1;
    }
    if (below >= lam) {
      low += (below - lam) / length;
      below = lam;
      low_end = i + 1;
    }
  }
  return {m, 0, m};
}

// Which scores share their value with the one before, and where not, whether the value rises (1) or falls (-1).
// Every piece reads on beyond its end; false where that adds up to more than a few times the chain.
inline bool follow_taut_string(const double* x, int64_t m, double lam, uint8_t* joined, int8_t* rises) {
  int64_t budget = 8 * m;
  double dual = 0;
  int rise = 0;
  for (int64_t begin = 0; begin < m;) {
    const StringPiece piece = follow_piece(x, m, lam, begin, dual);
    for (int64_t i = begin; i < piece.end; ++i) joined[i] = i > begin, rises[i] = 0;
    rises[begin] = static_cast<int8_t>(rise);
    budget -= piece.read - begin;
    if (budget < 0) return false;
    rise = piece.rise;
    dual = rise * lam;
    begin = piece.end;
  }
  return true;
}

}  // namespace regmax::REGMAX_ISA
