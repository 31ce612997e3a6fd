// What api.cpp and the kernels of an instruction set share: plain data. No member functions: the linker could
// merge an inline function with one compiled for an instruction set that this machine cannot run.
#pragma once

#include <cstdint>

#include "regmax.h"

// The rows of one block of queries, at most 64, stored in any order.
struct regmax_weights_block {
  int64_t starts[64];  // the first entry of each row
  int32_t counts[64];  // its number of entries
  int64_t rows;
  int64_t size, capacity;
  int32_t* columns;
  void* values;
  uint8_t* joined;  // nullptr unless the mapping joins neighbours
};

struct regmax_weights {
  regmax_weights_block* blocks;
  int64_t count;
  int64_t item_size;
};

namespace regmax {

// The kernels as compiled for one instruction set. Sizes, types and pointers have been checked; kernels and
// strengths have not.
struct Core {
  const char* name;
  int32_t (*argmax)(const regmax_rows&);
  int32_t (*jacobian_product)(const regmax_rows&);
  int32_t (*prox_owl)(const regmax_rows&);
  int32_t (*attention_forward)(const regmax_attention&, regmax_weights*);
  int32_t (*attention_backward)(const regmax_attention&);
  int32_t (*quantise)(const float* x, int64_t rows, int64_t e, int8_t* integers, float* scales, float* errors,
                      float* norms);
};

}  // namespace regmax
