#include "engine/checkpoint/importance.h"

#include <math.h>
#include <stdlib.h>

#include "base/macros.h"

/* Sums of one matrix, or of a matrix for each expert. */
struct sums {
	double *squares; /* owned, [experts][cols]; NULL: no row was added */
	uint64_t *rows;	 /* owned, [experts] */
	uint32_t experts, cols;
};

struct importance {
	uint32_t n_layers;
	bool failed;
	struct sums sums[]; /* [n_layers][WEIGHT_ROLES] */
};

struct importance *importance_new(uint32_t n_layers)
{
	struct importance *m =
		calloc(1, sizeof(*m) + (size_t)n_layers * WEIGHT_ROLES * sizeof(m->sums[0]));

	if (m)
		m->n_layers = n_layers;
	return m;
}

void importance_free(struct importance *m)
{
	for (size_t i = 0; m && i < (size_t)m->n_layers * WEIGHT_ROLES; i++) {
		free(m->sums[i].squares);
		free(m->sums[i].rows);
	}
	free(m);
}

/* Returns the first of the roles whose matrices read the same rows. */
static enum weight_role reader_of(enum weight_role role)
{
	switch (role) {
	case WEIGHT_ATTN_K:
	case WEIGHT_ATTN_V: return WEIGHT_ATTN_Q;
	case WEIGHT_DELTA_Z:
	case WEIGHT_DELTA_B:
	case WEIGHT_DELTA_A: return WEIGHT_DELTA_QKV;
	case WEIGHT_EXPERT_UP: return WEIGHT_EXPERT_GATE;
	case WEIGHT_SHARED_UP: return WEIGHT_SHARED_GATE;
	default: return role;
	}
}

static size_t place_of(enum weight_role role, uint32_t layer)
{
	return (size_t)layer * WEIGHT_ROLES + reader_of(role);
}

void importance_fail(struct importance *m)
{
	m->failed = true;
}

bool importance_failed(const struct importance *m)
{
	return m->failed;
}

void importance_add(struct importance *m, enum weight_role role, uint32_t layer, uint32_t experts,
		    uint32_t expert, const float *row, uint32_t cols)
{
	struct sums *s = &m->sums[place_of(role, layer)];
	double *to;

	if (!s->squares) {
		*s = (struct sums){.squares = calloc((size_t)experts * cols, sizeof(*s->squares)),
				   .rows = calloc(experts, sizeof(*s->rows)),
				   .experts = experts,
				   .cols = cols};
		m->failed |= !s->squares || !s->rows;
	}
	if (m->failed)
		return;
	to = s->squares + (size_t)expert * cols;
	for (uint32_t i = 0; i < cols; i++)
		to[i] += (double)row[i] * (double)row[i];
	s->rows[expert]++;
}

bool importance_means(const double *sums, double rows, uint64_t cols, float *out)
{
	double all = 0;

	for (uint64_t i = 0; i < cols; i++)
		all += sums[i];
	for (uint64_t i = 0; i < cols; i++)
		out[i] = (float)(MAX(sums[i], all / (double)cols * 1e-6) / rows);
	return rows > 0 && all > 0 && isfinite(all);
}

bool importance_of(const struct importance *m, enum weight_role role, uint32_t layer,
		   uint32_t expert, uint64_t cols, float *out)
{
	const struct sums *s = &m->sums[place_of(role, layer)];

	return s->squares && s->cols == cols && expert < s->experts && s->rows[expert] &&
	       importance_means(s->squares + (size_t)expert * s->cols, (double)s->rows[expert],
				cols, out);
}
