/*
 * engine/checkpoint/staging: bytes that are written into its blocks arrive at their place in a buffer of the device,
 * though a block is written again as soon as it was copied.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint/staging.h"
#include "engine/device.h"
#include "tests/tap.h"

enum { BLOCK = 1 << 20, PIECES = 9 };

static size_t piece_bytes(unsigned i)
{
	return i == PIECES - 1 ? 12345 : BLOCK;
}

TEST(staging)
{
	static unsigned char got[PIECES * BLOCK];
	struct device d;
	struct staging s;
	struct err e = {0};
	cl_mem buffer;
	cl_int code;
	size_t wrong = 0;

	if (!ok(device_open(NULL, &d, &e) == 0, "a device opens %s", e.text))
		return;
	buffer = clCreateBuffer(d.context, CL_MEM_READ_WRITE, sizeof(got), NULL, &code);
	ok(code == CL_SUCCESS && staging_open(&s, d.context, d.queue, BLOCK), "there are blocks");
	for (unsigned i = 0; i < PIECES; i++) {
		void *block = staging_take(&s, &e), *other = s.blocks[!s.turn];

		if (!block || !staging_has(&s, block) || staging_has(&s, other))
			wrong++;
		else
			memset(block, (int)i + 1, piece_bytes(i));
		/* the pieces lie in the buffer in the opposite order */
		staging_send(&s, buffer, (uint64_t)(PIECES - 1 - i) * BLOCK, piece_bytes(i), &e);
	}
	ok(!wrong && !e.code, "each block is there in its turn and is sent %s", e.text);
	ok(clEnqueueReadBuffer(d.queue, buffer, CL_TRUE, 0, sizeof(got), got, 0, NULL, NULL) ==
		   CL_SUCCESS,
	   "the buffer is read");
	for (unsigned i = 0; i < PIECES; i++)
		for (size_t b = 0; b < piece_bytes(i); b++)
			wrong += got[(size_t)(PIECES - 1 - i) * BLOCK + b] != i + 1;
	is_int((long)wrong, 0, "every byte is at its place");
	staging_send(&s, buffer, sizeof(got), 1, &e);
	ok(e.code, "a copy past the end is an error: %s", e.text);
	clFinish(d.queue);
	staging_close(&s);
	clReleaseMemObject(buffer);
	device_close(&d);
}

TEST_MAIN()
