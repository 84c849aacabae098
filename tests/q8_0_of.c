/* Writes a model with lexis' tokenizer as a GGUF file whose matrices are Q8_0, for tests in Python.
 *
 *     q8_0_of DIR FILE */
#include <stdio.h>

#include "tests/gguf_convert.h"
#include "tests/gguf_write.h"

int main(int argc, char **argv)
{
	const struct gguf_conversion how = {.type = GGML_Q8_0, .pre = "qwen2"};

	if (argc != 3) {
		fprintf(stderr, "usage: q8_0_of DIR FILE\n");
		return 1;
	}
	return !gguf_convert(argv[1], argv[2], &how);
}
