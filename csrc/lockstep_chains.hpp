// fusedmax's rows in groups: screened first (lockstep.hpp), and those with many candidates as whole chains.
#pragma once

#include <cstdint>

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
    float* const y = rows.y + r * d;
    float* const packed = rows.kept[r] ? static_cast<float*>(w_.candidates) : y;
    chains_.write(r, length, packed);
    uint64_t* const joined = rows.joined ? rows.joined + r * rows.words : nullptr;
    if (rows.kept[r]) {
      spread_row(packed, rows.kept[r], d, y);
      if (joined) {
        find_repeated(packed, length, false, w_.chosen);
        spread_row_bits(w_.chosen, rows.kept[r], d, joined);
      }
    } else {
      if (length < d) fill_run(y, length, d, d, 0.0f);
      if (joined) find_repeated(y, d, false, joined);
    }
    if (rows.support) find_nonzero(y, d, rows.support + r * rows.words);
  }

  Workspace& w_;
  Lockstep<float, REGMAX_FUSEDMAX> screened_;
  FlatChains chains_;
};

}  // namespace regmax::REGMAX_ISA
