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

/* An MLP: experts, and perhaps a shared expert (shared_size 0: there is none). A dense MLP has experts = 0 and counts
 * as a shared expert alone. */
struct kernel_mlp {
	uint32_t experts, topk, expert_size, shared_size;
	bool norm_topk, shared_gate;
};

/* Returns the slots of a token: its experts, then the shared expert, if there is one. */
static inline uint32_t kernel_mlp_slots(const struct kernel_mlp *m)
{
	return m->topk + (m->shared_size > 0);
}

/* Returns the row stride of the router's logits, in floats: a column for each expert, then one for the gate of the
 * shared expert, if there is one. */
static inline uint32_t kernel_mlp_router_ld(const struct kernel_mlp *m)
{
	return KERNEL_LD(m->experts + (m->shared_size > 0));
}

struct kernel_shape {
	uint32_t hidden, vocab;
	float eps;
	uint32_t heads, kv_heads, head_dim, rotary_dim; /* heads = 0: no attention layers */
	uint32_t page_tokens;				/* tokens of a KV page */
	uint32_t max_context;				/* tokens of the longest sequence */
	bool attention_gate; /* each query head has a gate for its output */
	bool qk_norm;	     /* queries and keys are normed */
	bool qkv_bias;	     /* the columns of attention's projection have biases */
	uint32_t score_dim;  /* scores are multiplied by score_dim^-1/2; 0: head_dim */
	/* a query of a layer with a sliding window sees so many keys, and the layer has angles of its own if ropes is
	 * 2; 0: there are no such layers */
	uint32_t window;
	uint32_t ropes; /* tables of rotary angles; 0 stands for 1 */
	bool kv_int8; /* pages have int8 with a scale for each row, else elements (generic/attention.clh) */
	uint32_t key_heads, value_heads, key_dim, value_dim,
		conv;	  /* key_heads = 0: no delta layers */
	bool tiled_heads; /* how key heads have value heads (generic/delta.clh) */
	struct kernel_mlp mlps[2];
	uint32_t n_mlps;
	bool gelu;	   /* MLPs have gelu in the place of silu */
	bool out_norms;	   /* outputs of mixers and MLPs are normed before they are added */
	float embed_scale; /* the rows of the embedding are multiplied by it; 0 stands for 1 */
	bool bf16;	   /* elements are bf16, else float */
	/* The types of the model's matrices: bit n stands for type n of quant_types.h, bit 0 for plain weights. 0: all
	 * are plain, and no matrix is one of panels with types (quant.h). */
	uint32_t quant;
	bool quant_embed; /* the embedding is a matrix of such panels too */
	/* inputs of products have blocks of int8 (generic/input.clh); of sets with `quant` and bf16, but not on tensor
	 * cores */
	bool int8;
	/* outputs of mixers and MLPs are also stored by themselves, not only added to the residual stream */
	bool dump;
	enum kernel_width width;
	/* weights are not coded (coded.h), even if they could be; the bits are the same */
	bool plain_weights;
	/* the program of decode steps that are one launch is not compiled, even if it could be */
	bool separate_launches;
	/* For tests: the compiler does not optimise. It takes less than half of the time, and the kernels compute
	 * the same bits slowly. */
	bool unoptimised;
	/* The names of the files to compile, for tests; "": none, for questions about sizes alone (engine_measure).
	 * NULL: all programs that the shape needs are compiled. */
	const char *only;
};

/* Returns the row stride of products' inputs of n columns, in elements (IN_LD of generic/input.clh). */
static inline uint64_t kernels_input_ld(const struct kernel_shape *s, uint64_t n)
{
	return s->int8 ? ((n + 31) / 32 * 112 + 63) / 64 * 32 : KERNEL_LD(n);
}

/* Returns the bytes that a page keeps of the key, or of the value, of a token in one KV head: head_dim numbers, and if
 * these have one byte, their scale. */
static inline uint32_t kernels_kv_row_bytes(uint32_t head_dim, uint32_t number)
{
	return head_dim * number + (number == 1 ? 4 : 0);
}

/* Returns the numbers of a table of rotary angles of a token: cosines, then sines (ROT of generic/embed.cl). A shape
 * without attention has no angles, and a pair that nothing reads: so no size in a kernel is 0. */
static inline uint32_t kernels_rope_ld(const struct kernel_shape *s)
{
	return s->rotary_dim ? s->rotary_dim : 2;
}

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
