/* A frame from an untrusted peer. The first byte chooses the treatment of the rest: unchanged, or with a header made
 * right, so that the checks behind it are reached. An accepted frame must encode to the same bytes, all its pointers
 * must point into it, and only a raw frame of the length that a WINDOW lists must fit the WINDOW. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/transfer/wire.h"
#include "protocol/transfer/wire_fit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sets magic, version, length and delivery as a writer would, and a type that exists. */
static void repair(uint8_t *p, size_t len)
{
	uint16_t type;
	uint64_t delivery;

	if (len < WIRE_HEADER)
		return;
	memcpy(&type, p + 6, sizeof(type));
	type = (uint16_t)(1 + type % WIRE_PEERS);
	delivery = type >= WIRE_PREPARE && type <= WIRE_ABORT ? 5 : 0;
	memcpy(p, "TGNX\3\0", 6);
	memcpy(p + 6, &type, sizeof(type));
	memcpy(p + 8, &(uint32_t){(uint32_t)len}, 4);
	memset(p + 12, 0, 4);
	memcpy(p + 16, &delivery, sizeof(delivery));
}

static void check_bytes(const struct wire_window *w)
{
	uint64_t sum = 0;
	struct err e = {0};

	for (uint32_t i = 0; i < w->n_runs; i++)
		sum += w->runs[i].bytes;
	assert(sum == wire_window_bytes(w));
	assert(wire_window_fits(w, sum, NULL) == 0);
	assert(wire_window_fits(w, sum + 1, &e) < 0 && e.text[0]);
	assert(wire_window_fits(w, sum - 1, &e) < 0);
}

static void check_parsed(const struct wire_message *m, const uint8_t *p, size_t len)
{
	struct err e = {0};
	struct buf out;
	char text[64];

	buf_init(&out, WIRE_FRAME_MAX);
	assert(wire_encode(m, &out, &e) == 0);
	assert(out.len == len && !memcmp(out.data, p, len));
	buf_release(&out);
	assert(wire_delivery(p, len) == m->delivery);
	if (m->type == WIRE_WINDOW)
		check_bytes(&m->window);
	if (m->type == WIRE_HELLO)
		assert(wire_hello_fits(&m->hello, &m->hello, &e));
	if (m->type == WIRE_REFUSE)
		wire_text(m->refuse.text, m->refuse.n_text, text, sizeof(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_message m, untouched;
	struct err e = {0};
	uint8_t *copy;

	if (!size)
		return 0;
	/* The frame gets memory of exactly its size (realloc below), so that the sanitizer sees every read behind its
	 * end. */
	copy = malloc(size);
	assert(copy);
	memcpy(copy, data + 1, size - 1);
	if (data[0] % 4)
		repair(copy, size - 1);
	copy = realloc(copy, size - 1 ? size - 1 : 1);
	memset(&m, 0x5a, sizeof(m));
	untouched = m;
	if (wire_parse(copy, size - 1, &m, &e) == 0)
		check_parsed(&m, copy, size - 1);
	else
		assert(e.text[0] && !memcmp(&m, &untouched, sizeof(m)));
	(void)wire_delivery(copy, size - 1);
	free(copy);
	return 0;
}
