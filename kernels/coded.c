#include "kernels/coded.h"

#include <stdbool.h>

#include <string.h>

#include "base/macros.h"

enum {
	TILE_WEIGHTS = 256,
	STEP_WEIGHTS = 64,
	CODES = STEP_WEIGHTS / 2,		  /* bytes of a step's codes */
	TWO_STEPS = 2 * CODES + 2 * STEP_WEIGHTS, /* bytes of two steps */
	TILE_BYTES = 384,
	TILES_A_WORD = 32,
	DICTIONARY = 16,
};

/* Return where the codes and the lower bytes of a step (coded.h) begin in its tile, in bytes. */
static size_t codes_at(size_t step)
{
	return step / 2 * TWO_STEPS + step % 2 * CODES;
}

static size_t lower_at(size_t step)
{
	return step / 2 * TWO_STEPS + 2 * CODES + step % 2 * STEP_WEIGHTS;
}

static uint64_t header_bytes(uint64_t K)
{
	return ROUND_UP(DICTIONARY + CEIL_DIV(K / 16, (uint64_t)TILES_A_WORD) * 4,
			(uint64_t)CODED_UNIT);
}

uint64_t coded_table_bytes(uint64_t n)
{
	return ROUND_UP((n + 1) * 4, (uint64_t)CODED_UNIT);
}

uint64_t coded_panel_bound(uint64_t K)
{
	return header_bytes(K) + K * 16 * 2;
}

/* Fills the dictionary with the 16 most frequent upper bytes of n weights (a multiple of 8). Of two upper bytes that
 * are equally frequent, the smaller comes first. code_of gets, for each of the 256 upper bytes, its place in the
 * dictionary, or DICTIONARY if it is not there. */
static void make_dictionary(const uint16_t *pairs, uint64_t n, uint8_t dictionary[DICTIONARY],
			    uint8_t code_of[256])
{
	/* Neighbours are counted in different tables, so that an increment need not wait for the one before it. */
	uint32_t counts[8][256] = {{0}};
	uint8_t occur[256]; /* the upper bytes that occur, in ascending order */
	size_t n_occur = 0;

	for (uint64_t i = 0; i < n; i += 8)
		for (uint64_t j = 0; j < 8; j++)
			counts[j][pairs[i + j] >> 8]++;
	for (size_t j = 1; j < 8; j++)
		for (size_t v = 0; v < 256; v++)
			counts[0][v] += counts[j][v];
	for (size_t v = 0; v < 256; v++)
		if (counts[0][v])
			occur[n_occur++] = (uint8_t)v;
	memset(code_of, DICTIONARY, 256);
	for (uint8_t c = 0; c < DICTIONARY; c++) {
		uint8_t best = occur[0];

		for (size_t i = 1; i < n_occur; i++)
			if (counts[0][occur[i]] > counts[0][best])
				best = occur[i];
		/* If fewer than 16 upper bytes occur, the rest of the dictionary repeats the last one. */
		dictionary[c] = counts[0][best] ? best : dictionary[c - 1];
		if (counts[0][best])
			code_of[best] = c;
		counts[0][best] = 0;
	}
}

/* Codes the weights of one tile. Returns false if the upper byte of a weight is not in the dictionary. */
static bool code_tile(const uint16_t *pairs, const uint8_t code_of[256], uint8_t out[TILE_BYTES])
{
	uint8_t missing = 0;

	for (size_t step = 0; step < TILE_WEIGHTS / STEP_WEIGHTS; step++) {
		const uint16_t *from = pairs + step * STEP_WEIGHTS;
		uint8_t *lower = out + lower_at(step), *codes = out + codes_at(step);
		uint8_t code[STEP_WEIGHTS];

		/* byte b belongs to weight i of register v */
		for (size_t b = 0, half = 0; half < 4; half++)
			for (size_t v = 0; v < 2; v++)
				for (size_t i = half * 8; i < half * 8 + 8; i++, b++) {
					uint16_t w = from[v * 32 + i];

					lower[b] = (uint8_t)w;
					code[b] = code_of[w >> 8];
					missing |= code[b];
				}
		for (size_t b = 0; b < CODES; b++)
			codes[b] = (uint8_t)(code[b] | code[b + CODES] << 4);
	}
	return !(missing & DICTIONARY);
}

size_t coded_panel(const uint16_t *pairs, uint64_t K, uint8_t *out)
{
	uint8_t code_of[256], *at = out + header_bytes(K);

	memset(out, 0, header_bytes(K));
	make_dictionary(pairs, K * 16, out, code_of);
	for (uint64_t t = 0; t < K / 16; t++) {
		const uint16_t *tile = pairs + t * TILE_WEIGHTS;

		if (code_tile(tile, code_of, at)) {
			at += TILE_BYTES;
			continue;
		}
		memcpy(at, tile, TILE_WEIGHTS * sizeof(*tile));
		at += TILE_WEIGHTS * sizeof(*tile);
		out[DICTIONARY + t / 8] |= (uint8_t)(1u << t % 8);
	}
	return (size_t)(at - out);
}

void coded_panel_decode(const uint8_t *panel, uint64_t K, uint16_t *ret_pairs)
{
	const uint8_t *at = panel + header_bytes(K);

	for (uint64_t t = 0; t < K / 16; t++) {
		uint16_t *tile = ret_pairs + t * TILE_WEIGHTS;

		if (panel[DICTIONARY + t / 8] >> t % 8 & 1) {
			memcpy(tile, at, TILE_WEIGHTS * sizeof(*tile));
			at += TILE_WEIGHTS * sizeof(*tile);
			continue;
		}
		for (size_t n = 0; n < TILE_WEIGHTS; n++) {
			size_t step = n / STEP_WEIGHTS, b = n % STEP_WEIGHTS, v = b / 8 % 2,
			       i = b / 16 * 8 + b % 8;
			uint8_t codes = at[codes_at(step) + b % CODES];
			uint8_t upper = panel[b < CODES ? codes & 15 : codes >> 4];

			tile[step * STEP_WEIGHTS + v * 32 + i] =
				(uint16_t)(at[lower_at(step) + b] | upper << 8);
		}
		at += TILE_BYTES;
	}
}
