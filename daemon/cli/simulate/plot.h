/* A figure of the host's planning time by the size of the cache's tree, as SVG. */
#pragma once

#include "daemon/cli/simulate/runner.h"

/* Writes a plot to the file `path`. -errno of opening or writing the file. */
int plot_plan_cost(const char *path, const struct sim_result *r, struct err *e) MUST_CHECK;
