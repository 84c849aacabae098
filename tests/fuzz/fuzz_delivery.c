/* The two sides of a delivery, which get arbitrary frames. The input is a list of frames, each with its length (two
 * bytes, little endian), a byte that says what happens before it, and its bytes. Whatever comes, a status never falls,
 * an ended delivery stays unchanged, success needs every byte, and the STATUS of a failed delivery can be encoded. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/transfer/delivery.h"
#include "protocol/transfer/wire.h"
#include "protocol/transfer/wire_fit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECOND ((uint64_t)1000000000)

/* The layers of tests/wire_samples.h; here a page has only 2 tokens. */
static const struct wire_layer layers[] = {{{512, 512}, 0}, {{96, 4096}, 3}, {{512, 256}, 0}};
static const struct wire_layout layout = {1792, 4192, 2, 3, layers};

static void check(const struct delivery *r, enum delivery_status before)
{
	enum delivery_status now = delivery_status(r);
	struct delivery_counts c;
	struct wire_message m = {.type = WIRE_STATUS, .delivery = delivery_id(r)};
	struct buf out;

	delivery_counts(r, &c);
	assert(now >= before && (before < DELIVERY_SUCCESS || now == before));
	assert(now == DELIVERY_FAILED ||
	       (c.bytes <= c.expected_bytes && c.pieces <= c.expected_pieces));
	if (now == DELIVERY_SUCCESS)
		assert(c.bytes == c.expected_bytes && c.pieces == c.expected_pieces &&
		       delivery_draws(r));
	if (now != DELIVERY_FAILED)
		return;
	delivery_failed_status(r, &m.status);
	buf_init(&out, WIRE_FRAME_MAX);
	assert(wire_encode(&m, &out, NULL) == 0);
	buf_release(&out);
}

static void give(struct delivery *receives, struct delivery *sends, const struct wire_message *m,
		 uint64_t now)
{
	enum delivery_status before[2] = {delivery_status(receives), delivery_status(sends)};
	struct wire_window w = m->window;
	struct delivery_counts had, has;
	struct err e = {0};
	int r = 0;

	switch (m->type) {
	case WIRE_WINDOW:
		delivery_counts(receives, &had);
		r = delivery_receive(receives, &m->window, now, &e);
		assert(r >= 0 || delivery_status(receives) == DELIVERY_FAILED);
		/* A WINDOW that is taken adds as many bytes as its raw frame must have. */
		delivery_counts(receives, &has);
		assert(wire_window_fits(&w, has.bytes - had.bytes, NULL) == 0 ||
		       r != DELIVERY_TAKEN);
		if (delivery_send(sends, &w, now, NULL) == 0)
			delivery_sent(sends, now);
		break;
	case WIRE_STATUS: {
		struct draw_result draws[2] = {{.token = 1}, {.token = 2}};
		struct wire_status status;

		r = delivery_hear(receives, &m->status, now, &e);
		if (!delivery_draws(sends) && m->status.n_draws)
			(void)!delivery_draw(sends, draws, 2, now, NULL);
		if (delivery_finish(sends, 0, now, &status) == 0)
			delivery_sent(sends, now);
		break;
	}
	case WIRE_PREPARE: r = delivery_prepare(sends, &m->prepare, now, &e); break;
	case WIRE_ABORT: delivery_fail(receives, now, ECANCELED, "the peer gave up"); break;
	default: break;
	}
	assert(r >= 0 || (e.text[0] && e.code > 0));
	check(receives, before[0]);
	check(sends, before[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct delivery *receives = NULL, *sends = NULL;
	uint64_t now = 0;

	assert(delivery_new_receiver(77, &layout, 5, 2, 2, 0, &receives, NULL) == 0);
	assert(delivery_new_sender(77, &layout, 0, &sends, NULL) == 0);
	while (size >= 3) {
		size_t len = data[0] | (size_t)data[1] << 8;
		uint8_t what = data[2];
		struct wire_message m;
		uint8_t *frame;

		data += 3;
		size -= 3;
		len = MIN(len, size);
		now += what >> 4 == 15 ? 100 * SECOND : what;
		if (what & 1)
			delivery_raise(receives, DELIVERY_WAITING_FOR_INPUT, now);
		if (what & 2)
			delivery_raise(sends, DELIVERY_WAITING_FOR_INPUT, now);
		(void)delivery_tick(receives, now);
		(void)delivery_tick(sends, now);
		frame = malloc(len ? len : 1);
		assert(frame);
		memcpy(frame, data, len);
		if (wire_parse(frame, len, &m, NULL) == 0)
			give(receives, sends, &m, now);
		free(frame);
		data += len;
		size -= len;
	}
	delivery_free(receives);
	delivery_free(sends);
	return 0;
}
