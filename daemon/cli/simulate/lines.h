/* Reads the input files of `tigon simulate`: JSON, one value a line. A folder gives an error, and so does binary data
 * (a byte that is 0). Memory is bounded by LINE_BYTES_MAX. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

/* The most bytes of a line: enough for a request of 2^24 tokens. */
enum { LINE_BYTES_MAX = 256 << 20 };

struct lines {
	FILE *f;
	const char *path;     /* borrowed */
	struct buf text;      /* the line, without its end */
	unsigned long number; /* number of the line, from 1 */
	bool ended;	      /* the line ended with a newline; the last line of a file may not */
};

/* Opens a file, whose path is borrowed. -ENOENT, -EISDIR or another errno of open. */
int lines_open(struct lines *l, const char *path, struct err *e) MUST_CHECK;

/* Reads the next line. Returns 1 with the line in l->text, 0 at the end of the file, or an error whose sentence has the
 * line's number: -EINVAL (a byte of the line is 0), -EFBIG (it is too long, or memory is short) or -EIO. */
int lines_next(struct lines *l, struct err *e) MUST_CHECK;
void lines_close(struct lines *l);
