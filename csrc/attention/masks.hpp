// Which keys a call's mask keeps. Most masks keep a range of keys for each query: padding, causality, windows. Such
// rows are found by reading the mask once, and then need no compaction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "attention/blocks.hpp"

namespace regmax::REGMAX_ISA {

// The kept keys of one row of a mask: from begin to end, all of them if `whole`.
struct KeptRange {
  int32_t begin, end;
  bool whole;
};

// The index after the last nonzero byte.
inline int64_t end_of_nonzero(const uint8_t* bytes, int64_t count) {
  for (uint64_t word; count >= 8; count -= 8) {
    std::memcpy(&word, bytes + count - 8, 8);
    if (word) break;
  }
  while (count > 0 && !bytes[count - 1]) --count;
  return count;
}

inline KeptRange find_range(const uint8_t* mask, int64_t keys) {
  const int64_t end = end_of_nonzero(mask, keys);
  int64_t begin = 0;
  for (uint64_t word; begin + 8 <= end; begin += 8) {
    std::memcpy(&word, mask + begin, 8);
    if (word) break;
  }
  while (begin < end && !mask[begin]) ++begin;
  const bool whole = !std::memchr(mask + begin, 0, static_cast<std::size_t>(end - begin));
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end), whole};
}

class KeptKeys {
 public:
  explicit KeptKeys(const regmax_attention& call)
      : call_(call),
        slices_(call.mask ? *std::max_element(call.mask_slices, call.mask_slices + call.heads) + 1 : 0),
        index_(is_shared()  ? kv_heads(call) * call.keys
               : has_rows() ? call.keys
                            : 0),
        counts_(kv_heads(call)),
        ranges_(is_shared()  ? kv_heads(call)
                : has_rows() ? slices_ * call.mask_rows
                             : 0) {}

  explicit operator bool() const { return index_ && counts_ && ranges_; }

  // One mask for all queries of a head, or one row of it per query.
  bool is_shared() const { return call_.mask && call_.mask_rows == 1; }
  bool has_rows() const { return call_.mask && call_.mask_rows > 1; }

  // Reads the mask of all queries of a head.
  void read_shared(int64_t kv_head) {
    counts_.get()[kv_head] = call_.keys;
    if (!is_shared()) return;
    const uint8_t* const mask = call_.mask + call_.mask_slices[kv_head * call_.groups] * call_.keys;
    const KeptRange range = ranges_.get()[kv_head] = find_range(mask, call_.keys);
    counts_.get()[kv_head] = range.end;
    if (is_prefix(range)) return;
    int32_t* const kept = index_.get() + kv_head * call_.keys;
    int64_t count = 0;
    for (int32_t j = range.begin; j < range.end; ++j) {
      kept[count] = j;
      count += mask[j] != 0;
    }
    counts_.get()[kv_head] = count;
  }

  // Reads the masks of single queries.
  void read_rows() {
    if (!has_rows()) return;
    for (int64_t j = 0; j < call_.keys; ++j) index_.get()[j] = static_cast<int32_t>(j);
    run_jobs(
        slices_ * call_.mask_rows / 64 + 1, call_.threads,
        [](void* self, int64_t job) { static_cast<KeptKeys*>(self)->read_some_rows(64 * job); }, this);
  }

  // The columns of the keys that the shared mask keeps; nullptr if these are 0, 1, ...
  const int32_t* index(int64_t kv_head) const {
    return is_shared() && !is_prefix(ranges_.get()[kv_head]) ? index_.get() + kv_head * call_.keys : nullptr;
  }

  // How many keys the shared mask keeps, of all or of the keys 0, ..., visible - 1.
  int64_t count(int64_t kv_head) const { return counts_.get()[kv_head]; }
  int64_t count(int64_t kv_head, int64_t visible) const {
    const int32_t* const kept = index(kv_head);
    if (!kept) return std::min(count(kv_head), visible);
    return std::partition_point(kept, kept + count(kv_head), [=](int32_t j) { return j < visible; }) - kept;
  }

  // What the mask of a single query keeps, and the columns from any key on.
  const KeptRange& range(int64_t head, int64_t query) const {
    return ranges_.get()[call_.mask_slices[head] * call_.mask_rows + query];
  }
  const int32_t* columns_from(int64_t begin) const { return index_.get() + begin; }

 private:
  static bool is_prefix(const KeptRange& range) { return range.whole && range.begin == 0; }

  void read_some_rows(int64_t first) {
    const int64_t rows = slices_ * call_.mask_rows;
    for (int64_t i = first; i < first + 64 && i < rows; ++i)
      ranges_.get()[i] = find_range(call_.mask + i * call_.keys, call_.keys);
  }

  const regmax_attention& call_;
  const int64_t slices_;
  Memory<int32_t> index_;
  Memory<int64_t> counts_;
  Memory<KeptRange> ranges_;
};

}  // namespace regmax::REGMAX_ISA
