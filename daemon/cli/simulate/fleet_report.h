/* The output of `tigon simulate --decode-workers`: prefill and decode apart beside unified workers. */
#pragma once

#include "daemon/cli/simulate/fleet.h"

/* Prints a line a value, tab separated: apart, then unified. Sorts the samples. */
void fleet_report(const struct fleet_options *o, struct fleet_result *apart,
		  struct fleet_result *unified);
