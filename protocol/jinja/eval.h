/* Evaluates expressions. */
#pragma once

#include "protocol/jinja/ast.h"

/* The variables of one call of a function (the template, a macro). They are in the arena, so that a macro may outlive
 * the call that defined it. */
struct activation {
	struct activation *outer;    /* the one in which the macro was defined; NULL: not a macro */
	const struct value *context; /* a value for each of the template's context names */
	struct value captured;	     /* the value of N_CAPTURED */
	struct value slot[];
};

struct value *activation_slot(struct activation *act, struct variable v);

struct value eval(struct render *r, struct activation *act, const struct node *n);
