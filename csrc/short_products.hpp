// sparsemax's Jacobian products of short rows: v minus its mean on the support, without gathering. The sums
// of a group's rows, each a vector of partial sums, are finished together.
#pragma once

#include <cstdint>

#include "lockstep_products.hpp"
#include "screening.hpp"
#include "transpose.hpp"

namespace regmax::REGMAX_ISA {

constexpr int64_t short_product = 512;

template <class T>
class ShortProducts {
 public:
  static constexpr int64_t streamed_row = 128;  // shorter rows take longer to compute than to store

  // Multiplies the rows; returns the bits of those that are left to do: empty ones, which may be NaN.
  uint32_t run(const ProductRows<T>& rows) {
    uint32_t left = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      const int count = rows.active >> r & 1 ? add_up(rows, r) : 0;
      left |= static_cast<uint32_t>(count == 0) << r;
      counts_[r] = static_cast<T>(count ? count : 1);
    }
    find_means();
    for (int r = 0; r < lanes<T>; ++r) {
      if (!(left >> r & 1)) subtract(rows, r);
    }
    return left & rows.active;
  }

 private:
  // The words of the support, in words_, and the partial sums of v over it.
  int add_up(const ProductRows<T>& rows, int r) {
    uint64_t* const words = words_[r];
    const T* const v = rows.v + r * rows.d;
    if (rows.support) {
      for (int64_t i = 0; i < rows.words; ++i) words[i] = rows.support[r * rows.words + i];
    } else {
      find_positive(rows.y + r * rows.d, rows.d, words);
    }
    int count = 0;
    for (int64_t i = 0; i < rows.words; ++i) count += __builtin_popcountll(words[i]);
    Vec<T> sum{};
    int64_t i = 0;
    for (; i + lanes<T> <= rows.d; i += lanes<T>) sum = add_where(supported(words, i), sum, load(v + i));
    if (i < rows.d) sum = add_where(supported(words, i), sum, load_left(v + i, rows.d - i, T(0)));
    sums_[r] = sum;
    return count;
  }

  static Where<T> supported(const uint64_t* words, int64_t i) {
    return from_bits<T>(lanes_of<T>(words[i / 64], static_cast<int>(i % 64)));
  }

  void find_means() { store<T>(means_, sum_rows<T>(sums_) / load(counts_)); }

  void subtract(const ProductRows<T>& rows, int r) {
    const Vec<T> mean = splat(means_[r]);
    const T* const v = rows.v + r * rows.d;
    T* const out = rows.out + r * rows.d;
    const uint64_t* const words = words_[r];
    int64_t i = 0;
    for (; i + lanes<T> <= rows.d; i += lanes<T>) {
      put<T>(out + i, select(supported(words, i), load(v + i) - mean, Vec<T>{}), rows.streamed);
    }
    if (i < rows.d) {
      const Vec<T> centred = load_left(v + i, rows.d - i, T(0)) - mean;
      store_left<T>(out + i, rows.d - i, select(supported(words, i), centred, Vec<T>{}));
    }
  }

  uint64_t words_[lanes<T>][short_product / 64];
  T counts_[lanes<T>], means_[lanes<T>];
  Vec<T> sums_[lanes<T>] = {};
};

}  // namespace regmax::REGMAX_ISA
