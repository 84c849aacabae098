/*
 * Lines of a file that somebody hands to `tigon simulate`: JSON, a value a line. Whatever the file is (a device, a
 * folder, something binary), reading it ends with a sentence and in bounded memory.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

/* Enough for a request of 2^24 tokens. */
enum { LINE_BYTES_MAX = 256 << 20 };

struct lines {
	FILE *f;
	const char *path; /* borrowed */
	struct buf text;  /* the line, without its end */
	unsigned long number;
	bool ended; /* with a newline; the last one may not be */
};

/* -ENOENT, -EISDIR and what else open can say; the path is borrowed. */
int lines_open(struct lines *l, const char *path, struct err *e) MUST_CHECK;

/* 1: the next line is in l->text; 0: there is none. -EINVAL, -EFBIG, -EIO with the line in the sentence. */
int lines_next(struct lines *l, struct err *e) MUST_CHECK;
void lines_close(struct lines *l);
