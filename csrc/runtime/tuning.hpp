// Every threshold that was set by measurement, with the measurement. The unit of time is the forward or
// backward pass of 8,192 rows in float32 on one thread of an AVX-512 machine (AMD EPYC), unless said
// otherwise. Bounds that protect accuracy are not here: they stand beside the arithmetic that needs them.
#pragma once

#include <cstdint>

namespace regmax::REGMAX_ISA {

// The lane tier solves rows with at most this many candidates: two vectors of float32 bits fit a word, and
// the quadratic solvers (taut strings, sorted pooling) stay below the cost of screening.
constexpr int max_candidates = 32;

// Independent partial sums of a reduction: additions have a latency of four cycles.
constexpr int unrolled = 4;

// --- Which tier comes first (rows/argmax.hpp, rows/jacobian_product.hpp) ---
// Up to this length the whole-row tier goes first: screening costs more than it saves. With the lane tier
// first, sparsemax takes 1.3 times as long at d = 128 and as long at d = 256.
constexpr int64_t whole_first_sparsemax = 256;
constexpr int64_t whole_first_sqpnormmax = 128;
// The same for Jacobian products: reading v twice against gathering it on the support.
constexpr int64_t whole_first_product = 512;
constexpr int64_t whole_first_joined_product = 256;  // segments or clusters: a copy of v is averaged
constexpr int64_t whole_first_pnorm_product = 128;   // five sums and a square root per weight
// Rows with more joined weights than this are averaged by the lane tier or by prefix sums.
constexpr int most_joined = 16;
// A fusedmax row with more candidates than this, all of its scores, goes to the whole-row tier at once: the
// lane tier's taut strings cost the square of their length.
constexpr int long_chain = 16;

// --- Passes over rows (simd/) ---
// Up to this length all 64-score words are expanded: an empty word costs less than a mispredicted branch.
constexpr int64_t expanded_row = 512;
// From this length on candidates are marked first and gathered afterwards: one misprediction instead of many.
constexpr int64_t marked_row = 256;
// Up to this length the rows of the next group are prefetched; the hardware prefetches longer ones itself.
constexpr int64_t prefetched_row = 512;
// Results of at least this size are written with non-temporal stores: a core's share of most machines'
// caches. Mapping and then reading 4 MB took 5 to 20 % less if the result's memory was not cached, as in
// training, and 10 to 25 % more if the same few MB were reused.
constexpr int64_t streamed_bytes = int64_t{1} << 21;
// Sorting: numbers in one network (it lives on the stack), and the count below which a comparison sort that
// carries positions is as fast.
constexpr int64_t sorted_at_once = 4096;
constexpr int64_t few_scores = 32;
// A taut string that reads every score more often than this goes to the linear-time dynamic programme.
constexpr int64_t string_readings = 8;

// --- Blocks of work ---
// Block boundaries are fixed, so results do not depend on the number of threads. A block is small enough to
// balance the load and large enough for its overhead to vanish.
constexpr int64_t block_rows = 16;
constexpr int64_t block_scores = 16384;
constexpr int64_t scores_per_thread = 65536;  // waking a thread for fewer costs more than it saves

// --- Attention ---
// From this share of nonzero weights on dense products are faster than gathers.
constexpr double dense_share = 0.4;
// Scores of one block of queries: a good part of a level-two cache.
constexpr int64_t attention_scores_bytes = 384 << 10;
// Register tiles of the products: 24 of 32 vector registers, or 12 of 16, hold sums.
#if defined(__AVX512F__)
constexpr int score_rows = 8, score_vectors = 3;
constexpr int value_rows = 4, value_vectors = 4;
#else
constexpr int score_rows = 4, score_vectors = 3;
constexpr int value_rows = 4, value_vectors = 2;
#endif

}  // namespace regmax::REGMAX_ISA
