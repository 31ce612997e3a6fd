// The keys that the forward pass multiplies queries by: packed in panels, and in 8 bits if they are screened.
#pragma once

#include <atomic>
#include <cstdint>

#include "attention/blocks.hpp"
#include "attention/masks.hpp"
#include "attention/screened_keys.hpp"

namespace regmax::REGMAX_ISA {

// If no number of a query or a key exceeds this, no score is infinite.
constexpr double bounded_number = 1e16;

// The keys of every head that a shared mask keeps: packed in panels, or with few queries where they are. If they are
// screened, a head's panels are packed when a row needs them.
template <class T>
class PackedKeys {
 public:
  PackedKeys(const regmax_attention& call, bool is_screened)
      : kept(call),
        screened(call, is_screened && !has_few_queries(call)),
        call_(call),
        is_screened_(is_screened),
        panels_(has_few_queries(call) ? 0 : kv_heads(call) * panel_numbers()),
        largest_(kv_heads(call)),
        packed_(kv_heads(call)) {}

  explicit operator bool() const { return kept && panels_ && largest_ && packed_ && screened; }

  void pack(int64_t head) {
    kept.read_shared(head);
    if (has_few_queries(call_)) return;
    packed_.get()[head].store(0, std::memory_order_relaxed);
    if (is_screened_) {
      screened.pack(head, at(head), stride(), kept.index(head), kept.count(head));
    } else {
      need_panels(head);
    }
  }

  // Packs a head's panels unless that is done.
  void need_panels(int64_t head) const {
    struct Job {
      const PackedKeys* self;
      int64_t head;
    } job{this, head};
    const auto pack = [](void* opaque) {
      const Job& own = *static_cast<Job*>(opaque);
      own.self->pack_panels_of(own.head);
    };
    run_once(packed_.get()[head], pack, &job);
  }

  void pack_all() {
    run_jobs(
        kv_heads(call_), call_.threads, [](void* self, int64_t head) { static_cast<PackedKeys*>(self)->pack(head); },
        this);
    kept.read_rows();
  }

  const T* at(int64_t head) const { return typed<T>(call_.k) + head_rows(call_, part_k, head).begin; }
  int64_t stride() const { return head_rows(call_, part_k, 0).stride; }

  const T* panel(int64_t head, int64_t p) const {
    return panels_.get() + head * panel_numbers() + p * panel_width<T> * call_.e;
  }

  // Whether the packed keys are, by bounded_number.
  bool are_bounded(int64_t head) const { return largest_.get()[head] <= bounded_number; }

  KeptKeys kept;
  ScreenedKeysOf<T> screened;

 private:
  void pack_panels_of(int64_t head) const {
    largest_.get()[head] = pack_panels(at(head), stride(), kept.index(head), kept.count(head), call_.e,
                                       panels_.get() + head * panel_numbers());
  }
  int64_t panel_numbers() const { return panels_of<T>(call_.keys) * panel_width<T> * call_.e; }

  const regmax_attention& call_;
  const bool is_screened_;
  Memory<T> panels_, largest_;
  Memory<std::atomic<int32_t>> packed_;
};

}  // namespace regmax::REGMAX_ISA
