#include "daemon/cli/simulate/workload.h"

#include <assert.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/heap.h"
#include "base/macros.h"
#include "base/mix.h"
#include "daemon/cli/simulate/lines.h"

#define AT_MAX 1e9 /* latest time of a request, in seconds: thirty years */

struct trace_request {
	struct sim_request r;
	int32_t *prompt; /* owned */
};

struct session {
	int32_t *tokens; /* owned; all turns and answers so far */
	uint32_t n_tokens, room;
	uint32_t n_turns, turn;
	uint64_t number;
};

/* The time at which a user sends the next request. workload.wakes is a heap of such times, ordered by (time, user). */
struct wake {
	double at;
	uint32_t user;
};

struct workload {
	/* a trace */
	struct trace_request *requests; /* [n_requests] by time */
	size_t n_requests, next;
	/* agentic */
	struct agentic_options o;
	struct session *users; /* [o.users] */
	struct wake *wakes;    /* [n_wakes] heap */
	size_t n_wakes;
	uint64_t begun; /* sessions that have begun */
	/* either kind */
	uint32_t longest; /* workload_longest */
};

static int32_t made_up(uint64_t seed, uint32_t k)
{
	return (int32_t)(mix64(seed * MIX_GOLDEN + k) % SIM_VOCAB);
}

int32_t workload_token(uint64_t tag, uint32_t k)
{
	return made_up(~tag, k);
}

/* ---- traces ---- */

static int add_piece(const json_t *v, int32_t **tokens, uint32_t *n)
{
	json_int_t seed, count;
	int32_t *grown;

	if (json_is_integer(v)) {
		seed = json_integer_value(v);
		count = 1;
		if (seed < 0 || seed >= SIM_VOCAB)
			return -EINVAL;
	} else {
		seed = json_integer_value(json_object_get(v, "seed"));
		count = json_integer_value(json_object_get(v, "tokens"));
	}
	if (count < 1 || count > (1 << 24) - *n)
		return -EINVAL;
	grown = realloc(*tokens, (*n + (size_t)count) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	*tokens = grown;
	for (uint32_t i = 0; i < (uint32_t)count; i++)
		grown[(*n)++] = json_is_integer(v) ? (int32_t)seed : made_up((uint64_t)seed, i);
	return 0;
}

/* Makes the space of a salt. A text has the space that tigond gives to the same cache_salt; each whole number has a
 * space of its own. */
static int read_salt(const json_t *v, struct prefix_space *ret, struct err *e)
{
	unsigned char digest[32];

	if (json_is_integer(v)) {
		uint64_t salt = (uint64_t)json_integer_value(v);

		ret->id[0] = salt;
		ret->id[1] = salt != 0;
		return 0;
	}
	if (!json_is_string(v) || !json_string_length(v))
		return err_set(e, EINVAL, "\"salt\" is neither a text nor a whole number");
	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, json_string_value(v), json_string_length(v),
			     digest) < 0)
		return err_set(e, EFAULT, "cannot hash \"salt\"");
	static_assert(sizeof(ret->id) <= sizeof(digest), "a digest fills a space");
	memcpy(ret->id, digest, sizeof(ret->id));
	return 0;
}

static int read_priority(const json_t *v, int32_t *ret, struct err *e)
{
	json_int_t n = json_integer_value(v);

	if (!json_is_integer(v) || n < INT32_MIN || n > INT32_MAX)
		return err_set(e, EINVAL, "\"priority\" is not a whole number from %d to %d",
			       INT32_MIN, INT32_MAX);
	*ret = (int32_t)n;
	return 0;
}

/* Reads one line. Some errors leave *e without a sentence; then the caller says that the line is no request. */
static int read_request(const json_t *line, struct trace_request *q, struct err *e)
{
	const json_t *priority = json_object_get(line, "priority"),
		     *salt = json_object_get(line, "salt");
	const json_t *prompt = json_object_get(line, "prompt"), *at = json_object_get(line, "at"),
		     *v;
	const json_t *output = json_object_get(line, "output"),
		     *bounds = json_object_get(line, "boundaries");
	json_int_t n_output;
	size_t i;
	int r;

	if (!json_is_number(at) || !json_is_array(prompt) || !json_array_size(prompt))
		return -EINVAL;
	q->r.at = json_number_value(at);
	if (!(q->r.at >= 0 && q->r.at <= AT_MAX))
		return err_set(e, EINVAL, "\"at\" is not between 0 and %.0f seconds", AT_MAX);
	n_output = output ? json_integer_value(output) : 16;
	if (n_output < 1 || n_output > 1 << 24)
		return -EINVAL;
	q->r.n_output = (uint32_t)n_output;
	r = priority ? read_priority(priority, &q->r.priority, e) : 0;
	if (r == 0 && salt)
		r = read_salt(salt, &q->r.space, e);
	if (r < 0)
		return r;
	json_array_foreach(prompt, i, v)
	{
		r = add_piece(v, &q->prompt, &q->r.n_prompt);
		if (r < 0)
			return r;
	}
	json_array_foreach(bounds, i, v)
	{
		json_int_t b = json_integer_value(v);

		if (b < 1 || b > q->r.n_prompt || i == SIM_BOUNDARIES_MAX ||
		    (i && b <= q->r.boundaries[i - 1]))
			return -EINVAL;
		q->r.boundaries[q->r.n_boundaries++] = (uint32_t)b;
	}
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct trace_request *x = a, *y = b;

	if (x->r.at != y->r.at)
		return x->r.at < y->r.at ? -1 : 1;
	return x->r.tag < y->r.tag ? -1 : x->r.tag > y->r.tag;
}

static int read_lines(struct workload *w, struct lines *l, struct err *e)
{
	int r;

	while ((r = lines_next(l, e)) > 0) {
		struct err why = {0};
		struct trace_request *grown;
		json_t *line;

		if (buf_str(&l->text)[strspn(buf_str(&l->text), " \t\r")] == 0)
			continue;
		grown = realloc(w->requests, (w->n_requests + 1) * sizeof(*grown));
		if (!grown)
			return err_no_memory(e);
		w->requests = grown;
		grown[w->n_requests] = (struct trace_request){.r.tag = w->n_requests};
		line = json_loadb(buf_str(&l->text), l->text.len, JSON_REJECT_DUPLICATES, NULL);
		r = read_request(line, &grown[w->n_requests++], &why);
		json_decref(line);
		if (r == -ENOMEM)
			err_no_memory(&why);
		if (r < 0)
			return err_set(e, -r, "%s, line %lu: %s", l->path, l->number,
				       why.code ? why.text
						: "not a request of a trace (man tigon)");
	}
	return r;
}

int workload_open_trace(const char *path, struct workload **ret, struct err *e)
{
	struct workload *w;
	struct lines l;
	int r = lines_open(&l, path, e);

	if (r < 0)
		return r;
	w = calloc(1, sizeof(*w));
	r = w ? read_lines(w, &l, e) : err_no_memory(e);
	lines_close(&l);
	if (r == 0 && !w->n_requests)
		r = err_set(e, EINVAL, "%s has no requests", path);
	if (r < 0) {
		workload_free(w);
		return r;
	}
	qsort(w->requests, w->n_requests, sizeof(*w->requests), by_time);
	for (size_t i = 0; i < w->n_requests; i++) {
		struct trace_request *q = &w->requests[i];

		q->r.prompt = q->prompt;
		w->longest = MAX(w->longest, q->r.n_prompt + q->r.n_output);
	}
	*ret = w;
	return 0;
}

/* ---- agentic ---- */

/* Returns the k-th random number of a session, in [0, 1). It does not depend on the order in which sessions run. */
static double draw_unit(const struct workload *w, uint64_t session, uint32_t k)
{
	uint64_t seed = mix64(w->o.seed + MIX_GOLDEN) + session;

	return (double)(mix64(mix64(seed) + k) >> 11) / (double)(UINT64_C(1) << 53);
}

static double think(const struct workload *w, const struct session *s)
{
	return -log(1 - draw_unit(w, s->number, 1 + s->turn)) * w->o.think_s;
}

static bool earlier(const void *a, const void *b)
{
	const struct wake *x = a, *y = b;

	return x->at != y->at ? x->at < y->at : x->user < y->user;
}

static const struct heap_kind wake_heap = {.size = sizeof(struct wake), .before = earlier};

/* Notes when a user sends the next request. The heap has room, because each user has one wake at most. */
static void wake_at(struct workload *w, double at, uint32_t user)
{
	heap_add(&wake_heap, w->wakes, w->n_wakes++, &(struct wake){at, user});
}

static int append(struct session *s, uint64_t seed, uint32_t n)
{
	if (!array_grow(s->tokens, s->room, s->n_tokens + n))
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		s->tokens[s->n_tokens++] = made_up(seed, i);
	return 0;
}

static void begin_session(struct workload *w, uint32_t user, double at)
{
	struct session *s = &w->users[user];

	if (w->begun == w->o.sessions)
		return;
	s->number = ++w->begun;
	s->n_tokens = s->turn = 0;
	s->n_turns = w->o.min_turns +
		     (uint32_t)(draw_unit(w, s->number, 0) * (w->o.max_turns - w->o.min_turns + 1));
	wake_at(w, at, user);
}

int workload_new_agentic(const struct agentic_options *o, struct workload **ret, struct err *e)
{
	struct workload *w;
	uint64_t longest =
		o->first_tokens + (uint64_t)o->max_turns * (o->turn_tokens + o->output_tokens);

	if (longest > 1 << 24)
		return err_set(e, EINVAL,
			       "sessions of up to %llu tokens are too long: %d are the most",
			       (unsigned long long)longest, 1 << 24);
	w = calloc(1, sizeof(*w));
	if (w) {
		w->users = calloc(o->users, sizeof(*w->users));
		w->wakes = calloc(o->users, sizeof(*w->wakes));
	}
	if (!w || !w->users || !w->wakes) {
		workload_free(w);
		return err_no_memory(e);
	}
	w->o = *o;
	w->longest = (uint32_t)longest;
	/* Users begin at random times from 0 to max_turns * think_s, which is about the time that a long session waits
	 * between its turns. */
	for (uint32_t i = 0; i < o->users; i++)
		begin_session(w, i, draw_unit(w, 0, i) * o->think_s * o->max_turns);
	*ret = w;
	return 0;
}

static int next_turn(struct workload *w, struct sim_request *ret)
{
	struct wake k = w->wakes[0];
	struct session *s = &w->users[k.user];
	int r;

	heap_take(&wake_heap, w->wakes, w->n_wakes--, 0);
	if (s->turn == 0) {
		r = append(s, 1, MIN(w->o.system_tokens, w->o.first_tokens));
		if (r == 0)
			r = append(s, 2 * s->number + w->o.seed, w->o.first_tokens - s->n_tokens);
	} else {
		r = append(s, (2 * s->number + 1) << 8 | s->turn, w->o.turn_tokens);
	}
	*ret = (struct sim_request){
		.at = k.at,
		.prompt = s->tokens,
		.n_prompt = s->n_tokens,
		.n_output = w->o.output_tokens,
		.tag = s->number << 32 | k.user,
	};
	if (w->o.system_tokens && w->o.system_tokens < s->n_tokens)
		ret->boundaries[ret->n_boundaries++] = w->o.system_tokens;
	return r;
}

/* ---- either kind ---- */

void workload_free(struct workload *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->n_requests; i++)
		free(w->requests[i].prompt);
	for (uint32_t i = 0; w->users && i < w->o.users; i++)
		free(w->users[i].tokens);
	free(w->requests);
	free(w->users);
	free(w->wakes);
	free(w);
}

bool workload_peek(const struct workload *w, double *ret_at)
{
	if (w->next < w->n_requests) {
		*ret_at = w->requests[w->next].r.at;
		return true;
	}
	if (!w->n_wakes)
		return false;
	*ret_at = w->wakes[0].at;
	return true;
}

int workload_next(struct workload *w, struct sim_request *ret)
{
	if (w->users)
		return next_turn(w, ret);
	*ret = w->requests[w->next++].r;
	return 0;
}

int workload_done(struct workload *w, uint64_t tag, double now, const int32_t *output,
		  uint32_t n_output)
{
	uint32_t user = (uint32_t)tag;
	struct session *s;

	if (!w->users)
		return 0;
	s = &w->users[user];
	if (append(s, 0, n_output) < 0)
		return -ENOMEM;
	memcpy(s->tokens + s->n_tokens - n_output, output, n_output * sizeof(*output));
	if (++s->turn < s->n_turns)
		wake_at(w, now + think(w, s), user);
	else
		begin_session(w, user, now + think(w, s));
	return 0;
}

uint32_t workload_longest(const struct workload *w)
{
	return w->longest;
}
