/* The number formats in which a checkpoint stores its tensors: two tables with one row each, of the formats of
 * safetensors (stored_type.c) and of GGUF (types/ggml.c). The formats whose weights this engine can load have a
 * conversion, which is in types/.
 *
 * A format packs its elements in blocks that follow each other along the last dimension of a tensor. The formats of
 * safetensors have one element a block (but for a few of less than 8 bits), most of ggml's 32 or 256. The tensors of a
 * checkpoint may have different formats. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stored_type {
	const char *name;	  /* as safetensors or ggml writes it: "BF16", "Q4_K" */
	uint32_t elements, bytes; /* elements and bytes of a block */
	/* Converts n elements to floats without loss; n is a multiple of `elements`, and `from` has any alignment.
	 * NULL: the format is known, but this engine cannot load weights of it. */
	void (*to_float)(const void *from, float *out, size_t n);
	/* Quantises n finite floats, a row of a weight, to blocks; n is a multiple of `elements`, `out` has any
	 * alignment. importance [n]: how much an error of each column counts, at least 0; NULL: the format's own
	 * choice. NULL: this engine cannot quantise to the format. */
	void (*from_float)(const float *x, size_t n, const float *importance, void *out);
};

/* Returns the type of safetensors with that name, static; NULL: there is none. */
const struct stored_type *stored_type_find(const char *name);

/* Returns the type of GGUF files with this number (enum ggml_type), static; NULL: there is none. F32, F16, BF16 and
 * plain whole numbers are the types that stored_type_find has. */
const struct stored_type *stored_type_of_ggml(uint32_t number);

/* Return the type of GGUF files with that name, static (NULL: there is none), and its number there (-1: GGUF files have
 * no such type). */
const struct stored_type *stored_type_named(const char *name);
int stored_type_number(const struct stored_type *t);

/* Returns the bytes of n elements; n is a multiple of t->elements. */
static inline uint64_t stored_bytes(const struct stored_type *t, uint64_t n)
{
	return n / t->elements * t->bytes;
}

/* Converts n elements to floats or to bf16; n is a multiple of t->elements. Rounding to bf16 is to nearest even, so
 * numbers that are bf16 already do not change. The type must have a to_float. */
void stored_read(const struct stored_type *t, const void *from, size_t n, bool bf16, void *out);

/* Rounds n floats to bf16, as bf16_of_float does. */
void stored_narrow(const float *from, size_t n, uint16_t *out);

/* Rounds to the nearest bf16 number, ties to even; NaN becomes a quiet NaN. */
uint16_t bf16_of_float(float x);

static inline float float_of_bf16(uint16_t bits)
{
	uint32_t u = (uint32_t)bits << 16;
	float f;

	__builtin_memcpy(&f, &u, sizeof(f));
	return f;
}
