/*
 * Two rooms, one of each side, that get frames from anybody. The input is a list of frames: length (two bytes, little
 * endian), what happens before (one byte), bytes. Whatever comes, a status never falls, what is over stays as it is,
 * success needs every byte, and a room that fails says why in a STATUS that can be sent.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/transfer/room.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECOND ((uint64_t)1000000000)

/* Two attention layers around a Gated DeltaNet one, as in tests/wire_samples.h. */
static const struct wire_layer layers[] = {{{512, 512}, WIRE_ATTENTION},
					   {{96, 4096}, WIRE_DELTANET},
					   {{512, 256}, WIRE_ATTENTION}};
static const struct wire_layout layout = {1792, 4192, 2, 3, layers};

static void check(const struct room *r, enum room_status before)
{
	enum room_status now = room_status(r);
	struct room_counts c;
	struct wire_message m = {.type = WIRE_STATUS, .room = room_id(r)};
	struct buf out;

	room_counts(r, &c);
	assert(now >= before && (before < ROOM_SUCCESS || now == before));
	assert(now == ROOM_FAILED || (c.bytes <= c.expected_bytes && c.parts <= c.expected_parts));
	if (now == ROOM_SUCCESS)
		assert(c.bytes == c.expected_bytes && c.parts == c.expected_parts && room_draws(r));
	if (now != ROOM_FAILED)
		return;
	room_failed_status(r, &m.status);
	buf_init(&out, WIRE_FRAME_MAX);
	assert(wire_encode(&m, &out, NULL) == 0);
	buf_release(&out);
}

static void give(struct room *receives, struct room *sends, const struct wire_message *m,
		 uint64_t now)
{
	enum room_status before[2] = {room_status(receives), room_status(sends)};
	struct wire_window w = m->window;
	struct room_counts had, has;
	struct err e = {0};
	int r = 0;

	switch (m->type) {
	case WIRE_WINDOW:
		room_counts(receives, &had);
		r = room_receive(receives, &m->window, now, &e);
		assert(r >= 0 || room_status(receives) == ROOM_FAILED);
		/* What is taken is what the frame behind it has to have. */
		room_counts(receives, &has);
		assert(wire_window_fits(&w, has.bytes - had.bytes, NULL) == 0 || r != ROOM_TAKEN);
		if (room_send(sends, &w, now, NULL) == 0)
			room_sent(sends, now);
		break;
	case WIRE_STATUS: {
		struct draw_result draws[2] = {{.token = 1}, {.token = 2}};
		struct wire_status status;

		r = room_hear(receives, &m->status, now, &e);
		if (!room_draws(sends) && m->status.n_draws)
			(void)!room_draw(sends, draws, 2, now, NULL);
		if (room_finish(sends, 0, now, &status) == 0)
			room_sent(sends, now);
		break;
	}
	case WIRE_PREPARE: r = room_prepare(sends, &m->prepare, now, &e); break;
	case WIRE_ABORT: room_fail(receives, now, ECANCELED, "the peer gave up"); break;
	default: break;
	}
	assert(r >= 0 || (e.text[0] && e.code > 0));
	check(receives, before[0]);
	check(sends, before[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct room *receives = NULL, *sends = NULL;
	uint64_t now = 0;

	assert(room_new_receiver(77, &layout, 5, 2, 2, 0, &receives, NULL) == 0);
	assert(room_new_sender(77, &layout, 0, &sends, NULL) == 0);
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
			room_raise(receives, ROOM_WAITING_FOR_INPUT, now);
		if (what & 2)
			room_raise(sends, ROOM_WAITING_FOR_INPUT, now);
		(void)room_tick(receives, now);
		(void)room_tick(sends, now);
		frame = malloc(len ? len : 1);
		assert(frame);
		memcpy(frame, data, len);
		if (wire_parse(frame, len, &m, NULL) == 0)
			give(receives, sends, &m, now);
		free(frame);
		data += len;
		size -= len;
	}
	room_free(receives);
	room_free(sends);
	return 0;
}
