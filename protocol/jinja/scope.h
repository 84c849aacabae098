/* Finds the variables for the names of a template. */
#pragma once

#include "protocol/jinja/ast.h"

/* Resolves names, finds filters and tests, fills the functions and frames of the whole template. */
void scope(struct reader *rd);
