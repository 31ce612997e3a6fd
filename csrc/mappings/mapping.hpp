// The list of the mappings, and what each must define. Adding one: a header like sparsemax.hpp (the
// shortest), a constant in regmax.h, and a line in with_mapping. Nothing else in csrc knows a mapping by
// name.
//
//   on_simplex               whether the result is a point of the simplex, with a support
//   joins                    which weights share one value (tiers.hpp)
//   accepts(theta)           whether a strength is valid
//   is_sparsemax(theta)      whether this strength has no effect
//   map(row, theta)          scalar tier: any row of finite scores
//   multiply(row, theta, w)  scalar tier and attention: J v on the compacted support
//   strength_grad, gamma_grad  gradients of the strengths, from J v (products.hpp)
//   Grads                    the same as sums over the support, finished one row per lane; may be missing
//
// and, if on_simplex:
//
//   omega(row, theta, d, w)  Omega of the weights of d kept positions, and its derivative in theta
//   is_constant(row)         whether J is zero
//
//   cut_slack(theta)         for a cut that follows from maxima_threshold: how far it may be below that
//   prune_slack(theta)       the same for the upper level of a PruningCut; missing if the cut is none. Or else
//   reach(theta)             no maximum by lane that is farther than this below the largest moves a cut
//   least_screened           from how many keys on attention screens them in 8 bits (tuning.hpp)
//   fits_vectors(theta)      whether the vector tiers are accurate with this strength
//   most_candidates          of a row in the lane tier, if not max_candidates
//   most_lane_theta<T>       rows with a larger strength are left by the lane tier at once; may be missing
//   Lanes<T>                 cut and row_cut; add_row (false: leave the row); solve (returns unreliable lanes); joined
//
//   whole<T>                 the kind of whole-row tier
//   whole_first              the row length up to which it precedes the lane tier
//   whole_first_with_maxima  the same if the maxima by lane are known, as in attention; may be missing
//   Moments<T>, Segments<T>, Powers<T>  the solver of that kind; by_powers has no lane tier
//   map_known(row, theta)    by_segments: as map, of a row whose candidates are chosen (rows/level_rows.hpp)
//   Squares, squares         with Powers: the mapping that serves one strength, and that strength
//
//   Product                  J v as sums over the support (products.hpp)
//   fits_products(theta, has_joined), product_whole_first      the choice of tier for Jacobian products
//   average_lanes, average_few, multiply_whole                 group means, if weights are joined
#pragma once

#include <cstdint>
#include <type_traits>

#include "mappings/entmax.hpp"
#include "mappings/fusedmax.hpp"
#include "mappings/oscarmax.hpp"
#include "mappings/proximal.hpp"
#include "mappings/sparsemax.hpp"
#include "mappings/sqpnormmax.hpp"
#include "regmax.h"

namespace regmax::REGMAX_ISA {

// Calls use(mapping) with the type that a kernel's number stands for. The only switch over kernels: an
// unknown number is an error, never a default.
template <class Use>
inline int32_t with_kernel(int32_t kernel, const Use& use) {
  switch (kernel) {
    case REGMAX_SPARSEMAX:
      return use(Sparsemax());
    case REGMAX_FUSEDMAX:
      return use(Fusedmax());
    case REGMAX_OSCARMAX:
      return use(Oscarmax());
    case REGMAX_SQPNORMMAX:
      return use(Sqpnormmax());
    case REGMAX_ENTMAX:
      return use(Entmax());
    case REGMAX_PROX_TV1D:
      return use(ProxTv1d());
    case REGMAX_PROX_OSCAR:
      return use(ProxOscar());
    case REGMAX_PROX_OSCAR_LEADING:
      return use(LeadingOscar());
  }
  return REGMAX_BAD_ARGUMENT;
}

// Whether one strength has a faster mapping.
template <class Mapping, class = void>
constexpr bool has_squares = false;
template <class Mapping>
constexpr bool has_squares<Mapping, std::void_t<typename Mapping::Squares>> = true;

// The same after checking the strengths; a strength without effect makes a mapping sparsemax, which is the
// fastest, unless the strength is learned. `thetas` holds n strengths, or is nullptr and `theta` serves all
// rows.
template <class Use>
inline int32_t with_mapping(int32_t kernel, double theta, const double* thetas, int64_t n, const Use& use,
                            bool learned = false) {
  return with_kernel(kernel, [&](auto mapping) {
    using Mapping = decltype(mapping);
    if (!thetas && !Mapping::accepts(theta)) return int32_t{REGMAX_BAD_ARGUMENT};
    for (int64_t i = 0; thetas && i < n; ++i) {
      if (!Mapping::accepts(thetas[i])) return int32_t{REGMAX_BAD_ARGUMENT};
    }
    if (!thetas && !learned && Mapping::is_sparsemax(theta)) return use(Sparsemax());
    if constexpr (has_squares<Mapping>) {
      if (!thetas && theta == Mapping::squares) return use(typename Mapping::Squares());
    }
    return use(mapping);
  });
}

}  // namespace regmax::REGMAX_ISA
