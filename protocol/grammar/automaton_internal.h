/* The rows of an automaton, for masks. */
#pragma once

#include "protocol/grammar/automaton.h"
#include "protocol/grammar/grammar_internal.h"

enum { AUTOMATON_UNKNOWN = UINT32_MAX };

struct automaton_state {
	uint32_t row;	/* the place of its row in rows; AUTOMATON_UNKNOWN: it has none yet */
	uint32_t first; /* of its items */
	uint32_t n;
	bool may_end;
};

struct automaton_set {
	uint32_t first, n; /* of its places to return to */
};

/* Numbers of elements by hash: open addressing, 0 is an empty place. */
struct automaton_index {
	uint32_t *v;	 /* owned */
	uint32_t cap, n; /* cap: a power of two, at least 2 * n */
};

struct automaton {
	const struct grammar *g;
	struct automaton_state *states; /* owned, as all arrays here */
	struct automaton_set *frames;
	uint32_t n_states, states_cap, n_frames, frames_cap;
	uint32_t *rows; /* [n_rows][g->n_classes] */
	size_t n_rows, rows_cap;
	uint64_t *items, *returns; /* node << 32 | frame: those of states, those of frames */
	uint32_t n_items, items_cap, n_returns, returns_cap;
	struct automaton_index state_index, frame_index;
	size_t max_bytes;
	struct account *account; /* borrowed; NULL: memory is counted nowhere */
	size_t counted; /* bytes in the account: of the arrays, and of one array's growth */
	uint64_t work, work_max; /* work_max: the step under way may work up to here */
	int failed;		 /* 0, -ENOMEM, -ENOBUFS, -ENOSPC or -EDQUOT */

	/* One step. */
	uint64_t *pending, *found, *calls, *set;
	uint32_t n_pending, pending_cap, n_found, found_cap, n_calls, calls_cap, n_set, set_cap;
	uint32_t *call_next; /* [calls_cap]: the next call of the same rule */
	uint32_t call_next_cap;
	uint32_t *rule_calls; /* [g->n_rules]: the first call of each rule, plus 1; 0: none */
	uint64_t *waiting;    /* bits: the rules that have calls */
	uint64_t *seen;	      /* [seen_cap]: a hash table of items */
	uint32_t *
		seen_places; /* [seen_cap / 2], n_seen in use: the places of seen that have an item */
	uint32_t seen_cap, n_seen;
	bool accepts, over;
};

/* Fills a place of a row. */
uint32_t automaton_step(struct automaton *a, uint32_t state, uint32_t class);

static inline uint32_t automaton_at(struct automaton *a, uint32_t state, uint8_t byte)
{
	uint32_t class = a->g->class_of[byte], row = a->states[state].row, next;

	if (row == AUTOMATON_UNKNOWN)
		return automaton_step(a, state, class);
	next = a->rows[(size_t)row * a->g->n_classes + class];
	return next == AUTOMATON_UNKNOWN ? automaton_step(a, state, class) : next;
}
