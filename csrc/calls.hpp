// One call of the C interface as plain data: what api.cpp hands to the kernels of an instruction set.
// No member functions: an inline function shared by translation units built for different instruction sets
// could be merged by the linker into the one that this machine cannot run.
#pragma once

#include <cstdint>

#include "regmax.h"

// One block's rows: its columns, values and joined flags one behind the other, in memory of its own.
struct regmax_weights_block {
  int32_t counts[64];  // entries of each row; a block has at most 64
  int64_t rows;
  int64_t size, capacity;
  int32_t* columns;
  void* values;
  uint8_t* joined;  // nullptr for mappings without chains
};

struct regmax_weights {
  regmax_weights_block* blocks;
  int64_t count;
  int64_t item_size;
};

namespace regmax {

struct Mask {
  const uint8_t* bytes;  // nullptr keeps everything
  int64_t rows;
  int64_t repeat;
};

struct Strength {
  double shared;
  const double* per_row;  // nullptr: `shared` serves all
};

template <class T>
struct Argmax {
  int32_t kernel;
  const T* x;
  T* y;
  uint64_t* support;
  uint64_t* joined;
  int64_t n, d;
  Mask mask;
  Strength theta;
  int32_t threads;
};

template <class T>
struct JacobianProduct {
  int32_t kernel;
  const T* y;
  const uint64_t* support;
  const uint64_t* joined;
  const T* v;
  T* out;
  int64_t n, d;
  Mask mask;
  Strength theta;
  int32_t threads;
};

template <class T>
struct ProxOwl {
  const T* x;
  T* z;
  int64_t n, d;
  const double* weights;
  int32_t threads;
};

// The weights of a forward pass, and gradients: of the output, and where those of q, k and v go.
template <class T>
struct AttentionGradients {
  const int64_t* starts;
  const int32_t* columns;
  const T* values;
  const uint8_t* joined;
  const T* out;
  T *q, *k, *v;
};

// The kernels as compiled for one instruction set.
struct Core {
  const char* name;
  int32_t (*argmax_f32)(const Argmax<float>&);
  int32_t (*argmax_f64)(const Argmax<double>&);
  int32_t (*jacobian_product_f32)(const JacobianProduct<float>&);
  int32_t (*jacobian_product_f64)(const JacobianProduct<double>&);
  int32_t (*prox_owl_f32)(const ProxOwl<float>&);
  int32_t (*prox_owl_f64)(const ProxOwl<double>&);
  int32_t (*attention_forward_f32)(const regmax_attention&, float*, regmax_weights*);
  int32_t (*attention_forward_f64)(const regmax_attention&, double*, regmax_weights*);
  int32_t (*attention_backward_f32)(const regmax_attention&, const AttentionGradients<float>&);
  int32_t (*attention_backward_f64)(const regmax_attention&, const AttentionGradients<double>&);
};

}  // namespace regmax
