/* Reads the input files of `tigon simulate`: JSON, a value a line. A wrong file (a device, a folder, binary data)
 * ends with an error sentence and takes bounded memory. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

/* Bytes of the longest line: enough for a request of 2^24 tokens. */
enum { LINE_BYTES_MAX = 256 << 20 };

struct lines {
	FILE *f;
	const char *path; /* borrowed */
	struct buf text;  /* the line, without its end */
	unsigned long number;
	bool ended; /* the line ended with a newline; the last line of a file may not */
};

/* -ENOENT, -EISDIR or another errno of open; the path is borrowed. */
int lines_open(struct lines *l, const char *path, struct err *e) MUST_CHECK;

/* 1: the next line is in l->text; 0: the file has ended. -EINVAL, -EFBIG, -EIO with the line's number in the
 * sentence. */
int lines_next(struct lines *l, struct err *e) MUST_CHECK;
void lines_close(struct lines *l);
