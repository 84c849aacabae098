#include "scheduler/request_map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { FIRST_BUCKETS = 64 };

static struct request **bucket(const struct request_map *m, uint64_t id)
{
	return &m->buckets[id & (m->n_buckets - 1)];
}

int request_map_reserve(struct request_map *m)
{
	struct request_map grown = {0};

	if (m->n < m->n_buckets)
		return 0;
	if (m->n_buckets > SIZE_MAX / 2 / sizeof(*m->buckets))
		return -ENOMEM;
	grown.n_buckets = m->n_buckets ? m->n_buckets * 2 : (size_t)FIRST_BUCKETS;
	grown.buckets = calloc(grown.n_buckets, sizeof(*grown.buckets));
	if (!grown.buckets)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_buckets; i++) {
		struct request *next;

		for (struct request *r = m->buckets[i]; r; r = next) {
			next = r->map_next;
			request_map_insert(&grown, r);
		}
	}
	free(m->buckets);
	*m = grown;
	return 0;
}

void request_map_insert(struct request_map *m, struct request *r)
{
	struct request **b = bucket(m, r->id);

	r->map_next = *b;
	*b = r;
	m->n++;
}

void request_map_remove(struct request_map *m, struct request *r)
{
	struct request **link = bucket(m, r->id);

	while (*link && *link != r)
		link = &(*link)->map_next;
	assert(*link == r);
	*link = r->map_next;
	m->n--;
}

struct request *request_map_find(const struct request_map *m, uint64_t id)
{
	struct request *r = m->n_buckets ? *bucket(m, id) : NULL;

	while (r && r->id != id)
		r = r->map_next;
	return r;
}

void request_map_release(struct request_map *m)
{
	for (size_t i = 0; i < m->n_buckets; i++) {
		struct request *next;

		for (struct request *r = m->buckets[i]; r; r = next) {
			next = r->map_next;
			request_free(r);
		}
	}
	free(m->buckets);
	*m = (struct request_map){0};
}
