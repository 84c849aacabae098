/*
 * One rendering: its bounds, its memory, its error.
 *
 * Everything a rendering makes is in its arena and dropped whole. Nothing here trusts the template
 * or the messages: code that loops charges steps, code that recurses counts depth, and memory and
 * output have a maximum.
 *
 * Errors stick. The first failure stays in `rc` and *err; every function called after it gives
 * nothing, false or NULL, and does no harm. So an expression is computed without a check after each
 * call; loops look at rc, and so does code that follows a pointer, as code that fills a buf looks at
 * `failed` once. A failure always ends the rendering: there is nothing to undo.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

struct builtin;
enum builtin_kind;

enum {
	RENDER_DEPTH = 1200,   /* evaluations inside evaluations, or lists inside lists */
	RENDER_RANGE = 100000, /* most items a range may have: the sandbox's own bound */
};

struct render {
	const char *name; /* of the template, for messages */
	int line;	  /* being evaluated */
	int rc;		  /* 0, or the negative errno of the first failure */
	struct err *err;
	unsigned depth;
	uint64_t steps; /* left */
	struct arena arena;
	struct buf scratch; /* where strings are built; each user cuts it back to where it began */
	struct buf *out;    /* output, and captured blocks until they are cut off again */
	size_t out_max;	    /* out->len may not pass this */

	/* The table of filters, tests and methods (builtins.h): NULL when there is none of that
	 * name. Code below the table finds its rows here. */
	const struct builtin *(*find)(enum builtin_kind kind, const char *name, size_t len);
};

/* Keeps "template NAME, line N: text" as the error, if it is the first. Always false. */
bool render_fail(struct render *r, int code, const char *fmt, ...) PRINTF(3, 4);

/* The errors of the two below. Always false. */
bool render_overspent(struct render *r);
bool render_too_deep(struct render *r);

/* Takes `work` from the steps that are left (about one a value touched, or 64 bytes of text).
 * False once none are left, or after any failure. */
static inline bool render_charge(struct render *r, size_t work)
{
	if (r->rc || work > r->steps)
		return render_overspent(r);
	r->steps -= work;
	return true;
}

static inline bool render_charge_bytes(struct render *r, size_t bytes)
{
	return render_charge(r, bytes / 64 + 1);
}

/* One level deeper. A caller that got true takes it back from r->depth. */
static inline bool render_enter(struct render *r)
{
	if (r->rc || r->depth >= RENDER_DEPTH)
		return render_too_deep(r);
	r->depth++;
	return true;
}

/* Zeroed memory, *new* in the arena; NULL after a failure (E2BIG or ENOMEM). */
void *render_alloc(struct render *r, size_t n, size_t size) MUST_CHECK;

/* A copy of text in the arena; NULL after a failure. */
char *render_copy(struct render *r, const char *s, size_t len) MUST_CHECK;

/* False, and an error, once the scratch buffer or any other has failed. */
bool render_check(struct render *r, const struct buf *b);
