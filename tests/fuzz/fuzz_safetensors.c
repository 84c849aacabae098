/* Bytes as one safetensors file. An accepted file must keep the promises of safetensors.h: every byte of every tensor
 * is read here, so that AddressSanitizer finds a tensor that does not lie in the file. */
#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint/formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	const uint8_t *end;
	size_t bytes, sum;
};

static int visit(const struct tensor *t, void *user)
{
	struct seen *seen = user;
	const uint8_t *p = t->data;
	uint64_t n = 1;

	if (!t->name || strlen(t->name) > TENSOR_NAME_MAX || !t->type ||
	    t->n_dims > TENSOR_DIMS_MAX || p + t->bytes > seen->end)
		abort();
	for (uint32_t i = 0; i < t->n_dims; i++)
		n *= t->shape[i];
	if (t->type->to_float && stored_bytes(t->type, n) != t->bytes)
		abort();
	for (size_t i = 0; i < t->bytes; i++)
		seen->sum += p[i];
	seen->bytes += t->bytes;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen seen = {.end = data + size};
	uint64_t header = 0;
	struct err e = {0};
	int r = safetensors_parse("file", data, size, visit, &seen, &e);

	if (r < 0)
		return e.code == -r && e.text[0] ? 0 : (abort(), 0);
	for (int i = 7; i >= 0; i--)
		header = header << 8 | data[i];
	if (seen.bytes + 8 + header != size)
		abort();
	return 0;
}
