/* The automaton of a grammar: it reads an answer byte by byte and says which bytes may come next.
 *
 * It is a pushdown automaton that is made deterministic while it runs. An item is a node that reads a byte, with a
 * frame; a frame is a set of places to return to, each a node with a frame of its own. All calls of a rule at the same
 * byte share one frame (as in Earley's parser), and a call at the end of a rule returns to where the rule returns, so a
 * list that is written with recursion needs no stack. A state is a set of items. Equal frames and equal states are kept
 * once, and have numbers:
 *
 *     state 7:  (node 31, frame 2) (node 40, frame 2)        row of state 7:  by class of bytes, the next state
 *     frame 2:  (node 12, frame 0) (node 55, frame 1)        frame 0:  (ACCEPT)
 *
 * So the copy of a state is the copy of its number, and a state that comes again costs one look into its row. Masks
 * (token_mask.h) need this: they walk through a vocabulary of 250,000 tokens. Sets of whole stacks would be as simple,
 * but an ambiguous grammar makes exponentially many of them, and equal states would be rarer. Earley's items with
 * positions would never give equal states.
 *
 * Bounds. A byte after which there would be more than AUTOMATON_ITEMS_MAX items, or that takes too much work, is not
 * accepted: an extremely ambiguous grammar loses texts and gains none. Each state that is not dead can be completed to
 * a text of the grammar, but for this bound. Memory is bounded by max_bytes and by an account; at a bound every call
 * fails.
 *
 * An automaton belongs to one thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/account.h"
#include "base/err.h"
#include "protocol/grammar/grammar.h"

enum {
	AUTOMATON_ITEMS_MAX = 1 << 13,
	AUTOMATON_DEAD = 0,  /* the state that no text leads out of */
	AUTOMATON_START = 1, /* the state before the first byte */
};

struct automaton;

/* Makes a *new* automaton of the grammar, which must outlive it. max_bytes: the most memory that it takes, about. Its
 * memory is counted in the account, which must outlive it too; NULL: nowhere. -ENOMEM; -ENOBUFS: max_bytes does not
 * suffice, nor would the account alone; -ENOSPC, -EDQUOT: the account has no more now (account_take). */
int automaton_new(const struct grammar *g, size_t max_bytes, struct account *account,
		  struct automaton **ret) MUST_CHECK;
void automaton_free(struct automaton *a);

/* Makes a *new* automaton of the same grammar that has no states of a but the start and states[n], whose numbers
 * change: states[] gets those of the new one, which has not failed. Memory: as automaton_forget, in this account.
 * -ENOMEM, -ENOBUFS: as there, but a stays as it is. */
int automaton_copy(const struct automaton *a, struct account *account, uint32_t *states, uint32_t n,
		   struct automaton **ret) MUST_CHECK;

/* Makes the automaton forget all states but the start and those of states[n], whose numbers change: states[] gets the
 * new ones. It is as before a failure then. Masks that were made of it (token_mask.h) must be freed before. The memory
 * of these states is counted in the account in any case, also beyond its bounds. -ENOMEM; -ENOBUFS: they alone need
 * more than max_bytes. On failure states[] is undefined, and the automaton fails from now on. */
int automaton_forget(struct automaton *a, uint32_t *states, uint32_t n) MUST_CHECK;

/* Returns the state after a byte. AUTOMATON_DEAD: the byte cannot come here, or the automaton has failed. */
uint32_t automaton_next(struct automaton *a, uint32_t state, uint8_t byte);

/* As automaton_next, for each byte of a text. */
uint32_t automaton_read(struct automaton *a, uint32_t state, const void *text, size_t len);

/* Returns whether the text may end in this state. */
bool automaton_may_end(const struct automaton *a, uint32_t state);

/* Returns 0, or why the automaton has failed: -ENOMEM, -ENOBUFS, -ENOSPC or -EDQUOT, with a sentence. A failed
 * automaton stays so. */
int automaton_failed(const struct automaton *a, struct err *e) MUST_CHECK;

/* Returns the number of states so far, all numbers of states being smaller, and the work so far, in items. */
uint32_t automaton_size(const struct automaton *a);
uint64_t automaton_work(const struct automaton *a);

/* Returns the bytes of memory that it takes now, about. */
size_t automaton_bytes(const struct automaton *a);
