// Every threshold that was set by measurement. Ratios are those of `benchmarks/tiers.py`: one thread,
// float32, AVX2. Bounds that protect accuracy are not here: they stand beside the arithmetic that needs them.
#pragma once

#include <cstdint>

namespace regmax::REGMAX_ISA {

// The lane tier solves rows with at most this many candidates: two vectors of float32 bits fit a word, and
// the quadratic solvers (taut strings, sorted pooling) stay below the cost of screening.
constexpr int max_candidates = 32;
// The same for entmax at alpha = 1.5, whose solver takes linear time: of N(0, 1) rows of 2,048 scores 4 % have more
// than 32 weights, and one in 3,000 more than 48.
constexpr int many_candidates = 48;

// Rows of powers with at most this many candidates are solved one per lane: forward passes over rows of 16 scores N(0,
// 1) take 0.7 to 0.75 of the time (entmax and sqpnormmax with strength 1.9; loaded machine). Other numbers were not
// tried.
constexpr int few_powers = 16;
// Rows of at most so many scores skip the cut if alpha - 1 or p - 1 is below this bound. Forward + backward of 16
// scores takes .72 (flat) and 1.03 of the time (N(0, 1)) for sqpnormmax with p = 1.3, .86 with p = 1.01, and .77 for
// entmax with alpha = 1.25 (N(0, 1)); but 1.15 and 1.2 for p = 1.35 and 1.42 (Zen 5).
constexpr float most_short_power = 0.32f;

// The levels of oscarmax's second certificate. With 8, 12 and 16, it fails in 6, 4 and 3 % of rows of 128 scores 0.5
// N(0, 1) with lam = .01, of which 2 % cannot be decided, and in .1 % or less of rows of 256 scores N(0, 1).
constexpr int certificate_levels = 8;

// The levels of sizes in rows/leading_rows.hpp: how far the lowest is below the first guess, as a share of lam (d +
// 32), and where the middle one is between it and the highest. With these the certificate fails in 2 % of N(0, 1) rows
// (d = 128, lam = .01; .2 % at d = 512, lam = .002), with two levels, the lowest at .5, in 23 and 16 %.
template <class T>
constexpr T low_level = T(0.6);
template <class T>
constexpr T middle_level = T(0.6);

// Independent partial sums of a reduction: additions have latency.
constexpr int unrolled = 4;

// --- Which tier comes first (rows/argmax.hpp, rows/jacobian_product.hpp) ---
// Up to this length the whole-row tier goes first. With the lane tier first, sparsemax
// takes 1.9, 1.7, 1.1, 1.0 times as long at d = 32, 64, 128, 256, and sqpnormmax 1.5, 1.4, 0.8 at 32, 64,
// 128.
constexpr int64_t whole_first_sparsemax = 256;
#if defined(__AVX512F__)
constexpr int64_t whole_first_sqpnormmax = 128;
#else
constexpr int64_t whole_first_sqpnormmax = 64;
#endif
// The same in attention, where the maxima by lane come with the products. With the whole-row tier first, sparsemax
// attention (12 heads of 32, forward) takes 1.2 and 1.5 times as long at n = 32 and 128 on AVX-512.
#if defined(__AVX512F__)
constexpr int64_t whole_first_sparsemax_with_maxima = 16;
#else
constexpr int64_t whole_first_sparsemax_with_maxima = 256;
#endif
// The same for Jacobian products: 3.0, 1.5, 1.1 at d = 32, 128, 512, with joined weights 2.4, 1.5, 0.9 (a
// copy of v is averaged). With the lane tier first, forward + backward of entmax and sqpnormmax with strength 1.5 (a
// square root per weight) takes 1.4, 1.2 to 1.3 and 1.15 times as long at d = 64, 128 and 256, 1.1 on AVX-512 (Zen 5).
constexpr int64_t whole_first_product = 512, whole_first_joined_product = 256, whole_first_root_product = 256;
// The same for products with powers of the weights: an empty lane costs a power.
constexpr int64_t whole_first_power_product = 32;
// Up to this length, in whole vectors, lanes compact their weights a vector at a time, without branches.
constexpr int64_t compacted_row = 256;
// Two passes over a batch of rows read at most this much, which fits a level-one cache: at d = 512 products of entmax
// take .88 of the time that they take with batches of 16 rows (Zen 5).
constexpr int64_t passed_twice_bytes = 32 << 10;
// Rows with at most one weight in this many scores are compacted for them.
constexpr int64_t sparse_share = 8;
// Gradients of the strengths of powers pass over rows of at most two vectors, and over rows of which more than a third
// has weight; the weights of others are compacted. Estimated from the cost of a vector's powers, 15 ns.
constexpr int64_t few_vectors = 2, summed_share = 3;
// Rows with more joined weights than this are averaged by the lane tier or by prefix sums.
constexpr int most_joined = 16;
// A fusedmax row of more scores, all candidates, leaves the lane tier, where taut strings take quadratic
// time.
constexpr int long_chain = 16;
// float32 rows of fusedmax with a larger lam leave the lane tier, in whose arithmetic few of them are accurate enough.
constexpr double most_lane_lam = 0.5;

// From this row length on, entmax at alpha = 1.5 finds its cut from this many vectors of maxima instead of one. Of N(0,
// 1) rows of 2,048 scores, 0.2 % then have more than 48 candidates instead of 1 % (AVX-512). The forward pass over rows
// of 1,024, 2,048 and 4,096 scores takes 0.71, 1.38 and 2.54 us with two, 0.78, 1.27 and 2.75 with one, 0.85, 1.72 and
// 2.77 with four (loaded machine).
constexpr int64_t many_maxima_row = 512;
constexpr int entmax_maxima_vectors = 2;

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
constexpr int64_t sorted_at_once = 4096;  // by one network, on the stack
// Up to this many scores a sort that carries positions is as fast as one by value: with 32, rows of 16 and 32 scores of
// oscarmax that the lane tier leaves (sawtooth rows, lam = 1 / d) took 1.9 and 2.7 times as long.
constexpr int64_t few_scores = 8;
constexpr int64_t few_ranks = 32;  // up to this many weights, ranks are counted in pairs
// Up to this many levels, comparing a vector of numbers with all of them takes less than searching for each: prox_oscar
// of 128 scores N(0, 1) in 37 levels takes 15 ns a score instead of 21 with a binary search without branches.
constexpr int64_t compared_levels = 128;
// Up to this many groups with a nonzero v, a product of prox_oscar needs no sorting: 2.7 ns a score instead of 18 at d
// = 128, after sparsemax.
constexpr int few_sizes = 8;
// A taut string that reads more than so many scores, and then every score more often than this, goes to the linear-time
// dynamic programme.
constexpr int64_t string_readings = 6, first_readings = 128;
// The same in lanes, from which rows go to the level tier.
constexpr int64_t lane_readings = 4, first_lane_readings = 32;
// The same for exact strings, from which rows go to the scalar tier.
constexpr int64_t exact_readings = 8, first_exact_readings = 32;
// So do rows of more candidates, of which a group has few: 0.03 N(0, 1) rows of 4,096 scores with lam = 1 took 1.25 of
// the time in strings, rows of 0.1 (i mod 8) of 1,024 scores with lam = 0.1 1.2 (Zen 5).
constexpr int64_t most_exact_scores = 256;

// Taut strings with shorter segments on average find the segments' sums as differences of prefix sums.
constexpr int64_t summed_segment = 8;

// Rounds of screening by level sets (algorithms/lane_levels.hpp), each about 0.3 ns a score; most rows settle in 3
// to 6.
constexpr int most_levels = 8;
// A row is flat, and followed by taut strings, if its largest score is above the mean by at most so many lam, and
// shares of an even distribution, and if its pooled scores are not expected to be spread over more than so many shares.
// Scores of deviation s are pooled to about s^2 / lam, here with a constant, or hardly if lam is below s; if it is far
// above s all are pooled. Other rows have few candidates after screening by level sets. Without the second condition
// fusedmax with lam = 1 of N(0, 1) rows of 64 scores takes 1.8 times as long; with it, 0.03 N(0, 1) rows of 16 to 2,048
// with lam = 0.1 as long as before (Zen 5).
constexpr float flat_lams = 2, flat_shares = 4;
constexpr double flat_spread = 12, pooled_lams = 1.8;

// --- Blocks of work ---
// Block boundaries are fixed, so results do not depend on the number of threads.
constexpr int64_t block_rows = 16, block_scores = 16384;
constexpr int64_t scores_per_thread = 65536;  // waking a thread for fewer costs more than it saves

// float32 rows of entmax and sqpnormmax with a weight at which the slope of y^(1-a) exceeds this are finished in
// double: the rounding of the weight, up to 1e-7, would show in the gradients. Estimated by leaving such rows out of
// the errors without this bound: J v for v ~ N(0, 1), alpha = 1.75 and 1.9, d = 16 to 2,048, 54,000 rows: at
// most 1.2e-5 instead of 1.1e-2, with 0.2 to 1 % of N(0, 1) rows and up to 17 % of flat ones (0.1 N(0, 1)) affected.
// Measured: entmax, alpha = 1.9, on flat rows of 512 (0.03 N(0, 1)) takes 0.56 of the forward time that it took with
// such rows in the scalar tier.
constexpr double steepest_power = 50;

// --- Attention ---
constexpr double dense_share = 0.4;  // from this share of nonzero weights on, dense products are faster than gathers
constexpr int64_t attention_scores_bytes = 384 << 10;  // of one block of queries: most of a level-two cache
// Packing the keys costs about as much as the scores of this many queries: with fewer, keys are read in place.
constexpr int64_t few_queries = 8;
// How many bytes ahead keys that are read in place are prefetched to the level-two cache. One query of 32 heads, 4,096
// keys of 128, and of 8 heads, 32,768 keys of 64, on Sapphire Rapids takes .47 and .51 of SDPA's time without, .38 and
// .38 with 2,048, .34 and .35 with 4,096, .34 and .33 with 8,192; with keys that 4 heads share .185, .171, .173 and
// .179. Prefetched to the level-one cache it takes .36 and .35 with 4,096.
constexpr int64_t prefetched_keys = 4096;
// --- Screening in 8 bits (attention/screen.hpp), measured on Zen 4 ---
// The number of keys of a row that are scored again at most; rows with more take the float path.
constexpr int64_t most_rescored = 128;
// Rows of fewer scores are not screened, with many queries those of sqpnormmax and oscarmax, and of entmax, from more
// scores on only: below, the float path is as fast. Its tiers depend on the length, too.
constexpr int64_t least_screened_row = 512, least_screened_queries = 16;
constexpr int64_t least_screened_sqpnormmax = 2048, least_screened_oscarmax = 2048, least_screened_entmax = 4096;
// Screening a row costs about as much as this many scores, and each key that is scored again as many as this; the
// second pair if a cut needs the maxima of all lanes (entmax, sqpnormmax). Attention, 8 heads of 64, forward, 1,024 and
// 2,048 keys on Sapphire Rapids, loaded: sparsemax takes .74 and .72 of the float path's time, fusedmax .88 and .90.
// With the first pair for all, entmax, of which 6 to 24 % of the rows fall back, takes 1.2 to 1.35, and sqpnormmax 1.1
// at 1,024.
constexpr int64_t screen_scores = 90, rescored_scores = 16;
constexpr int64_t lane_screen_scores = 200, lane_rescored_scores = 40;

// After a group of flat rows this many others are not screened.
constexpr int32_t skipped_groups = 31;
// The largest head dimension of keys that are copied in 8 bits: their products are exact in float32.
constexpr int64_t most_copied_e = 512;
// How many bytes ahead the copy is prefetched: one query of 32 heads, 4,096 keys of 128 on Sapphire Rapids takes 2.8 ms
// without, 2.0 with 2,048 and 1.9 with 8,192 (forward, loaded machine).
constexpr int64_t prefetched_copy = 4096;

// Register tiles of the products: 24 of 32 vector registers, or 12 of 16, hold sums.
#if defined(__AVX512F__)
constexpr int score_rows = 8, score_vectors = 3;
constexpr int value_rows = 4, value_vectors = 4;
#else
constexpr int score_rows = 4, score_vectors = 3;
constexpr int value_rows = 4, value_vectors = 2;
#endif

}  // namespace regmax::REGMAX_ISA
