#include "protocol/transfer/registry_table.h"

#include <stdlib.h>
#include <string.h>

/* The workers are in no order: when one leaves, the last one moves to its place. */
struct registry_table {
	uint32_t n;
	uint64_t until_ns[WIRE_PEERS_MAX];
	struct wire_announce workers[WIRE_PEERS_MAX];
	struct wire_peer listed[WIRE_PEERS_MAX]; /* the last answer to a LIST */
};

struct registry_table *registry_table_new(void)
{
	return calloc(1, sizeof(struct registry_table));
}

void registry_table_free(struct registry_table *t)
{
	free(t);
}

/* Returns the index of the worker at an endpoint; t->n: there is none. Endpoints are padded with zeros, so all their
 * bytes are compared. */
static uint32_t find(const struct registry_table *t, const char endpoint[WIRE_ENDPOINT])
{
	uint32_t i = 0;

	while (i < t->n && memcmp(t->workers[i].peer.endpoint, endpoint, WIRE_ENDPOINT) != 0)
		i++;
	return i;
}

static void remove_at(struct registry_table *t, uint32_t i)
{
	t->n--;
	t->workers[i] = t->workers[t->n];
	t->until_ns[i] = t->until_ns[t->n];
}

enum registry_change registry_table_announce(struct registry_table *t,
					     const struct wire_announce *a, uint64_t now_ns)
{
	uint32_t i = find(t, a->peer.endpoint);
	bool known = i < t->n;
	bool same = known && !memcmp(t->workers[i].peer.worker, a->peer.worker, WIRE_ID);

	if (!a->ttl_ms) {
		if (same)
			remove_at(t, i);
		return same ? REGISTRY_LEFT : REGISTRY_NOTHING;
	}
	if (i == WIRE_PEERS_MAX)
		return REGISTRY_FULL;
	t->n += !known;
	t->workers[i] = *a;
	t->until_ns[i] = now_ns + MIN((uint64_t)a->ttl_ms * 1000000, REGISTRY_TTL_MAX_NS);
	return !known ? REGISTRY_CAME : same ? REGISTRY_NOTHING : REGISTRY_REPLACED;
}

bool registry_table_expire(struct registry_table *t, uint64_t now_ns, struct wire_announce *ret)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->until_ns[i] <= now_ns) {
			*ret = t->workers[i];
			remove_at(t, i);
			return true;
		}
	return false;
}

uint64_t registry_table_deadline(const struct registry_table *t)
{
	uint64_t first = UINT64_MAX;

	for (uint32_t i = 0; i < t->n; i++)
		first = MIN(first, t->until_ns[i]);
	return first;
}

void registry_table_list(struct registry_table *t, const struct wire_list *asked, uint64_t now_ns,
			 struct wire_peers *ret)
{
	static const uint8_t any[WIRE_ID];
	bool all = !memcmp(asked->model, any, WIRE_ID);
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->n; i++) {
		const struct wire_announce *w = &t->workers[i];

		if (w->role == asked->role && t->until_ns[i] > now_ns &&
		    (all || !memcmp(w->peer.model, asked->model, WIRE_ID)))
			t->listed[n++] = w->peer;
	}
	*ret = (struct wire_peers){.n_peers = n, .peers = t->listed};
}

uint32_t registry_table_count(const struct registry_table *t)
{
	return t->n;
}
