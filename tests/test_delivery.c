/* Deliveries: single ones step by step, what makes them fail, and many random ones, compared with a naive model. */
#include <errno.h>
#include <stdlib.h>

#include "protocol/transfer/delivery.h"
#include "tests/random.h"
#include "tests/tap.h"

#define SECOND ((uint64_t)1000000000)

/* ---- a layout: layers with two parts in pages, two in states, two in pages; 64 tokens a page ---- */

static const struct wire_layer layers[] = {{{100, 50}, 0}, {{7, 1000}, 3}, {{10, 20}, 0}};
static const struct wire_layout layout = {180, 1007, 64, 3, layers};

static struct delivery *receiver(uint32_t n_prompt, uint32_t n_have, uint32_t n_choices)
{
	struct err e = {0};
	struct delivery *r = NULL;

	if (delivery_new_receiver(5, &layout, n_prompt, n_have, n_choices, 0, &r, &e) < 0)
		printf("# %s\n", e.text);
	return r;
}

/* Makes a receiver that waits for its data. */
static struct delivery *waiting(uint32_t n_prompt, uint32_t n_have, uint32_t n_choices)
{
	struct delivery *r = receiver(n_prompt, n_have, n_choices);

	delivery_raise(r, DELIVERY_BOOTSTRAPPED, 0);
	delivery_raise(r, DELIVERY_WAITING_FOR_INPUT, 0);
	return r;
}

static struct wire_run run(uint32_t layer, uint32_t part, uint32_t first, uint32_t n)
{
	return (struct wire_run){layers[layer].part_bytes[part] * n, layer, first, n, part};
}

static int receive(struct delivery *r, uint32_t sequence, struct wire_run p, struct err *e)
{
	struct wire_window w = {.sequence = sequence, .n_layers = 3, .n_runs = 1, .runs = &p};

	return delivery_receive(r, &w, SECOND, e);
}

static const struct wire_draw two_draws[] = {{{.token = 3}}, {{.token = 4, .logprob = -1}}};

static struct wire_status success(const struct delivery *r, uint32_t n_windows, uint32_t n_draws)
{
	struct delivery_counts c;

	delivery_counts(r, &c);
	return (struct wire_status){.status = DELIVERY_SUCCESS,
				    .n_windows = n_windows,
				    .total_bytes = c.expected_bytes,
				    .n_draws = n_draws,
				    .draws = two_draws};
}

/* ---- one delivery after the other ---- */

TEST(patience)
{
	struct delivery *r = waiting(130, 0, 1);

	ok(delivery_deadline(r) == 300 * SECOND, "a receiver waits for 300 s");
	delivery_set_patience(r, 10 * SECOND);
	ok(delivery_deadline(r) == 10 * SECOND, "or as long as its prompt should take");
	delivery_set_patience(r, 5 * SECOND);
	ok(delivery_deadline(r) == 10 * SECOND, "never shorter than it was told before");
	delivery_wait_anew(r, 7 * SECOND);
	ok(delivery_deadline(r) == 17 * SECOND && delivery_waits_since(r) == 7 * SECOND,
	   "it waits anew when this worker was stopped");
	ok(!delivery_tick(r, 17 * SECOND - 1) && delivery_tick(r, 17 * SECOND), "then it fails");
	is_str(delivery_error(r)->text, "nothing came from the prefill worker for 10 s",
	       "and says why");
	delivery_wait_anew(r, 30 * SECOND);
	ok(delivery_waits_since(r) == 17 * SECOND, "one that has ended does not wait");
	delivery_free(r);
	r = waiting(130, 0, 1);
	delivery_set_patience(r, UINT64_MAX);
	ok(delivery_deadline(r) == 300 * SECOND, "300 s are the most");
	ok(!delivery_drags(r, 4 * 3600 * SECOND - 1) && delivery_drags(r, 4 * 3600 * SECOND),
	   "for all of a prompt that should take long, 4 hours");
	delivery_free(r);
}

TEST(whole)
{
	struct delivery *r = waiting(130, 0, 1);
	uint64_t now = 0;

	delivery_set_patience(r, 10 * SECOND);
	check(delivery_deadline(r) == 10 * SECOND && !delivery_drags(r, 10 * SECOND));
	for (uint32_t i = 0; i < 8; i++) {
		const struct wire_run piece = run(i < 6 ? 0 : 2, i / 3 % 2, i % 3, 1);
		const struct wire_window w = {.sequence = i,
					      .n_layers = 3,
					      .n_runs = 1,
					      .runs = &piece};
		struct err e = {0};

		now += 9 * SECOND;
		check(!delivery_tick(r, now));
		check(delivery_receive(r, &w, now, &e) == DELIVERY_TAKEN);
	}
	ok_all("each piece comes within the patience");
	ok(delivery_deadline(r) == 80 * SECOND, "but all of it has to come in eight times that");
	ok(!delivery_drags(r, 80 * SECOND - 1) && delivery_drags(r, 80 * SECOND), "else it drags");
	delivery_wait_anew(r, 74 * SECOND);
	ok(delivery_deadline(r) == 82 * SECOND, "a stop of this worker does not count");
	ok(!delivery_tick(r, 82 * SECOND - 1) && delivery_tick(r, 82 * SECOND), "then it fails");
	is_str(delivery_error(r)->text, "the prefill worker did not send all of it in 80 s",
	       "and says why");
	ok(!delivery_drags(r, 90 * SECOND), "one that has ended does not drag");
	delivery_free(r);
}

TEST(way)
{
	struct delivery *r = receiver(130, 64, 2), *s;
	struct wire_i32 tokens[130] = {{0}};
	struct wire_prepare p = {.tokens = tokens, .n_tokens = 130, .n_have = 64, .n_choices = 2};
	struct wire_run a[] = {run(0, 0, 1, 2), run(0, 1, 1, 2)};
	struct wire_run b[] = {run(1, 0, 0, 1), run(1, 1, 0, 1), run(2, 0, 1, 1),
			       run(2, 1, 1, 1), run(2, 0, 2, 1), run(2, 1, 2, 1)};
	struct wire_window first = {.sequence = 9, .n_layers = 1, .n_runs = 2, .runs = a};
	struct wire_window second = {
		.sequence = 9, .first_layer = 1, .n_layers = 2, .n_runs = 6, .runs = b};
	struct draw_result draws[2] = {{.token = 3}, {.token = 4}};
	struct wire_status status;
	struct delivery_counts c;
	struct err e = {0};

	is_int(delivery_new_sender(5, &layout, 0, &s, &e), 0, "a sender");
	is_int(delivery_status(r), DELIVERY_BOOTSTRAPPING, "begins at Bootstrapping");
	delivery_raise(r, DELIVERY_WAITING_FOR_INPUT, 0);
	delivery_raise(r, DELIVERY_BOOTSTRAPPED, 0);
	is_int(delivery_status(r), DELIVERY_WAITING_FOR_INPUT, "the status only rises");
	delivery_counts(r, &c);
	is_int(c.expected_bytes, 2 * 180 + 1007, "the bytes of two pages and a state are awaited");
	is_int(delivery_prepare(s, &p, 0, &e), DELIVERY_TAKEN, "PREPARE comes");
	is_int(delivery_prepare(s, &p, 0, &e), DELIVERY_IGNORED, "a second one is ignored");
	is_int(delivery_status(s), DELIVERY_BOOTSTRAPPED, "Bootstrapped");
	delivery_raise(s, DELIVERY_WAITING_FOR_INPUT, 0);
	is_int(delivery_send(s, &first, SECOND, &e), 0, "the first window goes");
	is_int(delivery_finish(s, 64, SECOND, &status), -EAGAIN, "no success without data");
	is_int(delivery_send(s, &second, SECOND, &e), 0, "the second one");
	ok(first.sequence == 0 && second.sequence == 1, "they have numbers");
	is_int(delivery_finish(s, 64, SECOND, &status), -EAGAIN, "no success without the tokens");
	is_int(delivery_draw(s, draws, 2, SECOND, &e), 0, "the tokens are drawn");
	is_int(delivery_finish(s, 64, SECOND, &status), 0, "now there is");
	is_int(delivery_finish(s, 64, SECOND, &status), -EALREADY, "once");
	ok(status.n_windows == 2 && status.total_bytes == c.expected_bytes && status.n_draws == 2,
	   "the status counts");
	is_int(delivery_status(s), DELIVERY_TRANSFERRING, "it is not out yet");
	for (int i = 0; i < 3; i++)
		delivery_sent(s, SECOND);
	is_int(delivery_status(s), DELIVERY_SUCCESS, "now it is");

	is_int(delivery_receive(r, &first, SECOND, &e), DELIVERY_TAKEN, "the first window comes");
	is_int(delivery_status(r), DELIVERY_TRANSFERRING, "Transferring");
	is_int(delivery_receive(r, &first, SECOND, &e), DELIVERY_IGNORED, "twice: ignored");
	is_int(delivery_hear(r, &status, SECOND, &e), DELIVERY_TAKEN,
	       "the status comes before the last data");
	is_int(delivery_status(r), DELIVERY_TRANSFERRING, "so it is no success yet");
	is_int(delivery_receive(r, &second, SECOND, &e), DELIVERY_TAKEN, "the last window comes");
	is_int(delivery_status(r), DELIVERY_SUCCESS, "Success");
	delivery_counts(r, &c);
	ok(c.bytes == c.expected_bytes && c.windows == 2 && c.n_cached == 64, "all counted");
	is_int(delivery_draws(r)[1].token, 4, "with the tokens");
	is_int(delivery_receive(r, &second, SECOND, &e), DELIVERY_IGNORED,
	       "late windows are ignored");
	delivery_fail(r, SECOND, EIO, "too late");
	is_int(delivery_status(r), DELIVERY_SUCCESS, "success stays");
	ok(!delivery_error(r)->code, "without an error");
	delivery_free(r);
	delivery_free(s);
}

/* Checks that a delivery has failed with this code and sentence, stays failed, and ignores later messages. got: the
 * result of the call that made it fail. */
static void failed(struct delivery *r, int got, int code, const char *text)
{
	struct wire_status status;

	if (!ok(got == -code && delivery_status(r) == DELIVERY_FAILED &&
			delivery_error(r)->code == code && strstr(delivery_error(r)->text, text),
		"fails: %s", text))
		printf("#   got %d, %s\n", got, delivery_error(r)->text);
	delivery_failed_status(r, &status);
	check(status.status == DELIVERY_FAILED && status.code == (uint32_t)code &&
	      status.n_text == strlen(delivery_error(r)->text));
	check(receive(r, 0, run(0, 0, 0, 1), NULL) == DELIVERY_IGNORED);
	check(delivery_hear(r, &status, 0, NULL) == DELIVERY_IGNORED);
	check(!delivery_tick(r, UINT64_MAX) && delivery_deadline(r) == UINT64_MAX);
	delivery_raise(r, DELIVERY_WAITING_FOR_INPUT, 0);
	delivery_fail(r, 0, ENOENT, "another reason");
	check(delivery_status(r) == DELIVERY_FAILED && delivery_error(r)->code == code);
	delivery_free(r);
}

TEST(wrong_windows)
{
	struct err e = {0};
	struct delivery *r = receiver(128, 0, 1);
	struct wire_run p = run(0, 0, 0, 1);

	failed(r, receive(r, 0, p, &e), EPROTO, "before it was asked for");
	r = waiting(128, 64, 1);
	failed(r, receive(r, 0, p, &e), EPROTO, "1 pages from 0 on, but 1 from 1 on");
	r = waiting(128, 0, 1);
	failed(r, receive(r, 0, run(0, 0, 1, 2), &e), EPROTO, "2 pages from 1 on");
	r = waiting(128, 0, 1);
	failed(r, receive(r, 0, run(0, 2, 0, 1), &e), EPROTO, "part 2 of layer 0");
	r = waiting(128, 0, 1);
	failed(r, receive(r, 0, run(1, 0, 0, 2), &e), EPROTO, "2 pages from 0 on, but 1 from 0 on");
	r = waiting(128, 0, 1);
	p.layer = 3;
	failed(r, receive(r, 0, p, &e), EPROTO, "layer 3 of 3");
	r = waiting(128, 0, 1);
	p.layer = 0;
	p.bytes++;
	failed(r, receive(r, 0, p, &e), EPROTO, "101 bytes for 1 times 100");
	r = waiting(128, 0, 1);
	failed(r, receive(r, 10, run(0, 0, 0, 1), &e), EPROTO, "WINDOW 10 came, but there are 10");
	r = waiting(128, 0, 1);
	is_int(receive(r, 0, run(0, 0, 0, 2), &e), DELIVERY_TAKEN, "two pages");
	failed(r, receive(r, 1, run(0, 0, 1, 1), &e), EPROTO,
	       "part 0 of layer 0, page 1, came twice");
	ok_all("failed deliveries stay failed and ignore what comes");
}

TEST(wrong_statuses)
{
	struct err e = {0};
	struct delivery *r = receiver(64, 0, 2);
	struct wire_status s = success(r, 6, 2);

	failed(r, delivery_hear(r, &s, 0, &e), EPROTO, "before anything was asked for");
	r = waiting(64, 0, 2);
	s.total_bytes++;
	failed(r, delivery_hear(r, &s, 0, &e), EPROTO, "sent 1188 bytes, but 1187");
	r = waiting(64, 0, 1);
	s = success(r, 6, 2);
	failed(r, delivery_hear(r, &s, 0, &e), EPROTO, "2 tokens came for 1 choices");
	r = waiting(64, 0, 2);
	s.n_cached = 65;
	failed(r, delivery_hear(r, &s, 0, &e), EPROTO, "of 64 tokens 65 were cached");
	r = waiting(64, 0, 2);
	s = success(r, 0, 2);
	failed(r, delivery_hear(r, &s, 0, &e), EPROTO, "of 0 WINDOWs 0 came, with 0 of 1187 bytes");
	r = waiting(64, 0, 2);
	s = success(r, 1, 2);
	is_int(delivery_hear(r, &s, 0, &e), DELIVERY_TAKEN, "one window is announced");
	failed(r, receive(r, 0, run(0, 0, 0, 1), &e), EPROTO,
	       "of 1 WINDOWs 1 came, with 100 of 1187");
	r = waiting(64, 0, 2);
	s = success(r, 2, 2);
	is_int(receive(r, 2, run(0, 0, 0, 1), &e), DELIVERY_TAKEN, "window 2 comes");
	failed(r, delivery_hear(r, &s, 0, &e), EPROTO, "of 2 WINDOWs number 2 came");
	r = waiting(64, 0, 2);
	s = (struct wire_status){.status = DELIVERY_FAILED,
				 .code = ENOSPC,
				 .n_text = 4,
				 .text = "fu\nl"};
	failed(r, delivery_hear(r, &s, 0, &e), ENOSPC, "it says: fu?l");
	ok_all("failed deliveries stay failed");
}

/* The first tokens are taken from an old status, too; an old status without new tokens is ignored. */
TEST(orders)
{
	struct err e = {0};
	struct delivery *r = waiting(64, 0, 2);
	struct wire_status s = success(r, 6, 0);
	struct wire_status told = {.status = DELIVERY_TRANSFERRING,
				   .n_draws = 2,
				   .draws = two_draws};
	struct wire_status old = {.status = DELIVERY_WAITING_FOR_INPUT};

	is_int(delivery_hear(r, &old, 0, &e), DELIVERY_TAKEN, "a status that rises");
	is_int(delivery_hear(r, &old, 0, &e), DELIVERY_IGNORED, "one that does not");
	is_int(delivery_hear(r, &s, 0, &e), DELIVERY_TAKEN, "success without tokens");
	is_int(receive(r, 5, run(1, 1, 0, 1), &e), DELIVERY_TAKEN, "the state first");
	is_int(receive(r, 1, run(1, 0, 0, 1), &e), DELIVERY_TAKEN, "and so on, backwards");
	is_int(receive(r, 0, run(2, 1, 0, 1), &e), DELIVERY_TAKEN, "and so on");
	is_int(receive(r, 4, run(2, 0, 0, 1), &e), DELIVERY_TAKEN, "and so on");
	is_int(receive(r, 3, run(0, 1, 0, 1), &e), DELIVERY_TAKEN, "and so on");
	is_int(receive(r, 2, run(0, 0, 0, 1), &e), DELIVERY_TAKEN, "all data");
	is_int(delivery_status(r), DELIVERY_TRANSFERRING, "no tokens, no success");
	is_int(delivery_hear(r, &old, 0, &e), DELIVERY_IGNORED, "an old status");
	is_int(delivery_hear(r, &told, 0, &e), DELIVERY_TAKEN, "the tokens");
	is_int(delivery_status(r), DELIVERY_SUCCESS, "success");
	is_int(delivery_draws(r)[0].token, 3, "with the tokens");
	delivery_free(r);
}

TEST(sender)
{
	struct delivery *s;
	struct wire_prepare p = {.n_tokens = 128, .n_have = 32, .n_choices = 1};
	struct wire_run k = run(0, 0, 0, 1);
	struct wire_window w = {.n_layers = 1, .n_runs = 1, .runs = &k};
	struct draw_result draw = {.token = 1};
	struct err e = {0};
	int got;

	check(delivery_new_sender(5, &layout, 0, &s, &e) == 0);
	got = delivery_prepare(s, &p, 0, &e);
	is_str(e.text, "32 tokens are no whole pages of 64", "PREPARE of half a page");
	failed(s, got, EINVAL, "no whole pages");
	p.n_have = 64;
	check(delivery_new_sender(5, &layout, 0, &s, &e) == 0);
	delivery_fail(s, 0, ECANCELED, "the peer gave up");
	got = delivery_prepare(s, &p, 0, &e);
	is_str(e.text, "the peer gave up", "a late PREPARE for a failed delivery hears so");
	failed(s, got, ECANCELED, "the peer gave up");
	check(delivery_new_sender(5, &layout, 0, &s, &e) == 0);
	failed(s, delivery_send(s, &w, 0, &e), EPROTO, "nothing was asked for");
	check(delivery_new_sender(5, &layout, 0, &s, &e) == 0 &&
	      delivery_prepare(s, &p, 0, &e) == DELIVERY_TAKEN);
	failed(s, delivery_send(s, &w, 0, &e), EPROTO, "1 pages from 0 on");
	check(delivery_new_sender(5, &layout, 0, &s, &e) == 0 &&
	      delivery_prepare(s, &p, 0, &e) == DELIVERY_TAKEN);
	failed(s, delivery_draw(s, &draw, 2, 0, &e), EPROTO, "2 tokens were drawn for 1 choices");
	check(delivery_new_sender(5, &layout, 0, &s, &e) == 0 &&
	      delivery_prepare(s, &p, 0, &e) == DELIVERY_TAKEN);
	delivery_fail(s, 0, ECANCELED, "aborted");
	is_int(delivery_send(s, &w, 0, &e), -ECANCELED, "nothing goes after an abort");
	delivery_free(s);
	ok_all("senders");
	ok(delivery_new_receiver(1, &layout, 64, 64, 1, 0, &s, &e) == -EINVAL,
	   "nothing to receive");
	ok(delivery_new_receiver(1, &layout, 64, 0, 0, 0, &s, &e) == -EINVAL, "no choices");
}

TEST(times)
{
	struct delivery *r = receiver(64, 0, 1), *s;
	struct wire_i32 token = {1};
	struct wire_prepare p = {.n_tokens = 1, .tokens = &token, .n_choices = 1};
	struct wire_run k = run(0, 0, 0, 1);
	struct wire_window w = {.n_layers = 1, .n_runs = 1, .runs = &k};
	struct err e = {0};

	ok(!delivery_tick(r, 300 * SECOND - 1), "a receiver waits 300 s");
	delivery_raise(r, DELIVERY_WAITING_FOR_INPUT, 200 * SECOND);
	is_int(delivery_deadline(r), 500 * SECOND, "from when anything was new");
	is_int(receive(r, 0, k, &e), DELIVERY_TAKEN, "also data");
	is_int(delivery_deadline(r), 301 * SECOND, "(that came then)");
	ok(delivery_tick(r, 301 * SECOND) && !delivery_tick(r, 302 * SECOND),
	   "then it fails, once");
	is_str(delivery_error(r)->text, "nothing came from the prefill worker for 300 s",
	       "says so");
	delivery_free(r);

	check(delivery_new_sender(5, &layout, 0, &s, &e) == 0);
	check(delivery_prepare(s, &p, 100 * SECOND, &e) == DELIVERY_TAKEN);
	delivery_raise(s, DELIVERY_WAITING_FOR_INPUT, 100 * SECOND);
	ok(delivery_deadline(s) == UINT64_MAX && !delivery_tick(s, 5000 * SECOND),
	   "not for what it has to do itself");
	check(delivery_send(s, &w, 5000 * SECOND, &e) == 0);
	is_int(delivery_deadline(s), 5120 * SECOND, "and 120 s for its peer to take a window");
	k.layer = 2;
	k.bytes = 10;
	check(delivery_send(s, &w, 5100 * SECOND, &e) == 0);
	is_int(delivery_deadline(s), 5120 * SECOND, "that it has more changes nothing");
	delivery_sent(s, 5110 * SECOND);
	is_int(delivery_deadline(s), 5230 * SECOND, "that the peer takes does");
	delivery_sent(s, 5111 * SECOND);
	is_int(delivery_deadline(s), UINT64_MAX, "all taken");
	k.part = 1;
	k.bytes = 20;
	check(delivery_send(s, &w, 6000 * SECOND, &e) == 0);
	ok(delivery_tick(s, 6120 * SECOND), "a peer that takes nothing");
	is_str(delivery_error(s)->text, "the decode worker took nothing for 120 s", "says so");
	delivery_free(s);
	ok_all("times");
}

/* ---- beside a naive model ---- */

enum { LAYERS = 5, PAGES = 6, WINDOWS_MAX = WIRE_PARTS * LAYERS * PAGES + 8 };

/* Each piece that is awaited is an entry of `pieces`; the number of each WINDOW that came is in `sequences`. */
struct model {
	struct wire_layer layers[LAYERS];
	struct wire_layout layout;
	struct {
		uint32_t layer, part, page;
		bool came;
	} pieces[WIRE_PARTS * LAYERS * PAGES];
	uint32_t n_pieces;
	uint32_t sequences[WINDOWS_MAX];
	uint32_t n_sequences;
	uint64_t bytes, expected_bytes, progress, began;
	uint32_t n_prompt, n_have, n_choices;
	enum delivery_status status, heard;
	bool drawn;
	uint32_t announced;
};

static void model_new(struct model *m)
{
	uint32_t n_pages;

	memset(m, 0, sizeof(*m));
	m->layout.page_tokens = 4;
	m->layout.n_layers = 1 + (uint32_t)random_below(LAYERS);
	m->layout.layers = m->layers;
	m->n_prompt = 1 + (uint32_t)random_below(4 * PAGES);
	m->n_have = 4 * (uint32_t)random_below((m->n_prompt + 3) / 4);
	m->n_choices = 1 + (uint32_t)random_below(2);
	n_pages = (m->n_prompt + 3) / 4;
	for (uint32_t l = 0; l < m->layout.n_layers; l++) {
		/* Layer 0 has at least one part, so that there is something to send. */
		uint32_t least = l == 0, n = least + (uint32_t)random_below(WIRE_PARTS + 1 - least);
		struct wire_layer *layer = &m->layers[l];

		for (uint32_t part = 0; part < n; part++) {
			bool state = random_below(2);

			layer->part_bytes[part] = 1 + random_below(100);
			layer->in_states |= (uint32_t)state << part;
			*(state ? &m->layout.slot_bytes : &m->layout.page_bytes) +=
				layer->part_bytes[part];
			for (uint32_t page = state ? 0 : m->n_have / 4;
			     page < (state ? 1 : n_pages); page++) {
				m->pieces[m->n_pieces].layer = l;
				m->pieces[m->n_pieces].part = part;
				m->pieces[m->n_pieces++].page = page;
				m->expected_bytes += layer->part_bytes[part];
			}
		}
	}
}

static void model_settle(struct model *m)
{
	bool all = true;

	for (uint32_t i = 0; i < m->n_pieces; i++)
		all = all && m->pieces[i].came;
	if (m->heard != DELIVERY_SUCCESS)
		return;
	for (uint32_t i = 0; i < m->n_sequences; i++)
		if (m->sequences[i] >= m->announced)
			m->status = DELIVERY_FAILED;
	if (all ? m->n_sequences != m->announced : m->n_sequences == m->announced)
		m->status = DELIVERY_FAILED;
	if (m->status != DELIVERY_FAILED && all && m->drawn)
		m->status = DELIVERY_SUCCESS;
}

/* Takes one piece. False: it came before, or there is no such piece. */
static bool model_take(struct model *m, uint32_t layer, uint32_t part, uint32_t page)
{
	for (uint32_t i = 0; i < m->n_pieces; i++)
		if (m->pieces[i].layer == layer && m->pieces[i].part == part &&
		    m->pieces[i].page == page) {
			bool again = m->pieces[i].came;

			m->pieces[i].came = true;
			return !again;
		}
	return false;
}

/* Returns whether the WINDOW was taken. If the delivery fails, m->status says so. */
static bool model_receive(struct model *m, const struct wire_window *w, uint64_t now)
{
	if (m->status >= DELIVERY_SUCCESS)
		return false;
	if (m->status < DELIVERY_WAITING_FOR_INPUT || w->sequence >= m->n_pieces) {
		m->status = DELIVERY_FAILED;
		return false;
	}
	for (uint32_t i = 0; i < m->n_sequences; i++)
		if (m->sequences[i] == w->sequence)
			return false;
	m->sequences[m->n_sequences++] = w->sequence;
	for (uint32_t i = 0; i < w->n_runs; i++) {
		const struct wire_run *p = &w->runs[i];
		uint64_t bytes = 0;

		for (uint32_t page = p->first; page < p->first + p->n; page++) {
			if (!model_take(m, p->layer, p->part, page)) {
				m->status = DELIVERY_FAILED;
				return false;
			}
			bytes += m->layers[p->layer].part_bytes[p->part];
		}
		if (bytes != p->bytes) {
			m->status = DELIVERY_FAILED;
			return false;
		}
		m->bytes += bytes;
	}
	m->status = DELIVERY_TRANSFERRING;
	m->progress = now;
	model_settle(m);
	return m->status != DELIVERY_FAILED;
}

static bool model_hear(struct model *m, const struct wire_status *s, uint64_t now)
{
	bool draws = s->n_draws && !m->drawn;

	if (m->status >= DELIVERY_SUCCESS)
		return false;
	if (m->status < DELIVERY_WAITING_FOR_INPUT || s->status == DELIVERY_FAILED ||
	    (draws && s->n_draws != m->n_choices)) {
		m->status = DELIVERY_FAILED;
		return false;
	}
	if (s->status <= m->heard && !draws)
		return false;
	if (s->status == DELIVERY_SUCCESS && m->heard != DELIVERY_SUCCESS) {
		if (s->total_bytes != m->expected_bytes || s->n_cached > m->n_prompt) {
			m->status = DELIVERY_FAILED;
			return false;
		}
		m->announced = s->n_windows;
	}
	m->drawn = m->drawn || draws;
	if (s->status > m->heard)
		m->heard = s->status;
	if (s->status >= DELIVERY_TRANSFERRING)
		m->status = DELIVERY_TRANSFERRING;
	m->progress = now;
	model_settle(m);
	return m->status != DELIVERY_FAILED;
}

/* The WINDOWs of one delivery: its pieces in a random order, one to four in each WINDOW. */
struct cut {
	struct wire_run runs[WIRE_PARTS * LAYERS * PAGES];
	struct wire_window windows[WIRE_PARTS * LAYERS * PAGES];
	uint32_t n;
};

static void cut_windows(const struct model *m, struct cut *c)
{
	uint32_t order[WIRE_PARTS * LAYERS * PAGES], n_runs = 0;

	for (uint32_t i = 0; i < m->n_pieces; i++) {
		uint32_t k = (uint32_t)random_below(i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	c->n = 0;
	while (n_runs < m->n_pieces) {
		uint32_t n = 1 + (uint32_t)random_below(4);

		c->windows[c->n] = (struct wire_window){.sequence = c->n,
							.n_layers = m->layout.n_layers,
							.runs = c->runs + n_runs};
		for (; n-- && n_runs < m->n_pieces; n_runs++) {
			uint32_t i = order[n_runs];
			uint32_t layer = m->pieces[i].layer, part = m->pieces[i].part;

			c->runs[n_runs] = (struct wire_run){m->layers[layer].part_bytes[part],
							    layer, m->pieces[i].page, 1, part};
			c->windows[c->n].n_runs++;
		}
		c->n++;
	}
}

/* Changes a WINDOW and one of its runs as a faulty peer might. */
static void spoil(const struct model *m, struct wire_window *w, struct wire_run *p)
{
	switch (random_below(5)) {
	case 0: w->sequence = (uint32_t)random_below(m->n_pieces + 3); break;
	case 1: p->first += (uint32_t)random_below(3); break;
	case 2: p->n = 1 + (uint32_t)random_below(3); break;
	case 3: p->part = (uint32_t)random_below(WIRE_PARTS); break;
	default: p->bytes += random_below(2); break;
	}
	if (random_below(2))
		p->bytes = m->layers[p->layer].part_bytes[p->part] * p->n;
}

static void compare(const struct delivery *r, const struct model *m)
{
	struct delivery_counts c;

	delivery_counts(r, &c);
	check(delivery_status(r) == m->status);
	check(delivery_over(r) == (m->status >= DELIVERY_SUCCESS));
	check((delivery_error(r)->code != 0) == (m->status == DELIVERY_FAILED));
	check(c.expected_bytes == m->expected_bytes && c.expected_pieces == m->n_pieces);
	check((delivery_draws(r) != NULL) == m->drawn || m->status == DELIVERY_FAILED);
	if (m->status == DELIVERY_FAILED)
		return;
	check(c.bytes == m->bytes && c.windows == m->n_sequences);
	if (m->status == DELIVERY_SUCCESS)
		check(c.bytes == c.expected_bytes && c.pieces == c.expected_pieces && m->drawn);
	else
		check(delivery_deadline(r) ==
		      MIN(m->progress + DELIVERY_RECEIVE_TIMEOUT_NS,
			  m->began + DELIVERY_WHOLE * DELIVERY_RECEIVE_TIMEOUT_NS));
}

static void receive_random(struct delivery *r, struct model *m, const struct cut *c, uint32_t i,
			   bool spoilt, uint64_t now)
{
	struct wire_window w = c->windows[i];
	struct wire_run copy[4];
	struct err e = {0};
	bool taken;
	int got;

	memcpy(copy, w.runs, w.n_runs * sizeof(*copy));
	w.runs = copy;
	if (spoilt)
		spoil(m, &w, &copy[random_below(w.n_runs)]);
	taken = model_receive(m, &w, now);
	got = delivery_receive(r, &w, now, &e);
	check((got == DELIVERY_TAKEN) == taken);
	check(got >= 0 || (m->status == DELIVERY_FAILED && e.text[0]));
}

static void hear_random(struct delivery *r, struct model *m, uint32_t n_windows, bool spoilt,
			uint64_t now)
{
	struct wire_status s = {.status = (uint32_t)random_below(5)};
	struct err e = {0};
	bool taken;
	int got;

	if (random_below(2))
		s.status = DELIVERY_SUCCESS;
	if (s.status == DELIVERY_SUCCESS) {
		s.n_windows = n_windows + (spoilt && random_below(3) == 0);
		s.total_bytes = m->expected_bytes + (spoilt && random_below(3) == 0);
		s.n_cached = (uint32_t)random_below(m->n_prompt + 1 + spoilt);
	}
	if (s.status >= DELIVERY_TRANSFERRING && random_below(2))
		s.n_draws = spoilt ? 1 : m->n_choices;
	if (spoilt && random_below(4) == 0)
		s = (struct wire_status){.status = DELIVERY_FAILED,
					 .code = EIO,
					 .n_text = 1,
					 .text = "x"};
	s.draws = two_draws;
	taken = model_hear(m, &s, now);
	got = delivery_hear(r, &s, now, &e);
	check((got == DELIVERY_TAKEN) == taken);
	check(got >= 0 || (m->status == DELIVERY_FAILED && e.text[0]));
}

TEST(random)
{
	uint32_t n_events = 0, ends[6] = {0}, n_deliveries = 0, n_timeouts = 0;
	uint64_t now = 0;
	static struct model m;
	static struct cut c;

	while (n_events < 100000) {
		struct delivery *r = NULL;
		struct err e = {0};
		uint32_t next = 0, n_after = 0;
		bool wild = random_below(3) == 0;

		model_new(&m);
		cut_windows(&m, &c);
		m.progress = m.began = now;
		check(delivery_new_receiver(++n_deliveries, &m.layout, m.n_prompt, m.n_have,
					    m.n_choices, now, &r, &e) == 0);
		if (!r)
			break;
		/* The loop goes on for a few events after the delivery has ended. */
		while (n_after < 5 && n_events++ < 200000) {
			size_t what = random_below(20);
			bool spoilt = wild && random_below(20) == 0;

			now += random_below(SECOND);
			if (m.status < DELIVERY_WAITING_FOR_INPUT && (what || !wild)) {
				enum delivery_status to = what % 2 ? DELIVERY_BOOTSTRAPPED
								   : DELIVERY_WAITING_FOR_INPUT;

				delivery_raise(r, to, now);
				if (to > m.status) {
					m.status = to;
					m.progress = now;
				}
			} else if (what < 11 && next < c.n) {
				receive_random(r, &m, &c, next++, spoilt, now);
			} else if (what < 13) {
				receive_random(r, &m, &c, (uint32_t)random_below(c.n), spoilt, now);
			} else if (what < 18) {
				hear_random(r, &m, c.n, spoilt, now);
			} else if (what == 18 && wild && random_below(10) == 0) {
				delivery_fail(r, now, ECANCELED, "aborted");
				if (m.status < DELIVERY_SUCCESS)
					m.status = DELIVERY_FAILED;
			} else if (wild || random_below(30) == 0) {
				bool late;

				now += random_below(wild ? 400 : 310) * SECOND;
				late = m.status < DELIVERY_SUCCESS &&
				       (now - m.progress >= DELIVERY_RECEIVE_TIMEOUT_NS ||
					now - m.began >=
						DELIVERY_WHOLE * DELIVERY_RECEIVE_TIMEOUT_NS);
				if (late) {
					m.status = DELIVERY_FAILED;
					n_timeouts++;
				}
				check(delivery_tick(r, now) == late);
			}
			compare(r, &m);
			n_after += m.status >= DELIVERY_SUCCESS;
		}
		ends[m.status]++;
		delivery_free(r);
	}
	ok_all("%u random events in %u deliveries as in the model", n_events, n_deliveries);
	ok(ends[DELIVERY_SUCCESS] > n_deliveries / 3 && ends[DELIVERY_FAILED] > n_deliveries / 20 &&
		   n_timeouts > 10,
	   "%u succeed, %u fail, %u of them by time", ends[DELIVERY_SUCCESS], ends[DELIVERY_FAILED],
	   n_timeouts);
}

/* A sender and a receiver accept each other's messages, even if these arrive in another order and WINDOWs arrive
 * twice. */
TEST(pairs)
{
	uint32_t n_good = 0;
	static struct model m;
	static struct cut c;

	for (int round = 0; round < 2000; round++) {
		struct delivery *r = NULL, *s = NULL;
		struct wire_prepare p;
		struct wire_status status = {0};
		struct wire_i32 token = {0};
		uint32_t out[WINDOWS_MAX], n_out = 0;
		struct draw_result draws[2] = {{.token = 7}, {.token = 8}};

		model_new(&m);
		cut_windows(&m, &c);
		p = (struct wire_prepare){.tokens = &token,
					  .n_tokens = m.n_prompt,
					  .n_have = m.n_have,
					  .n_choices = m.n_choices};
		check(delivery_new_receiver(9, &m.layout, m.n_prompt, m.n_have, m.n_choices, 0, &r,
					    NULL) == 0);
		check(delivery_new_sender(9, &m.layout, 0, &s, NULL) == 0);
		if (!r || !s)
			break;
		delivery_raise(r, DELIVERY_WAITING_FOR_INPUT, 0);
		check(delivery_prepare(s, &p, 0, NULL) == DELIVERY_TAKEN);
		check(delivery_draw(s, draws, m.n_choices, 0, NULL) == 0);
		for (uint32_t i = 0; i < c.n; i++) {
			check(delivery_finish(s, 0, 0, &status) == -EAGAIN);
			check(delivery_send(s, &c.windows[i], 0, NULL) == 0);
			check(c.windows[i].sequence == i);
			out[n_out++] = i;
		}
		check(delivery_finish(s, 0, 0, &status) == 0);
		out[n_out++] = UINT32_MAX;
		for (uint32_t i = 0; i <= c.n; i++) {
			check(delivery_status(s) == DELIVERY_TRANSFERRING);
			delivery_sent(s, 0);
		}
		check(delivery_status(s) == DELIVERY_SUCCESS);
		while (n_out) {
			uint32_t k = (uint32_t)random_below(n_out), i = out[k];

			check(delivery_status(r) < DELIVERY_SUCCESS);
			if (i == UINT32_MAX)
				check(delivery_hear(r, &status, 0, NULL) == DELIVERY_TAKEN);
			else
				check(delivery_receive(r, &c.windows[i], 0, NULL) ==
				      DELIVERY_TAKEN);
			if (random_below(3) == 0 && i != UINT32_MAX)
				check(delivery_receive(r, &c.windows[i], 0, NULL) ==
				      DELIVERY_IGNORED);
			out[k] = out[--n_out];
		}
		n_good += delivery_status(r) == DELIVERY_SUCCESS && delivery_draws(r)[0].token == 7;
		delivery_free(r);
		delivery_free(s);
	}
	ok_all("what senders send receivers take, in any order");
	is_int(n_good, 2000, "all of them arrive");
}

TEST_MAIN()
