// Masks of the rows of a call. Most are prefixes, for which a length suffices; other rows are copied without
// their deleted scores.
#pragma once

#include <cstdint>
#include <limits>

#include "rows/group.hpp"
#include "simd/candidates.hpp"

namespace regmax::REGMAX_ISA {

inline const uint8_t* mask_row(const Mask& mask, int64_t i, int64_t d) {
  return mask.bytes ? mask.bytes + i / mask.repeat % mask.rows * d : nullptr;
}

// Iterates over the rows: the length of each mask that is a prefix, as padding and causal masks are, -1 for
// the others. Divides once, and reads a mask row once for all consecutive rows that share it.
class PrefixLengths {
 public:
  PrefixLengths(const Mask& mask, int64_t d, int64_t first) : mask_(mask), d_(d) {
    if (!mask.bytes) return;
    row_ = first / mask.repeat % mask.rows;
    repeats_ = first % mask.repeat;
    length_ = prefix_length(keep(), d);
  }

  int64_t next() {
    if (!mask_.bytes) return d_;
    if (repeats_ == mask_.repeat) {
      repeats_ = 0;
      row_ = row_ + 1 < mask_.rows ? row_ + 1 : 0;
      length_ = prefix_length(keep(), d_);
    }
    ++repeats_;
    return length_;
  }

  // The mask of the row that next() was about.
  const uint8_t* keep() const { return mask_.bytes + row_ * d_; }

 private:
  Mask mask_;
  int64_t d_, row_ = 0, repeats_ = 0, length_ = 0;
};

// Copies x with -inf for the deleted scores: enough for mappings in which a score without weight has no
// influence.
template <class T>
inline void hide_deleted(const T* x, const uint8_t* keep, int64_t d, T* copy) {
  const Vec<T> lowest = splat(-std::numeric_limits<T>::infinity());
  for (int64_t i = 0; i < d; i += 64) {
    const uint64_t word = mask_word(keep + i, d - i);
    for (int64_t c = i; c < i + 64 && c < d; c += lanes<T>) {
      const Where<T> kept = from_bits<T>(lanes_of<T>(word, static_cast<int>(c - i)));
      store<T>(copy + c, select(kept, load_left(x + c, d - c, T(0)), lowest));
    }
  }
}

// (x - origin) / gamma, in place or not; origin is the row's largest score, or 0 if a shift changes the
// result. The quotient saturates, so that finite scores stay finite: -inf would mean deletion.
template <class T>
inline void divide_row(const T* x, int64_t d, T origin, double gamma, T* out) {
  constexpr T most = std::numeric_limits<T>::max();
  const double inverse = 1 / gamma;
  const Vec<T> scale = splat(static_cast<T>(smaller(inverse, static_cast<double>(most))));
  const Vec<T> low = splat(-most), high = splat(most), start = splat(origin - origin == 0 ? origin : T(0));
  for (int64_t i = 0; i < d; i += lanes<T>) {
    const Vec<T> v = load_left(x + i, d - i, T(0)), z = smaller(larger((v - start) * scale, low), high);
    store_left<T>(out + i, d - i, select(equal(v - v, Vec<T>{}), z, v));
  }
}

}  // namespace regmax::REGMAX_ISA
