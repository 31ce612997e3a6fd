// One thread's memory for rows of at most d scores, carved out of its scratch (runtime/threads.hpp).
#pragma once

#include <cstdint>

#include "algorithms/isotonic.hpp"
#include "algorithms/lane_taut_strings.hpp"
#include "algorithms/total_variation.hpp"
#include "runtime/scratch.hpp"
#include "simd/bitset.hpp"
#include "simd/vector.hpp"

namespace regmax::REGMAX_ISA {

struct Workspace {
  double* x;              // scores in double (or weights y, for a Jacobian product)
  double* y;              // their weights
  double* v;              // a direction, or pooled scores
  double* space;          // for the simplex threshold
  int64_t* ends;          // of atoms in the sorted row
  void* candidates;       // scores or weights of either type
  void* compacted;        // a row without its deleted scores, of either type
  void* pooling;          // a TvSpace or an IsotonicSpace
  uint64_t* kept;         // a bit per score: not deleted
  uint64_t* chosen;       // a bit per kept score: a candidate
  void* copies;           // a group of rows, of either type, without their deleted scores
  void *terms, *changes;  // the same size, for powers
  int64_t copy_stride;
  uint64_t* kept_bits;  // a bit per score of a group of rows: not deleted
  uint64_t* words;      // a bit per score of a group of rows: a candidate
  void* groups;         // LaneGroups
  int64_t d;
  uint8_t* joined;  // shares its group with the score before; for gradients of strengths, CompactedRow::apart
  int8_t* rises;

  Workspace(Cutter& memory, int64_t size) : d(size) {
    constexpr int64_t pooling_bytes =
        tv_bytes_per_score > isotonic_bytes_per_score ? tv_bytes_per_score : isotonic_bytes_per_score;
    const int64_t numbers = d + 64 + lanes<float>, words_per_row = words_of(d);  // room for whole vectors
    x = memory.take<double>(numbers);
    y = memory.take<double>(numbers);
    v = memory.take<double>(numbers);
    space = memory.take<double>(numbers);
    ends = memory.take<int64_t>(d);
    candidates = memory.take<double>(numbers);
    compacted = memory.take<double>(numbers);
    pooling = memory.take<char>(pooling_bytes * d);
    kept = memory.take<uint64_t>(words_per_row);
    chosen = memory.take<uint64_t>(words_per_row);
    words = memory.take<uint64_t>(words_per_row * lanes<float>);
    kept_bits = memory.take<uint64_t>(words_per_row * lanes<float>);
    copy_stride = numbers;
    copies = memory.take<char>(vector_bytes * copy_stride);  // lanes<T> rows of T
    terms = memory.take<char>(vector_bytes * copy_stride);
    changes = memory.take<char>(vector_bytes * copy_stride);
    groups = memory.take<char>(LaneGroups::bytes_per_score * (d + 1));
    joined = memory.take<uint8_t>(d + 1);
    rises = memory.take<int8_t>(d);
  }
};

}  // namespace regmax::REGMAX_ISA
