/* The shape of a model: the numbers that its kernels are compiled with. tuning/cuts.c looks cuts up by it, programs.c
 * makes compiler options of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A row stride: n rounded up to a multiple of 16, so that vector loops need no tails. The result is unsigned and
 * as wide as n. */
#define KERNEL_LD(n) (((n) + 15u) / 16u * 16u)

/* The width of a group of the generic variant. Tests can ask for another width than their device's own. */
enum kernel_width {
	KERNEL_WIDTH_DEVICE, /* the device's own width */
	KERNEL_WIDTH_CPU,    /* one work-item with vectors of 16 floats, which are one register */
	KERNEL_WIDTH_NARROW, /* the same with smaller tiles, for a CPU whose registers have 8 or 4 floats */
	KERNEL_WIDTH_GPU, /* 64 lanes, in some kernels 256 */
};

/* An MLP: experts and a shared expert. A dense MLP has experts = 0 and counts as a shared expert alone. */
struct kernel_mlp {
	uint32_t experts, topk, expert_size, shared_size;
	bool norm_topk, shared_gate;
};

struct kernel_shape {
	uint32_t hidden, vocab;
	float eps;
	uint32_t heads, kv_heads, head_dim, rotary_dim; /* heads = 0: no attention layers */
	uint32_t page_tokens;				/* tokens of a KV page */
	uint32_t max_context;				/* tokens of the longest sequence */
	bool attention_gate; /* each query head has a gate for its output */
	uint32_t key_heads, value_heads, key_dim, value_dim,
		conv; /* key_heads = 0: no delta layers */
	struct kernel_mlp mlps[2];
	uint32_t n_mlps;
	bool bf16; /* elements are bf16, else float */
	/* outputs of mixers and MLPs are also stored by themselves, not only added to the residual stream */
	bool dump;
	enum kernel_width width;
	/* weights are not coded (coded.h), even if they could be; the bits are the same */
	bool plain_weights;
	/* For tests: the compiler does not optimise. It takes less than half of the time, and the kernels compute
	 * the same bits slowly. */
	bool unoptimised;
	/* For tests: the names of the files to compile. NULL: all programs that the shape needs are compiled. */
	const char *only;
};

/* Return the row strides of the input projections' outputs, in floats; attention.clh and delta.clh have the layouts.
 * Without attention_gate the gates have no columns. */
static inline uint32_t kernels_attention_ld(const struct kernel_shape *s)
{
	return ((s->attention_gate ? 2 : 1) * s->heads + 2 * s->kv_heads) * s->head_dim;
}

static inline uint32_t kernels_delta_ld(const struct kernel_shape *s)
{
	return 2 * s->key_heads * s->key_dim + 2 * s->value_heads * s->value_dim +
	       2 * KERNEL_LD(s->value_heads);
}
