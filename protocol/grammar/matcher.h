/* A matcher reads answers by a grammar and makes their masks: an automaton, the masks that are kept, and the account of
 * their memory. It has the choices of one request as its user, or those of several: requests of one owner with equal
 * grammars share a matcher while they run, because most states of their answers are the same.
 *
 * When a shared automaton is full, each user leaves it with a copy of its own states. A matcher that has one user
 * forgets instead (automaton_forget). So a user can go on with the reserve that it has brought, whatever others do.
 *
 * A matcher, and all that share a grammar, belong to one thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/account.h"
#include "base/list.h"
#include "protocol/grammar/automaton.h"
#include "protocol/grammar/token_mask.h"

struct matcher_config {
	const struct token_trie *trie; /* borrowed */
	size_t automaton_bytes;	       /* the most memory of the automaton */
	size_t masks_bytes;	       /* of masks that are kept */
	struct account_bounds bounds;
	uint64_t reserve; /* bytes that each user can count on, beside the grammar */
	uint64_t owner;	  /* matchers of different owners are never shared */
};

struct matcher {
	struct automaton *automaton;
	struct token_masks *masks;
	/* private */
	struct matcher_config config;
	struct list node; /* in the list of those that may be shared */
	struct grammar *grammar;
	uint64_t hash; /* of the grammar */
	struct account account;
	uint32_t users;
	uint32_t progress; /* tokens since the automaton was new or forgot */
	uint64_t work_max; /* the most work of the automaton (automaton_work) so far */
};

/* Makes a *new* matcher with one user; takes the reference to the grammar, also if the call fails. -ENOMEM; -ENOBUFS,
 * -ENOSPC, -EDQUOT: automaton_new. */
int matcher_new(const struct matcher_config *config, struct grammar *grammar,
		struct matcher **ret) MUST_CHECK;

/* Takes a user away, and frees the matcher of the last one. NULL is allowed. */
void matcher_leave(struct matcher *m);

/* If one of `shared` has the same owner and an equal grammar, and is not full, the user of *m, which has read nothing,
 * moves there, and *m is freed and becomes that one. Else *m joins the list until it is freed. */
void matcher_share(struct matcher **m, struct list *shared);

/* Counts a token that a user has drawn: the automaton may then do more work. */
void matcher_count(struct matcher *m);

/* Returns whether the automaton has done more work than its users' tokens allow. */
bool matcher_overworked(const struct matcher *m);

/* After the automaton has failed with the code `why`: gives the user whose states are states[n] an automaton that has
 * these alone, and has not failed. Their numbers change, and *m does if others share it. The memory of these states is
 * counted in any case. -ENOMEM; -ENOBUFS: it has failed before, too few tokens ago, or these states alone take too
 * much; -ENOSPC, -EDQUOT: there is no memory for a mask. After an error the user can only leave. */
int matcher_renew(struct matcher **m, uint32_t *states, uint32_t n, int why) MUST_CHECK;
