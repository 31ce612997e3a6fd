// The C interface: checks arguments and chooses the instruction set.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

// The library hides its symbols, except these.
#pragma GCC visibility push(default)
#include "regmax.h"
#pragma GCC visibility pop

#include "runtime/calls.hpp"
#include "runtime/int8.hpp"
#include "runtime/threads.hpp"
#include "runtime/tiers.hpp"

namespace regmax {

namespace baseline {
extern const Core core;
}
#ifdef REGMAX_X86
namespace avx2 {
extern const Core core;
}
namespace avx512 {
extern const Core core;
}
#endif

namespace {

// What this machine can run, best first.
const Core* const* available_cores() {
  static const Core* cores[4] = {};
  static const bool filled = [] {
    const Core** next = cores;
#ifdef REGMAX_X86
    __builtin_cpu_init();
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (v4) *next++ = &avx512::core;
    if (v3) *next++ = &avx2::core;
#endif
    *next = &baseline::core;
    return true;
  }();
  (void)filled;
  return cores;
}

std::atomic<const Core*> chosen{nullptr};

const Core& current_core() {
  const Core* core = chosen.load(std::memory_order_relaxed);
  return core ? *core : **available_cores();
}

bool all_given(std::initializer_list<const void*> pointers) {
  return std::find(pointers.begin(), pointers.end(), nullptr) == pointers.end();
}

bool known_type(int32_t dtype) { return dtype == REGMAX_FLOAT32 || dtype == REGMAX_FLOAT64; }

bool known_half(int32_t dtype) { return dtype == REGMAX_FLOAT16 || dtype == REGMAX_BFLOAT16; }

// The type and the size; `arrays` are read or written in full.
bool valid_shape(const regmax_rows& rows, std::initializer_list<const void*> arrays) {
  if (!(known_type(rows.dtype) || known_half(rows.dtype)) || rows.n < 0 || rows.d < 0) return false;
  if (rows.mask && (rows.mask_rows < 1 || rows.mask_repeat < 1)) return false;
  if (rows.listed && !rows.support) return false;
  return rows.n == 0 || rows.d == 0 || all_given(arrays);
}

bool valid_gamma(double gamma) { return gamma > 0 && std::isfinite(gamma); }

bool valid_gammas(double gamma, const double* gammas, int64_t count) {
  return gammas ? std::all_of(gammas, gammas + count, valid_gamma) : valid_gamma(gamma);
}

bool valid_gammas(const regmax_rows& rows) { return valid_gammas(rows.gamma, rows.gammas, rows.n); }

// The rows of a mask, a bias or strengths: the same for all queries, or one per query.
bool valid_rows(const void* array, int64_t rows, const regmax_attention& call) {
  return !array || rows == 1 || rows == call.queries;
}

bool valid_weights(const regmax_rows& rows) {
  for (int64_t k = 0; k < rows.d; ++k) {
    const bool falls = k == 0 || rows.weights[k] <= rows.weights[k - 1];
    if (!falls || !(rows.weights[k] >= 0) || !std::isfinite(rows.weights[k])) return false;
  }
  return true;
}

bool valid_strides(const regmax_attention& call) {
  return !call.strides ||
         (call.batch_heads >= 1 && call.heads % call.batch_heads == 0 && call.batch_heads % call.groups == 0);
}

bool valid(const regmax_attention& call) {
  return known_type(call.dtype) && call.heads >= 1 && call.groups >= 1 && call.heads % call.groups == 0 &&
         call.queries >= 1 && call.keys >= 1 && call.keys <= INT32_MAX && call.e >= 0 && call.e % 16 == 0 &&
         call.e_v >= 0 && call.e_v % 16 == 0 && call.dropout_p >= 0 && call.dropout_p <= 1 &&
         all_given({call.q, call.k, call.v}) && valid_strides(call) &&
         (!call.screen || (all_given({call.screen_scales, call.screen_bounds}) && call.screen_stride >= call.keys)) &&
         (!call.mask || call.mask_slices) && valid_rows(call.mask, call.mask_rows, call) &&
         (!call.bias || call.bias_slices) && valid_rows(call.bias, call.bias_rows, call) &&
         valid_rows(call.thetas, call.theta_rows, call) && valid_rows(call.gammas, call.gamma_rows, call) &&
         valid_gammas(call.gamma, call.gammas, call.heads * call.gamma_rows);
}

void free_block(regmax_weights_block& block) {
  std::free(block.columns);
  std::free(block.values);
  std::free(block.joined);
  block = {};
}

void free_blocks(regmax_weights& weights) {
  for (int64_t b = 0; weights.blocks && b < weights.count; ++b) free_block(weights.blocks[b]);
  std::free(weights.blocks);
  weights.blocks = nullptr;
  weights.count = 0;
}

}  // namespace
}  // namespace regmax

using namespace regmax;

int32_t regmax_argmax(const regmax_rows* rows) {
  if (!valid_shape(*rows, {rows->x, rows->y}) || !valid_gammas(*rows)) return REGMAX_BAD_ARGUMENT;
  return current_core().argmax(*rows);
}

int32_t regmax_jacobian_product(const regmax_rows* rows) {
  if (!valid_shape(*rows, {rows->y, rows->v, rows->out}) || !valid_gammas(*rows)) return REGMAX_BAD_ARGUMENT;
  return current_core().jacobian_product(*rows);
}

int32_t regmax_prox_owl(const regmax_rows* rows) {
  if (!known_type(rows->dtype) || !valid_shape(*rows, {rows->x, rows->y, rows->weights})) return REGMAX_BAD_ARGUMENT;
  if (rows->n == 0 || rows->d == 0) return REGMAX_OK;
  return valid_weights(*rows) ? current_core().prox_owl(*rows) : int32_t{REGMAX_BAD_ARGUMENT};
}

int32_t regmax_attention_forward(const regmax_attention* call, regmax_weights** weights) {
  if (weights) *weights = nullptr;
  if (!valid(*call) || !call->out) return REGMAX_BAD_ARGUMENT;
  regmax_weights* const kept = weights ? new (std::nothrow) regmax_weights{} : nullptr;
  if (weights && !kept) return REGMAX_OUT_OF_MEMORY;
  const int32_t status = current_core().attention_forward(*call, kept);
  if (status == REGMAX_OK && weights) *weights = kept;
  if (status != REGMAX_OK && kept) regmax_attention_free(kept);
  return status;
}

int64_t regmax_attention_size(const regmax_weights* weights) {
  int64_t size = 0;
  for (int64_t b = 0; b < weights->count; ++b) size += weights->blocks[b].size;
  return size;
}

int32_t regmax_attention_take(regmax_weights* weights, int64_t capacity, int64_t* starts, int32_t* columns,
                              void* values, uint8_t* joined) {
  if (!weights->blocks || !starts) return REGMAX_BAD_ARGUMENT;
  if (capacity > 0 && !all_given({columns, values})) return REGMAX_BAD_ARGUMENT;
  const int64_t item = weights->item_size;
  int64_t size = 0, row = 0;
  starts[0] = 0;
  for (int64_t b = 0; b < weights->count; ++b) {
    regmax_weights_block& block = weights->blocks[b];
    const bool fits = size + block.size <= capacity;
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t from = block.starts[r], count = fits ? block.counts[r] : 0;
      std::copy_n(block.columns + from, count, columns + size);
      std::copy_n(static_cast<char*>(block.values) + item * from, item * count,
                  static_cast<char*>(values) + item * size);
      if (joined && block.joined) std::copy_n(block.joined + from, count, joined + size);
      starts[++row] = size += count;
    }
    free_block(block);
  }
  free_blocks(*weights);
  return REGMAX_OK;
}

void regmax_attention_free(regmax_weights* weights) {
  free_blocks(*weights);
  delete weights;
}

int32_t regmax_attention_backward(const regmax_attention* call) {
  if (call->strides) return REGMAX_BAD_ARGUMENT;
  if (!valid(*call) || !all_given({call->starts, call->out_grad, call->q_grad, call->k_grad, call->v_grad}))
    return REGMAX_BAD_ARGUMENT;
  return current_core().attention_backward(*call);
}

const char* regmax_instruction_set(void) { return current_core().name; }

int32_t regmax_use_instruction_set(const char* name) {
  for (const Core* const* core = available_cores(); name && *core; ++core) {
    if (std::strcmp(name, (*core)->name) == 0) {
      chosen.store(*core, std::memory_order_relaxed);
      return REGMAX_OK;
    }
  }
  return REGMAX_BAD_ARGUMENT;
}

int32_t regmax_force_tier(const char* name) { return force_tier(name) ? REGMAX_OK : REGMAX_BAD_ARGUMENT; }

int32_t regmax_quantise(const float* x, int64_t rows, int64_t e, int8_t* integers, float* scales, float* errors,
                        float* norms) {
  if (rows < 0 || e < 0 || e % 16 != 0 || e > 512) return REGMAX_BAD_ARGUMENT;
  if (rows > 0 && !all_given({x, integers, scales, errors, norms})) return REGMAX_BAD_ARGUMENT;
  return current_core().quantise(x, rows, e, integers, scales, errors, norms);
}

int32_t regmax_int8(void) { return int8_screen(); }

void regmax_use_int8(int32_t on) { use_int8(on != 0); }

void regmax_screen_counts(int64_t counts[4], int32_t reset) {
  const ScreenCounts read = read_screen_counts(reset != 0);
  counts[0] = read.rows;
  counts[1] = read.fallbacks;
  counts[2] = read.rescored;
  counts[3] = read.candidates;
}

void regmax_borrow_threads(void (*gomp_parallel)(void (*)(void*), void*, unsigned, unsigned)) {
  borrow_threads(gomp_parallel);
}

void regmax_borrow_threads_here(void (*fork_join)(void*, void (*)(void*), void*, int32_t), void* host) {
  borrow_threads_here(fork_join, host);
}

int32_t regmax_abi_version(void) { return 7; }
