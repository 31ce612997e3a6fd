#include "runtime/tiers.hpp"

#include <atomic>
#include <cstring>

namespace regmax {
namespace {

std::atomic<Tier> forced{Tier::any};

}  // namespace

Tier forced_tier() { return forced.load(std::memory_order_relaxed); }

bool force_tier(const char* name) {
  const char* const names[] = {"lanes", "whole", "scalar"};  // in the order of Tier, after `any`
  int tier = 0;
  if (name) {
    while (tier < 3 && std::strcmp(name, names[tier]) != 0) ++tier;
    if (tier++ == 3) return false;
  }
  forced.store(static_cast<Tier>(tier), std::memory_order_relaxed);
  return true;
}

}  // namespace regmax
