#include "engine/checkpoint/stored_type.h"

#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/types/types.h"

/* The formats of safetensors files. */
static const struct stored_type types[] = {
	{"F32", 1, 4, f32_to_float, f32_from_float},
	{"F16", 1, 2, f16_to_float, f16_from_float},
	{"BF16", 1, 2, bf16_to_float, bf16_from_float},
	{"F64", 1, 8, NULL},
	{"C64", 1, 8, NULL},
	{"I64", 1, 8, NULL},
	{"U64", 1, 8, NULL},
	{"I32", 1, 4, NULL},
	{"U32", 1, 4, NULL},
	{"I16", 1, 2, NULL},
	{"U16", 1, 2, NULL},
	{"I8", 1, 1, NULL},
	{"U8", 1, 1, NULL},
	{"BOOL", 1, 1, NULL},
	{"F8_E4M3", 1, 1, NULL},
	{"F8_E5M2", 1, 1, NULL},
	{"F8_E8M0", 1, 1, NULL},
	{"F8_E4M3FNUZ", 1, 1, NULL},
	{"F8_E5M2FNUZ", 1, 1, NULL},
	{"F6_E2M3", 4, 3, NULL},
	{"F6_E3M2", 4, 3, NULL},
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
	return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0
					       : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

void stored_narrow(const float *from, size_t n, uint16_t *out)
{
	enum {
		STRIDE = 32
	}; /* of loops of constant length, which compilers vectorise at -O2 too */
	size_t i = 0;

	for (; n - i >= STRIDE; i += STRIDE)
		for (int k = 0; k < STRIDE; k++)
			out[i + k] = bf16_of_float(from[i + k]);
	for (; i < n; i++)
		out[i] = bf16_of_float(from[i]);
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
	if (t->to_float == bf16_to_float) {
		memcpy(out, from, n * sizeof(*half));
		return;
	}
	for (size_t i = 0; i < n; i += PART) {
		size_t k = MIN(n - i, (size_t)PART);

		t->to_float((const uint8_t *)from + stored_bytes(t, i), part, k);
		stored_narrow(part, k, half + i);
	}
}
