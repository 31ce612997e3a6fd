// The only loop over rows: threads, masks, scratch. Rows go in groups, in lockstep, and on their own where
// they must.
#pragma once

#include <atomic>
#include <cstdint>

#include "calls.hpp"
#include "dense_products.hpp"
#include "lockstep.hpp"
#include "lockstep_chains.hpp"
#include "lockstep_products.hpp"
#include "lockstep_screened.hpp"
#include "masks.hpp"
#include "one_product.hpp"
#include "one_row.hpp"
#include "short_pnorm_products.hpp"
#include "short_products.hpp"
#include "threads.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

// Rows travel in blocks, always the same ones, so that nothing depends on the number of threads. A block is
// small enough to share the work out evenly, and large enough to cost nothing to hand out.
constexpr int64_t block_rows = 16;
constexpr int64_t block_scores = 16384;
constexpr int64_t scores_per_thread = 65536;  // waking a thread for less costs more than it saves

inline int64_t rows_per_block(int64_t d) {
  const int64_t groups = block_scores / (d * block_rows);
  return block_rows * (groups > 0 ? groups : 1);
}

// Calls rows(begin, end, workspace) for blocks of the n rows of d scores.
template <class Rows>
int32_t for_rows(int64_t n, int64_t d, int32_t threads, const Rows& rows) {
  struct Context {
    const Rows& rows;
    int64_t n, d, per_block;
    std::atomic<bool> failed;
  } context{rows, n, d, rows_per_block(d), {false}};
  const int64_t useful = n * d / scores_per_thread + 1;
  run_jobs((n + context.per_block - 1) / context.per_block,
           static_cast<int32_t>(useful < threads ? useful : threads),
           [](void* opaque, int64_t i) {
             Context& c = *static_cast<Context*>(opaque);
             void* const memory = thread_scratch(static_cast<std::size_t>(Workspace::bytes(c.d)));
             if (!memory) return c.failed.store(true, std::memory_order_relaxed);
             const int64_t begin = i * c.per_block, end = begin + c.per_block;
             Workspace workspace(memory, c.d);
             c.rows(begin, end < c.n ? end : c.n, workspace);
           },
           &context);
  return context.failed.load() ? REGMAX_OUT_OF_MEMORY : REGMAX_OK;
}

inline double strength(const Strength& theta, int64_t i) {
  return theta.per_row ? theta.per_row[i] : theta.shared;
}

template <class Word>
inline Word* bits_row(Word* bits, int64_t i, int64_t d) {
  return bits ? bits + i * words_of(d) : nullptr;
}

template <class T>
RowOut<T> row_out(const Argmax<T>& call, int64_t i) {
  return {call.y + i * call.d, bits_row(call.support, i, call.d), bits_row(call.joined, i, call.d),
          mask_row(call.mask, i, call.d), call.d};
}

template <class T>
void take_out_deleted(int32_t kernel, const uint8_t* keep, int r, Workspace& w, LaneRows<T>& rows) {
  T* const copy = static_cast<T*>(w.copies) + r * w.copy_stride;
  if (has_chains(kernel)) {
    rows.kept[r] = w.kept_bits + r * rows.words;
    rows.length[r] = drop_deleted(rows.x[r], keep, rows.d, rows.kept[r], copy);
  } else {
    rows.length[r] = rows.d;
    hide_deleted(rows.x[r], keep, rows.d, copy);
  }
  rows.x[r] = copy;
}

// Without mask and with one strength for all rows, either all go in lockstep or none. Lengths and strengths
// are those of the group before, if that was as large.
template <class T>
uint32_t choose_whole(const Argmax<T>& call, int64_t first, int count, int before, LaneRows<T>& rows) {
  const bool suits = suits_lockstep(call.kernel, call.theta.shared);
  for (int r = 0; r < lanes<T>; ++r) rows.x[r] = call.x + (first + r) * call.d;
  for (int r = 0; count != before && r < lanes<T>; ++r) {
    rows.length[r] = suits && r < count ? call.d : 0;
    rows.theta[r] = static_cast<T>(call.theta.shared);
  }
  return suits ? 0 : all_lanes<T> >> (lanes<T> - count);
}

// Fills in which rows of the group go in lockstep, and where they are; returns the bits of the others.
template <class T>
uint32_t choose_lanes(const Argmax<T>& call, int64_t first, int count, PrefixLengths& lengths, Workspace& w,
                      LaneRows<T>& rows) {
  uint32_t left = 0;
  for (int r = 0; r < lanes<T>; ++r) {
    rows.length[r] = 0;
    if (r >= count) continue;
    const double theta = strength(call.theta, first + r);
    const int64_t length = lengths.next();
    rows.theta[r] = static_cast<T>(theta);
    rows.x[r] = call.x + (first + r) * call.d;
    rows.kept[r] = nullptr;
    if (!suits_lockstep(call.kernel, theta)) {
      left |= 1u << r;
    } else if (length < 0) {
      take_out_deleted(call.kernel, lengths.keep(), r, w, rows);
    } else {
      rows.length[r] = length;
      left |= static_cast<uint32_t>(length == 0) << r;
    }
  }
  return left;
}

// Maps rows in groups, by a Lockstep or one of its kin.
template <class T, class Groups>
void argmax_groups(const Argmax<T>& call, int64_t begin, int64_t end, Workspace& w, Groups& groups) {
  PrefixLengths lengths(call.mask, call.d, begin);
  const bool plain = !call.mask.bytes && !call.theta.per_row;
  LaneRows<T> rows = {};
  rows.d = call.d;
  rows.words = words_of(call.d);
  rows.streamed = is_streamed(call.y, call.n, call.d);
  int before = 0;
  for (int64_t first = begin; first < end; first += lanes<T>) {
    const int count = static_cast<int>(end - first < lanes<T> ? end - first : lanes<T>);
    const RowOut<T> out = row_out(call, first);
    rows.y = out.y;
    rows.support = out.support;
    rows.joined = out.joined;
    uint32_t left = plain ? choose_whole(call, first, count, before, rows)
                          : choose_lanes(call, first, count, lengths, w, rows);
    before = count;
    left |= groups.run(rows) & (all_lanes<T> >> (lanes<T> - count));
    for (; left; left &= left - 1) {
      const int64_t i = first + __builtin_ctz(left);
      argmax_row(call.kernel, call.x + i * call.d, strength(call.theta, i), w, row_out(call, i));
    }
  }
  if (rows.streamed) finish_streams();
}

template <class T, int32_t kernel>
void argmax_rows(const Argmax<T>& call, int64_t begin, int64_t end, Workspace& w) {
  if constexpr (kernel == REGMAX_SPARSEMAX || kernel == REGMAX_SQPNORMMAX) {
    if (call.d <= RowLockstep<T, kernel>::unscreened_row) {
      RowLockstep<T, kernel> groups(w);
      return argmax_groups(call, begin, end, w, groups);
    }
    if (call.d <= longest_lockstep_row) {
      ScreenedLockstep<T, kernel> groups(w);
      return argmax_groups(call, begin, end, w, groups);
    }
  }
  if constexpr (kernel == REGMAX_FUSEDMAX && sizeof(T) == sizeof(float)) {
    ChainedLockstep groups(w);
    return argmax_groups(call, begin, end, w, groups);
  }
  Lockstep<T, kernel> groups(w.words);
  argmax_groups(call, begin, end, w, groups);
}

// A strength without effect makes a mapping sparsemax, for which there is the shortest way.
inline int32_t effective_kernel(int32_t kernel, const Strength& theta) {
  if (!on_simplex(kernel) || theta.per_row) return kernel;
  return theta.shared == (kernel == REGMAX_SQPNORMMAX ? 2 : 0) ? REGMAX_SPARSEMAX : kernel;
}

template <class T>
int32_t argmax(const Argmax<T>& given) {
  Argmax<T> call = given;
  call.kernel = effective_kernel(given.kernel, given.theta);
  if (!has_joined(call.kernel)) {
    if (has_joined(given.kernel)) clear_bits(given.joined, 64 * given.n * words_of(given.d));
    call.joined = nullptr;
  }
  return for_rows(call.n, call.d, call.threads, [&](int64_t begin, int64_t end, Workspace& w) {
    switch (call.kernel) {
      case REGMAX_SPARSEMAX:
        return argmax_rows<T, REGMAX_SPARSEMAX>(call, begin, end, w);
      case REGMAX_FUSEDMAX:
        return argmax_rows<T, REGMAX_FUSEDMAX>(call, begin, end, w);
      case REGMAX_OSCARMAX:
        return argmax_rows<T, REGMAX_OSCARMAX>(call, begin, end, w);
      case REGMAX_SQPNORMMAX:
        return argmax_rows<T, REGMAX_SQPNORMMAX>(call, begin, end, w);
    }
    for (int64_t i = begin; i < end; ++i) {
      argmax_row(call.kernel, call.x + i * call.d, strength(call.theta, i), w, row_out(call, i));
    }
  });
}

template <class T>
RowIn<T> row_in(const JacobianProduct<T>& call, int64_t i) {
  return {call.y + i * call.d,
          call.v + i * call.d,
          bits_row(call.support, i, call.d),
          bits_row(call.joined, i, call.d),
          mask_row(call.mask, i, call.d),
          call.d};
}

// Lockstep reads the groups of a chain off `joined`, and knows p = 1.5 alone.
inline bool suits_products(int32_t kernel, double theta, bool joined) {
  if (kernel == REGMAX_FUSEDMAX) return joined && theta != 0;
  return kernel == REGMAX_SPARSEMAX || (kernel == REGMAX_OSCARMAX && theta != 0) || theta == 1.5;
}

// Multiplies rows in groups, by LockstepProducts, ShortProducts or ShortPnormProducts.
template <class T, class Groups>
void multiply_groups(const JacobianProduct<T>& call, int32_t kernel, int64_t begin, int64_t end, Workspace& w,
                     Groups& groups) {
  const bool streamed = is_streamed(call.out, call.n, call.d);
  const bool suits = suits_products(kernel, call.theta.shared, call.joined);  // without strengths per row
  for (int64_t first = begin; first < end; first += lanes<T>) {
    const int count = static_cast<int>(end - first < lanes<T> ? end - first : lanes<T>);
    const RowIn<T> row = row_in(call, first);
    const uint32_t all = all_lanes<T> >> (lanes<T> - count);
    uint32_t left = suits ? 0 : all;
    for (int r = 0; call.theta.per_row && r < count; ++r) {
      const bool suits_row = suits_products(kernel, call.theta.per_row[first + r], call.joined);
      left = (left & ~(1u << r)) | static_cast<uint32_t>(!suits_row) << r;
    }
    const uint32_t active = all & ~left;
    const ProductRows<T> rows{row.y,      row.v,  call.out + first * call.d, row.support,
                              row.joined, call.d, words_of(call.d),          streamed,
                              active};
    if (active) left |= groups.run(rows);
    for (; left; left &= left - 1) {
      const int64_t i = first + __builtin_ctz(left);
      const double theta = strength(call.theta, i);
      const RowIn<T> one = row_in(call, i);
      T* const out = call.out + i * call.d;
      if (!DenseProduct<T>(one, out, w).multiply(kernel, theta))
        jacobian_product_row(kernel, theta, one, out, w);
    }
  }
  if (streamed) finish_streams();
}

template <class T>
void jacobian_product_rows(const JacobianProduct<T>& call, int32_t kernel, int64_t begin, int64_t end,
                           Workspace& w) {
  const bool joins = has_joined(kernel) && call.support && call.joined && call.d <= short_joined_product;
  if (joins || (kernel == REGMAX_SPARSEMAX && call.d <= short_product)) {
    ShortProducts<T> groups(kernel, w);
    return multiply_groups(call, kernel, begin, end, w, groups);
  }
  if (kernel == REGMAX_SQPNORMMAX && call.d <= short_pnorm_product) {
    ShortPnormProducts<T> groups;
    return multiply_groups(call, kernel, begin, end, w, groups);
  }
  LockstepProducts<T> groups(kernel, w.words);
  multiply_groups(call, kernel, begin, end, w, groups);
}

template <class T>
int32_t jacobian_product(const JacobianProduct<T>& call) {
  return for_rows(call.n, call.d, call.threads, [&](int64_t begin, int64_t end, Workspace& w) {
    const int32_t kernel = effective_kernel(call.kernel, call.theta);
    if (on_simplex(kernel)) return jacobian_product_rows(call, kernel, begin, end, w);
    for (int64_t i = begin; i < end; ++i) {
      jacobian_product_row(kernel, strength(call.theta, i), row_in(call, i), call.out + i * call.d, w);
    }
  });
}

template <class T>
int32_t prox_owl_rows(const ProxOwl<T>& call) {
  return for_rows(call.n, call.d, call.threads, [&](int64_t begin, int64_t end, Workspace& w) {
    for (int64_t i = begin; i < end; ++i) {
      const RowOut<T> row{call.z + i * call.d, nullptr, nullptr, nullptr, call.d};
      prox_owl_row(call.x + i * call.d, call.weights, w, row);
    }
  });
}

}  // namespace regmax::REGMAX_ISA
