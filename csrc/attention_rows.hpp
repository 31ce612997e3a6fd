// From rows of scores straight to compressed rows of weights, one row per SIMD lane (lockstep.hpp has the
// bounds).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "attention_flat.hpp"
#include "attention_weights.hpp"
#include "flat_chains.hpp"
#include "lockstep.hpp"
#include "mappings.hpp"
#include "workspace.hpp"

namespace regmax::REGMAX_ISA {

// One row of scores without gaps; columns are the keys' numbers, or nullptr where position is number.
template <class T>
struct ScoreRow {
  const T* x;
  int64_t length;
  const int32_t* columns;

  int32_t column(int64_t i) const { return columns ? columns[i] : static_cast<int32_t>(i); }
};

// Adds the largest of x[begin, end) to the maxima by lane. NaN passes unnoticed: screening catches it.
template <class T>
inline void widen_maxima(const T* x, int64_t begin, int64_t end, T* maxima) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  Vec<T> top = load(maxima);
  for (int64_t i = begin; i < end; i += lanes<T>) {
    top = larger(end - i < lanes<T> ? load_some(x + i, static_cast<int>(end - i), lowest) : load(x + i), top);
  }
  store<T>(maxima, top);
}

template <class T>
class RowMapper {
 public:
  static constexpr int rows = lanes<T>;

  RowMapper(int32_t kernel, double theta, Workspace& workspace)
      : kernel_(kernel),
        theta_(theta),
        suits_(suits_lockstep(kernel, theta)),
        w_(workspace),
        chains_(workspace) {}

  // How many rows so far went the longest way.
  int64_t general_rows() const { return general_rows_; }

  // Maps the rows of a group; maxima holds the largest scores of each by lane. False where memory is
  // exhausted.
  bool run(const ScoreRow<T>* row, int count, const T* maxima, RowWriter<T>& writer) {
    uint32_t left = all_lanes<T>;
    if (suits_) {
      find_cuts(row, count, maxima);
      left = screen(row, count);
      left |= solve();
    }
    const uint32_t chained = map_chains(row, count, left);
    general_rows_ += __builtin_popcount(chained);
    for (int r = 0; r < count; ++r) {
      if (chained >> r & 1) {
        if (!write_chain(row[r], r, writer)) return false;
      } else if (!(left >> r & 1 ? write_alone(row[r], top_of(maxima + r * lanes<T>), writer)
                                 : write(row[r], r, writer)))
        return false;
    }
    return true;
  }

 private:
  static constexpr int64_t stride = max_candidates + lanes<T>;

  static T top_of(const T* maxima) {
    T top = maxima[0];
    for (int lane = 1; lane < lanes<T>; ++lane) top = maxima[lane] > top ? maxima[lane] : top;
    return top;
  }

  T* values(int r) { return values_ + lanes<T> + r * stride; }
  int32_t* places(int r) { return places_ + r * stride; }

  void find_cuts(const ScoreRow<T>* row, int count, const T* maxima) {
    T lengths[lanes<T>] = {};
    for (int r = 0; r < rows; ++r) {
      const bool used = r < count && row[r].length > 0;
      store<T>(values(r), used ? load(maxima + r * lanes<T>) : Vec<T>{});
      lengths[r] = used ? static_cast<T>(row[r].length) : T(1);
    }
    rows_to_lanes<T>(values(0), stride, rows, x_);
    Vec<T> top = x_[0];
    for (int k = 1; k < rows; ++k) top = larger(top, x_[k]);
    for (int k = 0; k < rows; ++k) x_[k] -= top;
    store<T>(top_, top);
    // Twice the rounding of the scores themselves: the bound is compared with them as they are.
    const Vec<T> slack = (larger(top, -top) + splat(T(4))) * splat(4 * rounding<T>);
    store<T>(bound_, top + cuts(load(lengths)) - slack);
  }

  Vec<T> cuts(Vec<T> lengths) const {
    const Vec<T> lowest = splat(T(-1)), theta = splat(static_cast<T>(theta_));
    if (kernel_ == REGMAX_SQPNORMMAX) return lowest;
    const Vec<T> tau = lane_threshold<T>(x_, rows, lowest, 3).tau;
    if (kernel_ == REGMAX_FUSEDMAX) return tau - theta * 4;
    if (kernel_ == REGMAX_OSCARMAX) return tau - theta * (lengths + splat(T(max_candidates - 1))) / 2;
    return tau;
  }

  // Fills values and places of every row's candidates; returns the bits of the rows that have too many.
  uint32_t screen(const ScoreRow<T>* row, int count) {
    uint32_t left = 0;
    count_ = 1;
    for (int r = 0; r < rows; ++r) {
      int found = r < count && row[r].length ? find_candidates(row[r], r) : 0;
      if (found > max_candidates || !(std::fabs(top_[r]) <= std::numeric_limits<T>::max())) {
        left |= 1u << r;
        found = 0;
      }
      if (found && kernel_ == REGMAX_FUSEDMAX && !find_runs(row[r], r, found)) {
        left |= 1u << r;
        found = 0;
      }
      for (int k = found; k < max_candidates; k += lanes<T>) store<T>(values(r) + k, splat(nothing<T>));
      if (!found) values(r)[0] = 0;
      counts_[r] = found;
      if (found > count_) count_ = found;
    }
    return left;
  }

  int find_candidates(const ScoreRow<T>& row, int r) {
    constexpr int per_word = 4;
    const Vec<T> bound = splat(bound_[r]);
    int found = 0;
    int64_t i = 0;
    for (; i + per_word * lanes<T> <= row.length; i += per_word * lanes<T>) {
      Where<T> above[per_word];
      for (int c = 0; c < per_word; ++c) above[c] = not_at_most(load(row.x + i + c * lanes<T>), bound);
      if (!bits(Where<T>(above[0] | above[1] | above[2] | above[3]))) continue;
      for (int c = 0; c < per_word && found <= max_candidates; ++c) {
        found = take(row.x, i + c * lanes<T>, bits(above[c]), r, found);
      }
      if (found > max_candidates) return found;
    }
    for (; i < row.length && found <= max_candidates; i += lanes<T>) {
      const int64_t some = row.length - i;
      const Vec<T> x =
          some < lanes<T> ? load_some(row.x + i, static_cast<int>(some), nothing<T>) : load(row.x + i);
      found = take(row.x, i, bits(not_at_most(x, bound)), r, found);
    }
    return found;
  }

  int take(const T* x, int64_t i, uint32_t chosen, int r, int found) {
    for (; chosen; chosen &= chosen - 1, ++found) {
      const int64_t place = i + __builtin_ctz(chosen);
      places(r)[found] = static_cast<int32_t>(place);
      values(r)[found] = x[place] - top_[r];
    }
    return found;
  }

  // Which candidates are neighbours, and which have a lower one. False where that one is -inf: it is deleted,
  // and the neighbour is who stands behind it.
  bool find_runs(const ScoreRow<T>& row, int r, int found) {
    constexpr T lowest = std::numeric_limits<T>::lowest();
    Int<T> adjacent = 0, left_edge = 0, right_edge = 0;
    bool regular = true;
    for (int k = 0; k < found; ++k) {
      const int32_t place = places(r)[k];
      const bool follows = k > 0 && places(r)[k - 1] == place - 1;
      const bool leads = k + 1 < found && places(r)[k + 1] == place + 1;
      const bool left = !follows && place > 0, right = !leads && place + 1 < row.length;
      regular &= !(left && row.x[place - 1] < lowest) && !(right && row.x[place + 1] < lowest);
      adjacent |= Int<T>(follows) << k;
      left_edge |= Int<T>(left) << k;
      right_edge |= Int<T>(right) << k;
    }
    adjacent_[r] = adjacent, left_edge_[r] = left_edge, right_edge_[r] = right_edge;
    return regular;
  }

  uint32_t solve() {
    rows_to_lanes<T>(values(0), stride, count_, x_);
    uint32_t undefined = 0;
    for (int k = 0; k < count_; ++k) undefined |= ~bits(equal(x_[k], x_[k]));
    undefined = (undefined & all_lanes<T>) | map();
    lanes_to_rows<T>(y_, count_, values(0), stride);
    return undefined;
  }

  uint32_t map() {
    const Vec<T> theta = splat(static_cast<T>(theta_));
    switch (kernel_) {
      case REGMAX_FUSEDMAX: {
        const RunBits<T> runs{load_integers<T>(adjacent_), load_integers<T>(left_edge_),
                              load_integers<T>(right_edge_)};
        return lane_fusedmax<T>(x_, count_, runs, theta, y_);
      }
      case REGMAX_OSCARMAX:
        lane_oscarmax<T>(x_, count_, theta, y_);
        return 0;
      case REGMAX_SQPNORMMAX:
        return lane_sqpnormmax<T>(x_, count_, y_);
      default:
        return lane_sparsemax<T>(x_, count_, y_);
    }
  }

  bool write(const ScoreRow<T>& row, int r, RowWriter<T>& writer) {
    if (!writer.begin(counts_[r])) return false;
    for (int k = 0; k < counts_[r]; ++k) {
      const T y = values(r)[k];
      const bool joined = adjacent_[r] >> k & 1 && y == values(r)[k - 1];
      if (y > 0) writer.push(row.column(places(r)[k]), y, joined);
    }
    writer.end();
    return true;
  }

  // Flat rows of fusedmax, together; returns their bits.
  uint32_t map_chains(const ScoreRow<T>* row, int count, uint32_t left) {
    if constexpr (sizeof(T) == sizeof(float)) {
      const float* x[lanes<T>];
      int64_t lengths[lanes<T>];
      float lam[lanes<T>];
      uint32_t wanted = 0;
      for (int r = 0; r < count; ++r) {
        x[r] = row[r].x;
        lengths[r] = row[r].length;
        lam[r] = static_cast<float>(theta_);
        wanted |= row[r].length > 0 ? left & 1u << r : 0;
      }
      if (kernel_ == REGMAX_FUSEDMAX && suits_ && wanted) return chains_.map(x, lengths, lam, wanted);
    }
    return 0;
  }

  bool write_chain(const ScoreRow<T>& row, int r, RowWriter<T>& writer) {
    if (!writer.begin(row.length)) return false;
    chains_.each_run(r, row.length, [&](int64_t begin, int64_t end, float weight, bool repeats) {
      if (weight > 0) writer.append_run(static_cast<T>(weight), begin, end, repeats, row.columns);
    });
    writer.end();
    return true;
  }

  // Any row, with as many candidates as there may be.
  bool write_alone(const ScoreRow<T>& row, T top, RowWriter<T>& writer) {
    if (!writer.begin(row.length)) return false;
    if (!FlatRow<T>(row.x, row.length, top, row.columns).write(kernel_, theta_, writer))
      write_generally(row, writer);
    writer.end();
    return true;
  }

  // Scores of -inf are deleted; NaN and +inf leave NaN everywhere.
  void write_generally(const ScoreRow<T>& row, RowWriter<T>& writer) {
    ++general_rows_;
    T* const x = static_cast<T*>(w_.packed);
    int64_t m = 0;
    bool bad = false;
    for (int64_t i = 0; i < row.length; ++i) {
      x[m] = row.x[i];
      w_.positions[m] = row.column(i);
      bad |= !(row.x[i] <= std::numeric_limits<T>::max());
      m += !(row.x[i] < std::numeric_limits<T>::lowest());
    }
    if (bad) {
      for (int64_t k = 0; k < m; ++k) {
        writer.push(static_cast<int32_t>(w_.positions[k]), std::numeric_limits<T>::quiet_NaN(), false);
      }
    } else if (m > 0) {
      map_row(kernel_, x, m, theta_, w_);
      push_chosen(m, writer);
    }
  }

  // Joined is read off the weights as they are written.
  void push_chosen(int64_t m, RowWriter<T>& writer) {
    T before = 0;
    int64_t last = -1, k = 0;
    for (int64_t word = 0; word < words_of(m); ++word) {
      for (uint64_t rest = w_.chosen[word]; rest; rest &= rest - 1, ++k) {
        const int64_t i = word * 64 + __builtin_ctzll(rest);
        const T y = static_cast<T>(w_.y[k]);
        if (y != 0) writer.push(static_cast<int32_t>(w_.positions[i]), y, last == i - 1 && y == before);
        before = y;
        last = i;
      }
    }
  }

  int32_t kernel_;
  double theta_;
  bool suits_;
  Workspace& w_;
  FlatChains chains_;
  int64_t general_rows_ = 0;
  int count_ = 1;
  int counts_[lanes<T>];
  T top_[lanes<T>], bound_[lanes<T>];
  Int<T> adjacent_[lanes<T>] = {}, left_edge_[lanes<T>] = {}, right_edge_[lanes<T>] = {};
  Vec<T> x_[max_candidates], y_[max_candidates];
  T values_[lanes<T> * (stride + 1)];
  int32_t places_[lanes<T> * stride];
};

}  // namespace regmax::REGMAX_ISA
