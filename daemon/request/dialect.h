/* A dialect: the parts of an API's shape that are the same for all of its endpoints. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct dialect {
	/* a header of answers with the request's id, beside X-Request-Id; NULL: none */
	const char *id_header;
	const char *stream_type; /* the Content-Type of streams */
	/* a body is read as JSON whatever its Content-Type is; else it must be application/json or missing */
	bool any_type;
	/* Appends the body for an error and returns the status, like openai_error. */
	int (*error)(const struct err *e, struct buf *out);
	/* Appends an error in place of the rest of a stream. */
	void (*stream_error)(const struct err *e, struct buf *out);
	/* Appends a sign of life, which clients ignore, to a stream. */
	void (*idle)(struct buf *out);
};

extern const struct dialect dialect_openai, dialect_anthropic, dialect_ollama;
