/*
 * Opens files to be read, reads small ones (configurations, indices) whole into memory, up to a stated maximum, and
 * writes whole files.
 *
 * A file to be read must be a regular file, or a symbolic link to one: the Hugging Face cache is made of such links. A
 * named pipe is refused without waiting for its writer.
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Opens dir_fd/name for reading. Returns a new descriptor; *ret_size is the size in bytes. -EINVAL: not a regular file;
 * -ENOENT or another errno: the file cannot be opened. The error's text begins with `shown`, the path as the user knows
 * it. */
int file_open(int dir_fd, const char *name, const char *shown, off_t *ret_size,
	      struct err *e) MUST_CHECK;

/* Appends the whole file dir_fd/name to out. -EFBIG: out would exceed its maximum, or the file grew while it was read
 * and there is no memory for the rest; -ENOMEM: there is no memory for the file; or an errno of file_open or of
 * reading. After a failure out may have the beginning of the file. */
int file_read(int dir_fd, const char *name, const char *shown, struct buf *out,
	      struct err *e) MUST_CHECK;

/* A file that is written under a temporary name and then renamed to `path`, so that `path` never names an incomplete
 * file. A file that already has the name `path` stays as it is until the renaming. A temporary file that a killed process
 * left is written over. */
struct file_draft {
	const char *path; /* borrowed */
	char *partial;	  /* the temporary name: `path` and ".partial"; owned */
	int fd;
};

/* Begins a draft. -EISDIR, -EINVAL: `path` exists and is not a regular file; -EBUSY: there is a draft of it, here or in
 * another process; -ENOENT or another errno: the draft cannot be created. */
int file_draft_open(struct file_draft *d, const char *path, struct err *e) MUST_CHECK;
int file_draft_write(struct file_draft *d, const void *data, size_t len, struct err *e) MUST_CHECK;

/* Ends a draft. If r is 0, writes the file to disk (fsync) and renames it to `path`. If r is an error, or one of these
 * steps fails, removes the temporary file and returns that error. To be called once for each opened draft. */
int file_draft_close(struct file_draft *d, int r, struct err *e) MUST_CHECK;

/* Write len bytes as the file `path`, or as dir/name, by way of a draft. */
int file_write(const char *path, const void *data, size_t len, struct err *e) MUST_CHECK;
int file_write_in(const char *dir, const char *name, const void *data, size_t len,
		  struct err *e) MUST_CHECK;
