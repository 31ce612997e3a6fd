// Numbers of a row that depend on its weights and on few others: the gradients of its strengths, max_Omega.
#pragma once

#include <cstdint>
#include <limits>

#include "mappings/mapping.hpp"
#include "rows/dense_rows.hpp"
#include "rows/masks.hpp"

namespace regmax::REGMAX_ISA {

// The bits of the scores of a row that the mask keeps and that are not -inf.
template <class T>
inline void find_kept(const T* x, const uint8_t* keep, int64_t d, uint64_t* words) {
  const Vec<T> lowest = splat(-std::numeric_limits<T>::infinity());
  make_words(x, d, words, [&](Vec<T> v) { return not_at_most(v, lowest); });
  for (int64_t at = 0; keep && at < d; at += 64) words[at / 64] &= mask_word(keep + at, d - at);
  if (d % 64) words[d / 64] &= ~uint64_t{0} >> (64 - d % 64);  // the padding is not -inf
}

// Compacts the weights of a row, and other numbers at the same positions: on the simplex the support, otherwise
// every kept position.
template <class T, class Mapping>
class RowSupport {
 public:
  static constexpr bool has_gaps = Mapping::on_simplex && Mapping::joins == Joins::neighbours;

  RowSupport(const Rows<T>& call, Workspace& w) : call_(call), w_(w), words_(words_of(call.d)) {}

  // `kept` are the bits of the kept positions. The row has no weights (m = 0) if it has no kept positions, or is
  // NaN.
  CompactedRow<T> compact(int64_t i, const T* others, const uint64_t* kept) {
    const T* const y = call_.y + i * call_.d;
    const uint64_t* const chosen = choose(i, y, kept);
    T *const weights = static_cast<T*>(w_.candidates), *const compacted = static_cast<T*>(w_.compacted);
    const int64_t m = gather(y, others, chosen, weights, compacted);
    if (has_gaps && m > 0) find_gaps(chosen, kept, m);
    return {weights, compacted, nullptr, m, has_gaps ? w_.joined : nullptr};
  }

  // A number of a row without weights: NaN if the row is NaN.
  double without_weights(int64_t i, double value) const {
    return call_.is_nan(i) ? std::numeric_limits<double>::quiet_NaN() : value;
  }

 private:
  const uint64_t* choose(int64_t i, const T* y, const uint64_t* kept) {
    if (!Mapping::on_simplex && !call_.is_nan(i)) return kept;
    if (Mapping::on_simplex && call_.support) return bits_row(call_.support, i, call_.d);
    if (Mapping::on_simplex) {
      positive_bits(y, call_.d, w_.chosen);
    } else {
      clear_bits(w_.chosen, call_.d);
    }
    return w_.chosen;
  }

  // Few weights are gathered one by one.
  int64_t gather(const T* y, const T* others, const uint64_t* chosen, T* weights, T* compacted) const {
    int64_t m = 0;
    for (int64_t word = 0; word < words_; ++word) {
      const int64_t at = 64 * word;
      if (__builtin_popcountll(chosen[word]) > 16) {
        compact_word<T>(y + at, call_.d - at, chosen[word], weights + m);
        m += compact_word<T>(others + at, call_.d - at, chosen[word], compacted + m);
        continue;
      }
      for (uint64_t rest = chosen[word]; rest; rest &= rest - 1, ++m) {
        const int64_t i = at + __builtin_ctzll(rest);
        weights[m] = y[i];
        compacted[m] = others[i];
      }
    }
    return m;
  }

  // The flags `apart` of a CompactedRow, in w.joined.
  void find_gaps(const uint64_t* chosen, const uint64_t* kept, int64_t m) {
    uint8_t* const apart = w_.joined;
    int64_t k = 0;
    bool gap = false;  // the last kept position has no weight
    for (int64_t word = 0; word < words_; ++word) {
      const uint64_t has = chosen[word], lacks = kept[word] & ~has;
      uint64_t before = 0;  // the positions up to the last weight
      for (uint64_t rest = has; rest; rest &= rest - 1) {
        const uint64_t below = (rest & -rest) - 1;
        apart[k++] = gap || (lacks & below & ~before);
        before = below;
        gap = false;
      }
      gap = gap || (lacks & ~before);
    }
    apart[m] = gap;
  }

  const Rows<T>& call_;
  Workspace& w_;
  int64_t words_;
};

// The derivatives of <v, y> in the strengths, a number per row, from the finished Jacobian product.
template <class T, class Mapping>
class StrengthGrads {
 public:
  StrengthGrads(const Rows<T>& call, Workspace& w) : call_(call), w_(w), support_(call, w) {}

  // After J v / gamma of row i is written.
  void add_row(int64_t i) {
    const StrengthGrad grads = find_grads(i);
    if (call_.theta_grad) call_.theta_grad[i] = call_.gamma.of(i) * grads.theta;  // the product is J v / gamma
    if (call_.gamma_grad) call_.gamma_grad[i] = grads.gamma;
  }

 private:
  StrengthGrad find_grads(int64_t i) {
    const int64_t d = call_.d;
    const double theta = call_.theta.of(i);
    const T* const out = call_.out + i * d;
    if constexpr (RowSupport<T, Mapping>::has_gaps) {
      const uint64_t* const support = bits_row(call_.support, i, d);
      if (support && keeps_all(i) && count_bits(support, d) > 0)
        return Mapping::whole_row_grads(call_.y + i * d, out, support, d, theta);
    }
    const CompactedRow<T> row = support_.compact(i, out, kept_words(i));
    if (row.m == 0) return {support_.without_weights(i, 0), support_.without_weights(i, 0)};
    return {call_.theta_grad ? Mapping::strength_grad(row, theta, w_) : 0,
            call_.gamma_grad ? Mapping::gamma_grad(row, theta, w_) : 0};
  }

  bool keeps_all(int64_t i) const {
    return call_.kept ? count_bits(bits_row(call_.kept, i, call_.d), call_.d) == call_.d : !call_.mask.bytes;
  }
  const uint64_t* kept_words(int64_t i) {
    if (call_.kept) return bits_row(call_.kept, i, call_.d);
    mask_bits(mask_row(call_.mask, i, call_.d), call_.d, w_.kept);
    return w_.kept;
  }

  const Rows<T>& call_;
  Workspace& w_;
  RowSupport<T, Mapping> support_;
};

// max_Omega = <x, y> - gamma Omega(y), a number per row, and its derivatives in the strengths: y is optimal, so
// they are those of -gamma Omega at a fixed y.
template <class T, class Mapping>
class Maxima {
 public:
  Maxima(const Rows<T>& call, Workspace& w) : call_(call), w_(w), support_(call, w) {}

  // After y of row i is written.
  void add_row(int64_t i) {
    const int64_t d = call_.d;
    const T* const x = call_.x + i * d;
    find_kept(x, mask_row(call_.mask, i, d), d, w_.kept);
    const CompactedRow<T> row = support_.compact(i, x, w_.kept);
    double value, theta_grad, gamma_grad;
    if (row.m == 0) {
      value = support_.without_weights(i, -std::numeric_limits<double>::infinity());
      theta_grad = gamma_grad = support_.without_weights(i, 0);
    } else {
      const double gamma = call_.gamma.of(i);
      const int64_t kept = Mapping::joins == Joins::anywhere ? count_bits(w_.kept, d) : 0;
      const OmegaValue omega = Mapping::omega(row, call_.theta.of(i), kept, w_);
      // Relative to one of the scores: their differences on the support are small.
      const double origin = static_cast<double>(row.v[0]);
      double inner = 0;
      for (int64_t k = 0; k < row.m; ++k)
        inner += (static_cast<double>(row.v[k]) - origin) * static_cast<double>(row.y[k]);
      value = origin + (inner - gamma * omega.value);
      theta_grad = -gamma * omega.slope;
      gamma_grad = -omega.value;
    }
    if (call_.value) call_.value[i] = value;
    if (call_.theta_grad) call_.theta_grad[i] = theta_grad;
    if (call_.gamma_grad) call_.gamma_grad[i] = gamma_grad;
  }

 private:
  const Rows<T>& call_;
  Workspace& w_;
  RowSupport<T, Mapping> support_;
};

}  // namespace regmax::REGMAX_ISA
