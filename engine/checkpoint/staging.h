/* Host memory through which weights go to a device that does not share the host's memory. It has two blocks: threads
 * write weights into one of them while the other one is copied to the device. The driver can copy from these blocks
 * directly, because they are buffers of its own (CL_MEM_ALLOC_HOST_PTR). A mapping of the weights' buffer would be
 * copied more slowly, and the caller would have to wait. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/cl_error.h"

enum { STAGING_BLOCKS = 2 };

struct staging {
	cl_command_queue queue;		/* borrowed */
	cl_mem buffers[STAGING_BLOCKS]; /* owned */
	void *blocks[STAGING_BLOCKS];	/* their mappings */
	cl_event copied
		[STAGING_BLOCKS]; /* the copy from a block that is under way; NULL: there is none */
	uint64_t bytes;		  /* of a block */
	unsigned turn;		  /* the block that is used next */
};

/* Makes the blocks, of so many bytes each. False: the driver has no such memory, and *s is not to be used. */
bool staging_open(struct staging *s, cl_context context, cl_command_queue queue, uint64_t bytes);

/* The copies must have ended (clFinish). */
void staging_close(struct staging *s);

/* Returns the next block, when the copy from it has ended. NULL: the copy failed. */
void *staging_take(struct staging *s, struct err *e);

/* Returns whether this is the block that staging_take returned last. */
static inline bool staging_has(const struct staging *s, const void *block)
{
	return block == s->blocks[s->turn];
}

/* Begins to copy `bytes` bytes of the block that staging_take returned last to a buffer, from `offset` on. An error is
 * set in *e; it is one of cl_error.h. */
void staging_send(struct staging *s, cl_mem buffer, uint64_t offset, uint64_t bytes, struct err *e);
