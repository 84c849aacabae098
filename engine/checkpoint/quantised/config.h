/* What config.json says about a quantised checkpoint: its quantization_config. Tensors decide by themselves in which
 * format they are, so little of it is needed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct config_source;

struct quantised_config {
	uint32_t block_rows, block_cols; /* of scales of blocks; 0: not said */
	/* GPTQ stores zeros less one, unless its checkpoint_format is gptq_v2 */
	bool gptq_v2;
};

/* Reads quantization_config (or compression_config, its older name), if the object has it. Methods and layouts that no
 * format here reads are refused with their name; errors are kept in s. */
void quantised_config_read(struct config_source *s, struct quantised_config *ret);
