/* The variable `loop` of a for. */
#pragma once

#include "protocol/jinja/seq.h"

/* The loop takes an item ahead only when a template asks for it (loop.last, loop.nextitem). */
struct loop {
	struct iter *it;
	struct iter own; /* where `it` points unless a generator is walked */
	int64_t index0;	 /* -1 before the first item */
	int64_t length;	 /* -1: not asked for yet */
	struct value before, current, after;
	bool has_after;
};

/* The next item; false at the end. */
bool loop_next(struct render *r, struct loop *l, struct value *ret);

/* loop.name; NOTHING when there is no such attribute. */
struct value loop_attribute(struct render *r, struct loop *l, struct value name);
