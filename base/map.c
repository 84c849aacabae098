#include "base/map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static struct map_node **bucket(const struct map *m, uint64_t hash)
{
	return &m->buckets[hash & (m->n_buckets - 1)];
}

/* Returns the pointer in the map (a bucket, or a node's `next`) that points to this node. */
static struct map_node **link_to(const struct map *m, const struct map_node *node)
{
	struct map_node **at = bucket(m, node->hash);

	while (*at != node) {
		assert(*at);
		at = &(*at)->next;
	}
	return at;
}

int map_init(struct map *m, uint64_t n_buckets)
{
	uint64_t n = 64;

	while (n < n_buckets)
		n *= 2;
	*m = (struct map){.buckets = calloc(n, sizeof(struct map_node *))};
	m->n_buckets = m->buckets ? n : 0;
	return m->buckets ? 0 : -ENOMEM;
}

void map_release(struct map *m)
{
	free(m->buckets);
	*m = (struct map){0};
}

static void move_node(void *arg, struct map_node *node)
{
	map_insert(arg, node, node->hash);
}

int map_reserve(struct map *m)
{
	struct map grown;

	if (m->n < m->n_buckets)
		return 0;
	if (map_init(&grown, m->n_buckets * 2) < 0)
		return -ENOMEM;
	map_drain(m, move_node, &grown);
	map_release(m);
	*m = grown;
	return 0;
}

void map_insert(struct map *m, struct map_node *node, uint64_t hash)
{
	struct map_node **at = bucket(m, hash);

	*node = (struct map_node){.next = *at, .hash = hash};
	*at = node;
	m->n++;
}

void map_append(struct map *m, struct map_node *node, uint64_t hash)
{
	struct map_node **at = bucket(m, hash);

	while (*at)
		at = &(*at)->next;
	*node = (struct map_node){.hash = hash};
	*at = node;
	m->n++;
}

void map_remove(struct map *m, struct map_node *node)
{
	*link_to(m, node) = node->next;
	m->n--;
}

void map_replace(struct map *m, struct map_node *node, struct map_node *by)
{
	*link_to(m, node) = by;
	*by = *node;
}

void map_drain(struct map *m, void (*each)(void *arg, struct map_node *node), void *arg)
{
	for (uint64_t i = 0; i < m->n_buckets; i++)
		while (m->buckets[i]) {
			struct map_node *node = m->buckets[i];

			m->buckets[i] = node->next;
			m->n--;
			each(arg, node);
		}
}
