/* Errors on the wire: one table (errors.c) gives the code of each struct err an HTTP status, and the type and code that
 * clients see; a code without a row is an internal error, 500. Clients such as openai-python repeat a request after
 * 408, 409, 429 and 5xx. So an error that a repeated request is sure to meet again has another 4xx status, and an error
 * that may be over by then has 409, 429 or 5xx. The caller adds the header Allow to 405, and Retry-After to 429 and
 * 503. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* The number of rows of the table. The errors are numbered from 0 in the order of the rows. */
enum { OPENAI_ERRORS = 29 };

/* Returns the number of the error of a code, which may be positive or negative. */
size_t openai_error_number(int code);

/* openai_error_type returns the type of error i on the wire, openai_error_cause its code on the wire, or
 * "invalid_value" if that is null. */
const char *openai_error_type(size_t i);
const char *openai_error_cause(size_t i);

/* Returns the HTTP status of a code, which may be positive or negative. */
int openai_status(int code);

/* Appends {"error":{"message","type","param","code"}} and returns the status. */
int openai_error(const struct err *e, struct buf *out);
