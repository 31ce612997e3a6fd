// sparsemax's Jacobian products of short rows: v minus its mean on the support, without gathering. The sums
// of a group's rows, each a vector of partial sums, are finished together.
#pragma once

#include <cstdint>

#include "lockstep_products.hpp"
#include "row_vectors.hpp"
#include "streaming.hpp"
#include "transpose.hpp"

namespace regmax::REGMAX_ISA {

constexpr int64_t short_product = 512;

template <class T>
class ShortProducts {
 public:
  static constexpr int64_t streamed_row = 128;  // shorter rows take longer to compute than to store

  // Multiplies the rows; returns the bits of those that are left to do: empty ones, which may be NaN.
  uint32_t run(const ProductRows<T>& rows) {
    return with_vectors<T>(rows.d, [&](auto vectors) { return multiply(rows, vectors); });
  }

 private:
  template <class Vectors>
  uint32_t multiply(const ProductRows<T>& rows, Vectors vectors) {
    uint32_t left = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      const int count = rows.active >> r & 1 ? add_up(rows, r, vectors) : 0;
      left |= static_cast<uint32_t>(count == 0) << r;
      counts_[r] = static_cast<T>(count ? count : 1);
    }
    store<T>(means_, sum_rows<T>(sums_) / load(counts_));
    for (int r = 0; r < lanes<T>; ++r) {
      if (!(left >> r & 1)) subtract(rows, r, vectors);
    }
    return left & rows.active;
  }

  // The words of the support, in words_, and the partial sums of v over it.
  template <class Vectors>
  REGMAX_INLINE int add_up(const ProductRows<T>& rows, int r, Vectors vectors) {
    const T *const v = rows.v + r * rows.d, *const y = rows.y + r * rows.d;
    const uint64_t* const support = rows.support ? rows.support + r * rows.words : nullptr;
    const int64_t d = rows.d;
    Vec<T> sum{};
    int count = 0;
    for_words<T>(vectors, [&](int64_t i, auto size) __attribute__((always_inline)) {
      uint64_t word = 0;
      if (support) {
        word = support[i / vectors_per_word<T>];
      } else {
        for (int c = 0; c < size; ++c) {
          const Vec<T> yi = load_vector<T>(y, i + c, d, vectors);
          word |= static_cast<uint64_t>(bits(greater(yi, Vec<T>{}))) << (c * lanes<T>);
        }
      }
      for (int c = 0; c < size; ++c)
        sum = add_where(supported(word, c), sum, load_vector<T>(v, i + c, d, vectors));
      words_[r][i / vectors_per_word<T>] = word;
      count += __builtin_popcountll(word);
    });
    sums_[r] = sum;
    return count;
  }

  static REGMAX_INLINE Where<T> supported(uint64_t word, int c) {
    return from_bits<T>(lanes_of<T>(word, c * lanes<T>));
  }

  template <class Vectors>
  REGMAX_INLINE void subtract(const ProductRows<T>& rows, int r, Vectors vectors) {
    const Vec<T> mean = splat(means_[r]);
    const T* const v = rows.v + r * rows.d;
    T* const out = rows.out + r * rows.d;
    const int64_t d = rows.d;
    const bool streamed = rows.streamed;
    for_words<T>(vectors, [&](int64_t i, auto size) __attribute__((always_inline)) {
      const uint64_t word = words_[r][i / vectors_per_word<T>];
      for (int c = 0; c < size; ++c) {
        const Vec<T> centred = load_vector<T>(v, i + c, d, vectors) - mean;
        put_vector<T>(out, i + c, d, select(supported(word, c), centred, Vec<T>{}), streamed, vectors);
      }
    });
  }

  uint64_t words_[lanes<T>][short_product / 64];
  T counts_[lanes<T>], means_[lanes<T>];
  Vec<T> sums_[lanes<T>] = {};
};

}  // namespace regmax::REGMAX_ISA
