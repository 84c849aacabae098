/* The variable `loop` of a for. */
#pragma once

#include "protocol/jinja/seq.h"

/* The loop takes an item in advance only if a template needs it (loop.last, loop.nextitem). */
struct loop {
	struct iter *it;
	struct iter own; /* what `it` points to, unless that is a generator's or has a test */
	int64_t index0;	 /* -1 before the first item */
	int64_t length;	 /* -1: not known yet */
	struct value before, current, after;
	bool has_after;
};

/* Moves on to the next item; false: there is none, or a failure. */
bool loop_next(struct render *r, struct loop *l, struct value *ret);

/* loop.name; NOTHING: there is no such attribute. */
struct value loop_attribute(struct render *r, struct loop *l, struct value name);
