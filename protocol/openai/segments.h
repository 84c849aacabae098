/* JSON that is written bit by bit, however long it is: a list of segments. A segment is JSON as it stands, or a text
 * that is escaped when it is written. A long text is borrowed, not copied; the pieces between texts are kept here. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

struct segment {
	const char *text; /* borrowed; NULL: the bytes from `at` on of segments.json */
	size_t at, len;
	bool escape; /* the text is the inside of a JSON string; else it is JSON */
};

struct segments {
	struct buf json;   /* the pieces that segments_printf has made */
	struct segment *v; /* [n] */
	size_t n, cap;
	size_t next,
		done; /* the segment that is written now, and the number of its bytes that were written */
	bool failed; /* memory was short: something is missing */
};

/* Makes *s an empty list. Allocates nothing. */
void segments_init(struct segments *s);
void segments_release(struct segments *s);

/* Empties the list, keeps its memory, clears `failed`. */
void segments_clear(struct segments *s);

/* Add a segment. If memory is short, `failed` is set. segments_json and segments_text borrow the text until it is
 * written. */
void segments_printf(struct segments *s, const char *fmt, ...) PRINTF(2, 3);
void segments_json(struct segments *s, const char *json, size_t len);
void segments_text(struct segments *s, const char *text, size_t len);

/* To be called when JSON was appended to s->json, which had `before` bytes before: makes a segment of it. */
void segments_appended(struct segments *s, size_t before);

/* Appends some of the segments to out, until out has `enough` bytes or some kilobytes more. True: all are written, and
 * the list is empty. */
bool segments_write(struct segments *s, size_t enough, struct buf *out);

/* Returns the bytes of memory that the list takes. */
size_t segments_bytes(const struct segments *s);
