// XLA FFI handlers of the core, for JAX on the CPU: a library of its own, which needs the headers of jaxlib. The core's
// functions are not linked: `regmax_jax_bind` gets their addresses.
//
// An absent mask, strength or array of bits has size 0. The core divides a call as for any other caller, so that
// results are stored in the same way, but on XLA's threads: those that it borrowed may be of torch's OpenMP.
#include <xla/ffi/api/ffi.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "regmax.h"

namespace ffi = xla::ffi;

namespace {

using Call = int32_t (*)(const regmax_rows*);
using ForkJoin = void (*)(void* host, void (*work)(void*), void* context, int32_t threads);

constexpr int32_t abi_version = 7;
Call map_rows = nullptr;
Call multiply_rows = nullptr;
void (*borrow_threads_here)(ForkJoin, void*) = nullptr;

// Shared by the tasks of one fork: a task that starts after the caller ran out of work finds it closed, and never reads
// the caller's frame.
struct Fork {
  std::mutex mutex;
  std::condition_variable idle;
  bool open = true;
  int32_t busy = 0;
};

// Runs work on the pool's threads and this one. It waits for no task that has not started: the pool's threads may all
// be waiting here.
void fork_join(void* host, void (*work)(void*), void* context, int32_t threads) {
  ffi::ThreadPool& pool = *static_cast<ffi::ThreadPool*>(host);
  auto fork = std::make_shared<Fork>();
  for (int32_t t = 1; t < threads; ++t)
    pool.Schedule([fork, work, context] {
      {
        std::lock_guard<std::mutex> lock(fork->mutex);
        if (!fork->open) return;
        ++fork->busy;
      }
      work(context);
      std::lock_guard<std::mutex> lock(fork->mutex);
      if (--fork->busy == 0) fork->idle.notify_one();
    });
  work(context);
  std::unique_lock<std::mutex> lock(fork->mutex);
  fork->open = false;
  fork->idle.wait(lock, [&] { return fork->busy == 0; });
}

// Calls of this thread compute on the pool while this exists.
class OnThreadsOf {
 public:
  explicit OnThreadsOf(ffi::ThreadPool& pool) { borrow_threads_here(fork_join, &pool); }
  OnThreadsOf(const OnThreadsOf&) = delete;
  OnThreadsOf& operator=(const OnThreadsOf&) = delete;
  ~OnThreadsOf() { borrow_threads_here(nullptr, nullptr); }
};

ffi::Error as_error(int32_t status) {
  if (status == REGMAX_OK) return ffi::Error::Success();
  if (status == REGMAX_OUT_OF_MEMORY) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "regmax: out of memory");
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, "regmax: bad argument");
}

int32_t type_of(const ffi::AnyBuffer& x) {
  return x.element_type() == ffi::F32 ? REGMAX_FLOAT32 : x.element_type() == ffi::F64 ? REGMAX_FLOAT64 : 0;
}

// Strengths in double precision, one per row.
struct Strengths {
  std::vector<double> own;
  const double* each = nullptr;

  bool read(const ffi::AnyBuffer& given, int64_t n) {
    const int64_t count = given.element_count();
    if (count == 0) return true;
    if (count != n) return false;
    if (given.element_type() == ffi::F64) {
      each = static_cast<const double*>(given.untyped_data());
    } else if (given.element_type() == ffi::F32) {
      const float* numbers = static_cast<const float*>(given.untyped_data());
      own.assign(numbers, numbers + n);
      each = own.data();
    }
    return each != nullptr;
  }
};

template <class T>
T* data_or_null(const ffi::AnyBuffer& buffer) {
  return buffer.element_count() ? static_cast<T*>(buffer.untyped_data()) : nullptr;
}

ffi::Error run(Call call, ffi::ThreadPool& pool, regmax_rows rows, const ffi::AnyBuffer& x, const ffi::AnyBuffer& mask,
               const ffi::AnyBuffer& thetas) {
  rows.dtype = type_of(x);
  rows.d = x.dimensions().back();
  rows.n = rows.d ? static_cast<int64_t>(x.element_count()) / rows.d : 0;
  if (rows.n == 0) return ffi::Error::Success();
  Strengths strengths;
  const int64_t mask_size = mask.element_count();
  if (call == nullptr || rows.dtype == 0 || !strengths.read(thetas, rows.n) ||
      (mask_size != 0 && mask_size != rows.n * rows.d))
    return as_error(REGMAX_BAD_ARGUMENT);
  rows.threads = static_cast<int32_t>(pool.num_threads());
  rows.gamma = 1.0;
  rows.mask = data_or_null<const uint8_t>(mask);
  rows.mask_rows = rows.n;
  rows.mask_repeat = 1;
  rows.thetas = strengths.each;
  const OnThreadsOf here(pool);
  return as_error(call(&rows));
}

ffi::Error weights(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer mask, ffi::AnyBuffer thetas,
                   ffi::Result<ffi::AnyBuffer> y, ffi::Result<ffi::AnyBuffer> support,
                   ffi::Result<ffi::AnyBuffer> joined, int32_t kernel, double theta) {
  regmax_rows rows{};
  rows.kernel = kernel;
  rows.theta = theta;
  rows.x = x.untyped_data();
  rows.y = y->untyped_data();
  rows.support = data_or_null<uint64_t>(*support);
  rows.joined = data_or_null<uint64_t>(*joined);
  return run(map_rows, pool, rows, x, mask, thetas);
}

ffi::Error product(ffi::ThreadPool pool, ffi::AnyBuffer v, ffi::AnyBuffer y, ffi::AnyBuffer support,
                   ffi::AnyBuffer joined, ffi::AnyBuffer mask, ffi::AnyBuffer thetas, ffi::Result<ffi::AnyBuffer> out,
                   int32_t kernel, double theta) {
  regmax_rows rows{};
  rows.kernel = kernel;
  rows.theta = theta;
  rows.y = y.untyped_data();
  rows.v = v.untyped_data();
  rows.out = out->untyped_data();
  rows.support = data_or_null<uint64_t>(support);
  rows.joined = data_or_null<uint64_t>(joined);
  return run(multiply_rows, pool, rows, y, mask, thetas);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// The addresses of the core's functions with these names; 0 for another version of the core.
int32_t regmax_jax_bind(Call argmax, Call jacobian_product, int32_t (*version)(), void (*borrow)(ForkJoin, void*)) {
  if (version() != abi_version) return 0;
  map_rows = argmax;
  multiply_rows = jacobian_product;
  borrow_threads_here = borrow;
  return 1;
}

XLA_FFI_Error* regmax_jax_weights(XLA_FFI_CallFrame*);
XLA_FFI_Error* regmax_jax_product(XLA_FFI_CallFrame*);
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(regmax_jax_weights, weights,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int32_t>("kernel")
                                  .Attr<double>("theta"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(regmax_jax_product, product,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int32_t>("kernel")
                                  .Attr<double>("theta"));
#pragma GCC visibility pop
