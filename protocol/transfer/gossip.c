#include "protocol/transfer/gossip.h"

void gossip_add(struct gossip *g, const struct wire_key *keys, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		g->keys[g->n++ % GOSSIP_KEYS] = keys[i];
}

/* Uses up a place in the ring, so that `from` is also above the place of a decode worker that was told all keys. */
void gossip_clear(struct gossip *g)
{
	g->from = ++g->n;
}

void gossip_tell(const struct gossip *g, uint64_t *told, struct wire_key keys[GOSSIP_TOLD],
		 struct wire_pong *pong)
{
	uint64_t first = g->n > GOSSIP_KEYS ? g->n - GOSSIP_KEYS : 0;

	pong->forgotten = *told < g->from;
	/* keys that were overwritten or cleared are skipped */
	*told = MAX(*told, MAX(first, g->from));
	pong->keys = keys;
	for (pong->n_keys = 0; pong->n_keys < GOSSIP_TOLD && *told < g->n; pong->n_keys++)
		keys[pong->n_keys] = g->keys[(*told)++ % GOSSIP_KEYS];
}
