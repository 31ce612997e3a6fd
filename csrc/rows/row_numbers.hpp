// Numbers of a row that depend on its weights and on few others: the gradients of its strengths, max_Omega.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

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
    const uint64_t* const chosen = choose(i, kept);
    CompactedRow<T> row = gather(i, others, chosen);
    if (has_gaps && row.m > 0) find_gaps(chosen, kept, row.m);
    row.apart = has_gaps ? w_.joined : nullptr;
    return row;
  }

  // The bits of a row's weights.
  const uint64_t* choose(int64_t i, const uint64_t* kept) {
    const T* const y = call_.y + i * call_.d;
    if (!Mapping::on_simplex && !call_.is_nan(i)) return kept;
    if (Mapping::on_simplex && call_.support) return bits_row(call_.support, i, call_.d);
    if (Mapping::on_simplex) {
      positive_bits(y, call_.d, w_.chosen);
    } else {
      clear_bits(w_.chosen, call_.d);
    }
    return w_.chosen;
  }

  // The weights of row i, and other numbers, at the chosen positions. Few are gathered one by one.
  CompactedRow<T> gather(int64_t i, const T* others, const uint64_t* chosen) const {
    const T* const y = call_.y + i * call_.d;
    T *const weights = static_cast<T*>(w_.candidates), *const compacted = static_cast<T*>(w_.compacted);
    int64_t m = 0;
    for (int64_t word = 0; word < words_; ++word) {
      const int64_t at = 64 * word;
      if (__builtin_popcountll(chosen[word]) > 16) {
        compact_word<T>(y + at, call_.d - at, chosen[word], weights + m);
        m += compact_word<T>(others + at, call_.d - at, chosen[word], compacted + m);
        continue;
      }
      for (uint64_t rest = chosen[word]; rest; rest &= rest - 1, ++m) {
        const int64_t k = at + __builtin_ctzll(rest);
        weights[m] = y[k];
        compacted[m] = others[k];
      }
    }
    return {weights, compacted, nullptr, m};
  }

  // A number of a row without weights: NaN if the row is NaN.
  double without_weights(int64_t i, double value) const {
    return call_.is_nan(i) ? std::numeric_limits<double>::quiet_NaN() : value;
  }

 private:
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

// Whether the gradients of strengths are finished one row per lane.
template <class Mapping, class = void>
constexpr bool has_grads = false;
template <class Mapping>
constexpr bool has_grads<Mapping, std::void_t<typename Mapping::Grads>> = true;

// The derivatives of <v, y> in the strengths, a number per row, from the finished Jacobian product.
template <class T, class Mapping>
class StrengthGrads {
 public:
  StrengthGrads(const Rows<T>& call, Workspace& w) : call_(call), w_(w), support_(call, w) {}

  // After J v / gamma of `count` rows is written, at most as many as a vector has lanes.
  void add_rows(int64_t first, int count) {
    if constexpr (has_grads<Mapping>) {
      add_group(first, count);
    } else {
      uint32_t left = (uint32_t{1} << count) - 1;
      if constexpr (Mapping::on_simplex && Mapping::joins != Joins::nothing) left = add_few_weights(first, left);
      for (; left; left &= left - 1) {
        const int64_t i = first + __builtin_ctz(left);
        put(i, find_grads(i));
      }
    }
  }

 private:
  void put(int64_t i, const StrengthGrad& grads) {
    if (call_.theta_grad) call_.theta_grad[i] = call_.gamma.of(i) * grads.theta;  // the product is J v / gamma
    if (call_.gamma_grad) call_.gamma_grad[i] = grads.gamma;
  }

  // The gradients of the `wanted` rows that have few weights, one row per lane; returns the other rows.
  uint32_t add_few_weights(int64_t first, uint32_t wanted) {
    constexpr int64_t stride = REGMAX_LISTED + lanes<T>;
    T weights[lanes<T> * stride], products[lanes<T> * stride];
    typename Mapping::template LaneStrengths<T> strengths;
    uint32_t found = 0;
    int most = 1;
    for (int r = 0; r < lanes<T>; ++r) {
      T *const y = weights + r * stride, *const u = products + r * stride;
      const int count = wanted >> r & 1 ? gather(first + r, y, u) : 0;
      for (int64_t k = count; k < REGMAX_LISTED; k += lanes<T>) store<T>(y + k, Vec<T>{}), store<T>(u + k, Vec<T>{});
      if (!count) continue;
      strengths.add_row(r, bits_row(call_.support, first + r, call_.d), call_.d, count);
      found |= 1u << r;
      most = count > most ? count : most;
    }
    if (!found) return wanted;
    Vec<T> y[REGMAX_LISTED], u[REGMAX_LISTED], inner{};
    rows_to_lanes<T>(weights, stride, most, y);
    rows_to_lanes<T>(products, stride, most, u);
    for (int k = 0; k < most; ++k) inner = times_plus(y[k], u[k], inner);
    double sums[lanes<T>];
    strengths.sum(y, u, most, sums);
    for (uint32_t rest = found; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      put(first + r, {sums[r], call_.theta.of(first + r) * sums[r] - static_cast<double>(inner[r])});
    }
    return wanted & ~found;
  }

  // Compacts the weights of row i and the product at their positions; returns their number, or 0 if they are not few or
  // a position is deleted that may separate them. Both arrays have room for a vector more.
  int gather(int64_t i, T* weights, T* products) {
    const int64_t d = call_.d;
    if (RowSupport<T, Mapping>::has_gaps ? !is_whole(i) : !call_.support) return 0;
    const uint64_t* const support = bits_row(call_.support, i, d);
    const int64_t m = count_bits(support, d);
    if (m > REGMAX_LISTED) return 0;
    if (call_.listed) {
      std::memcpy(weights, call_.listed + i * REGMAX_LISTED, REGMAX_LISTED * sizeof(T));
    } else {
      gather_few(call_.y + i * d, support, d, weights);
    }
    gather_few(call_.out + i * d, support, d, products);
    return static_cast<int>(m);
  }

  // Sums row by row, then the gradients of all rows.
  void add_group(int64_t first, int count) {
    using Grads = typename Mapping::Grads;
    constexpr int halves = lanes<T> / lanes<double>;
    Vec<double> sums[Grads::sums][lanes<T>];
    double thetas[lanes<T>];
    uint32_t empty = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      const int64_t i = first + (r < count ? r : 0);
      thetas[r] = call_.theta.of(i);
      Vec<double> row[Grads::sums];
      if (r >= count || !add_up<Grads>(i, static_cast<T>(thetas[r] - 1), row)) {
        empty |= 1u << r;
        for (int k = 0; k < Grads::sums; ++k) row[k] = splat(1.0);
      }
      for (int k = 0; k < Grads::sums; ++k) sums[k][r] = row[k];
    }
    for (int h = 0; h < halves; ++h) {
      Vec<double> totals[Grads::sums];
      for (int k = 0; k < Grads::sums; ++k) totals[k] = sum_rows<double>(sums[k] + h * lanes<double>);
      const typename Grads::template Of<Vec<double>> grads(totals, load(thetas + h * lanes<double>));
      for (int k = 0; k < lanes<double>; ++k) {
        const int r = h * lanes<double> + k;
        if (r >= count) break;
        const double none = empty >> r & 1 ? support_.without_weights(first + r, 0) : 0;
        put(first + r, empty >> r & 1 ? StrengthGrad{none, none} : StrengthGrad{grads.strength[k], grads.gamma[k]});
      }
    }
  }

  // The sums of row i by lane; false if it has no weights. Rows with few weights are compacted.
  template <class Grads>
  bool add_up(int64_t i, T less_one, Vec<double>* totals) {
    const int64_t d = call_.d;
    const uint64_t* const chosen = support_.choose(i, nullptr);
    const int64_t m = count_bits(chosen, d);
    if (m == 0) return false;
    CompactedRow<T> row{call_.y + i * d, call_.out + i * d, nullptr, d};
    if (d > few_vectors * lanes<T> && m * summed_share < d) row = support_.gather(i, row.v, chosen);
    constexpr int64_t stretch = 16 * lanes<T>;
    for (int k = 0; k < Grads::sums; ++k) totals[k] = Vec<double>{};
    for (int64_t begin = 0; begin < row.m; begin += stretch) {
      Vec<T> sums[Grads::sums] = {};
      const int64_t end = row.m - begin < stretch ? row.m : begin + stretch;
      for (int64_t at = begin; at < end; at += lanes<T>) {
        const int64_t left = row.m - at;
        Grads::template add<T>(load_left(row.y + at, left, T(0)), load_left(row.v + at, left, T(0)), splat(less_one),
                               sums);
      }
      for (int k = 0; k < Grads::sums; ++k) totals[k] += add_halves(sums[k]);
    }
    return true;
  }

  StrengthGrad find_grads(int64_t i) {
    const int64_t d = call_.d;
    const double theta = call_.theta.of(i);
    const T* const out = call_.out + i * d;
    if constexpr (RowSupport<T, Mapping>::has_gaps) {
      if (is_whole(i)) return Mapping::whole_row_grads(call_.y + i * d, out, bits_row(call_.support, i, d), d, theta);
    }
    const CompactedRow<T> row = support_.compact(i, out, kept_words(i));
    if (row.m == 0) return {support_.without_weights(i, 0), support_.without_weights(i, 0)};
    return {call_.theta_grad ? Mapping::strength_grad(row, theta, w_) : 0,
            call_.gamma_grad ? Mapping::gamma_grad(row, theta, w_) : 0};
  }

  // Whether a row has weights, and nothing is deleted.
  bool is_whole(int64_t i) const {
    return call_.support && keeps_all(i) && count_bits(bits_row(call_.support, i, call_.d), call_.d) > 0;
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
