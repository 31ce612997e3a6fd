// Jacobian products, whole-row tier: passes over whole rows, without gathering. The sums of a group's rows, a
// vector of partial sums each, are finished together.
//
// Most rows of fusedmax and oscarmax have few joined weights or none: their means are taken in a copy of v.
// Rows with many go to the mapping's own pass. Rows without weights, which may be NaN, are left.
#pragma once

#include <cstdint>
#include <cstring>

#include "mappings/products.hpp"
#include "rows/group.hpp"
#include "simd/row_vectors.hpp"
#include "simd/transpose.hpp"

namespace regmax::REGMAX_ISA {

// How a mapping treats joined weights.
template <class T>
struct JoinedProducts {
  // Replaces v by group means at the few joined positions; false if it cannot.
  bool (*average_few)(const JoinedPositions& joined, const T* y, T* v);
  // Writes scale J v of a whole row with many joined weights; false if it cannot.
  bool (*multiply_whole)(const T* y, const T* v, const uint64_t* support, const uint64_t* joined, int64_t d, T scale,
                         T* out, Workspace& w);
};

template <class T, class Product>
class WholeProducts {
 public:
  // `joins` is nullptr for mappings that join nothing.
  WholeProducts(const JoinedProducts<T>* joins, Workspace& w)
      : joins_(joins), w_(w), words_(w.words), copies_(static_cast<T*>(w.copies)), copy_stride_(w.copy_stride) {}

  // Multiplies the `wanted` rows; returns the bits of those that are left.
  uint32_t run(const ProductGroup<T>& rows, uint32_t wanted) {
    return with_vectors<T>(rows.d, [&](auto vectors) __attribute__((always_inline)) {
      if (rows.support && !Product::reads_weights) return multiply<true>(rows, wanted, vectors);
      return multiply<false>(rows, wanted, vectors);
    });
  }

 private:
  template <bool given, class Vectors>
  uint32_t multiply(const ProductGroup<T>& rows, uint32_t wanted, Vectors vectors) {
    uint32_t skipped = 0;
    written_ = 0;
    const int batch = is_constant<Vectors> ? lanes<T> : rows_at_once(rows.d);
    for (int first = 0; first < lanes<T>; first += batch) {
      for (int r = first; r < first + batch; ++r) {
        v_[r] = rows.v + r * rows.d;
        const bool ready = wanted >> r & 1 && (!joins_ || find_direction(rows, r));
        const int count = ready ? add_up<given>(rows, r, vectors) : 0;
        skipped |= static_cast<uint32_t>(count == 0) << r;
        counts_[r] = static_cast<T>(count ? count : 1);
      }
      Vec<T> sums[Product::sums], factors[Product::factors];
      for (int k = 0; k < Product::sums; ++k) sums[k] = sum_rows<T>(sums_[k]);
      Product::find_factors(sums, load(counts_), load(rows.scale), load(rows.less_one), factors);
      for (int k = 0; k < Product::factors; ++k) store<T>(factors_[k], factors[k]);
      for (int r = first; r < first + batch; ++r) {
        if (!(skipped >> r & 1)) write<given>(rows, r, vectors);
      }
    }
    return wanted & skipped & ~written_;
  }

  // How many rows are passed over twice together, so that what they read stays in the level-one cache.
  static int rows_at_once(int64_t d) {
    constexpr int64_t bytes = (Product::reads_weights ? 3 : 1) * static_cast<int64_t>(sizeof(T));
    int count = lanes<T>;
    while (count > 1 && count * d * bytes > passed_twice_bytes) count /= 2;
    return count;
  }

  // The direction of a row: v, or a copy of it with group means. False if the row is left, or written already
  // by the mapping's own pass.
  REGMAX_INLINE bool find_direction(const ProductGroup<T>& rows, int r) {
    if (!rows.support || !rows.joined) return write_alone(rows, r), false;
    const uint64_t *const support = rows.support + r * rows.words, *const joined = rows.joined + r * rows.words;
    int64_t count = 0;
    for (int64_t i = 0; i < rows.words; ++i) count += __builtin_popcountll(joined[i] & support[i]);
    const bool is_all = count == rows.d, is_few = count <= most_joined;
    if (count == 0 || (is_few && !is_all && average(rows, r))) return true;
    // A row that is all joined may be uniform, which the mapping's pass sees at once.
    return !write_alone(rows, r) && is_few && is_all && average(rows, r);
  }

  bool average(const ProductGroup<T>& rows, int r) {
    T* const copy = copies_ + r * copy_stride_;
    std::memcpy(copy, v_[r], static_cast<std::size_t>(rows.d) * sizeof(T));
    v_[r] = copy;
    const JoinedPositions joined(rows.support + r * rows.words, rows.joined + r * rows.words, rows.words);
    return joins_->average_few(joined, rows.y + r * rows.d, copy);
  }

  // Whether the mapping's own pass wrote the row.
  bool write_alone(const ProductGroup<T>& rows, int r) {
    const T* const y = rows.y + r * rows.d;
    const uint64_t* const support = (rows.support ? rows.support : words_) + r * rows.words;
    if (!rows.support) positive_bits(y, rows.d, words_ + r * rows.words);
    const uint64_t* const joined = rows.joined ? rows.joined + r * rows.words : nullptr;
    const bool written =
        count_bits(support, rows.d) > 1 && joins_->multiply_whole(y, rows.v + r * rows.d, support, joined, rows.d,
                                                                  rows.scale[r], rows.out + r * rows.d, w_);
    written_ |= static_cast<uint32_t>(written) << r;
    return written;
  }

  // The partial sums over the support, whose words are `given` or found; returns its size.
  template <bool given, class Vectors>
  REGMAX_INLINE int add_up(const ProductGroup<T>& rows, int r, Vectors vectors) {
    const T *const v = v_[r], *const y = rows.y + r * rows.d;
    const uint64_t* const support = given ? rows.support + r * rows.words : nullptr;
    uint64_t* const words = words_ + r * rows.words;
    T* const roots = copies_ + r * copy_stride_;
    const Vec<T> less_one = splat(rows.less_one[r]);
    const int64_t d = rows.d;
    Vec<T> sums[Product::sums] = {}, totals[Product::sums] = {};
    int count = 0;
    for_words<T>(vectors, [&](int64_t i, auto size) __attribute__((always_inline)) {
      uint64_t word = given ? support[i / vectors_per_word<T>] : 0;
      for (int c = 0; c < size; ++c) {
        const Vec<T> yi = given ? Vec<T>{} : load_vector<T>(y, i + c, d, vectors);
        const Where<T> supported = given ? lanes_at(word, c) : greater(yi, Vec<T>{});
        if (!given) word |= static_cast<uint64_t>(bits(supported)) << (c * lanes<T>);
        Vec<T> root{};
        if (Product::reads_weights) {
          root = Product::template root<T>(yi, less_one);
          store<T>(roots + (i + c) * lanes<T>, root);
        }
        Product::template add<T>(supported, yi, root, load_vector<T>(v, i + c, d, vectors), sums);
      }
      if (!given && !Product::reads_weights) words[i / vectors_per_word<T>] = word;
      count += __builtin_popcountll(word);
      // Partial sums over stretches: their rounding does not grow with the row.
      if (!is_constant<Vectors> && i / vectors_per_word<T> % 16 == 15) {
        for (int k = 0; k < Product::sums; ++k) totals[k] += sums[k], sums[k] = Vec<T>{};
      }
    });
    for (int k = 0; k < Product::sums; ++k) sums_[k][r] = is_constant<Vectors> ? sums[k] : totals[k] + sums[k];
    return count;
  }

  static REGMAX_INLINE Where<T> lanes_at(uint64_t word, int c) { return from_bits<T>(lanes_of<T>(word, c * lanes<T>)); }

  template <bool given, class Vectors>
  REGMAX_INLINE void write(const ProductGroup<T>& rows, int r, Vectors vectors) {
    prefetch_row(rows.v + (lanes<T> + r) * rows.d, rows.d);
    if (Product::reads_weights) prefetch_row(rows.y + (lanes<T> + r) * rows.d, rows.d);
    Vec<T> factors[Product::factors];
    for (int k = 0; k < Product::factors; ++k) factors[k] = splat(factors_[k][r]);
    const T *const v = v_[r], *const y = rows.y + r * rows.d, *const roots = copies_ + r * copy_stride_;
    const uint64_t* const words = (given ? rows.support : words_) + r * rows.words;
    T* const out = rows.out + r * rows.d;
    const int64_t d = rows.d;
    const bool streamed = rows.streamed;
    for_words<T>(vectors, [&](int64_t i, auto size) __attribute__((always_inline)) {
      const uint64_t word = Product::reads_weights ? 0 : words[i / vectors_per_word<T>];
      for (int c = 0; c < size; ++c) {
        const Vec<T> root = Product::reads_weights ? load(roots + (i + c) * lanes<T>) : Vec<T>{};
        const Vec<T> yi = Product::reads_weights ? load_vector<T>(y, i + c, d, vectors) : Vec<T>{};
        const Where<T> supported = Product::reads_weights ? greater(yi, Vec<T>{}) : lanes_at(word, c);
        const Vec<T> product = Product::multiply(yi, root, load_vector<T>(v, i + c, d, vectors), factors);
        put_vector<T>(out, i + c, d, select(supported, product, Vec<T>{}), streamed, vectors);
      }
    });
  }

  const JoinedProducts<T>* joins_;
  Workspace& w_;
  uint64_t* words_;
  T* copies_;
  int64_t copy_stride_;
  const T* v_[lanes<T>];
  uint32_t written_ = 0;
  T counts_[lanes<T>], factors_[Product::factors][lanes<T>];
  Vec<T> sums_[Product::sums][lanes<T>] = {};
};

}  // namespace regmax::REGMAX_ISA
