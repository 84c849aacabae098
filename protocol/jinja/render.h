/* One rendering: its bounds, its memory, its error.
 *
 * The values that a rendering makes are in its arena, which is dropped as a whole. No code of a rendering trusts the
 * template or the messages: code that may loop for long charges steps, code that recurses counts depth, and memory and
 * output have a maximum.
 *
 * Errors are kept. The first failure stays in `rc` and *err. Functions called after it do no harm, and their results
 * (mostly NOTHING, false or NULL) mean nothing. So an expression is computed without a check after each call. Loops
 * that may be long check rc. Code that follows a pointer of a result checks rc or the pointer. Code that fills a buf
 * checks the buf's `failed` once. A failure always ends the rendering, and template_render then drops all of its
 * output. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/pace.h"

struct builtin;
enum builtin_kind;

enum {
	RENDER_DEPTH = 1200,   /* most levels of evaluations in evaluations, lists in lists... */
	RENDER_RANGE = 100000, /* most items of a range; jinja2's sandbox has the same bound */
};

struct render {
	const char *name; /* of the template, for messages */
	int line;	  /* line of the template that is being evaluated */
	int rc;		  /* 0, or the negative errno of the first failure */
	struct err *err;
	unsigned depth;
	/* steps left until render_overspent asks `pace`, and steps left after that */
	uint64_t steps, more_steps;
	const struct pace *pace; /* NULL: the rendering is never given up */
	struct arena arena;
	/* buffer in which strings are built, one behind the other; a finished one is cut off again (value_take) */
	struct buf scratch;
	/* the output. The text of a macro, or of a set or filter block, is appended to the output while the macro or
	 * block runs, and is cut off when the macro or block has ended. */
	struct buf *out;
	size_t out_max; /* out->len may not become more than this */

	/* Finds a filter, test or method (builtin_find of tables.h); it returns NULL if there is none of that name. It
	 * is a pointer because the tables are built on attr.c and builtin.c, which call it. */
	const struct builtin *(*find)(enum builtin_kind kind, const char *name, size_t len);
};

/* Keeps `code` and "template NAME, line N: text" as the error, if it is the first. Returns false. */
bool render_fail(struct render *r, int code, const char *fmt, ...) PRINTF(3, 4);

/* For render_charge, when r->steps do not suffice for `work`. Asks r->pace, takes `work` from all steps that are left,
 * and sets r->steps anew. False: fewer steps are left (E2BIG) or the pace gives up (ECANCELED), so the rendering has
 * failed; or it failed before. */
bool render_overspent(struct render *r, size_t work);

/* Makes the rendering fail (E2BIG), for render_enter. Returns false. */
bool render_too_deep(struct render *r);

/* Takes `work` from the steps that are left (about one for a value, or for 64 bytes of text). False: fewer are left,
 * the rendering is given up, or it failed before. */
static inline bool render_charge(struct render *r, size_t work)
{
	if (r->rc || work > r->steps)
		return render_overspent(r, work);
	r->steps -= work;
	return true;
}

static inline bool render_charge_bytes(struct render *r, size_t bytes)
{
	return render_charge(r, bytes / 64 + 1);
}

/* Goes one level deeper. True: the caller must decrease r->depth again. False: too deep, or a failure before. */
static inline bool render_enter(struct render *r)
{
	if (r->rc || r->depth >= RENDER_DEPTH)
		return render_too_deep(r);
	r->depth++;
	return true;
}

/* Returns zeroed memory for n items of `size` bytes, *new* in the arena; NULL after a failure (E2BIG, ENOMEM). */
void *render_alloc(struct render *r, size_t n, size_t size) MUST_CHECK;

/* Returns a copy of the text in the arena, with a 0 behind it; NULL after a failure. */
char *render_copy(struct render *r, const char *s, size_t len) MUST_CHECK;

/* If the buffer `b` has failed, makes the rendering fail (E2BIG). Returns whether neither b nor the rendering
 * failed. */
bool render_check(struct render *r, const struct buf *b);
