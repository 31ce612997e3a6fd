// Every mapping on one row alone, for whatever scores: screened in T, solved in double. Rows that need no
// more than a few of their scores go the way of lockstep.hpp instead.
#pragma once

#include <cmath>
#include <cstdint>

#include "isotonic.hpp"
#include "pnorm.hpp"
#include "regmax.h"
#include "screening.hpp"
#include "simplex.hpp"
#include "sorted_blocks.hpp"
#include "tv.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

inline bool has_chains(int32_t kernel) { return kernel == REGMAX_FUSEDMAX || kernel == REGMAX_PROX_TV1D; }
// Whether the bits `joined` say something of a kernel's weights.
inline bool has_joined(int32_t kernel) { return has_chains(kernel) || kernel == REGMAX_OSCARMAX; }

inline bool on_simplex(int32_t kernel) { return kernel <= REGMAX_SQPNORMMAX; }

// A row without gaps: m finite scores, and what is found about them. The candidates are the bits of w.chosen;
// their scores relative to the maximum are w.x, their weights w.y.
template <class T>
class RowMapping {
 public:
  RowMapping(const T* x, int64_t m, Workspace& w) : x_(x), m_(m), w_(w) {
    const Vec<T> maxima = lane_maxima(x, m);
    top_ = maxima[0];
    for (int i = 1; i < lanes<T>; ++i) top_ = maxima[i] > top_ ? maxima[i] : top_;
  }

  // All mappings on the simplex; returns the number of candidates.
  int64_t map(int32_t kernel, double theta) {
    if (kernel == REGMAX_FUSEDMAX && theta > 0) {
      fusedmax(theta);
    } else if (kernel == REGMAX_OSCARMAX && theta > 0) {
      oscarmax(theta);
    } else {
      collect(-1);
      if (kernel == REGMAX_SQPNORMMAX && theta == 1.5) {
        cubic_weights(static_cast<const T*>(w_.candidates), count_, w_.y);
      } else if (kernel == REGMAX_SQPNORMMAX && theta < 2) {
        sqpnorm_weights(w_.x, count_, theta, w_.y);
      } else {
        project(w_.x);
      }
    }
    return count_;
  }

 private:
  // The scores above the bound become the candidates.
  void collect(T bound) {
    T* const candidates = static_cast<T*>(w_.candidates);
    count_ = collect_candidates(x_, m_, top_, bound, candidates, w_.chosen);
    for (int64_t k = 0; k < count_; ++k) w_.x[k] = static_cast<double>(candidates[k]);
  }

  // y = (z - tau)_+ for z with maximum 0.
  void project(const double* z) {
    const double tau = simplex_threshold(z, count_, w_.space);
    for (int64_t k = 0; k < count_; ++k) w_.y[k] = larger(z[k] - tau, 0);
    normalise(w_.y, count_);
  }

  // Pool, then project. Screening: z <= x + 2 lam pointwise, and pooling lowers the threshold by at most 2
  // lam, so a score at or below tau_sparsemax - 4 lam is in no level set above tau: its only effect is that
  // the edges to the candidates beside it pull with their full lam. The runs of candidates are then
  // independent chains.
  void fusedmax(double lam) {
    collect(-1);
    const double tau = simplex_threshold(w_.x, count_, w_.space);
    collect(static_cast<T>(tau - 4 * lam) - 16 * rounding<T>);
    pool_runs(lam);
    double top = w_.v[0];
    for (int64_t k = 1; k < count_; ++k) top = larger(top, w_.v[k]);
    for (int64_t k = 0; k < count_; ++k) w_.v[k] -= top;
    project(w_.v);
  }

  void pool_runs(double lam) {
    if (count_ == m_) return pool_run(0, m_, 0, lam);
    int64_t begin = 0;
    for (int64_t k = 1, i = next_candidate(-1); k <= count_; ++k) {
      const int64_t next = k < count_ ? next_candidate(i) : -1;
      if (next != i + 1) {
        pool_run(begin, k, i - (k - 1 - begin), lam);
        begin = k;
      }
      i = next;
    }
  }

  int64_t next_candidate(int64_t i) const {
    int64_t word = ++i / 64;
    uint64_t rest = w_.chosen[word] >> (i % 64) << (i % 64);
    while (!rest) rest = w_.chosen[++word];
    return word * 64 + __builtin_ctzll(rest);
  }

  // Candidates begin to end, from position `first` on, into w.v.
  void pool_run(int64_t begin, int64_t end, int64_t first, double lam) {
    if (first > 0) w_.x[begin] -= lam;
    if (first + end - begin < m_) w_.x[end - 1] -= lam;
    prox_tv(w_.x + begin, end - begin, lam, TvSpace(w_.pooling, end - begin), w_.v + begin, w_.joined,
            w_.rises);
  }

  void oscarmax(double lam) {
    if (is_uniform(lam)) return spread_evenly();
    for (double bound = -1;;) {
      collect(static_cast<T>(bound));
      const double tau = try_oscarmax(lam, static_cast<double>(static_cast<T>(bound)));
      if (tau == HUGE_VAL) return;
      bound = tau - lam * (static_cast<double>(m_) + 1);
    }
  }

  // The sums of sorted scores, whose differences count by value, are as exact in double as floats need.
  double try_oscarmax(double lam, double bound) {
    if (sizeof(T) == sizeof(float) && count_ > few_scores) {
      return finish(SortedBlocks<T>(static_cast<const T*>(w_.candidates), count_, lam, w_), lam, bound);
    }
    return finish(RankedScores(w_.x, count_, lam, IsotonicSpace(w_.pooling, m_)), lam, bound);
  }

  // Writes the weights if the candidates decide the row, or else returns a lower bound of its threshold.
  template <class Scores>
  double finish(Scores scores, double lam, double bound) {
    if (!is_decided(scores.tau(), bound, count_, m_, lam)) return scores.tau();
    scores.write_weights(w_.y);
    return HUGE_VAL;
  }

  // max - min <= lam m / 2 (isotonic.hpp).
  bool is_uniform(double lam) const {
    T low = top_;
    for (int64_t i = 0; i < m_; ++i) low = x_[i] < low ? x_[i] : low;
    return static_cast<double>(top_) - static_cast<double>(low) <= lam * static_cast<double>(m_) / 2;
  }

  void spread_evenly() {
    choose_all(w_.chosen, m_);
    for (int64_t k = 0; k < m_; ++k) w_.y[k] = 1 / static_cast<double>(m_);
    count_ = m_;
  }

  const T* x_;
  int64_t m_;
  Workspace& w_;
  T top_;
  int64_t count_ = 0;
};

struct OscarWeights {
  double lam;
  int64_t m;

  double operator()(int64_t k) const { return lam * static_cast<double>(m - 1 - k); }
};

// w.y and w.chosen from m >= 1 finite scores; returns how many are chosen. The proximal operators choose all.
template <class T>
inline int64_t map_row(int32_t kernel, const T* x, int64_t m, double theta, Workspace& w) {
  if (on_simplex(kernel)) return RowMapping<T>(x, m, w).map(kernel, theta);
  for (int64_t i = 0; i < m; ++i) w.x[i] = static_cast<double>(x[i]);
  choose_all(w.chosen, m);
  if (kernel == REGMAX_PROX_TV1D) {
    prox_tv(w.x, m, theta, TvSpace(w.pooling, m), w.y, w.joined, w.rises);
  } else {
    prox_owl(w.x, m, OscarWeights{theta, m}, IsotonicSpace(w.pooling, m), w.y);
  }
  return m;
}

}  // namespace regmax::REGMAX_ISA
