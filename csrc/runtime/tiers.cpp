#include "runtime/tiers.hpp"

#include <atomic>
#include <cstring>

namespace regmax {
namespace {

std::atomic<Tier> forced{Tier::any};

}  // namespace

Tier forced_tier() { return forced.load(std::memory_order_relaxed); }

bool force_tier(const char* name) {
  const char* const names[] = {"lanes", "whole", "levels", "scalar"};  // in the order of Tier, after `any`
  constexpr int count = sizeof names / sizeof names[0];
  int tier = 0;
  if (name) {
    while (tier < count && std::strcmp(name, names[tier]) != 0) ++tier;
    if (tier++ == count) return false;
  }
  forced.store(static_cast<Tier>(tier), std::memory_order_relaxed);
  return true;
}

}  // namespace regmax
