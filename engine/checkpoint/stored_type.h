/*
 * The number formats in which a checkpoint stores its tensors: one row each, and the conversions.
 *
 * A format packs its elements in blocks that lie one behind another, along the last dimension of a
 * tensor; most have one element a block. Every tensor has a type of its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stored_type {
	const char *name;	  /* as safetensors writes it: "BF16" */
	uint32_t elements, bytes; /* of a block */
	/* Widens n elements, a multiple of a block's, exactly; `from` has any alignment. NULL: this
	 * engine does not compute with the type. */
	void (*to_float)(const void *from, float *out, size_t n);
};

/* The type of that name, static; NULL when there is none. */
const struct stored_type *stored_type_find(const char *name);

/* Bytes of n elements, a multiple of a block's. */
static inline uint64_t stored_bytes(const struct stored_type *t, uint64_t n)
{
	return n / t->elements * t->bytes;
}

/* Converts n elements, a multiple of a block's, to floats or to bf16 (rounded to nearest even, which
 * changes no number that is bf16 already). The type has a to_float. */
void stored_read(const struct stored_type *t, const void *from, size_t n, bool bf16, void *out);

/* To nearest, ties to even; NaN becomes a quiet NaN. */
uint16_t bf16_of_float(float x);

static inline float float_of_bf16(uint16_t bits)
{
	uint32_t u = (uint32_t)bits << 16;
	float f;

	__builtin_memcpy(&f, &u, sizeof(f));
	return f;
}
