/*
 * The mathematics of the kernels in plain C: one loop a sum, no vectors, no tiles, sums in double. Read this to learn
 * it; the kernels are tested against it. Not part of the daemon.
 *
 * A function handles one row or one head of one sequence (reference_moe_sort: all tokens of a launch). Matrices are
 * row-major without padding unless a stride is named. Inputs are floats, as the kernels see them (elements widened),
 * and results doubles, unless a declaration says otherwise.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/quant.h"
#include "scheduler/plan.h"

double reference_sigmoid(double x);
double reference_silu(double x);

/* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
double reference_gelu(double x);

/* log(1 + e^x) */
double reference_softplus(double x);

/* out[i] = x[i] rsqrt(mean(x^2) + eps) w[i], i < n. w is as the kernels get it: where a model's norm scales by
 * 1 + weight, the sum. */
void reference_rms_norm(const float *x, const float *w, uint32_t n, double eps, double *out);

/* Rotary angles of a position: out = cos | sin of position * inv_freq[j], j < rot / 2. The product is rounded to
 * float, as in the model's reference. */
void reference_rope_angles(uint32_t position, const float *inv_freq, uint32_t rot, double *out);

/* Turns the pairs (j, j + rot/2), j < rot / 2, of x in place. */
void reference_rope(double *x, uint32_t position, const float *inv_freq, uint32_t rot);

/* out[n] = sum_k a[k] w[n, k], w with row stride ld >= K. */
void reference_gemm(const float *a, const float *w, uint32_t N, uint32_t K, uint32_t ld,
		    double *out);

/* Quantises a row of K floats to int8, in groups of so many. scales [ceil(K / group)] are amax / 127, where amax is the
 * group's largest magnitude; q is rounded to the nearest integer, ties to even. A group with amax < 2^-118 gets zeros
 * and scale 0; a group with a number that is not finite gets zeros and scale NaN. */
void reference_quantize(const float *x, uint32_t K, uint32_t group, int8_t *q, float *scales);

/* Writes a row of a product's input of K columns, x being elements: the elements, and with int8 the blocks behind them
 * (generic/input.clh). */
void reference_input(const float *x, uint32_t K, bool bf16, bool int8, void *out);

/* Returns a quantised weight as nvidia/panel.clh decodes it: the nearest number of bf16. */
float reference_decoded(const struct quant_type *t, const struct quant_weight *w);

/* Return an element of a product with a row w of K quantised weights, bit for bit (generic/quant_core.clh). */
float reference_quant_int8(const struct quant_type *t, const struct quant_weight *w, const float *x,
			   uint32_t K);
float reference_quant_float(const struct quant_type *t, const struct quant_weight *w,
			    const float *x, uint32_t K);

/* The same of weights of E4M3_128 in bf16 (generic/e4m3_core.clh). K is even. */
float reference_quant_e4m3(const struct quant_weight *w, const float *x, uint32_t K);

/* act[n] = silu(gate row n . h) * (up row n . h), with `gelu` gelu in the place of silu */
void reference_gate_up(bool gelu, const float *h, const float *gate, const float *up, uint32_t N,
		       uint32_t K, uint32_t ld, double *act);

/* The topk experts of largest probability (ties: the smaller index) and their probabilities, divided by the sum of
 * these if `norm`. */
void reference_moe_topk(const float *router, uint32_t experts, uint32_t topk, bool norm,
			int32_t *ids, double *weights);

/* The order in which rows are computed: token * slots + slot, by expert, then token, then slot; with topk + 1 slots behind
 * these the rows of the shared expert, with slot topk. ids [n_tokens, topk], rows [n_tokens * slots]. */
void reference_moe_sort(const int32_t *ids, uint32_t n_tokens, uint32_t experts, uint32_t topk,
			uint32_t slots, int32_t *rows);

/* One query of one head over the keys and values [n, hd] it may see: softmax(q k^T / sqrt(hd)) v, times
 * sigmoid(gate) unless gate is NULL. */
void reference_attention(const float *q, const float *gate, const float *k, const float *v,
			 uint32_t n, uint32_t hd, double *out);

/* ---- Gated DeltaNet, token by token ---- */

/* silu of the causal convolution at one channel: `inputs` are the last `taps` inputs, oldest first. */
double reference_conv(const float *inputs, const float *weights, uint32_t taps);

/* x / sqrt(sum x^2 + 1e-6), in place. */
void reference_l2_norm(double *x, uint32_t n);

/* g of one head: neg_a softplus(a + dt_bias), with neg_a = -exp(A_log). */
double reference_delta_gate(float a, float neg_a, float dt_bias);

/* One token of one value head. S [dk, dv] becomes the next state; q and k are normed (and q scaled by
 * dk^-1/2), o [dv] is before the gated norm.
 *     S <- e^g S;   u = beta (v - S^T k);   S <- S + k u^T;   o = S^T q
 * A snapshot after n tokens is S after the n-th call, with the last taps - 1 inputs of the convolution. */
void reference_delta_step(double *S, const double *q, const double *k, const double *v, double beta,
			  double g, uint32_t dk, uint32_t dv, double *o);

/* out = o rsqrt(mean(o^2) + eps) w silu(z) */
void reference_gated_norm(const double *o, const float *w, const float *z, uint32_t dv, double eps,
			  double *out);

/* ---- sampling ---- */

struct reference_draw {
	float temperature, top_p, min_p;
	int32_t top_k;
	float presence, frequency, repetition;
	const uint32_t *
		counts; /* [vocab] bit 31: in the prompt, the rest: times generated; NULL: no penalties */
	const int32_t *banned;
	uint32_t n_banned;
	const struct plan_bias *biases; /* [n_biases] */
	uint32_t n_biases;
	const uint32_t *allowed; /* token mask (kernels/step.h); NULL: none */
};

/* Philox 4x32-10 of a counter and a key (Salmon et al. 2011). */
void reference_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The logits after biases, penalties and bans. */
void reference_adjust(const float *logits, uint32_t vocab, const struct reference_draw *d,
		      double *out);

/* The distribution a token is drawn from: adjusted logits over the temperature, softmax, cut to the
 * tokens that min_p, top_k and top_p (in this order) keep. Temperature 0: all on the argmax, the smallest
 * id of equal ones. */
void reference_distribution(const float *logits, uint32_t vocab, const struct reference_draw *d,
			    double *p);

/* log softmax of the raw logits */
void reference_logprobs(const float *logits, uint32_t vocab, double *out);
