/* Measures one cut against the default cut, in this process. kernels/tuning/tuning.h says what a cut, a bucket and a
 * place are. A model is opened with both cuts. Steps of M tokens run in pairs: the same tokens once with each cut. M
 * takes the size of every bucket for which there is room and time. Each launch that the cut changes is compared with
 * the same launch of the other step, by the device's clock. A decode step that is one launch is timed by the host's
 * clock. The ratio of a pair of launches is that of their times. The result at a place is the median ratio of at least
 * 20 pairs; a place with fewer pairs has no result. A ratio depends little on the machine's speed, which may change
 * meanwhile. Between two launches on the same weights a step goes over all other layers, so that few of these weights
 * are left in a cache.
 *
 * Before steps are timed, bits are compared: the draws with their log-probabilities, and the first KV page and the
 * state of a few streams. If any bit differs, the cut is marked at every place as one that changes bits.
 *
 * A process that measures the default cut against itself also measures the device's peaks, before all steps and after
 * them. If a peak is well below the device's known peak (peak_below in kernels/peak.h), other programs probably used
 * the machine, and a line of the output says "void". */
#pragma once

#include "daemon/cli/tune/options.h"

/* The last line of the output. If it is missing, the output is not complete. */
#define MEASURE_END "# end"

/* The beginning of a line that says why no launch of the model has a cut; then the table has no rows. */
#define MEASURE_NOTHING "# nothing to tune: "

/* Measures the cut o->measure and prints the result as a table to standard output. */
int tune_measure(struct tune_options *o, struct err *e) MUST_CHECK;
