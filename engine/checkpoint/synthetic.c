#include "engine/checkpoint/synthetic.h"

#include <math.h>
#include <string.h>

#include "engine/checkpoint/stored_type.h"
#include "kernels/generic/synthetic.clh"

/* Returns the nearest number with 8 significant bits (ties go up), because synthetic.clh needs exact products. */
static float round_scale(double scale)
{
	float f = (float)scale;
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	u = (u + 0x8000) & 0xffff0000;
	memcpy(&f, &u, sizeof(f));
	return f;
}

void synthetic_weight(uint64_t seed, const struct weight *w, uint32_t expert,
		      struct weight_synthesis *ret)
{
	uint64_t id = (uint64_t)w->role << 48 | (uint64_t)w->layer << 24 | expert;
	double range = w->range;

	if (w->gain > 0)
		range = w->gain * sqrt(3.0 / (double)w->cols);
	ret->key = synthetic_mix(synthetic_mix(seed + 0x9e3779b97f4a7c15) ^ id);
	ret->scale = round_scale(range / 32768);
	ret->offset = w->offset;
}

static void put(uint32_t bits, bool bf16, void *out, uint64_t at)
{
	if (bf16)
		((uint16_t *)out)[at] = (uint16_t)bits;
	else
		((float *)out)[at] = float_of_bf16((uint16_t)bits);
}

void synthetic_row(const struct weight_synthesis *s, uint64_t row, uint64_t cols, bool bf16,
		   void *out)
{
	uint64_t first = row * cols, word = 0;

	/* Four neighbouring elements share a word of the hash. */
	for (uint64_t i = 0; i < cols; i++) {
		uint64_t index = first + i;

		if (!i || index % 4 == 0)
			word = synthetic_word(s->key, index / 4);
		put(synthetic_bf16_of((uint32_t)(word >> 16 * (index % 4)), s->scale, s->offset),
		    bf16, out, i);
	}
}
