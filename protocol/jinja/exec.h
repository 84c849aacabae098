/* Runs a template: its statements and macros. */
#pragma once

#include "protocol/jinja/ast.h"

/* Runs it. context: a value for each of the template's context names, V_MISSING: there is none. */
void exec(struct render *r, const struct template *t, const struct value *context);
