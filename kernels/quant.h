/* Quantised weights: panels of the bits that a file has, and the host's packing of them.
 *
 * A file of ggml's (GGUF) stores each row of a matrix as blocks; a block has the codes of 32 or 256 weights and their
 * scales. Files that have codes and scales in tensors of their own become such blocks first
 * (engine/checkpoint/quantised/). Blocks of INT and UINT types have a group: the scale as a float, the min of UINT, and
 * the codes, a byte each or two in a byte, those of the group's first half in the lower halves of the bytes. A block of
 * E4M3 has a scale as a float and 32 codes, so neighbouring blocks repeat a scale.
 *
 * Kernels want one register to hold the codes of several rows, and the scales apart from the codes. So the rows are
 * packed anew, 16 at a time, in chunks of CHUNK weights (kernels/quant_types.h has the types). No bit of a code or
 * scale changes, and sizes stay nearly the same: only the scales of 6 bits of the K types become bytes. Tensor cores
 * read the same numbers in another order (kernels/quant_stages.h).
 *
 * A panel holds 16 rows of a matrix, which are 16 columns of a product. It is a header of QUANT_HEADER bytes, and then
 * the chunks, k ascending. A chunk is:
 *
 *     scales    HALF    f16 [CHUNK / GROUP][16], and with a min f16 [CHUNK / GROUP][16]
 *               SUPER   f16 [16], f16 [16] (of the mins, or zeros), int8 [CHUNK / GROUP][16], and with a min uint8
 *                       [CHUNK / GROUP][16]
 *               E8M0, UE4M3  uint8 [CHUNK / GROUP][16]
 *               FLOAT   float [CHUNK / GROUP][16], and with a min float [CHUNK / GROUP][16]
 *     low       LOW bits of each code; a *quad* is 64 bytes: byte i of word c belongs to row c and to k = 4 quad + i
 *                   8 bits: the quads one behind the other
 *                   4 bits: quad 2 r in the lower halves of the bytes of register r, quad 2 r + 1 in the upper ones
 *                   2 bits: quad 4 r + j in bits 2 j and 2 j + 1 of the bytes of register r
 *     high      2 bits like those of low, or 1 bit: quad 8 r + j in bit j of the bytes of register r
 *
 * So all parts begin at multiples of 64 bytes. (Therefore E4M3 keeps a scale for each row, though most files have one
 * for all rows of a panel: a single float would take as many bytes.) The last chunk of a row may have fewer than CHUNK
 * weights: the scales that it lacks are zero.
 *
 * A matrix of n panels begins with a table, uint32 [n + 1]: where each panel begins, in units of 64 bytes, and the end.
 * The panels lie in the order of the table, without gaps, also where panels of two types take turns. So a kernel that
 * asks for neighbouring panels ahead of their use takes them as one stretch (generic/decode_step.cl).
 *
 * Source of the block formats: ggml, ggml-common.h and ggml-quants.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/quant_types.h"

enum quant_number {
#define QUANT_NUMBER(name, number, ...) QUANT_##name = number,
	QUANT_TYPES(QUANT_NUMBER)
#undef QUANT_NUMBER
};

struct quant_type {
	const char *name; /* of ggml's types ggml's: "Q4_K" */
	enum quant_number number;
	uint32_t chunk, low, high, group;
	int scale, table;
	bool min;
	int offset;
	uint32_t block, bytes; /* weights and bytes of a block in a file */
};

/* Returns the type of that name or number, static; NULL: there is none. */
const struct quant_type *quant_find(const char *name);
const struct quant_type *quant_of(uint32_t number);

/* Returns the bytes of a panel of K weights a row. K is a multiple of t->block. */
uint64_t quant_panel_bytes(const struct quant_type *t, uint64_t K);

/* Packs the blocks of 16 rows of K weights into out [quant_panel_bytes]. A row that is NULL becomes zeros. factor: the
 * tensor's own scale, 1 for types that have none. Returns false if a scale is not finite; the panel is complete all the
 * same. */
bool quant_pack(const struct quant_type *t, const void *const rows[16], uint64_t K, float factor,
		void *out);

/* Sets all scales of a block of a file to about `scale`, and its mins to about `min`, both positive. Replaces codes
 * that are NaN. For synthetic weights. */
void quant_put_scales(const struct quant_type *t, double scale, double min, void *block);

/* A weight of a panel as kernels see it: its value is (code - offset) * scale - min, where the code is a value of the
 * type's table plus its offset, if it has a table. */
struct quant_weight {
	float code; /* a whole number from 0 to 255; of E4M3 its number */
	float scale, min;
};
struct quant_weight quant_weight(const struct quant_type *t, const void *panel, uint32_t row,
				 uint64_t k);
