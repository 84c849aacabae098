/* Converts Hugging Face folders to GGUF files for tests, as llama.cpp's converter does it: names, order of rows, numbers
 * that are changed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct gguf_conversion {
	uint32_t type; /* ggml's number of the format of matrices; 0: float */
	bool rounded;  /* matrices have the numbers of this format, but are stored in float */
	bool fused;    /* q, k and v of attention are one tensor, and gate and up of experts */
	bool interleaved; /* Qwen3-Next: the projections of Gated DeltaNet are as in its first GGUF files */
	bool head; /* a head that is tied to the embedding stands in the file as well */
	bool interval; /* full_attention_interval stands in the place of recurrent_layers; Gemma 3: the number 3 in that
			  * of a list of layers with a window */
	uint32_t mtp;	 /* layers of multi-token prediction; a few of their tensors are there */
	uint32_t parts;	 /* number of files; 0: one, and no keys of split files */
	const char *pre; /* tokenizer.ggml.pre; NULL: the model has no tokenizer */
};

/* Writes the model in the folder `from` to the file `to`; of split files `to` is the name without -00001-of-00002.gguf.
 * False, with a line that says why: it cannot be read, or a GGUF file cannot say what its configuration says. */
bool gguf_convert(const char *from, const char *to, const struct gguf_conversion *how);
