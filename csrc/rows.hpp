// The only loop over rows: threads, masks, scratch; what is kept is gathered, mapped and scattered back.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "calls.hpp"
#include "jacobians.hpp"
#include "lockstep.hpp"
#include "lockstep_products.hpp"
#include "mappings.hpp"
#include "threads.hpp"

namespace regmax::REGMAX_ISA {

// Rows travel in blocks, always the same ones, so that nothing depends on the number of threads. A block is small
// enough to share the work out evenly, and large enough to cost nothing to hand out.
constexpr int64_t block_rows = 16;
constexpr int64_t block_scores = 16384;
constexpr int64_t scores_per_thread = 16384;  // waking a thread for less costs more than it saves

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
  run_jobs((n + context.per_block - 1) / context.per_block, static_cast<int32_t>(useful < threads ? useful : threads),
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

inline const uint8_t* mask_row(const Mask& mask, int64_t i, int64_t d) {
  return mask.bytes ? mask.bytes + i / mask.repeat % mask.rows * d : nullptr;
}

inline double strength(const Strength& theta, int64_t i) { return theta.per_row ? theta.per_row[i] : theta.shared; }

inline int64_t words_of(int64_t d) { return (d + 63) / 64; }

template <class Word>
inline Word* bits_row(Word* bits, int64_t i, int64_t d) {
  return bits ? bits + i * words_of(d) : nullptr;
}

inline bool test_bit(const uint64_t* words, int64_t i) { return words[i / 64] >> (i % 64) & 1; }

inline void clear_bits(uint64_t* words, int64_t d) {
  for (int64_t i = 0; words && i < words_of(d); ++i) words[i] = 0;
}

// One row's ends in the caller's arrays; keep, support and joined may be nullptr.
template <class T>
struct RowOut {
  T* y;
  uint64_t* support;
  uint64_t* joined;
  const uint8_t* keep;
  int64_t d;
};

// Fills the row with `value` at kept positions, zero elsewhere; no bits. With NaN, that is a row that has no result.
template <class T>
void fill_row(const RowOut<T>& row, T value) {
  for (int64_t i = 0; i < row.d; ++i) row.y[i] = row.keep && !row.keep[i] ? T(0) : value;
  clear_bits(row.support, row.d);
  clear_bits(row.joined, row.d);
}

// Gathers the kept scores above -inf into w.x and their positions into w.index; -1 where one is NaN or +inf.
template <class T>
int64_t gather_scores(const T* x, const uint8_t* keep, int64_t d, Workspace& w, int64_t* positions) {
  int64_t m = 0;
  bool bad = false;
  for (int64_t i = 0; i < d; ++i) {
    const bool kept = !keep || keep[i];
    w.x[m] = static_cast<double>(x[i]);
    positions[m] = i;
    bad |= kept && !(x[i] <= std::numeric_limits<T>::max());
    m += kept && !(x[i] < -std::numeric_limits<T>::max());
  }
  return bad ? -1 : m;
}

// Writes y at the positions of the kept scores. Joined is read off what is written: whoever has the weights alone
// finds the same groups.
template <class T>
void scatter_row(const double* y, const int64_t* positions, int64_t m, const RowOut<T>& row) {
  fill_row(row, T(0));
  for (int64_t k = 0; k < m; ++k) {
    const int64_t i = positions[k];
    row.y[i] = static_cast<T>(y[k]);
    const uint64_t bit = uint64_t{1} << (i % 64);
    if (row.support && row.y[i] != 0) row.support[i / 64] |= bit;
    if (row.joined && k > 0 && row.y[i] == row.y[positions[k - 1]]) row.joined[i / 64] |= bit;
  }
}

template <class T>
void argmax_row(int32_t kernel, const T* x, double theta, Workspace& w, const RowOut<T>& row) {
  const int64_t m = gather_scores(x, row.keep, row.d, w, w.positions);
  if (m < 0) return fill_row(row, std::numeric_limits<T>::quiet_NaN());
  if (m == 0) return fill_row(row, T(0));
  map_row(kernel, w, m, theta);
  scatter_row(w.y, w.positions, m, row);
}

// How many scores from the front a mask row keeps, -1 where it keeps others too: padding and causal masks are
// prefixes. Rows that share a mask row come one after the other: the last answer is remembered.
class PrefixLength {
 public:
  int64_t of(const uint8_t* keep, int64_t d) {
    if (!keep) return d;
    if (keep != last_) {
      const void* hole = std::memchr(keep, 0, static_cast<std::size_t>(d));
      length_ = hole ? static_cast<const uint8_t*>(hole) - keep : d;
      for (int64_t i = length_; i < d; ++i) {
        if (keep[i]) length_ = -1;
      }
      last_ = keep;
    }
    return length_;
  }

 private:
  const uint8_t* last_ = nullptr;
  int64_t length_ = 0;
};

template <class T>
void clear_behind(const RowOut<T>& row, int64_t length) {
  std::memset(row.y + length, 0, static_cast<std::size_t>(row.d - length) * sizeof(T));
  for (int64_t i = words_of(length); i < words_of(row.d); ++i) {
    if (row.support) row.support[i] = 0;
    if (row.joined) row.joined[i] = 0;
  }
}

template <class T>
RowOut<T> row_out(const Argmax<T>& call, int64_t i) {
  return {call.y + i * call.d, bits_row(call.support, i, call.d),
          bits_row(has_chains(call.kernel) ? call.joined : nullptr, i, call.d), mask_row(call.mask, i, call.d),
          call.d};
}

template <class T>
void argmax_rows(const Argmax<T>& call, int32_t kernel, int64_t begin, int64_t end, Workspace& w) {
  Lockstep<T> lockstep(kernel, call.d, w.words);
  PrefixLength prefix;
  for (int64_t first = begin; first < end; first += lanes<T>) {
    const int64_t count = end - first < lanes<T> ? end - first : lanes<T>;
    LaneRow<T> group[lanes<T>] = {};
    uint32_t left = 0;
    for (int64_t r = 0; r < count; ++r) {
      const int64_t i = first + r;
      const RowOut<T> row = row_out(call, i);
      const double theta = strength(call.theta, i);
      const int64_t length = prefix.of(row.keep, call.d);
      if (length < 0 || !suits_lockstep(kernel, theta)) {
        left |= 1u << r;
        continue;
      }
      clear_behind(row, length);
      group[r] = {call.x + i * call.d, length, static_cast<T>(theta), row.y, row.support, row.joined};
    }
    for (left |= lockstep.run(group); left; left &= left - 1) {
      const int64_t i = first + __builtin_ctz(left);
      argmax_row(kernel, call.x + i * call.d, strength(call.theta, i), w, row_out(call, i));
    }
  }
}

// A strength without effect makes a mapping sparsemax, for which there is the shortest way.
inline int32_t effective_kernel(int32_t kernel, const Strength& theta) {
  if (!on_simplex(kernel) || theta.per_row) return kernel;
  return theta.shared == (kernel == REGMAX_SQPNORMMAX ? 2 : 0) ? REGMAX_SPARSEMAX : kernel;
}

template <class T>
int32_t argmax(const Argmax<T>& call) {
  return for_rows(call.n, call.d, call.threads, [&](int64_t begin, int64_t end, Workspace& w) {
    const int32_t kernel = effective_kernel(call.kernel, call.theta);
    if (on_simplex(kernel)) return argmax_rows(call, kernel, begin, end, w);
    for (int64_t i = begin; i < end; ++i) {
      argmax_row(kernel, call.x + i * call.d, strength(call.theta, i), w, row_out(call, i));
    }
  });
}

// One row of a Jacobian product; keep, support and joined may be nullptr.
template <class T>
struct RowIn {
  const T* y;
  const T* v;
  const uint64_t* support;
  const uint64_t* joined;
  const uint8_t* keep;
  int64_t d;

  bool kept(int64_t i) const { return !keep || keep[i]; }
  bool supported(int64_t i) const { return support ? test_bit(support, i) : y[i] != 0; }
};

// A row of NaN has no support bits, and neither has a row of zeros: y tells them apart.
template <class T>
bool is_undefined(const RowIn<T>& row) {
  for (int64_t i = 0; i < row.d; ++i) {
    if (row.supported(i) && row.y[i] == row.y[i]) return false;
    if (row.y[i] != row.y[i]) return true;
  }
  return false;
}

// Gathers what J acts on: the support, or every kept position for the proximal operators.
template <class T>
int64_t gather_weights(const RowIn<T>& row, bool everywhere, Workspace& w) {
  int64_t m = 0;
  int64_t before = -1;  // the kept position before i
  for (int64_t i = 0; i < row.d; ++i) {
    if (!row.kept(i)) continue;
    const bool taken = everywhere || row.supported(i);
    if (taken) {
      w.x[m] = static_cast<double>(row.y[i]);
      w.v[m] = static_cast<double>(row.v[i]);
      w.index[m] = i;
      w.joined[m] = row.joined ? test_bit(row.joined, i) : before >= 0 && row.y[before] == row.y[i];
      ++m;
    }
    before = i;
  }
  return m;
}

template <class T>
void jacobian_product_row(int32_t kernel, double theta, const RowIn<T>& row, T* out, Workspace& w) {
  const RowOut<T> result{out, nullptr, nullptr, row.keep, row.d};
  if (is_undefined(row)) return fill_row(result, std::numeric_limits<T>::quiet_NaN());
  const int64_t m = gather_weights(row, !on_simplex(kernel), w);
  if (m > 0) multiply_row(kernel, w, m, theta);
  scatter_row(w.v, w.index, m, result);
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
template <class T>
bool suits_lockstep(int32_t kernel, double theta, const RowIn<T>& row) {
  if (kernel == REGMAX_FUSEDMAX) return row.joined && theta != 0;
  return kernel == REGMAX_SPARSEMAX || (kernel == REGMAX_OSCARMAX && theta != 0) || theta == 1.5;
}

template <class T>
void jacobian_product_rows(const JacobianProduct<T>& call, int32_t kernel, int64_t begin, int64_t end, Workspace& w) {
  LockstepProducts<T> lockstep(kernel, call.d, w.words);
  for (int64_t first = begin; first < end; first += lanes<T>) {
    const int64_t count = end - first < lanes<T> ? end - first : lanes<T>;
    LaneProduct<T> group[lanes<T>] = {};
    uint32_t left = 0;
    for (int64_t r = 0; r < count; ++r) {
      const RowIn<T> row = row_in(call, first + r);
      if (suits_lockstep(kernel, strength(call.theta, first + r), row)) {
        group[r] = {row.y, row.v, call.out + (first + r) * call.d, row.support, row.joined};
      } else {
        left |= 1u << r;
      }
    }
    for (left |= lockstep.run(group); left; left &= left - 1) {
      const int64_t i = first + __builtin_ctz(left);
      jacobian_product_row(kernel, strength(call.theta, i), row_in(call, i), call.out + i * call.d, w);
    }
  }
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

struct GivenWeights {
  const double* weights;

  double operator()(int64_t k) const { return weights[k]; }
};

template <class T>
int32_t prox_owl_rows(const ProxOwl<T>& call) {
  return for_rows(call.n, call.d, call.threads, [&](int64_t begin, int64_t end, Workspace& w) {
    for (int64_t i = begin; i < end; ++i) {
      const RowOut<T> row{call.z + i * call.d, nullptr, nullptr, nullptr, call.d};
      const int64_t m = gather_scores(call.x + i * call.d, nullptr, call.d, w, w.positions);
      if (m < call.d) {
        fill_row(row, std::numeric_limits<T>::quiet_NaN());
        continue;
      }
      prox_owl(w.x, m, GivenWeights{call.weights}, IsotonicSpace(w.pooling, m), w.y);
      scatter_row(w.y, w.positions, m, row);
    }
  });
}

}  // namespace regmax::REGMAX_ISA
