// The loop over rows of a Jacobian product, and its cascade of tiers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "mappings/mapping.hpp"
#include "rows/argmax.hpp"
#include "rows/lane_products.hpp"
#include "rows/row_numbers.hpp"
#include "rows/whole_products.hpp"

namespace regmax::REGMAX_ISA {

// Which of the chosen positions are joined to the kept position before, from the bits, or from equal weights.
template <class T>
inline void find_joined_bytes(const T* y, const uint64_t* joined, int64_t d, Workspace& w) {
  int64_t before = -1, k = 0;
  for (int64_t word = 0; word < words_of(d); ++word) {
    for (uint64_t rest = w.kept[word]; rest; rest &= rest - 1) {
      const int64_t i = word * 64 + __builtin_ctzll(rest);
      const uint64_t bit = rest & -rest;
      if (w.chosen[word] & bit) w.joined[k++] = joined ? (joined[word] & bit) != 0 : before >= 0 && y[before] == y[i];
      before = i;
    }
  }
}

// 1 / gamma; finite, so that a product of zero stays zero.
template <class T>
inline T inverse_gamma(const Rows<T>& call, int64_t i) {
  return static_cast<T>(smaller(1 / call.gamma.of(i), static_cast<double>(std::numeric_limits<T>::max())));
}

// The scalar tier: J acts on the support, or on every kept position for the proximal operators.
template <class T, class Mapping>
void multiply_scalar_row(const Rows<T>& call, int64_t i, Workspace& w) {
  const int64_t d = call.d;
  const T* const row_y = call.y ? call.y + i * d : nullptr;  // nullptr: the bits suffice
  T* const out = call.out + i * d;
  const uint8_t* const keep = mask_row(call.mask, i, d);
  if (!call.support) nonzero_bits(row_y, d, w.words);
  const uint64_t* const support = call.support ? bits_row(call.support, i, d) : w.words;
  mask_bits(keep, d, w.kept);
  for (int64_t k = 0; k < words_of(d); ++k) w.chosen[k] = w.kept[k] & (Mapping::on_simplex ? support[k] : ~uint64_t{0});
  // A row of NaN has no support bits, like a row of zeros: y tells them apart.
  const bool has_support = count_bits(w.chosen, d) > 0;
  if (!(call.support && has_support && Mapping::on_simplex) && call.is_nan(i))
    return fill_kept(out, keep, d, std::numeric_limits<T>::quiet_NaN());
  if (!has_support) return fill_kept(out, keep, d, T(0));
  T *const y = static_cast<T*>(w.candidates), *const v = static_cast<T*>(w.compacted);
  const int64_t m = compact_row(call.v + i * d, w.chosen, d, v);
  if (row_y) {
    compact_row(row_y, w.chosen, d, y);
  } else {
    std::fill_n(y, m, T(1));
  }
  if (Mapping::joins == Joins::neighbours) find_joined_bytes(row_y, bits_row(call.joined, i, d), d, w);
  Mapping::multiply(CompactedRow<T>{y, v, w.joined, m}, call.theta.of(i), w);
  if (call.has_gamma()) {
    const T scale = inverse_gamma(call, i);
    for (int64_t k = 0; k < m; ++k) v[k] *= scale;
  }
  expand_row(v, w.chosen, d, out);
}

// The same cascade as for argmax (cascade.hpp).
template <class T, class Mapping>
class ProductCascade {
 public:
  ProductCascade(const Rows<T>& call, Tier forced, Workspace& w)
      : call_(call),
        out_(call.out),
        w_(w),
        lane_products_(w),
        whole_products_(joined_products(), w),
        strength_grads_(call_, w) {
    const bool bits = Mapping::joins == Joins::nothing || (call.support && call.joined);
    const bool whole_first = call.d <= Mapping::product_whole_first && bits;
    lanes_ = forced == Tier::any ? !whole_first : forced == Tier::lanes;
    whole_ = forced == Tier::any || forced == Tier::whole;
    streamed_ = !call.in_cache && is_streamed(call.out, call.n, call.d);
    // Gradients of strengths read the product again: it is streamed from a copy of the group.
    copied_ = streamed_ && call.has_row_numbers();
    for (int r = 0; r < lanes<T>; ++r) scale_[r] = inverse_gamma(call, 0), less_one_[r] = strength_less_one(0);
  }

  void run(int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += lanes<T>) {
      const int count = static_cast<int>(end - first < lanes<T> ? end - first : lanes<T>);
      const uint32_t all = all_lanes<T> >> (lanes<T> - count), fast = fitting_rows(first, count);
      const int64_t at = first * call_.d;
      if (copied_) call_.out = from_row(static_cast<T*>(w_.groups), first, call_.d);
      if (call_.has_row_numbers()) prefetch_weights(first + lanes<T>, end);
      if (call_.gamma.per_row) {
        for (int r = 0; r < count; ++r) scale_[r] = inverse_gamma(call_, first + r);
      }
      for (int r = 0; call_.theta.per_row && r < count; ++r) less_one_[r] = strength_less_one(first + r);
      const ProductGroup<T> rows{call_.y ? call_.y + at : nullptr,
                                 call_.v + at,
                                 call_.out + at,
                                 bits_row(call_.support, first, call_.d),
                                 Mapping::joins == Joins::nothing ? nullptr : bits_row(call_.joined, first, call_.d),
                                 call_.d,
                                 words_of(call_.d),
                                 streamed_ && !copied_,
                                 scale_,
                                 less_one_};
      uint32_t left = fast;
      if (lanes_ && left) left = lane_products_.run(rows, left);
      for (uint32_t rest = whole_ && lanes_ ? sparse_rows(rows, left) : 0; rest; rest &= rest - 1) {
        const int r = __builtin_ctz(rest);
        multiply_scalar_row<T, Mapping>(call_, first + r, w_);
        left &= ~(1u << r);
      }
      if (whole_ && left) left = whole_products_.run(rows, left);
      for (left |= all & ~fast; left; left &= left - 1)
        multiply_scalar_row<T, Mapping>(call_, first + __builtin_ctz(left), w_);
      if (call_.has_row_numbers()) strength_grads_.add_rows(first, count);
      for (int64_t i = at; copied_ && i < at + count * call_.d; i += lanes<T>) stream<T>(out_ + i, load(call_.out + i));
    }
    if (streamed_) finish_streams();
  }

 private:
  static const JoinedProducts<T>* joined_products() {
    if constexpr (Mapping::joins == Joins::nothing) {
      return nullptr;
    } else {
      static constexpr JoinedProducts<T> joins{Mapping::template average_few<T>, Mapping::template multiply_whole<T>};
      return &joins;
    }
  }

  // The lines of short rows that have weights, of which the product reads only the bits: the gradients of strengths
  // would wait for them.
  void prefetch_weights(int64_t first, int64_t end) const {
    constexpr int line = cache_line / static_cast<int>(sizeof(T));
    if (Mapping::Product::reads_weights || !call_.support || call_.listed || call_.d > prefetched_row) return;
    for (int64_t i = first; i < first + lanes<T> && i < end; ++i) {
      const uint64_t* const words = bits_row(call_.support, i, call_.d);
      const T* const y = call_.y + i * call_.d;
      for (int64_t at = 0; at < call_.d; at += line) {
        const bool has_weights = words[at / 64] >> (at % 64) & ((uint64_t{1} << line) - 1);
        __builtin_prefetch(y + (has_weights ? at : 0), 0, 2);
      }
    }
  }

  T strength_less_one(int64_t i) const { return static_cast<T>(call_.theta.of(i) - 1); }

  // The rows whose few weights are worth compacting: a pass over the whole row takes a root of every weight.
  uint32_t sparse_rows(const ProductGroup<T>& rows, uint32_t left) const {
    uint32_t sparse = 0;
    for (; Mapping::Product::reads_weights && rows.support && left; left &= left - 1) {
      const int r = __builtin_ctz(left);
      const int64_t count = count_bits(rows.support + r * rows.words, rows.d);
      sparse |= static_cast<uint32_t>(count > 0 && count * sparse_share <= rows.d) << r;
    }
    return sparse;
  }

  uint32_t fitting_rows(int64_t first, int count) const {
    if (!call_.theta.per_row)
      return Mapping::fits_products(call_.theta.shared, call_.joined) ? all_lanes<T> >> (lanes<T> - count) : 0;
    uint32_t fast = 0;
    for (int r = 0; r < count; ++r) {
      const bool fits = Mapping::fits_products(call_.theta.per_row[first + r], call_.joined);
      fast |= static_cast<uint32_t>(fits) << r;
    }
    return fast;
  }

  Rows<T> call_;
  T* const out_;
  Workspace& w_;
  LaneProducts<T, Mapping> lane_products_;
  WholeProducts<T, typename Mapping::Product> whole_products_;
  StrengthGrads<T, Mapping> strength_grads_;
  T scale_[lanes<T>], less_one_[lanes<T>];
  bool lanes_, whole_, streamed_, copied_;
};

// The leading numbers of prox_oscar: few of them are not zero.
template <class T>
class LeadingProducts {
 public:
  LeadingProducts(const Rows<T>& call, Tier forced, Workspace& w)
      : call_(call), w_(w), products_(w), strength_grads_(call, w) {
    lanes_ = call.support && (forced == Tier::any || forced == Tier::lanes);
    streamed_ = call.may_stream() && is_streamed(call.out, call.n, call.d);
  }

  void run(int64_t begin, int64_t end) {
    const int64_t d = call_.d, words = words_of(d);
    T scale[lanes<T>], less_one[lanes<T>] = {};
    for (int64_t first = begin; first < end; first += lanes<T>) {
      const int count = static_cast<int>(end - first < lanes<T> ? end - first : lanes<T>);
      uint32_t fast = 0;
      for (int r = 0; r < lanes<T>; ++r) {
        const int64_t i = first + (r < count ? r : 0);
        scale[r] = inverse_gamma(call_, i);
        fast |= static_cast<uint32_t>(r < count && fits(i)) << r;
      }
      const int64_t at = first * d;
      uint32_t left = all_lanes<T> >> (lanes<T> - count);
      if (fast) {
        const ProductGroup<T> rows{
            call_.y + at, call_.v + at, call_.out + at, bits_row(call_.support, first, d), nullptr, d, words,
            streamed_,    scale,        less_one};
        left = (left & ~fast) | products_.run(rows, fast);
      }
      for (; left; left &= left - 1) multiply_scalar_row<T, LeadingOscar>(call_, first + __builtin_ctz(left), w_);
      if (call_.has_row_numbers()) strength_grads_.add_rows(first, count);
    }
    if (streamed_) finish_streams();
  }

 private:
  // A zero that is the only one moves with its score: the product is not zero there.
  bool fits(int64_t i) {
    if (!lanes_ || !LeadingOscar::fits_vectors(call_.theta.of(i))) return false;
    int64_t kept = call_.d;
    if (const uint8_t* const keep = mask_row(call_.mask, i, call_.d)) {
      mask_bits(keep, call_.d, w_.kept);
      kept = count_bits(w_.kept, call_.d);
    }
    return kept - count_bits(bits_row(call_.support, i, call_.d), call_.d) != 1;
  }

  const Rows<T>& call_;
  Workspace& w_;
  LaneProducts<T, LeadingOscar::Few> products_;
  StrengthGrads<T, LeadingOscar> strength_grads_;
  bool lanes_, streamed_;
};

template <class T, class Mapping>
void multiply_rows(const Rows<T>& call, Tier forced, int64_t begin, int64_t end, Workspace& w) {
  if constexpr (Mapping::on_simplex) {
    ProductCascade<T, Mapping>(call, forced, w).run(begin, end);
  } else if constexpr (leads<Mapping>) {
    LeadingProducts<T>(call, forced, w).run(begin, end);
  } else {
    StrengthGrads<T, Mapping> strength_grads(call, w);
    for (int64_t i = begin; i < end; ++i) {
      multiply_scalar_row<T, Mapping>(call, i, w);
      if (call.has_row_numbers()) strength_grads.add_rows(i, 1);
    }
  }
}

// Whether the bits of a call suffice for its product, without weights.
template <class T, class Mapping>
bool has_enough_bits(const Rows<T>& call) {
  if constexpr (Mapping::on_simplex && Mapping::joins != Joins::anywhere) {
    return !Mapping::Product::reads_weights && call.support && !call.has_row_numbers() &&
           (Mapping::joins == Joins::nothing || call.joined);
  }
  return false;
}

template <class T, class Blocks = WholeArrays>
int32_t jacobian_product(const Rows<T>& call, const Blocks& blocks = {}) {
  const auto multiply = [&](auto mapping) {
    using Mapping = decltype(mapping);
    if (call.n == 0 || call.d == 0) return int32_t{REGMAX_OK};
    if (!call.y && !has_enough_bits<T, Mapping>(call)) return int32_t{REGMAX_BAD_ARGUMENT};
    const Tier forced = forced_tier();
    using Space = typename Blocks::Space;
    return for_rows<Space>(call.n, call.d, call.threads, [&](int64_t begin, int64_t end, Space& w) {
      blocks(call, begin, end, w, [&](const Rows<T>& rows) { multiply_rows<T, Mapping>(rows, forced, begin, end, w); });
    });
  };
  return with_mapping(call.kernel, call.theta.shared, call.theta.per_row, call.n, multiply, call.has_row_numbers());
}

}  // namespace regmax::REGMAX_ISA
