// 1/1, 1/2, ... as a table: where a mean is taken at every step, a product is cheaper than a quotient.
#pragma once

namespace regmax::REGMAX_ISA {

template <class T, int size>
struct Reciprocals {
  T of[size + 1];

  constexpr Reciprocals() : of() {
    for (int i = 1; i <= size; ++i) of[i] = T(1) / T(i);
  }
};

template <class T, int size>
constexpr Reciprocals<T, size> reciprocals;

}  // namespace regmax::REGMAX_ISA
