#include "protocol/transfer/delivery.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/transfer/pieces.h"
#include "protocol/transfer/wire.h"

struct delivery {
	uint64_t id;
	const struct wire_layout *layout; /* borrowed */
	bool sends;
	enum delivery_status status;
	struct err error; /* code 0: it has not failed */
	/* The time from which the timeout runs: that of the last progress. A sender sets it also when a message begins
	 * to wait while no other one waits. After the end: the time of the end. */
	uint64_t progress_ns;

	uint32_t n_prompt, n_choices; /* n_prompt 0: a sender without PREPARE */
	struct pieces pieces;
	uint32_t n_windows;
	struct draw_result *draws; /* [n_choices] owned; NULL: unknown */
	uint32_t n_cached;

	/* receiver */
	uint64_t patience_ns;  /* of delivery_set_patience, bounded; 0: it was not called */
	uint64_t expected_ns;  /* the same up to DELIVERY_WHOLE_MAX_NS */
	uint64_t began_ns;     /* when it was made, plus the time of stops (delivery_wait_anew) */
	uint64_t *sequences;   /* bit i: WINDOW i came; owned, NULL after the end */
	uint64_t end_sequence; /* the highest number of a WINDOW that came, plus 1 */
	enum delivery_status heard; /* the highest status that the peer sent */
	uint32_t announced_windows; /* n_windows of the peer's Success */

	/* sender */
	/* n_out: messages that were allowed to be sent; n_sent: those of them that the transport has taken */
	uint64_t n_out, n_sent;
	bool finished; /* the STATUS of success was made: no further message is allowed */
};

/* ---- ending ---- */

bool delivery_over(const struct delivery *d)
{
	return d->status >= DELIVERY_SUCCESS;
}

static void release_bits(struct delivery *d)
{
	pieces_release(&d->pieces);
	free(d->sequences);
	d->sequences = NULL;
}

static void end(struct delivery *d, enum delivery_status status, uint64_t now_ns)
{
	d->status = status;
	d->progress_ns = now_ns;
	release_bits(d);
}

void delivery_fail(struct delivery *d, uint64_t now_ns, int code, const char *fmt, ...)
{
	va_list ap;

	if (delivery_over(d))
		return;
	d->error.code = code;
	va_start(ap, fmt);
	vsnprintf(d->error.text, sizeof(d->error.text), fmt, ap);
	va_end(ap);
	end(d, DELIVERY_FAILED, now_ns);
}

/* Fills *e with the reason why the delivery has failed, and returns its -errno. */
static int copy_error(const struct delivery *d, struct err *e)
{
	return err_set(e, d->error.code, "%s", d->error.text);
}

/* Fails a delivery that has not ended; fills *e with the reason and returns its -errno. */
static int fail_with(struct delivery *d, uint64_t now_ns, const struct err *why, struct err *e)
{
	delivery_fail(d, now_ns, why->code, "%s", why->text);
	return copy_error(d, e);
}

const struct err *delivery_error(const struct delivery *d)
{
	return &d->error;
}

void delivery_failed_status(const struct delivery *d, struct wire_status *ret)
{
	*ret = (struct wire_status){
		.status = DELIVERY_FAILED,
		.code = (uint32_t)d->error.code,
		.n_text = (uint32_t)strlen(d->error.text),
		.text = d->error.text,
	};
}

/* ---- time ---- */

void delivery_set_patience(struct delivery *d, uint64_t ns)
{
	d->patience_ns = MAX(d->patience_ns, MIN(ns, DELIVERY_RECEIVE_TIMEOUT_NS));
	d->expected_ns = MAX(d->expected_ns, MIN(ns, DELIVERY_WHOLE_MAX_NS));
}

uint64_t delivery_waits_since(const struct delivery *d)
{
	return d->progress_ns;
}

void delivery_wait_anew(struct delivery *d, uint64_t now_ns)
{
	if (delivery_over(d))
		return;
	d->began_ns += now_ns - d->progress_ns;
	d->progress_ns = now_ns;
}

static uint64_t patience(const struct delivery *d)
{
	return d->patience_ns ? d->patience_ns : DELIVERY_RECEIVE_TIMEOUT_NS;
}

/* Returns the time in which all of a receiver's delivery has to come. */
static uint64_t whole(const struct delivery *d)
{
	return MAX(DELIVERY_WHOLE * patience(d), d->expected_ns);
}

static uint64_t end_of_whole(const struct delivery *d)
{
	return d->began_ns + whole(d);
}

bool delivery_drags(const struct delivery *d, uint64_t now_ns)
{
	return !d->sends && !delivery_over(d) && now_ns >= end_of_whole(d);
}

uint64_t delivery_deadline(const struct delivery *d)
{
	if (delivery_over(d))
		return UINT64_MAX;
	if (!d->sends)
		return MIN(d->progress_ns + patience(d), end_of_whole(d));
	return d->n_out > d->n_sent ? d->progress_ns + DELIVERY_SEND_TIMEOUT_NS : UINT64_MAX;
}

bool delivery_tick(struct delivery *d, uint64_t now_ns)
{
	if (now_ns < delivery_deadline(d) || delivery_over(d))
		return false;
	if (delivery_drags(d, now_ns))
		delivery_fail(d, now_ns, ETIMEDOUT,
			      "the prefill worker did not send all of it in %" PRIu64 " s",
			      whole(d) / 1000000000);
	else if (!d->sends)
		delivery_fail(d, now_ns, ETIMEDOUT,
			      "nothing came from the prefill worker for %" PRIu64 " s",
			      patience(d) / 1000000000);
	else
		delivery_fail(d, now_ns, ETIMEDOUT,
			      "the decode worker took nothing for %" PRIu64 " s",
			      (uint64_t)(DELIVERY_SEND_TIMEOUT_NS / 1000000000));
	return true;
}

/* ---- making ---- */

/* Notes which data have to be transferred. Called when a receiver is made, and when PREPARE has come to a sender. After
 * an error the caller frees the delivery or lets it fail. */
static int expect(struct delivery *d, uint32_t n_prompt, uint32_t n_have, uint32_t n_choices,
		  struct err *e)
{
	int r;

	if (!n_choices || n_choices > WIRE_CHOICES_MAX)
		return err_set(e, EINVAL, "%u choices are not from 1 to %d", n_choices,
			       WIRE_CHOICES_MAX);
	r = pieces_init(&d->pieces, d->layout, n_prompt, n_have, e);
	if (r < 0)
		return r;
	d->sequences = d->sends ? NULL : bits_new(d->pieces.expected_pieces);
	if (!d->sends && !d->sequences) {
		release_bits(d);
		return err_no_memory(e);
	}
	d->n_prompt = n_prompt;
	d->n_choices = n_choices;
	return 0;
}

static struct delivery *new_delivery(uint64_t id, const struct wire_layout *layout, bool sends,
				     uint64_t now_ns)
{
	struct delivery *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->id = id;
	d->layout = layout;
	d->sends = sends;
	d->progress_ns = d->began_ns = now_ns;
	return d;
}

int delivery_new_receiver(uint64_t id, const struct wire_layout *layout, uint32_t n_prompt,
			  uint32_t n_have, uint32_t n_choices, uint64_t now_ns,
			  struct delivery **ret, struct err *e)
{
	struct delivery *d = new_delivery(id, layout, false, now_ns);
	int r = d ? expect(d, n_prompt, n_have, n_choices, e) : err_no_memory(e);

	if (r < 0)
		delivery_free(d);
	else
		*ret = d;
	return r;
}

int delivery_new_sender(uint64_t id, const struct wire_layout *layout, uint64_t now_ns,
			struct delivery **ret, struct err *e)
{
	struct delivery *d = new_delivery(id, layout, true, now_ns);

	if (!d)
		return err_no_memory(e);
	*ret = d;
	return 0;
}

void delivery_free(struct delivery *d)
{
	if (!d)
		return;
	release_bits(d);
	free(d->draws);
	free(d);
}

/* ---- both sides ---- */

uint64_t delivery_id(const struct delivery *d)
{
	return d->id;
}

enum delivery_status delivery_status(const struct delivery *d)
{
	return d->status;
}

void delivery_counts(const struct delivery *d, struct delivery_counts *ret)
{
	*ret = (struct delivery_counts){
		.bytes = d->pieces.bytes,
		.expected_bytes = d->pieces.expected_bytes,
		.pieces = d->pieces.n_pieces,
		.expected_pieces = d->pieces.expected_pieces,
		.windows = d->n_windows,
		.n_cached = d->n_cached,
	};
}

const struct draw_result *delivery_draws(const struct delivery *d)
{
	return d->draws;
}

static void raise_to(struct delivery *d, enum delivery_status status, uint64_t now_ns)
{
	d->status = MAX(d->status, status);
	d->progress_ns = now_ns;
}

void delivery_raise(struct delivery *d, enum delivery_status status, uint64_t now_ns)
{
	if (status > d->status && status <= DELIVERY_WAITING_FOR_INPUT)
		raise_to(d, status, now_ns);
}

/* Marks the pieces of a WINDOW as transferred, and counts the WINDOW. After an error the caller fails the delivery, so
 * it does not matter that pieces before the wrong one stay marked. */
static int mark_window(struct delivery *d, const struct wire_window *w, struct err *e)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < w->n_runs; i++)
		r = pieces_mark(&d->pieces, &w->runs[i], e);
	d->n_windows += r == 0;
	return r;
}

/* Keeps a copy of the first tokens. draws: [n_choices], at any alignment. */
static int keep_draws(struct delivery *d, const void *draws, struct err *e)
{
	d->draws = calloc(d->n_choices, sizeof(*d->draws));
	if (!d->draws)
		return err_no_memory(e);
	memcpy(d->draws, draws, d->n_choices * sizeof(*d->draws));
	return 0;
}

/* ---- receiver ---- */

/* Compares the received data with the numbers in the peer's Success, and ends the delivery if nothing is missing. Does
 * nothing before Success came. -EPROTO: the numbers contradict the data. */
static int settle(struct delivery *d, uint64_t now_ns, struct err *e)
{
	bool all = d->pieces.n_pieces == d->pieces.expected_pieces;

	if (d->heard < DELIVERY_SUCCESS)
		return DELIVERY_TAKEN;
	if (d->end_sequence > d->announced_windows)
		return err_set(e, EPROTO, "of %u WINDOWs number %" PRIu64 " came",
			       d->announced_windows, d->end_sequence - 1);
	if (all != (d->n_windows == d->announced_windows))
		return err_set(e, EPROTO,
			       "of %u WINDOWs %u came, with %" PRIu64 " of %" PRIu64 " bytes",
			       d->announced_windows, d->n_windows, d->pieces.bytes,
			       d->pieces.expected_bytes);
	if (all && d->draws)
		end(d, DELIVERY_SUCCESS, now_ns);
	return DELIVERY_TAKEN;
}

static int take_window(struct delivery *d, const struct wire_window *w, uint64_t now_ns,
		       struct err *e)
{
	int r;

	if (d->status < DELIVERY_WAITING_FOR_INPUT)
		return err_set(e, EPROTO, "a WINDOW came before it was asked for");
	if (w->sequence >= d->pieces.expected_pieces)
		return err_set(e, EPROTO, "WINDOW %u came, but there are %" PRIu64 " pieces",
			       w->sequence, d->pieces.expected_pieces);
	if (bits_set(d->sequences, w->sequence))
		return DELIVERY_IGNORED;
	r = mark_window(d, w, e);
	if (r < 0)
		return r;
	raise_to(d, DELIVERY_TRANSFERRING, now_ns);
	d->end_sequence = MAX(d->end_sequence, (uint64_t)w->sequence + 1);
	return settle(d, now_ns, e);
}

int delivery_receive(struct delivery *d, const struct wire_window *w, uint64_t now_ns,
		     struct err *e)
{
	struct err why = {0};
	int r = delivery_over(d) ? DELIVERY_IGNORED : take_window(d, w, now_ns, &why);

	return r < 0 ? fail_with(d, now_ns, &why, e) : r;
}

static int take_success(struct delivery *d, const struct wire_status *s, struct err *e)
{
	if (s->total_bytes != d->pieces.expected_bytes)
		return err_set(e, EPROTO,
			       "the prefill worker sent %" PRIu64 " bytes, but %" PRIu64
			       " were asked for",
			       s->total_bytes, d->pieces.expected_bytes);
	if (s->n_cached > d->n_prompt)
		return err_set(e, EPROTO, "of %u tokens %u were cached", d->n_prompt, s->n_cached);
	d->announced_windows = s->n_windows;
	d->n_cached = s->n_cached;
	return 0;
}

static int take_status(struct delivery *d, const struct wire_status *s, uint64_t now_ns,
		       struct err *e)
{
	bool draws = s->n_draws && !d->draws;
	char text[ERR_TEXT_MAX / 2];
	int r = 0;

	if (s->status == DELIVERY_FAILED) {
		wire_text(s->text, s->n_text, text, sizeof(text));
		return err_set(e, (int)s->code, "it says: %s", text);
	}
	if (d->status < DELIVERY_WAITING_FOR_INPUT)
		return err_set(e, EPROTO, "a status came before anything was asked for");
	if (s->status <= d->heard && !draws)
		return DELIVERY_IGNORED;
	if (draws && s->n_draws != d->n_choices)
		return err_set(e, EPROTO, "%u tokens came for %u choices", s->n_draws,
			       d->n_choices);
	if (draws)
		r = keep_draws(d, s->draws, e);
	if (r == 0 && s->status > d->heard && s->status == DELIVERY_SUCCESS)
		r = take_success(d, s, e);
	if (r < 0)
		return r;
	d->heard = MAX(d->heard, (enum delivery_status)s->status);
	/* Only settle raises the status of this side to Success: when the data are here as well. */
	raise_to(d,
		 MIN((enum delivery_status)s->status, (enum delivery_status)DELIVERY_TRANSFERRING),
		 now_ns);
	return settle(d, now_ns, e);
}

int delivery_hear(struct delivery *d, const struct wire_status *s, uint64_t now_ns, struct err *e)
{
	struct err why = {0};
	int r = delivery_over(d) ? DELIVERY_IGNORED : take_status(d, s, now_ns, &why);

	return r < 0 ? fail_with(d, now_ns, &why, e) : r;
}

/* ---- sender ---- */

int delivery_prepare(struct delivery *d, const struct wire_prepare *p, uint64_t now_ns,
		     struct err *e)
{
	struct err why = {0};

	if (d->status == DELIVERY_FAILED)
		return copy_error(d, e);
	if (d->n_prompt)
		return DELIVERY_IGNORED;
	if (expect(d, p->n_tokens, p->n_have, p->n_choices, &why) < 0)
		return fail_with(d, now_ns, &why, e);
	raise_to(d, DELIVERY_BOOTSTRAPPED, now_ns);
	return DELIVERY_TAKEN;
}

/* Counts a message that will be sent. If no other message waits for the transport, the timeout begins now. */
static void allow_message(struct delivery *d, uint64_t now_ns)
{
	if (d->n_out++ == d->n_sent)
		d->progress_ns = now_ns;
}

/* Checks whether a sender may still send. -errno: the delivery has ended, its STATUS of success was made, or the
 * delivery fails by this call because PREPARE has not come. */
static int check_sender(struct delivery *d, uint64_t now_ns, struct err *e)
{
	if (!d->n_prompt)
		delivery_fail(d, now_ns, EPROTO, "nothing was asked for");
	if (d->status == DELIVERY_FAILED)
		return copy_error(d, e);
	if (d->status == DELIVERY_SUCCESS || d->finished)
		return err_set(e, ECANCELED, "delivery %" PRIu64 " is over", d->id);
	return 0;
}

int delivery_send(struct delivery *d, struct wire_window *w, uint64_t now_ns, struct err *e)
{
	uint32_t sequence = d->n_windows;
	struct err why = {0};
	int r = check_sender(d, now_ns, e);

	if (r < 0)
		return r;
	if (mark_window(d, w, &why) < 0)
		return fail_with(d, now_ns, &why, e);
	/* not raise_to: sending is no progress, as it does not show that the peer takes the data */
	d->status = DELIVERY_TRANSFERRING;
	allow_message(d, now_ns);
	w->sequence = sequence;
	return 0;
}

int delivery_draw(struct delivery *d, const struct draw_result *draws, uint32_t n, uint64_t now_ns,
		  struct err *e)
{
	struct err why = {0};
	int r = check_sender(d, now_ns, e);

	if (r < 0)
		return r;
	if (n != d->n_choices || d->draws)
		r = err_set(&why, EPROTO, "%u tokens were drawn for %u choices%s", n, d->n_choices,
			    d->draws ? ", again" : "");
	else
		r = keep_draws(d, draws, &why);
	return r < 0 ? fail_with(d, now_ns, &why, e) : 0;
}

int delivery_finish(struct delivery *d, uint32_t n_cached, uint64_t now_ns, struct wire_status *ret)
{
	if (delivery_over(d))
		return -ECANCELED;
	if (d->finished)
		return -EALREADY;
	if (!d->draws || d->pieces.n_pieces != d->pieces.expected_pieces)
		return -EAGAIN;
	d->finished = true;
	d->n_cached = n_cached;
	allow_message(d, now_ns);
	*ret = (struct wire_status){
		.status = DELIVERY_SUCCESS,
		.n_cached = n_cached,
		.n_windows = d->n_windows,
		.total_bytes = d->pieces.bytes,
		.n_draws = d->n_choices,
		.draws = (const void *)d->draws,
	};
	return 0;
}

void delivery_sent(struct delivery *d, uint64_t now_ns)
{
	if (delivery_over(d) || d->n_sent == d->n_out)
		return;
	d->n_sent++;
	d->progress_ns = now_ns;
	if (d->finished && d->n_sent == d->n_out)
		end(d, DELIVERY_SUCCESS, now_ns);
}
