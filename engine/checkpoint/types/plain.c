/* Formats with one element a block. */
#include "engine/checkpoint/types/types.h"

#include <stdint.h>
#include <string.h>

#include "engine/checkpoint/stored_type.h"
#include "engine/checkpoint/types/float16.h"

/* Loops of constant length, STRIDE elements at a time, are vectorised by compilers at -O2 too. Data is read through
 * memcpy, because it may have any alignment. */
enum { STRIDE = 32 };

#define WIDEN(name, convert)                                   \
	void name(const void *from, float *out, size_t n)      \
	{                                                      \
		const uint8_t *p = from;                       \
		uint16_t part[STRIDE];                         \
		size_t i = 0;                                  \
                                                               \
		for (; n - i >= STRIDE; i += STRIDE) {         \
			memcpy(part, p + 2 * i, sizeof(part)); \
			for (int k = 0; k < STRIDE; k++)       \
				out[i + k] = convert(part[k]); \
		}                                              \
		memcpy(part, p + 2 * i, 2 * (n - i));          \
		for (size_t k = 0; i + k < n; k++)             \
			out[i + k] = convert(part[k]);         \
	}

WIDEN(bf16_to_float, float_of_bf16)
WIDEN(f16_to_float, float_of_f16)

void f32_to_float(const void *from, float *out, size_t n)
{
	memcpy(out, from, n * sizeof(*out));
}

void f32_from_float(const float *x, size_t n, const float *importance, void *out)
{
	memcpy(out, x, n * sizeof(*x));
}

#define NARROW(name, convert)                                                   \
	void name(const float *x, size_t n, const float *importance, void *out) \
	{                                                                       \
		uint8_t *p = out;                                               \
                                                                                \
		for (size_t i = 0; i < n; i++) {                                \
			uint16_t bits = convert(x[i]);                          \
                                                                                \
			memcpy(p + 2 * i, &bits, sizeof(bits));                 \
		}                                                               \
	}

NARROW(bf16_from_float, bf16_of_float)
NARROW(f16_from_float, f16_of_float)
