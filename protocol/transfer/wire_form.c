/* The fields of each message as a table, and the checks that the ranges of single fields cannot express. */
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "protocol/transfer/wire_form.h"

/* The sizes in FORMAT.md. */
_Static_assert(sizeof(struct wire_layer) == 28, "a layer");
_Static_assert(sizeof(struct wire_run) == 24, "a run");
_Static_assert(sizeof(struct wire_draw) == 176, "a draw");
_Static_assert(sizeof(struct wire_peer) == 256, "a peer");
_Static_assert(sizeof(struct wire_bias) == sizeof(struct plan_bias), "a bias");
_Static_assert((int)WIRE_BIASES_MAX == (int)PLAN_BIASES_MAX, "as many as a draw may have");

/* The lowest temperature above 0. Logits that are divided by a much smaller temperature could become infinite. */
#define TEMPERATURE_MIN 1e-6f

/* ---- fields ---- */

#define AT(m)	offsetof(struct wire_message, m)
#define SIZE(m) sizeof(((struct wire_message *)0)->m)
#define RAW_(s, f)                                                            \
	{                                                                     \
		.name = #f, .kind = RAW, .offset = AT(s.f), .size = SIZE(s.f) \
	}
#define INT_(s, f, min_, max_)                                                                \
	{                                                                                     \
		.name = #f, .kind = INT, .offset = AT(s.f), .size = SIZE(s.f), .min = (min_), \
		.max = (max_)                                                                 \
	}
#define REAL_(s, f, low_, high_)                                                               \
	{                                                                                      \
		.name = #f, .kind = REAL, .offset = AT(s.f), .size = SIZE(s.f), .low = (low_), \
		.high = (high_)                                                                \
	}
#define ARRAY_(s, f, n, min_, max_)                                                                \
	{                                                                                          \
		.name = #n, .kind = ARRAY, .offset = AT(s.f),                                      \
		.size = sizeof(*((struct wire_message *)0)->s.f), .count = AT(s.n), .min = (min_), \
		.max = (max_)                                                                      \
	}

static const struct field hello_fields[] = {
	RAW_(hello, worker),
	RAW_(hello, model),
	INT_(hello, role, WIRE_PREFILL, WIRE_DECODE),
	RAW_(hello, n_pages),
	RAW_(hello, n_slots),
	INT_(hello, layout.page_tokens, 1, WIRE_PAGE_TOKENS_MAX),
	RAW_(hello, layout.page_bytes),
	RAW_(hello, layout.slot_bytes),
	INT_(hello, heartbeat_ms, 1, WIRE_HEARTBEAT_MAX),
	ARRAY_(hello, layout.layers, layout.n_layers, 1, WIRE_LAYERS_MAX),
	{0},
};

static const struct field refuse_fields[] = {
	INT_(refuse, code, 1, INT32_MAX),
	ARRAY_(refuse, text, n_text, 1, WIRE_TEXT_MAX),
	{0},
};

static const struct field prepare_fields[] = {
	RAW_(prepare, n_have),
	INT_(prepare, n_choices, 1, WIRE_CHOICES_MAX),
	RAW_(prepare, min_tokens),
	RAW_(prepare, priority),
	RAW_(prepare, space),
	RAW_(prepare, sampling.seed),
	REAL_(prepare, sampling.temperature, 0, 1e6f),
	REAL_(prepare, sampling.top_p, FLT_MIN, 1),
	REAL_(prepare, sampling.min_p, 0, 1),
	INT_(prepare, sampling.top_k, 0, INT32_MAX),
	REAL_(prepare, sampling.presence_penalty, -100, 100),
	REAL_(prepare, sampling.frequency_penalty, -100, 100),
	REAL_(prepare, sampling.repetition_penalty, 0.001f, 1000),
	INT_(prepare, sampling.n_logprobs, 0, TOP_LOGPROBS_MAX),
	INT_(prepare, sampling.want_logprobs, 0, 1),
	INT_(prepare, cache_disabled, 0, 1),
	ARRAY_(prepare, tokens, n_tokens, 1, WIRE_TOKENS_MAX),
	ARRAY_(prepare, end_tokens, n_end_tokens, 0, WIRE_END_TOKENS_MAX),
	ARRAY_(prepare, boundaries, n_boundaries, 0, WIRE_BOUNDARIES_MAX),
	ARRAY_(prepare, allowed, n_allowed, 0, WIRE_MASK_MAX),
	ARRAY_(prepare, biases, n_biases, 0, WIRE_BIASES_MAX),
	{0},
};

static const struct field window_fields[] = {
	RAW_(window, sequence),
	INT_(window, first_token, 0, WIRE_TOKENS_MAX),
	INT_(window, n_tokens, 0, WIRE_TOKENS_MAX),
	INT_(window, first_layer, 0, WIRE_LAYERS_MAX - 1),
	INT_(window, n_layers, 1, WIRE_LAYERS_MAX),
	ARRAY_(window, runs, n_runs, 1, WIRE_RUNS_MAX),
	{0},
};

static const struct field status_fields[] = {
	INT_(status, status, DELIVERY_BOOTSTRAPPING, DELIVERY_FAILED),
	INT_(status, code, 0, INT32_MAX),
	INT_(status, n_cached, 0, WIRE_TOKENS_MAX),
	RAW_(status, n_windows),
	RAW_(status, total_bytes),
	ARRAY_(status, draws, n_draws, 0, WIRE_CHOICES_MAX),
	ARRAY_(status, text, n_text, 0, WIRE_TEXT_MAX),
	{0},
};

static const struct field abort_fields[] = {{0}};

static const struct field ping_fields[] = {
	RAW_(ping, sequence),
	{0},
};

static const struct field pong_fields[] = {
	RAW_(pong, sequence),
	RAW_(pong, queued_tokens),
	RAW_(pong, running),
	INT_(pong, draining, 0, 1),
	INT_(pong, forgotten, 0, 1),
	ARRAY_(pong, keys, n_keys, 0, WIRE_KEYS_MAX),
	{0},
};

static const struct field announce_fields[] = {
	INT_(announce, role, WIRE_PREFILL, WIRE_DECODE),
	RAW_(announce, ttl_ms),
	RAW_(announce, peer),
	{0},
};

static const struct field list_fields[] = {
	INT_(list, role, WIRE_PREFILL, WIRE_DECODE),
	RAW_(list, model),
	{0},
};

static const struct field peers_fields[] = {
	ARRAY_(peers, peers, n_peers, 0, WIRE_PEERS_MAX),
	{0},
};

/* ---- checks. wire_parse and wire_encode put the message's name before the sentences of these functions ---- */

/* Checks a layer, and adds the bytes that it has in a page and in a state to *page and *state. */
static int check_layer(const struct wire_layer *layer, uint32_t number, uint64_t *page,
		       uint64_t *state, struct err *e)
{
	uint32_t n = 0;

	for (; n < WIRE_PARTS && layer->part_bytes[n]; n++) {
		uint64_t bytes = layer->part_bytes[n];

		if (bytes > WIRE_PART_BYTES_MAX)
			return err_set(e, EBADMSG,
				       "part %u of layer %u has %" PRIu64 " bytes, more than 2^36",
				       n, number, bytes);
		*(wire_in_state(layer, n) ? state : page) += bytes;
	}
	for (uint32_t i = n; i < WIRE_PARTS; i++)
		if (layer->part_bytes[i])
			return err_set(e, EBADMSG, "layer %u has part %u, but no part %u", number,
				       i, n);
	if (layer->in_states >> n)
		return err_set(e, EBADMSG, "layer %u has %u parts, but states of more", number, n);
	return 0;
}

/* Checks the layers and the sums of their bytes. The sums cannot overflow, because there are at most 1024 layers, each
 * of less than 2^38 bytes. */
static int check_hello(const struct wire_message *m, struct err *e)
{
	const struct wire_layout *l = &m->hello.layout;
	uint64_t page = 0, state = 0;

	for (uint32_t i = 0; i < l->n_layers; i++) {
		int r = check_layer(&l->layers[i], i, &page, &state, e);

		if (r < 0)
			return r;
	}
	if (l->page_bytes != page)
		return err_set(e, EBADMSG,
			       "a page has %" PRIu64 " bytes, but its layers have %" PRIu64,
			       l->page_bytes, page);
	if (l->slot_bytes != state)
		return err_set(e, EBADMSG,
			       "a state has %" PRIu64 " bytes, but its layers have %" PRIu64,
			       l->slot_bytes, state);
	return 0;
}

static int check_ids(const char *name, const struct wire_i32 *ids, uint32_t n, struct err *e)
{
	for (uint32_t i = 0; i < n; i++)
		if (ids[i].v < 0)
			return err_set(e, EBADMSG, "%s[%u] is %d", name, i, ids[i].v);
	return 0;
}

static int check_prepare(const struct wire_message *m, struct err *e)
{
	const struct wire_prepare *p = &m->prepare;
	uint32_t before = 0;
	int r;

	if (p->n_have >= p->n_tokens)
		return err_set(e, EBADMSG, "of %u tokens %u are there already", p->n_tokens,
			       p->n_have);
	if (p->sampling.temperature != 0 && p->sampling.temperature < TEMPERATURE_MIN)
		return err_set(e, EBADMSG, "a temperature of %g is too small",
			       (double)p->sampling.temperature);
	r = check_ids("tokens", p->tokens, p->n_tokens, e);
	if (r == 0)
		r = check_ids("end_tokens", p->end_tokens, p->n_end_tokens, e);
	for (uint32_t i = 0; r == 0 && i < p->n_boundaries; i++) {
		if (p->boundaries[i].v <= before || p->boundaries[i].v > p->n_tokens)
			r = err_set(e, EBADMSG, "boundaries[%u] is %u, behind %u, of %u tokens", i,
				    p->boundaries[i].v, before, p->n_tokens);
		before = p->boundaries[i].v;
	}
	for (uint32_t i = 0; r == 0 && i < p->n_biases; i++) {
		int32_t token = p->biases[i].token;
		float value = p->biases[i].value;

		if (token < 0 || (i && token <= p->biases[i - 1].token) || !isfinite(value))
			r = err_set(
				e, EBADMSG,
				"biases[%u] is of token %d, and not rising, or it is not finite", i,
				token);
	}
	return r;
}

static int check_window(const struct wire_message *m, struct err *e)
{
	const struct wire_window *w = &m->window;

	if (w->n_layers > WIRE_LAYERS_MAX - w->first_layer)
		return err_set(e, EBADMSG, "%u layers from %u on are too many", w->n_layers,
			       w->first_layer);
	for (uint32_t i = 0; i < w->n_runs; i++) {
		const struct wire_run *p = &w->runs[i];

		if (p->part >= WIRE_PARTS)
			return err_set(e, EBADMSG, "run %u has part %u, which is unknown", i,
				       p->part);
		if (p->layer < w->first_layer || p->layer - w->first_layer >= w->n_layers)
			return err_set(e, EBADMSG, "run %u is of layer %u, not of %u to %u", i,
				       p->layer, w->first_layer, w->first_layer + w->n_layers - 1);
		if (!p->n || p->n > WIRE_TOKENS_MAX || p->first > WIRE_TOKENS_MAX - p->n)
			return err_set(e, EBADMSG, "run %u has %u pages from %u on", i, p->n,
				       p->first);
		/* with this limit the sum of all runs cannot overflow */
		if (!p->bytes || p->bytes > (uint64_t)1 << 46)
			return err_set(e, EBADMSG, "run %u has %" PRIu64 " bytes", i, p->bytes);
	}
	return 0;
}

static int check_draw(const struct draw_result *d, uint32_t i, struct err *e)
{
	bool bad = d->token < 0 || d->n_top > TOP_LOGPROBS_MAX || isnan(d->logprob);

	for (uint32_t k = 0; !bad && k < d->n_top; k++)
		bad = d->top_ids[k] < 0 || isnan(d->top_logprobs[k]);
	if (bad)
		return err_set(e, EBADMSG, "draw %u has no token or no probability", i);
	/* Only a scored token of a prompt (plan.h) has a rank. By this the decode worker tells it from a drawn
	 * token. */
	if (d->rank)
		return err_set(e, EBADMSG, "draw %u has rank %u, as only a scored token has", i,
			       d->rank);
	return 0;
}

static int check_status(const struct wire_message *m, struct err *e)
{
	const struct wire_status *s = &m->status;
	bool failed = s->status == DELIVERY_FAILED, success = s->status == DELIVERY_SUCCESS;
	bool drawn = success || s->status == DELIVERY_TRANSFERRING;

	if (failed != (s->code != 0) || failed != (s->n_text != 0))
		return err_set(e, EBADMSG, "status %s has code %u and a sentence of %u bytes",
			       delivery_status_name(s->status), s->code, s->n_text);
	if (!success && (s->n_windows || s->total_bytes))
		return err_set(e, EBADMSG, "status %s counts WINDOWs",
			       delivery_status_name(s->status));
	if (!drawn && s->n_draws)
		return err_set(e, EBADMSG, "status %s has %u draws",
			       delivery_status_name(s->status), s->n_draws);
	for (uint32_t i = 0; i < s->n_draws; i++) {
		struct draw_result d = s->draws[i].v;
		int r = check_draw(&d, i, e);

		if (r < 0)
			return r;
	}
	return 0;
}

/* Checks that an endpoint is printable text without blanks that ends inside the array, and that zeros follow it. */
static int check_peer(const struct wire_peer *p, struct err *e)
{
	size_t n = strnlen(p->endpoint, sizeof(p->endpoint));
	bool bad = !n || n == sizeof(p->endpoint);

	for (size_t i = 0; !bad && i < sizeof(p->endpoint); i++)
		bad = i < n ? p->endpoint[i] <= ' ' || p->endpoint[i] > '~' : p->endpoint[i] != 0;
	return bad ? err_set(e, EBADMSG, "an endpoint is no text") : 0;
}

static int check_announce(const struct wire_message *m, struct err *e)
{
	return check_peer(&m->announce.peer, e);
}

static int check_peers(const struct wire_message *m, struct err *e)
{
	for (uint32_t i = 0; i < m->peers.n_peers; i++) {
		int r = check_peer(&m->peers.peers[i], e);

		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- messages ---- */

static const struct wire_form forms[] = {
	[WIRE_HELLO] = {hello_fields, check_hello, false},
	[WIRE_REFUSE] = {refuse_fields, NULL, false},
	[WIRE_PREPARE] = {prepare_fields, check_prepare, true},
	[WIRE_WINDOW] = {window_fields, check_window, true},
	[WIRE_STATUS] = {status_fields, check_status, true},
	[WIRE_ABORT] = {abort_fields, NULL, true},
	[WIRE_PING] = {ping_fields, NULL, false},
	[WIRE_PONG] = {pong_fields, NULL, false},
	[WIRE_ANNOUNCE] = {announce_fields, check_announce, false},
	[WIRE_LIST] = {list_fields, NULL, false},
	[WIRE_PEERS] = {peers_fields, check_peers, false},
};

const struct wire_form *wire_form(uint32_t type)
{
	return type && type < ARRAY_SIZE(forms) ? &forms[type] : NULL;
}
