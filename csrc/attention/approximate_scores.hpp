// The scores of a group of queries from 8 bits, up to a proven error, by AVX-512 VNNI.
//
// With q = q^ + rest and k = k^ + rest (quantise.hpp), |q.k - q^.k^| <= |q| |k - k^| + |q - q^| |k^|, and q^.k^ is an
// integer times two scales. A further g |q| |k| covers the rounding of the float path, whose scores are bounded, and of
// this file (docs/derivations/int8.md). Errors are per query and panel of keys.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "attention/int8_product.hpp"
#include "attention/screened_keys.hpp"

namespace regmax::REGMAX_ISA {

// In place of ScreenScratch if nothing is screened.
struct NoScratch {
  NoScratch(Cutter&, const regmax_attention&, bool) {}
};

#if defined(__AVX512F__)

// Memory for a group of 16 queries.
struct ScreenScratch {
  int8_t* queries;
  float *columns, *errors, *tops, *lows, *scores, *more_scores;
  int32_t *places, *owners, *more_places;

  ScreenScratch(Cutter& cutter, const regmax_attention& call, bool wanted) {
    const int64_t rows = wanted ? lanes<float> : 0, panels = panels_of<float>(call.keys) + 1;
    queries = cutter.take<int8_t>(rows * (call.e + 64));
    columns = cutter.take<float>(rows * call.e);
    errors = cutter.take<float>(rows * (panels + lanes<float>));
    tops = cutter.take<float>(rows * panels * lanes<float>);
    lows = cutter.take<float>(rows * lanes<float>);
    // A row may be collected twice, and whole panels of hits are written.
    scores = cutter.take<float>(2 * rows * most_rescored + 2 * screen_panel);
    more_scores = cutter.take<float>(most_rescored + 2 * screen_panel);
    places = cutter.take<int32_t>(2 * rows * most_rescored + 2 * screen_panel);
    owners = cutter.take<int32_t>(2 * rows * most_rescored + 2 * screen_panel);
    more_places = cutter.take<int32_t>(most_rescored + 2 * screen_panel);
  }
};

// `x_row` is the distance between rows of scores.
class ApproximateScores {
 public:
  ApproximateScores(const regmax_attention& call, const ScreenedKeys& keys, int64_t head, ScreenScratch& s)
      : call_(call), keys_(keys), head_(head), s_(s) {}

  // Quantises the queries of the rows of `wanted`, e numbers each, one after the other; returns the rows that can be
  // bounded.
  uint32_t add_queries(const float* queries, uint32_t wanted) {
    return few_ ? quantise_rows(queries, wanted) : quantise_group(queries, wanted);
  }

  // Approximate scores of all queries and the first `longest` keys.
  void multiply(int64_t longest, float* x, int64_t x_row) {
    panels_ = panels_of<float>(longest);
    const float *const key_errors = keys_.errors(head_), *const key_norms = keys_.norms(head_);
    // Twice what rounding in the float path needs: the rest covers rounding here, comparisons included.
    const float g = slack_of(call_.e);
    Vec<float> norms{};
    for (int64_t p = 0; p < panels_; p += lanes<float>)
      norms = larger(load_left(key_norms + p, panels_ - p, 0.0f), norms);
    largest_norm_ = max_lanes<float>(norms);
    for (int r = 0; r < lanes<float>; ++r) {
      const Vec<float> norm = splat(norms_[r]), rest = splat(errors_[r] + g * norms_[r]);
      Vec<float> largest{};
      for (int64_t p = 0; p < panels_; p += lanes<float>) {
        const Vec<float> key_error = load_left(key_errors + p, panels_ - p, 0.0f);
        const Vec<float> key_norm = load_left(key_norms + p, panels_ - p, 0.0f);
        const Vec<float> error = (norm * key_error + rest * key_norm) * splat(1.0001f) + splat(tiny_error);
        store<float>(s_.errors + r * errors_row() + p, error);
        largest = larger(error, largest);
      }
      largest_error[r] = _mm512_reduce_max_ps(largest);
    }
    for (int64_t p = 0; p < panels_; ++p) {
      const IntegerPanel panel{keys_.panel(head_, p), keys_.offsets(head_, p), keys_.scales(head_, p)};
      multiply_integers(s_.queries, scales_, call_.e, panel,
                        {x + p * screen_panel, x_row, s_.tops + p * lanes<float>, panels_ * lanes<float>});
    }
  }

  // The same of the rows of `wanted` from the copy of the keys that the call has, with one error for all of them.
  void multiply_copy(const int32_t* index, int64_t longest, float* x, int64_t x_row, uint32_t wanted) {
    panels_ = panels_of<float>(longest);
    const float *const bounds = call_.screen_bounds + 2 * head_, *const scales = call_.screen_scales + first_copied();
    const int8_t* const copy = call_.screen + first_copied() * call_.e;
    largest_norm_ = bounds[1];
    for (; wanted; wanted &= wanted - 1) {
      const int r = __builtin_ctz(wanted);
      const float rest = errors_[r] + slack_of(call_.e) * norms_[r];
      largest_error[r] = (norms_[r] * bounds[0] + rest * bounds[1]) * 1.0001f + tiny_error;
      multiply_copied(
          query_bytes(r), scales_[r], sums_[r], call_.e, [&](int64_t key) { return copy + key * call_.e; }, scales,
          index, longest, x + r * x_row);
    }
  }

  float largest_error[lanes<float>] = {};

 protected:
  // The maxima by lane of panel p of row r.
  float* tops(int r, int64_t p) const { return s_.tops + (r * panels_ + p) * lanes<float>; }
  const float* panel_errors(int r) const { return s_.errors + r * errors_row(); }
  // Whether all products of row r are far from overflow.
  bool are_products_bounded(int r) const { return norms_[r] * largest_norm_ < 1e30f; }

  const regmax_attention& call_;
  const ScreenedKeys& keys_;
  const int64_t head_;
  ScreenScratch& s_;
  const bool few_ = has_few_queries(call_);  // then keys are read where they are, and so are their copies

 private:
  static constexpr float tiny_error = 1e-30f;  // what underflows in the float path

  // With few queries: zero-padded to whole vectors.
  int8_t* query_bytes(int r) const { return s_.queries + r * ((call_.e + 63) / 64 * 64); }

  uint32_t quantise_rows(const float* queries, uint32_t wanted) {
    for (uint32_t rest = wanted; rest; rest &= rest - 1) {
      const int r = __builtin_ctz(rest);
      std::memset(query_bytes(r) + call_.e, 0, static_cast<std::size_t>(-call_.e & 63));
      RowBounds bounds{};
      if (!quantise(queries + r * call_.e, call_.e, query_bytes(r), &bounds)) wanted &= ~(1u << r);
      scales_[r] = bounds.scale, errors_[r] = bounds.error, norms_[r] = bounds.norm, sums_[r] = bounds.sum;
    }
    return wanted;
  }

  // Sums are not needed: query bytes have 128 added, and only keys have sums.
  uint32_t quantise_group(const float* queries, uint32_t wanted) {
    transpose_group([&](int r) { return queries + r * call_.e; }, call_.e, s_.columns);
    const LaneBounds bounds = quantise_lanes(s_.columns, call_.e, true, s_.queries, 4 * lanes<float>);
    wanted &= bounds.usable;
    const auto keep = [&](float* out, Vec<float> x) {
      store<float>(out, select(from_bits<float>(wanted), x, Vec<float>{}));
    };
    keep(scales_, bounds.scale), keep(errors_, bounds.error), keep(norms_, bounds.norm);
    return wanted;
  }

  int64_t first_copied() const { return head_ * call_.screen_stride; }
  int64_t errors_row() const { return (panels_ + lanes<float> - 1) / lanes<float> * lanes<float>; }

  int64_t panels_ = 0;
  float scales_[lanes<float>], errors_[lanes<float>], norms_[lanes<float>], largest_norm_ = 0;
  int32_t sums_[lanes<float>];
};

template <class T>
using ScreenScratchOf = std::conditional_t<can_screen<T>, ScreenScratch, NoScratch>;

#else

template <class T>
using ScreenScratchOf = NoScratch;

#endif

}  // namespace regmax::REGMAX_ISA
