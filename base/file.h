/*
 * Reads whole small files (configurations, indices) into memory, up to a stated maximum, and writes them. Every file that is
 * opened must be a regular file; a symbolic link to one is fine, because the Hugging Face cache is made of them. Opening never blocks
 * on a pipe.
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Opens dir_fd/name for reading. Returns the descriptor (new) and its size in bytes; -ENOENT or another errno names
 * `shown`, the path as the user knows it; -EINVAL: it is not a regular file. */
int file_open(int dir_fd, const char *name, const char *shown, off_t *ret_size,
	      struct err *e) MUST_CHECK;

/* Appends the whole of dir_fd/name to out; -EFBIG: it does not fit into out's maximum. */
int file_read(int dir_fd, const char *name, const char *shown, struct buf *out,
	      struct err *e) MUST_CHECK;

/* A file that is being written under a temporary name, so that `path` is either complete or missing. */
struct file_draft {
	const char *path; /* borrowed */
	char *partial;
	int fd;
};

/* Begins a draft. -EISDIR, -EINVAL: `path` exists and is not a regular file; -ENOENT or another errno: the draft cannot
 * be created. */
int file_draft_open(struct file_draft *d, const char *path, struct err *e) MUST_CHECK;
int file_draft_write(struct file_draft *d, const void *data, size_t len, struct err *e) MUST_CHECK;

/* Renames the file to `path` if r is 0, else removes it. Returns r, or the error of renaming. To be called once for
 * each opened draft. */
int file_draft_close(struct file_draft *d, int r, struct err *e) MUST_CHECK;

/* Opens a draft, writes len bytes and closes it: at `path`, or at dir/name. */
int file_write(const char *path, const void *data, size_t len, struct err *e) MUST_CHECK;
int file_write_in(const char *dir, const char *name, const void *data, size_t len,
		  struct err *e) MUST_CHECK;
