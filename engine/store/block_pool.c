#include "engine/store/block_pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { PAGES, STATES, KINDS };

/* The places of one kind in a region. */
struct places {
	uint8_t *used;	/* [most] 1: a block has the place */
	size_t most, n; /* n: places up to the last used one */
};

struct region {
	char *memory;
	size_t bytes;
	struct places places[KINDS];
};

struct block_pool {
	size_t bytes[KINDS], size[KINDS]; /* of a block, and of its place; 0: there are none */
	pthread_mutex_t lock;
	/* guarded by lock */
	struct region *regions; /* [n] */
	size_t n, cap;
};

struct block_pool *block_pool_new(size_t page_bytes, size_t state_bytes)
{
	struct block_pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	p->bytes[PAGES] = page_bytes;
	p->bytes[STATES] = state_bytes;
	for (int k = 0; k < KINDS; k++)
		p->size[k] = ROUND_UP(p->bytes[k], (size_t)STORE_BLOCK_ALIGNMENT);
	return p;
}

static void release_region(struct region *r)
{
	for (int k = 0; k < KINDS; k++)
		free(r->places[k].used);
}

void block_pool_free(struct block_pool *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n; i++) {
		assert(!p->regions[i].places[PAGES].n && !p->regions[i].places[STATES].n);
		release_region(&p->regions[i]);
	}
	free(p->regions);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

int block_pool_add(struct block_pool *p, void *memory, size_t bytes)
{
	struct region r = {.memory = memory, .bytes = bytes};
	bool good = true;

	for (int k = 0; k < KINDS; k++) {
		r.places[k].most = p->size[k] ? bytes / p->size[k] : 0;
		r.places[k].used = calloc(MAX(r.places[k].most, (size_t)1), 1);
		good &= r.places[k].used != NULL;
	}
	pthread_mutex_lock(&p->lock);
	good = good && array_grow(p->regions, p->cap, p->n + 1);
	if (good)
		p->regions[p->n++] = r;
	pthread_mutex_unlock(&p->lock);
	if (good)
		return 0;
	release_region(&r);
	return -ENOMEM;
}

static void *address(const struct block_pool *p, const struct region *r, int kind, size_t place)
{
	return r->memory + (kind == PAGES
				    ? place * p->size[PAGES]
				    : r->bytes / STORE_BLOCK_ALIGNMENT * STORE_BLOCK_ALIGNMENT -
					      (place + 1) * p->size[STATES]);
}

/* Takes the first free place of a kind in a region. NULL: it has none. */
static void *take_place(const struct block_pool *p, struct region *r, int kind)
{
	struct places *own = &r->places[kind], *other = &r->places[!kind];
	const uint8_t *hole = memchr(own->used, 0, own->n);
	size_t place = hole ? (size_t)(hole - own->used) : own->n;

	if (!hole) {
		size_t bytes = (own->n + 1) * p->size[kind] + other->n * p->size[!kind];

		if (bytes > r->bytes / STORE_BLOCK_ALIGNMENT * STORE_BLOCK_ALIGNMENT)
			return NULL;
		own->n++;
	}
	own->used[place] = 1;
	return address(p, r, kind, place);
}

struct store_block *block_pool_take(struct block_pool *p, size_t bytes)
{
	int kind = p && bytes == p->bytes[PAGES] ? PAGES : STATES;
	struct store_block *b;
	void *data = NULL;

	if (!p || !bytes || bytes != p->bytes[kind])
		return store_block_new(bytes);
	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->n && !data; i++)
		data = take_place(p, &p->regions[i], kind);
	pthread_mutex_unlock(&p->lock);
	if (!data)
		return store_block_new(bytes);
	b = malloc(sizeof(*b));
	if (!b) {
		block_pool_give(p, data, bytes);
		return NULL;
	}
	b->data = data;
	b->bytes = bytes;
	b->pool = p;
	atomic_init(&b->refs, 1);
	return b;
}

void block_pool_give(struct block_pool *p, void *data, size_t bytes)
{
	int kind = bytes == p->bytes[PAGES] ? PAGES : STATES;
	struct region *r;
	struct places *own;
	size_t place;

	pthread_mutex_lock(&p->lock);
	r = p->regions;
	while ((char *)data < r->memory || (char *)data >= r->memory + r->bytes)
		r++;
	own = &r->places[kind];
	/* states stand in the opposite order */
	place = (size_t)(kind == PAGES ? (char *)data - r->memory
				       : (char *)address(p, r, kind, 0) - (char *)data) /
		p->size[kind];
	own->used[place] = 0;
	while (own->n && !own->used[own->n - 1])
		own->n--;
	pthread_mutex_unlock(&p->lock);
}
