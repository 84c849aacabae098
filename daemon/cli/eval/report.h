/* The results of an evaluation, as a table for people or as JSON for programs. */
#pragma once

#include "daemon/cli/eval/reader.h"
#include "daemon/cli/eval/tally.h"

/* One of the two models. */
struct eval_side {
	struct reader reader;
	struct mean surprise; /* minus log-probabilities of the text's tokens, in nats */
};

struct eval_report {
	const char *text; /* the file */
	size_t tokens;	  /* of the file */
	uint32_t context, unscored, windows;
	struct eval_side *model;
	struct eval_side *against;     /* NULL: nothing was compared */
	struct comparison *comparison; /* sorts its values */
};

/* Writes the report to standard output. -ENOMEM. */
int report_print(const struct eval_report *r, bool json, struct err *e) MUST_CHECK;
