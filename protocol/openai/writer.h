/* Writes JSON text straight into a buffer: strings, log-probabilities and lists of numbers.
 *
 * A response is mostly constant text around a few strings and numbers, so no tree is built. A string is written as
 * valid JSON in valid UTF-8, whatever its bytes are. */
#pragma once

#include <stdint.h>

#include "base/buf.h"

/* Writes a string in quotes; bytes that are not UTF-8 become U+FFFD. */
void writer_string(struct buf *out, const char *text, size_t len);

/* Writes a C string in quotes; for NULL it writes null. */
void writer_nullable(struct buf *out, const char *text);

/* Writes a string as writer_string does, but without the quotes. */
void writer_escaped(struct buf *out, const char *text, size_t len);

/* Writes the beginning of a text as writer_escaped does: its first `most` bytes, and the rest of the character in which
 * these end. Returns the number of bytes of the text that were written; it is at least 1 if len and most are. */
size_t writer_escaped_part(struct buf *out, const char *text, size_t len, size_t most);

void writer_number(struct buf *out, int32_t v);

/* [1,2,3] */
void writer_ids(struct buf *out, const int32_t *ids, size_t n);

/* Writes ids[from] to ids[to - 1] of such a list, without the brackets; a comma stands before each but the list's
 * first. */
void writer_ids_part(struct buf *out, const int32_t *ids, size_t from, size_t to);

/* Writes bytes as a list of numbers. */
void writer_bytes(struct buf *out, const unsigned char *bytes, size_t n);

/* Writes a finite number with enough digits to give the same float back. */
void writer_float(struct buf *out, float x);

/* Writes a log-probability with enough digits to give the same float back. JSON has no infinities, so everything
 * below -9999 (and NaN) is -9999.0, as in OpenAI's and vLLM's answers. Everything above 0 is 0.0. */
void writer_logprob(struct buf *out, float logprob);
