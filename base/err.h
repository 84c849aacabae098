/*
 * An error, in one sentence fit to show a user.
 *
 * On failure a function with an int result returns a negative code: an errno, or a problem of base/problem.h. A
 * function whose failure is to be explained also takes a `struct err *` and fills it on failure: with the code, the
 * sentence, and, if a parameter of a request is at fault, the parameter's name. Nothing is allocated; text that does
 * not fit is cut. If the pointer is NULL, the functions below store nothing.
 *
 *     if (len < 8)
 *             return err_set(e, EINVAL, "%s: file is %zu bytes, too short for a header", path, len);
 */
#pragma once

#include "base/macros.h"

enum { ERR_TEXT_MAX = 512, ERR_PARAM_MAX = 64 };

struct err {
	int code; /* positive errno or enum problem (base/problem.h), 0 when nothing was set */
	char text[ERR_TEXT_MAX];   /* one sentence, no trailing newline */
	char param[ERR_PARAM_MAX]; /* request parameter at fault, or "" */
};

/* Fills *e (if e is not NULL), clears e->param, and returns -code, so that a caller can write `return err_set(...)`. */
int err_set(struct err *e, int code, const char *fmt, ...) PRINTF(3, 4);

/* As err_set, with ENOMEM and the text "out of memory". */
int err_no_memory(struct err *e);

/* As err_set, but sets e->param to `param`, the request parameter at fault. */
int err_param(struct err *e, int code, const char *param, const char *fmt, ...) PRINTF(4, 5);

/* Puts "PREFIX: " in front of the text in *e; fmt gives PREFIX. */
void err_prefix(struct err *e, const char *fmt, ...) PRINTF(2, 3);
