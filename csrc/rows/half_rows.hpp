// Rows in float16 or bfloat16: each block of rows is converted to float32 in scratch memory, and back. Weights
// in half precision are only written; the backward pass reads bits, and weights in float32 if its mapping
// needs them.
#pragma once

#include <cstdint>

#include "rows/argmax.hpp"
#include "rows/jacobian_product.hpp"
#include "simd/half.hpp"

namespace regmax::REGMAX_ISA {

struct HalfWorkspace : Workspace {
  float *read, *written;

  HalfWorkspace(Cutter& memory, int64_t d) : Workspace(memory, d) {
    const int64_t numbers = rows_per_block(d) * d + lanes<float>;
    read = memory.take<float>(numbers);
    written = memory.take<float>(numbers);
  }
};

// x and y of an argmax call; y32, if it is given, receives the weights in float32.
template <class Half>
struct HalfArgmax {
  using Space = HalfWorkspace;
  const regmax_rows& call;

  template <class Run>
  void operator()(Rows<float> rows, int64_t begin, int64_t end, HalfWorkspace& w, const Run& run) const {
    const int64_t d = call.d, count = (end - begin) * d;
    widen_numbers<Half>(static_cast<const uint16_t*>(call.x) + begin * d, count, w.read);
    rows.x = from_row(w.read, begin, d);
    if (!call.y32) rows.y = from_row(w.written, begin, d);
    run(rows);
    round_numbers<Half>(rows.y + begin * d, count, static_cast<uint16_t*>(call.y) + begin * d);
  }
};

// v and out of a Jacobian product.
template <class Half>
struct HalfProduct {
  using Space = HalfWorkspace;
  const regmax_rows& call;

  template <class Run>
  void operator()(Rows<float> rows, int64_t begin, int64_t end, HalfWorkspace& w, const Run& run) const {
    const int64_t d = call.d, count = (end - begin) * d;
    widen_numbers<Half>(static_cast<const uint16_t*>(call.v) + begin * d, count, w.read);
    rows.v = from_row(w.read, begin, d);
    rows.out = from_row(w.written, begin, d);
    run(rows);
    round_numbers<Half>(w.written, count, static_cast<uint16_t*>(call.out) + begin * d);
  }
};

// The call in float32: what is not in half precision.
inline Rows<float> float_rows(const regmax_rows& call) {
  Rows<float> rows = typed_rows<float>(call);
  rows.x = rows.v = nullptr;
  rows.out = nullptr;
  rows.y = call.y32;
  rows.in_cache = true;
  return rows;
}

template <class Half>
int32_t argmax_half(const regmax_rows& call) {
  return argmax(float_rows(call), HalfArgmax<Half>{call});
}

template <class Half>
int32_t jacobian_product_half(const regmax_rows& call) {
  Rows<float> rows = float_rows(call);
  rows.halves = static_cast<const uint16_t*>(call.y);
  rows.infinity = Half::infinity;
  return jacobian_product(rows, HalfProduct<Half>{call});
}

}  // namespace regmax::REGMAX_ISA
