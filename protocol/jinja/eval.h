/* Evaluates expressions. */
#pragma once

#include "protocol/jinja/ast.h"

/* The variables of one call of a function (the template, a macro). They are in the rendering's arena (render.h), so
 * that a macro may outlive the call that defined it. */
struct activation {
	/* of a macro: the activation in which the macro was defined; of the template: NULL */
	struct activation *outer;
	/* the values of the names that the template takes from outside, in the order of template.context_names
	 * (ast.h) */
	const struct value *context;
	/* the value of N_CAPTURED: the text of a block, to which filters are applied */
	struct value captured;
	struct value slot[];
};

struct value *activation_slot(struct activation *act, struct variable v);

struct value eval(struct render *r, struct activation *act, const struct node *n);
