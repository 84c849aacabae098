/*
 * Requests by id. Chained through the requests themselves, so that only growing allocates; ids
 * count up, which spreads them evenly without mixing.
 */
#ifndef SCHEDULER_REQUEST_MAP_H
#define SCHEDULER_REQUEST_MAP_H

#include "scheduler/request.h"

struct request_map {
	struct request **buckets; /* [n_buckets] owned; the requests are borrowed */
	size_t n_buckets;	  /* a power of two, or 0 */
	size_t n;
};

/* Makes sure that one more insertion keeps chains short. -ENOMEM. */
int request_map_reserve(struct request_map *m) MUST_CHECK;

/* After request_map_reserve; the id must not be in the map. */
void request_map_insert(struct request_map *m, struct request *r);
void request_map_remove(struct request_map *m, struct request *r);
struct request *request_map_find(const struct request_map *m, uint64_t id);

/* Frees every request in the map and the map. */
void request_map_release(struct request_map *m);

#endif
