/* The order in which the texts of a choice came. Its content, its reasoning and its calls are kept apart, and some wire
 * formats show them as one list of blocks. A *run* is a stretch of one kind; neighbours have different kinds. */
#pragma once

#include <stddef.h>

#include "base/macros.h"

enum openai_kind { KIND_NONE, KIND_CONTENT, KIND_REASONING, KIND_CALLS };

struct openai_run {
	enum openai_kind kind;
	size_t len; /* bytes of content or reasoning; of calls: pieces (calls.h) */
};

/* Runs in their order. All zeros: none. */
struct openai_runs {
	struct openai_run *v; /* [n] owned */
	size_t n, cap;
};

/* Adds a run, or makes the last one longer if it has the same kind; len 0: does nothing. -ENOMEM. */
int openai_runs_add(struct openai_runs *r, enum openai_kind kind, size_t len) MUST_CHECK;
void openai_runs_release(struct openai_runs *r);
