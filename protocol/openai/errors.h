/* Errors on the wire: one table (errors.c) gives each error code an HTTP status, type and code; a code without a row is
 * an internal error, 500. Clients such as openai-python repeat a request after 408, 409, 429 and 5xx. So an error that
 * a repeated request is sure to meet again has another 4xx status, and an error that may be over by then has 409, 429
 * or 5xx. The caller adds the header Allow to 405, and Retry-After to 429 and 503. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Returns the HTTP status of a code, which may be positive or negative. */
int openai_status(int code);

/* Appends {"error":{"message","type","param","code"}} and returns the status. */
int openai_error(const struct err *e, struct buf *out);
