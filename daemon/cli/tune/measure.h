/* Measures one cut against the default cut, in this process. kernels/tuning/tuning.h says what a cut, a bucket and a
 * place are. A model is opened with both cuts. For every bucket of M for which there is room and time, steps run now
 * with the one cut and now with the other, on the same tokens. Each launch is compared with the same launch of the
 * other cut, by the device's clock; a decode step in one launch by the host's clock. The result at a place is the
 * median of the ratios of at least 20 such pairs; a place with fewer has no result. A ratio depends little on the
 * machine's speed, which may change meanwhile. All weights of the model are read between two launches of a kernel on
 * the same weights.
 *
 * Before steps are timed, bits are compared: draws with their log-probabilities, and KV pages and states of a few
 * streams. If any bit differs, the cut is marked at every place as one that changes bits.
 *
 * A process that measures the default cut against itself also measures the device's peaks, before and after. If one is
 * well below the device's known peak (peak_below in kernels/peak.h), other programs probably used the machine, and a
 * line of the output says "void". */
#pragma once

#include "daemon/cli/tune/options.h"

/* The last line of the output. If it is missing, the output is not complete. */
#define MEASURE_END "# end"

/* Measures the cut o->measure and prints the result as a table to standard output. */
int tune_measure(struct tune_options *o, struct err *e) MUST_CHECK;
