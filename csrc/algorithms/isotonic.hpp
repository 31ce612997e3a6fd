// Sorted pooling: what OSCAR and the OWL norms need.
//
// oscarmax. On the simplex the OSCAR penalty is lam sum_k (d - k) y_(k), y sorted decreasing. So with x
// sorted decreasing, z is the nonincreasing isotonic regression of x_(k) - lam (d - k), and y = (z - tau)_+.
// A shift changes nothing: add lam k instead. The level sets of z are prefixes, hence
//
//     tau = max_m A(m),  A(m) = (X_m - 1) / m + lam (m + 1) / 2,  X_m = x_(1) + ... + x_(m),
//
// and with m* the maximiser only the top m* scores need pooling: z falls below tau after them.
//
// Selection. Let b bound all but the top K scores. For m > K, A(m) is the weighted mean of A(K) and the mean
// of x_(k) + lam k over K < k <= m, which is at most b + lam (K + 1 + d) / 2. If max_{m <= K} A(m) is at
// least that, no score after the top K matters. Since every A(m) is a lower bound of tau, b = bound - lam (d
// + 1/2) always passes.
//
// Uniform rows. y is uniform iff X_m - m mean <= lam m (d - m) / 2 for all m. The left side is at most m (max
// - mean) and (d - m) (mean - min), and one of the two is small enough for every m if max - min <= lam d / 2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "algorithms/simplex.hpp"

namespace regmax::REGMAX_ISA {

struct Ranked {
  double value;
  int64_t position;
};

struct ByValueDecreasing {
  bool operator()(const Ranked& a, const Ranked& b) const { return a.value > b.value; }
};

inline void sort_decreasing(Ranked* ranked, int64_t m) { std::sort(ranked, ranked + m, ByValueDecreasing()); }

struct Block {
  double sum;
  int64_t count;
  double mean;  // known: a block is compared more often than it grows

  Block(double total, int64_t size) : sum(total), count(size), mean(total / static_cast<double>(size)) {}
};

// Pools adjacent violators: appends a block to others with falling means, and returns their number. Equal
// neighbours are pooled too, so that equal values are equal bitwise. compare(falls) is called with the difference of
// the means at every comparison.
template <class Compare>
inline int64_t push_block(Block* blocks, int64_t count, Block block, const Compare& compare) {
  for (; count > 0; --count) {
    const Block& before = blocks[count - 1];
    const double falls = before.mean - block.mean;
    compare(falls);
    if (!(falls <= 0)) break;
    block = {before.sum + block.sum, before.count + block.count};
  }
  blocks[count] = block;
  return count + 1;
}

// Whether blocks are certain: their means fall by more than the margin, and within a block every partial sum
// stays below its share of the mean. add(block, visit) calls visit(sum, count) for the parts of a block, from
// its largest scores on.
template <class Add>
inline bool is_certain(const Block* blocks, int64_t count, double margin, const Add& add) {
  bool sure = true;
  for (int64_t i = 0; i < count; ++i) {
    const double mean = blocks[i].mean;
    if (i > 0) sure &= blocks[i - 1].mean - mean > margin;
    double excess = 0;
    int64_t seen = 0;
    add(blocks[i], [&](double sum, int64_t size) {
      excess += sum - mean * static_cast<double>(size);
      seen += size;
      if (seen < blocks[i].count) sure &= excess < -margin * static_cast<double>(seen);
    });
  }
  return sure;
}

// Nonincreasing isotonic regression, in place in ranked[k].value; returns whether rounding decided nothing.
inline bool pool_decreasing(Ranked* ranked, int64_t m, Block* blocks, double margin) {
  int64_t count = 0, k = 0;
  for (; k < m; ++k) count = push_block(blocks, count, {ranked[k].value, 1}, [](double) {});
  k = 0;
  return is_certain(blocks, count, margin, [&](const Block& block, const auto& visit) {
    for (const int64_t end = k + block.count; k < end; ++k) {
      visit(ranked[k].value, 1);
      ranked[k].value = block.mean;
    }
  });
}

constexpr int64_t isotonic_bytes_per_score = sizeof(Ranked) + sizeof(Block);

struct IsotonicSpace {
  Ranked* ranked;
  Block* blocks;

  IsotonicSpace(void* memory, int64_t m)
      : ranked(static_cast<Ranked*>(memory)), blocks(reinterpret_cast<Block*>(ranked + m)) {}
};

struct Prefix {
  int64_t length;  // m*
  double sum;      // X_m*
  double tau;      // A(m*)
  double after;    // the largest A(m) of a longer prefix

  void add(int64_t k, double total, double lam) {
    const double bound = (total - 1) / static_cast<double>(k) + lam * static_cast<double>(k + 1) / 2;
    if (bound >= tau) {
      *this = {k, total, bound, -HUGE_VAL};
    } else {
      after = larger(after, bound);
    }
  }
};
constexpr Prefix no_prefix{0, 0, -HUGE_VAL, -HUGE_VAL};

inline Prefix best_prefix(const Ranked* sorted, int64_t m, double lam) {
  Prefix best = no_prefix;
  double sum = 0;
  for (int64_t k = 1; k <= m; ++k) best.add(k, sum += sorted[k - 1].value, lam);
  return best;
}

// Whether the top m scores, those above `bound`, decide the row of d (see Selection), in spite of rounding.
inline bool is_decided(double tau, double bound, int64_t m, int64_t d, double lam, double margin) {
  return m == d || tau >= bound + lam * static_cast<double>(m + 1 + d) / 2 + margin;
}

// The m candidates of one row, relative to the maximum, ranked.
class RankedScores {
 public:
  RankedScores(const double* x, int64_t m, double lam, double margin, IsotonicSpace space)
      : m_(m), lam_(lam), margin_(margin), space_(space) {
    for (int64_t k = 0; k < m; ++k) space.ranked[k] = {x[k], k};
    sort_decreasing(space.ranked, m);
    best_ = best_prefix(space.ranked, m, lam);
  }

  double tau() const { return best_.tau; }

  // Returns whether rounding decided nothing.
  bool write_weights(double* y) {
    Ranked* const ranked = space_.ranked;
    // Weights centred on the prefix: pooled scores and threshold stay as small as the scores.
    const double length = static_cast<double>(best_.length), middle = (length + 1) / 2;
    for (int64_t k = 0; k < best_.length; ++k) ranked[k].value += lam_ * (static_cast<double>(k + 1) - middle);
    bool sure = pool_decreasing(ranked, best_.length, space_.blocks, margin_);
    const double tau = (best_.sum - 1) / length;
    sure &= ranked[best_.length - 1].value - tau > margin_ && best_.tau - best_.after > margin_;
    for (int64_t k = 0; k < m_; ++k) y[ranked[k].position] = k < best_.length ? larger(ranked[k].value - tau, 0) : 0;
    normalise(y, m_);
    return sure;
  }

 private:
  int64_t m_;
  double lam_, margin_;
  IsotonicSpace space_;
  Prefix best_;
};

// prox of sum_k weight(k) |z|_(k) from the sizes |x| in decreasing order (space.ranked): subtract the weights, pool,
// clamp at zero, restore the signs. Returns whether rounding decided nothing, up to a margin between values.
template <class Weight>
inline bool prox_owl(const double* x, int64_t m, Weight weight, IsotonicSpace space, double margin, double* z) {
  Ranked* const ranked = space.ranked;
  for (int64_t k = 0; k < m; ++k) ranked[k].value -= weight(k);
  bool sure = pool_decreasing(ranked, m, space.blocks, margin);
  for (int64_t k = 0; k < m; ++k) {
    sure &= std::fabs(ranked[k].value) > margin;
    const int64_t i = ranked[k].position;
    const double size = larger(ranked[k].value, 0);
    z[i] = size > 0 ? std::copysign(size, x[i]) : 0;
  }
  return sure;
}

}  // namespace regmax::REGMAX_ISA
