/* What `tigon simulate --decode-workers` prints: a fleet with prefill and decode apart beside one without. */
#pragma once

#include "daemon/cli/simulate/fleet.h"

/* A line a value, tab separated: apart, then unified. Sorts the samples. */
void fleet_report(const struct fleet_options *o, struct fleet_result *apart,
		  struct fleet_result *unified);
