/* The output of `tigon simulate --decode-workers`: prefill and decode apart beside unified workers. */
#pragma once

#include "daemon/cli/simulate/fleet.h"

/* Returns 100 * part / whole, or 0 if `whole` is 0. */
double percent(uint64_t part, uint64_t whole);

/* Prints a line for each figure, tab separated: its name, its value for workers apart and for unified ones. Sorts the
 * samples. */
void fleet_report(const struct fleet_options *o, struct fleet_result *apart,
		  struct fleet_result *unified);
