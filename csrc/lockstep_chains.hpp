// fusedmax's rows in groups: screened first (lockstep.hpp), and those with many candidates as whole chains.
#pragma once

#include <cstdint>
#include <cstring>

#include "flat_chains.hpp"
#include "lockstep.hpp"
#include "regmax.h"

namespace regmax::REGMAX_ISA {

class ChainedLockstep {
 public:
  explicit ChainedLockstep(Workspace& w) : w_(w), screened_(w.words), chains_(w) {}

  uint32_t run(const LaneRows<float>& rows) {
    uint32_t left = screened_.run(rows);
    if (!left) return 0;
    uint32_t wanted = 0;
    for (int r = 0; r < lanes<float>; ++r) {
      wanted |= (left & 1u << r) && rows.length[r] ? 1u << r : 0;
    }
    const uint32_t flat = chains_.map(rows.x, rows.length, rows.theta, wanted);
    for (uint32_t rest = flat; rest; rest &= rest - 1) write(rows, __builtin_ctz(rest));
    return left & ~flat;
  }

 private:
  void write(const LaneRows<float>& rows, int r) {
    const int64_t d = rows.d, length = rows.length[r];
    uint64_t* const kept = rows.kept[r];
    float* const y = rows.y + r * d;
    float* const packed = kept ? static_cast<float*>(w_.candidates) : y;
    uint64_t* const support = own_words(rows.support, rows, r, w_.chosen);
    uint64_t* const joined = own_words(rows.joined, rows, r, w_.kept);
    chains_.each_run(r, length, [&](int64_t begin, int64_t end, float weight, bool repeats) {
      fill_run(packed, begin, end, length, weight);
      if (weight == 0) return;
      set_bits(support, begin, end);
      const int64_t second = repeats ? begin : begin + 1;
      if (second < end) set_bits(joined, second, end);
    });
    if (kept) {
      spread_row(packed, kept, d, y);
      spread_bits_in_place(support, kept, d);
      spread_bits_in_place(joined, kept, d);
    } else if (length < d) {
      fill_run(y, length, d, d, 0.0f);
    }
  }

  // Row r of the words, or `spare` ones where nobody wants them; all zero.
  static uint64_t* own_words(uint64_t* words, const LaneRows<float>& rows, int r, uint64_t* spare) {
    uint64_t* const own = words ? words + r * rows.words : spare;
    for (int64_t i = 0; i < rows.words; ++i) own[i] = 0;
    return own;
  }

  void spread_bits_in_place(uint64_t* words, const uint64_t* kept, int64_t d) {
    std::memcpy(w_.words, words, static_cast<std::size_t>(words_of(d)) * sizeof(uint64_t));
    spread_row_bits(w_.words, kept, d, words);
  }

  Workspace& w_;
  Lockstep<float, REGMAX_FUSEDMAX> screened_;
  FlatChains chains_;
};

}  // namespace regmax::REGMAX_ISA
