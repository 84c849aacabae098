/* The grammar of an answer with tool calls: how a model writes them, with arguments by the tools' schemas.
 *
 * The calls stand as chat templates write them. So the parser (tools.h) finds them, and they read as the model has
 * learned. Of the arguments every text is valid by the schema of the tool's parameters, as constraint.h says for JSON.
 * In a format without JSON (qwen_xml) parameters stand in the order of the schema; values are strings as they are, or
 * JSON. Strings there have no tag in which a value ends, and those that the schema limits have no '<', backslash,
 * quotation mark or control character. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "protocol/grammar/grammar.h"
#include "protocol/output/tools.h"

enum tools_rest {
	TOOLS_CALLS_ONLY, /* the answer is calls, at least one */
	TOOLS_OR_TEXT, /* any text without a call, or calls, before which text may stand if the format allows it */
	TOOLS_OR_JSON, /* JSON, or calls */
};

struct tools_demand {
	const struct tools_format *format;
	/* The request's tools, as JSON and as a list: [list->n] in the same order. */
	const json_t *tools;
	const struct tool_list *list;
	const char *only; /* the name of the only tool that may be called; NULL: any */
	bool one;	  /* one call at most */
	/* The arguments of all tools follow their schemas. Else those of tools with "strict": true do, and those of
	 * other tools are any object. */
	bool strict;
	enum tools_rest rest;
	const json_t *schema; /* TOOLS_OR_JSON: of the JSON; NULL: any object */
};

/* Makes a *new* grammar. Errors and pace as in constraint.h, with sentences that name tool and keyword;
 * -PROBLEM_UNSUPPORTED: also a name or a schema that the format cannot write. If a tool is at fault, the error's param
 * is "tools". */
int tools_grammar(const struct tools_demand *d, const struct pace *pace, struct grammar **ret,
		  struct err *e) MUST_CHECK;
