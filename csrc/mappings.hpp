// Every mapping on one row, for whatever scores: the kept ones, without gaps, in double. Rows that need no more than
// a few of their scores go the way of lanes.hpp instead.
#pragma once

#include <cstdint>

#include "isotonic.hpp"
#include "pnorm.hpp"
#include "regmax.h"
#include "simd.hpp"
#include "simplex.hpp"
#include "tv.hpp"

namespace regmax::REGMAX_ISA {

// The memory for one row of at most d scores, carved out of the thread's scratch.
struct Workspace {
  double* x;           // kept scores (or weights y, for a Jacobian product)
  double* y;           // their result
  double* v;           // a direction
  double* space;       // 2 d
  int64_t* index;      // positions among the kept scores
  int64_t* positions;  // of the kept scores in the row
  void* pooling;       // of TvSpace or IsotonicSpace
  uint8_t* joined;     // shares its group with the kept score before
  int8_t* rises;
  uint64_t* words;  // a bit per score for a group of rows (lockstep.hpp)

  static constexpr int64_t pooling_bytes =
      tv_bytes_per_score > isotonic_bytes_per_score ? tv_bytes_per_score : isotonic_bytes_per_score;

  static int64_t bytes(int64_t d) {
    const int64_t per_score = 5 * sizeof(double) + 2 * sizeof(int64_t) + pooling_bytes + 2;
    return words_bytes(d) + per_score * d;
  }

  Workspace(void* memory, int64_t d) {
    words = static_cast<uint64_t*>(memory);
    x = reinterpret_cast<double*>(static_cast<char*>(memory) + words_bytes(d));
    y = x + d;
    v = y + d;
    space = v + d;
    index = reinterpret_cast<int64_t*>(space + 2 * d);
    positions = index + d;
    pooling = positions + d;
    joined = static_cast<uint8_t*>(pooling) + pooling_bytes * d;
    rises = reinterpret_cast<int8_t*>(joined + d);
  }

 private:
  static int64_t words_bytes(int64_t d) { return lanes<float> * (d + 63) / 64 * 64; }
};

inline void sparsemax(Workspace& w, int64_t m) {
  const double tau = simplex_threshold(w.x, m, w.space);
  for (int64_t i = 0; i < m; ++i) w.y[i] = larger(w.x[i] - tau, 0);
}

// Pool, then project. Screening: z <= x + 2 lam pointwise, and pooling lowers the threshold by at most 2 lam, so a
// score at or below tau_sparsemax - 4 lam is in no level set above tau: its only effect is that the edges to the
// candidates beside it pull with their full lam. The runs of candidates are then independent chains.
class Fusedmax {
 public:
  Fusedmax(Workspace& w, int64_t m, double lam) : w_(w), m_(m), lam_(lam) {}

  void run() {
    const double cut = simplex_threshold(w_.x, m_, w_.space) - 4 * lam_;
    for (int64_t i = 0; i < m_; ++i) w_.y[i] = 0;
    int64_t pooled = 0;
    for (int64_t begin = 0; begin < m_;) {
      if (!(w_.x[begin] > cut)) {
        ++begin;
        continue;
      }
      int64_t end = begin + 1;
      while (end < m_ && w_.x[end] > cut) ++end;
      pool_run(begin, end, pooled);
      pooled += end - begin;
      begin = end;
    }
    project(pooled);
  }

 private:
  // Pools x[begin, end) in place and appends it to v, positions to index.
  void pool_run(int64_t begin, int64_t end, int64_t pooled) {
    if (begin > 0) w_.x[begin] -= lam_;
    if (end < m_) w_.x[end - 1] -= lam_;
    prox_tv(w_.x + begin, end - begin, lam_, TvSpace(w_.pooling, end - begin), w_.v + pooled, w_.joined + begin,
            w_.rises);
    for (int64_t i = begin; i < end; ++i) w_.index[pooled + i - begin] = i;
  }

  void project(int64_t pooled) {
    double* const z = w_.v;
    const double top = range_of(z, pooled).max;
    for (int64_t k = 0; k < pooled; ++k) z[k] -= top;
    const double tau = simplex_threshold(z, pooled, w_.space);
    for (int64_t k = 0; k < pooled; ++k) w_.y[w_.index[k]] = larger(z[k] - tau, 0);
    normalise(w_.y, m_);
  }

  Workspace& w_;
  int64_t m_;
  double lam_;
};

struct OscarWeights {
  double lam;
  int64_t m;

  double operator()(int64_t k) const { return lam * static_cast<double>(m - 1 - k); }
};

inline bool has_chains(int32_t kernel) { return kernel == REGMAX_FUSEDMAX || kernel == REGMAX_PROX_TV1D; }

inline bool on_simplex(int32_t kernel) { return kernel <= REGMAX_SQPNORMMAX; }

// w.y from the m >= 1 finite scores w.x, which are overwritten.
inline void map_row(int32_t kernel, Workspace& w, int64_t m, double theta) {
  if (on_simplex(kernel)) {
    const double top = range_of(w.x, m).max;
    for (int64_t i = 0; i < m; ++i) w.x[i] -= top;
  }
  const bool plain = kernel == REGMAX_SPARSEMAX || (kernel == REGMAX_SQPNORMMAX ? theta == 2 : theta == 0);
  if (on_simplex(kernel) && plain) return sparsemax(w, m);
  switch (kernel) {
    case REGMAX_FUSEDMAX:
      return Fusedmax(w, m, theta).run();
    case REGMAX_OSCARMAX:
      return oscarmax(w.x, m, theta, IsotonicSpace(w.pooling, m), w.y);
    case REGMAX_SQPNORMMAX:
      return sqpnormmax(w.x, m, theta, w.space, w.index, w.y);
    case REGMAX_PROX_TV1D:
      return prox_tv(w.x, m, theta, TvSpace(w.pooling, m), w.y, w.joined, w.rises);
    default:
      return prox_owl(w.x, m, OscarWeights{theta, m}, IsotonicSpace(w.pooling, m), w.y);
  }
}

}  // namespace regmax::REGMAX_ISA
