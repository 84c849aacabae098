/* What `tigon inspect` found in a checkpoint (inspect.c), and the two ways to print it (report.c). */
#pragma once

#include <jansson.h>

#include "daemon/cli/inspect/groups.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/model_config.h"
#include "engine/engine.h"

enum { INSPECT_PAGE = 64 }; /* tokens of a page, as tigond has by default */

/* The memory that a model takes on a device with one type of elements, and the tokens and sequences that fit beside it. */
struct inspect_fit {
	struct engine_needs needs;
	enum engine_dtype dtype;
	uint64_t memory;    /* bytes that the model may take: of the device, or as --memory says */
	uint64_t left;	    /* bytes of it that weights and work space leave; 0: they do not fit */
	uint64_t tokens;    /* the longest context of one sequence that fits, at most the model's */
	uint64_t sequences; /* how many sequences of `context` tokens fit */
};

struct inspection {
	const char *path, *format;   /* borrowed */
	struct model_config *config; /* owned; NULL: it could not be read */
	uint64_t n_parameters;
	struct tensor_group *groups, *types; /* owned, [n_groups], [n_types] */
	size_t n_groups, n_types;
	bool tokenizer, chat_template;
	/* why the model is not served, why it has no tokenizer and no chat template, why no memory can be planned; code
	 * 0: there is no reason */
	struct err refused, no_tokenizer, no_template, no_device;
	uint32_t context;	  /* tokens of a sequence in inspect_fit.sequences */
	struct inspect_fit *fits; /* owned, [n_fits] */
	size_t n_fits;
};

void inspect_print(const struct inspection *i);

/* Prints the same as JSON. -ENOMEM. */
int inspect_print_json(const struct inspection *i, struct err *e) MUST_CHECK;
