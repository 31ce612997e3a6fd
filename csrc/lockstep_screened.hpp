// sparsemax and sqpnormmax of longer rows: screened first (lockstep.hpp), and those with too many candidates
// as rows (lockstep_rows.hpp).
#pragma once

#include <cstdint>

#include "lockstep.hpp"
#include "lockstep_rows.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

template <class T, int32_t kernel>
class ScreenedLockstep {
 public:
  explicit ScreenedLockstep(const Workspace& w) : screened_(w.words), dense_(w) {}

  uint32_t run(const LaneRows<T>& rows) {
    const uint32_t left = screened_.run(rows);
    if (!left) return 0;
    LaneRows<T> dense = rows;
    for (int r = 0; r < lanes<T>; ++r) dense.length[r] = left >> r & 1 ? rows.length[r] : 0;
    return left & dense_.run(dense);
  }

 private:
  Lockstep<T, kernel> screened_;
  RowLockstep<T, kernel> dense_;
};

}  // namespace regmax::REGMAX_ISA
