/* The table of a registry: which workers it remembers, until when, and which of them it lists for whom; random calls,
 * compared with a naive list; a full table. */
#include <stdlib.h>
#include <string.h>

#include "protocol/transfer/registry_table.h"
#include "protocol/transfer/wire.h"
#include "tests/random.h"
#include "tests/tap.h"

#define SECOND ((uint64_t)1000000000)

/* Makes the announcement of a worker at tcp://h:ENDPOINT. process: the id of the worker. */
static struct wire_announce announce(uint32_t endpoint, uint32_t process, uint32_t ttl_ms)
{
	struct wire_announce a = {.role = WIRE_PREFILL, .ttl_ms = ttl_ms};

	memcpy(a.peer.worker, &process, sizeof(process));
	a.peer.model[0] = 7;
	snprintf(a.peer.endpoint, sizeof(a.peer.endpoint), "tcp://h:%u", endpoint);
	return a;
}

static struct wire_peers list(struct registry_table *t, uint32_t role, uint8_t model, uint64_t now)
{
	const struct wire_list asked = {.role = role, .model = {model}};
	struct wire_peers p;

	registry_table_list(t, &asked, now, &p);
	return p;
}

TEST(life)
{
	struct registry_table *t = registry_table_new();
	struct wire_announce a = announce(1, 1, 15000), gone;
	struct wire_peers p;

	check(t != NULL);
	if (!t)
		return;
	is_int(list(t, WIRE_PREFILL, 0, 0).n_peers, 0, "nobody");
	ok(registry_table_deadline(t) == UINT64_MAX, "nothing is to come");
	is_int(registry_table_announce(t, &a, 0), REGISTRY_CAME, "one comes");
	is_int(registry_table_announce(t, &a, 5 * SECOND), REGISTRY_NOTHING, "and says so again");
	p = list(t, WIRE_PREFILL, 0, 5 * SECOND);
	ok(p.n_peers == 1 && !memcmp(&p.peers[0], &a.peer, sizeof(a.peer)), "it is told as it is");
	ok(registry_table_deadline(t) == 20 * SECOND, "until its time is over");
	ok(!registry_table_expire(t, 20 * SECOND - 1, &gone), "not before");
	is_int(list(t, WIRE_PREFILL, 0, 20 * SECOND - 1).n_peers, 1, "there still");
	is_int(list(t, WIRE_PREFILL, 0, 20 * SECOND).n_peers, 0, "too late");
	ok(registry_table_expire(t, 20 * SECOND, &gone) && !strcmp(gone.peer.endpoint, "tcp://h:1"),
	   "it is forgotten");
	ok(!registry_table_expire(t, 20 * SECOND, &gone), "once");
	is_int(registry_table_announce(t, &a, 21 * SECOND), REGISTRY_CAME, "it may come again");
	a.ttl_ms = 0;
	is_int(registry_table_announce(t, &a, 22 * SECOND), REGISTRY_LEFT, "it says goodbye");
	is_int(registry_table_announce(t, &a, 22 * SECOND), REGISTRY_NOTHING, "twice");
	is_int(registry_table_count(t), 0, "nobody is left");
	a = announce(2, 1, UINT32_MAX);
	is_int(registry_table_announce(t, &a, 0), REGISTRY_CAME, "one for 49 days");
	ok(registry_table_deadline(t) == 60 * SECOND, "gets a minute");
	registry_table_free(t);
}

TEST(successor)
{
	struct registry_table *t = registry_table_new();
	struct wire_announce first = announce(1, 1, 1000), second = announce(1, 2, 1000);
	struct wire_peers p;

	is_int(registry_table_announce(t, &first, 0), REGISTRY_CAME, "a process");
	is_int(registry_table_announce(t, &second, 0), REGISTRY_REPLACED, "another one there");
	first.ttl_ms = 0;
	is_int(registry_table_announce(t, &first, 0), REGISTRY_NOTHING, "a late goodbye");
	p = list(t, WIRE_PREFILL, 0, 0);
	ok(p.n_peers == 1 && p.peers[0].worker[0] == 2, "forgets the other one not");
	registry_table_free(t);
}

TEST(asked)
{
	struct registry_table *t = registry_table_new();
	struct wire_announce a = announce(1, 1, 1000);

	check(registry_table_announce(t, &a, 0) == REGISTRY_CAME);
	a = announce(2, 2, 1000);
	a.peer.model[0] = 8;
	check(registry_table_announce(t, &a, 0) == REGISTRY_CAME);
	a = announce(3, 3, 1000);
	a.role = WIRE_DECODE;
	check(registry_table_announce(t, &a, 0) == REGISTRY_CAME);
	ok_all("three come");
	is_int(list(t, WIRE_PREFILL, 0, 0).n_peers, 2, "of any model");
	is_int(list(t, WIRE_PREFILL, 8, 0).n_peers, 1, "of one");
	is_str(list(t, WIRE_PREFILL, 8, 0).peers[0].endpoint, "tcp://h:2", "which");
	is_int(list(t, WIRE_PREFILL, 9, 0).n_peers, 0, "of none");
	is_int(list(t, WIRE_DECODE, 7, 0).n_peers, 1, "of another role");
	registry_table_free(t);
}

TEST(full)
{
	struct registry_table *t = registry_table_new();
	struct wire_announce a, gone;
	struct wire_message m = {.type = WIRE_PEERS};
	struct buf out;

	for (uint32_t i = 0; i < WIRE_PEERS_MAX; i++) {
		a = announce(i, i, 1000 + i);
		check(registry_table_announce(t, &a, 0) == REGISTRY_CAME);
	}
	ok_all("%d come", WIRE_PEERS_MAX);
	a = announce(WIRE_PEERS_MAX, 1, 1000);
	is_int(registry_table_announce(t, &a, 0), REGISTRY_FULL, "one more does not");
	a = announce(5, 5, 1005);
	is_int(registry_table_announce(t, &a, 1), REGISTRY_NOTHING, "who is in may say so again");
	a = announce(6, 99, 1006);
	is_int(registry_table_announce(t, &a, 1), REGISTRY_REPLACED, "or be started again");
	m.peers = list(t, WIRE_PREFILL, 7, 1);
	is_int(m.peers.n_peers, WIRE_PEERS_MAX, "all are told");
	buf_init(&out, WIRE_FRAME_MAX);
	is_int(wire_encode(&m, &out, NULL), 0, "in one message");
	buf_release(&out);
	ok(registry_table_expire(t, SECOND, &gone) && !strcmp(gone.peer.endpoint, "tcp://h:0"),
	   "the first has left");
	a = announce(WIRE_PEERS_MAX, 1, 1000);
	is_int(registry_table_announce(t, &a, SECOND), REGISTRY_CAME, "now one more comes");
	registry_table_free(t);
}

/* The naive list has one of these for each of a few endpoints: the worker there. */
struct model {
	uint32_t process; /* 0: none */
	uint64_t until_ns;
};

enum { ENDPOINTS = 12, STEPS = 20000 };

static void announce_both(struct registry_table *t, struct model *m, uint64_t now)
{
	uint32_t at = random_below(ENDPOINTS), process = 1 + random_below(3);
	uint32_t ttl = random_below(4) ? 1 + random_below(3000) : 0;
	struct wire_announce a = announce(at, process, ttl);
	enum registry_change want = REGISTRY_NOTHING;

	if (ttl) {
		want = !m[at].process		  ? REGISTRY_CAME
		       : m[at].process != process ? REGISTRY_REPLACED
						  : REGISTRY_NOTHING;
		m[at] = (struct model){process, now + ttl * UINT64_C(1000000)};
	} else if (m[at].process == process) {
		want = REGISTRY_LEFT;
		m[at].process = 0;
	}
	check(registry_table_announce(t, &a, now) == want);
}

static void expire_both(struct registry_table *t, struct model *m, uint64_t now)
{
	struct wire_announce gone;

	while (registry_table_expire(t, now, &gone)) {
		uint32_t at = (uint32_t)strtoul(gone.peer.endpoint + strlen("tcp://h:"), NULL, 10);

		check(at < ENDPOINTS && m[at].process && m[at].until_ns <= now);
		m[at].process = 0;
	}
}

static void compare(struct registry_table *t, const struct model *m, uint64_t now)
{
	struct wire_peers p = list(t, WIRE_PREFILL, 7, now);
	uint64_t first = UINT64_MAX;
	uint32_t n = 0;

	for (uint32_t i = 0; i < ENDPOINTS; i++) {
		bool listed = false;

		if (!m[i].process)
			continue;
		n++;
		first = MIN(first, m[i].until_ns);
		check(m[i].until_ns > now);
		for (uint32_t k = 0; k < p.n_peers; k++) {
			struct wire_announce a = announce(i, m[i].process, 1);

			listed |= !memcmp(&p.peers[k], &a.peer, sizeof(a.peer));
		}
		check(listed);
	}
	check(n == p.n_peers && n == registry_table_count(t));
	check(first == registry_table_deadline(t));
}

TEST(random)
{
	struct registry_table *t = registry_table_new();
	struct model m[ENDPOINTS] = {{0}};
	uint64_t now = 0;

	for (int i = 0; i < STEPS; i++) {
		now += random_below(200) * UINT64_C(1000000);
		expire_both(t, m, now);
		announce_both(t, m, now);
		compare(t, m, now);
	}
	ok_all("%d steps as a naive list has them", STEPS);
	registry_table_free(t);
}

TEST_MAIN()
