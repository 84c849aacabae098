/* From a parsed body to requests of the scheduler: prompts as token ids, lengths that fit, end tokens, seeds. */
#include <assert.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/problem.h"
#include "daemon/request/text.h"
#include "daemon/request/turns.h"
#include "engine/store/key.h"
#include "protocol/ollama/models.h"
#include "protocol/openai/open_message.h"

#define TOO_SLOW "a pattern of the model's tokenizer takes too long for this text"

enum {
	CHOICES_MAX = 1024,
	/* The most tokens of a prompt of which the end is kept: 4 MiB of ids. */
	CUT_MAX = 1 << 20,
	/* The most prompt tokens with log-probabilities in one answer. A token counts once for each choice, because
	 * each choice lists it. With 20 other tokens beside each one an answer may have 700 MB. */
	SCORED_MAX = 1 << 19,
};

static int given_up(struct err *e)
{
	return err_set(e, ECANCELED, "nobody waits for the answer any more");
}

static bool gives_up(void *arg)
{
	const struct call *c = arg;

	if (c->text.polite)
		polite_pause(c->text.polite);
	return atomic_load_explicit(&c->aborted, memory_order_relaxed);
}

/* As gives_up, while the body is parsed: only then can the work begin anew. */
static bool gives_up_parsing(void *arg)
{
	return gives_up(arg) || text_too_long(arg);
}

static struct pace parse_pace(struct call *c)
{
	return (struct pace){gives_up_parsing, c};
}

struct pace prepare_pace(const struct call *c)
{
	return (struct pace){gives_up, (struct call *)c};
}

int prepare_encode(const struct call *c, const char *text, size_t len, bool add_special,
		   size_t max_ids, struct ids *out, struct err *e)
{
	const struct tokenizer *t = c->server->tokenizer;
	const struct pace pace = prepare_pace(c);
	const struct tokenizer_bounds bounds = {.ids = max_ids, .pace = &pace};
	int r = add_special ? tokenizer_encode_whole(t, text, len, &bounds, out)
			    : tokenizer_encode(t, text, len, true, &bounds, out);

	switch (r) {
	case 0:
	case -EOVERFLOW: return r;
	case -ECANCELED: return given_up(e);
	case -E2BIG: return err_set(e, EINVAL, TOO_SLOW);
	default: return err_no_memory(e);
	}
}

int prepare_model(const struct server *s, const char *name, struct err *e)
{
	const struct option_names *names = &s->options.served_model_name;

	if (!name || names->any || ollama_same_name(name, s->base_name))
		return 0;
	for (size_t i = 0; i < names->n; i++)
		if (ollama_same_name(name, names->v[i]))
			return 0;
	/* Clients of Ollama look for "not found". */
	return err_param(e, PROBLEM_UNKNOWN_MODEL, "model",
			 "model '%.100s' not found; this server has '%s'", name, s->name);
}

/* Returns the name of the first function in the messages whose arguments are text: they are not the JSON of an object,
 * as in a call that was cut. Borrowed; NULL: there is none. */
static const char *call_with_text(const json_t *context)
{
	const json_t *messages = json_object_get(context, "messages");

	for (size_t i = 0; i < json_array_size(messages); i++) {
		const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");

		for (size_t k = 0; k < json_array_size(calls); k++) {
			const json_t *function =
				json_object_get(json_array_get(calls, k), "function");

			if (json_is_string(json_object_get(function, "arguments")))
				return json_string_value(json_object_get(function, "name"));
		}
	}
	return NULL;
}

int prepare_render(const struct call *c, const json_t *context, struct buf *out, struct err *e)
{
	const struct template *t = c->server->template;
	const struct pace pace = prepare_pace(c);
	const char *name;
	int r;

	if (!t)
		return err_set(e, EINVAL, "this model has no chat template; use /v1/completions");
	r = template_render(t, context, &pace, out, e);
	if (r == -EBADMSG || r == -E2BIG)
		e->code = PROBLEM_TEMPLATE;
	/* Some templates go over the members of the arguments, which text has not. */
	name = r == -EBADMSG || r == -EINVAL ? call_with_text(context) : NULL;
	if (name)
		err_prefix(e, "the arguments of a call of \"%.100s\" are not the JSON of an object",
			   name);
	return r < 0 ? -e->code : open_message_cut(context, out, e);
}

int prepare_chat_prompt(const struct call *c, const json_t *context, const char *prefill,
			size_t prefill_len, size_t max_ids, struct ids *out, struct err *e)
{
	struct buf text;
	int r;

	buf_init(&text, SIZE_MAX / 2);
	r = prepare_render(c, context, &text, e);
	buf_append(&text, prefill, prefill_len);
	if (!r && text.failed)
		r = err_no_memory(e);
	if (!r)
		r = prepare_encode(c, buf_str(&text), text.len, false, max_ids, out, e);
	buf_release(&text);
	return r;
}

/* Makes *out the ids of a prompt. If the client gave them, they are moved there. */
static int encode_prompt(const struct call *c, struct openai_prompt *p, bool add_special,
			 size_t max_ids, struct ids *out, struct err *e)
{
	if (p->text)
		return prepare_encode(c, p->text, p->text_len, add_special, max_ids, out, e);
	*out = p->ids;
	p->ids = (struct ids){0};
	return 0;
}

/* Appends the ids of the text behind a prompt, and of the text between (TASK_SCORE). *ret_first: number of ids before
 * those of the text behind; 0: the prompt has none, so nothing was appended. */
static int encode_behind(const struct call *c, const struct openai_prompt *p, size_t max_ids,
			 struct ids *out, uint32_t *ret_first, struct err *e)
{
	const char *between = c->text.ask.score.between;
	int r = 0;

	*ret_first = 0;
	if (!out->len)
		return 0;
	if (between)
		r = prepare_encode(c, between, strlen(between), false, max_ids, out, e);
	*ret_first = (uint32_t)out->len;
	return r ? r : prepare_encode(c, p->behind, p->behind_len, false, max_ids, out, e);
}

/* Returns the most KV pages that a request of n choices can have: all pages, or, if --cache-memory is given in bytes,
 * as many of them as fit into these bytes beside the request's n states. */
static uint64_t pages_beside(const struct server *s, uint64_t n)
{
	const struct engine_info *i = &s->info;
	uint64_t bytes = s->options.cache_memory.bytes, states = n * i->slot_bytes;

	if (!bytes || !i->page_bytes)
		return i->n_pages;
	return bytes > states ? MIN((uint64_t)i->n_pages, (bytes - states) / i->page_bytes) : 0;
}

/* Returns the most tokens that each of n choices can generate after n_prompt tokens if no other request has a page. The
 * choices share whole pages of the prompt; each other page belongs to a single choice. */
static uint64_t pool_fit(const struct server *s, uint64_t n_prompt, uint64_t n)
{
	uint64_t page = s->options.page_size, shared = n_prompt / page, end;
	uint64_t n_pages = pages_beside(s, n);

	if (shared >= n_pages)
		return 0;
	end = (shared + (n_pages - shared) / n) * page;
	return end > n_prompt ? end - n_prompt : 0;
}

/* Returns how many tokens must fit behind a prompt: at least one, or none if nothing is drawn. */
static uint32_t least_room(const struct call *c)
{
	const bool clamp = c->server->options.clamp_max_tokens || c->text.ask.clamp;

	if (c->text.ask.prompt_only)
		return 0;
	return clamp ? 1 : MAX(c->text.ask.max_tokens, 1u);
}

/* The names of a part's prompt for errors: of the parameter at fault, and in a sentence, such as "the messages",
 * "input[3]" or "text_1 and text_2[1] together". */
struct names {
	char param[ERR_PARAM_MAX], text[2 * ERR_PARAM_MAX + 16];
};

/* behind: of a pair, the text behind is at fault. */
static struct names names_of(const struct call *c, uint32_t i, bool behind)
{
	const struct openai_request *ask = &c->text.ask;
	char first[ERR_PARAM_MAX], second[ERR_PARAM_MAX];
	struct names n;

	openai_prompt_name(ask, i, behind, n.param);
	if (ask->task == TASK_SCORE) {
		openai_prompt_name(ask, i, false, first);
		openai_prompt_name(ask, i, true, second);
		snprintf(n.text, sizeof(n.text), "%s and %s together", first, second);
	} else {
		snprintf(n.text, sizeof(n.text), "%s%s", ask->n_listed ? "" : "the ", n.param);
	}
	return n;
}

/* Returns whether a part's prompt, or a text of a pair, has no tokens. ret: its name. */
static bool is_empty(const struct call *c, uint32_t i, char ret[ERR_PARAM_MAX])
{
	const struct call_part *p = &c->text.parts[i];
	const bool pair = c->text.ask.task == TASK_SCORE;

	openai_prompt_name(&c->text.ask, i, pair && p->first_score, ret);
	return pair ? !p->first_score || p->first_score == p->prompt.len : !p->prompt.len;
}

/* Checks that the prompt and the tokens to generate fit, and sets p->max_tokens: as requested, or as many as fit if the
 * request has no number. With --clamp-max-tokens, or if the request says so (clamp), a prompt fits if there is room for
 * one token behind it, and p->max_tokens is at most as many as fit. If nothing is drawn, a prompt may take all places,
 * and p->max_tokens is 0. */
static int fit_part(struct call *c, uint32_t i, struct err *e)
{
	const struct server *s = c->server;
	const struct openai_request *ask = &c->text.ask;
	struct call_part *p = &c->text.parts[i];
	const struct names names =
		names_of(c, i, p->first_score && p->prompt.len > 2 * (size_t)p->first_score);
	char empty[ERR_PARAM_MAX];
	const uint32_t n_choices = ask->prompt_only ? 1 : c->text.n;
	unsigned long long n = p->prompt.len, context = s->info.max_model_len, room;
	unsigned long long more = least_room(c);
	unsigned long long places = pages_beside(s, n_choices) * s->options.page_size;

	if (is_empty(c, i, empty))
		return err_param(e, EINVAL, empty, "%s: there is nothing to go on from: no tokens",
				 empty);
	if (n > context && !more)
		return err_param(e, PROBLEM_CONTEXT_LENGTH, names.param,
				 "this server's context is %llu tokens, and %llu are in %s",
				 context, n, names.text);
	if (n > context || more > context - n)
		return err_param(e, PROBLEM_CONTEXT_LENGTH, names.param,
				 "this server's context is %llu tokens, but %llu were asked for: "
				 "%llu in %s, %llu to generate",
				 context, n + more, n, names.text, more);
	if (n > places && !more)
		return err_param(e, PROBLEM_CONTEXT_LENGTH, names.param,
				 "the KV cache holds %llu tokens, too few for %llu in %s", places,
				 n, names.text);
	room = MIN(context - n, (unsigned long long)pool_fit(s, n, n_choices));
	if (more > room)
		return err_param(e, PROBLEM_CONTEXT_LENGTH, names.param,
				 "the KV cache holds %llu tokens, too few for %llu in %s and "
				 "%llu to generate in each of %u choices",
				 places, n, names.text, more, n_choices);
	if (ask->prompt_only)
		room = 0;
	p->max_tokens =
		(uint32_t)(ask->max_tokens ? MIN((unsigned long long)ask->max_tokens, room) : room);
	return 0;
}

static int draw_seed(uint64_t *ret, struct err *e)
{
	if (getrandom(ret, sizeof(*ret), 0) != (ssize_t)sizeof(*ret))
		return err_set(e, EIO, "cannot draw a seed");
	return 0;
}

static int collect_end_tokens(struct call *c, struct err *e)
{
	const struct model_config *m = &c->server->info.model;
	const struct ids *stops = &c->text.ask.stop_token_ids;
	/* The model's end tokens end an answer with a constraint always: there they may only be drawn where the text
	 * may end (steering.h). */
	bool ends = !c->text.ask.ignore_eos || c->text.ask.grammar;
	size_t n_model = ends ? m->n_end_tokens : 0, n = n_model + stops->len;
	int32_t *ids = arena_array(&c->text.arena, MAX(n, (size_t)1), sizeof(*ids));

	if (!ids)
		return err_no_memory(e);
	c->text.end_tokens = ids;
	c->text.n_model_ends = (uint32_t)n_model;
	c->text.n_end_tokens = (uint32_t)n;
	for (size_t i = 0; i < n; i++)
		ids[i] = i < n_model ? m->end_tokens[i] : stops->v[i - n_model];
	return 0;
}

/* Sets the call's space: a hash of its cache_salt, or zeros without one. */
static int hash_salt(struct call *c, struct err *e)
{
	unsigned char digest[32];

	if (!c->text.ask.cache_salt)
		return 0;
	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, c->text.ask.cache_salt, c->text.ask.cache_salt_len,
			     digest) < 0)
		return err_set(e, PROBLEM_INTERNAL, "cannot hash the cache_salt");
	static_assert(sizeof(c->text.space.id) <= sizeof(digest), "a digest fills a space");
	memcpy(c->text.space.id, digest, sizeof(c->text.space.id));
	return 0;
}

/* Computes the keys of the space and of the prompt's pages, if there is a cache below the device and the request uses
 * the cache. Otherwise does nothing. */
static int name_pages(struct call *c, struct call_part *p, struct err *e)
{
	uint32_t P = (uint32_t)c->server->options.page_size, n = (uint32_t)p->prompt.len;

	if (!options_want_tiers(&c->server->options) || !c->text.ask.cache_prompt)
		return 0;
	p->page_keys = arena_array(&c->text.arena, MAX(n / P, 1u), sizeof(*p->page_keys));
	if (!p->page_keys)
		return err_no_memory(e);
	if (content_key_root(c->text.space.id, &p->root_key) < 0 ||
	    content_key_chain(&p->root_key, p->prompt.v, n, P, p->page_keys) < 0)
		return err_set(e, PROBLEM_INTERNAL, "cannot hash the prompt");
	return 0;
}

static int find_turns(struct call *c, struct call_part *p, struct err *e)
{
	const struct model_config *m = &c->server->info.model;
	int32_t ends[MODEL_END_TOKENS_MAX + 1];
	uint32_t found[TURNS_MAX], n = m->n_end_tokens;

	memcpy(ends, m->end_tokens, n * sizeof(*ends));
	if (c->server->turn_token >= 0)
		ends[n++] = c->server->turn_token;
	n = turns_find(p->prompt.v, p->prompt.len, ends, n, found);
	p->boundaries = arena_array(&c->text.arena, MAX(n, 1u), sizeof(*p->boundaries));
	if (!p->boundaries)
		return err_no_memory(e);
	memcpy(p->boundaries, found, n * sizeof(*found));
	p->n_boundaries = n;
	return 0;
}

/* Makes a boundary before the last token of the prompt that the text behind it follows: further texts may be scored
 * behind the prompt, and the first score of each needs that token computed. */
static int end_condition(struct call *c, struct call_part *p, struct err *e)
{
	p->boundaries = arena_array(&c->text.arena, 1, sizeof(*p->boundaries));
	if (!p->boundaries)
		return err_no_memory(e);
	p->boundaries[0] = p->first_score - 1;
	p->n_boundaries = 1;
	return 0;
}

static int make_vector(struct call *c, struct call_part *p, struct err *e)
{
	p->vector =
		arena_array(&c->text.arena, c->server->info.model.hidden_size, sizeof(*p->vector));
	return p->vector ? 0 : err_no_memory(e);
}

/* Makes the text of an echoed prompt, in the arena. It is the client's text, or, if the client gave ids, the text of
 * these without special tokens. If there is a client's text, lets prompt->text point to this copy of it. */
static int make_echo(struct call *c, struct openai_prompt *prompt, struct call_part *p,
		     struct err *e)
{
	const struct tokenizer *t = c->server->tokenizer;
	struct buf text;

	buf_init(&text, SIZE_MAX / 2);
	for (size_t i = 0; !prompt->text && i < p->prompt.len; i++) {
		size_t len;
		const char *bytes = tokenizer_bytes(t, p->prompt.v[i], &len);

		if (!tokenizer_is_special(t, p->prompt.v[i]))
			buf_append(&text, bytes, len);
	}
	p->echo_len = prompt->text ? prompt->text_len : text.len;
	if (!text.failed)
		p->echo = arena_strndup(&c->text.arena,
					prompt->text ? prompt->text : buf_str(&text), p->echo_len);
	buf_release(&text);
	if (prompt->text)
		prompt->text = p->echo;
	return p->echo ? 0 : err_no_memory(e);
}

/* Returns how many of the last tokens of each prompt are kept; SIZE_MAX: all, also if not even one of them would
 * fit. */
static size_t kept_tokens(const struct call *c)
{
	const int32_t keep = c->text.ask.keep_tokens;
	const uint32_t context = c->server->info.max_model_len, room = least_room(c);

	if (keep == KEEP_FITTING)
		return room < context ? context - room : SIZE_MAX;
	return keep ? (size_t)keep : SIZE_MAX;
}

/* Makes the ids of part i. */
static int encode_part(struct call *c, uint32_t i, struct err *e)
{
	const struct openai_request *ask = &c->text.ask;
	struct call_part *p = &c->text.parts[i];
	struct ids *out = &p->prompt;
	/* A prompt of at most twice the context is tokenized to its end, so that the error can say its length. One of
	 * which the end is kept is tokenized whole: where its last tokens begin depends on all text before them. */
	const size_t keep = kept_tokens(c), context = c->server->info.max_model_len,
		     most = keep == SIZE_MAX ? 2 * context : MAX(2 * context, (size_t)CUT_MAX);
	struct names names;
	int r;

	if (ask->context)
		r = prepare_chat_prompt(c, ask->context, ask->prefill, ask->prefill_len, most, out,
					e);
	else
		r = encode_prompt(c, &ask->prompts[i], ask->add_special_tokens, most, out, e);
	if (!r && ask->task == TASK_SCORE)
		r = encode_behind(c, &ask->prompts[i], most, out, &p->first_score, e);
	/* The first text of a pair is encoded if it is known where the second one begins. */
	names = names_of(c, i, p->first_score);
	if (r == -EOVERFLOW && keep < SIZE_MAX)
		return err_param(
			e, PROBLEM_CONTEXT_LENGTH, names.param,
			"more than %zu tokens are in %s, too many to keep the last ones of", most,
			names.text);
	if (r == -EOVERFLOW)
		return err_param(e, PROBLEM_CONTEXT_LENGTH, names.param,
				 "this server's context is %zu tokens, and more than %zu are in %s",
				 context, most, names.text);
	if (r == -EINVAL && !ask->context)
		return err_param(e, EINVAL, names.param, TOO_SLOW ": %s", names.param);
	if (r == 0 && out->len > keep) {
		ids_keep_last(out, keep);
		/* The client's text is longer than the prompt now, so an echo is made of the ids. */
		if (!ask->context)
			ask->prompts[i].text = NULL;
	}
	return r;
}

struct part_of {
	struct call *c;
	uint32_t i;
};

/* Makes the ids of a part, and the number of tokens to generate. An openai_fits. */
static int fit_messages(void *arg, struct err *e)
{
	const struct part_of *of = arg;
	int r;

	of->c->text.parts[of->i].prompt.len = 0;
	r = encode_part(of->c, of->i, e);
	return r < 0 ? r : fit_part(of->c, of->i, e);
}

/* Fills part i: the prompt's ids, the number of tokens to generate, the ends of turns, the keys of pages, the
 * echo, and the seed. */
static int make_part(struct call *c, uint32_t i, struct err *e)
{
	const struct openai_request *ask = &c->text.ask;
	struct call_part *p = &c->text.parts[i];
	struct part_of of = {c, i};
	int r = ask->truncate ? openai_truncate(ask->context, fit_messages, &of, e)
			      : fit_messages(&of, e);

	if (!r)
		r = ask->task == TASK_SCORE ? end_condition(c, p, e) : find_turns(c, p, e);
	if (!r && ask->task == TASK_EMBED)
		r = make_vector(c, p, e);
	if (!r)
		r = name_pages(c, p, e);
	if (!r && ask->echo)
		r = make_echo(c, &ask->prompts[i], p, e);
	p->seed = ask->sampling.seed;
	if (!r && !ask->has_seed)
		r = draw_seed(&p->seed, e);
	p->n_prompt = (uint32_t)p->prompt.len;
	c->text.n_prompt += p->n_prompt;
	return r;
}

/* Counts the memory of the call's prompts in the queue, as far as they are made. */
static int queue_memory(struct call *c, struct err *e)
{
	const uint64_t max = call_queue_room(c->server, QUEUE_BYTES);
	/* The scheduler copies the ids, and those of the call may be freed then. */
	uint64_t copies = call_shows_ids(c) ? 2 : 1;
	uint64_t bytes = c->text.arena.used + c->text.n_prompt * copies * sizeof(int32_t);

	if (bytes > max)
		return err_param(e, EINVAL, c->text.ask.source,
				 "the prompts take %" PRIu64
				 " bytes of memory, and at most %" PRIu64
				 " may wait at the same time",
				 bytes, max);
	return call_queue(c, QUEUE_BYTES, bytes - atomic_load(&c->queued[QUEUE_BYTES]), e);
}

static int make_parts(struct call *c, struct err *e)
{
	const struct openai_request *ask = &c->text.ask;
	size_t n_parts = ask->context ? 1 : ask->n_prompts;
	const uint64_t memory = c->server->options.answer_memory;
	uint64_t n_scored, bytes;
	uint32_t n_top;
	int r = 0;

	if (ask->task == TASK_GENERATE && (uint64_t)n_parts * ask->best_of > CHOICES_MAX)
		return err_param(e, EINVAL, ask->best_of > ask->n ? "best_of" : "n",
				 "%zu prompts with %u choices each are more than %d answers",
				 n_parts, ask->best_of, CHOICES_MAX);
	c->text.n = ask->best_of;
	n_scored = openai_wants_scores(ask, &n_top) ? ask->n : 0;
	c->text.n_choices = (uint32_t)n_parts * c->text.n;
	c->text.parts = arena_array(&c->text.arena, n_parts, sizeof(*c->text.parts));
	c->text.choices = arena_array(&c->text.arena, c->text.n_choices, sizeof(*c->text.choices));
	c->shared.stop_wanted =
		arena_array(&c->text.arena, c->text.n_choices, sizeof(*c->shared.stop_wanted));
	if (!c->text.parts || !c->text.choices || !c->shared.stop_wanted)
		return err_no_memory(e);
	for (c->text.n_parts = 0; !r && c->text.n_parts < n_parts;) {
		r = make_part(c, c->text.n_parts++, e);
		if (!r)
			r = queue_memory(c, e);
	}
	if (!r && c->text.n_prompt * n_scored > SCORED_MAX)
		return err_param(e, EINVAL, ask->source,
				 "%u tokens in all prompts are too many for their "
				 "log-probabilities: times the choices, %u, they may be %d",
				 c->text.n_prompt, ask->n, SCORED_MAX);
	bytes = n_scored ? (uint64_t)c->text.n_prompt * openai_tokens_size(n_top) : 0;
	if (!r && bytes > memory)
		return err_param(e, EINVAL, ask->source,
				 "the log-probabilities of %u prompt tokens take %" PRIu64
				 " bytes, and answers may take %" PRIu64 " (--answer-memory)",
				 c->text.n_prompt, bytes, memory);
	return r;
}

/* Makes of a parsed body all that the engine thread needs. */
static int prepare_draws(struct call *c, struct err *e)
{
	int r = hash_salt(c, e);

	if (!r)
		r = make_parts(c, e);
	if (!r)
		r = collect_end_tokens(c, e);
	return r < 0 ? r : prepare_steering(c, e);
}

struct openai_limits prepare_limits(struct call *c)
{
	struct openai_limits limits = c->server->limits;

	limits.tools = c->server->tools;
	limits.recall = c->endpoint->recall;
	limits.recall_arg = c;
	return limits;
}

int prepare_count(struct call *c,
		  int (*parse)(const char *body, size_t len, const struct pace *pace,
			       const struct openai_limits *limits, struct arena *arena,
			       struct openai_request *ret, struct err *e),
		  size_t *ret, struct err *e)
{
	const struct openai_limits limits = prepare_limits(c);
	const struct pace pace = parse_pace(c);
	struct openai_request ask;
	struct ids ids = {0};
	int r = parse(buf_str(&c->text.body), c->text.body.len, &pace, &limits, &c->text.arena,
		      &ask, e);

	if (r < 0)
		return r;
	r = prepare_model(c->server, ask.model, e);
	if (!r)
		r = prepare_chat_prompt(c, ask.context, ask.prefill, ask.prefill_len, SIZE_MAX,
					&ids, e);
	if (!r)
		*ret = ids.len;
	ids_release(&ids);
	openai_request_release(&ask);
	return r;
}

int prepare_call(struct call *c, struct err *e)
{
	const struct openai_limits limits = prepare_limits(c);
	const char *body = buf_str(&c->text.body);
	const struct pace pace = parse_pace(c);
	int r;

	r = c->endpoint->parse(body, c->text.body.len, &pace, &limits, &c->text.arena, &c->text.ask,
			       e);
	if (r < 0)
		return r;
	c->text.asked = true;
	if (c->text.ask.billing)
		atomic_fetch_add(&c->server->metrics.billing_lines, 1);
	r = prepare_model(c->server, c->text.ask.model, e);
	if (!r && !c->text.ask.errand)
		r = prepare_draws(c, e);
	/* Frees the messages (ask.context) and the prompts' texts now, because they can take many times the memory of
	 * their ids. The rest of `ask` stays, with copies of echoed texts (make_echo). */
	openai_request_release(&c->text.ask);
	return r;
}
