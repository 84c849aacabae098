#include "kernels/tuning/cuts.h"

#include <assert.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/macros.h"

static enum cut_program cuts_program(enum tuning_family family)
{
	switch (family) {
	case TUNING_ATTENTION: return CUT_ATTENTION;
	case TUNING_DECODE_STEP: return CUT_DECODE_STEP;
	default: return CUT_GEMM;
	}
}

/* ---- places ---- */

/* Returns the number of query heads that share a KV head. */
static uint32_t sharers(const struct kernel_shape *s)
{
	return MAX(s->heads / MAX(s->kv_heads, 1u), 1u);
}

/* Returns the size of an MLP's experts, or the MLP's own size if it has no experts. */
static uint32_t width(const struct kernel_mlp *m)
{
	return m->experts ? m->expert_size : m->shared_size;
}

/* M is the mean number of rows of an expert, rounded up; T for an MLP without experts. */
struct tuning_place cuts_experts(const struct kernel_shape *s, uint32_t mlp, bool down, uint32_t T)
{
	const struct kernel_mlp *m = &s->mlps[mlp];
	uint64_t rows = m->experts ? CEIL_DIV((uint64_t)T * m->topk, m->experts) : T;

	return tuning_place_of(TUNING_EXPERTS, down ? s->hidden : width(m),
			       down ? width(m) : s->hidden, rows);
}

struct tuning_place cuts_attention(const struct kernel_shape *s, uint32_t T)
{
	return tuning_place_of(TUNING_ATTENTION, sharers(s), s->head_dim, T);
}

struct tuning_place cuts_decode_step(const struct kernel_shape *s, uint32_t T)
{
	return tuning_place_of(TUNING_DECODE_STEP, s->hidden, width(&s->mlps[0]), T);
}

uint32_t cuts_tile_tokens(const struct kernel_shape *s, const struct tuning_cut *cut)
{
	return MAX(cut->queries / sharers(s), 1u);
}

/* ---- choosing ---- */

/* Returns the number of a cut among the cuts of a kind of programs. A new cut gets a new number, or 0 (the default
 * cut's) if there are CUTS_MAX already. */
static uint32_t number_of(struct cuts *c, enum cut_program program, const struct tuning_cut *cut)
{
	for (uint32_t i = 0; i < c->n[program]; i++)
		if (tuning_equal(&c->of[program][i], cut))
			return i;
	if (c->n[program] == CUTS_MAX) {
		log_warning("tuning: more than %d cuts of a program: one is left out", CUTS_MAX);
		return 0;
	}
	c->of[program][c->n[program]] = *cut;
	return c->n[program]++;
}

/* Looks up one place in all buckets of M and adds it to c->places; p.m does not matter. Does nothing if the place is
 * there already. */
static void add(struct cuts *c, const struct cuts_source *source, struct tuning_place p)
{
	enum cut_program program = cuts_program(p.family);
	uint32_t at = c->n_places;

	for (uint32_t i = 0; i < c->n_places; i++)
		if (c->places[i].family == p.family && c->places[i].n == p.n &&
		    c->places[i].k == p.k)
			return;
	assert(at < CUT_PLACES_MAX);
	c->places[at].family = p.family;
	c->places[at].n = p.n;
	c->places[at].k = p.k;
	for (size_t i = 0; i < TUNING_M_BUCKETS; i++) {
		const struct tuning_row *row = NULL;
		struct tuning_cut wanted;
		size_t looked = 0; /* tables that were searched */

		p.m = tuning_m_buckets[i];
		while (!row && looked < ARRAY_SIZE(source->tables))
			row = tuning_find(source->tables[looked++], source->device, &p,
					  source->any_bits);
		c->given.sizes++;
		if (!row)
			continue;
		c->given.taken += looked == 1;
		wanted = tuning_over(row->cut, c->of[program][0]);
		c->places[at].cut[i] = (uint8_t)number_of(c, program, &wanted);
		c->same_bits &= row->same_bits || !c->places[at].cut[i];
	}
	c->n_places++;
}

void cuts_choose(struct cuts *c, const struct kernel_shape *s,
		 const struct tuning_cut defaults[CUT_PROGRAMS], const struct cuts_source *source)
{
	const uint32_t hidden = KERNEL_LD(s->hidden);
	const struct {
		bool used;
		uint32_t n, k;
	} products[] = {
		{s->heads, kernels_attention_ld(s), hidden},
		{s->heads, hidden, s->heads * s->head_dim},
		{s->key_heads, kernels_delta_ld(s), hidden},
		{s->key_heads, hidden, s->value_heads * s->value_dim},
		{true, KERNEL_LD(s->vocab), hidden},
	};

	*c = (struct cuts){.same_bits = true};
	c->given.known = tuning_knows(source->tables[0], source->device);
	for (size_t i = 0; i < CUT_PROGRAMS; i++) {
		c->of[i][0] = defaults[i];
		c->n[i] = 1;
	}
	for (size_t i = 0; source->products && i < ARRAY_SIZE(products); i++)
		if (products[i].used)
			add(c, source,
			    tuning_place_of(TUNING_PRODUCT, products[i].n, products[i].k, 1));
	for (uint32_t i = 0; source->products && i < s->n_mlps; i++) {
		add(c, source, cuts_experts(s, i, false, 1));
		add(c, source, cuts_experts(s, i, true, 1));
	}
	if (source->attention && s->heads)
		add(c, source, cuts_attention(s, 1));
	if (source->decode_step)
		add(c, source, cuts_decode_step(s, 1));
}

uint32_t cuts_find(const struct cuts *c, const struct tuning_place *p)
{
	for (uint32_t i = 0; !c->defaults && i < c->n_places; i++)
		if (c->places[i].family == p->family && c->places[i].n == p->n &&
		    c->places[i].k == p->k)
			return c->places[i].cut[tuning_m_bucket(p->m)];
	return 0;
}

void cuts_identity(const struct cuts *c, char ret[33])
{
	struct hash128 h = HASH128_INIT;
	char text[256];

	for (uint32_t i = 0; i < c->n_places; i++)
		for (size_t m = 0; m < TUNING_M_BUCKETS; m++) {
			const struct tuning_cut *cut =
				&c->of[cuts_program(c->places[i].family)][c->places[i].cut[m]];

			tuning_cut_text(cut, text, sizeof(text));
			hash128_text(&h, text);
		}
	hash128_hex(&h, ret);
}
