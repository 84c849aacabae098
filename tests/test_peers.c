/* The table of peers: heartbeats, cached pages, and the choice of a peer for a prompt; random events, compared with a
 * naive model; a table of full size. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "protocol/transfer/key_sets.h"
#include "protocol/transfer/peers.h"
#include "tests/random.h"
#include "tests/tap.h"

#define SECOND ((uint64_t)1000000000)

static const uint64_t seed[2] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9};

/* Returns key i of a prompt. Such keys are spread like hashes. */
static struct wire_key key(uint32_t prompt, uint32_t i)
{
	uint64_t v[2] = {(prompt + 1) * 0x9e3779b97f4a7c15u, (i + 1) * 0xd6e8feb86659fd93u};
	struct wire_key k;

	memcpy(k.bytes, v, sizeof(k.bytes));
	return k;
}

static void keys_of(uint32_t prompt, uint32_t n, struct wire_key *ret)
{
	for (uint32_t i = 0; i < n; i++)
		ret[i] = key(prompt, i);
}

enum { PAGE_TOKENS = 64 };

static struct wire_hello hello(uint8_t worker, uint32_t n_pages)
{
	return (struct wire_hello){.worker = {worker},
				   .n_pages = n_pages,
				   .layout.page_tokens = PAGE_TOKENS};
}

static uint32_t add(struct peers *p, const char *endpoint)
{
	uint32_t i = PEERS_MAX;
	struct err e = {0};

	check(peers_add(p, endpoint, 0, &i, &e) == 0);
	return i;
}

static struct peer_info info(const struct peers *p, uint32_t i)
{
	struct peer_info x;

	peers_get(p, i, &x);
	return x;
}

/* The prompt that was sent last. Prompts that are sent one after the other without a PING between them, and have equally
 * many tokens, are alike. */
static struct peers_prompt last;

static int sent(struct peers *p, uint32_t peer, const struct wire_key *keys, uint32_t n,
		uint64_t n_tokens)
{
	last = (struct peers_prompt){.n_tokens = n_tokens, .n_asked = n_tokens};
	return peers_sent(p, peer, keys, n, &last);
}

/* ---- the life of a peer ---- */

TEST(states)
{
	struct peers *p = peers_new(seed, 5 * SECOND);
	struct wire_hello h = hello(1, 100);
	struct wire_pong pong = {.queued_tokens = 7};
	uint32_t a = add(p, "tcp://a:1"), who = 99, cached;
	struct err e = {0};
	char name[300];

	is_int(add(p, "tcp://a:1"), a, "one endpoint is one peer");
	is_int(info(p, a).state, PEER_CONNECTING, "Connecting");
	is_int(peers_tick(p, 0, &who), PEERS_SAY_HELLO, "HELLO is due at once");
	is_int(peers_tick(p, SECOND - 1, &who), PEERS_NOTHING, "once");
	is_int(peers_deadline(p), SECOND, "until a second later");
	is_int(peers_tick(p, SECOND, &who), PEERS_SAY_HELLO, "then again");
	ok(!peers_choose(p, NULL, 0, 0, 0, &who, &cached), "it gets no prompts");
	ok(!peers_hello(p, a, &h, 6 * SECOND), "its HELLO comes");
	is_int(info(p, a).state, PEER_REGISTERED, "Registered");
	ok(peers_choose(p, NULL, 0, 0, 0, &who, &cached) && who == a, "it gets prompts");
	is_int(peers_tick(p, 11 * SECOND, &who), PEERS_SAY_PING, "after 5 s a PING");
	pong.sequence = info(p, a).sequence;
	is_int(peers_pong(p, a, &pong, 0), 0, "which is answered");
	is_int(info(p, a).load, 7, "with its load");
	is_int(peers_tick(p, 16 * SECOND, &who), PEERS_SAY_PING, "the next is not");
	is_int(peers_tick(p, 21 * SECOND, &who), PEERS_SAY_PING, "nor the one after");
	is_int(peers_tick(p, 26 * SECOND, &who), PEERS_DIED, "2 missed: Dead");
	is_int(info(p, a).state, PEER_DEAD, "it is");
	ok(!peers_choose(p, NULL, 0, 0, 0, &who, &cached), "it gets no prompts any more");
	is_int(peers_tick(p, 26 * SECOND, &who), PEERS_NOTHING, "said once");
	check(peers_pong(p, a, &pong, 0) == 0 && info(p, a).state == PEER_DEAD);
	is_int(peers_tick(p, 27 * SECOND, &who), PEERS_SAY_HELLO, "HELLO again");
	ok(!peers_hello(p, a, &h, 32 * SECOND) && info(p, a).state == PEER_REGISTERED,
	   "and it is back");
	ok(peers_lost(p, a, 33 * SECOND) && !peers_lost(p, a, 33 * SECOND),
	   "its connection breaks, once");
	ok(!peers_hello(p, a, &h, 34 * SECOND), "back again");
	h.worker[0] = 2;
	ok(peers_hello(p, a, &h, 35 * SECOND), "another process in its place: rooms are lost");
	peers_refuse(p, a, 36 * SECOND, "it has another model");
	ok(info(p, a).state == PEER_REFUSED && !strcmp(info(p, a).refusal, "it has another model"),
	   "Refused, with a sentence");
	is_int(peers_deadline(p), 96 * SECOND, "and asked again a minute later");
	is_int(peers_tick(p, 96 * SECOND, &who), PEERS_SAY_HELLO, "with HELLO");
	ok(!peers_lost(p, a, 97 * SECOND) && peers_deadline(p) == 98 * SECOND,
	   "soon, when its connection broke: somebody else may be there now");
	peers_remove(p, a);
	ok(peers_mask(p) == 0 && peers_deadline(p) == UINT64_MAX, "removed");
	for (int i = 0; i < PEERS_MAX; i++) {
		snprintf(name, sizeof(name), "tcp://x:%d", i);
		check(add(p, name) == (uint32_t)i);
	}
	is_int(peers_add(p, "tcp://y:1", 0, &who, &e), -ENOSPC, "64 peers");
	is_int(peers_add(p, "tcp://x:63", 0, &who, &e), 0, "that are known");
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	is_int(peers_add(p, name, 0, &who, &e), -ENAMETOOLONG, "an endpoint that is too long");
	is_int(peers_add(p, "", 0, &who, &e), -EINVAL, "an empty one");
	ok_all("states");
	peers_free(p);
}

/* A decode worker that was stopped for an hour makes no peer Dead before it has sent the peer another PING. */
TEST(stopped)
{
	struct peers *p = peers_new(seed, 5 * SECOND);
	struct wire_hello h = hello(1, 100);
	uint32_t a = add(p, "tcp://a:1"), who;

	ok(!peers_hello(p, a, &h, 0), "registered");
	is_int(peers_tick(p, 5 * SECOND, &who), PEERS_SAY_PING, "a PING");
	is_int(peers_tick(p, 3600 * SECOND, &who), PEERS_SAY_PING, "an hour later another one");
	is_int(peers_tick(p, 3600 * SECOND, &who), PEERS_NOTHING, "and nothing else");
	peers_alive(p, a);
	is_int(peers_tick(p, 3605 * SECOND, &who), PEERS_SAY_PING, "anything that came will do");
	is_int(peers_tick(p, 3610 * SECOND, &who), PEERS_SAY_PING, "so there are two again");
	is_int(peers_tick(p, 3615 * SECOND, &who), PEERS_DIED, "to be missed");
	peers_free(p);
}

/* ---- choosing ---- */

TEST(choice)
{
	struct peers *p = peers_new(seed, 5 * SECOND);
	struct wire_hello h[3] = {hello(1, 100), hello(2, 100), hello(3, 3)};
	struct wire_key k[10], other[4];
	struct wire_pong pong = {.n_keys = 4, .keys = k, .sequence = 1};
	uint32_t who = 9, cached = 9;
	struct peer_info x;

	keys_of(0, 10, k);
	keys_of(1, 4, other);
	for (uint32_t i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "tcp://%u:1", i);
		check(add(p, name) == i && !peers_hello(p, i, &h[i], 0));
	}
	ok(peers_choose(p, k, 10, 0, 0, &who, &cached) && who == 0 && cached == 0,
	   "equal peers: the first");
	check(sent(p, 0, k, 2, 100) == 0);
	ok(peers_choose(p, other, 4, 0, 0, &who, &cached) && who == 1 && cached == 0,
	   "nothing cached: the least loaded");
	ok(peers_choose(p, k, 10, 0, 0, &who, &cached) && who == 0 && cached == 2,
	   "most cached, although it has something to do");
	check(sent(p, 0, NULL, 0, 100) == 0);
	ok(peers_choose(p, k, 10, 0, 0, &who, &cached) && who == 1 && cached == 0,
	   "not where more has to be computed before than is saved");
	peers_done(p, 0, &last);
	check(peers_pong(p, 1, &pong, 0) == 0);
	ok(peers_choose(p, k, 10, 0, 0, &who, &cached) && who == 1 && cached == 4,
	   "what gossip says counts");
	ok(peers_choose(p, k, 10, 1u << 1, 0, &who, &cached) && who == 0 && cached == 2,
	   "but not of one that failed");
	ok(peers_choose(p, k, 10, 3, 0, &who, &cached) && who == 2 && cached == 0, "nor of two");
	ok(!peers_choose(p, k, 10, 7, 0, &who, &cached), "all failed");
	check(sent(p, 2, k, 10, 0) == 0);
	ok(peers_choose(p, k, 10, 0, 0, &who, &cached) && who == 1 && cached == 4,
	   "one with 3 pages keeps 3");
	ok(info(p, 2).n_keys == 3 && peers_choose(p, k, 10, 3, 0, &who, &cached) && cached == 3,
	   "the first 3");
	pong.draining = 1;
	check(peers_pong(p, 1, &pong, 0) == 0);
	ok(peers_choose(p, k, 10, 0, 0, &who, &cached) && who == 2 && cached == 3,
	   "one that is about to end gets nothing new");
	pong = (struct wire_pong){.forgotten = 1, .n_keys = 1, .keys = other};
	check(peers_pong(p, 2, &pong, 0) == 0);
	ok(info(p, 2).n_keys == 1 && peers_choose(p, k, 10, 0, 0, &who, &cached) && who == 0,
	   "one that has forgotten has only what it tells");
	check(peers_lost(p, 0, 0));
	peers_done(p, 0, &(struct peers_prompt){.n_tokens = 100, .n_asked = 100});
	check(!peers_hello(p, 0, &h[0], 0));
	is_int(info(p, 0).n_keys, 2, "one that comes back has what it had");
	h[0].worker[0] = 77;
	check(peers_hello(p, 0, &h[0], 0));
	x = info(p, 0);
	ok(x.n_keys == 0 && x.load == 0 && x.worker[0] == 77, "another process has nothing");
	ok_all("choices");
	peers_free(p);
}

TEST(load)
{
	struct peers *p = peers_new(seed, 5 * SECOND);
	struct wire_hello h = hello(1, 100);
	struct wire_pong pong = {0};
	struct peers_prompt all = {.n_tokens = 100, .n_asked = 100},
			    cached = {.n_tokens = 30, .n_asked = 300};
	uint32_t a = add(p, "tcp://a:1"), who;

	check(!peers_hello(p, a, &h, 0));
	check(peers_sent(p, a, NULL, 0, &all) == 0);
	check(peers_tick(p, 5 * SECOND, &who) == PEERS_SAY_PING);
	check(peers_sent(p, a, NULL, 0, &cached) == 0);
	is_int(info(p, a).load, 130, "what was sent counts, but for its cached pages");
	pong.sequence = info(p, a).sequence;
	pong.queued_tokens = 180;
	check(peers_pong(p, a, &pong, 0) == 0);
	ok(info(p, a).load == 210 && info(p, a).others == 80,
	   "a PONG tells of others' prompts, and of ours before its PING");
	check(peers_tick(p, 10 * SECOND, &who) == PEERS_SAY_PING);
	pong.queued_tokens = 1000;
	check(peers_pong(p, a, &pong, 0) == 0);
	is_int(info(p, a).load, 210, "one of an older PING says nothing");
	pong.sequence = info(p, a).sequence;
	peers_done(p, a, &all);
	is_int(info(p, a).load, 110, "what is done counts no more");
	pong.queued_tokens = 380;
	check(peers_pong(p, a, &pong, 0) == 0);
	ok(info(p, a).load == 110 && info(p, a).others == 80,
	   "a PONG counts our cached pages, the load does not");
	peers_done(p, a, &cached);
	ok(info(p, a).load == 80 && info(p, a).others == 80, "nor when they are done");
	pong.queued_tokens = 0;
	check(peers_pong(p, a, &pong, 0) == 0);
	is_int(info(p, a).load, 0, "until all is done");
	check(peers_sent(p, a, NULL, 0, &all) == 0);
	check(peers_tick(p, 15 * SECOND, &who) == PEERS_SAY_PING);
	pong.sequence = info(p, a).sequence;
	pong.queued_tokens = 5;
	check(peers_pong(p, a, &pong, 0) == 0);
	ok(info(p, a).load == 100 && info(p, a).others == 0, "never below our own prompts");
	pong.queued_tokens = UINT64_MAX;
	check(peers_pong(p, a, &pong, 0) == 0);
	check(peers_sent(p, a, NULL, 0, &cached) == 0);
	ok(info(p, a).load == UINT64_MAX, "nor above all");
	ok_all("load");
	peers_free(p);
}

static struct peers *two_peers(uint64_t heartbeat_ns)
{
	struct peers *p = peers_new(seed, heartbeat_ns);
	struct wire_hello a = hello(1, 100), b = hello(2, 100);

	check(p && add(p, "tcp://a:1") == 0 && add(p, "tcp://b:1") == 1);
	check(!peers_hello(p, 0, &a, 0) && !peers_hello(p, 1, &b, 0));
	return p;
}

/* Peer 0 has two pages of the prompt cached, and others' prompts to compute when its PONG comes; peer 1 has nothing. */
TEST(others)
{
	struct peers *p = two_peers(5 * SECOND);
	struct wire_key k[4];
	struct wire_pong pong = {.sequence = 1, .queued_tokens = 3000};
	uint32_t who, cached;

	keys_of(0, 4, k);
	check(sent(p, 0, k, 2, 0) == 0);
	peers_done(p, 0, &last);
	check(peers_tick(p, 5 * SECOND, &who) == PEERS_SAY_PING && who == 0);
	check(peers_pong(p, 0, &pong, 6 * SECOND) == 0);
	ok(peers_choose(p, k, 4, 0, 9 * SECOND, &who, &cached) && who == 1,
	   "of unknown speed: what the PONG said counts until the next one");
	peers_measure(p, 0, 1000, 0, SECOND);
	ok(peers_choose(p, k, 4, 0, 6 * SECOND, &who, &cached) && who == 1,
	   "a prompt does not wait for others' prompts");
	ok(peers_choose(p, k, 4, 0, 8 * SECOND, &who, &cached) && who == 1,
	   "nor when some of them are computed");
	ok(peers_choose(p, k, 4, 0, 9 * SECOND, &who, &cached) && who == 0 && cached == 2,
	   "when all must have been computed it goes where its pages are");
	ok(peers_choose(p, k, 4, 0, UINT64_MAX, &who, &cached) && who == 0, "and ever after");
	ok(peers_choose(p, k, 4, 0, 0, &who, &cached) && who == 1,
	   "a clock that lags computes nothing");
	is_int(info(p, 0).others, 3000, "the load that is shown is that of the PONG");
	pong.sequence = 1;
	check(peers_pong(p, 0, &pong, 10 * SECOND) == 0);
	ok(peers_choose(p, k, 4, 0, 11 * SECOND, &who, &cached) && who == 1,
	   "a new PONG counts from its own time");
	ok_all("others");
	peers_free(p);
}

/* ---- speed and silence ---- */

TEST(patience)
{
	struct peers *p = two_peers(SECOND);
	struct wire_hello other = hello(9, 100);

	is_int(peers_patience(p, 0, 100), 9 * SECOND,
	       "nothing is measured: 5 s, and four times 100 tokens at 100 a second");
	peers_measure(p, 0, 1000, SECOND, 2 * SECOND);
	is_int(peers_patience(p, 0, 1000), 9 * SECOND, "now at 1000 a second");
	is_int(peers_patience(p, 1, 1000), 9 * SECOND, "which is assumed of the other peer too");
	peers_measure(p, 1, 10, 0, SECOND);
	is_int(peers_patience(p, 1, 1000), 405 * SECOND, "until it turns out to be slower");
	is_int(peers_patience(p, 0, 1000), 9 * SECOND, "which does not concern the first one");
	peers_measure(p, 0, 1000, SECOND, 2 * SECOND);
	is_int((peers_patience(p, 0, 1875) + 500000) / 1000000, 8500,
	       "a prompt that ends with another one took no time of its own");
	peers_measure(p, 0, 1000, 2 * SECOND, 10 * SECOND);
	ok(peers_patience(p, 0, 1000) > 18 * SECOND, "what was long ago counts less");
	ok(peers_patience(p, 0, UINT64_MAX) >= 1000 * SECOND, "no number is too large");
	check(peers_hello(p, 0, &other, 20 * SECOND) && peers_hello(p, 1, &other, 20 * SECOND));
	is_int(peers_patience(p, 0, 100), 9 * SECOND, "other processes have no speed yet");
	peers_free(p);
	p = two_peers(10 * SECOND);
	is_int(peers_patience(p, 0, 100), 24 * SECOND, "two heartbeats, where these are longer");
	ok_all("patience");
	peers_free(p);
}

/* Lets the time pass until now_ns, while both peers answer all PINGs. */
static void pass_time(struct peers *p, uint64_t now_ns)
{
	uint32_t who;

	peers_alive(p, 0);
	peers_alive(p, 1);
	while (peers_tick(p, now_ns, &who) != PEERS_NOTHING)
		peers_alive(p, who);
}

static bool is_candidate(const struct peers *p, uint32_t peer)
{
	uint32_t who, cached;

	return peers_choose(p, NULL, 0, ~(UINT64_C(1) << peer), 0, &who, &cached);
}

TEST(silence)
{
	struct peers *p = two_peers(5 * SECOND);
	struct wire_hello other = hello(9, 100);
	uint64_t now = 20 * SECOND, length = PEERS_SILENT_NS;

	check(sent(p, 0, NULL, 0, 10) == 0 && sent(p, 0, NULL, 0, 10) == 0);
	ok(!peers_answered(p, 0, 15 * SECOND), "it answers one of two prompts");
	ok(!peers_overdue(p, 0, 10 * SECOND, now), "so it is not silent when the other is overdue");
	ok(is_candidate(p, 0) && !info(p, 0).silent, "and gets more");
	ok(peers_overdue(p, 0, 16 * SECOND, now), "but when nothing has come since");
	ok(!is_candidate(p, 0) && info(p, 0).silent && is_candidate(p, 1),
	   "it gets nothing, and the other peer all");
	is_int(info(p, 0).state, PEER_REGISTERED, "although it is Registered");
	peers_done(p, 0, &last);
	peers_done(p, 0, &last);
	for (int i = 0; i < 7; i++) {
		pass_time(p, now + length - 1);
		check(!is_candidate(p, 0));
		check(peers_deadline(p) <= now + length);
		pass_time(p, now += length);
		check(is_candidate(p, 0) && !info(p, 0).silent);
		check(sent(p, 0, NULL, 0, 10) == 0);
		check(!is_candidate(p, 0));
		is_int(peers_patience(p, 0, 100), 10 * SECOND + (SECOND * 4 << MIN(i + 1, 3)),
		       "after silence %d it may be slower", i + 1);
		now += SECOND;
		check(peers_overdue(p, 0, now - SECOND, now));
		peers_done(p, 0, &last);
		length = MIN(2 * length, PEERS_SILENT_MAX_NS);
	}
	ok_all("after each silence it gets one prompt, and the next silence is twice as long");
	ok(length == 600 * SECOND, "but never longer than ten minutes");
	pass_time(p, now += length);
	check(sent(p, 0, NULL, 0, 10) == 0);
	ok(peers_answered(p, 0, now) && !peers_answered(p, 0, now), "when it answers, once,");
	ok(is_candidate(p, 0), "it gets all again");
	is_int(peers_patience(p, 0, 100), 14 * SECOND, "in the time that is usual");
	ok(peers_overdue(p, 0, now + 1, now + SECOND), "a new silence");
	pass_time(p, now + SECOND + PEERS_SILENT_NS);
	peers_done(p, 0, &last);
	ok(is_candidate(p, 0), "is as short as the first one");
	check(peers_overdue(p, 0, now + 1, now + 99 * SECOND));
	check(peers_hello(p, 0, &other, now + 100 * SECOND));
	ok(is_candidate(p, 0), "another process is not silent");
	now += 101 * SECOND;
	check(sent(p, 0, NULL, 0, 10) == 0 && peers_overdue(p, 0, now - SECOND, now));
	peers_done(p, 0, &last);
	other = hello(10, 100);
	check(peers_hello(p, 0, &other, now + SECOND));
	ok(!is_candidate(p, 0), "but a third one is, when the second has not answered either");
	other = hello(11, 100);
	check(peers_hello(p, 0, &other, now + PEERS_SILENT_MAX_NS));
	ok(is_candidate(p, 0), "unless ten minutes have passed");
	now += PEERS_SILENT_MAX_NS;
	check(!peers_answered(p, 0, now) && peers_overdue(p, 0, now + 1, now + SECOND));
	other = hello(12, 100);
	check(peers_hello(p, 0, &other, now + 2 * SECOND));
	ok(is_candidate(p, 0), "or a prompt was answered");
	ok_all("processes that follow each other");
	peers_free(p);
}

/* A peer whose delivery drags is silent until it has sent a whole prompt. */
TEST(dragging)
{
	struct peers *p = two_peers(5 * SECOND);
	uint64_t now = 20 * SECOND;

	check(sent(p, 0, NULL, 0, 10) == 0 && !peers_answered(p, 0, now));
	ok(peers_drags(p, 0, now) && !peers_drags(p, 0, now),
	   "two deliveries that drag are one silence");
	ok(!is_candidate(p, 0), "the peer gets nothing");
	peers_done(p, 0, &last);
	pass_time(p, now += PEERS_SILENT_NS);
	ok(is_candidate(p, 0) && sent(p, 0, NULL, 0, 10) == 0, "then it gets one prompt");
	ok(!peers_answered(p, 0, now) && !is_candidate(p, 0),
	   "and no others when it only begins to answer");
	ok(peers_drags(p, 0, now), "when that one drags, too,");
	peers_done(p, 0, &last);
	pass_time(p, now + 2 * PEERS_SILENT_NS - 1);
	check(!is_candidate(p, 0));
	pass_time(p, now += 2 * PEERS_SILENT_NS);
	ok(is_candidate(p, 0), "the silence is twice as long");
	check(sent(p, 0, NULL, 0, 10) == 0);
	ok(peers_measure(p, 0, 10, now, now + SECOND), "a whole prompt ends it");
	ok(is_candidate(p, 0) && !peers_measure(p, 0, 10, now, now + SECOND), "once");
	ok_all("nothing else");
	peers_free(p);
}

TEST(away)
{
	struct peers *p = two_peers(5 * SECOND);
	uint32_t who;

	check(peers_lost(p, 0, 7 * SECOND));
	is_int(info(p, 0).away_ns, 7 * SECOND, "a connection that breaks");
	for (uint64_t now = 0; info(p, 1).state != PEER_DEAD && now < 60 * SECOND; now += SECOND)
		while (peers_tick(p, now, &who) != PEERS_NOTHING)
			;
	is_int(info(p, 1).state, PEER_DEAD, "a peer that answers no PING");
	is_int(info(p, 1).away_ns, 5 * SECOND, "is away since the first one");
	ok_all("away");
	peers_free(p);
}

/* ---- beside a naive model ---- */

enum { MODEL_PEERS = 6, PROMPTS = 12, PROMPT_PAGES = 8, MODEL_KEYS = 40, MODEL_OPEN = 20 };

struct model_peer {
	bool used;
	enum peer_state state;
	uint8_t worker;
	bool draining;
	uint64_t due, others, sequence, sent;
	uint32_t unanswered, max, n, n_open;
	struct peers_prompt open[MODEL_OPEN];
	struct {
		uint32_t prompt, page;
	} keys[MODEL_KEYS]; /* newest first */
};

static void model_add_key(struct model_peer *x, uint32_t prompt, uint32_t page)
{
	uint32_t i = 0;

	while (i < x->n && (x->keys[i].prompt != prompt || x->keys[i].page != page))
		i++;
	if (i == x->n) {
		if (!x->max)
			return;
		if (x->n == x->max)
			i--;
		else
			x->n++;
	}
	memmove(x->keys + 1, x->keys, i * sizeof(*x->keys));
	x->keys[0].prompt = prompt;
	x->keys[0].page = page;
}

static bool model_has(const struct model_peer *x, uint32_t prompt, uint32_t page)
{
	for (uint32_t i = 0; i < x->n; i++)
		if (x->keys[i].prompt == prompt && x->keys[i].page == page)
			return true;
	return false;
}

static uint64_t model_load(const struct model_peer *x)
{
	uint64_t load = x->others;

	for (uint32_t i = 0; i < x->n_open; i++)
		load += x->open[i].n_tokens;
	return load;
}

static void model_forget(struct model_peer *x)
{
	x->n = 0;
	x->others = 0;
	x->draining = false;
}

static int model_choose(const struct model_peer *m, uint32_t prompt, uint32_t n, uint64_t excluded,
			uint32_t *ret_cached)
{
	int best = -1;
	uint32_t best_cached = 0;
	uint64_t best_took = 0;

	for (int i = 0; i < MODEL_PEERS; i++) {
		uint32_t cached = 0;
		uint64_t took;

		if (!m[i].used || m[i].state != PEER_REGISTERED || m[i].draining ||
		    excluded >> i & 1)
			continue;
		while (cached < n && model_has(&m[i], prompt, cached))
			cached++;
		took = model_load(&m[i]) + (uint64_t)(n - cached) * PAGE_TOKENS;
		if (best < 0 || took < best_took || (took == best_took && cached > best_cached) ||
		    (took == best_took && cached == best_cached && m[i].sent < m[best].sent)) {
			best = i;
			best_took = took;
			best_cached = cached;
		}
	}
	*ret_cached = best_cached;
	return best;
}

static void compare(const struct peers *p, const struct model_peer *m)
{
	for (uint32_t i = 0; i < MODEL_PEERS; i++) {
		struct peer_info x;

		if (!m[i].used)
			continue;
		x = info(p, i);
		check(x.state == m[i].state && x.draining == m[i].draining);
		check(x.load == model_load(&m[i]) && x.n_keys == m[i].n);
		check(x.sequence == m[i].sequence && x.worker[0] == m[i].worker);
	}
}

static void compare_choice(const struct peers *p, const struct model_peer *m)
{
	struct wire_key k[PROMPT_PAGES];
	uint32_t prompt = (uint32_t)random_below(PROMPTS);
	uint32_t n = (uint32_t)random_below(PROMPT_PAGES + 1), who = 0, cached = 0, want_cached;
	uint64_t excluded = random_below(4) ? 0 : random_below(1 << MODEL_PEERS);
	int want = model_choose(m, prompt, n, excluded, &want_cached);

	keys_of(prompt, n, k);
	check(peers_choose(p, k, n, excluded, 0, &who, &cached) == (want >= 0));
	check(want < 0 || (who == (uint32_t)want && cached == want_cached));
}

static void finish_one(struct peers *p, struct model_peer *m, uint32_t i)
{
	uint32_t which;

	if (!m[i].n_open)
		return;
	which = (uint32_t)random_below(m[i].n_open);
	peers_done(p, i, &m[i].open[which]);
	m[i].open[which] = m[i].open[--m[i].n_open];
}

/* As the caller does with a peer that is lost. */
static void finish_all(struct peers *p, struct model_peer *m, uint32_t i)
{
	while (m[i].n_open)
		finish_one(p, m, i);
}

static void tick(struct peers *p, struct model_peer *m, uint64_t now)
{
	for (;;) {
		uint32_t who = 99, want = 0;
		enum peers_due due = peers_tick(p, now, &who);

		while (want < MODEL_PEERS && !(m[want].used && m[want].due <= now))
			want++;
		if (want == MODEL_PEERS) {
			check(due == PEERS_NOTHING);
			return;
		}
		check(who == want);
		if (m[want].state != PEER_REGISTERED) {
			check(due == PEERS_SAY_HELLO);
			m[want].due = now + (m[want].state == PEER_REFUSED ? 60 : 1) * SECOND;
		} else if (m[want].unanswered == 2) {
			check(due == PEERS_DIED);
			m[want].state = PEER_DEAD;
			m[want].due = now + SECOND;
			m[want].others = 0;
			finish_all(p, m, want);
		} else {
			check(due == PEERS_SAY_PING);
			m[want].unanswered++;
			m[want].sequence++;
			m[want].due = now + 5 * SECOND;
		}
		if (due == PEERS_NOTHING)
			return;
	}
}

static void say_hello(struct peers *p, struct model_peer *m, uint32_t i, uint64_t now)
{
	uint8_t worker = random_below(4) ? m[i].worker : (uint8_t)(1 + random_below(250));
	struct wire_hello h;

	if (!worker)
		worker = 1;
	if (worker != m[i].worker)
		m[i].max = (uint32_t)random_below(MODEL_KEYS + 1);
	h = hello(worker, m[i].max);
	check(peers_hello(p, i, &h, now) ==
	      (m[i].state == PEER_REGISTERED && worker != m[i].worker));
	if (worker != m[i].worker) {
		model_forget(&m[i]);
		finish_all(p, m, i);
	}
	if (m[i].state != PEER_REGISTERED)
		m[i].due = now + 5 * SECOND;
	m[i].worker = worker;
	m[i].state = PEER_REGISTERED;
	m[i].unanswered = 0;
}

static uint64_t n_sent;

static void send_prompt(struct peers *p, struct model_peer *m, uint32_t i)
{
	struct wire_key k[PROMPT_PAGES];
	uint32_t prompt = (uint32_t)random_below(PROMPTS);
	uint32_t n = (uint32_t)random_below(PROMPT_PAGES + 1);
	struct peers_prompt *x = &m[i].open[m[i].n_open];

	if (m[i].n_open == MODEL_OPEN)
		return;
	m[i].n_open++;
	x->n_asked = random_below(1000);
	x->n_tokens = random_below(x->n_asked + 1);
	keys_of(prompt, n, k);
	check(peers_sent(p, i, k, n, x) == 0 && x->sequence == m[i].sequence);
	for (uint32_t j = n; j-- > 0;)
		model_add_key(&m[i], prompt, j);
	m[i].sent = ++n_sent;
}

static void gossip(struct peers *p, struct model_peer *m, uint32_t i)
{
	struct wire_key k[PROMPT_PAGES];
	uint32_t prompt = (uint32_t)random_below(PROMPTS);
	uint32_t n = (uint32_t)random_below(PROMPT_PAGES + 1);
	struct wire_pong pong = {.sequence = m[i].sequence - (random_below(5) == 0),
				 .queued_tokens = random_below(3000),
				 .draining = random_below(8) == 0,
				 .forgotten = random_below(30) == 0,
				 .n_keys = n,
				 .keys = k};

	keys_of(prompt, n, k);
	check(peers_pong(p, i, &pong, 0) == 0);
	if (m[i].state != PEER_REGISTERED)
		return;
	m[i].unanswered = 0;
	m[i].draining = pong.draining;
	if (pong.sequence == m[i].sequence) {
		uint64_t ours = 0;

		for (uint32_t j = 0; j < m[i].n_open; j++)
			if (m[i].open[j].sequence < m[i].sequence)
				ours += m[i].open[j].n_asked;
		m[i].others = pong.queued_tokens > ours ? pong.queued_tokens - ours : 0;
	}
	if (pong.forgotten)
		m[i].n = 0;
	for (uint32_t j = n; j-- > 0;)
		model_add_key(&m[i], prompt, j);
}

TEST(random)
{
	struct peers *p = peers_new(seed, 5 * SECOND);
	struct model_peer m[MODEL_PEERS] = {{0}};
	uint64_t now = 0;
	uint32_t n_chosen = 0, n_dead = 0;

	for (int event = 0; event < 100000; event++) {
		uint32_t i = (uint32_t)random_below(MODEL_PEERS);
		size_t what = random_below(100);
		char name[16];

		now += random_below(SECOND / 10);
		if (!m[i].used) {
			/* A new peer gets the lowest number that is free. */
			for (i = 0; m[i].used;)
				i++;
			snprintf(name, sizeof(name), "tcp://%u:%d", i, event);
			check(add(p, name) == i);
			m[i] = (struct model_peer){.used = true, .due = 0};
		} else if (what < 25) {
			send_prompt(p, m, i);
		} else if (what < 50) {
			gossip(p, m, i);
		} else if (what < 60) {
			say_hello(p, m, i, now);
		} else if (what < 70) {
			finish_one(p, m, i);
		} else if (what == 70) {
			peers_refuse(p, i, now, "no");
			model_forget(&m[i]);
			finish_all(p, m, i);
			m[i].state = PEER_REFUSED;
			m[i].due = now + 60 * SECOND;
		} else if (what == 71 && random_below(4) == 0) {
			finish_all(p, m, i);
			peers_remove(p, i);
			m[i].used = false;
		} else if (what == 72) {
			check(peers_lost(p, i, now) == (m[i].state == PEER_REGISTERED));
			if (m[i].state == PEER_REGISTERED || m[i].state == PEER_REFUSED) {
				m[i].state = PEER_DEAD;
				m[i].due = now + SECOND;
				m[i].others = 0;
				finish_all(p, m, i);
			}
		} else if (what == 73) {
			peers_alive(p, i);
			m[i].unanswered = 0;
		} else {
			now += random_below(what < 76 ? 20 * SECOND : SECOND / 4);
			tick(p, m, now);
		}
		compare(p, m);
		compare_choice(p, m);
		n_chosen++;
		n_dead += m[i].state == PEER_DEAD;
	}
	ok_all("100000 random events as in the model");
	ok(n_dead > 100, "peers died on the way");
	peers_free(p);
}

/* ---- sets of keys ---- */

TEST(sets)
{
	struct key_sets *s = key_sets_new(seed);
	struct wire_key k[600];

	keys_of(3, 600, k);
	check(key_sets_add(s, 0, &k[0]) == 0 && key_sets_with(s, &k[0]) == 0);
	ok_all("a set without room takes nothing");
	key_sets_limit(s, 0, 500);
	key_sets_limit(s, 63, 2);
	for (int i = 0; i < 600; i++)
		check(key_sets_add(s, 0, &k[i]) == 0 && key_sets_add(s, 63, &k[i]) == 0);
	ok(key_sets_count(s, 0) == 500 && key_sets_count(s, 63) == 2, "sets have their bounds");
	ok(!key_sets_with(s, &k[99]) && key_sets_with(s, &k[100]) == 1 &&
		   key_sets_with(s, &k[599]) == (1 | (uint64_t)1 << 63),
	   "the oldest left");
	key_sets_limit(s, 0, 10);
	ok(key_sets_count(s, 0) == 10 && !key_sets_with(s, &k[589]) && key_sets_with(s, &k[590]),
	   "a smaller bound makes more leave");
	key_sets_clear(s, 63);
	ok(key_sets_with(s, &k[599]) == 1 && key_sets_count(s, 63) == 0, "cleared");
	key_sets_clear(s, 0);
	ok(!key_sets_with(s, &k[599]), "all gone");
	key_sets_free(s);
}

/* ---- 64 peers that have 100 thousand pages each ---- */

static double seconds(void)
{
	return (double)clock_read_ns(CLOCK_THREAD_CPUTIME_ID) * 1e-9;
}

TEST(size)
{
	enum { PAGES = 512, OWN = 100, SHARED = 96, ROUNDS = 200 };
	struct peers *p = peers_new(seed, 5 * SECOND);
	static struct wire_key k[PAGES];
	double begin, filled, all = 0, none = 0;
	uint32_t who, cached;

	begin = seconds();
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct wire_hello h = hello((uint8_t)(i + 1), 100000);
		char name[16];

		snprintf(name, sizeof(name), "tcp://%u:1", i);
		check(add(p, name) == i && !peers_hello(p, i, &h, 0));
		/* Nearly half of each peer's pages are of prompts that all peers have. */
		for (uint32_t prompt = 0; prompt < SHARED + OWN; prompt++) {
			keys_of(prompt < SHARED ? prompt : 1000 * (i + 1) + prompt, PAGES, k);
			check(sent(p, i, k, PAGES, i) == 0);
		}
		check(info(p, i).n_keys == 100000);
	}
	ok_all("64 peers with 100000 pages");
	filled = seconds() - begin;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		/* Some pages of the first shared prompt have left, so later prompts are asked for. */
		keys_of(20 + i % 70, PAGES, k);
		begin = seconds();
		check(peers_choose(p, k, PAGES, 0, 0, &who, &cached));
		all += seconds() - begin;
		check(cached == PAGES && who == 0);
		keys_of(1000 * (1 + i % 64) + 150 % 196, PAGES, k);
		begin = seconds();
		check(peers_choose(p, k, PAGES, 0, 0, &who, &cached));
		none += seconds() - begin;
		check(cached == PAGES && who == i % 64);
	}
	ok_all("they are found");
	ok(all / ROUNDS < 1e-3 && none / ROUNDS < 1e-3,
	   "a choice for 512 pages takes less than 1 ms");
	printf("# filled in %.1f s; a choice takes %.0f us when all have it, %.0f us when one has\n",
	       filled, all / ROUNDS * 1e6, none / ROUNDS * 1e6);
	peers_free(p);
}

TEST_MAIN()
