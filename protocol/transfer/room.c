#include "protocol/transfer/room.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct room {
	uint64_t id;
	const struct wire_layout *layout; /* borrowed */
	bool sends;
	enum room_status status;
	struct err error;     /* code 0: has not failed */
	uint64_t progress_ns; /* when anything was new; when it ended */

	uint32_t n_prompt, n_choices; /* n_prompt 0: PREPARE has not come */
	uint32_t first_page, n_pages; /* of the prompt, that have to come */
	uint64_t expected_bytes, expected_parts;
	uint64_t bytes, n_parts;
	uint64_t *parts;     /* bits; owned, NULL when it is over */
	uint64_t *sequences; /* bits of those that came; owned, receivers only */
	uint32_t n_windows;
	uint64_t end_sequence;	   /* behind the highest that came */
	struct draw_result *draws; /* [n_choices] owned, NULL: not yet there */
	uint32_t n_cached;

	enum room_status heard;	    /* receiver: the last status of its peer */
	uint32_t announced_windows; /* heard Success: so many */

	uint64_t n_out, n_sent; /* sender: given out, taken by the transport */
	bool finished;		/* sender: the last one that is out is the status */
};

/* ---- bits ---- */

static uint64_t *bits_new(uint64_t n)
{
	return calloc(n / 64 + 1, sizeof(uint64_t));
}

/* Sets a bit; whether it was set before. */
static bool bits_set(uint64_t *bits, uint64_t at)
{
	uint64_t mask = (uint64_t)1 << (at % 64);
	bool was = bits[at / 64] & mask;

	bits[at / 64] |= mask;
	return was;
}

/* ---- the end ---- */

bool room_over(const struct room *r)
{
	return r->status >= ROOM_SUCCESS;
}

static void end(struct room *r, enum room_status status, uint64_t now_ns)
{
	r->status = status;
	r->progress_ns = now_ns;
	free(r->parts);
	free(r->sequences);
	r->parts = r->sequences = NULL;
}

PRINTF(4, 0)
static void fail_va(struct room *r, uint64_t now_ns, int code, const char *fmt, va_list ap)
{
	r->error.code = code;
	vsnprintf(r->error.text, sizeof(r->error.text), fmt, ap);
	end(r, ROOM_FAILED, now_ns);
}

void room_fail(struct room *r, uint64_t now_ns, int code, const char *fmt, ...)
{
	va_list ap;

	if (room_over(r))
		return;
	va_start(ap, fmt);
	fail_va(r, now_ns, code, fmt, ap);
	va_end(ap);
}

/* What a room failed with, for its caller. */
static int failed(const struct room *r, struct err *e)
{
	return err_set(e, r->error.code, "%s", r->error.text);
}

/* The same, of a room that is not over. */
PRINTF(5, 6)
static int fail(struct room *r, uint64_t now_ns, struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fail_va(r, now_ns, code, fmt, ap);
	va_end(ap);
	return failed(r, e);
}

const struct err *room_error(const struct room *r)
{
	return &r->error;
}

void room_failed_status(const struct room *r, struct wire_status *ret)
{
	*ret = (struct wire_status){
		.status = ROOM_FAILED,
		.code = (uint32_t)r->error.code,
		.n_text = (uint32_t)strlen(r->error.text),
		.text = r->error.text,
	};
}

/* ---- time ---- */

uint64_t room_deadline(const struct room *r)
{
	if (room_over(r))
		return UINT64_MAX;
	if (!r->sends)
		return r->progress_ns + ROOM_RECEIVE_TIMEOUT_NS;
	if (r->n_out > r->n_sent)
		return r->progress_ns + ROOM_SEND_TIMEOUT_NS;
	return UINT64_MAX;
}

bool room_tick(struct room *r, uint64_t now_ns)
{
	if (now_ns < room_deadline(r) || room_over(r))
		return false;
	if (!r->sends)
		room_fail(r, now_ns, ETIMEDOUT,
			  "nothing came from the prefill worker for %" PRIu64 " s",
			  (uint64_t)(ROOM_RECEIVE_TIMEOUT_NS / 1000000000));
	else
		room_fail(r, now_ns, ETIMEDOUT, "the decode worker took nothing for %" PRIu64 " s",
			  (uint64_t)(ROOM_SEND_TIMEOUT_NS / 1000000000));
	return true;
}

/* ---- what is asked for ---- */

/* Fills in what has to come; nothing changes on failure. */
static int expect(struct room *r, uint32_t n_prompt, uint32_t n_have, uint32_t n_choices,
		  struct err *e)
{
	const struct wire_layout *l = r->layout;
	uint32_t n_pages = CEIL_DIV(n_prompt, l->page_tokens);
	uint64_t bytes, n_parts = 0;

	if (!n_choices || n_choices > WIRE_CHOICES_MAX || n_prompt > WIRE_TOKENS_MAX ||
	    n_have >= n_prompt)
		return err_set(e, EINVAL, "a prompt of %u tokens, %u there, %u choices cannot be",
			       n_prompt, n_have, n_choices);
	if (n_have % l->page_tokens)
		return err_set(e, EINVAL, "%u tokens are no whole pages of %u", n_have,
			       l->page_tokens);
	n_pages -= n_have / l->page_tokens;
	if (__builtin_mul_overflow(l->page_bytes, n_pages, &bytes) ||
	    __builtin_add_overflow(bytes, l->slot_bytes, &bytes))
		return err_set(e, EOVERFLOW, "%u pages of %" PRIu64 " bytes are too many", n_pages,
			       l->page_bytes);
	for (uint32_t i = 0; i < l->n_layers; i++)
		n_parts += l->layers[i].kind == WIRE_ATTENTION ? 2 * (uint64_t)n_pages : 2;
	r->parts = bits_new((uint64_t)l->n_layers * n_pages * 2);
	r->sequences = r->sends ? NULL : bits_new(n_parts);
	if (!r->parts || (!r->sends && !r->sequences)) {
		free(r->parts);
		free(r->sequences);
		r->parts = r->sequences = NULL;
		return err_set(e, ENOMEM, "out of memory");
	}
	r->n_prompt = n_prompt;
	r->n_choices = n_choices;
	r->first_page = n_have / l->page_tokens;
	r->n_pages = n_pages;
	r->expected_bytes = bytes;
	r->expected_parts = n_parts;
	return 0;
}

static struct room *make(uint64_t id, const struct wire_layout *layout, bool sends, uint64_t now_ns)
{
	struct room *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->id = id;
	r->layout = layout;
	r->sends = sends;
	r->progress_ns = now_ns;
	return r;
}

int room_new_receiver(uint64_t id, const struct wire_layout *layout, uint32_t n_prompt,
		      uint32_t n_have, uint32_t n_choices, uint64_t now_ns, struct room **ret,
		      struct err *e)
{
	struct room *r = make(id, layout, false, now_ns);
	int status;

	if (!r)
		return err_set(e, ENOMEM, "out of memory");
	status = expect(r, n_prompt, n_have, n_choices, e);
	if (status < 0)
		room_free(r);
	else
		*ret = r;
	return status;
}

int room_new_sender(uint64_t id, const struct wire_layout *layout, uint64_t now_ns,
		    struct room **ret, struct err *e)
{
	struct room *r = make(id, layout, true, now_ns);

	if (!r)
		return err_set(e, ENOMEM, "out of memory");
	*ret = r;
	return 0;
}

void room_free(struct room *r)
{
	if (!r)
		return;
	free(r->parts);
	free(r->sequences);
	free(r->draws);
	free(r);
}

/* ---- what can be seen ---- */

uint64_t room_id(const struct room *r)
{
	return r->id;
}

enum room_status room_status(const struct room *r)
{
	return r->status;
}

void room_counts(const struct room *r, struct room_counts *ret)
{
	*ret = (struct room_counts){
		.bytes = r->bytes,
		.expected_bytes = r->expected_bytes,
		.parts = r->n_parts,
		.expected_parts = r->expected_parts,
		.windows = r->n_windows,
		.n_cached = r->n_cached,
	};
}

const struct draw_result *room_draws(const struct room *r)
{
	return r->draws;
}

/* ---- both directions ---- */

static void raise_to(struct room *r, enum room_status status, uint64_t now_ns)
{
	r->status = status > r->status ? status : r->status;
	r->progress_ns = now_ns;
}

void room_raise(struct room *r, enum room_status status, uint64_t now_ns)
{
	if (status > r->status && status <= ROOM_WAITING_FOR_INPUT)
		raise_to(r, status, now_ns);
}

/* Marks one piece; a room whose window has a wrong piece is over, so nothing is taken back. */
static int mark(struct room *r, const struct wire_piece *p, uint64_t now_ns, struct err *e)
{
	const struct wire_layer *layer;
	uint32_t first = r->first_page, n = r->n_pages;

	if (p->layer >= r->layout->n_layers)
		return fail(r, now_ns, e, EPROTO, "a window has layer %u of %u", p->layer,
			    r->layout->n_layers);
	layer = &r->layout->layers[p->layer];
	if (p->part / 2 != layer->kind)
		return fail(r, now_ns, e, EPROTO,
			    "a window has part %u of layer %u, which has none", p->part, p->layer);
	if (layer->kind == WIRE_DELTANET) {
		first = 0;
		n = 1;
	}
	if (!p->n || p->first < first || p->n > n || p->first - first > n - p->n)
		return fail(r, now_ns, e, EPROTO,
			    "a window has %u pages from %u on, but %u from %u on were asked for",
			    p->n, p->first, n, first);
	if (p->bytes != layer->part_bytes[p->part % 2] * p->n)
		return fail(r, now_ns, e, EPROTO,
			    "a window has %" PRIu64 " bytes for %u times %" PRIu64,
			    (uint64_t)p->bytes, p->n, (uint64_t)layer->part_bytes[p->part % 2]);
	for (uint32_t i = p->first - first; i < p->first - first + p->n; i++)
		if (bits_set(r->parts, ((uint64_t)p->layer * r->n_pages + i) * 2 + p->part % 2))
			return fail(r, now_ns, e, EPROTO,
				    "part %u of layer %u, page %u, came twice", p->part, p->layer,
				    first + i);
	r->n_parts += p->n;
	r->bytes += p->bytes;
	return 0;
}

static int mark_all(struct room *r, const struct wire_window *w, uint64_t now_ns, struct err *e)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < w->n_pieces; i++)
		ret = mark(r, &w->pieces[i], now_ns, e);
	if (ret < 0)
		return ret;
	r->n_windows++;
	return 0;
}

/* The number was checked. */
static int keep_draws(struct room *r, const void *draws, uint64_t now_ns, struct err *e)
{
	r->draws = calloc(r->n_choices, sizeof(*r->draws));
	if (!r->draws)
		return fail(r, now_ns, e, ENOMEM, "out of memory");
	memcpy(r->draws, draws, r->n_choices * sizeof(*r->draws));
	return 0;
}

/* ---- receiver ---- */

/* Whether what was announced and what came can both be right; and if all is there, the end. */
static int settle(struct room *r, uint64_t now_ns, struct err *e)
{
	bool all = r->n_parts == r->expected_parts;

	if (r->heard < ROOM_SUCCESS)
		return ROOM_TAKEN;
	if (r->end_sequence > r->announced_windows)
		return fail(r, now_ns, e, EPROTO, "of %u windows number %" PRIu64 " came",
			    r->announced_windows, r->end_sequence - 1);
	if (all != (r->n_windows == r->announced_windows))
		return fail(r, now_ns, e, EPROTO,
			    "of %u windows %u came, with %" PRIu64 " of %" PRIu64 " bytes",
			    r->announced_windows, r->n_windows, r->bytes, r->expected_bytes);
	if (all && r->draws)
		end(r, ROOM_SUCCESS, now_ns);
	return ROOM_TAKEN;
}

int room_receive(struct room *r, const struct wire_window *w, uint64_t now_ns, struct err *e)
{
	int ret;

	if (room_over(r))
		return ROOM_IGNORED;
	if (r->status < ROOM_WAITING_FOR_INPUT)
		return fail(r, now_ns, e, EPROTO, "a window came before it was asked for");
	if (w->sequence >= r->expected_parts)
		return fail(r, now_ns, e, EPROTO, "window %u came, but there are %" PRIu64 " parts",
			    w->sequence, r->expected_parts);
	if (bits_set(r->sequences, w->sequence))
		return ROOM_IGNORED;
	ret = mark_all(r, w, now_ns, e);
	if (ret < 0)
		return ret;
	raise_to(r, ROOM_TRANSFERRING, now_ns);
	r->end_sequence = MAX(r->end_sequence, (uint64_t)w->sequence + 1);
	return settle(r, now_ns, e);
}

static int hear_success(struct room *r, const struct wire_status *s, uint64_t now_ns, struct err *e)
{
	if (s->total_bytes != r->expected_bytes)
		return fail(r, now_ns, e, EPROTO,
			    "the prefill worker sent %" PRIu64 " bytes, but %" PRIu64
			    " were asked for",
			    s->total_bytes, r->expected_bytes);
	if (s->n_cached > r->n_prompt)
		return fail(r, now_ns, e, EPROTO, "of %u tokens %u were cached", r->n_prompt,
			    s->n_cached);
	r->announced_windows = s->n_windows;
	r->n_cached = s->n_cached;
	return 0;
}

int room_hear(struct room *r, const struct wire_status *s, uint64_t now_ns, struct err *e)
{
	bool draws = s->n_draws && !r->draws;
	char text[ERR_TEXT_MAX / 2];
	int ret = 0;

	if (room_over(r))
		return ROOM_IGNORED;
	if (s->status == ROOM_FAILED) {
		wire_text(s->text, s->n_text, text, sizeof(text));
		return fail(r, now_ns, e, (int)s->code, "it says: %s", text);
	}
	if (r->status < ROOM_WAITING_FOR_INPUT)
		return fail(r, now_ns, e, EPROTO, "a status came before anything was asked for");
	if (s->status <= r->heard && !draws)
		return ROOM_IGNORED;
	if (draws && s->n_draws != r->n_choices)
		return fail(r, now_ns, e, EPROTO, "%u tokens came for %u choices", s->n_draws,
			    r->n_choices);
	if (draws)
		ret = keep_draws(r, s->draws, now_ns, e);
	if (ret == 0 && s->status > r->heard && s->status == ROOM_SUCCESS)
		ret = hear_success(r, s, now_ns, e);
	if (ret < 0)
		return ret;
	if (s->status > r->heard)
		r->heard = s->status;
	raise_to(r, s->status < ROOM_SUCCESS ? s->status : ROOM_TRANSFERRING, now_ns);
	return settle(r, now_ns, e);
}

/* ---- sender ---- */

int room_prepare(struct room *r, const struct wire_prepare *p, uint64_t now_ns, struct err *e)
{
	struct err why = {0};
	int ret;

	if (r->status == ROOM_FAILED)
		return failed(r, e);
	if (r->n_prompt)
		return ROOM_IGNORED;
	ret = expect(r, p->n_tokens, p->n_have, p->n_choices, &why);
	if (ret < 0)
		return fail(r, now_ns, e, why.code, "%s", why.text);
	raise_to(r, ROOM_BOOTSTRAPPED, now_ns);
	return ROOM_TAKEN;
}

/* Something for the peer to take: its time begins with the first. */
static void give_out(struct room *r, uint64_t now_ns)
{
	if (r->n_out++ == r->n_sent)
		r->progress_ns = now_ns;
}

/* Whether a sender can still send, and knows what. */
static int check_sender(struct room *r, uint64_t now_ns, struct err *e)
{
	if (r->status == ROOM_FAILED)
		return failed(r, e);
	if (r->status == ROOM_SUCCESS || r->finished)
		return err_set(e, ECANCELED, "room %" PRIu64 " is over", r->id);
	if (!r->n_prompt)
		return fail(r, now_ns, e, EPROTO, "nothing was asked for");
	return 0;
}

int room_send(struct room *r, struct wire_window *w, uint64_t now_ns, struct err *e)
{
	uint32_t sequence = r->n_windows;
	int ret = check_sender(r, now_ns, e);

	if (ret == 0)
		ret = mark_all(r, w, now_ns, e);
	if (ret < 0)
		return ret;
	/* No progress: what we do is no sign of life of the peer. */
	r->status = ROOM_TRANSFERRING;
	give_out(r, now_ns);
	w->sequence = sequence;
	return 0;
}

int room_draw(struct room *r, const struct draw_result *draws, uint32_t n, uint64_t now_ns,
	      struct err *e)
{
	int ret = check_sender(r, now_ns, e);

	if (ret < 0)
		return ret;
	if (n != r->n_choices || r->draws)
		return fail(r, now_ns, e, EPROTO, "%u tokens were drawn for %u choices%s", n,
			    r->n_choices, r->draws ? ", again" : "");
	return keep_draws(r, draws, now_ns, e);
}

int room_finish(struct room *r, uint32_t n_cached, uint64_t now_ns, struct wire_status *ret)
{
	if (room_over(r))
		return -ECANCELED;
	if (r->finished)
		return -EALREADY;
	if (!r->draws || r->n_parts != r->expected_parts)
		return -EAGAIN;
	r->finished = true;
	r->n_cached = n_cached;
	give_out(r, now_ns);
	*ret = (struct wire_status){
		.status = ROOM_SUCCESS,
		.n_cached = n_cached,
		.n_windows = r->n_windows,
		.total_bytes = r->bytes,
		.n_draws = r->n_choices,
		.draws = (const void *)r->draws,
	};
	return 0;
}

void room_sent(struct room *r, uint64_t now_ns)
{
	if (room_over(r) || r->n_sent == r->n_out)
		return;
	r->n_sent++;
	r->progress_ns = now_ns;
	if (r->finished && r->n_sent == r->n_out)
		end(r, ROOM_SUCCESS, now_ns);
}
