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
    regmax_rows rows{};
    rows.dtype = REGMAX_FLOAT32;
    rows.kernel = head[0];
    rows.threads = 2;
    rows.n = n;
    rows.d = d;
    rows.x = x.data();
    rows.y = y.data();
    rows.v = v.data();
    rows.out = product.data();
    rows.support = support.data();
    rows.joined = joined.data();
    rows.mask = head[1] ? mask.data() : nullptr;
    rows.mask_rows = n;
    rows.mask_repeat = 1;
    rows.theta = theta;
    rows.gamma = 1;
    require(regmax_argmax(&rows) == REGMAX_OK, "the mapping failed");
    require(regmax_jacobian_product(&rows) == REGMAX_OK, "the product failed");
    std::fwrite(y.data(), sizeof(float), y.size(), stdout);
    std::fwrite(product.data(), sizeof(float), product.size(), stdout);
  }
}
