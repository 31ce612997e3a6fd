// All kernels for one instruction set. This file is compiled once per set, with REGMAX_ISA as its name;
// everything lives in the namespace of that name, so that the linker merges nothing with another set's code.
#include "attention/backward.hpp"
#include "attention/forward.hpp"
#include "rows/argmax.hpp"
#include "rows/half_rows.hpp"
#include "rows/jacobian_product.hpp"

namespace regmax::REGMAX_ISA {

#define REGMAX_TEXT_OF(name) #name
#define REGMAX_TEXT(name) REGMAX_TEXT_OF(name)

// Calls run(zero) with a zero of the type of a call's arrays.
template <class Call, class Run>
int32_t with_type(const Call& call, const Run& run) {
  return call.dtype == REGMAX_FLOAT32 ? run(0.0f) : run(0.0);
}

extern const Core core;
const Core core = {
    REGMAX_TEXT(REGMAX_ISA),
    [](const regmax_rows& r) {
      if (r.dtype == REGMAX_FLOAT16) return argmax_half<Float16>(r);
      if (r.dtype == REGMAX_BFLOAT16) return argmax_half<Bfloat16>(r);
      return with_type(r, [&](auto zero) { return argmax(typed_rows<decltype(zero)>(r)); });
    },
    [](const regmax_rows& r) {
      if (r.dtype == REGMAX_FLOAT16) return jacobian_product_half<Float16>(r);
      if (r.dtype == REGMAX_BFLOAT16) return jacobian_product_half<Bfloat16>(r);
      return with_type(r, [&](auto zero) { return jacobian_product(typed_rows<decltype(zero)>(r)); });
    },
    [](const regmax_rows& r) {
      return with_type(r, [&](auto zero) { return prox_owl_rows(typed_rows<decltype(zero)>(r), r.weights); });
    },
    [](const regmax_attention& call, regmax_weights* weights) {
      return with_type(call, [&](auto zero) { return attention_forward<decltype(zero)>(call, weights); });
    },
    [](const regmax_attention& call) {
      return with_type(call, [&](auto zero) { return attention_backward<decltype(zero)>(call); });
    },
    quantise_rows};

}  // namespace regmax::REGMAX_ISA
