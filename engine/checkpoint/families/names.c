/* Names of tensors in transformers. The families share them.
 *
 *     prefix    model.  (the language model alone)
 *               model.language_model.  (beside a vision tower, as transformers 5 saves it)
 *               language_model.model.  (the same, older)
 *     lm_head   at top level, or under language_model. or model.language_model.; it may be absent if the
 *               embedding is the head too
 *     delta     in_proj_qkv, _z, _b, _a; or interleaved: for each key head, which has r value heads, rows
 *               in_proj_qkvz [q dk | k dk | v r dv | z r dv], in_proj_ba [b r | a r] (dk, dv: sizes of a
 *               key head and a value head)
 *     experts   one tensor a projection and expert; or packed: gate_up_proj [E, 2 I, D], gate rows
 *               first, and down_proj [E, D, I] (E: number of experts, I: size of an expert, D: hidden size) */
#include "engine/checkpoint/families/family.h"

#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/tensor.h"

#define SET(name, kind, list) const struct tensor_set name = {kind, ARRAY_SIZE(list), list}

static const struct family_tensor embed = {"embed_tokens.weight",
					   TENSOR_MATRIX,
					   {{WEIGHT_EMBED, 0}}};
static const struct family_tensor final_norm = {"norm.weight",
						TENSOR_VECTOR,
						{{WEIGHT_FINAL_NORM, 0}}};
static const struct family_tensor lm_head = {"lm_head.weight",
					     TENSOR_MATRIX,
					     {{WEIGHT_LM_HEAD, 0}}};

static bool is_foreign(const char *name, const struct model_config *c)
{
	static const char *const others[] = {
		"model.visual.",
		"visual.",
		"model.vision_tower.",
		"vision_tower.",
		"multi_modal_projector.",
		"model.multi_modal_projector.",
		"mtp.",
		"model.mtp.",
		"language_model.mtp.",
		"model.language_model.mtp.",
	};

	(void)c;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (!strncmp(name, others[i], strlen(others[i])))
			return true;
	return name_ends_in(name, ".rotary_emb.inv_freq"); /* a constant that older files hold */
}

static const char *const prefixes[] = {"model.language_model.", "language_model.model.", "model.",
				       NULL};
static const char *const head_prefixes[] = {"", "language_model.", "model.language_model.", NULL};

const struct naming naming_transformers = {
	.prefixes = prefixes,
	.head_prefixes = head_prefixes,
	.layer = "layers.",
	.embed = &embed,
	.final_norm = &final_norm,
	.lm_head = &lm_head,
	.config = "config.json",
	.is_foreign = is_foreign,
};

static const struct family_tensor norms[] = {
	{"input_layernorm.weight", TENSOR_VECTOR, {{WEIGHT_INPUT_NORM, 0}}},
	{"post_attention_layernorm.weight", TENSOR_VECTOR, {{WEIGHT_POST_NORM, 0}}},
};
SET(tensors_norms, LAYER_KINDS, norms);

static const struct family_tensor four_norms[] = {
	{"input_layernorm.weight", TENSOR_VECTOR, {{WEIGHT_INPUT_NORM, 0}}},
	{"post_attention_layernorm.weight", TENSOR_VECTOR, {{WEIGHT_MIXER_NORM, 0}}},
	{"pre_feedforward_layernorm.weight", TENSOR_VECTOR, {{WEIGHT_POST_NORM, 0}}},
	{"post_feedforward_layernorm.weight", TENSOR_VECTOR, {{WEIGHT_MLP_NORM, 0}}},
};
SET(tensors_four_norms, LAYER_KINDS, four_norms);

static const struct family_tensor attention[] = {
	{"self_attn.q_proj.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_Q, 0}}},
	{"self_attn.k_proj.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_K, 0}}},
	{"self_attn.v_proj.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_V, 0}}},
	{"self_attn.o_proj.weight", TENSOR_MATRIX, {{WEIGHT_ATTN_O, 0}}},
	{"self_attn.q_norm.weight", TENSOR_VECTOR, {{WEIGHT_ATTN_Q_NORM, 0}}},
	{"self_attn.k_norm.weight", TENSOR_VECTOR, {{WEIGHT_ATTN_K_NORM, 0}}},
};
SET(tensors_attention, LAYER_ATTENTION, attention);

static const struct family_tensor qkv_bias[] = {
	{"self_attn.q_proj.bias", TENSOR_VECTOR, {{WEIGHT_ATTN_Q_BIAS, 0}}},
	{"self_attn.k_proj.bias", TENSOR_VECTOR, {{WEIGHT_ATTN_K_BIAS, 0}}},
	{"self_attn.v_proj.bias", TENSOR_VECTOR, {{WEIGHT_ATTN_V_BIAS, 0}}},
};
SET(tensors_qkv_bias, LAYER_ATTENTION, qkv_bias);

static const struct family_tensor delta[] = {
	{"linear_attn.conv1d.weight", TENSOR_CONV, {{WEIGHT_DELTA_CONV, 0}}},
	{"linear_attn.A_log", TENSOR_VECTOR, {{WEIGHT_DELTA_A_LOG, 0}}},
	{"linear_attn.dt_bias", TENSOR_VECTOR, {{WEIGHT_DELTA_DT_BIAS, 0}}},
	{"linear_attn.norm.weight", TENSOR_VECTOR, {{WEIGHT_DELTA_NORM, 0}}},
	{"linear_attn.out_proj.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_OUT, 0}}},
};
SET(tensors_delta, LAYER_DELTA, delta);

static const struct family_tensor delta_apart[] = {
	{"linear_attn.in_proj_qkv.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_QKV, 0}}},
	{"linear_attn.in_proj_z.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_Z, 0}}},
	{"linear_attn.in_proj_b.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_B, 0}}},
	{"linear_attn.in_proj_a.weight", TENSOR_MATRIX, {{WEIGHT_DELTA_A, 0}}},
};
SET(tensors_delta_apart, LAYER_DELTA, delta_apart);

#define KEY_ROWS offsetof(struct model_config, key_head_dim)
static const struct family_tensor delta_interleaved[] = {
	{"linear_attn.in_proj_qkvz.weight",
	 TENSOR_HEADS,
	 {{WEIGHT_DELTA_QKV, KEY_ROWS},
	  {WEIGHT_DELTA_QKV, KEY_ROWS},
	  {WEIGHT_DELTA_QKV, 0},
	  {WEIGHT_DELTA_Z, 0}},
	 3},
	{"linear_attn.in_proj_ba.weight",
	 TENSOR_HEADS,
	 {{WEIGHT_DELTA_B, 0}, {WEIGHT_DELTA_A, 0}},
	 1},
};
SET(tensors_delta_interleaved, LAYER_DELTA, delta_interleaved);

static const struct family_tensor router[] = {
	{"mlp.gate.weight", TENSOR_MATRIX, {{WEIGHT_ROUTER, 0}}},
	{"mlp.shared_expert.gate_proj.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_GATE, 0}}},
	{"mlp.shared_expert.up_proj.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_UP, 0}}},
	{"mlp.shared_expert.down_proj.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_DOWN, 0}}},
	{"mlp.shared_expert_gate.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_ROUTER, 0}}},
};
SET(tensors_router, LAYER_MOE, router);

static const struct family_tensor experts[] = {
	{"mlp.experts.*.gate_proj.weight", TENSOR_MATRIX, {{WEIGHT_EXPERT_GATE, 0}}},
	{"mlp.experts.*.up_proj.weight", TENSOR_MATRIX, {{WEIGHT_EXPERT_UP, 0}}},
	{"mlp.experts.*.down_proj.weight", TENSOR_MATRIX, {{WEIGHT_EXPERT_DOWN, 0}}},
};
SET(tensors_experts, LAYER_MOE, experts);

static const struct family_tensor experts_packed[] = {
	{"mlp.experts.gate_up_proj",
	 TENSOR_EXPERTS,
	 {{WEIGHT_EXPERT_GATE, 0}, {WEIGHT_EXPERT_UP, 0}},
	 1},
	{"mlp.experts.down_proj", TENSOR_EXPERTS, {{WEIGHT_EXPERT_DOWN, 0}}},
};
SET(tensors_experts_packed, LAYER_MOE, experts_packed);

static const struct family_tensor dense[] = {
	{"mlp.gate_proj.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_GATE, 0}}},
	{"mlp.up_proj.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_UP, 0}}},
	{"mlp.down_proj.weight", TENSOR_MATRIX, {{WEIGHT_SHARED_DOWN, 0}}},
};
SET(tensors_dense, LAYER_DENSE, dense);
