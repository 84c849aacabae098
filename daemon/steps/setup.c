#include "daemon/steps/setup.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "engine/store/key.h"

/* Makes the system_fingerprint. While it stays the same, a client may expect the same answer to the same request and
 * seed. It is a hash of the program's version, the model's name (the weights are not hashed), the device and its
 * driver, the kernels, their cuts that change bits, the types of elements and of the KV cache, and the seed of synthetic
 * weights. */
static void take_fingerprint(struct server *s)
{
	const struct options *o = &s->options;
	struct hash128 h = HASH128_INIT;
	char hex[33];

	hash128_text(&h, TIGON_VERSION);
	hash128_text(&h, s->base_name);
	hash128_text(&h, s->info.device_name);
	hash128_text(&h, s->info.driver);
	hash128_text(&h, s->info.kernels);
	if (s->info.other_bits[0])
		hash128_text(&h, s->info.other_bits);
	hash128_update(&h, &o->dtype, sizeof(o->dtype));
	hash128_update(&h, &o->kv_dtype, sizeof(o->kv_dtype));
	if (o->synthetic)
		hash128_update(&h, &o->synthetic_seed, sizeof(o->synthetic_seed));
	hash128_hex(&h, hex);
	snprintf(s->fingerprint, sizeof(s->fingerprint), "fp_%.16s", hex);
}

int setup_engine(struct server *s, struct engine **ret, uint64_t *ret_ns, struct err *e)
{
	const struct options *o = &s->options;
	const struct engine_options eo = {
		.model_dir = o->model,
		.device = o->device,
		.program_cache = o->program_cache,
		.dump_activations = o->dump_activations,
		.dtype = (enum engine_dtype)o->dtype,
		.kv_dtype = (enum engine_kv_dtype)o->kv_dtype,
		.kernels = (enum engine_kernels)o->kernels,
		.copy_queue = (enum engine_copy_queue)o->copy_queue,
		.device_memory = o->device_memory.bytes,
		.device_memory_share = o->device_memory.share,
		.cache_memory = o->cache_memory.bytes,
		.cache_memory_share = o->cache_memory.share,
		.page_tokens = (uint32_t)o->page_size,
		.max_seqs = (uint32_t)o->max_num_seqs,
		.fewer_seqs = !o->fixed_seqs,
		.max_prefill_tokens = (uint32_t)o->max_batched_tokens,
		.max_model_len = (uint32_t)o->max_model_len,
		.synthetic = o->synthetic,
		.synthetic_seed = o->synthetic_seed,
		.tuning = {.table = s->tuning, .any_bits = o->batch_invariant == OPTION_OFF},
	};
	const struct model_config *m = &s->info.model;
	int r;

	*ret_ns = clock_read_ns(CLOCK_REALTIME);
	r = engine_open(&eo, ret, e);
	if (r < 0)
		return r;
	s->info = *engine_info(*ret);
	take_fingerprint(s);
	s->limits = (struct openai_limits){
		.vocab_size = m->vocab_size,
		.max_model_len = s->info.max_model_len,
		.hidden_size = m->hidden_size,
		.pooling = (enum pooling)(o->pooling + 1),
		.max_choices = s->info.max_seqs,
		.template_arguments = s->template_arguments,
		.defaults = {.temperature = m->default_temperature,
			     .top_p = m->default_top_p,
			     .min_p = m->default_min_p,
			     .top_k = m->default_top_k,
			     .repetition_penalty = m->default_repetition_penalty},
	};
	return 0;
}

/* Computes keys for the scheduler (scheduler_config.content_key), which cannot handle an error. content_key_next is not
 * expected to fail now, because the keys of the request's prompt could be made. If it fails all the same, the key is
 * all zeros, and no request finds an item with this key. */
static void next_key(const struct content_key *before, const int32_t *tokens, uint32_t n,
		     struct content_key *ret)
{
	if (content_key_next(before, tokens, n, ret) < 0)
		*ret = (struct content_key){0};
}

struct scheduler_config setup_scheduler(const struct server *s)
{
	const struct options *o = &s->options;
	const struct engine_info *i = &s->info;

	return (struct scheduler_config){
		.page_tokens = (uint32_t)o->page_size,
		.state_tokens = i->slot_bytes ? (uint32_t)o->page_size : 0,
		.n_pages = i->n_pages,
		.n_slots = i->slot_bytes ? i->n_slots : 0,
		.page_bytes = i->page_bytes,
		.slot_bytes = i->slot_bytes,
		.cache_bytes = o->cache_memory.bytes,
		.cache_disabled = o->prefix_cache == OPTION_OFF,
		.refuse_decoded = o->cache_decoded == OPTION_OFF,
		/* The requests of clients are bounded by the daemon's queue and by struct live. */
		.max_waiting = o->role == ROLE_PREFILL ? (uint32_t)o->max_queued_requests : 0,
		.max_plans_out = ENGINE_STEPS_OUT,
		.max_seqs = i->max_seqs,
		.max_prefill_tokens = (uint32_t)o->max_batched_tokens,
		.max_model_len = i->max_model_len,
		.vocab_size = i->model.vocab_size,
		.handoff_min_tokens = (uint32_t)o->disaggregation_min_tokens,
		.content_key = options_want_tiers(o) ? next_key : NULL,
	};
}
