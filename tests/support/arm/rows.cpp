// Reads batches from standard input, and writes their weights and Jacobian products to standard output. A
// batch: the kernel and whether there is a mask (int32), n and d (int64), theta (double), x, the mask, and v.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../../../csrc/regmax.h"

namespace {

template <class T>
bool read(T* to, std::size_t count) {
  return std::fread(to, sizeof(T), count, stdin) == count;
}

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

}  // namespace

int main() {
  for (int32_t head[2]; read(head, 2);) {
    int64_t shape[2];
    double theta;
    require(read(shape, 2) && read(&theta, 1), "a batch ends early");
    const int64_t n = shape[0], d = shape[1];
    std::vector<float> x(n * d), v(n * d), y(n * d), product(n * d);
    std::vector<uint8_t> mask(head[1] ? n * d : 0);
    std::vector<uint64_t> support(n * ((d + 63) / 64)), joined(support.size());
    require(read(x.data(), x.size()) && read(mask.data(), mask.size()) && read(v.data(), v.size()),
            "a batch ends early");
    const uint8_t* bytes = head[1] ? mask.data() : nullptr;
    const int64_t mask_rows = head[1] ? n : 1;
    require(regmax_argmax_f32(head[0], x.data(), y.data(), support.data(), joined.data(), n, d, bytes,
                              mask_rows, 1, theta, nullptr, 2) == REGMAX_OK,
            "the mapping failed");
    require(regmax_jacobian_product_f32(head[0], y.data(), support.data(), joined.data(), v.data(),
                                        product.data(), n, d, bytes, mask_rows, 1, theta, nullptr,
                                        2) == REGMAX_OK,
            "the product failed");
    std::fwrite(y.data(), sizeof(float), y.size(), stdout);
    std::fwrite(product.data(), sizeof(float), product.size(), stdout);
  }
}
