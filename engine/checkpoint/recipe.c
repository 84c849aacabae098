#include "engine/checkpoint/recipe.h"

#include <string.h>

/* Source: llama.cpp, llama-quant.cpp, use_more_bits. */
static bool has_more_bits(uint32_t layer, uint32_t n)
{
	return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static const char *q4_k_m(const struct weight *w, uint32_t n_layers)
{
	switch (w->role) {
	case WEIGHT_LM_HEAD: return "Q6_K";
	case WEIGHT_DELTA_QKV: return "Q5_K";
	case WEIGHT_ATTN_V:
	case WEIGHT_EXPERT_DOWN:
	case WEIGHT_SHARED_DOWN: return has_more_bits(w->layer, n_layers) ? "Q6_K" : "Q4_K";
	default: return "Q4_K";
	}
}

static const char *q5_k_m(const struct weight *w, uint32_t n_layers)
{
	switch (w->role) {
	case WEIGHT_LM_HEAD:
	case WEIGHT_DELTA_QKV: return "Q6_K";
	case WEIGHT_ATTN_V:
	case WEIGHT_EXPERT_DOWN:
	case WEIGHT_SHARED_DOWN: return has_more_bits(w->layer, n_layers) ? "Q6_K" : "Q5_K";
	default: return "Q5_K";
	}
}

static const char *mxfp4_moe(const struct weight *w)
{
	switch (w->role) {
	case WEIGHT_EXPERT_GATE:
	case WEIGHT_EXPERT_UP:
	case WEIGHT_EXPERT_DOWN: return "MXFP4";
	default: return "Q8_0";
	}
}

static const char *ud_q4_k_m(const struct weight *w)
{
	switch (w->role) {
	case WEIGHT_LM_HEAD: return "Q6_K";
	case WEIGHT_EXPERT_GATE:
	case WEIGHT_EXPERT_UP: return "Q4_K";
	case WEIGHT_EXPERT_DOWN: return "Q5_K";
	default: return "Q8_0";
	}
}

/* Returns a type of blocks of 32 with as many bits as t or more, for rows that t does not fit. */
static const struct quant_type *with_small_blocks(const struct quant_type *t)
{
	uint32_t bits = t->low + t->high;

	return quant_find(bits <= 4 ? "Q4_0" : bits == 5 ? "Q5_0" : "Q8_0");
}

bool recipe_type(const char *recipe, const struct weight *w, uint32_t n_layers,
		 const struct quant_type **ret)
{
	const char *name = recipe;
	const struct quant_type *t;

	if (!strcmp(recipe, "Q4_K_M"))
		name = q4_k_m(w, n_layers);
	else if (!strcmp(recipe, "UD-Q4_K_M"))
		name = ud_q4_k_m(w);
	else if (!strcmp(recipe, "Q5_K_M"))
		name = q5_k_m(w, n_layers);
	else if (!strcmp(recipe, "MXFP4_MOE"))
		name = mxfp4_moe(w);
	t = quant_find(name);
	if (!t)
		return false;
	if (w->cols % t->block)
		t = with_small_blocks(t);
	*ret = w->cols % t->block ? NULL : t;
	return true;
}
