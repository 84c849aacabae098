#include "tests/kernels/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

double reference_sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

double reference_silu(double x)
{
	return x * reference_sigmoid(x);
}

double reference_gelu(double x)
{
	return x / 2 * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

double reference_softplus(double x)
{
	return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

void reference_rms_norm(const float *x, const float *w, uint32_t n, double eps, double *out)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += (double)x[i] * x[i];
	for (uint32_t i = 0; i < n; i++)
		out[i] = x[i] / sqrt(sum / n + eps) * w[i];
}

void reference_rope_angles(uint32_t position, const float *inv_freq, uint32_t rot, double *out)
{
	for (uint32_t j = 0; j < rot / 2; j++) {
		float angle = (float)position * inv_freq[j];

		out[j] = cos((double)angle);
		out[rot / 2 + j] = sin((double)angle);
	}
}

void reference_rope(double *x, uint32_t position, const float *inv_freq, uint32_t rot)
{
	for (uint32_t j = 0; j < rot / 2; j++) {
		float angle = (float)position * inv_freq[j];
		double a = x[j], b = x[j + rot / 2];

		x[j] = a * cos((double)angle) - b * sin((double)angle);
		x[j + rot / 2] = b * cos((double)angle) + a * sin((double)angle);
	}
}

static double dot(const float *a, const float *b, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += (double)a[i] * b[i];
	return sum;
}

/* Four sums are computed side by side, each in the order of its terms: one alone waits for each of its additions. */
void reference_gemm(const float *a, const float *w, uint32_t N, uint32_t K, uint32_t ld,
		    double *out)
{
	uint32_t n = 0;

	for (; n + 4 <= N; n += 4) {
		const float *at = w + (uint64_t)n * ld;
		double sums[4] = {0};

		for (uint32_t k = 0; k < K; k++)
			for (uint32_t i = 0; i < 4; i++)
				sums[i] += (double)a[k] * at[(uint64_t)i * ld + k];
		memcpy(out + n, sums, sizeof(sums));
	}
	for (; n < N; n++)
		out[n] = dot(a, w + (uint64_t)n * ld, K);
}

void reference_quantize(const float *x, uint32_t K, uint32_t group, int8_t *q, float *scales)
{
	for (uint32_t begin = 0; begin < K; begin += group) {
		uint32_t end = MIN(begin + group, K);
		float amax = 0;

		for (uint32_t k = begin; k < end; k++)
			if (!isfinite(x[k]))
				amax = NAN;
			else if (fabsf(x[k]) > amax)
				amax = fabsf(x[k]);
		scales[begin / group] = amax < 0x1p-118f ? 0 : amax / 127;
		for (uint32_t k = begin; k < end; k++)
			q[k] = amax >= 0x1p-118f ? (int8_t)rintf(x[k] * (127 / amax)) : 0;
	}
}

void reference_input(const float *x, uint32_t K, bool bf16, bool int8, void *out)
{
	uint32_t N = (K + 31) / 32 * 32;
	uint8_t *bytes = out;

	for (uint32_t k = 0; k < K; k++)
		if (bf16) {
			uint32_t u;

			memcpy(&u, &x[k], 4);
			((uint16_t *)out)[k] = (uint16_t)(u >> 16);
		} else {
			((float *)out)[k] = x[k];
		}
	if (!int8)
		return;
	for (uint32_t k = 0; k < K; k += 32) {
		uint8_t *block = bytes + 2 * N + k / 32 * 48;
		int8_t q[32] = {0};
		int32_t sums[2] = {0};
		float scale, minus;

		reference_quantize(x + k, MIN(K - k, 32u), 32, q, &scale);
		for (int i = 0; i < 32; i++) {
			sums[0] += q[i];
			sums[1] += i < 16 ? q[i] : 0;
		}
		minus = -(float)sums[0] * scale;
		memcpy(block, q, 32);
		memcpy(block + 32, &scale, 4);
		memcpy(block + 36, &minus, 4);
		memcpy(block + 40, sums, 8);
	}
}

/* Rounds a finite float to the nearest number of bf16, to the even one of two. */
static float nearest_bf16(float x)
{
	uint32_t u;

	memcpy(&u, &x, 4);
	u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
	memcpy(&x, &u, 4);
	return x;
}

float reference_decoded(const struct quant_type *t, const struct quant_weight *w)
{
	if (QUANT_WIDE(t->low, t->table))
		return nearest_bf16(fmaf((float)(w->code - t->offset), w->scale, -w->min));
	return nearest_bf16(fmaf((float)(128 + w->code), w->scale,
				 fmaf(-(float)(128 + t->offset), w->scale, -w->min)));
}

float reference_quant_int8(const struct quant_type *t, const struct quant_weight *w, const float *x,
			   uint32_t K)
{
	float sum = 0;

	for (uint32_t k = 0; k < K; k += 32) {
		uint32_t group = t->group < 32 ? t->group : 32;
		int8_t q[32];
		float scale;

		reference_quantize(x + k, 32, 32, q, &scale);
		for (uint32_t g = 0; g < 32; g += group) {
			int32_t dot = 0, total = 0;

			for (uint32_t i = g; i < g + group; i++) {
				dot += ((int)w[k + i].code - t->offset) * q[i];
				total += q[i];
			}
			sum = fmaf((float)dot, scale * w[k + g].scale, sum);
			if (t->min)
				sum = fmaf(-(float)total * scale, w[k + g].min, sum);
		}
	}
	return sum;
}

float reference_quant_float(const struct quant_type *t, const struct quant_weight *w,
			    const float *x, uint32_t K)
{
	float sum = 0;

	for (uint32_t k = 0; k < K; k++) {
		float v = (w[k].code - (float)t->offset) * w[k].scale;

		sum = fmaf(x[k], t->min ? v - w[k].min : v, sum);
	}
	return sum;
}

float reference_quant_e4m3(const struct quant_weight *w, const float *x, uint32_t K)
{
	float all = 0;

	for (uint32_t k = 0; k < K; k += 128) {
		float sum = 0;

		for (uint32_t i = k; i < MIN(k + 128, K); i++) {
			uint32_t at = i ^ 1; /* of a pair the odd one first */

			sum = fmaf(x[at], w[at].code, sum);
		}
		all = fmaf(sum, w[k].scale, all);
	}
	return all;
}

void reference_gate_up(bool gelu, const float *h, const float *gate, const float *up, uint32_t N,
		       uint32_t K, uint32_t ld, double *act)
{
	for (uint32_t n = 0; n < N; n++)
		act[n] = (gelu ? reference_gelu
			       : reference_silu)(dot(h, gate + (uint64_t)n * ld, K)) *
			 dot(h, up + (uint64_t)n * ld, K);
}

void reference_moe_topk(const float *router, uint32_t experts, uint32_t topk, bool norm,
			int32_t *ids, double *weights)
{
	double most = (double)router[0], sum = 0, kept = 0;

	for (uint32_t e = 0; e < experts; e++)
		most = fmax(most, (double)router[e]);
	for (uint32_t e = 0; e < experts; e++)
		sum += exp((double)router[e] - most);
	for (uint32_t k = 0; k < topk; k++) {
		int32_t best = -1;

		for (uint32_t e = 0; e < experts; e++) {
			bool taken = false;

			for (uint32_t j = 0; j < k; j++)
				taken |= ids[j] == (int32_t)e;
			if (!taken && (best < 0 || router[e] > router[best]))
				best = (int32_t)e;
		}
		ids[k] = best;
		weights[k] = exp((double)router[best] - most) / sum;
		kept += weights[k];
	}
	for (uint32_t k = 0; norm && k < topk; k++)
		weights[k] /= kept;
}

void reference_moe_sort(const int32_t *ids, uint32_t n_tokens, uint32_t experts, uint32_t topk,
			uint32_t slots, int32_t *rows)
{
	for (uint32_t e = 0; e < experts; e++)
		for (uint32_t i = 0; i < n_tokens * topk; i++)
			if (ids[i] == (int32_t)e)
				*rows++ = (int32_t)(i / topk * slots + i % topk);
	for (uint32_t t = 0; t < n_tokens && slots > topk; t++)
		*rows++ = (int32_t)(t * slots + topk);
}

void reference_attention(const float *q, const float *gate, const float *k, const float *v,
			 uint32_t n, uint32_t hd, double *out)
{
	double most = -INFINITY, sum = 0;

	memset(out, 0, hd * sizeof(*out));
	for (uint32_t i = 0; i < n; i++)
		most = fmax(most, dot(q, k + (uint64_t)i * hd, hd) / sqrt(hd));
	for (uint32_t i = 0; i < n; i++) {
		double weight = exp(dot(q, k + (uint64_t)i * hd, hd) / sqrt(hd) - most);

		sum += weight;
		for (uint32_t d = 0; d < hd; d++)
			out[d] += weight * v[(uint64_t)i * hd + d];
	}
	for (uint32_t d = 0; d < hd; d++)
		out[d] = out[d] / sum * (gate ? reference_sigmoid((double)gate[d]) : 1);
}

/* ---- Gated DeltaNet ---- */

double reference_conv(const float *inputs, const float *weights, uint32_t taps)
{
	return reference_silu(dot(inputs, weights, taps));
}

void reference_l2_norm(double *x, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += x[i] * x[i];
	for (uint32_t i = 0; i < n; i++)
		x[i] /= sqrt(sum + 1e-6);
}

double reference_delta_gate(float a, float neg_a, float dt_bias)
{
	return (double)neg_a * reference_softplus((double)a + (double)dt_bias);
}

void reference_delta_step(double *S, const double *q, const double *k, const double *v, double beta,
			  double g, uint32_t dk, uint32_t dv, double *o)
{
	for (uint32_t c = 0; c < dv; c++) {
		double predicted = 0, u;

		for (uint32_t d = 0; d < dk; d++) {
			S[d * dv + c] *= exp(g);
			predicted += k[d] * S[d * dv + c];
		}
		u = beta * (v[c] - predicted);
		o[c] = 0;
		for (uint32_t d = 0; d < dk; d++) {
			S[d * dv + c] += k[d] * u;
			o[c] += q[d] * S[d * dv + c];
		}
	}
}

void reference_gated_norm(const double *o, const float *w, const float *z, uint32_t dv, double eps,
			  double *out)
{
	double sum = 0;

	for (uint32_t c = 0; c < dv; c++)
		sum += o[c] * o[c];
	for (uint32_t c = 0; c < dv; c++)
		out[c] = o[c] / sqrt(sum / dv + eps) * w[c] * reference_silu((double)z[c]);
}

/* ---- sampling ---- */

void reference_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]}, k0 = key[0], k1 = key[1];

	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xD2511F53 * x[0], b = (uint64_t)0xCD9E8D57 * x[2];
		const uint32_t next[4] = {
			(uint32_t)(b >> 32) ^ x[1] ^ k0,
			(uint32_t)b,
			(uint32_t)(a >> 32) ^ x[3] ^ k1,
			(uint32_t)a,
		};

		memcpy(x, next, sizeof(x));
		k0 += 0x9E3779B9;
		k1 += 0xBB67AE85;
	}
	memcpy(out, x, sizeof(x));
}

void reference_adjust(const float *logits, uint32_t vocab, const struct reference_draw *d,
		      double *out)
{
	for (uint32_t i = 0; i < vocab; i++) {
		uint32_t seen = d->counts ? d->counts[i] : 0, generated = seen & 0x7fffffff;

		out[i] = (double)logits[i];
		for (uint32_t k = 0; k < d->n_biases; k++)
			if (d->biases[k].token == (int32_t)i)
				out[i] += (double)d->biases[k].value;
		if (seen)
			out[i] = out[i] > 0 ? out[i] / (double)d->repetition
					    : out[i] * (double)d->repetition;
		if (generated)
			out[i] -= (double)d->presence + (double)d->frequency * generated;
	}
	for (uint32_t i = 0; i < d->n_banned; i++)
		out[d->banned[i]] = -INFINITY;
	for (uint32_t i = 0; d->allowed && i < vocab; i++)
		if (!(d->allowed[i / 32] >> i % 32 & 1))
			out[i] = -INFINITY;
}

/* Sets weights below `least` to 0. */
static void cut(double *p, uint32_t n, double least)
{
	for (uint32_t i = 0; i < n; i++)
		if (p[i] < least)
			p[i] = 0;
}

static int falling(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x < y) - (x > y);
}

/* Returns the largest value such that those at or above it are at least `count` many and add up to at least `mass`; 0
 * if there is none. */
static double least_kept(const double *p, uint32_t n, double count, double mass)
{
	double *sorted = malloc(n * sizeof(*sorted)), weight = 0, least = 0;

	if (!sorted)
		abort();
	memcpy(sorted, p, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), falling);
	for (uint32_t i = 0; i < n; i++) {
		weight += sorted[i];
		if (i + 1 < n && sorted[i + 1] >= sorted[i])
			continue; /* equal ones go together */
		if (i + 1 >= count && weight >= mass) {
			least = sorted[i];
			break;
		}
	}
	free(sorted);
	return least;
}

static double total(const double *p, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += p[i];
	return sum;
}

void reference_distribution(const float *logits, uint32_t vocab, const struct reference_draw *d,
			    double *p)
{
	uint32_t best = 0;
	double most, sum;

	reference_adjust(logits, vocab, d, p);
	for (uint32_t i = 1; i < vocab; i++)
		if (p[i] > p[best])
			best = i;
	most = p[best];
	if (d->temperature <= 0) {
		memset(p, 0, vocab * sizeof(*p));
		p[best] = 1;
		return;
	}
	for (uint32_t i = 0; i < vocab; i++)
		p[i] = exp((p[i] - most) / (double)d->temperature);
	cut(p, vocab, (double)d->min_p);
	if (d->top_k > 0 && (uint32_t)d->top_k < vocab)
		cut(p, vocab, least_kept(p, vocab, d->top_k, 0));
	if (d->top_p < 1)
		cut(p, vocab, least_kept(p, vocab, 0, (double)d->top_p * total(p, vocab)));
	sum = total(p, vocab);
	for (uint32_t i = 0; i < vocab; i++)
		p[i] /= sum;
}

void reference_logprobs(const float *logits, uint32_t vocab, double *out)
{
	double most = (double)logits[0], sum = 0;

	for (uint32_t i = 0; i < vocab; i++)
		most = fmax(most, (double)logits[i]);
	for (uint32_t i = 0; i < vocab; i++)
		sum += exp((double)logits[i] - most);
	for (uint32_t i = 0; i < vocab; i++)
		out[i] = (double)logits[i] - most - log(sum);
}
