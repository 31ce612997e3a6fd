// XLA FFI handlers of the core, for JAX on the CPU: a library of its own, which needs the headers of jaxlib. The core's
// functions are not linked: `regmax_jax_bind` gets their addresses.
//
// An absent mask, strength or array of bits has size 0. Rows are split over XLA's own threads; the core is called with
// one thread, because its threads may be those of torch's OpenMP, and a second team would spin on XLA's.
#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "regmax.h"

namespace ffi = xla::ffi;

namespace {

using Call = int32_t (*)(const regmax_rows*);

constexpr int32_t abi_version = 6;
constexpr int64_t scores_per_chunk = 1 << 14;
Call map_rows = nullptr;
Call multiply_rows = nullptr;

// Shared by the tasks of one call: a task that starts late finds nothing to do and never reads the handler's frame.
struct Split {
  std::atomic<int64_t> next{0}, left{0};
  std::atomic<int32_t> status{REGMAX_OK};
  std::mutex mutex;
  std::condition_variable done;
};

// Calls work(first, count) for all rows, on the pool's threads and this one.
template <class Work>
int32_t for_rows(ffi::ThreadPool& pool, int64_t n, int64_t d, const Work& work) {
  const int64_t threads = pool.num_threads();
  const int64_t chunks = std::min({n, n * d / scores_per_chunk, 4 * threads});
  if (threads <= 1 || chunks <= 1) return work(0, n);
  const int64_t step = (n + chunks - 1) / chunks;
  auto split = std::make_shared<Split>();
  split->left = chunks;
  auto task = [split, chunks, step, n, work] {
    for (int64_t i; (i = split->next.fetch_add(1)) < chunks;) {
      const int64_t first = i * step, count = std::min(step, n - first);
      if (count > 0) {
        const int32_t status = work(first, count);
        if (status != REGMAX_OK) split->status = status;
      }
      if (split->left.fetch_sub(1) == 1) {
        std::lock_guard<std::mutex> lock(split->mutex);
        split->done.notify_all();
      }
    }
  };
  for (int64_t t = 1; t < std::min(threads, chunks); ++t) {
    auto copy = task;
    pool.Schedule(std::move(copy));
  }
  task();
  std::unique_lock<std::mutex> lock(split->mutex);
  split->done.wait(lock, [&] { return split->left.load() == 0; });
  return split->status;
}

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
  std::shared_ptr<std::vector<double>> own;
  const double* each = nullptr;

  bool read(const ffi::AnyBuffer& given, int64_t n) {
    const int64_t count = given.element_count();
    if (count == 0) return true;
    if (count != n) return false;
    if (given.element_type() == ffi::F64) {
      each = static_cast<const double*>(given.untyped_data());
    } else if (given.element_type() == ffi::F32) {
      const float* numbers = static_cast<const float*>(given.untyped_data());
      own = std::make_shared<std::vector<double>>(numbers, numbers + n);
      each = own->data();
    }
    return each != nullptr;
  }
};

template <class T>
T* data_or_null(const ffi::AnyBuffer& buffer) {
  return buffer.element_count() ? static_cast<T*>(buffer.untyped_data()) : nullptr;
}

template <class T>
T* advanced(T* pointer, int64_t count) {
  return pointer ? pointer + count : nullptr;
}

// The record of rows first, ..., first + count - 1.
regmax_rows part_of(const regmax_rows& all, int64_t first, int64_t count) {
  regmax_rows part = all;
  const int64_t d = all.d, bytes = first * d * all.dtype, words = first * ((d + 63) / 64);
  part.n = count;
  part.x = advanced(static_cast<const char*>(all.x), bytes);
  part.y = advanced(static_cast<char*>(all.y), bytes);
  part.v = advanced(static_cast<const char*>(all.v), bytes);
  part.out = advanced(static_cast<char*>(all.out), bytes);
  part.support = advanced(all.support, words);
  part.joined = advanced(all.joined, words);
  part.mask = advanced(all.mask, first * d);
  part.mask_rows = count;
  part.thetas = advanced(all.thetas, first);
  return part;
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
  rows.threads = 1;
  rows.gamma = 1.0;
  rows.mask = data_or_null<const uint8_t>(mask);
  rows.mask_repeat = 1;
  rows.thetas = strengths.each;
  return as_error(for_rows(pool, rows.n, rows.d, [rows, call, strengths](int64_t first, int64_t count) {
    const regmax_rows part = part_of(rows, first, count);
    return call(&part);
  }));
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

// The addresses of regmax_argmax, regmax_jacobian_product and regmax_abi_version; 0 for another version of the core.
int32_t regmax_jax_bind(Call argmax, Call jacobian_product, int32_t (*version)()) {
  if (version() != abi_version) return 0;
  map_rows = argmax;
  multiply_rows = jacobian_product;
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
