/* The variable `loop` of a for. */
#pragma once

#include "protocol/jinja/seq.h"

/* The loop takes items in advance only if a template needs them (loop.last, nextitem, length, revindex, revindex0). */
struct loop {
	struct iter *it;
	/* `it` points to `own`, or to a generator's iterator, or to an iterator with a test */
	struct iter own;
	int64_t index0; /* -1 before the first item */
	int64_t length; /* -1: not known yet */
	struct value before, current, after;
	bool has_after;
};

/* Goes on to the next item and sets *ret to it. False: there is none, or a failure. */
bool loop_next(struct render *r, struct loop *l, struct value *ret);

/* Returns the loop's attribute of this name; NOTHING: the loop has no such attribute. */
struct value loop_attribute(struct render *r, struct loop *l, struct value name);
