#include "engine/checkpoint/stored_type.h"

#include <string.h>

#include "base/macros.h"

/* Loops of constant length, BLOCK elements at a time, are vectorised by compilers at -O2 too. Data is read through
 * memcpy, because it may have any alignment. (BLOCK is not the block of stored_type.h.) */
enum { BLOCK = 32 };

/* Converts any f16 number, exactly: a multiplication corrects the exponent's bias and also turns subnormal numbers into
 * normal ones; infinities and NaN get the largest exponent. */
static inline float float_of_f16(uint16_t bits)
{
	uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13, u;
	float f;

	memcpy(&f, &magnitude, sizeof(f));
	f *= 0x1p112f;
	memcpy(&u, &f, sizeof(u));
	u |= magnitude >= 0x0f800000 ? 0x7f800000 : 0;
	u |= (uint32_t)(bits & 0x8000) << 16;
	memcpy(&f, &u, sizeof(f));
	return f;
}

#define WIDEN(name, convert)                                     \
	static void name(const void *from, float *out, size_t n) \
	{                                                        \
		const uint8_t *p = from;                         \
		uint16_t part[BLOCK];                            \
		size_t i = 0;                                    \
                                                                 \
		for (; n - i >= BLOCK; i += BLOCK) {             \
			memcpy(part, p + 2 * i, sizeof(part));   \
			for (int k = 0; k < BLOCK; k++)          \
				out[i + k] = convert(part[k]);   \
		}                                                \
		memcpy(part, p + 2 * i, 2 * (n - i));            \
		for (size_t k = 0; i + k < n; k++)               \
			out[i + k] = convert(part[k]);           \
	}

WIDEN(widen_bf16, float_of_bf16)
WIDEN(widen_f16, float_of_f16)

static void copy_f32(const void *from, float *out, size_t n)
{
	memcpy(out, from, n * sizeof(*out));
}

static const struct stored_type types[] = {
	{"F32", 1, 4, copy_f32},     {"F16", 1, 2, widen_f16}, {"BF16", 1, 2, widen_bf16},
	{"F64", 1, 8, NULL},	     {"C64", 1, 8, NULL},      {"I64", 1, 8, NULL},
	{"U64", 1, 8, NULL},	     {"I32", 1, 4, NULL},      {"U32", 1, 4, NULL},
	{"I16", 1, 2, NULL},	     {"U16", 1, 2, NULL},      {"I8", 1, 1, NULL},
	{"U8", 1, 1, NULL},	     {"BOOL", 1, 1, NULL},     {"F8_E4M3", 1, 1, NULL},
	{"F8_E5M2", 1, 1, NULL},     {"F8_E8M0", 1, 1, NULL},  {"F8_E4M3FNUZ", 1, 1, NULL},
	{"F8_E5M2FNUZ", 1, 1, NULL}, {"F6_E2M3", 4, 3, NULL},  {"F6_E3M2", 4, 3, NULL},
	{"F4", 2, 1, NULL},
};

const struct stored_type *stored_type_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(name, types[i].name))
			return &types[i];
	return NULL;
}

uint16_t bf16_of_float(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof(u));
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return 0x7fc0;
	return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

void stored_read(const struct stored_type *t, const void *from, size_t n, bool bf16, void *out)
{
	enum { PART = 256 }; /* a multiple of every type's `elements` */
	float part[PART];
	uint16_t *half = out;

	if (!bf16) {
		t->to_float(from, out, n);
		return;
	}
	if (t->to_float == widen_bf16) {
		memcpy(out, from, n * sizeof(*half));
		return;
	}
	for (size_t i = 0; i < n; i += PART) {
		size_t k = MIN(n - i, (size_t)PART);

		t->to_float((const uint8_t *)from + stored_bytes(t, i), part, k);
		for (size_t j = 0; j < k; j++)
			half[i + j] = bf16_of_float(part[j]);
	}
}
