/* The files of a checkpoint, mapped read-only. Data that were read leave the memory of this process again.
 *
 * One fault is not guarded against: a file that is truncated while it is mapped. Reading past its new end raises
 * SIGBUS. A checkpoint must not be written while it is loaded. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mapped_file {
	const char *shown; /* borrowed: the path for messages */
	const char *name;  /* borrowed: the name inside its directory */
	void *data;	   /* owned mapping; NULL: not mapped yet, or the file is empty */
	size_t len;
	/* addresses between which data were read since memory was last given back; 0: none were; guarded by lock */
	uintptr_t read_begin, read_end;
};

struct mapped_files {
	struct mapped_file *v; /* owned, [n] */
	size_t n, cap;
	pthread_mutex_t lock;
	size_t read_bytes; /* that were read since memory was last given back; guarded by lock */
};

void mapped_files_init(struct mapped_files *l);
void mapped_files_release(struct mapped_files *l);

/* Adds a file that is not mapped yet. Both texts are borrowed. -ENOMEM, -EMFILE: there are too many. */
int mapped_files_add(struct mapped_files *l, const char *shown, const char *name) MUST_CHECK;

/* Maps a file of the list; its name is relative to dir_fd. Errors are those of file_open and mmap, and name the file. */
int mapped_file_open(struct mapped_file *m, int dir_fd, struct err *e) MUST_CHECK;

/* Does the work of checkpoint_forget for bytes of one file. The memory of such parts is given back when they have
 * 32 MiB together. Any thread may call it. */
void mapped_files_forget(struct mapped_files *l, const void *data, size_t bytes);
