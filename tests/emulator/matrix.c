#include "tests/emulator/matrix.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/macros.h"
#include "kernels/quant.h"
#include "tests/emulator/warp.h"
#include "tests/kernels/reference.h"
#include "tests/random.h"

float random_element(void)
{
	return (float)((int)random_below(257) - 128) / 64;
}

elem_t element_of(float x)
{
	return (elem_t)(float_bits(x) >> 16);
}

float float_of(elem_t v)
{
	uint32_t bits = (uint32_t)v << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Writes a panel of elements, [16, K], in the order of FRAGMENTS (kernels/kernels.h). */
static void pack_fragments(const float *rows, unsigned K, elem_t *out)
{
	for (unsigned i = 0; i < K * 16; i++) {
		unsigned lane = i / 8 % 32, r = i % 8 / 2;

		out[i] = element_of(rows[(lane / 4 + r % 2 * 8) * K + i / 256 * 16 + lane % 4 * 2 +
					 r / 2 * 8 + i % 2]);
	}
}

/* A type that rows of K weights can have, or NULL. */
static const struct quant_type *random_type(unsigned K)
{
	for (;;) {
		const struct quant_type *t = quant_of(random_below(32));

		if (random_below(6) == 0)
			return NULL;
		if (t && K % t->block == 0)
			return t;
	}
}

static void pack_random(const struct quant_type *t, unsigned K, uint8_t *out)
{
	size_t bytes = K / t->block * t->bytes;
	uint8_t *rows = malloc(bytes * 16);
	const void *of[16];

	for (size_t i = 0; i < bytes * 16; i++)
		rows[i] = (uint8_t)random_below(256);
	for (size_t i = 0; i < bytes * 16; i += t->bytes)
		quant_put_scales(t, 0.01 + random_below(100) / 3000.0,
				 0.01 + random_below(100) / 3000.0, rows + i);
	for (unsigned r = 0; r < 16; r++)
		of[r] = rows + r * bytes;
	if (!quant_pack(t, of, K, t->scale == QUANT_UE4M3 ? 0.75f : 1, out))
		abort();
	free(rows);
}

struct matrix make_matrix(unsigned rows, unsigned K)
{
	unsigned n = rows / 16;
	struct matrix m = {.rows = rows, .K = K, .plain = random_elements((size_t)rows * K)};
	uint32_t *table = calloc(n + 1, sizeof(*table));
	size_t at = ROUND_UP((n + 1) * 4ul, 64ul);
	uint8_t *out;

	m.types = calloc(n, sizeof(*m.types));
	m.panels = calloc(n, sizeof(*m.panels));
	for (unsigned p = 0; p < n; p++) {
		const struct quant_type *t = m.types[p] = random_type(K);

		table[p] = (uint32_t)(at / 64);
		at += t ? quant_panel_bytes(t, K) : QUANT_HEADER + K * 32ul;
	}
	table[n] = (uint32_t)(at / 64);
	out = emulated_memory(at);
	memcpy(out, table, (n + 1) * sizeof(*table));
	for (unsigned p = 0; p < n; p++) {
		uint8_t *panel = out + table[p] * 64ul;

		m.panels[p] = panel;
		if (m.types[p])
			pack_random(m.types[p], K, panel);
		else
			pack_fragments(m.plain + (size_t)p * 16 * K, K,
				       (elem_t *)(void *)(panel + QUANT_HEADER));
	}
	m.packed = (const elem_t *)(void *)out;
	free(table);
	return m;
}

unsigned input_ld(unsigned K)
{
	return ROUND_UP(CEIL_DIV(K, 32u) * 112, 64u) / 2;
}

elem_t *make_inputs(const float *x, unsigned n, unsigned K)
{
	elem_t *out = emulated_memory(2ul * n * input_ld(K));

	for (unsigned r = 0; r < n; r++)
		reference_input(x + (size_t)r * K, K, true, true, out + (size_t)r * input_ld(K));
	return out;
}

float *random_elements(size_t n)
{
	float *x = emulated_memory(n * sizeof(*x));

	for (size_t i = 0; i < n; i++)
		x[i] = random_element();
	return x;
}
