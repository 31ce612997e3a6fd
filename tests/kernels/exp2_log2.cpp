// Prints exp2_of of the first half of standard input's numbers and log2_of of the second half, for test_exp2_log2.py:
// the type's size, the count, the numbers.
#define REGMAX_ISA tested
#include "simd/exp2_log2.hpp"

#include <cstdio>
#include <vector>

namespace tested = regmax::tested;

template <class T>
void run(int count) {
  std::vector<T> numbers(static_cast<std::size_t>(2 * count + tested::lanes<T>));
  for (int i = 0; i < 2 * count; ++i) {
    double number = 0;
    if (std::scanf("%lf", &number) == 1) numbers[static_cast<std::size_t>(i)] = static_cast<T>(number);
  }
  for (int i = 0; i < 2 * count; i += tested::lanes<T>) {
    const tested::Vec<T> v = tested::load(numbers.data() + i);
    tested::store<T>(numbers.data() + i, i < count ? tested::exp2_of<T>(v) : tested::log2_of<T>(v));
  }
  for (int i = 0; i < 2 * count; ++i) std::printf("%.17g\n", static_cast<double>(numbers[static_cast<std::size_t>(i)]));
}

int main() {
  int size = 0, count = 0;
  if (std::scanf("%d %d", &size, &count) != 2) return 1;
  if (size == 4) run<float>(count);
  if (size == 8) run<double>(count);
  return 0;
}
