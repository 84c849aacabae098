/* The members of a grammar builder (grammar.h), for the files that make a graph of its expressions: grammar_build calls
 * grammar_emit, then grammar_finish. */
#pragma once

#include "base/arena.h"
#include "protocol/grammar/grammar_internal.h"

enum kind { EMPTY, LITERAL, CLASS, BYTE, SEQUENCE, CHOICE, REPEAT, CALL };

struct expression {
	enum kind kind;
	uint32_t depth;
	uint32_t n;    /* bytes, ranges or parts; REPEAT: the minimum; CALL: the rule; BYTE: lo */
	uint32_t most; /* REPEAT: the maximum; BYTE: hi */
	union {
		const char *text;
		const struct grammar_range *ranges;
		const uint32_t *parts;
		uint32_t part;
	};
};

struct rule {
	const char *name;
	uint32_t expression;
	bool defined;
	uint32_t number; /* in the graph, plus 1; 0: the graph does not have it */
};

struct grammar_builder {
	struct arena arena;
	struct expression *expressions; /* owned; [0] is the empty text */
	struct rule *rules;		/* owned */
	uint32_t n_expressions, expressions_cap, n_rules, rules_cap;
	struct err failed;	 /* code 0: nothing has failed */
	const struct pace *pace; /* borrowed */
};

/* Writes the rules that `root` reaches as nodes into the empty *g. *ret_order is a *new* array, by rule of the graph:
 * the builder's rule. */
int grammar_emit(struct grammar_builder *b, uint32_t root, struct grammar *g, uint32_t **ret_order,
		 struct err *e) MUST_CHECK;

/* Removes the parts of a graph that no finite text has, and finds what the automaton needs of it. The arguments are
 * those of grammar_emit. */
int grammar_finish(struct grammar *g, const struct grammar_builder *b, const uint32_t *order,
		   struct err *e) MUST_CHECK;
