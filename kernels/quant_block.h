/* A block of a file, taken apart: panels of either order (quant.h, quant_stages.h) are packed from it. */
#pragma once

#include "kernels/quant.h"

/* Codes and scales of a block. A type of HALF has d and m for all weights of the block, one of FLOAT has scale and min.
 * One of SUPER has d, m, s and mins, and the others have s alone. m, min and mins are of types with a min. */
struct quant_block {
	uint8_t code[256];
	uint16_t d, m; /* f16 */
	float scale, min;
	uint8_t s[16], mins[16]; /* for each group; s is signed in types of SUPER */
};

/* Reads a block of t->bytes bytes. */
void quant_read_block(const struct quant_type *t, const uint8_t *p, struct quant_block *ret);

/* Returns whether the block's scales are finite, and those of its mins. A NaN of UE4M3 counts as zero, as in ggml. */
bool quant_block_is_finite(const struct quant_type *t, const struct quant_block *b);
