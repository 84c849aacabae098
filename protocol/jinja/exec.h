/* Runs a template: its statements and macros. */
#pragma once

#include "protocol/jinja/ast.h"

/* Runs the template and appends its output to r->out. context: the values of the names that the template takes from
 * outside, in the order of t->context_names; V_MISSING: the name has no value. */
void exec(struct render *r, const struct template *t, const struct value *context);
