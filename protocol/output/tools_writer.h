/* For the formats of tool calls: expressions of the calls that a format writes (tools_grammar.h). */
#pragma once

#include "protocol/grammar/grammar.h"
#include "protocol/grammar/json_text.h"
#include "protocol/grammar/schema_part.h"
#include "protocol/output/tools_grammar.h"

struct tools_writer {
	struct grammar_builder *b;
	const struct tools_demand *demand;
	struct json_text *text;
	uint32_t *arguments; /* [list->n] rules of the arguments as JSON; owned */
	struct err *e;
	int r; /* negative: it has failed, with an error */
};

/* Notes that the format cannot write something of a tool: the sentence ends with `what`. */
void tools_cannot_write(struct tools_writer *w, size_t tool, const char *what);

/* Returns the name of a tool. */
const char *tools_writer_name(const struct tools_writer *w, size_t tool);

/* Notes the error r of the schema of a tool's parameters; r 0: there is none. */
void tools_writer_fail(struct tools_writer *w, size_t tool, int r);

/* Returns whether the arguments of a tool have to follow its schema. */
bool tools_writer_strict(const struct tools_writer *w, size_t tool);

/* Returns the JSON schema of a tool's parameters; NULL: it has none. */
const json_t *tools_writer_schema(const struct tools_writer *w, size_t tool);

/* Returns the arguments of a tool as a JSON object. */
uint32_t tools_writer_arguments(struct tools_writer *w, size_t tool);

/* The parameters of a tool, for formats that do not write the arguments as one JSON object. */
struct tools_parameter {
	const char *name;
	const json_t *schema; /* NULL: any value */
	bool required;
};

struct tools_parameters {
	struct tools_parameter *v; /* [n] owned */
	size_t n, cap;
};

/* Lists the parameters of a tool: those of the schema, in its order, and those that are only required. *s is for
 * expressions of their values (schema_part.h); NULL: there are no schemas. Parameters of a tool that need not follow
 * its schema have any value, and none of them is required. False: it has failed. Call tools_parameters_end in any case.
 * */
bool tools_writer_parameters(struct tools_writer *w, size_t tool, struct tools_parameters *ret,
			     struct schemas **s);
void tools_parameters_end(struct tools_writer *w, size_t tool, struct tools_parameters *p,
			  struct schemas *s);

/* Returns the call of a tool as {"name": NAME, MEMBER: ARGUMENTS}, between two texts. */
uint32_t tools_writer_object(struct tools_writer *w, size_t tool, const char *before,
			     const char *member, const char *behind);

/* Returns a choice of the tools that may be called: call(w, i) for each. */
uint32_t tools_writer_any(struct tools_writer *w,
			  uint32_t (*call)(struct tools_writer *w, size_t tool));

/* Returns a list of at least one call, or, if the demand is for one, of one: `between` stands between two. */
uint32_t tools_writer_list(struct tools_writer *w, uint32_t call, const char *between);

/* Returns any text without control characters, but for line ends and tabs, in which none of the n words is. The words
 * are ASCII. */
uint32_t tools_writer_without(struct tools_writer *w, const char *const *words, size_t n);
