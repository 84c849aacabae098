/* Runs a template: its statements and macros. */
#pragma once

#include "protocol/jinja/ast.h"

/* Runs the template and appends its output to r->out. context: a value for each of the template's context names;
 * V_MISSING: the name has none. */
void exec(struct render *r, const struct template *t, const struct value *context);
