/* The number formats in which a checkpoint stores its tensors: a table with one row each. The formats whose weights
 * this engine can load have a conversion.
 *
 * A format packs its elements in blocks that follow each other along the last dimension of a tensor. Most formats
 * have one element a block. The tensors of a checkpoint may have different formats. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stored_type {
	const char *name;	  /* as safetensors writes it: "BF16" */
	uint32_t elements, bytes; /* elements and bytes of a block */
	/* Converts n elements to floats without loss; n is a multiple of `elements`, and `from` has any alignment.
	 * NULL: the format is known, but this engine cannot load weights of it. */
	void (*to_float)(const void *from, float *out, size_t n);
};

/* Returns the type of that name, static; NULL: there is none. */
const struct stored_type *stored_type_find(const char *name);

/* Returns the bytes of n elements; n is a multiple of t->elements. */
static inline uint64_t stored_bytes(const struct stored_type *t, uint64_t n)
{
	return n / t->elements * t->bytes;
}

/* Converts n elements to floats or to bf16; n is a multiple of t->elements. Rounding to bf16 is to nearest even, so
 * numbers that are bf16 already do not change. The type must have a to_float. */
void stored_read(const struct stored_type *t, const void *from, size_t n, bool bf16, void *out);

/* Rounds to the nearest bf16 number, ties to even; NaN becomes a quiet NaN. */
uint16_t bf16_of_float(float x);

static inline float float_of_bf16(uint16_t bits)
{
	uint32_t u = (uint32_t)bits << 16;
	float f;

	__builtin_memcpy(&f, &u, sizeof(f));
	return f;
}
