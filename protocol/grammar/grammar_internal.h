/* The graph of a grammar, for the automaton. */
#pragma once

#include "protocol/grammar/grammar.h"

enum grammar_kind { NODE_RETURN, NODE_ACCEPT, NODE_BYTES, NODE_FORK, NODE_CALL };

/* The first nodes of every graph. */
enum { GRAMMAR_RETURN, GRAMMAR_ACCEPT };

struct grammar_node {
	enum grammar_kind kind;
	uint32_t a,
		b; /* BYTES, FORK: the first edge and the number of edges. CALL: the rule, the next node */
};

/* lo > hi in a BYTES node, or GRAMMAR_GONE as the next node: the edge leads to no text. */
struct grammar_edge {
	uint8_t lo, hi;
	uint32_t next;
};

#define GRAMMAR_GONE UINT32_MAX

/* Of two rules, the one that may call the other one before it reads a byte has the smaller number. */
struct grammar_rule {
	uint32_t entry;
	bool nullable; /* the empty text is a text of the rule */
};

struct grammar {
	struct grammar_node *nodes; /* owned, as the arrays below */
	struct grammar_edge *edges;
	struct grammar_rule *rules;
	uint32_t n_nodes, n_edges, n_rules, root;
	uint32_t nodes_cap, edges_cap, rules_cap;
	uint32_t shares; /* references beside the first */
	/* Bytes that no edge tells apart are of one class. */
	uint8_t class_of[256];
	uint8_t of_class[256]; /* by class: one of its bytes */
	uint32_t n_classes;
};
