// Masks on the way to lockstep: most are prefixes, for which a length says all; other rows are copied without
// what the mask deletes.
#pragma once

#include <cstdint>
#include <limits>

#include "calls.hpp"
#include "screening.hpp"

namespace regmax::REGMAX_ISA {

inline const uint8_t* mask_row(const Mask& mask, int64_t i, int64_t d) {
  return mask.bytes ? mask.bytes + i / mask.repeat % mask.rows * d : nullptr;
}

// Walks along the rows, and says of each how long it is if its mask is a prefix, as padding and causal masks
// are; -1 if it is another. Divides once, and looks at a mask row once for all the rows in succession that
// share it.
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

  // The mask of the row that next() spoke of.
  const uint8_t* keep() const { return mask_.bytes + row_ * d_; }

 private:
  Mask mask_;
  int64_t d_, row_ = 0, repeats_ = 0, length_ = 0;
};

// A copy with -inf for the deleted scores: enough where a score that has no weight has no influence.
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

// A copy of the kept scores alone, for chains, whose neighbours are who is left; their bits go to `kept`.
template <class T>
inline int64_t drop_deleted(const T* x, const uint8_t* keep, int64_t d, uint64_t* kept, T* copy) {
  find_kept(keep, d, kept);
  return gather_row(x, kept, d, copy);
}

}  // namespace regmax::REGMAX_ISA
