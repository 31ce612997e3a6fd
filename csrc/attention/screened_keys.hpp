// The keys of a call in 8 bits, with the numbers that bound their errors (quantise.hpp), and which calls need them.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "attention/blocks.hpp"
#include "attention/exact_pairs.hpp"
#include "attention/quantise.hpp"
#include "runtime/int8.hpp"
#include "runtime/tiers.hpp"

namespace regmax::REGMAX_ISA {

#if defined(__AVX512F__)
template <class T>
constexpr bool can_screen = sizeof(T) == sizeof(float);
#else
template <class T>
constexpr bool can_screen = false;
#endif

// Whether a call's scores may be screened: many queries, or few with a copy of the keys.
template <class T>
inline bool may_screen(const regmax_attention& call) {
  const bool may = can_screen<T> && call.keys >= least_screened_row && int8_screen() && forced_tier() == Tier::any;
  if (has_few_queries(call)) return may && call.screen && call.e > 0 && call.e <= most_copied_e;
  return may && call.queries >= least_screened_queries && call.e > 0 && call.e <= 1024;
}

// In place of ScreenedKeys if nothing is screened.
struct NoKeys {
  NoKeys(const regmax_attention&, bool) {}
  explicit operator bool() const { return true; }
  template <class T>
  void pack(int64_t, const T*, int64_t, const int32_t*, int64_t) {}
};
#if defined(__AVX512F__)

constexpr int64_t screen_panel = panel_width<float>;

// The keys of every head in 8 bits: panels [panel][dimension / 4][key of the panel][4].
class ScreenedKeys {
 public:
  ScreenedKeys(const regmax_attention& call, bool wanted)
      : call_(call),
        panels_(wanted ? panels_of<float>(call.keys) : 0),
        integers_(kv_heads(call) * panels_ * screen_panel * call.e),
        offsets_(kv_heads(call) * panels_ * screen_panel),
        scales_(kv_heads(call) * panels_ * screen_panel),
        errors_(kv_heads(call) * panels_),
        norms_(kv_heads(call) * panels_),
        usable_(kv_heads(call)),
        skipped_(kv_heads(call)) {}

  explicit operator bool() const {
    return integers_ && offsets_ && scales_ && errors_ && norms_ && usable_ && skipped_;
  }

  // Quantises the `count` keys x[index[j]] (x[j] if index is nullptr), which are `stride` apart.
  void pack(int64_t head, const float* x, int64_t stride, const int32_t* index, int64_t count) {
    usable_.get()[head] = panels_ > 0;
    skipped_.get()[head].store(0, std::memory_order_relaxed);
    Memory<float> columns(lanes<float> * call_.e);
    if (!columns) usable_.get()[head] = 0;
    for (int64_t p = 0; p < panels_of<float>(count) && usable(head); ++p) {
      Vec<float> error{}, norm{};
      for (int64_t i = 0; i < screen_panel; i += lanes<float>) {
        const float* keys[lanes<float>];
        for (int r = 0; r < lanes<float>; ++r) {
          const int64_t j = p * screen_panel + i + r,
                        own = j < count ? j : count - 1;  // any key will do after the last
          keys[r] = x + (index ? index[own] : own) * stride;
        }
        transpose_group([&](int r) { return keys[r]; }, call_.e, columns.get());
        const LaneBounds bounds =
            quantise_lanes(columns.get(), call_.e, false, panel_at(head, p) + 4 * i, 4 * screen_panel);
        if (bounds.usable != all_lanes<float>) usable_.get()[head] = 0;
        const int64_t place = this->place(head, p) + i;
        _mm512_storeu_si512(offsets_.get() + place, _mm512_mullo_epi32(bounds.sum, _mm512_set1_epi32(-128)));
        store<float>(scales_.get() + place, bounds.scale);
        error = larger(bounds.error, error);
        norm = larger(bounds.norm, norm);
      }
      errors_.get()[head * panels_ + p] = max_lanes<float>(error);
      norms_.get()[head * panels_ + p] = max_lanes<float>(norm);
    }
  }

  bool usable(int64_t head) const { return usable_.get()[head] != 0; }

  // Flat rows: after a group of queries that had to take the float path, the next ones of the head take it at once.
  // This decides the time only, never the result.
  bool is_worth_it(int64_t head) const {
    std::atomic<int32_t>& skipped = skipped_.get()[head];
    return skipped.load(std::memory_order_relaxed) <= 0 || skipped.fetch_sub(1, std::memory_order_relaxed) <= 0;
  }
  void skip(int64_t head) const { skipped_.get()[head].store(skipped_groups, std::memory_order_relaxed); }

  const int8_t* panel(int64_t head, int64_t p) const { return panel_at(head, p); }
  const int32_t* offsets(int64_t head, int64_t p) const { return offsets_.get() + place(head, p); }
  const float* scales(int64_t head, int64_t p) const { return scales_.get() + place(head, p); }
  const float* errors(int64_t head) const { return errors_.get() + head * panels_; }
  const float* norms(int64_t head) const { return norms_.get() + head * panels_; }

 private:
  int64_t place(int64_t head, int64_t p) const { return (head * panels_ + p) * screen_panel; }
  int8_t* panel_at(int64_t head, int64_t p) const { return integers_.get() + place(head, p) * call_.e; }

  const regmax_attention& call_;
  const int64_t panels_;
  Memory<int8_t> integers_;
  Memory<int32_t> offsets_;  // -128 times a key's sum: query bytes have 128 added
  Memory<float> scales_, errors_, norms_;
  Memory<uint8_t> usable_;
  Memory<std::atomic<int32_t>> skipped_;
};

template <class T>
using ScreenedKeysOf = std::conditional_t<can_screen<T>, ScreenedKeys, NoKeys>;

#else

template <class T>
using ScreenedKeysOf = NoKeys;

#endif

}  // namespace regmax::REGMAX_ISA
