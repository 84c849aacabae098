/* The data that a layer keeps of a sequence, as a list of named parts. A part is kept for every KV page (the page's
 * keys, its values) or for every state slot. It has a buffer of its own, which holds one *piece* for each page or slot,
 * and maybe work space behind the pieces.
 * From these lists follow the sizes of pages and slots, the bytes in files and in messages to other workers, and all
 * copies. */
#pragma once

#include "engine/checkpoint/model_config.h"
#include "prefix_cache/tiers.h"

struct layer_part {
	const char *name;
	int at; /* its buffer: AT_* of kernels/step.h */
	enum tier_kind kind;
	uint64_t bytes; /* of one piece */
	/* bytes of the work space for each CHUNK_TOKENS tokens of a step */
	uint64_t chunk_bytes;
};

enum { LAYER_PARTS_MAX = 3 };

/* A layer with a sliding window keeps the KV of a sequence's last tokens in its state slot, as a *ring* of pages. Page k of
 * the sequence is page k % N of the ring, where N is this number: a window of so many tokens touches at most N pages.
 * Slot s has the pages s * N ... s * N + N - 1 of the layer's buffers. 0: no layer has a window. */
uint32_t layer_ring_pages(const struct model_config *c, uint32_t page_tokens);

/* Lists the parts that a layer of the model keeps of a sequence; returns their number. number: bytes of a number in KV
 * pages, here and below; 1 stands for int8 with scales (kernels_kv_row_bytes). */
uint32_t layer_parts(const struct model_config *c, uint32_t layer, uint32_t number,
		     uint32_t page_tokens, struct layer_part ret[LAYER_PARTS_MAX]);

/* Returns the bytes of a KV page, or of a state slot, over all layers. */
uint64_t layer_part_bytes(const struct model_config *c, uint32_t number, uint32_t page_tokens,
			  enum tier_kind kind);
