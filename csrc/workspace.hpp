// One thread's memory for rows of at most d scores, carved out of its scratch (threads.hpp).
#pragma once

#include <cstdint>

#include "isotonic.hpp"
#include "lane_strings.hpp"
#include "screening.hpp"
#include "simd.hpp"
#include "tv.hpp"

namespace regmax::REGMAX_ISA {

struct Workspace {
  double* x;           // scores in double (or weights y, for a Jacobian product)
  double* y;           // their result
  double* v;           // a direction, or pooled scores
  double* space;       // for the simplex threshold
  int64_t* positions;  // of scores in the row
  int64_t* ends;       // of runs in the sorted row
  void* candidates;    // of either type
  void* packed;        // a row without its deleted scores, of either type
  void* pooling;       // a TvSpace or an IsotonicSpace
  uint64_t* kept;      // a bit per score: not deleted
  uint64_t* chosen;    // a bit per score that is not deleted: a candidate
  void* copies;        // a group of rows without their deleted scores, of either type
  int64_t copy_stride;
  uint64_t* kept_bits;  // a bit per score of a group of rows: not deleted
  uint64_t* words;      // a bit per score of a group of rows (lockstep.hpp)
  void* groups;         // LaneGroups
  int64_t d;
  uint8_t* joined;  // shares its group with the score before
  int8_t* rises;

  Workspace(void* memory, int64_t size) : d(size), next_(reinterpret_cast<uintptr_t>(memory)) {
    const int64_t numbers = 8 * (d + 64 + lanes<float>);  // whole vectors are written behind the last number
    x = take<double>(numbers);
    y = take<double>(numbers);
    v = take<double>(numbers);
    space = take<double>(numbers);
    positions = take<int64_t>(8 * d);
    ends = take<int64_t>(8 * d);
    candidates = take<double>(numbers);
    packed = take<double>(numbers);
    pooling = take<char>(pooling_bytes * d);
    kept = take<uint64_t>(8 * words_of(d));
    chosen = take<uint64_t>(8 * words_of(d));
    words = take<uint64_t>(8 * words_of(d) * lanes<float>);
    kept_bits = take<uint64_t>(8 * words_of(d) * lanes<float>);
    copy_stride = d + 64 + lanes<float>;
    copies = take<char>(vector_bytes * copy_stride);  // lanes<T> rows of T
    groups = take<char>(LaneGroups::bytes_per_score * (d + 1));
    joined = take<uint8_t>(d);
    rises = take<int8_t>(d);
  }

  static int64_t bytes(int64_t d) { return static_cast<int64_t>(Workspace(nullptr, d).next_); }

 private:
  static constexpr int64_t pooling_bytes =
      tv_bytes_per_score > isotonic_bytes_per_score ? tv_bytes_per_score : isotonic_bytes_per_score;

  template <class Element>
  Element* take(int64_t bytes) {
    const uintptr_t begin = next_;
    next_ += static_cast<uintptr_t>((bytes + 63) / 64 * 64);
    return reinterpret_cast<Element*>(begin);
  }

  uintptr_t next_;
};

}  // namespace regmax::REGMAX_ISA
