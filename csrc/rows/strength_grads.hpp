// The gradients of the strengths, a number per row, from the weights and the finished Jacobian product.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "mappings/mapping.hpp"
#include "rows/dense_rows.hpp"
#include "rows/masks.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
inline bool has_nan(const T* y, int64_t d) {
  return std::any_of(y, y + d, [](T weight) { return weight != weight; });
}

template <class T, class Mapping>
class StrengthGrads {
 public:
  StrengthGrads(const Rows<T>& call, Workspace& w) : call_(call), w_(w), words_(words_of(call.d)) {}

  // After J v / gamma of row i is written.
  void add_row(int64_t i) {
    const int64_t d = call_.d;
    const T *const y = call_.y + i * d, *const out = call_.out + i * d;
    const uint64_t* const chosen = choose(i, y);
    T *const weights = static_cast<T*>(w_.candidates), *const products = static_cast<T*>(w_.compacted);
    const int64_t m = compact(y, out, chosen, weights, products);
    double theta_grad = 0, gamma_grad = 0;
    if (m == 0) {  // a row without kept scores, or of NaN
      theta_grad = gamma_grad = has_nan(y, d) ? std::numeric_limits<double>::quiet_NaN() : 0;
    } else {
      const bool chained = Mapping::on_simplex && Mapping::joins == Joins::neighbours;
      if (chained) find_gaps(chosen, kept_words(i), m);
      const CompactedRow<T> row{weights, products, nullptr, m, chained ? w_.joined : nullptr};
      const double theta = call_.theta.of(i);
      // The product is J v / gamma.
      if (call_.theta_grad) theta_grad = call_.gamma.of(i) * Mapping::strength_grad(row, theta, w_);
      if (call_.gamma_grad) gamma_grad = Mapping::gamma_grad(row, theta, w_);
    }
    if (call_.theta_grad) call_.theta_grad[i] = theta_grad;
    if (call_.gamma_grad) call_.gamma_grad[i] = gamma_grad;
  }

 private:
  // The bits of the positions on which J acts.
  const uint64_t* choose(int64_t i, const T* y) {
    if (!Mapping::on_simplex) return has_nan(y, call_.d) ? none() : kept_words(i);
    if (call_.support) return bits_row(call_.support, i, call_.d);
    positive_bits(y, call_.d, w_.chosen);
    return w_.chosen;
  }

  const uint64_t* none() {
    clear_bits(w_.chosen, call_.d);
    return w_.chosen;
  }

  const uint64_t* kept_words(int64_t i) {
    if (call_.kept) return bits_row(call_.kept, i, call_.d);
    mask_bits(mask_row(call_.mask, i, call_.d), call_.d, w_.kept);
    return w_.kept;
  }

  // Few weights are gathered one by one.
  int64_t compact(const T* y, const T* out, const uint64_t* chosen, T* weights, T* products) const {
    int64_t m = 0;
    for (int64_t word = 0; word < words_; ++word) {
      const int64_t at = 64 * word;
      if (__builtin_popcountll(chosen[word]) > 16) {
        compact_word<T>(y + at, call_.d - at, chosen[word], weights + m);
        m += compact_word<T>(out + at, call_.d - at, chosen[word], products + m);
        continue;
      }
      for (uint64_t rest = chosen[word]; rest; rest &= rest - 1, ++m) {
        const int64_t i = at + __builtin_ctzll(rest);
        weights[m] = y[i];
        products[m] = out[i];
      }
    }
    return m;
  }

  // The flags `apart` of a CompactedRow, in w.joined: w.joined[k] for k = 0, ..., m.
  void find_gaps(const uint64_t* chosen, const uint64_t* kept, int64_t m) {
    uint8_t* const apart = w_.joined;
    int64_t k = 0;
    uint64_t gap = 0;  // 1 if the last kept position has no weight
    for (int64_t word = 0; word < words_; ++word) {
      const uint64_t has = chosen[word], lacks = kept[word] & ~has;
      uint64_t before = 0;  // the positions up to the last weight
      for (uint64_t rest = has; rest; rest &= rest - 1) {
        const uint64_t below = (rest & -rest) - 1;
        apart[k++] = gap || (lacks & below & ~before);
        before = below;
        gap = 0;
      }
      gap |= (lacks & ~before) != 0;
    }
    apart[m] = gap != 0;
  }

  const Rows<T>& call_;
  Workspace& w_;
  int64_t words_;
};

}  // namespace regmax::REGMAX_ISA
