/* The data that layers keep of a sequence, as lists of named pieces. A layer has a buffer for each entry of its list;
 * the buffer holds one piece for every KV page, or one for every state slot. From these lists follow the sizes of
 * pages and slots, the bytes in files and in messages to other workers, and all copies. */
#pragma once

#include "engine/checkpoint/model_config.h"
#include "prefix_cache/tiers.h"

struct layer_piece {
	const char *name;
	int at; /* its buffer: AT_* of kernels/step.h */
	enum tier_kind kind;
	uint64_t bytes;
};

enum { LAYER_PIECES_MAX = 3 };

/* The pieces of a layer of the model; returns their number. */
uint32_t layer_pieces(const struct model_config *c, uint32_t layer, uint32_t element,
		      uint32_t page_tokens, struct layer_piece ret[LAYER_PIECES_MAX]);

/* Bytes of a KV page, or of a state slot, over all layers. */
uint64_t layer_piece_bytes(const struct model_config *c, uint32_t element, uint32_t page_tokens,
			   enum tier_kind kind);
