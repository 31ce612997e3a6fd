// Every kernel for one instruction set: built once per set, with REGMAX_ISA its name, from the same source.
// All that is defined here lives in the namespace of that name, so that nothing of it is merged with another
// set's.
#include "attention_backward.hpp"
#include "attention_forward.hpp"
#include "rows.hpp"

namespace regmax::REGMAX_ISA {

#define REGMAX_TEXT_OF(name) #name
#define REGMAX_TEXT(name) REGMAX_TEXT_OF(name)

extern const Core core;
const Core core = {REGMAX_TEXT(REGMAX_ISA),
                   argmax<float>,
                   argmax<double>,
                   jacobian_product<float>,
                   jacobian_product<double>,
                   prox_owl_rows<float>,
                   prox_owl_rows<double>,
                   attention_forward<float>,
                   attention_forward<double>,
                   attention_backward<float>,
                   attention_backward<double>};

}  // namespace regmax::REGMAX_ISA
