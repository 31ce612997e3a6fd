// The tiers by name, and the switch with which tests force one of them.
#pragma once

namespace regmax {

enum class Tier { any, lanes, whole, levels, scalar };

// The tier that argmax and Jacobian products are restricted to (the scalar tier serves the rows that it
// leaves).
Tier forced_tier();

// "lanes", "whole", "levels", "scalar", or nullptr for the normal choice; false if there is no such tier.
bool force_tier(const char* name);

}  // namespace regmax
