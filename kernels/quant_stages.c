#include "kernels/quant_stages.h"

#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "kernels/quant_block.h"

enum {
	WINDOW =
		256, /* weights of a row that are packed at a time: whole blocks and whole stages */
	STAGES = WINDOW / QUANT_STAGE_TERMS,
	GROUPS_MAX = WINDOW / 16,
};

/* WINDOW weights of a row: their codes, a byte each, and their scales with the bytes that they have in a panel. */
struct window {
	uint8_t code[WINDOW];
	uint8_t scales[GROUPS_MAX * 4], mins[GROUPS_MAX * 4];
	uint16_t super, super_min;
};

static uint32_t stage_bytes(const struct quant_type *t)
{
	return QUANT_STAGE(t->low, t->high, t->group, t->scale, t->min);
}

uint64_t quant_stages_bytes(const struct quant_type *t, uint64_t K)
{
	uint64_t stages = CEIL_DIV(K, (uint64_t)QUANT_STAGE_TERMS);
	uint64_t bytes = t ? QUANT_SUPERS(K, t->scale) + stages * stage_bytes(t)
			   : stages * QUANT_STAGE_PLAIN;

	return ROUND_UP(QUANT_HEADER + bytes, (uint64_t)64);
}

/* Returns the bytes of a scale. */
static uint32_t scale_bytes(const struct quant_type *t)
{
	return t->scale == QUANT_FLOAT ? 4 : t->scale == QUANT_HALF ? 2 : 1;
}

/* Puts the scales of block b, whose first group has number g, into the window. */
static void put_scales(const struct quant_type *t, const struct quant_block *b, uint32_t g,
		       struct window *w)
{
	switch (t->scale) {
	case QUANT_FLOAT:
		memcpy(w->scales + 4 * g, &b->scale, 4);
		memcpy(w->mins + 4 * g, &b->min, 4);
		break;
	case QUANT_HALF:
		memcpy(w->scales + 2 * g, &b->d, 2);
		memcpy(w->mins + 2 * g, &b->m, 2);
		break;
	default:
		memcpy(w->scales + g, b->s, MAX(t->block / t->group, 1u));
		memcpy(w->mins + g, b->mins, MAX(t->block / t->group, 1u));
		w->super = b->d;
		w->super_min = b->m;
	}
}

/* Reads n weights of a row, from weight k on. Returns whether their scales are finite. */
static bool read_window(const struct quant_type *t, const uint8_t *row, uint64_t k, uint32_t n,
			struct window *w)
{
	bool finite = true;

	memset(w, 0, sizeof(*w));
	for (uint32_t i = 0; i < n; i += t->block) {
		struct quant_block b;

		quant_read_block(t, row + (k + i) / t->block * t->bytes, &b);
		finite &= quant_block_is_finite(t, &b);
		memcpy(w->code + i, b.code, t->block);
		put_scales(t, &b, i / t->group, w);
	}
	return finite;
}

/* Stores `bits` bits, from bit `from` on, of the 64 codes of a row of a stage into the stage's plane. */
static void put_plane(const uint8_t *code, uint32_t bits, uint32_t from, uint32_t row,
		      uint8_t *plane)
{
	static const uint8_t terms[4] = {0, 1, 8, 9};
	const uint32_t mask = (1u << bits) - 1, quads = 8 / bits; /* of a word */

	for (uint32_t t = 0; t < 4; t++)
		for (uint32_t j = 0; j < 4; j++) {
			uint32_t lane = row % 8 * 4 + t, quad = 2 * j + row / 8;
			uint32_t i_word = quad / quads;
			uint8_t *word =
				bits == 1 ? plane + lane * 4
					  : plane + i_word / 2 * 256 + lane * 8 + i_word % 2 * 4;

			for (uint32_t i = 0; i < 4; i++)
				word[i] |=
					(uint8_t)((code[16 * j + 2 * t + terms[i]] >> from & mask)
						  << quad % quads * bits);
		}
}

/* Stores a row of a window. stage: the window's first one; n: how many it has. */
static void put_window(const struct quant_type *t, const struct window *w, uint32_t row, uint32_t n,
		       uint8_t *supers, uint8_t *stage)
{
	const uint32_t groups = QUANT_STAGE_GROUPS(t->group), size = scale_bytes(t);
	const uint32_t at = (row % 8 * 2 + row / 8) * groups * size;

	if (t->scale == QUANT_SUPER) {
		memcpy(supers + row % 8 * 8 + row / 8 * 2, &w->super, 2);
		memcpy(supers + row % 8 * 8 + 4 + row / 8 * 2, &w->super_min, 2);
	}
	for (uint32_t s = 0; s < n; s++, stage += stage_bytes(t)) {
		const uint8_t *code = w->code + s * QUANT_STAGE_TERMS;
		const uint32_t first = s * QUANT_STAGE_TERMS / t->group * size;
		uint8_t *high = stage + 128 * t->low, *scales = high + 128 * t->high;

		put_plane(code, t->low, 0, row, stage);
		if (t->high)
			put_plane(code, t->high, t->low, row, high);
		memcpy(scales + at, w->scales + first, groups * size);
		if (t->min)
			memcpy(scales + QUANT_STAGE_SCALES(t->group, t->scale) + at,
			       w->mins + first, groups * size);
	}
}

/* Writes a panel's header. t: its type, NULL: plain. first: where its first stage begins. */
static void put_header(const struct quant_type *t, float factor, uint32_t first, void *out)
{
	uint32_t header[QUANT_HEADER / 4] = {QUANT_PLAIN, 0, QUANT_STAGE_PLAIN, first};

	memcpy(&header[1], &factor, 4);
	if (t) {
		const uint32_t scales = QUANT_STAGE_SCALES(t->group, t->scale);

		header[0] = t->number;
		header[2] = stage_bytes(t);
		header[4] = (t->low + t->high) / 2;
		header[5] = t->high == 1;
		header[6] = scales / 8;
		header[7] = t->min ? scales : 0;
	}
	memcpy(out, header, sizeof(header));
}

void quant_plain_begin(void *out, uint64_t K)
{
	uint64_t bytes = K * 16 * 2,
		 all = CEIL_DIV(K, (uint64_t)QUANT_STAGE_TERMS) * QUANT_STAGE_PLAIN;

	put_header(NULL, 1, QUANT_HEADER, out);
	memset((uint8_t *)out + QUANT_HEADER + bytes, 0, all - bytes);
}

bool quant_pack_stages(const struct quant_type *t, const void *const rows[16], uint64_t K,
		       float factor, void *out)
{
	const uint32_t first = QUANT_HEADER + (uint32_t)QUANT_SUPERS(K, t->scale);
	uint8_t *supers = (uint8_t *)out + QUANT_HEADER, *stage = (uint8_t *)out + first;
	bool finite = isfinite(factor);

	memset(out, 0, quant_stages_bytes(t, K));
	put_header(t, factor, first, out);
	for (uint64_t k = 0; k < K; k += WINDOW, supers += 64, stage += STAGES * stage_bytes(t)) {
		const uint32_t n = (uint32_t)MIN(K - k, (uint64_t)WINDOW);

		for (uint32_t row = 0; row < 16; row++) {
			struct window w;

			if (!rows[row])
				continue;
			finite &= read_window(t, rows[row], k, n, &w);
			put_window(t, &w, row, CEIL_DIV(n, (uint32_t)QUANT_STAGE_TERMS), supers,
				   stage);
		}
	}
	return finite;
}
