#include "runtime/int8.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace regmax {
namespace {

bool has_vnni() {
#if defined(REGMAX_X86)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

bool wanted() {
  const char* const setting = std::getenv("REGMAX_INT8");
  return !setting || std::strcmp(setting, "0") != 0;
}

std::atomic<bool>& switched_on() {
  static std::atomic<bool> on{has_vnni() && wanted()};
  return on;
}

std::atomic<int64_t> rows{0}, fallbacks{0}, rescored{0}, candidates{0};

int64_t read(std::atomic<int64_t>& counter, bool reset) { return reset ? counter.exchange(0) : counter.load(); }

}  // namespace

bool int8_screen() { return switched_on().load(std::memory_order_relaxed); }

void use_int8(bool on) { switched_on().store(on && has_vnni(), std::memory_order_relaxed); }

void count_screened(const ScreenCounts& counts) {
  rows.fetch_add(counts.rows, std::memory_order_relaxed);
  fallbacks.fetch_add(counts.fallbacks, std::memory_order_relaxed);
  rescored.fetch_add(counts.rescored, std::memory_order_relaxed);
  candidates.fetch_add(counts.candidates, std::memory_order_relaxed);
}

ScreenCounts read_screen_counts(bool reset) {
  return {read(rows, reset), read(fallbacks, reset), read(rescored, reset), read(candidates, reset)};
}

}  // namespace regmax
