/*
 * Writes the file of --transfer-trace, a line for each event of a delivery. The fields of a line, separated by tabs,
 * are: nanoseconds of the monotonic clock, event, delivery (hexadecimal), and of the WINDOW (struct wire_window) its
 * first layer, number of layers, first token, number of tokens, and the bytes of its raw frame. A line that cannot be
 * written is lost, which is logged.
 */
#pragma once

#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "protocol/transfer/message.h"

/* All zeros: no trace is written. */
struct trace {
	const char *path;
	FILE *file;
	struct log_limit said_error;
};

/* Opens the trace file; `path` is borrowed. NULL: no trace is written. -errno with a sentence. */
int trace_open(struct trace *t, const char *path, struct err *e) MUST_CHECK;
void trace_close(struct trace *t);

/* Writes a line; does nothing without a trace file. w NULL: the event concerns the whole prompt, and the fields from
 * the first layer on are 0. */
void trace_write(struct trace *t, uint64_t ns, const char *event, uint64_t delivery,
		 const struct wire_window *w);
