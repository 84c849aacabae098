/*
 * A growable byte buffer with a stated maximum.
 *
 * Invariants: data is NULL or holds cap bytes; len < cap whenever data is not NULL, and data[len] == 0, so that the
 * content can be used as a C string; len <= max. An append that would exceed max, or finds no memory, sets `failed`
 * and changes nothing else, so a caller can build a whole text and check `failed` once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

struct buf {
	char *data; /* owned */
	size_t len, cap, max;
	bool failed;
};

/* Makes *b an empty buffer that may grow to max bytes. Allocates nothing. */
void buf_init(struct buf *b, size_t max);
void buf_release(struct buf *b);

/* Empties the buffer, keeps its memory, clears `failed`. */
void buf_reset(struct buf *b);

void buf_append(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *text);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);

/* Removes the first n bytes (n <= len) and moves the rest to the front. */
void buf_consume(struct buf *b, size_t n);

/* Makes room for at least n more bytes behind data + len. -ENOBUFS: they would exceed max; -ENOMEM. */
int buf_reserve(struct buf *b, size_t n) MUST_CHECK;

/* Returns the content as a C string, "" if there is none. Borrowed until the next change. */
const char *buf_str(const struct buf *b);
