#include "prefix_cache/ghosts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* As many as the pool has pages: what was there one whole turnover ago is told. At most 20 MiB. */
enum { GHOSTS_MIN = 4096, GHOSTS_MAX = 1 << 20 };

int ghosts_init(struct ghosts *g, uint32_t n_pages)
{
	*g = (struct ghosts){.cap = GHOSTS_MIN};
	while (g->cap < n_pages && g->cap < GHOSTS_MAX)
		g->cap *= 2;
	g->ring = calloc(g->cap, sizeof(*g->ring));
	g->buckets = calloc(g->cap, sizeof(*g->buckets));
	if (!g->ring || !g->buckets) {
		ghosts_release(g);
		return -ENOMEM;
	}
	return 0;
}

void ghosts_release(struct ghosts *g)
{
	free(g->ring);
	free(g->buckets);
	*g = (struct ghosts){0};
}

static uint32_t *bucket(const struct ghosts *g, uint64_t hash)
{
	return &g->buckets[hash & (g->cap - 1)];
}

bool ghosts_have(const struct ghosts *g, uint64_t hash)
{
	uint32_t i = *bucket(g, hash);

	while (i && g->ring[i - 1].hash != hash)
		i = g->ring[i - 1].next;
	return i != 0;
}

void ghosts_add(struct ghosts *g, uint64_t hash)
{
	uint32_t i = g->oldest, *at;

	if (ghosts_have(g, hash))
		return;
	if (g->n == g->cap) {
		at = bucket(g, g->ring[i].hash);
		while (*at != i + 1)
			at = &g->ring[*at - 1].next;
		*at = g->ring[i].next;
	} else {
		g->n++;
	}
	at = bucket(g, hash);
	g->ring[i] = (struct ghost){.hash = hash, .next = *at};
	*at = i + 1;
	g->oldest = (i + 1) & (g->cap - 1);
}

void ghosts_clear(struct ghosts *g)
{
	memset(g->buckets, 0, g->cap * sizeof(*g->buckets));
	g->n = g->oldest = 0;
}
