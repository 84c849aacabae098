/* A block of a file, taken apart: what the two orders of panels (quant.h, quant_stages.h) are packed from. */
#pragma once

#include "kernels/quant.h"

/* Codes, and scales in the form that the type has. A type of HALF has d and m alone, for all of its weights, one of FLOAT
 * scale and min. */
struct quant_block {
	uint8_t code[256];
	uint16_t d, m; /* f16 */
	float scale, min;
	uint8_t s[16]; /* for each group; int8 in types of SUPER */
	uint8_t mins[16];
};

/* Reads a block of t->bytes bytes. */
void quant_read_block(const struct quant_type *t, const uint8_t *p, struct quant_block *ret);

/* Returns whether the block's scales are finite, and those of its mins. A NaN of UE4M3 counts as zero, as in ggml. */
bool quant_block_is_finite(const struct quant_type *t, const struct quant_block *b);
