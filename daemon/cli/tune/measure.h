/* Measures one cut against the default cut, in this process. A model is opened with both, and steps of every bucket
 * of M run by turns with the one and with the other, on the same tokens. Each launch is compared with the same launch
 * of the other cut, by the device's clock; a decode step in one launch by the host's clock. The result is the median
 * of the ratios over at least 20 pairs, which does not depend on the machine's speed meanwhile. All weights of the
 * model are read between two launches of a kernel on the same ones.
 *
 * Bits are compared first: draws with their log-probabilities, KV pages and states. If any bit differs, the cut is
 * marked as changing bits at every place.
 *
 * A process that measures the default cut against itself also measures the device's peaks, before and after. If they
 * are far below the device's known peaks, other programs use the machine, and a line says "void". */
#pragma once

#include "daemon/cli/tune/options.h"

/* The last line of the output. */
#define MEASURE_END "# end"

/* Measures the cut o->measure and prints the result as a table to standard output. */
int tune_measure(struct tune_options *o, struct err *e) MUST_CHECK;
