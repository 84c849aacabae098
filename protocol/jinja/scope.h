/* The variables that the names of a template stand for. */
#pragma once

#include "protocol/jinja/ast.h"

/* Resolves names, finds filters and tests, fills the functions and frames of the whole template. */
void scope(struct reader *rd);
