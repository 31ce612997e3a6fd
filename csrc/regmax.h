/* The C interface of regmax's core: mappings on rows, and their Jacobian products.
 *
 * Rows are contiguous: n rows of d numbers. Everything is row by row; rows never influence each other,
 * and the same input gives the same bits whatever the number of threads.
 *
 * Masks are bytes, 1 = keep. A masked position is deleted: the result is that of the kept scores alone,
 * scattered back, with exact zeros elsewhere. A score of -inf is deleted too. Row i of the scores reads
 * mask row (i / mask_repeat) % mask_rows, so a padding or a causal mask is never expanded.
 * mask = NULL keeps everything.
 *
 * theta is the mapping's strength (lam, or p): `thetas` holds one per row, or is NULL and `theta` serves all.
 *
 * support: NULL, or n * ((d + 63) / 64) words; bit i % 64 of word i / 64 of a row says y_i != 0.
 * joined:  NULL, or as many words; the bit says that position i shares its group with the kept position
 *          before it (fusedmax, prox_tv1d), or that it may share it with others (oscarmax). No other kernel
 *          writes and reads it.
 * Where a backward gets no support it reads y (and the mask) instead; the result is the same, but for
 * fusedmax rows with -inf, whose deleted positions only `joined` remembers.
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
  REGMAX_PROX_OSCAR = 5  /* theta = lam >= 0; no simplex: OWL prox with weights lam (d - k), k = 1..d kept */
};

enum regmax_status { REGMAX_OK = 0, REGMAX_OUT_OF_MEMORY = 1, REGMAX_BAD_ARGUMENT = 2 };

/* y = the mapping of every row of x. y must not overlap x. threads <= 0 means 1. */
int32_t regmax_argmax_f32(int32_t kernel, const float* x, float* y, uint64_t* support, uint64_t* joined,
                          int64_t n, int64_t d, const uint8_t* mask, int64_t mask_rows, int64_t mask_repeat,
                          double theta, const double* thetas, int32_t threads);
int32_t regmax_argmax_f64(int32_t kernel, const double* x, double* y, uint64_t* support, uint64_t* joined,
                          int64_t n, int64_t d, const uint8_t* mask, int64_t mask_rows, int64_t mask_repeat,
                          double theta, const double* thetas, int32_t threads);

/* out = J v for every row, J the (symmetric) Jacobian of the mapping at the scores that gave y. */
int32_t regmax_jacobian_product_f32(int32_t kernel, const float* y, const uint64_t* support,
                                    const uint64_t* joined, const float* v, float* out, int64_t n, int64_t d,
                                    const uint8_t* mask, int64_t mask_rows, int64_t mask_repeat, double theta,
                                    const double* thetas, int32_t threads);
int32_t regmax_jacobian_product_f64(int32_t kernel, const double* y, const uint64_t* support,
                                    const uint64_t* joined, const double* v, double* out, int64_t n,
                                    int64_t d, const uint8_t* mask, int64_t mask_rows, int64_t mask_repeat,
                                    double theta, const double* thetas, int32_t threads);

/* z = argmin 1/2 |z - x|^2 + sum_k weights_k |z|_(k), |z| sorted decreasing; weights: d numbers,
 * nonincreasing, >= 0.
 */
int32_t regmax_prox_owl_f32(const float* x, float* z, int64_t n, int64_t d, const double* weights,
                            int32_t threads);
int32_t regmax_prox_owl_f64(const double* x, double* z, int64_t n, int64_t d, const double* weights,
                            int32_t threads);

/* Attention, out = Pi(scale q k^T + bias) v, for `heads` heads of `queries` x `keys` scores.
 *
 * q: heads x queries x e; k, v: (heads / groups) x keys x e and e_v, `groups` consecutive heads of queries
 * sharing one; e and e_v are multiples of 16. Everything is contiguous. mask: NULL, or bytes, 1 = keep:
 * slices of mask_rows x keys, head h reading slice mask_slices[h]; mask_rows is 1 (all queries alike; then
 * heads that share keys must share the slice) or queries. bias: NULL, or numbers, added to the scores, laid
 * out like a mask. is_causal: query i sees the keys 0, ..., i only. dropout: weight (i, j) of head h is
 * dropped or not by a hash of the seed and its place.
 */
typedef struct regmax_attention {
  int32_t kernel; /* REGMAX_SPARSEMAX, ..., REGMAX_SQPNORMMAX */
  int32_t is_causal;
  double theta, scale;
  int64_t heads, groups, queries, keys, e, e_v;
  const void *q, *k, *v;
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
} regmax_attention;

/* The nonzero weights of a forward pass, before dropout. */
typedef struct regmax_weights regmax_weights;

/* Writes out, and unless `weights` is NULL gives the weights to be taken: regmax_attention_take must follow.
 */
int32_t regmax_attention_forward_f32(const regmax_attention* call, float* out, regmax_weights** weights);
int32_t regmax_attention_forward_f64(const regmax_attention* call, double* out, regmax_weights** weights);

/* How many weights there are. */
int64_t regmax_attention_size(const regmax_weights* weights);

/* Copies them as compressed rows, and frees them: heads * queries + 1 starts; columns, values and joined
 * (fusedmax alone) of that size. Where starts is NULL it frees only. */
void regmax_attention_take(regmax_weights* weights, int64_t* starts, int32_t* columns, void* values,
                           uint8_t* joined);

/* From the weights and the gradient of out: the gradients of q, k and v. scores_grad is scratch, one number
 * per weight. */
int32_t regmax_attention_backward_f32(const regmax_attention* call, const int64_t* starts,
                                      const int32_t* columns, const float* values, const uint8_t* joined,
                                      const float* out_grad, float* q_grad, float* k_grad, float* v_grad);
int32_t regmax_attention_backward_f64(const regmax_attention* call, const int64_t* starts,
                                      const int32_t* columns, const double* values, const uint8_t* joined,
                                      const double* out_grad, double* q_grad, double* k_grad, double* v_grad);

/* The instruction set that runs on this machine: "avx512", "avx2" or "baseline". */
const char* regmax_instruction_set(void);

/* Choose it by name, for tests and benchmarks; REGMAX_BAD_ARGUMENT where this machine or build has it not. */
int32_t regmax_use_instruction_set(const char* name);

/* Take threads from a host program's OpenMP, whose GOMP_parallel this is, rather than from a pool of one's
 * own, or with NULL from that pool again. A forked child, in which OpenMP's threads are gone, goes back to a
 * pool by itself. */
void regmax_borrow_threads(void (*gomp_parallel)(void (*work)(void*), void* context, unsigned threads,
                                                 unsigned flags));

/* The interface's version: native.py refuses a library that speaks another. */
int32_t regmax_abi_version(void);

#ifdef __cplusplus
}
#endif

#endif
