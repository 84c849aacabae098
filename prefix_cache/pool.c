#include "prefix_cache/pool.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mix.h"

enum {
	WORD_BITS = 64,
	LEVELS_MAX = 6, /* 64^6 > 2^32 */
};

/* An id's number is its place in the order in which pool_get gives out free ids. Without pool_shuffle it is the id.
 *
 *     id_of[number_of[id]] == id;  bit `number` of levels[0] is set  <=>  refs[id_of[number]] == 0 */
struct pool {
	uint32_t size, available, n_levels;
	uint64_t *levels[LEVELS_MAX]; /* [0] is owned, the others point into it */
	uint32_t *refs;		      /* [size] by id */
	uint32_t *id_of, *number_of;  /* [size] */
};

struct pool *pool_new(uint32_t size)
{
	struct pool *p = calloc(1, sizeof(*p));
	size_t n_words[LEVELS_MAX], total = 0, first = 0;
	size_t n = size;

	if (!p)
		return NULL;
	p->size = p->available = size;
	do {
		n = MAX(CEIL_DIV(n, (size_t)WORD_BITS), (size_t)1);
		n_words[p->n_levels++] = n;
		total += n;
	} while (n > 1);
	p->levels[0] = calloc(total, sizeof(uint64_t));
	p->refs = calloc(MAX(size, 1u), sizeof(*p->refs));
	p->id_of = calloc(MAX(size, 1u), sizeof(*p->id_of));
	p->number_of = calloc(MAX(size, 1u), sizeof(*p->number_of));
	if (!p->levels[0] || !p->refs || !p->id_of || !p->number_of) {
		pool_free(p);
		return NULL;
	}
	n = size;
	for (uint32_t k = 0; k < p->n_levels; k++) {
		p->levels[k] = p->levels[0] + first;
		first += n_words[k];
		for (size_t w = 0; w < n / WORD_BITS; w++)
			p->levels[k][w] = UINT64_MAX;
		if (n % WORD_BITS)
			p->levels[k][n / WORD_BITS] = (UINT64_C(1) << (n % WORD_BITS)) - 1;
		n = CEIL_DIV(n, (size_t)WORD_BITS);
	}
	for (uint32_t i = 0; i < size; i++)
		p->id_of[i] = p->number_of[i] = i;
	return p;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	free(p->levels[0]);
	free(p->refs);
	free(p->id_of);
	free(p->number_of);
	free(p);
}

uint32_t pool_get(struct pool *p)
{
	uint32_t number = 0, id;

	if (!p->available)
		return POOL_NONE;
	for (uint32_t k = p->n_levels; k-- > 0;)
		number = number * WORD_BITS + (uint32_t)__builtin_ctzll(p->levels[k][number]);
	id = p->id_of[number];
	assert(p->refs[id] == 0);
	p->refs[id] = 1;
	p->available--;
	/* A word that becomes 0 clears its bit one level up. */
	for (uint32_t k = 0; k < p->n_levels; k++) {
		uint64_t *word = &p->levels[k][number / WORD_BITS];

		*word &= ~(UINT64_C(1) << (number % WORD_BITS));
		if (*word)
			break;
		number /= WORD_BITS;
	}
	return id;
}

void pool_ref(struct pool *p, uint32_t id)
{
	assert(id < p->size && p->refs[id] > 0 && p->refs[id] < UINT32_MAX);
	p->refs[id]++;
}

void pool_put(struct pool *p, uint32_t id)
{
	uint32_t number;

	assert(id < p->size && p->refs[id] > 0);
	if (--p->refs[id])
		return;
	p->available++;
	number = p->number_of[id];
	/* A word that was 0 sets its bit one level up. */
	for (uint32_t k = 0; k < p->n_levels; k++) {
		uint64_t *word = &p->levels[k][number / WORD_BITS], before = *word;

		*word |= UINT64_C(1) << (number % WORD_BITS);
		if (before)
			break;
		number /= WORD_BITS;
	}
}

uint32_t pool_refs(const struct pool *p, uint32_t id)
{
	assert(id < p->size);
	return p->refs[id];
}

uint32_t pool_available(const struct pool *p)
{
	return p->available;
}

uint32_t pool_size(const struct pool *p)
{
	return p->size;
}

void pool_shuffle(struct pool *p, uint64_t seed)
{
	assert(p->available == p->size);
	for (uint32_t i = 0; i < p->size; i++)
		p->id_of[i] = i;
	for (uint32_t i = p->size; i > 1; i--) {
		uint32_t k = (uint32_t)(mix_next(&seed) % i), id = p->id_of[i - 1];

		p->id_of[i - 1] = p->id_of[k];
		p->id_of[k] = id;
	}
	for (uint32_t i = 0; i < p->size; i++)
		p->number_of[p->id_of[i]] = i;
}
