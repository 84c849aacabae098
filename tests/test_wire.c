/* The codec of the transfer protocol: every message is encoded and parsed again; values outside their ranges and cut
 * frames are refused; damaged frames do no harm. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "prefix_cache/tiers.h"
#include "protocol/transfer/wire_fit.h"
#include "tests/random.h"
#include "tests/tap.h"
#include "tests/wire_samples.h"

/* An array of struct content_key can be read as an array of struct wire_key. */
_Static_assert(sizeof(struct wire_key) == sizeof(struct content_key), "keys");

/* Returns a copy of a frame in memory of exactly its size, so that the sanitizers see a read behind its end. */
static uint8_t *exact(const void *data, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	if (!copy)
		abort();
	memcpy(copy, data, len);
	return copy;
}

static struct buf encode(const struct wire_message *m)
{
	struct err e = {0};
	struct buf out;

	buf_init(&out, WIRE_FRAME_MAX);
	if (wire_encode(m, &out, &e) < 0)
		printf("# %s\n", e.text);
	return out;
}

/* ---- there and back ---- */

TEST(round_trip)
{
	struct wire_message m, back;
	int n = 0;

	for (int type = WIRE_HELLO; wire_sample(type, &m); type++, n++) {
		struct buf a = encode(&m), b;
		uint8_t *frame = exact(a.data, a.len);
		struct err e = {0};

		check(wire_parse(frame, a.len, &back, &e) == 0);
		check(back.type == m.type && back.delivery == m.delivery);
		check(wire_delivery(frame, a.len) == m.delivery);
		b = encode(&back);
		check(b.len == a.len && !memcmp(a.data, b.data, a.len));
		/* A frame that lacks bytes at its end is refused, and so is one with a byte more. */
		for (size_t len = 0; len < a.len; len++) {
			uint8_t *cut = exact(a.data, len);

			check(wire_parse(cut, len, &back, &e) == -EBADMSG && e.text[0]);
			if (len >= WIRE_HEADER) {
				uint32_t says = (uint32_t)len;

				memcpy(cut + 8, &says, 4);
				check(wire_parse(cut, len, &back, &e) == -EBADMSG);
			}
			free(cut);
		}
		buf_putc(&a, 0);
		check(wire_parse(a.data, a.len, &back, &e) == -EBADMSG);
		a.data[8] = (char)(a.len & 0xff);
		check(wire_parse(a.data, a.len, &back, &e) == -EBADMSG);
		free(frame);
		buf_release(&a);
		buf_release(&b);
	}
	ok_all("all messages come back, and no part of one does");
	is_int(n, 11, "there are 11 messages");
}

/* A message that is read equals the one that was written, at any alignment. */
TEST(values)
{
	struct wire_message m, back;
	uint8_t storage[2048];

	for (size_t shift = 0; shift < 8; shift++) {
		struct buf a;

		wire_sample(WIRE_PREPARE, &m);
		a = encode(&m);
		memcpy(storage + shift, a.data, a.len);
		check(wire_parse(storage + shift, a.len, &back, NULL) == 0);
		check(back.prepare.n_tokens == 4 && back.prepare.tokens[2].v == 151643);
		check(back.prepare.n_have == 2 && back.prepare.n_choices == 3);
		check(back.prepare.priority == -2 && back.prepare.space[1] == UINT64_MAX);
		check(back.prepare.sampling.top_p == 0.9f && back.prepare.sampling.top_k == 40);
		check(back.prepare.sampling.seed == 123456789012345);
		check(back.prepare.sampling.want_logprobs && back.prepare.cache_disabled == 1);
		check(back.prepare.n_allowed == 2 && back.prepare.allowed[1].v == 0x80000001);
		check(back.prepare.biases[1].token == 9 && back.prepare.biases[1].value == -1.5f);
		check(back.prepare.end_tokens[0].v == 151645 && back.prepare.boundaries[1].v == 4);
		buf_release(&a);
		wire_sample(WIRE_WINDOW, &m);
		a = encode(&m);
		memcpy(storage + shift, a.data, a.len);
		check(wire_parse(storage + shift, a.len, &back, NULL) == 0);
		check(back.window.n_runs == 3 && back.window.runs[2].part == 1);
		check(back.window.runs[1].first == 3 && wire_window_bytes(&back.window) == 6144);
		buf_release(&a);
		wire_sample(WIRE_STATUS, &m);
		a = encode(&m);
		memcpy(storage + shift, a.data, a.len);
		check(wire_parse(storage + shift, a.len, &back, NULL) == 0);
		check(back.status.draws[0].v.token == 11 &&
		      back.status.draws[0].v.top_logprobs[0] == -0.5f);
		buf_release(&a);
	}
	ok_all("values come through at any alignment");
}

/* The bytes are those of FORMAT.md. */
TEST(format)
{
	struct wire_message m;
	struct buf a;

	wire_sample(WIRE_PREPARE, &m);
	a = encode(&m);
	is_int(a.len, 115 + 16 + 8 + 8 + 8 + 16, "PREPARE has its bytes");
	ok(!memcmp(a.data, "TGNX\3\0\3\0\xab\0\0\0\0\0\0\0\x4d\0\0\0\0\0\0\0\2\0\0\0\3\0\0\0", 32),
	   "PREPARE begins with header, what is there, choices");
	ok(a.data[94] == 1 && a.data[95] == 4 && a.data[107] == 2 && a.data[115] == 5,
	   "its tokens begin at 115");
	buf_release(&a);
	wire_sample(WIRE_HELLO, &m);
	a = encode(&m);
	ok(a.len == 96 + 84 && a.data[92] == 3 && a.data[68] == 64, "HELLO has its bytes");
	buf_release(&a);
	wire_sample(WIRE_WINDOW, &m);
	a = encode(&m);
	ok(a.len == 48 + 72 && a.data[48 + 12] == 3, "WINDOW has its bytes");
	buf_release(&a);
	wire_sample(WIRE_STATUS, &m);
	a = encode(&m);
	ok(a.len == 56 + 2 * 176 && a.data[56] == 11, "STATUS has its bytes");
	buf_release(&a);
	wire_sample(WIRE_PING, &m);
	a = encode(&m);
	ok(a.len == 32 && a.data[24] == 3, "PING has its bytes");
	buf_release(&a);
	wire_sample(WIRE_PONG, &m);
	a = encode(&m);
	ok(a.len == 50 + 32 && a.data[50] == 1, "PONG has its bytes");
	buf_release(&a);
	wire_sample(WIRE_PEERS, &m);
	a = encode(&m);
	ok(a.len == 28 + 512 && !memcmp(a.data + 28 + 64, "tcp://10", 8), "PEERS has its bytes");
	buf_release(&a);
}

/* ---- refused frames ---- */

TEST(header)
{
	struct wire_message m, back = {.type = 99};
	struct err e = {0};
	struct buf a;

	wire_sample(WIRE_ABORT, &m);
	a = encode(&m);
	a.data[4] = 1;
	is_int(wire_parse(a.data, a.len, &back, &e), -EPROTONOSUPPORT, "another version");
	is_str(e.text, "the peer speaks version 1 of the transfer protocol, not 3", "says which");
	is_int(wire_delivery(a.data, a.len), 0, "and has no delivery that is known");
	a.data[4] = 3;
	a.data[0] = 'X';
	is_int(wire_parse(a.data, a.len, &back, &e), -EBADMSG, "another magic");
	a.data[0] = 'T';
	a.data[6] = 12;
	is_int(wire_parse(a.data, a.len, &back, &e), -EBADMSG, "an unknown type");
	a.data[6] = WIRE_ABORT;
	a.data[12] = 1;
	is_int(wire_parse(a.data, a.len, &back, &e), -EBADMSG, "a damaged header");
	a.data[12] = 0;
	a.data[16] = 0;
	is_int(wire_parse(a.data, a.len, &back, &e), -EBADMSG, "an ABORT of no delivery");
	a.data[16] = 9;
	a.data[6] = WIRE_LIST;
	is_int(wire_parse(a.data, a.len, &back, &e), -EBADMSG, "a LIST in a delivery");
	is_int(back.type, 99, "nothing was written");
	a.data[6] = WIRE_STATUS;
	ok(wire_parse(a.data, a.len, &back, &e) < 0 && wire_delivery(a.data, a.len) == 9,
	   "the delivery of what does not parse is known");
	buf_release(&a);
}

/* Checks that the encoder refuses a message with this text, and writes nothing. */
static void refused(struct wire_message m, const char *text)
{
	struct err e = {0};
	struct buf out;

	buf_init(&out, WIRE_FRAME_MAX);
	if (!ok(wire_encode(&m, &out, &e) == -EINVAL && strstr(e.text, text) && !out.len &&
			e.code == EINVAL,
		"refused: %s", text))
		printf("#   got %s\n", e.text);
	buf_release(&out);
}

TEST(ranges)
{
	struct wire_message m;
	struct wire_layer layers[3];
	struct wire_run runs[3];
	struct wire_i32 tokens[4];
	struct wire_u32 boundaries[2] = {{4}, {4}};
	struct wire_bias biases[2] = {{9, 1}, {9, 2}};
	struct wire_draw draw = {{.token = -1}};
	struct wire_peer peer = sample_peers[0];

#define CHANGED(type, change, text)    \
	do {                           \
		wire_sample(type, &m); \
		change;                \
		refused(m, text);      \
	} while (0)
	CHANGED(WIRE_ABORT, m.type = 12, "unknown");
	CHANGED(WIRE_ABORT, m.delivery = 0, "no delivery");
	CHANGED(WIRE_LIST, m.delivery = 1, "a delivery");
	CHANGED(WIRE_HELLO, m.hello.role = 2, "HELLO: role is 2, not from 0 to 1");
	CHANGED(WIRE_HELLO, m.hello.layout.page_tokens = 0, "page_tokens is 0");
	CHANGED(WIRE_HELLO, m.hello.heartbeat_ms = 0, "heartbeat_ms is 0, not from 1 to 600000");
	CHANGED(WIRE_HELLO, m.hello.heartbeat_ms = 600001, "heartbeat_ms is 600001");
	CHANGED(WIRE_HELLO, m.hello.layout.page_bytes++,
		"a page has 1793 bytes, but its layers have 1792");
	CHANGED(WIRE_HELLO, m.hello.layout.slot_bytes = 0,
		"a state has 0 bytes, but its layers have 4192");
	CHANGED(WIRE_HELLO, m.hello.layout.n_layers = 1025, "n_layers is 1025");
	memcpy(layers, sample_layers, sizeof(layers));
	layers[1].in_states = 7;
	CHANGED(WIRE_HELLO, m.hello.layout.layers = layers,
		"layer 1 has 2 parts, but states of more");
	layers[1].in_states = 3;
	layers[2].part_bytes[1] = UINT64_MAX - 511;
	CHANGED(WIRE_HELLO, m.hello.layout.layers = layers, "part 1 of layer 2 has");
	layers[2].part_bytes[1] = 0;
	layers[2].part_bytes[2] = 256;
	CHANGED(WIRE_HELLO, m.hello.layout.layers = layers, "layer 2 has part 2, but no part 1");
	CHANGED(WIRE_REFUSE, m.refuse.code = 0, "code is 0");
	CHANGED(WIRE_REFUSE, m.refuse.n_text = 0, "n_text is 0");
	CHANGED(WIRE_PREPARE, m.prepare.n_have = 4, "of 4 tokens 4 are there");
	CHANGED(WIRE_PREPARE, m.prepare.n_choices = 0, "n_choices is 0, not from 1 to 1024");
	CHANGED(WIRE_PREPARE, m.prepare.sampling.temperature = NAN, "temperature is");
	CHANGED(WIRE_PREPARE, m.prepare.sampling.temperature = 1e-9f, "too small");
	CHANGED(WIRE_PREPARE, m.prepare.sampling.top_p = 0, "top_p is 0");
	CHANGED(WIRE_PREPARE, m.prepare.sampling.repetition_penalty = INFINITY,
		"repetition_penalty is inf");
	CHANGED(WIRE_PREPARE, m.prepare.sampling.top_k = -1, "top_k is 4294967295");
	CHANGED(WIRE_PREPARE, m.prepare.sampling.n_logprobs = 21, "n_logprobs is 21");
	CHANGED(WIRE_PREPARE, m.prepare.cache_disabled = 2, "cache_disabled is 2");
	CHANGED(WIRE_PREPARE, m.prepare.n_end_tokens = 513,
		"n_end_tokens is 513, not from 0 to 512");
	memcpy(tokens, sample_tokens, sizeof(tokens));
	tokens[3].v = -1;
	CHANGED(WIRE_PREPARE, m.prepare.tokens = tokens, "tokens[3] is -1");
	CHANGED(WIRE_PREPARE, m.prepare.boundaries = boundaries, "boundaries[1] is 4, behind 4");
	CHANGED(WIRE_PREPARE, m.prepare.n_biases = 1025, "n_biases is 1025, not from 0 to 1024");
	CHANGED(WIRE_PREPARE, m.prepare.biases = biases, "biases[1] is of token 9, and not rising");
	biases[1] = (struct wire_bias){10, INFINITY};
	CHANGED(WIRE_PREPARE, m.prepare.biases = biases, "it is not finite");
	CHANGED(WIRE_WINDOW, m.window.n_runs = 0, "n_runs is 0");
	CHANGED(WIRE_WINDOW, m.window.n_layers = 1, "run 2 is of layer 1, not of 0 to 0");
	CHANGED(WIRE_WINDOW, m.window.first_layer = 1023, "2 layers from 1023 on");
	memcpy(runs, sample_runs, sizeof(runs));
	runs[0].part = 3;
	CHANGED(WIRE_WINDOW, m.window.runs = runs, "run 0 has part 3");
	runs[0].part = 0;
	runs[0].first = UINT32_MAX;
	CHANGED(WIRE_WINDOW, m.window.runs = runs, "run 0 has 2 pages from 4294967295 on");
	runs[0].first = 3;
	runs[0].bytes = UINT64_MAX;
	CHANGED(WIRE_WINDOW, m.window.runs = runs, "run 0 has 18446744073709551615 bytes");
	CHANGED(WIRE_STATUS, m.status.status = 6, "status is 6");
	CHANGED(WIRE_STATUS, m.status.status = DELIVERY_FAILED, "status Failed has code 0");
	CHANGED(WIRE_STATUS, m.status.code = 5, "status Success has code 5");
	CHANGED(WIRE_STATUS, m.status.status = DELIVERY_TRANSFERRING, "counts WINDOWs");
	CHANGED(WIRE_STATUS, (m.status = (struct wire_status){.n_draws = 1, .draws = sample_draws}),
		"status Bootstrapping has 1 draws");
	CHANGED(WIRE_STATUS, (m.status.n_draws = 1, m.status.draws = &draw), "draw 0 has no token");
	draw.v = (struct draw_result){.token = 1, .logprob = NAN};
	CHANGED(WIRE_STATUS, (m.status.n_draws = 1, m.status.draws = &draw), "draw 0 has no token");
	draw.v = (struct draw_result){.token = 1, .n_top = 21};
	CHANGED(WIRE_STATUS, (m.status.n_draws = 1, m.status.draws = &draw), "draw 0 has no token");
	draw.v = (struct draw_result){.token = 1, .rank = 1};
	CHANGED(WIRE_STATUS, (m.status.n_draws = 1, m.status.draws = &draw),
		"draw 0 has rank 1, as only a scored token has");
	CHANGED(WIRE_PONG, m.pong.n_keys = WIRE_KEYS_MAX + 1, "n_keys is 4097");
	peer.endpoint[0] = 0;
	CHANGED(WIRE_ANNOUNCE, m.announce.peer = peer, "an endpoint is no text");
	memset(peer.endpoint, 'x', sizeof(peer.endpoint));
	CHANGED(WIRE_ANNOUNCE, m.announce.peer = peer, "an endpoint is no text");
	peer = sample_peers[0];
	peer.endpoint[40] = 'x';
	CHANGED(WIRE_PEERS, (m.peers.n_peers = 1, m.peers.peers = &peer), "an endpoint is no text");
	peer = sample_peers[0];
	peer.endpoint[3] = '\n';
	CHANGED(WIRE_PEERS, (m.peers.n_peers = 1, m.peers.peers = &peer), "an endpoint is no text");
#undef CHANGED
}

/* Frames in which up to three bits are changed: each is refused, or encodes to the same bytes again. */
TEST(damaged)
{
	struct wire_message m, back;
	int taken = 0, n = 0;

	for (int round = 0; round < 20000; round++) {
		struct buf a, b;
		uint8_t *frame;
		size_t n_changed = 1 + random_below(3);
		struct err e = {0};

		wire_sample(1 + (int)random_below(11), &m);
		a = encode(&m);
		frame = exact(a.data, a.len);
		while (n_changed--)
			frame[random_below(a.len)] ^= (uint8_t)(1u << random_below(8));
		n++;
		if (wire_parse(frame, a.len, &back, &e) == 0) {
			taken++;
			b = encode(&back);
			check(b.len == a.len && !memcmp(frame, b.data, a.len));
			buf_release(&b);
		} else {
			check(e.text[0]);
		}
		buf_release(&a);
		free(frame);
	}
	ok_all("%d of %d damaged frames parse, and are the same again", taken, n);
	ok(taken > n / 10 && taken < n, "some of both");
}

TEST(full_buffer)
{
	struct wire_message m;
	struct err e = {0};
	struct buf out;

	wire_sample(WIRE_PEERS, &m);
	buf_init(&out, 100);
	buf_puts(&out, "before");
	is_int(wire_encode(&m, &out, &e), -ENOBUFS, "a buffer that is too small");
	ok(out.len == 6 && !out.failed && e.code == ENOBUFS, "stays as it was");
	buf_release(&out);
}

/* ---- the raw frame of a WINDOW, and the HELLOs of two workers ---- */

TEST(fits)
{
	struct wire_message m;
	struct err e = {0};

	wire_sample(WIRE_WINDOW, &m);
	is_int(wire_window_bytes(&m.window), 6144, "bytes of all runs");
	is_int(wire_window_fits(&m.window, 6144, &e), 0, "a frame of as many");
	is_int(wire_window_fits(&m.window, 6145, &e), -EBADMSG, "one too many");
	is_int(wire_window_fits(&m.window, 0, &e), -EBADMSG, "none");
	is_int(wire_window_fits(&m.window, 6143, &e), -EBADMSG, "one too few");
	is_str(e.text, "WINDOW: 6143 bytes came, but its runs have 6144", "says so");
}

TEST(equal)
{
	struct wire_message a, b;
	struct wire_layer layers[3];
	struct err e = {0};

	wire_sample(WIRE_HELLO, &a);
	wire_sample(WIRE_HELLO, &b);
	memcpy(layers, sample_layers, sizeof(layers));
	b.hello.layout.layers = layers;
	b.hello.worker[0] = 200;
	b.hello.n_pages = 5;
	b.hello.role = WIRE_PREFILL;
	ok(wire_hello_fits(&a.hello, &b.hello, &e), "workers of one model");
	b.hello.model[15] = 1;
	ok(!wire_hello_fits(&a.hello, &b.hello, &e) && strstr(e.text, "model is another one"),
	   "another model: %s", e.text);
	b.hello.layout.page_tokens = 128;
	ok(!wire_hello_fits(&a.hello, &b.hello, &e), "other pages");
	is_str(e.text,
	       "the layout is another one: tokens of a page are 64 at the decode worker, 128 at the prefill worker; --page-size has to be the same",
	       "says so, before that the model is another one");
	b.hello.layout.page_tokens = 64;
	layers[1].part_bytes[1] = 2048;
	ok(!wire_hello_fits(&a.hello, &b.hello, &e), "another state");
	is_str(e.text,
	       "the layout is another one: bytes of part 1 of layer 1's states are 4096 at the decode worker, 2048 at the prefill worker; --dtype and --kv-dtype have to be the same, and the model",
	       "says of which layer");
	layers[1].in_states = 2;
	ok(!wire_hello_fits(&a.hello, &b.hello, &e), "another kind");
	is_str(e.text,
	       "the layout is another one: part 0 of layer 1 is kept in states at the decode worker, in pages at the prefill worker",
	       "says so");
	b.hello.layout.n_layers = 2;
	ok(!wire_hello_fits(&a.hello, &b.hello, &e) &&
		   strstr(e.text, "layers are 3 at the decode worker, 2 at"),
	   "other layers: %s", e.text);
}

TEST(text)
{
	char out[8];

	wire_text("a\nb\x80"
		  "c",
		  5, out, sizeof(out));
	is_str(out, "a?b?c", "what is not printable");
	wire_text("0123456789", 10, out, sizeof(out));
	is_str(out, "0123456", "what is too long");
	is_str(delivery_status_name(DELIVERY_WAITING_FOR_INPUT), "WaitingForInput",
	       "a status has a name");
	is_str(wire_type_name(WIRE_PONG), "PONG", "so has a type");
	is_str(wire_type_name((enum wire_type)12), "?", "one that there is not has none");
}

TEST_MAIN()
