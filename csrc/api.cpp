// The C interface: checks arguments and chooses the instruction set.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

// The library hides its symbols, except these.
#pragma GCC visibility push(default)
#include "regmax.h"
#pragma GCC visibility pop

#include "calls.hpp"
#include "threads.hpp"

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
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("popcnt");
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

bool valid_strength(int32_t kernel, double theta) {
  if (kernel == REGMAX_SPARSEMAX) return true;
  if (kernel == REGMAX_SQPNORMMAX) return theta > 1 && theta <= 2;
  return theta >= 0 && std::isfinite(theta);
}

template <class Call>
bool valid(const Call& call) {
  if (call.kernel < REGMAX_SPARSEMAX || call.kernel > REGMAX_PROX_OSCAR || call.n < 0 || call.d < 0)
    return false;
  if (call.mask.bytes && (call.mask.rows < 1 || call.mask.repeat < 1)) return false;
  if (!call.theta.per_row) return valid_strength(call.kernel, call.theta.shared);
  for (int64_t i = 0; i < call.n; ++i) {
    if (!valid_strength(call.kernel, call.theta.per_row[i])) return false;
  }
  return true;
}

template <class Call>
int32_t checked(int32_t (*run)(const Call&), const Call& call) {
  if (!valid(call)) return REGMAX_BAD_ARGUMENT;
  if (call.n == 0 || call.d == 0) return REGMAX_OK;
  return run(call);
}

template <class T>
int32_t checked_owl(int32_t (*run)(const ProxOwl<T>&), const ProxOwl<T>& call) {
  if (call.n < 0 || call.d < 0) return REGMAX_BAD_ARGUMENT;
  for (int64_t k = 0; k < call.d; ++k) {
    const bool falls = k == 0 || call.weights[k] <= call.weights[k - 1];
    if (!falls || !(call.weights[k] >= 0) || !std::isfinite(call.weights[k])) return REGMAX_BAD_ARGUMENT;
  }
  if (call.n == 0 || call.d == 0) return REGMAX_OK;
  return run(call);
}

bool valid(const regmax_attention* call) {
  return call->kernel >= REGMAX_SPARSEMAX && call->kernel <= REGMAX_SQPNORMMAX &&
         valid_strength(call->kernel, call->theta) && call->heads >= 1 && call->groups >= 1 &&
         call->heads % call->groups == 0 && call->queries >= 1 && call->keys >= 1 &&
         call->keys <= INT32_MAX && call->e % 16 == 0 && call->e_v % 16 == 0 && call->dropout_p >= 0 &&
         call->dropout_p <= 1;
}

template <class T>
int32_t checked_forward(int32_t (*run)(const regmax_attention&, T*, regmax_weights*),
                        const regmax_attention* call, T* out, regmax_weights** weights) {
  if (!valid(call)) return REGMAX_BAD_ARGUMENT;
  if (!weights) return run(*call, out, nullptr);
  *weights = new (std::nothrow) regmax_weights{};
  if (!*weights) return REGMAX_OUT_OF_MEMORY;
  const int32_t status = run(*call, out, *weights);
  if (status == REGMAX_OK) return status;
  regmax_attention_take(*weights, nullptr, nullptr, nullptr, nullptr);
  *weights = nullptr;
  return status;
}

}  // namespace
}  // namespace regmax

using namespace regmax;

int32_t regmax_argmax_f32(int32_t kernel, const float* x, float* y, uint64_t* support, uint64_t* joined,
                          int64_t n, int64_t d, const uint8_t* mask, int64_t mask_rows, int64_t mask_repeat,
                          double theta, const double* thetas, int32_t threads) {
  return checked(
      current_core().argmax_f32,
      Argmax<float>{
          kernel, x, y, support, joined, n, d, {mask, mask_rows, mask_repeat}, {theta, thetas}, threads});
}

int32_t regmax_argmax_f64(int32_t kernel, const double* x, double* y, uint64_t* support, uint64_t* joined,
                          int64_t n, int64_t d, const uint8_t* mask, int64_t mask_rows, int64_t mask_repeat,
                          double theta, const double* thetas, int32_t threads) {
  return checked(
      current_core().argmax_f64,
      Argmax<double>{
          kernel, x, y, support, joined, n, d, {mask, mask_rows, mask_repeat}, {theta, thetas}, threads});
}

int32_t regmax_jacobian_product_f32(int32_t kernel, const float* y, const uint64_t* support,
                                    const uint64_t* joined, const float* v, float* out, int64_t n, int64_t d,
                                    const uint8_t* mask, int64_t mask_rows, int64_t mask_repeat, double theta,
                                    const double* thetas, int32_t threads) {
  return checked(current_core().jacobian_product_f32, JacobianProduct<float>{kernel,
                                                                             y,
                                                                             support,
                                                                             joined,
                                                                             v,
                                                                             out,
                                                                             n,
                                                                             d,
                                                                             {mask, mask_rows, mask_repeat},
                                                                             {theta, thetas},
                                                                             threads});
}

int32_t regmax_jacobian_product_f64(int32_t kernel, const double* y, const uint64_t* support,
                                    const uint64_t* joined, const double* v, double* out, int64_t n,
                                    int64_t d, const uint8_t* mask, int64_t mask_rows, int64_t mask_repeat,
                                    double theta, const double* thetas, int32_t threads) {
  return checked(current_core().jacobian_product_f64, JacobianProduct<double>{kernel,
                                                                              y,
                                                                              support,
                                                                              joined,
                                                                              v,
                                                                              out,
                                                                              n,
                                                                              d,
                                                                              {mask, mask_rows, mask_repeat},
                                                                              {theta, thetas},
                                                                              threads});
}

int32_t regmax_prox_owl_f32(const float* x, float* z, int64_t n, int64_t d, const double* weights,
                            int32_t threads) {
  return checked_owl(current_core().prox_owl_f32, ProxOwl<float>{x, z, n, d, weights, threads});
}

int32_t regmax_prox_owl_f64(const double* x, double* z, int64_t n, int64_t d, const double* weights,
                            int32_t threads) {
  return checked_owl(current_core().prox_owl_f64, ProxOwl<double>{x, z, n, d, weights, threads});
}

int32_t regmax_attention_forward_f32(const regmax_attention* call, float* out, regmax_weights** weights) {
  return checked_forward(current_core().attention_forward_f32, call, out, weights);
}

int32_t regmax_attention_forward_f64(const regmax_attention* call, double* out, regmax_weights** weights) {
  return checked_forward(current_core().attention_forward_f64, call, out, weights);
}

int64_t regmax_attention_size(const regmax_weights* weights) {
  int64_t size = 0;
  for (int64_t b = 0; b < weights->count; ++b) size += weights->blocks[b].size;
  return size;
}

void regmax_attention_take(regmax_weights* weights, int64_t* starts, int32_t* columns, void* values,
                           uint8_t* joined) {
  const auto copy = [](void* to, const void* from, int64_t bytes) {
    if (bytes) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  };
  int64_t size = 0, row = 0;
  if (starts) starts[0] = 0;
  for (int64_t b = 0; weights->blocks && b < weights->count; ++b) {
    regmax_weights_block& block = weights->blocks[b];
    if (starts) {
      copy(columns + size, block.columns, block.size * 4);
      copy(static_cast<char*>(values) + size * weights->item_size, block.values,
           block.size * weights->item_size);
      if (joined && block.joined) copy(joined + size, block.joined, block.size);
      for (int64_t r = 0; r < block.rows; ++r) starts[++row] = size += block.counts[r];
    }
    std::free(block.columns);
    std::free(block.values);
    std::free(block.joined);
  }
  std::free(weights->blocks);
  delete weights;
}

int32_t regmax_attention_backward_f32(const regmax_attention* call, const int64_t* starts,
                                      const int32_t* columns, const float* values, const uint8_t* joined,
                                      const float* out_grad, float* q_grad, float* k_grad, float* v_grad) {
  if (!valid(call)) return REGMAX_BAD_ARGUMENT;
  return current_core().attention_backward_f32(
      *call, {starts, columns, values, joined, out_grad, q_grad, k_grad, v_grad});
}

int32_t regmax_attention_backward_f64(const regmax_attention* call, const int64_t* starts,
                                      const int32_t* columns, const double* values, const uint8_t* joined,
                                      const double* out_grad, double* q_grad, double* k_grad,
                                      double* v_grad) {
  if (!valid(call)) return REGMAX_BAD_ARGUMENT;
  return current_core().attention_backward_f64(
      *call, {starts, columns, values, joined, out_grad, q_grad, k_grad, v_grad});
}

const char* regmax_instruction_set(void) { return current_core().name; }

int32_t regmax_use_instruction_set(const char* name) {
  for (const Core* const* core = available_cores(); *core; ++core) {
    if (std::strcmp(name, (*core)->name) == 0) {
      chosen.store(*core, std::memory_order_relaxed);
      return REGMAX_OK;
    }
  }
  return REGMAX_BAD_ARGUMENT;
}

void regmax_borrow_threads(void (*gomp_parallel)(void (*)(void*), void*, unsigned, unsigned)) {
  borrow_threads(gomp_parallel);
}

int32_t regmax_abi_version(void) { return 2; }
