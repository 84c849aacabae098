/* Reads the parameters that say how tokens are drawn, how many, and when to stop, and checks their ranges. */
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/word.h"

/* Lower temperatures count as 0: their draws would be greedy in effect, and logits divided by them could become
 * infinite. */
#define TEMPERATURE_MIN 1e-5

static const struct range {
	const char *name;
	size_t offset; /* offset of a float in struct sampling */
	double min, max;
	bool above_min; /* the minimum itself is not allowed */
} ranges[] = {
	{"temperature", offsetof(struct sampling, temperature), 0, 2, false},
	{"top_p", offsetof(struct sampling, top_p), 0, 1, true},
	{"min_p", offsetof(struct sampling, min_p), 0, 1, false},
	{"presence_penalty", offsetof(struct sampling, presence_penalty), -2, 2, false},
	{"frequency_penalty", offsetof(struct sampling, frequency_penalty), -2, 2, false},
	/* logits are divided or multiplied by this penalty; the range is wider than useful, but keeps logits finite */
	{"repetition_penalty", offsetof(struct sampling, repetition_penalty), 0.01, 100, false},
};

static int parse_ranges(const json_t *body, struct sampling *s, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		const struct range *range = &ranges[i];
		float *out = (float *)((char *)s + range->offset);
		double v = (double)*out;
		char want[64];
		int r;

		if (!field_get(body, range->name))
			continue;
		r = field_number(body, "", range->name, range->min, range->max, &v, e);
		if (r < 0)
			return r;
		if (range->above_min && v <= range->min) {
			snprintf(want, sizeof(want), "a number above %g and at most %g", range->min,
				 range->max);
			return field_wrong(e, "", range->name, field_get(body, range->name), want);
		}
		*out = (float)v;
		if (range->above_min && *out < FLT_MIN)
			*out = FLT_MIN;
	}
	if ((double)s->temperature < TEMPERATURE_MIN)
		s->temperature = 0;
	return 0;
}

/* Reads prompt_logprobs. vLLM also accepts -1, which lists the whole vocabulary; this server refuses -1, because of the
 * size of the answer. */
static int parse_prompt_logprobs(const json_t *body, struct openai_request *r, struct err *e)
{
	int64_t top = 0;
	int ret = field_int(body, "", "prompt_logprobs", 0, TOP_LOGPROBS_MAX, &top, e);

	if (ret < 0 || !field_get(body, "prompt_logprobs"))
		return ret;
	if (r->stream)
		return err_param(e, PROBLEM_UNSUPPORTED, "prompt_logprobs",
				 "prompt_logprobs is not supported when stream is true");
	r->prompt_logprobs = true;
	r->n_prompt_logprobs = (uint32_t)top;
	return 0;
}

static int parse_stops(const json_t *body, const char *member, struct arena *arena,
		       struct openai_request *r, struct err *e)
{
	const json_t *stop = field_get(body, member);
	bool one = json_is_string(stop);
	size_t n = one ? 1 : json_array_size(stop);

	if (!stop)
		return 0;
	if (!one && !json_is_array(stop))
		return field_wrong(e, "", member, stop, "a string or an array of up to 64 strings");
	if (n > STOPS_MAX)
		return err_param(e, EINVAL, member, "%s has %zu strings, but may have at most %d",
				 member, n, STOPS_MAX);
	for (size_t i = 0; i < n; i++) {
		const json_t *v = one ? stop : json_array_get(stop, i);
		char name[ERR_PARAM_MAX];

		field_path(name, one ? "%s" : "%s[%zu]", member, i);
		if (!json_is_string(v) || !json_string_length(v))
			return field_wrong(e, "", name, v, "a string that is not empty");
		if (!word_of(v))
			return err_param(e, EINVAL, name, "%s has a NUL, which is not supported",
					 name);
		if (json_string_length(v) > STOP_BYTES_MAX)
			return err_param(e, EINVAL, name,
					 "%s has %zu bytes, but may have at most %d", name,
					 json_string_length(v), STOP_BYTES_MAX);
		r->stops[i] = arena_strndup(arena, json_string_value(v), json_string_length(v));
		if (!r->stops[i])
			return err_no_memory(e);
	}
	r->n_stops = n;
	return 0;
}

static int parse_lengths(const json_t *body, const struct request_kind *kind,
			 struct openai_request *r, struct err *e)
{
	int64_t max_tokens = 0, min_tokens = 0;
	int ret;

	ret = field_int(body, "", "max_tokens", kind->least_tokens, INT32_MAX, &max_tokens, e);
	if (ret == 0 && kind->max_tokens)
		ret = field_int(body, "", kind->max_tokens, kind->least_tokens, INT32_MAX,
				&max_tokens, e);
	if (ret == 0)
		ret = field_int(body, "", "min_tokens", 0, INT32_MAX, &min_tokens, e);
	if (ret < 0)
		return ret;
	if (max_tokens && min_tokens > max_tokens)
		return err_param(e, EINVAL, "min_tokens",
				 "min_tokens is %" PRId64
				 ", but may be at most max_tokens, %" PRId64,
				 min_tokens, max_tokens);
	r->max_tokens = (uint32_t)max_tokens;
	r->min_tokens = (uint32_t)min_tokens;
	return field_bool(body, "", "ignore_eos", &r->ignore_eos, e);
}

/* Reads n and best_of. */
static int parse_choices(const json_t *body, const struct request_kind *kind,
			 const struct openai_limits *limits, struct openai_request *r,
			 struct err *e)
{
	int64_t n = 1, best_of;
	int ret;

	ret = field_int(body, "", "n", 1, limits->max_choices, &n, e);
	if (ret < 0)
		return ret;
	r->n = (uint32_t)n;
	best_of = n;
	ret = field_int(body, "", "best_of", 1, limits->max_choices, &best_of, e);
	if (ret < 0)
		return ret;
	if (best_of < n)
		return err_param(e, EINVAL, "best_of",
				 "best_of is %" PRId64 ", but must be at least n, %" PRId64,
				 best_of, n);
	if (best_of > n && !kind->best_of)
		return err_param(e, PROBLEM_UNSUPPORTED, "best_of",
				 "best_of above n is not supported but in completions");
	if (best_of > n && r->stream)
		return err_param(e, EINVAL, "best_of",
				 "best_of is %" PRId64 ", but must be equal to n, %" PRId64
				 ", when stream is true",
				 best_of, n);
	r->best_of = (uint32_t)best_of;
	return 0;
}

static int parse_seed(const json_t *body, struct openai_request *r, struct err *e)
{
	int64_t seed = 0;
	int ret = field_int(body, "", "seed", INT64_MIN, INT64_MAX, &seed, e);

	r->has_seed = field_get(body, "seed") != NULL;
	r->sampling.seed = (uint64_t)seed;
	return ret;
}

/* Reads top_k. 0 and -1 both mean that all tokens may be drawn. */
static int parse_top_k(const json_t *body, struct sampling *s, struct err *e)
{
	int64_t top_k = s->top_k;
	int ret = field_int(body, "", "top_k", -1, INT32_MAX, &top_k, e);

	s->top_k = top_k < 0 ? 0 : (int32_t)top_k;
	return ret;
}

static int compare_biases(const void *x, const void *y)
{
	const struct plan_bias *a = x, *b = y;

	return (a->token > b->token) - (a->token < b->token);
}

/* Reads a token id that is the name of a member; -1: it is none of the vocabulary. */
static int64_t named_token(const char *name, uint32_t vocab)
{
	uint64_t id = 0;

	if (!*name || strlen(name) > 10)
		return -1;
	for (; *name; name++) {
		if (*name < '0' || *name > '9')
			return -1;
		id = id * 10 + (uint64_t)(*name - '0');
	}
	return id < vocab ? (int64_t)id : -1;
}

/* Reads logit_bias, an object with a bias for each token. */
static int parse_biases(const json_t *body, uint32_t vocab, struct arena *arena,
			struct openai_request *r, struct err *e)
{
	json_t *map = field_get(body, "logit_bias"), *v;
	const char *name;
	int ret;

	if (!map)
		return 0;
	if (!json_is_object(map))
		return field_wrong(e, "", "logit_bias", map, "an object of token ids and biases");
	if (json_object_size(map) > PLAN_BIASES_MAX)
		return err_param(e, EINVAL, "logit_bias",
				 "logit_bias has %zu tokens, but may have at most %d",
				 json_object_size(map), PLAN_BIASES_MAX);
	r->biases = arena_array(arena, json_object_size(map), sizeof(*r->biases));
	if (!r->biases)
		return err_no_memory(e);
	json_object_foreach(map, name, v)
	{
		int64_t id = named_token(name, vocab);
		double value = 0;

		if (id < 0)
			return err_param(
				e, EINVAL, "logit_bias",
				"logit_bias has the name \"%.20s\", but names must be token "
				"ids of the vocabulary, from 0 to %" PRIu32,
				name, vocab ? vocab - 1 : 0);
		ret = field_number(map, "logit_bias.", name, -BIAS_MAX, BIAS_MAX, &value, e);
		if (ret < 0)
			return ret;
		r->biases[r->n_biases++] =
			(struct plan_bias){.token = (int32_t)id, .value = (float)value};
	}
	if (r->n_biases)
		qsort(r->biases, r->n_biases, sizeof(*r->biases), compare_biases);
	/* "7" and "07" name the same token. */
	for (uint32_t i = 1; i < r->n_biases; i++)
		if (r->biases[i].token == r->biases[i - 1].token)
			return err_param(e, EINVAL, "logit_bias", "logit_bias has token %d twice",
					 r->biases[i].token);
	return 0;
}

static int parse_bad_words(const json_t *body, struct arena *arena, struct openai_request *r,
			   struct err *e)
{
	const json_t *list = field_get(body, "bad_words");
	size_t n = json_array_size(list);

	if (!list)
		return 0;
	if (!json_is_array(list))
		return field_wrong(e, "", "bad_words", list, "an array of strings");
	if (n > BAD_WORDS_MAX)
		return err_param(e, EINVAL, "bad_words",
				 "bad_words has %zu strings, but may have at most %d", n,
				 BAD_WORDS_MAX);
	r->bad_words = arena_array(arena, n, sizeof(*r->bad_words));
	if (!r->bad_words)
		return err_no_memory(e);
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, i);
		struct openai_word *w = &r->bad_words[i];
		char name[32];

		snprintf(name, sizeof(name), "bad_words[%zu]", i);
		if (!json_is_string(v) || !json_string_length(v))
			return field_wrong(e, "", name, v, "a string that is not empty");
		w->len = json_string_length(v);
		if (w->len > BAD_WORD_BYTES_MAX)
			return err_param(e, EINVAL, name,
					 "%s has %zu bytes, but may have at most %d", name, w->len,
					 BAD_WORD_BYTES_MAX);
		w->text = arena_strndup(arena, json_string_value(v), w->len);
		if (!w->text)
			return err_no_memory(e);
	}
	r->n_bad_words = n;
	return 0;
}

static int parse_allowed(const json_t *body, uint32_t vocab, struct openai_request *r,
			 struct err *e)
{
	const json_t *ids = field_get(body, "allowed_token_ids");

	if (!ids)
		return 0;
	if (json_is_array(ids) && !json_array_size(ids))
		return err_param(e, EINVAL, "allowed_token_ids",
				 "allowed_token_ids is empty, but must have at least one token id");
	return field_ids(ids, "allowed_token_ids", vocab, vocab, &r->allowed, e);
}

int sampling_parse(const json_t *body, const struct request_kind *kind,
		   const struct openai_limits *limits, struct arena *arena,
		   struct openai_request *r, struct err *e)
{
	const json_t *ids = field_get(body, "stop_token_ids");
	int ret;

	r->sampling = limits->defaults;
	r->sampling.want_logprobs = false;
	r->sampling.n_logprobs = 0;
	ret = parse_ranges(body, &r->sampling, e);
	if (ret == 0)
		ret = parse_top_k(body, &r->sampling, e);
	if (ret == 0)
		ret = parse_seed(body, r, e);
	if (ret == 0)
		ret = parse_choices(body, kind, limits, r, e);
	if (ret == 0)
		ret = parse_lengths(body, kind, r, e);
	if (ret == 0)
		ret = kind->logprobs(body, r, e);
	if (ret == 0)
		ret = parse_prompt_logprobs(body, r, e);
	if (ret == 0)
		ret = parse_stops(body, kind->stop, arena, r, e);
	if (ret == 0)
		ret = field_bool(body, "", "include_stop_str_in_output", &r->include_stop, e);
	if (ret == 0 && ids)
		ret = field_ids(ids, "stop_token_ids", limits->vocab_size, STOP_TOKEN_IDS_MAX,
				&r->stop_token_ids, e);
	if (ret == 0)
		ret = parse_biases(body, limits->vocab_size, arena, r, e);
	if (ret == 0)
		ret = parse_allowed(body, limits->vocab_size, r, e);
	return ret < 0 ? ret : parse_bad_words(body, arena, r, e);
}
