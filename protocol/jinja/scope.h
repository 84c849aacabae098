/* Decides which variable each name of a template means. */
#pragma once

#include "protocol/jinja/ast.h"

/* Gives each name in the tree its variable, finds the filters, tests and methods, and fills all frames (ast.h). */
void scope(struct reader *rd);
