/*
 * What layers keep of a sequence, as named pieces. A layer has a buffer for each of its pieces, and there one piece a KV page
 * or one a state slot. The sizes of pages and slots, what of them goes to files and to other processes, and all copies follow
 * from these lists.
 */
#ifndef ENGINE_LAYERS_PIECE_H
#define ENGINE_LAYERS_PIECE_H

#include "engine/checkpoint/model_config.h"
#include "prefix_cache/tiers.h"

struct layer_piece {
	const char *name;
	int at; /* its buffer: AT_* of kernels/step.h */
	enum tier_kind kind;
	uint64_t bytes;
};

enum { LAYER_PIECES_MAX = 3 };

/* What a layer of the model keeps; returns how many pieces. */
uint32_t layer_pieces(const struct model_config *c, uint32_t layer, uint32_t element,
		      uint32_t page_tokens, struct layer_piece ret[LAYER_PIECES_MAX]);

/* Bytes of a KV page, or of a state slot, over all layers. */
uint64_t layer_piece_bytes(const struct model_config *c, uint32_t element, uint32_t page_tokens,
			   enum tier_kind kind);

#endif
