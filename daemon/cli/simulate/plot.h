/* Draws the host's planning time by the size of the cache's tree, as SVG. */
#pragma once

#include "daemon/cli/simulate/runner.h"

/* Writes the figure to the file `path`. -errno: it cannot be opened or written; -ENOMEM. */
int plot_plan_cost(const char *path, const struct sim_result *r, struct err *e) MUST_CHECK;
