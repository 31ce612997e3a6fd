// A mapping as attention sees it: five functions, so that the blocks of both passes are compiled once for all mappings.
#pragma once

#include <cstdint>

#include "mappings/mapping.hpp"
#include "runtime/calls.hpp"

namespace regmax::REGMAX_ISA {

template <class T>
class ForwardBlock;

template <class T>
struct AttentionMapping {
  bool (*map)(ForwardBlock<T>& block, regmax_weights_block& weights);
  bool (*is_constant)(const CompactedRow<T>& row);
  void (*multiply)(const CompactedRow<T>& row, double theta, Workspace& w);
  double (*strength_grad)(const CompactedRow<T>& row, double theta, Workspace& w);
  double (*gamma_grad)(const CompactedRow<T>& row, double theta, Workspace& w);
  int64_t least_screened;
};

// Calls use(mapping) with the AttentionMapping of a call; kernels off the simplex have none.
template <class T, class Use>
inline int32_t with_attention_mapping(const regmax_attention& call, const Use& use) {
  return with_mapping(call.kernel, call.theta, call.thetas, call.heads * call.theta_rows, [&](auto kind) {
    using Mapping = decltype(kind);
    if constexpr (Mapping::on_simplex) {
      const AttentionMapping<T> mapping{
          [](ForwardBlock<T>& block, regmax_weights_block& weights) { return block.template map<Mapping>(weights); },
          Mapping::template is_constant<T>,
          Mapping::template multiply<T>,
          Mapping::template strength_grad<T>,
          Mapping::template gamma_grad<T>,
          Mapping::least_screened};
      return use(mapping);
    } else {
      return int32_t{REGMAX_BAD_ARGUMENT};
    }
  });
}

}  // namespace regmax::REGMAX_ISA
