// The loop over rows of an argmax call: threads, blocks, scratch, groups.
#pragma once

#include <cstdint>
#include <limits>

#include "mappings/mapping.hpp"
#include "rows/cascade.hpp"
#include "rows/dense_rows.hpp"
#include "rows/leading_rows.hpp"
#include "rows/row_numbers.hpp"
#include "runtime/calls.hpp"
#include "runtime/scratch.hpp"

namespace regmax::REGMAX_ISA {

inline int64_t rows_per_block(int64_t d) {
  const int64_t groups = block_scores / (d * block_rows);
  return block_rows * (groups > 0 ? groups : 1);
}

// Calls block(begin, end, workspace) for blocks of the n rows of d scores.
template <class Space = Workspace, class Block>
int32_t for_rows(int64_t n, int64_t d, int32_t threads, const Block& block) {
  const int64_t per_block = rows_per_block(d), useful = n * d / scores_per_thread + 1;
  return run_with_scratch<Space>((n + per_block - 1) / per_block,
                                 static_cast<int32_t>(useful < threads ? useful : threads), d,
                                 [&](int64_t i, Space& w) {
                                   const int64_t begin = i * per_block, end = begin + per_block;
                                   block(begin, end < n ? end : n, w);
                                   return true;
                                 });
}

// How the blocks of a call are run: on the call's own arrays, or on converted ones (half_rows.hpp).
struct WholeArrays {
  using Space = Workspace;

  template <class T, class Run>
  void operator()(const Rows<T>& call, int64_t, int64_t, Workspace&, const Run& run) const {
    run(call);
  }
};

// Called after each group of rows, while its scores are in the level-one cache.
template <class T>
void find_kept_rows(const Rows<T>& call, int64_t begin, int64_t end) {
  for (int64_t i = begin; call.kept && i < end; ++i)
    find_kept(call.x + i * call.d, mask_row(call.mask, i, call.d), call.d, bits_row(call.kept, i, call.d));
}

template <class T, class Mapping>
void map_rows(const Rows<T>& call, Tier forced, int64_t begin, int64_t end, Workspace& w) {
  DenseRows<T> out(call, begin, w);
  if constexpr (Mapping::on_simplex) {
    Cascade<T, Mapping> cascade(call.d, forced, w);
    Maxima<T, Mapping> maxima(call, w);
    for (int64_t first = begin; first < end; first += lanes<T>) {
      const int count = static_cast<int>(end - first < lanes<T> ? end - first : lanes<T>);
      const uint32_t fast = out.template next<Mapping>(first, count);
      cascade.run(out.group, fast, ~fast & (all_lanes<T> >> (lanes<T> - count)), out);
      for (int64_t i = first; call.has_row_numbers() && i < first + count; ++i) maxima.add_row(i);
      find_kept_rows(call, first, first + count);
    }
  } else if constexpr (leads<Mapping>) {
    LeadingRows<T> leading(w);
    const bool lanes_first = forced == Tier::any || forced == Tier::lanes;
    for (int64_t first = begin; first < end; first += lanes<T>) {
      const int count = static_cast<int>(end - first < lanes<T> ? end - first : lanes<T>);
      const uint32_t fast = lanes_first ? out.template next<Mapping>(first, count) : 0;
      uint32_t left = ~fast & (all_lanes<T> >> (lanes<T> - count));
      if (fast) left |= leading.run(out.group, fast, out);
      for (; left; left &= left - 1) {
        out.at(first);
        map_scalar_row<T, Mapping>(__builtin_ctz(left), w, out);
      }
      find_kept_rows(call, first, first + count);
    }
  } else {
    for (int64_t i = begin; i < end; ++i) {
      out.at(i);
      map_scalar_row<T, Mapping>(0, w, out);
      find_kept_rows(call, i, i + 1);
    }
  }
  out.finish();
}

template <class T, class Blocks = WholeArrays>
int32_t argmax(const Rows<T>& given, const Blocks& blocks = {}) {
  const auto map = [&](auto mapping) {
    using Mapping = decltype(mapping);
    if (!Mapping::on_simplex && given.has_row_numbers()) return int32_t{REGMAX_BAD_ARGUMENT};
    if (given.n == 0 || given.d == 0) return int32_t{REGMAX_OK};
    Rows<T> call = given;
    if (Mapping::joins == Joins::nothing && call.joined) {
      clear_bits(call.joined, 64 * call.n * words_of(call.d));
      call.joined = nullptr;
    }
    const Tier forced = forced_tier();
    using Space = typename Blocks::Space;
    return for_rows<Space>(call.n, call.d, call.threads, [&](int64_t begin, int64_t end, Space& w) {
      blocks(call, begin, end, w, [&](const Rows<T>& rows) { map_rows<T, Mapping>(rows, forced, begin, end, w); });
    });
  };
  return with_mapping(given.kernel, given.theta.shared, given.theta.per_row, given.n, map, given.has_row_numbers());
}

// Nothing is deleted here: a row that is not finite has no result.
template <class T>
int32_t prox_owl_rows(const Rows<T>& call, const double* weights) {
  return for_rows(call.n, call.d, call.threads, [&](int64_t begin, int64_t end, Workspace& w) {
    for (int64_t i = begin; i < end; ++i) {
      const SourceRow<T> row{call.x + i * call.d, nullptr, call.d, 0, 1};
      T* const z = call.y + i * call.d;
      int64_t kept = 0;
      if (!find_scores(row, w, &kept) || kept < call.d) {
        fill_kept<T>(z, nullptr, call.d, std::numeric_limits<T>::quiet_NaN());
        continue;
      }
      for (int64_t k = 0; k < call.d; ++k) w.x[k] = static_cast<double>(row.x[k]);
      const auto weight = [&](int64_t k) { return weights[k]; };
      const IsotonicSpace space(w.pooling, call.d);
      rank_sizes(row.x, call.d, w.y, w, space.ranked);
      prox_owl(w.x, call.d, weight, space, 0, w.y);
      for (int64_t k = 0; k < call.d; ++k) z[k] = static_cast<T>(w.y[k]);
    }
  });
}

}  // namespace regmax::REGMAX_ISA
