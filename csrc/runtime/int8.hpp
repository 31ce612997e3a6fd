// Whether attention screens keys in 8 bits, and counters of what the screen did.
#pragma once

#include <cstdint>

namespace regmax {

// Whether this machine has AVX-512 VNNI and the screen is switched on: REGMAX_INT8=0 in the environment, or
// use_int8(false), switches it off.
bool int8_screen();
void use_int8(bool on);

// What the screen did since the last reset.
struct ScreenCounts {
  int64_t rows;        // query rows that were screened
  int64_t fallbacks;   // of these, rows that then took the float path
  int64_t rescored;    // keys that were scored again in float32, in all screened rows
  int64_t candidates;  // keys that the bounds left for the weights, in the rows that did not fall back
};
void count_screened(const ScreenCounts& counts);
ScreenCounts read_screen_counts(bool reset);

}  // namespace regmax
