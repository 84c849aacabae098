#include "tests/emulator/matrix.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/macros.h"
#include "kernels/quant_stages.h"
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
	while (!PLAIN) {
		const struct quant_type *t = quant_of(random_below(32));

		if (random_below(6) == 0)
			return NULL;
		if (t && K % t->block == 0)
			return t;
	}
	return NULL;
}

/* Makes a panel of random weights of a type: packs it to out, and sets its numbers, [16, K]. */
static void pack_random(const struct quant_type *t, unsigned K, uint8_t *out, float *weights,
			float *exact)
{
	const float factor = t->scale == QUANT_UE4M3 ? 0.75f : 1;
	size_t bytes = K / t->block * t->bytes;
	uint8_t *rows = malloc(bytes * 16), *chunks = malloc(quant_panel_bytes(t, K));
	const void *of[16];

	for (size_t i = 0; i < bytes * 16; i++)
		rows[i] = (uint8_t)random_below(256);
	for (size_t i = 0; i < bytes * 16; i += t->bytes)
		quant_put_scales(t, 0.01 + random_below(100) / 3000.0,
				 0.01 + random_below(100) / 3000.0, rows + i);
	for (unsigned r = 0; r < 16; r++)
		of[r] = rows + r * bytes;
	if (!quant_pack(t, of, K, factor, chunks) || !quant_pack_stages(t, of, K, factor, out))
		abort();
	for (unsigned i = 0; i < 16 * K; i++) {
		struct quant_weight w = quant_weight(t, chunks, i / K, i % K);

		weights[i] = reference_decoded(t, &w);
		exact[i] = (float)(w.code - t->offset) * w.scale - w.min;
	}
	free(rows);
	free(chunks);
}

/* Makes a matrix's panels one behind the other, with their table in front. types: NULL: all are plain. */
static uint8_t *room_for(unsigned n, unsigned K, const struct quant_type *const *types,
			 uint32_t **ret_table)
{
	uint32_t *table = calloc(n + 1, sizeof(*table));
	size_t at = PLAIN ? 0 : ROUND_UP((n + 1) * 4ul, 64ul);
	uint8_t *out;

	for (unsigned p = 0; p < n; p++) {
		table[p] = (uint32_t)(at / 64);
		at += PLAIN ? K * 32ul : quant_stages_bytes(types ? types[p] : NULL, K);
	}
	table[n] = (uint32_t)(at / 64);
	out = emulated_memory(at);
	if (!PLAIN)
		memcpy(out, table, (n + 1) * sizeof(*table));
	*ret_table = table;
	return out;
}

static void pack_plain(const float *rows, unsigned K, uint8_t *panel)
{
	if (!PLAIN)
		quant_plain_begin(panel, K);
	pack_fragments(rows, K, (elem_t *)(void *)(panel + (PLAIN ? 0 : QUANT_HEADER)));
}

struct matrix make_matrix(unsigned rows, unsigned K)
{
	unsigned n = rows / 16;
	struct matrix m = {.rows = rows, .K = K, .weights = random_elements((size_t)rows * K)};
	const struct quant_type **types = calloc(n, sizeof(*types));
	bool *quantised = calloc(n, sizeof(*quantised));
	uint32_t *table, *places;
	uint8_t *out, *decoded;

	for (unsigned p = 0; p < n; p++) {
		types[p] = random_type(K);
		quantised[p] = types[p] != NULL;
	}
	m.exact = emulated_memory((size_t)rows * K * sizeof(float));
	memcpy(m.exact, m.weights, (size_t)rows * K * sizeof(float));
	out = room_for(n, K, types, &table);
	decoded = room_for(n, K, NULL, &places);
	for (unsigned p = 0; p < n; p++) {
		float *weights = m.weights + (size_t)p * 16 * K;

		if (types[p])
			pack_random(types[p], K, out + table[p] * 64ul, weights,
				    m.exact + (size_t)p * 16 * K);
		else
			pack_plain(weights, K, out + table[p] * 64ul);
		pack_plain(weights, K, decoded + places[p] * 64ul);
	}
	m.quantised = quantised;
	m.packed = (const elem_t *)(void *)out;
	m.decoded = (const elem_t *)(void *)decoded;
	free(types);
	free(table);
	free(places);
	return m;
}

const elem_t *embedding_of(const struct matrix *m)
{
	return PLAIN ? make_inputs(m->weights, m->rows, m->K) : m->packed;
}

elem_t *make_inputs(const float *x, unsigned n, unsigned K)
{
	elem_t *out = emulated_memory(2ul * n * K);

	for (unsigned i = 0; i < n * K; i++)
		out[i] = element_of(x[i]);
	return out;
}

float *random_elements(size_t n)
{
	float *x = emulated_memory(n * sizeof(*x));

	for (size_t i = 0; i < n; i++)
		x[i] = random_element();
	return x;
}
