/* Refuses configurations that cannot work, and requests that could never run. Most error texts about a number that is
 * too large or too small have the number and the limit. */
#pragma once

#include "scheduler/scheduler.h"

/* Checks a configuration. -EINVAL: a scheduler with it cannot work. */
int limits_check_config(const struct scheduler_config *c, struct err *e) MUST_CHECK;

/* Checks a request. -EINVAL: a value is wrong, or the request would not complete even if it ran alone. */
int limits_check_request(const struct scheduler_config *c, const struct scheduler_request *q,
			 struct err *e) MUST_CHECK;
