// Jacobian products of short rows by their bits: v minus its mean on the support, without gathering. The sums
// of a group's rows, each a vector of partial sums, are finished together.
//
// That is all for sparsemax, and for most rows of fusedmax and oscarmax. Where weights are joined, every
// group of them has the mean of its v instead: in a copy of v (joined_means.hpp).
#pragma once

#include <cstdint>
#include <cstring>

#include "joined_means.hpp"
#include "lockstep_products.hpp"
#include "row_vectors.hpp"
#include "streaming.hpp"
#include "transpose.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

constexpr int64_t short_product = 512, short_joined_product = 256;

template <class T>
class ShortProducts {
 public:
  ShortProducts(int32_t kernel, const Workspace& w)
      : kernel_(kernel), copies_(static_cast<T*>(w.copies)), copy_stride_(w.copy_stride) {}

  // Multiplies the rows; returns the bits of those that are left to do: empty ones, which may be NaN, and
  // those with many joined weights.
  uint32_t run(const ProductRows<T>& rows) {
    return with_vectors<T>(rows.d, [&](auto vectors) { return multiply(rows, vectors); });
  }

 private:
  template <class Vectors>
  uint32_t multiply(const ProductRows<T>& rows, Vectors vectors) {
    uint32_t left = 0;
    for (int r = 0; r < lanes<T>; ++r) {
      const int count = rows.active >> r & 1 && find_direction(rows, r) ? add_up(rows, r, vectors) : 0;
      left |= static_cast<uint32_t>(count == 0) << r;
      counts_[r] = static_cast<T>(count ? count : 1);
    }
    store<T>(means_, sum_rows<T>(sums_) / load(counts_));
    for (int r = 0; r < lanes<T>; ++r) {
      if (!(left >> r & 1)) subtract(rows, r, vectors);
    }
    return left & rows.active;
  }

  // v, or a copy of it with the means of joined weights; false where it must be left.
  REGMAX_INLINE bool find_direction(const ProductRows<T>& rows, int r) {
    v_[r] = rows.v + r * rows.d;
    if (kernel_ == REGMAX_SPARSEMAX) return true;
    int count = 0;
    for (int64_t i = r * rows.words; i < (r + 1) * rows.words; ++i)
      count += __builtin_popcountll(rows.joined[i] & rows.support[i]);
    return count == 0 || (count <= JoinedWeights::most && average(rows, r));
  }

  bool average(const ProductRows<T>& rows, int r) {
    T* const copy = copies_ + r * copy_stride_;
    std::memcpy(copy, v_[r], static_cast<std::size_t>(rows.d) * sizeof(T));
    v_[r] = copy;
    const JoinedWeights joined(rows.support + r * rows.words, rows.joined + r * rows.words, rows.words);
    return kernel_ == REGMAX_FUSEDMAX ? joined.average_runs(copy)
                                      : joined.average_equals(rows.y + r * rows.d, copy);
  }

  // The words of the support, in words_, and the partial sums of v over it.
  template <class Vectors>
  REGMAX_INLINE int add_up(const ProductRows<T>& rows, int r, Vectors vectors) {
    const T *const v = v_[r], *const y = rows.y + r * rows.d;
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
    prefetch_row(rows.v + (lanes<T> + r) * rows.d, rows.d);
    const Vec<T> mean = splat(means_[r]);
    const T* const v = v_[r];
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

  int32_t kernel_;
  T* copies_;
  int64_t copy_stride_;
  const T* v_[lanes<T>];
  uint64_t words_[lanes<T>][short_product / 64];
  T counts_[lanes<T>], means_[lanes<T>];
  Vec<T> sums_[lanes<T>] = {};
};

}  // namespace regmax::REGMAX_ISA
