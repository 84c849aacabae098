/* Errors on the wire as Ollama's API has them. The statuses are those of protocol/openai/errors.h. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Appends {"error":"a sentence"} and returns the status. */
int ollama_error(const struct err *e, struct buf *out);
