/* engine/checkpoint/model_config: the configurations of all families are read correctly; one that is wrong or cannot be
 * computed is refused with a sentence. */
#include <errno.h>
#include <math.h>

#include "base/macros.h"
#include "engine/checkpoint/families/family.h"
#include "tests/quoted.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static struct err error;
static struct model_config c; /* the configuration that was read last */

static int parse(const char *json, const char *generation)
{
	error = (struct err){0};
	json = quoted(json);
	generation = generation ? quoted(generation) : "";
	return model_config_parse("c", json, strlen(json), *generation ? generation : NULL,
				  strlen(generation), &c, &error);
}

/* Parses an object with this model_type and the keys in `more`. */
static int parse_with(const char *type, const char *more)
{
	char json[4096];

	snprintf(json, sizeof(json), "{'model_type':'%s'%s%s}", type, *more ? "," : "", more);
	return parse(json, NULL);
}

static bool reads_json(const char *json, const char *generation)
{
	return parse(json, generation) == 0;
}

static bool reads(const char *type, const char *more)
{
	return parse_with(type, more) == 0;
}

static const char qwen3_5[] =
	"{'architectures':['Qwen3_5MoeForConditionalGeneration'],'model_type':'qwen3_5_moe',"
	"'tie_word_embeddings':false,'image_token_id':248056,'text_config':{'attention_bias':"
	"false,'attn_output_gate':true,'dtype':'bfloat16','eos_token_id':248044,"
	"'full_attention_interval':4,'head_dim':256,'hidden_act':'silu','hidden_size':2048,"
	"'layer_types':['linear_attention','linear_attention','linear_attention','full_attention'],"
	"'linear_conv_kernel_dim':4,'linear_key_head_dim':128,'linear_num_key_heads':16,"
	"'linear_num_value_heads':32,'linear_value_head_dim':128,'max_position_embeddings':262144,"
	"'mlp_only_layers':[],'model_type':'qwen3_5_moe_text','moe_intermediate_size':512,"
	"'mtp_num_hidden_layers':1,'num_attention_heads':16,'num_experts':256,"
	"'num_experts_per_tok':8,'num_hidden_layers':4,'num_key_value_heads':2,"
	"'rms_norm_eps':1e-06,'shared_expert_intermediate_size':512,'vocab_size':248320,"
	"'rope_parameters':{'mrope_interleaved':true,'mrope_section':[11,11,10],"
	"'rope_type':'default','rope_theta':10000000,'partial_rotary_factor':0.25}},"
	"'vision_config':{'depth':27,'hidden_size':1152}}";

static const char qwen3_next[] =
	"{'model_type':'qwen3_next','decoder_sparse_step':1,'eos_token_id':151645,"
	"'full_attention_interval':4,'head_dim':256,'hidden_act':'silu','hidden_size':2048,"
	"'intermediate_size':5120,'linear_conv_kernel_dim':4,'linear_key_head_dim':128,"
	"'linear_num_key_heads':16,'linear_num_value_heads':32,'linear_value_head_dim':128,"
	"'max_position_embeddings':262144,'mlp_only_layers':[],'moe_intermediate_size':512,"
	"'norm_topk_prob':true,'num_attention_heads':16,'num_experts':512,'num_experts_per_tok':"
	"10,'num_hidden_layers':48,'num_key_value_heads':2,'partial_rotary_factor':0.25,"
	"'rms_norm_eps':1e-06,'rope_scaling':null,'rope_theta':10000000,"
	"'shared_expert_intermediate_size':512,'tie_word_embeddings':false,"
	"'use_sliding_window':false,'vocab_size':151936}";

/* The configuration of Qwen3-0.6B. */
static const char qwen3[] =
	"{'architectures':['Qwen3ForCausalLM'],'attention_bias':false,'attention_dropout':0.0,"
	"'bos_token_id':151643,'eos_token_id':151645,'head_dim':128,'hidden_act':'silu',"
	"'hidden_size':1024,'initializer_range':0.02,'intermediate_size':3072,"
	"'max_position_embeddings':40960,'max_window_layers':28,'model_type':'qwen3',"
	"'num_attention_heads':16,'num_hidden_layers':28,'num_key_value_heads':8,"
	"'rms_norm_eps':1e-06,'rope_scaling':null,'rope_theta':1000000,'sliding_window':null,"
	"'tie_word_embeddings':true,'torch_dtype':'bfloat16','use_cache':true,"
	"'use_sliding_window':false,'vocab_size':151936}";

/* The configuration of Qwen3-30B-A3B. */
static const char qwen3_moe[] =
	"{'architectures':['Qwen3MoeForCausalLM'],'attention_bias':false,'attention_dropout':0.0,"
	"'bos_token_id':151643,'decoder_sparse_step':1,'eos_token_id':151645,'head_dim':128,"
	"'hidden_act':'silu','hidden_size':2048,'initializer_range':0.02,'intermediate_size':6144,"
	"'max_position_embeddings':40960,'max_window_layers':48,'mlp_only_layers':[],'model_type':"
	"'qwen3_moe','moe_intermediate_size':768,'norm_topk_prob':true,'num_attention_heads':32,"
	"'num_experts':128,'num_experts_per_tok':8,'num_hidden_layers':48,'num_key_value_heads':4,"
	"'output_router_logits':false,'rms_norm_eps':1e-06,'rope_scaling':null,'rope_theta':"
	"1000000.0,'router_aux_loss_coef':0.001,'sliding_window':null,'tie_word_embeddings':false,"
	"'torch_dtype':'bfloat16','use_cache':true,'use_sliding_window':false,'vocab_size':151936}";

/* The configuration of Llama-3.2-1B-Instruct. */
static const char llama[] =
	"{'architectures':['LlamaForCausalLM'],'attention_bias':false,'attention_dropout':0.0,"
	"'bos_token_id':128000,'eos_token_id':[128001,128008,128009],'head_dim':64,'hidden_act':"
	"'silu','hidden_size':2048,'initializer_range':0.02,'intermediate_size':8192,"
	"'max_position_embeddings':131072,'mlp_bias':false,'model_type':'llama',"
	"'num_attention_heads':32,'num_hidden_layers':16,'num_key_value_heads':8,'pretraining_tp':"
	"1,'rms_norm_eps':1e-05,'rope_scaling':{'factor':32.0,'high_freq_factor':4.0,"
	"'low_freq_factor':1.0,'original_max_position_embeddings':8192,'rope_type':'llama3'},"
	"'rope_theta':500000.0,'tie_word_embeddings':true,'torch_dtype':'bfloat16','use_cache':"
	"true,'vocab_size':128256}";

/* The configuration of SmolLM2-135M-Instruct. */
static const char smollm[] =
	"{'architectures':['LlamaForCausalLM'],'attention_bias':false,'attention_dropout':0.0,"
	"'bos_token_id':1,'eos_token_id':2,'hidden_act':'silu','hidden_size':576,"
	"'initializer_range':0.041666666666666664,'intermediate_size':1536,'is_llama_config':true,"
	"'max_position_embeddings':8192,'mlp_bias':false,'model_type':'llama',"
	"'num_attention_heads':9,'num_hidden_layers':30,'num_key_value_heads':3,'pad_token_id':2,"
	"'pretraining_tp':1,'rms_norm_eps':1e-05,'rope_interleaved':false,'rope_scaling':null,"
	"'rope_theta':100000,'tie_word_embeddings':true,'torch_dtype':'bfloat16',"
	"'transformers_version':'4.42.3','use_cache':true,'vocab_size':49152}";

/* The configuration of Qwen2.5-0.5B-Instruct. */
static const char qwen2[] =
	"{'architectures':['Qwen2ForCausalLM'],'attention_dropout':0.0,'bos_token_id':151643,"
	"'eos_token_id':151645,'hidden_act':'silu','hidden_size':896,'initializer_range':0.02,"
	"'intermediate_size':4864,'max_position_embeddings':32768,'max_window_layers':21,"
	"'model_type':'qwen2','num_attention_heads':14,'num_hidden_layers':24,"
	"'num_key_value_heads':2,'rms_norm_eps':1e-06,'rope_theta':1000000.0,'sliding_window':"
	"32768,'tie_word_embeddings':true,'torch_dtype':'bfloat16','use_cache':true,"
	"'use_sliding_window':false,'vocab_size':151936}";

/* The configuration of gemma-3-1b-it, without keys about its training. */
static const char gemma3_text[] =
	"{'architectures':['Gemma3ForCausalLM'],'attention_bias':false,'attention_dropout':0.0,"
	"'attn_logit_softcapping':null,'bos_token_id':2,'cache_implementation':'hybrid',"
	"'eos_token_id':[1,106],'final_logit_softcapping':null,'head_dim':256,'hidden_activation':"
	"'gelu_pytorch_tanh','hidden_size':1152,'intermediate_size':6912,"
	"'max_position_embeddings':32768,'model_type':'gemma3_text','num_attention_heads':4,"
	"'num_hidden_layers':26,'num_key_value_heads':1,'pad_token_id':0,'query_pre_attn_scalar':"
	"256,'rms_norm_eps':1e-06,'rope_local_base_freq':10000,'rope_scaling':null,'rope_theta':"
	"1000000,'sliding_window':512,'sliding_window_pattern':6,'torch_dtype':'bfloat16',"
	"'use_cache':true,'vocab_size':262144}";

/* The configuration of gemma-3-27b-it, without its vision tower's. */
static const char gemma3[] =
	"{'architectures':['Gemma3ForConditionalGeneration'],'boi_token_index':255999,"
	"'eoi_token_index':256000,'eos_token_id':[1,106],'image_token_index':262144,"
	"'initializer_range':0.02,'mm_tokens_per_image':256,'model_type':'gemma3','text_config':{"
	"'head_dim':128,'hidden_size':5376,'intermediate_size':21504,'model_type':'gemma3_text',"
	"'num_attention_heads':32,'num_hidden_layers':62,'num_key_value_heads':16,"
	"'query_pre_attn_scalar':168,'rope_scaling':{'factor':8.0,'rope_type':'linear'},"
	"'sliding_window':1024},'torch_dtype':'bfloat16','vision_config':{'hidden_size':1152}}";

TEST(published)
{
	if (!ok(reads_json(qwen3_5, NULL), "Qwen3.5-MoE, nested %s", error.text))
		return;
	ok(c.family == &family_qwen3_5_moe && c.hidden_size == 2048 && c.n_layers == 4 &&
		   c.vocab_size == 248320 && c.max_position_embeddings == 262144,
	   "sizes");
	ok(c.layers[0].mixer == LAYER_DELTA && c.layers[2].mixer == LAYER_DELTA &&
		   c.layers[3].mixer == LAYER_ATTENTION && c.n_layers_of[LAYER_ATTENTION] == 1 &&
		   c.n_layers_of[LAYER_DELTA] == 3,
	   "kinds of layers");
	ok(c.n_heads == 16 && c.n_kv_heads == 2 && c.head_dim == 256 && c.rotary_dim == 64 &&
		   c.rope_theta == 1e7 && c.rms_norm_eps == 1e-6f,
	   "attention");
	ok(c.n_key_heads == 16 && c.n_value_heads == 32 && c.key_head_dim == 128 &&
		   c.value_head_dim == 128 && c.conv_kernel == 4,
	   "Gated DeltaNet");
	ok(c.n_experts == 256 && c.n_experts_per_token == 8 && c.expert_size == 512 &&
		   c.shared_expert_size == 512 && c.mlp_size == 0 && c.layers[0].mlp == LAYER_MOE &&
		   c.norm_topk_prob,
	   "experts");
	ok(c.n_mtp_layers == 1 && !c.tie_word_embeddings && c.n_end_tokens == 1 &&
		   c.end_tokens[0] == 248044,
	   "the rest");
	ok(c.default_temperature == 1 && c.default_top_p == 1 && c.default_top_k == 0 &&
		   c.default_min_p == 0 && c.default_repetition_penalty == 1,
	   "neutral sampling without generation_config.json");

	if (!ok(reads_json(qwen3_next, NULL), "Qwen3-Next %s", error.text))
		return;
	ok(c.family == &family_qwen3_next && c.n_layers == 48 &&
		   c.n_layers_of[LAYER_ATTENTION] == 12 && c.layers[3].mixer == LAYER_ATTENTION &&
		   c.layers[47].mixer == LAYER_ATTENTION && c.layers[46].mixer == LAYER_DELTA,
	   "every fourth layer attends");
	ok(c.rotary_dim == 64 && c.rope_theta == 1e7, "flat rope keys");
	ok(c.n_experts == 512 && c.n_experts_per_token == 10 && c.norm_topk_prob, "experts");

	if (!ok(reads_json(qwen3, NULL), "Qwen3 %s", error.text))
		return;
	ok(c.family == &family_qwen3 && c.n_layers_of[LAYER_ATTENTION] == 28 &&
		   c.n_layers_of[LAYER_DENSE] == 28 && c.n_layers == 28 && c.n_key_heads == 0,
	   "every layer attends, no layer is recurrent");
	ok(c.n_heads == 16 && c.n_kv_heads == 8 && c.head_dim == 128 && c.rotary_dim == 128 &&
		   c.rope_theta == 1e6 && c.mlp_size == 3072 && c.tie_word_embeddings,
	   "sizes");
	ok(!c.attention_gate && !c.norm_adds_one, "no output gate, norms multiply by w");

	if (!ok(reads_json(qwen3_moe, NULL), "Qwen3-MoE %s", error.text))
		return;
	ok(c.family == &family_qwen3_moe && c.n_layers_of[LAYER_ATTENTION] == 48 &&
		   c.n_layers_of[LAYER_MOE] == 48 && c.n_experts == 128 &&
		   c.n_experts_per_token == 8 && c.expert_size == 768 &&
		   c.shared_expert_size == 0 && c.mlp_size == 0 && c.norm_topk_prob,
	   "experts in every layer, none of them shared");

	if (!ok(reads_json(llama, NULL), "Llama 3 %s", error.text))
		return;
	ok(c.family == &family_llama && c.n_layers_of[LAYER_ATTENTION] == 16 && c.n_heads == 32 &&
		   c.n_kv_heads == 8 && c.head_dim == 64 && c.rotary_dim == 64 &&
		   c.mlp_size == 8192 && c.tie_word_embeddings && c.n_end_tokens == 3,
	   "sizes");
	ok(!c.qk_norm && !c.qkv_bias && !c.norm_adds_one && !c.attention_gate,
	   "neither norms of queries and keys nor biases");
	ok(c.rope_theta == 500000 && c.rope_scaling == ROPE_LLAMA3 && c.rope_factor == 32 &&
		   c.rope_low_factor == 1 && c.rope_high_factor == 4 &&
		   c.rope_original_context == 8192,
	   "the rotation of Llama 3");
	if (!ok(reads_json(smollm, NULL), "SmolLM2 %s", error.text))
		return;
	ok(c.head_dim == 64 && c.n_heads == 9 && c.n_kv_heads == 3 && c.rope_theta == 1e5 &&
		   c.rope_scaling == ROPE_DEFAULT,
	   "heads of hidden_size / num_attention_heads");
	if (!ok(reads_json(qwen2, NULL), "Qwen2.5 %s", error.text))
		return;
	ok(c.family == &family_qwen2 && c.head_dim == 64 && c.n_kv_heads == 2 && c.qkv_bias &&
		   !c.qk_norm && c.mlp_size == 4864,
	   "biases in place of norms");
	if (!ok(reads_json(gemma3_text, NULL), "Gemma 3 %s", error.text))
		return;
	ok(c.family == &family_gemma3 && c.n_layers_of[LAYER_SLIDING] == 22 &&
		   c.n_layers_of[LAYER_ATTENTION] == 4 && c.layers[4].mixer == LAYER_SLIDING &&
		   c.layers[5].mixer == LAYER_ATTENTION && c.sliding_window == 512,
	   "every sixth layer sees all keys");
	ok(c.rope_theta == 1e6 && c.sliding_theta == 10000 && c.rope_scaling == ROPE_DEFAULT &&
		   c.score_dim == 256 && c.head_dim == 256,
	   "two bases of rotation");
	ok(c.norm_adds_one && c.out_norms && c.qk_norm && c.gelu && c.scaled_embedding &&
		   c.tie_word_embeddings,
	   "four norms, gelu, scaled embeddings, which are the head too");
	if (!ok(reads_json(gemma3, NULL), "Gemma 3, nested %s", error.text))
		return;
	ok(c.n_layers_of[LAYER_ATTENTION] == 10 && c.n_layers_of[LAYER_SLIDING] == 52 &&
		   c.sliding_window == 1024 && c.score_dim == 168 && c.head_dim == 128 &&
		   c.vocab_size == 262208 && c.rope_scaling == ROPE_LINEAR && c.rope_factor == 8 &&
		   c.sliding_theta == 10000 && c.n_end_tokens == 2,
	   "a scale of scores of its own; the long rotation alone is scaled");
}

TEST(defaults)
{
	ok(reads("qwen3_5_text", "") && c.family == &family_qwen3_5 && c.hidden_size == 4096 &&
		   c.n_layers == 32 && c.n_experts == 0 && c.mlp_size == 12288 &&
		   c.n_kv_heads == 4 && c.layers[31].mlp == LAYER_DENSE &&
		   c.shared_expert_size == 0,
	   "missing keys of Qwen3.5 are those of transformers");
	ok(reads("qwen3_next", "") && c.hidden_size == 2048 && c.n_layers == 48 &&
		   c.n_experts == 512 && c.rope_theta == 10000 && c.rotary_dim == 64,
	   "of Qwen3-Next");
	ok(reads("qwen3", "") && c.hidden_size == 4096 && c.n_layers == 32 && c.n_heads == 32 &&
		   c.n_kv_heads == 32 && c.head_dim == 128 && c.mlp_size == 22016 &&
		   c.vocab_size == 151936 && c.max_position_embeddings == 32768 &&
		   c.rope_theta == 10000 && c.rms_norm_eps == 1e-6f && !c.tie_word_embeddings,
	   "of Qwen3");
	ok(reads("qwen3_moe", "") && c.hidden_size == 2048 && c.n_layers == 24 && c.n_heads == 32 &&
		   c.n_kv_heads == 4 && c.head_dim == 64 && c.n_experts == 128 &&
		   c.n_experts_per_token == 8 && c.expert_size == 768 && !c.norm_topk_prob &&
		   c.n_layers_of[LAYER_MOE] == 24,
	   "of Qwen3-MoE, whose heads are hidden_size / num_attention_heads");
	ok(reads("llama", "") && c.hidden_size == 4096 && c.n_layers == 32 && c.n_heads == 32 &&
		   c.n_kv_heads == 32 && c.head_dim == 128 && c.mlp_size == 11008 &&
		   c.vocab_size == 32000 && c.max_position_embeddings == 2048,
	   "of Llama, which has as many key heads as query heads");
	ok(reads("qwen2", "") && c.hidden_size == 4096 && c.n_kv_heads == 32 && c.head_dim == 128 &&
		   c.mlp_size == 22016 && c.vocab_size == 151936,
	   "of Qwen2");
	ok(reads("gemma3_text", "") && c.hidden_size == 2304 && c.n_layers == 26 &&
		   c.n_heads == 8 && c.n_kv_heads == 4 && c.head_dim == 256 && c.mlp_size == 9216 &&
		   c.vocab_size == 262208 && c.sliding_window == 4096 &&
		   c.n_layers_of[LAYER_ATTENTION] == 4 && c.tie_word_embeddings,
	   "of Gemma 3");
	ok(reads("gemma3_text",
		 "'num_hidden_layers':2,'layer_types':['full_attention','sliding_attention'],"
		 "'rope_parameters':{'sliding_attention':{'rope_type':'default','rope_theta':5000},"
		 "'full_attention':{'rope_type':'linear','rope_theta':7000,'factor':2}}") &&
		   c.layers[0].mixer == LAYER_ATTENTION && c.layers[1].mixer == LAYER_SLIDING &&
		   c.rope_theta == 7000 && c.rope_scaling == ROPE_LINEAR && c.sliding_theta == 5000,
	   "keys of rotation by kind of layer");
	ok(reads("gemma3_text", "'num_hidden_layers':3,'sliding_window_pattern':2") &&
		   c.layers[0].mixer == LAYER_SLIDING && c.layers[1].mixer == LAYER_ATTENTION &&
		   c.layers[2].mixer == LAYER_SLIDING,
	   "sliding_window_pattern");
	ok(reads("qwen3", "'rope_scaling':{'type':'linear','factor':4}") &&
		   c.rope_scaling == ROPE_LINEAR && c.rope_factor == 4,
	   "linear scaling, by the older name of the key");
	ok(reads("qwen3_5_moe", "'num_hidden_layers':6") && c.n_layers_of[LAYER_ATTENTION] == 1 &&
		   c.layers[3].mixer == LAYER_ATTENTION,
	   "qwen3_5_moe without text_config is read flat");
	ok(reads("qwen3_5_moe_text", "'tie_word_embeddings':true") && c.tie_word_embeddings,
	   "tied, flat");
	ok(reads_json("{'model_type':'qwen3_5','text_config':{'tie_word_embeddings':true}}",
		      NULL) &&
		   c.tie_word_embeddings,
	   "tied, nested");
	ok(reads_json("{'model_type':'qwen3_5','tie_word_embeddings':true,'text_config':{}}",
		      NULL) &&
		   c.tie_word_embeddings,
	   "tied at the top");
	ok(reads_json("{'model_type':'qwen3_5','tie_word_embeddings':false,"
		      "'text_config':{'tie_word_embeddings':true}}",
		      NULL) &&
		   !c.tie_word_embeddings,
	   "the top decides");
	ok(reads("qwen3_next",
		 "'rope_scaling':{'type':'default','rope_theta':5000,'partial_rotary_factor':1.0},"
		 "'rope_theta':7000") &&
		   c.rope_theta == 5000 && c.rotary_dim == 256,
	   "rope keys in the object go before those beside it");
	ok(reads("qwen3_next", "'head_dim':48,'partial_rotary_factor':0.3") && c.rotary_dim == 14,
	   "the rotary part is cut to a whole number, as in Python");
}

TEST(dense_layers)
{
	ok(reads("qwen3_next",
		 "'num_hidden_layers':6,'mlp_only_layers':[0,5],'intermediate_size':77") &&
		   c.layers[0].mlp == LAYER_DENSE && c.layers[1].mlp == LAYER_MOE &&
		   c.layers[4].mlp == LAYER_MOE && c.layers[5].mlp == LAYER_DENSE &&
		   c.mlp_size == 77 && c.n_experts == 512,
	   "mlp_only_layers");
	ok(reads("qwen3_next", "'num_hidden_layers':4,'decoder_sparse_step':2") &&
		   c.layers[0].mlp == LAYER_DENSE && c.layers[1].mlp == LAYER_MOE &&
		   c.layers[2].mlp == LAYER_DENSE && c.layers[3].mlp == LAYER_MOE,
	   "decoder_sparse_step");
	ok(reads("qwen3_next", "'num_experts':0") && c.layers[0].mlp == LAYER_DENSE &&
		   c.n_experts == 0 && c.n_experts_per_token == 0,
	   "no experts at all");
	ok(reads("qwen3_next", "'num_hidden_layers':2,'mlp_only_layers':[0,1]") &&
		   c.n_experts == 0 && c.mlp_size == 5632,
	   "experts that no layer uses are none");
	ok(reads("qwen3_5_moe_text", "'mlp_only_layers':[0]") && c.layers[0].mlp == LAYER_MOE,
	   "Qwen3.5-MoE does not know mlp_only_layers");
	ok(reads("qwen3_next", "'norm_topk_prob':false") && !c.norm_topk_prob, "norm_topk_prob");
	ok(reads("qwen3_moe",
		 "'num_hidden_layers':4,'decoder_sparse_step':2,'mlp_only_layers':[3]") &&
		   c.layers[1].mlp == LAYER_MOE && c.n_layers_of[LAYER_DENSE] == 3 &&
		   c.mlp_size == 6144,
	   "Qwen3-MoE with dense layers");
	ok(reads("qwen3_moe", "'num_local_experts':9,'shared_expert_intermediate_size':7") &&
		   c.n_experts == 9 && c.shared_expert_size == 0,
	   "num_local_experts; a shared expert is none of its keys");
}

/* clang-format off: a case begins a line. */
static const struct {
	const char *type, *more;
	int code;
	const char *sentence;
} refused[] = {
	{"mamba", "", ENOTSUP,
	 "c: model_type is \"mamba\", but must be qwen3, qwen3_moe, qwen3_5_moe, qwen3_5, qwen3_next, qwen2, llama or gemma3, with or without _text"},
	{"", "", ENOTSUP, "c: model_type is \"\", but must be"},
	{"qwen3_next", "'hidden_size':0", EINVAL, "c: hidden_size is 0, must be 1 to 65536"},
	{"qwen3_next", "'hidden_size':-1", EINVAL, "c: hidden_size is -1, must be 1 to 65536"},
	{"qwen3_next", "'hidden_size':4294967297", EINVAL,
	 "c: hidden_size is 4294967297, must be 1 to 65536"},
	{"qwen3_next", "'hidden_size':2048.0", EINVAL,
	 "c: hidden_size must be a whole number, 1 to 65536"},
	{"qwen3_next", "'hidden_size':'big'", EINVAL,
	 "c: hidden_size must be a whole number, 1 to 65536"},
	{"qwen3_next", "'hidden_size':[1]", EINVAL, "c: hidden_size must be a whole number"},
	{"qwen3_next", "'hidden_size':99999999999999999999", EINVAL, "c: not valid JSON"},
	{"qwen3_next", "'num_hidden_layers':513", EINVAL,
	 "c: num_hidden_layers is 513, must be 1 to 512"},
	{"qwen3_next", "'vocab_size':16777216", EINVAL,
	 "c: vocab_size is 16777216, must be 1 to 16777215"},
	{"qwen3_next", "'max_position_embeddings':0", EINVAL, "c: max_position_embeddings is 0"},
	{"qwen3_next", "'rms_norm_eps':0", EINVAL,
	 "c: rms_norm_eps must be a number of at least 1e-20 and at most 0.1"},
	{"qwen3_next", "'rms_norm_eps':true", EINVAL, "c: rms_norm_eps must be a number"},
	{"qwen3_next", "'hidden_act':'gelu'", ENOTSUP,
	 "c: hidden_act must be \"silu\": nothing else is supported"},
	{"qwen3_next", "'hidden_act':1", ENOTSUP, "c: hidden_act must be \"silu\""},
	{"qwen3_next", "'layer_types':['full_attention']", EINVAL,
	 "c: layer_types must be a list with num_hidden_layers entries"},
	{"qwen3_next", "'layer_types':'full_attention'", EINVAL, "c: layer_types must be a list"},
	{"qwen3_next", "'num_hidden_layers':1,'layer_types':['sliding_attention']", ENOTSUP,
	 "c: layer_types holds something other than linear_attention and full_attention"},
	{"qwen3_next", "'num_hidden_layers':1,'layer_types':[1]", ENOTSUP, "c: layer_types holds"},
	{"qwen3", "'num_hidden_layers':1,'layer_types':['sliding_attention']", ENOTSUP,
	 "c: layer_types holds something other than full_attention"},
	{"qwen3", "'num_hidden_layers':1,'layer_types':['linear_attention']", ENOTSUP,
	 "c: layer_types holds something other than full_attention"},
	{"qwen3_next", "'full_attention_interval':0", EINVAL, "c: full_attention_interval is 0"},
	{"qwen3_next", "'num_attention_heads':3,'num_key_value_heads':2", EINVAL,
	 "c: num_attention_heads must be a multiple of num_key_value_heads"},
	{"qwen3_next", "'num_attention_heads':1,'num_key_value_heads':2", EINVAL,
	 "c: num_attention_heads must be a multiple of num_key_value_heads"},
	{"qwen3_next", "'num_key_value_heads':0", EINVAL, "c: num_key_value_heads is 0"},
	{"qwen3_next", "'head_dim':100", ENOTSUP, "c: head_dim must be a multiple of 16"},
	{"qwen3_moe", "'hidden_size':2080", ENOTSUP,
	 "c: head_dim is missing, and hidden_size / num_attention_heads is no multiple of 16 up to 256"},
	{"qwen3_next", "'head_dim':272", EINVAL, "c: head_dim is 272, must be 16 to 256"},
	{"qwen3_next", "'attention_bias':true", ENOTSUP,
	 "c: attention_bias is true, which is not supported"},
	{"qwen3_next", "'attention_bias':1", EINVAL, "c: attention_bias must be true or false"},
	{"qwen3_next", "'attn_output_gate':false", ENOTSUP,
	 "c: attn_output_gate is false, which is not supported"},
	{"qwen3", "'attn_output_gate':true", ENOTSUP,
	 "c: attn_output_gate is true, which is not supported"},
	{"qwen3", "'attention_bias':true", ENOTSUP,
	 "c: attention_bias is true, which is not supported"},
	{"qwen3", "'use_sliding_window':true", ENOTSUP, "c: use_sliding_window is true"},
	{"qwen3", "'rope_scaling':{'rope_type':'yarn','factor':4}", ENOTSUP,
	 "c: rope_scaling.rope_type must be \"default\", \"linear\" or \"llama3\": nothing else is supported"},
	{"qwen3_next", "'use_sliding_window':true", ENOTSUP, "c: use_sliding_window is true"},
	{"qwen3_next", "'rope_scaling':{'rope_type':'yarn','factor':4}", ENOTSUP,
	 "c: rope_scaling.rope_type must be \"default\", \"linear\" or \"llama3\": nothing else is supported"},
	{"qwen3_next", "'rope_scaling':{'type':'dynamic','factor':4}", ENOTSUP,
	 "c: rope_scaling.type must be \"default\", \"linear\" or \"llama3\""},
	{"llama", "'rope_scaling':{'type':'linear'}", EINVAL, "c: rope_scaling.factor is missing"},
	{"llama", "'rope_scaling':{'rope_type':'llama3','factor':8,'low_freq_factor':1}", EINVAL,
	 "c: rope_scaling.high_freq_factor is missing"},
	{"llama",
	 "'rope_scaling':{'rope_type':'llama3','factor':8,'low_freq_factor':4,'high_freq_factor':4,"
	 "'original_max_position_embeddings':8192}",
	 EINVAL, "c: rope_scaling.high_freq_factor must be above low_freq_factor"},
	{"llama", "'rope_scaling':{'rope_type':'linear','factor':0.5}", EINVAL,
	 "c: rope_scaling.factor must be a number of at least 1"},
	{"llama", "'attention_bias':true", ENOTSUP, "c: attention_bias is true"},
	{"llama", "'mlp_bias':true", ENOTSUP, "c: mlp_bias is true"},
	{"llama", "'hidden_size':80,'num_attention_heads':10", ENOTSUP, "c: head_dim is missing"},
	{"qwen2", "'use_sliding_window':true", ENOTSUP, "c: use_sliding_window is true"},
	{"gemma3_text", "'final_logit_softcapping':30.0", ENOTSUP,
	 "c: final_logit_softcapping is set, which is not supported"},
	{"gemma3_text", "'attn_logit_softcapping':50.0", ENOTSUP,
	 "c: attn_logit_softcapping is set, which is not supported"},
	{"gemma3_text", "'use_bidirectional_attention':true", ENOTSUP,
	 "c: use_bidirectional_attention is true"},
	{"gemma3_text", "'hidden_activation':'silu'", ENOTSUP,
	 "c: hidden_activation must be \"gelu_pytorch_tanh\""},
	{"gemma3_text", "'sliding_window':0", EINVAL, "c: sliding_window is 0"},
	{"gemma3_text", "'query_pre_attn_scalar':0", EINVAL, "c: query_pre_attn_scalar is 0"},
	{"gemma3_text", "'num_hidden_layers':1,'layer_types':['linear_attention']", ENOTSUP,
	 "c: layer_types holds something other than sliding_attention and full_attention"},
	{"gemma3_text", "'rope_parameters':{'sliding_attention':{'rope_type':'linear'}}", ENOTSUP,
	 "c: rope_parameters.sliding_attention.rope_type must be \"default\""},
	{"gemma3_text", "'rope_parameters':{'sliding_attention':{'rope_theta':0}}", EINVAL,
	 "c: rope_parameters.sliding_attention.rope_theta must be a number of at least 1"},
	{"gemma3_text", "'rope_parameters':{'sliding_attention':3}", EINVAL,
	 "c: rope_parameters.sliding_attention must be an object"},
	{"qwen3_next", "'rope_scaling':3", EINVAL, "c: rope_scaling must be an object"},
	{"qwen3_next", "'rope_parameters':[]", EINVAL, "c: rope_parameters must be an object"},
	{"qwen3_next", "'rope_parameters':{'full_attention':{'rope_theta':1e6}}", ENOTSUP,
	 "c: rope_parameters differs between kinds of layers, which is not supported"},
	{"qwen3_next", "'rope_parameters':{'rope_theta':0}", EINVAL,
	 "c: rope_parameters.rope_theta must be a number of at least 1"},
	{"qwen3_next", "'rope_theta':'x'", EINVAL, "c: rope_theta must be a number"},
	{"qwen3_next", "'rope_theta':1e999", EINVAL, "c: not valid JSON"},
	{"qwen3_next", "'partial_rotary_factor':1.5", EINVAL,
	 "c: partial_rotary_factor must be a number above 0 and at most 1"},
	{"qwen3_next", "'head_dim':48,'partial_rotary_factor':0.25,'rope_theta':10", 0, NULL},
	{"qwen3_next", "'head_dim':48,'partial_rotary_factor':0.32", ENOTSUP,
	 "c: partial_rotary_factor times head_dim must be an even number of at least 2"},
	{"qwen3_next", "'partial_rotary_factor':0.001", ENOTSUP,
	 "c: partial_rotary_factor times head_dim must be an even number of at least 2"},
	{"qwen3_next", "'linear_num_key_heads':3,'linear_num_value_heads':4", EINVAL,
	 "c: linear_num_value_heads must be a multiple of linear_num_key_heads"},
	{"qwen3_next", "'linear_num_value_heads':4097", EINVAL,
	 "c: linear_num_value_heads is 4097"},
	{"qwen3_next", "'linear_key_head_dim':24", ENOTSUP,
	 "c: linear_key_head_dim must be a multiple of 16"},
	{"qwen3_next", "'linear_value_head_dim':512", EINVAL, "c: linear_value_head_dim is 512"},
	{"qwen3_next", "'linear_conv_kernel_dim':1", EINVAL,
	 "c: linear_conv_kernel_dim is 1, must be 2 to 8"},
	{"qwen3_next", "'num_experts':4097", EINVAL, "c: num_experts is 4097, must be 0 to 4096"},
	{"qwen3_5_moe_text", "'num_experts':0", EINVAL, "c: num_experts is 0, must be 1 to 4096"},
	{"qwen3_5_moe_text", "'num_experts':4,'num_experts_per_tok':5", EINVAL,
	 "c: num_experts_per_tok is 5, must be 1 to 4"},
	{"qwen3_5_moe_text", "'num_experts':64,'num_experts_per_tok':33", EINVAL,
	 "c: num_experts_per_tok is 33, must be 1 to 32"},
	{"qwen3_5_moe_text", "'num_experts':4", EINVAL,
	 "c: num_experts_per_tok is missing and its default is above num_experts"},
	{"qwen3_5_moe_text", "'moe_intermediate_size':0", EINVAL, "c: moe_intermediate_size is 0"},
	{"qwen3_5_moe_text", "'shared_expert_intermediate_size':0", EINVAL,
	 "c: shared_expert_intermediate_size is 0"},
	{"qwen3_5_moe_text", "'norm_topk_prob':false", ENOTSUP, "c: norm_topk_prob is false"},
	{"qwen3_5_text", "'intermediate_size':0", EINVAL, "c: intermediate_size is 0"},
	{"qwen3_next", "'decoder_sparse_step':0", EINVAL, "c: decoder_sparse_step is 0"},
	{"qwen3_next", "'mlp_only_layers':[48]", EINVAL,
	 "c: mlp_only_layers must be a list of layer numbers"},
	{"qwen3_next", "'mlp_only_layers':[-1]", EINVAL, "c: mlp_only_layers must be"},
	{"qwen3_next", "'mlp_only_layers':{}", EINVAL, "c: mlp_only_layers must be"},
	{"qwen3_next", "'quantization_config':{'quant_method':'bitsandbytes'}", ENOTSUP,
	 "c: quantization_config.quant_method is \"bitsandbytes\", which is not supported"},
	{"qwen3_next", "'quantization_config':{'quant_method':'fp8'}", 0, NULL},
	{"qwen3_next", "'quantization_config':null", 0, NULL},
	{"qwen3_next", "'eos_token_id':151936", EINVAL,
	 "c: eos_token_id must be a token id below vocab_size, or a list of them"},
	{"qwen3_next", "'eos_token_id':[1,'2']", EINVAL, "c: eos_token_id must be"},
	{"qwen3_next", "'eos_token_id':[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", EINVAL,
	 "c: eos_token_id holds more than 16 tokens"},
	{"qwen3_next", "'head_dim':64,'head_dim':128", EINVAL, "c: not valid JSON"},
	{"qwen3_5_moe", "'text_config':3", EINVAL, "c: text_config must be an object"},
	{"qwen3_5_moe", "'text_config':{'num_experts':5000}", EINVAL,
	 "c: text_config.num_experts is 5000, must be 1 to 4096"},
	{"qwen3_5_moe", "'text_config':{'rope_parameters':{'rope_type':'yarn'}}", ENOTSUP,
	 "c: text_config.rope_parameters.rope_type must be \"default\", "},
	{"qwen3_5_moe", "'text_config':{'model_type':'qwen3_next'}", EINVAL,
	 "c: text_config.model_type contradicts the model_type above it"},
	{"qwen3_5_moe", "'text_config':{'model_type':'gemma'}", ENOTSUP,
	 "c: text_config.model_type is \"gemma\", but must be"},
	{"qwen3_5_moe", "'quantization_config':{},'text_config':{}", ENOTSUP,
	 "c: quantization_config.quant_method is missing"},
};
/* clang-format on */

TEST(refused)
{
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		int r = parse_with(refused[i].type, refused[i].more);

		if (!refused[i].sentence) {
			ok(r == 0, "read: %s %s", refused[i].more, error.text);
			continue;
		}
		ok(r == -refused[i].code && error.code == refused[i].code &&
			   !strncmp(error.text, refused[i].sentence, strlen(refused[i].sentence)),
		   "refused: %s %s", refused[i].type, refused[i].more);
		if (strncmp(error.text, refused[i].sentence, strlen(refused[i].sentence)) != 0)
			printf("#   got  %s\n#   want %s\n", error.text, refused[i].sentence);
	}
}

TEST(json)
{
#define FAMILIES_KNOWN \
	"qwen3, qwen3_moe, qwen3_5_moe, qwen3_5, qwen3_next, qwen2, llama or gemma3, with or without _text"
	/* clang-format off: a case begins a line. */
	static const struct {
		const char *json;
		int code;
		const char *sentence, *what;
	} rows[] = {
		{"", -EINVAL, "c: not valid JSON at line 1, column 0", "an empty file"},
		{"[]", -EINVAL, "c: not a JSON object", "a list"},
		{"{} {}", -EINVAL, NULL, "two objects"},
		{"{'model_type':3}", -ENOTSUP, "c: model_type must be " FAMILIES_KNOWN,
		 "a model type that is a number"},
		{"{}", -ENOTSUP, "c: model_type is missing: it must be " FAMILIES_KNOWN,
		 "no model type"},
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		is_int(parse(rows[i].json, NULL), rows[i].code, "%s", rows[i].what);
		if (rows[i].sentence)
			is_str(error.text, rows[i].sentence, "says so");
	}
}

TEST(large)
{
	enum { BYTES = (4 << 20) + 1 };
	char *json = calloc(1, BYTES);

	check(json);
	memset(json, ' ', BYTES);
	is_int(model_config_parse("c", json, BYTES, NULL, 0, &c, &error), -EFBIG,
	       "more than 4 MiB");
	is_int(error.code, EFBIG, "says the sentence too");
	free(json);
}

TEST(generation)
{
	static const char config[] = "{'model_type':'qwen3_next','eos_token_id':7}";

	ok(reads_json(config, "{'eos_token_id':[248,249],'temperature':0.6,'top_p':0.95,'top_k':20,"
			      "'min_p':0.1,'repetition_penalty':1.05,'do_sample':true}") &&
		   c.n_end_tokens == 2 && c.end_tokens[0] == 248 && c.end_tokens[1] == 249,
	   "end tokens of generation_config.json replace those of config.json");
	ok(fabsf(c.default_temperature - 0.6f) < 1e-6f && fabsf(c.default_top_p - 0.95f) < 1e-6f &&
		   c.default_top_k == 20 && fabsf(c.default_min_p - 0.1f) < 1e-6f &&
		   fabsf(c.default_repetition_penalty - 1.05f) < 1e-6f,
	   "sampling defaults");
	ok(reads_json(config, "{'eos_token_id':null,'temperature':null,'top_k':-1}") &&
		   c.n_end_tokens == 1 && c.end_tokens[0] == 7 && c.default_top_k == 0 &&
		   c.default_temperature == 1,
	   "null is absent, a top_k of -1 is none");
	ok(reads_json(config, "{'do_sample':false,'temperature':0.7}") &&
		   fabsf(c.default_temperature - 0.7f) < 1e-6f,
	   "do_sample is not looked at");
	is_int(parse(config, "{'temperature':3}"), -EINVAL, "a temperature of 3");
	is_str(error.text,
	       "generation_config.json: temperature must be a number of at least 0 and at most 2",
	       "says so");
	is_int(parse(config, "{'top_p':0}"), -EINVAL, "a top_p of 0");
	is_int(parse(config, "{'top_k':-2}"), -EINVAL, "a top_k of -2");
	is_int(parse(config, "{'repetition_penalty':0}"), -EINVAL, "a repetition penalty of 0");
	is_int(parse(config, "{'eos_token_id':-1}"), -EINVAL, "a negative end token");
	is_int(parse(config, "nonsense"), -EINVAL, "a generation_config.json that is no JSON");
	is_str(error.text, "generation_config.json: not valid JSON at line 1, column 8", "says so");
}

TEST(files)
{
	struct model_config before;
	struct err e = {0};
	char want[512];

	if (ok(model_config_open("models/lexis", &c, &e) == 0, "lexis %s", e.text))
		ok(c.family == &family_qwen3_5_moe && c.n_layers == 8 &&
			   c.n_layers_of[LAYER_ATTENTION] == 2 && c.hidden_size == 256 &&
			   c.n_experts == 32 && c.n_experts_per_token == 4 && c.rotary_dim == 16 &&
			   c.rope_theta == 10000 && c.tie_word_embeddings && c.n_end_tokens == 1 &&
			   c.end_tokens[0] == 2 && c.n_mtp_layers == 1,
		   "has its numbers");
	memset(&before, 0x55, sizeof(before));
	c = before;
	is_int(model_config_open(scratch_dir, &c, &e), -ENOENT, "no config.json");
	snprintf(want, sizeof(want), "%s/config.json: cannot open: No such file or directory",
		 scratch_dir);
	is_str(e.text, want, "says so");
	check(!memcmp(&c, &before, sizeof(c)));
	ok_all("the result is untouched on failure");
	scratch_write("config.json", quoted(qwen3_5), strlen(qwen3_5));
	ok(model_config_open(scratch_dir, &c, &e) == 0, "a config.json alone %s", e.text);
	scratch_write("generation_config.json", "", 0);
	is_int(model_config_open(scratch_dir, &c, &e), -EINVAL, "an empty generation_config.json");
	is_int(model_config_open("/nonexistent", &c, &e), -ENOENT, "no directory");
}

TEST_MAIN()
