/* Names of tensors in GGUF files, as llama.cpp's converter writes them, whatever the family.
 *
 * Weights have the shapes of transformers, with these exceptions. The convolution has no dimension of 1. Rows of q, k
 * and v of Gated DeltaNet are one tensor and z is another one; beta and alpha are two tensors in Qwen3.5, and one,
 * interleaved by key head, in Qwen3-Next (the first files of that model have all but these interleaved, too). The gate
 * and up projections of experts are two tensors or, if the converter was told so, one; so are q, k and v of attention.
 *
 * In Llama's files the rows of a head of q and k are in pairs, those of one frequency of RoPE beside each other.
 *
 * The converter changes some numbers (model_config.h): it adds 1 to norms, ssm_a is -exp(A_log), and value heads may be
 * in turn.
 *
 * The layers behind the model's own are those of multi-token prediction, which also have tensors blk.N.nextn.*. */
#include "engine/checkpoint/families/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define SET(name, kind, list) static const struct tensor_set name = {kind, ARRAY_SIZE(list), list}

static const struct family_tensor embed = {"token_embd.weight", TENSOR_MATRIX, {{WEIGHT_EMBED, 0}}};
static const struct family_tensor final_norm = {"output_norm.weight",
						TENSOR_VECTOR,
						{{WEIGHT_FINAL_NORM, 0}}};
static const struct family_tensor lm_head = {"output.weight", TENSOR_MATRIX, {{WEIGHT_LM_HEAD, 0}}};

static const struct family_tensor hybrid_norms[] = {
	{"attn_norm.weight", TENSOR_VECTOR, {{WEIGHT_INPUT_NORM, 0}}},
	{"post_attention_norm.weight", TENSOR_VECTOR, {{WEIGHT_POST_NORM, 0}}},
};
SET(set_hybrid_norms, LAYER_KINDS, hybrid_norms);

static const struct family_tensor norms[] = {
	{"attn_norm.weight", TENSOR_VECTOR, {{WEIGHT_INPUT_NORM, 0}}},
	{"ffn_norm.weight", TENSOR_VECTOR, {{WEIGHT_POST_NORM, 0}}},
};
SET(set_norms, LAYER_KINDS, norms);

static const struct family_tensor four_norms[] = {
	{"attn_norm.weight", TENSOR_VECTOR, {{WEIGHT_INPUT_NORM, 0}}},
	{"post_attention_norm.weight", TENSOR_VECTOR, {{WEIGHT_MIXER_NORM, 0}}},
	{"ffn_norm.weight", TENSOR_VECTOR, {{WEIGHT_POST_NORM, 0}}},
	{"post_ffw_norm.weight", TENSOR_VECTOR, {{WEIGHT_MLP_NORM, 0}}},
};
SET(set_four_norms, LAYER_KINDS, four_norms);

static const struct family_tensor attention[] = {
	{"attn_q.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_Q, 0}}},
	{"attn_k.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_K, 0}}},
	{"attn_v.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_V, 0}}},
	{"attn_output.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_O, 0}}},
	{"attn_q_norm.weight", TENSOR_VECTOR, {{WEIGHT_ATTN_Q_NORM, 0}}},
	{"attn_k_norm.weight", TENSOR_VECTOR, {{WEIGHT_ATTN_K_NORM, 0}}},
};
SET(set_attention, LAYER_ATTENTION, attention);

static const struct family_tensor llama_attention[] = {
	{"attn_q.weight", TENSOR_PAIRS, {{WEIGHT_ATTN_Q, 0}}},
	{"attn_k.weight", TENSOR_PAIRS, {{WEIGHT_ATTN_K, 0}}},
	{"attn_v.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_V, 0}}},
	{"attn_output.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_O, 0}}},
};
SET(set_llama_attention, LAYER_ATTENTION, llama_attention);

static const struct family_tensor qkv_bias[] = {
	{"attn_q.bias", TENSOR_VECTOR, {{WEIGHT_ATTN_Q_BIAS, 0}}},
	{"attn_k.bias", TENSOR_VECTOR, {{WEIGHT_ATTN_K_BIAS, 0}}},
	{"attn_v.bias", TENSOR_VECTOR, {{WEIGHT_ATTN_V_BIAS, 0}}},
};
SET(set_qkv_bias, LAYER_ATTENTION, qkv_bias);

static const struct family_tensor attention_fused[] = {
	{"attn_qkv.weight",
	 TENSOR_MATRIX,
	 {{WEIGHT_ATTN_Q, 0}, {WEIGHT_ATTN_K, 0}, {WEIGHT_ATTN_V, 0}},
	 2},
	{"attn_output.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_O, 0}}},
	{"attn_q_norm.weight", TENSOR_VECTOR, {{WEIGHT_ATTN_Q_NORM, 0}}},
	{"attn_k_norm.weight", TENSOR_VECTOR, {{WEIGHT_ATTN_K_NORM, 0}}},
};
SET(set_attention_fused, LAYER_ATTENTION, attention_fused);

static const struct family_tensor delta[] = {
	{"ssm_conv1d.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_CONV, 0}}},
	{"ssm_a", TENSOR_VECTOR, {{WEIGHT_DELTA_A_LOG, 0}}},
	{"ssm_dt.bias", TENSOR_VECTOR, {{WEIGHT_DELTA_DT_BIAS, 0}}},
	{"ssm_norm.weight", TENSOR_VECTOR, {{WEIGHT_DELTA_NORM, 0}}},
	{"ssm_out.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_OUT, 0}}},
};
SET(set_delta, LAYER_DELTA, delta);

static const struct family_tensor delta_inputs[] = {
	{"attn_qkv.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_QKV, 0}}},
	{"attn_gate.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_Z, 0}}},
};
SET(set_delta_inputs, LAYER_DELTA, delta_inputs);

#define KEY_ROWS offsetof(struct model_config, key_head_dim)
static const struct family_tensor delta_inputs_interleaved[] = {
	{"ssm_in.weight",
	 TENSOR_HEADS,
	 {{WEIGHT_DELTA_QKV, KEY_ROWS},
	  {WEIGHT_DELTA_QKV, KEY_ROWS},
	  {WEIGHT_DELTA_QKV, 0},
	  {WEIGHT_DELTA_Z, 0}},
	 3},
};
SET(set_delta_inputs_interleaved, LAYER_DELTA, delta_inputs_interleaved);

static const struct family_tensor delta_gates[] = {
	{"ssm_beta.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_B, 0}}},
	{"ssm_alpha.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_A, 0}}},
};
SET(set_delta_gates, LAYER_DELTA, delta_gates);

static const struct family_tensor delta_gates_interleaved[] = {
	{"ssm_ba.weight", TENSOR_HEADS, {{WEIGHT_DELTA_B, 0}, {WEIGHT_DELTA_A, 0}}, 1},
};
SET(set_delta_gates_interleaved, LAYER_DELTA, delta_gates_interleaved);

static const struct family_tensor router[] = {
	{"ffn_gate_inp.weight", TENSOR_MATRIX, {{WEIGHT_ROUTER, 0}}},
	{"ffn_gate_shexp.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_GATE, 0}}},
	{"ffn_up_shexp.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_UP, 0}}},
	{"ffn_down_shexp.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_DOWN, 0}}},
	{"ffn_gate_inp_shexp.weight", TENSOR_VECTOR, {{WEIGHT_SHARED_ROUTER, 0}}},
};
SET(set_router, LAYER_MOE, router);

static const struct family_tensor experts[] = {
	{"ffn_gate_exps.weight", TENSOR_EXPERTS, {{WEIGHT_EXPERT_GATE, 0}}},
	{"ffn_up_exps.weight", TENSOR_EXPERTS, {{WEIGHT_EXPERT_UP, 0}}},
	{"ffn_down_exps.weight", TENSOR_EXPERTS, {{WEIGHT_EXPERT_DOWN, 0}}},
};
SET(set_experts, LAYER_MOE, experts);

static const struct family_tensor experts_fused[] = {
	{"ffn_gate_up_exps.weight",
	 TENSOR_EXPERTS,
	 {{WEIGHT_EXPERT_GATE, 0}, {WEIGHT_EXPERT_UP, 0}},
	 1},
	{"ffn_down_exps.weight", TENSOR_EXPERTS, {{WEIGHT_EXPERT_DOWN, 0}}},
};
SET(set_experts_fused, LAYER_MOE, experts_fused);

static const struct family_tensor dense[] = {
	{"ffn_gate.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_GATE, 0}}},
	{"ffn_up.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_UP, 0}}},
	{"ffn_down.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_DOWN, 0}}},
};
SET(set_dense, LAYER_DENSE, dense);

const struct tensor_set *const gguf_hybrid_sets[] = {
	&set_hybrid_norms,
	&set_attention,
	&set_attention_fused,
	&set_delta,
	&set_delta_inputs,
	&set_delta_inputs_interleaved,
	&set_delta_gates,
	&set_delta_gates_interleaved,
	&set_router,
	&set_experts,
	&set_experts_fused,
	&set_dense,
	NULL,
};

const struct tensor_set *const gguf_next_sets[] = {
	&set_hybrid_norms,
	&set_attention,
	&set_attention_fused,
	&set_delta,
	&set_delta_inputs,
	&set_delta_inputs_interleaved,
	&set_delta_gates_interleaved,
	&set_delta_gates,
	&set_router,
	&set_experts,
	&set_experts_fused,
	&set_dense,
	NULL,
};

const struct tensor_set *const gguf_llama_sets[] = {
	&set_norms,
	&set_llama_attention,
	&set_dense,
	NULL,
};

const struct tensor_set *const gguf_gemma_sets[] = {
	&set_four_norms, &set_attention, &set_attention_fused, &set_dense, NULL,
};

const struct tensor_set *const gguf_sets[] = {
	&set_qkv_bias,	      &set_norms,  &set_attention,
	&set_attention_fused, &set_router, &set_experts,
	&set_experts_fused,   &set_dense,  NULL,
};

static bool is_foreign(const char *name, const struct model_config *c)
{
	static const char block[] = "blk.";
	unsigned long layer;
	char *end;

	/* The configuration has what it says (gguf_config.c). */
	if (!strcmp(name, "rope_freqs.weight"))
		return c->rope_scaling == ROPE_LLAMA3;
	if (strncmp(name, block, strlen(block)) != 0)
		return false;
	layer = strtoul(name + strlen(block), &end, 10);
	return *end == '.' && layer >= c->n_layers && layer - c->n_layers < c->n_mtp_layers;
}

static const char *const prefixes[] = {"", NULL};

const struct naming naming_gguf = {
	.prefixes = prefixes,
	.head_prefixes = prefixes,
	.layer = "blk.",
	.embed = &embed,
	.final_norm = &final_norm,
	.lm_head = &lm_head,
	.config = "the keys",
	.is_foreign = is_foreign,
};
