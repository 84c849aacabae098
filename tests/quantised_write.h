/* Writes quantised models for tests. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Bytes of the tensors of the matrices: codes with scales, and the same numbers as floats, of which the embedding has
 * so many. */
struct quantised_written {
	uint64_t codes, floats, embedding;
};

/* Writes the model in the folder `from` to the folder `codes`, without its head of multi-token prediction: as safetensors
 * whose matrices are codes with scales. The layers have pack-quantized, AWQ, int-quantized, NVFP4 and MXFP4 in turn;
 * matrices whose rows are no multiple of 64 stay floats. The folder `floats` (NULL: none) gets the numbers that the codes
 * and scales make. False, with a line that says why: it failed. */
bool quantised_write(const char *from, const char *codes, const char *floats,
		     struct quantised_written *ret);

/* The same, but all matrices whose rows are a multiple of 128 are FP8 with a scale for each 128 x 128 numbers, the
 * embedding too. The others stay floats. */
bool quantised_write_fp8(const char *from, const char *codes, const char *floats,
			 struct quantised_written *ret);

/* Writes the model in the folder `from` to a GGUF file in a recipe, as `tigon quantize` does. False, with a line that says
 * why: it failed. */
bool quantised_gguf(const char *from, const char *to, const char *recipe);
