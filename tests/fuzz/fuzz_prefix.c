/*
 * The random life of tests/prefix_events.c beside the naive model of tests/prefix_model.c. Each random choice
 * takes a byte of the fuzzer's input, or 0 when all bytes are used up.
 */
#include <stddef.h>
#include <stdint.h>

#include "tests/prefix_events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
	const uint8_t *at, *end;
};

static uint32_t byte_below(void *arg, uint32_t n)
{
	struct bytes *b = arg;

	return b->at < b->end ? *b->at++ % n : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes bytes = {data, data + size};
	struct events_source source = {byte_below, &bytes, "fuzz_prefix"};
	struct events_count count = {0};

	events_run(&source, (uint32_t)(size / 4 + 1), &count);
	return 0;
}
