/*
 * The file of --transfer-trace has a line for each event of a delivery. Its fields, separated by tabs: nanoseconds of
 * the monotonic clock, event, delivery (hexadecimal), first layer, layers, first token, tokens, bytes. A line that
 * cannot be written is lost, which is logged.
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

/* Opens the trace file; `path` is borrowed, and NULL turns the trace off. -errno with a sentence. */
int trace_open(struct trace *t, const char *path, struct err *e) MUST_CHECK;
void trace_close(struct trace *t);

/* Writes a line. w NULL: the event concerns the whole prompt, and the fields from the first layer on are 0. */
void trace_write(struct trace *t, uint64_t ns, const char *event, uint64_t delivery,
		 const struct wire_window *w);
