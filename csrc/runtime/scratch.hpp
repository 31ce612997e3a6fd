// Scratch memory of threads, cut into arrays, and jobs that use it.
#pragma once

#include <atomic>
#include <cstdint>

#include "regmax.h"
#include "runtime/threads.hpp"

namespace regmax::REGMAX_ISA {

// Cuts memory into arrays, each aligned to a cache line. With nullptr it only measures.
class Cutter {
 public:
  explicit Cutter(void* memory) : next_(static_cast<char*>(memory)) {}

  template <class T>
  T* take(int64_t count) {
    T* const array = reinterpret_cast<T*>(next_);
    const int64_t bytes = (static_cast<int64_t>(sizeof(T)) * count + 63) / 64 * 64;
    next_ = next_ ? next_ + bytes : nullptr;
    bytes_ += bytes;
    return array;
  }

  int64_t bytes() const { return bytes_; }

 private:
  char* next_;
  int64_t bytes_ = 0;
};

// Runs job(i, scratch) for i < jobs, each with a Scratch made from a Cutter and the arguments. A job returns
// false if memory is exhausted.
template <class Scratch, class Argument, class Job>
int32_t run_with_scratch(int64_t jobs, int32_t threads, const Argument& argument, const Job& job) {
  struct Context {
    const Argument& argument;
    const Job& job;
    std::size_t bytes;
    std::atomic<bool> failed;
  };
  Cutter measure(nullptr);
  Scratch(measure, argument);
  Context context{argument, job, static_cast<std::size_t>(measure.bytes()), {false}};
  run_jobs(
      jobs, threads > 0 ? threads : 1,
      [](void* opaque, int64_t i) {
        Context& c = *static_cast<Context*>(opaque);
        void* const memory = thread_scratch(c.bytes);
        if (memory) {
          Cutter cutter(memory);
          Scratch scratch(cutter, c.argument);
          if (c.job(i, scratch)) return;
        }
        c.failed.store(true, std::memory_order_relaxed);
      },
      &context);
  return context.failed.load() ? REGMAX_OUT_OF_MEMORY : REGMAX_OK;
}

}  // namespace regmax::REGMAX_ISA
