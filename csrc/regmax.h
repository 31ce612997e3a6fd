/* The C interface of regmax's core: mappings on rows, their Jacobian products, and attention.
 *
 * A call is a record: `regmax_rows` or `regmax_attention`. Set every field that the function names, zero the
 * others. Unknown kernels, unknown types and arguments out of range are REGMAX_BAD_ARGUMENT in every build.
 *
 * Rows are contiguous: n rows of d numbers. Rows never influence each other, and the same input gives the
 * same bits whatever the number of threads.
 *
 * Masks are bytes, 1 = keep. A masked position is deleted: the result is that of the kept scores alone,
 * scattered back, with exact zeros elsewhere. A score of -inf is deleted too. Row i of the scores reads
 * mask row (i / mask_repeat) % mask_rows, so a padding or a causal mask is never expanded.
 * mask = NULL keeps everything.
 *
 * theta is the mapping's strength (lam, or p): `thetas` holds one per row, or is NULL and `theta` serves all.
 * gamma likewise: the mapping is that of x / gamma, and its Jacobian product is J v / gamma. The division is
 * relative to the row's largest kept score and saturates, so it never turns a finite score into -inf.
 *
 * support: NULL, or n * ((d + 63) / 64) words; bit i % 64 of word i / 64 of a row says y_i != 0.
 * joined:  NULL, or as many words; the bit says that position i shares its group with the kept position
 *          before it (fusedmax, prox_tv1d), or that it may share it with others (oscarmax). No other kernel
 *          writes and reads it.
 * A backward without support reads y (and the mask) instead; the result is the same, except for fusedmax
 * rows with -inf, whose deleted positions only `joined` remembers.
 * kept:    NULL, or as many words; the bit says that position i takes part: the mask keeps it, and its score is
 *          not -inf. The gradient of fusedmax's lam reads it, and the mask without it.
 *
 * A row with NaN or +inf among its kept scores gives NaN at its kept positions, and so does its Jacobian
 * product; its support is empty. A row without kept scores gives zeros.
 */
#ifndef REGMAX_H
#define REGMAX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum regmax_kernel {
  REGMAX_SPARSEMAX = 0,  /* theta unused */
  REGMAX_FUSEDMAX = 1,   /* theta = lam >= 0 */
  REGMAX_OSCARMAX = 2,   /* theta = lam >= 0 */
  REGMAX_SQPNORMMAX = 3, /* theta = p in (1, 2] */
  REGMAX_PROX_TV1D = 4,  /* theta = lam >= 0; no simplex: argmin 1/2 |z - x|^2 + lam sum |z_i+1 - z_i| */
  REGMAX_PROX_OSCAR = 5, /* theta = lam >= 0; no simplex: OWL prox with weights lam (d - k), k = 1..d kept */
  REGMAX_ENTMAX = 6,     /* theta = alpha in [1, 2] */
  /* REGMAX_PROX_OSCAR for a result that is projected onto the simplex next: numbers without weight there may be 0. Its
   * Jacobian product is that of REGMAX_PROX_OSCAR for directions that are 0 where the weights are. */
  REGMAX_PROX_OSCAR_LEADING = 16
};

enum { REGMAX_LISTED = 16 };

enum regmax_status { REGMAX_OK = 0, REGMAX_OUT_OF_MEMORY = 1, REGMAX_BAD_ARGUMENT = 2 };

/* The type of a call's floating-point arrays. Only argmax and jacobian_product know half precision; they compute
 * in float32, and convert a block of rows at a time. */
enum regmax_dtype { REGMAX_FLOAT16 = 2, REGMAX_BFLOAT16 = 3, REGMAX_FLOAT32 = 4, REGMAX_FLOAT64 = 8 };

/* One call on rows. x, y, v and out are n x d numbers of the type `dtype`. */
typedef struct regmax_rows {
  int32_t dtype;
  int32_t kernel;
  int32_t threads; /* <= 0 means 1 */
  int64_t n, d;
  const void* x;
  void* y; /* must not overlap x */
  const void* v;
  void* out;
  uint64_t *support, *joined, *kept;
  const uint8_t* mask;
  int64_t mask_rows, mask_repeat;
  double theta, gamma;
  const double *thetas, *gammas;
  const double* weights;                   /* prox_owl: d numbers, nonincreasing, >= 0 */
  double *value, *theta_grad, *gamma_grad; /* NULL, or n numbers each */
  /* In half precision NULL, or the weights in float32: argmax writes them, and jacobian_product reads them. It
   * needs no weights for sparsemax and fusedmax if the bits are given and no strength is learned; then y only
   * tells which rows are NaN. */
  float* y32;
  int32_t read_again; /* argmax: y is read soon, as by gradients of strengths, and stays in the caches */
  /* NULL, or n * REGMAX_LISTED numbers (float32 in half precision), which need `support`: argmax writes the weights of
   * each row that has at most REGMAX_LISTED, in order, and zeros after them (only zeros for the other rows), and
   * jacobian_product reads them there for the gradients of strengths instead of gathering them from y. */
  void* listed;
} regmax_rows;

/* Reads x; writes y, the mapping of every row, and, unless they are NULL, support, joined, kept, max_Omega as value
 * (-inf for a row without kept scores), and the derivatives of max_Omega in each row's theta and gamma. */
int32_t regmax_argmax(const regmax_rows* rows);

/* Reads y, v, support, joined and kept; writes out = J v / gamma, J the (symmetric) Jacobian of the mapping at
 * the scores that gave y; and, unless they are NULL, the derivatives of <v, y> in each row's theta and gamma. */
int32_t regmax_jacobian_product(const regmax_rows* rows);

/* Reads x and weights; writes y = argmin_z 1/2 |z - x|^2 + sum_k weights_k |z|_(k), |z| sorted decreasing.
 * Uses neither kernel, mask, theta nor gamma. */
int32_t regmax_prox_owl(const regmax_rows* rows);

/* One call of attention, out = Pi((scale q k^T + bias) / gamma) v, for `heads` heads of `queries` x `keys` scores.
 *
 * q: heads x queries x e; k, v: (heads / groups) x keys x e and e_v, `groups` consecutive heads of queries
 * sharing one; e and e_v are multiples of 16. Everything is contiguous, except that the forward pass reads q, k and v
 * and writes out at any strides between rows, heads and batches. mask: NULL, or bytes, 1 = keep:
 * slices of mask_rows x keys, head h reading slice mask_slices[h]; mask_rows is 1 (all queries alike; then
 * heads that share keys must share the slice) or queries. bias: NULL, or numbers, added to the scores, laid
 * out like a mask. is_causal: query i sees the keys 0, ..., i only. dropout: weight (i, j) of head h is
 * dropped or not by a hash of the seed and its place. Strengths: theta and gamma are shared by all heads, unless
 * thetas or gammas hold heads x theta_rows or heads x gamma_rows numbers, these being 1 or queries.
 */
typedef struct regmax_attention {
  int32_t dtype;  /* of q, k, v, bias, out, values and the gradients */
  int32_t kernel; /* one whose result is on the simplex */
  int32_t is_causal;
  double theta, gamma, scale;
  const double *thetas, *gammas;
  int64_t theta_rows, gamma_rows;
  int64_t heads, groups, queries, keys, e, e_v;
  const void *q, *k, *v;
  /* The forward pass: NULL, or the distances in numbers from batch to batch, head to head and row to row, of q, k, v
   * and out (12 numbers); a batch has batch_heads heads of queries. */
  const int64_t* strides;
  int64_t batch_heads;
  const uint8_t* mask;
  const int64_t* mask_slices;
  int64_t mask_rows;
  const void* bias;
  const int64_t* bias_slices;
  int64_t bias_rows;
  double dropout_p;
  uint64_t seed;
  int32_t threads;
  int32_t recompute; /* keep no weights of dense blocks: the backward pass computes them again */
  /* NULL, or a copy of k in 8 bits by regmax_quantise, with which a call with few queries may read less of k: the
   * result has the same bits. Head h of k begins at row h * screen_stride of screen and screen_scales; screen_bounds
   * has its largest error and its largest norm. */
  const int8_t* screen;
  const float *screen_scales, *screen_bounds;
  int64_t screen_stride;
  /* The forward pass writes out, and the weights before dropout, heads x queries x keys, unless dense is NULL. */
  void *out, *dense;
  /* The backward pass reads the forward's weights, as regmax_attention_take gave them, and the gradients of out
   * and of dense (or NULL). It recomputes blocks of rows that have no weights there. It writes the gradients of
   * q, k and v, and adds to those that are not NULL: the gradient of the bias, laid out like the bias, and those
   * of theta and gamma, heads x queries numbers. */
  const int64_t* starts;
  const int32_t* columns;
  const void* values;
  const uint8_t* joined; /* fusedmax only: bit 0 says that a weight shares its segment with the one before, bits 1
                            and 2 that the kept position before or after it has no weight */
  const void *out_grad, *dense_grad;
  void *q_grad, *k_grad, *v_grad, *bias_grad;
  double *theta_grad, *gamma_grad;
} regmax_attention;

/* The nonzero weights of a forward pass, before dropout. */
typedef struct regmax_weights regmax_weights;

/* Writes out. Unless `weights` is NULL, it also gives the weights, which regmax_attention_free must free. */
int32_t regmax_attention_forward(const regmax_attention* call, regmax_weights** weights);

/* How many weights there are to take. */
int64_t regmax_attention_size(const regmax_weights* weights);

/* Moves them out as compressed rows: heads * queries + 1 starts; columns, values and joined (NULL, or
 * fusedmax's) of `capacity`. Blocks of rows that no longer fit stay empty. Each block's memory is freed once it is
 * copied. They can be taken once. */
int32_t regmax_attention_take(regmax_weights* weights, int64_t capacity, int64_t* starts, int32_t* columns,
                              void* values, uint8_t* joined);

/* Frees the weights, taken or not. */
void regmax_attention_free(regmax_weights* weights);

/* Writes the gradients of q, k and v. */
int32_t regmax_attention_backward(const regmax_attention* call);

/* The instruction set that runs on this machine: "avx512", "avx2" or "baseline". */
const char* regmax_instruction_set(void);

/* Choose it by name, for tests and benchmarks; REGMAX_BAD_ARGUMENT if this machine or build lacks it. */
int32_t regmax_use_instruction_set(const char* name);

/* For tests: restrict row calls and attention to one tier, "lanes", "whole", "levels" or "scalar" (csrc/README.md); the
 * scalar tier serves the rows that the named one leaves. NULL removes the restriction. */
int32_t regmax_force_tier(const char* name);

/* Rows of float32 numbers in 8 bits: `rows` rows of e numbers, e a multiple of 16, at most 512. Writes rows x e
 * integers, and for each row its scale, a bound of the norm of what is lost, and a bound of the norm of the row. Rows
 * that cannot be bounded have infinite bounds. REGMAX_BAD_ARGUMENT if this machine has no AVX-512. */
int32_t regmax_quantise(const float* x, int64_t rows, int64_t e, int8_t* integers, float* scales, float* errors,
                        float* norms);

/* Whether attention in float32 screens keys in 8 bits where that is faster: the results have the same bits. It is on if
 * this machine has AVX-512 VNNI, unless the environment has REGMAX_INT8=0. */
int32_t regmax_int8(void);

/* Switch it on (1) or off (0), for tests and benchmarks; without VNNI it stays off. */
void regmax_use_int8(int32_t on);

/* What the screen did in all calls since the last reset: counts[0] query rows were screened, counts[1] of them took the
 * float path after all, counts[2] keys were scored again in float32, and counts[3] keys were left as candidates in the
 * rows that did not take the float path. */
void regmax_screen_counts(int64_t counts[4], int32_t reset);

/* Take threads from the host program's OpenMP, whose GOMP_parallel this is; NULL: from the core's own pool
 * again. A forked child, in which OpenMP's threads are gone, returns to the pool by itself. */
void regmax_borrow_threads(void (*gomp_parallel)(void (*work)(void*), void* context, unsigned threads, unsigned flags));

/* The same for the calls that this thread makes from now on: fork_join(host, work, context, threads) runs work(context)
 * on at most `threads` threads, the caller among them, and returns when all are done. NULL: the threads of all others
 * again. */
void regmax_borrow_threads_here(void (*fork_join)(void* host, void (*work)(void*), void* context, int32_t threads),
                                void* host);

/* The interface's version: the Python package refuses a library with another one. */
int32_t regmax_abi_version(void);

#ifdef __cplusplus
}
#endif

#endif
