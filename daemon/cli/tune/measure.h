/*
 * Measures one cut against the default one, in this process: a model is opened with both, and steps of every
 * bucket of M run by turns with the one and with the other, on the same tokens. What is compared is each launch with
 * its twin, by the device's clock (a decode step of one launch: by the host's); the median of the ratios, over 20 launches
 * at least, does not care how fast the machine was meanwhile. All weights of the model are read between two launches
 * of a kernel on the same ones.
 *
 * Bits are compared before: draws with their log-probabilities, KV pages and states. A cut that differs anywhere is
 * said to differ everywhere.
 *
 * Who measures the default cut against itself looks at the device's peaks before and after as well: where they are far
 * below what is known of it, others use the machine, and a line says "void".
 */
#pragma once

#include "daemon/cli/tune/options.h"

/* What the last line of the output is. */
#define MEASURE_END "# end"

/* Prints a table of what was measured of o->measure to standard output. */
int tune_measure(struct tune_options *o, struct err *e) MUST_CHECK;
