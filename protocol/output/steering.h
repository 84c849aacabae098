/* Steers the draws of a request: says which tokens each of its choices may draw next, as a token mask
 * (scheduler/plan.h).
 *
 *     grammar      the text of the answer is one of a grammar's. A token is in the mask if its bytes lead on, and an
 *                  end token if the text may end
 *     allowed      only these tokens may be drawn
 *     bad words    lists of tokens. The last token of a list may not be drawn when the choice ends with those before it
 *
 * If the prompt ended in an open think block, the grammar begins behind the first </think> that the choice writes.
 * Before that every token may be drawn but end tokens, because an answer that ended there would have no text. Up to two
 * line ends may stand directly behind the tag: models write them there. The grammar does not read them, because they
 * are no part of the content (reasoning_line_ends).
 *
 * Of min_tokens the masks know nothing: the scheduler bans end tokens (scheduler_request.min_tokens).
 *
 * Special tokens are in no mask, because their text is not shown; end tokens and the marks of calls are the exceptions.
 *
 * All choices share one matcher (grammar/matcher.h), and so do requests of one owner with equal grammars that run at
 * the same time (steering_share): most of their masks are made once. When its automaton is full, the choices get one
 * with their states alone. If that happens too often, or if no token may be drawn, the request fails: steering_take or
 * steering_mask returns an error.
 *
 * Memory is counted in an account (base/account.h) as it grows. While memory is tight, masks are not kept but made
 * again. When there is none, a new object is refused, and an automaton that has to grow forgets all states but those of
 * the choices, and goes on within the object's reserve; the request fails only if one mask needs more than that.
 *
 * An object belongs to one thread at a time, and all that share a matcher belong to the same. Trie and tokenizer may be
 * shared. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "protocol/grammar/token_mask.h"
#include "protocol/tokenizer/tokenizer.h"

enum {
	STEERING_WORD_MAX = 32,		     /* tokens of a bad word */
	STEERING_AUTOMATON_BYTES = 16 << 20, /* memory of the automaton of a request */
	STEERING_MASKS_BYTES = 8 << 20,	     /* of its masks that are kept */
	/* The reserve of the account of a request, beside its grammar and the masks of its choices: for a typical JSON
	 * schema's automaton, which has 150 to 450 KB after thousands of tokens. */
	STEERING_RESERVE = 512 << 10,
};

/* The tokens of a bad word: 1 to STEERING_WORD_MAX. */
struct steering_word {
	const int32_t *ids;
	uint32_t n;
};

/* All pointers are borrowed as long as the object lives, except that of the grammar. */
struct steering_config {
	const struct tokenizer *tokenizer;
	const struct token_trie
		*trie; /* of all tokens of the tokenizer that are shown, without end tokens */
	uint32_t vocab_size, n_choices;
	struct grammar *grammar;      /* NULL: any text */
	size_t automaton_bytes;	      /* the most memory of its automaton */
	struct account_bounds bounds; /* of the memory of all objects */
	uint64_t owner;		      /* whose request it is */
	bool thinking;		      /* the prompt ended in an open think block; with a grammar */
	/* [n_allowed] borrowed by steering_new alone; NULL: every token */
	const int32_t *allowed;
	size_t n_allowed;
	const struct steering_word *words; /* [n_words] bad words */
	size_t n_words;
	const int32_t *ends;  /* [n_ends] the model's end tokens */
	const int32_t *stops; /* [n_stops] further tokens that end a choice wherever they come */
	size_t n_ends, n_stops;
	const int32_t *barred; /* [n_barred] tokens of the trie that are not shown in this answer */
	size_t n_barred;
	/* with a grammar: end tokens are in the mask only where nothing else may come */
	bool ends_last;
};

struct steering;

/* Makes a *new* object; takes the grammar, also if the call fails. -ENOMEM; -PROBLEM_CONSTRAINT_MEMORY: all objects
 * take too much memory, or those of the owner; -PROBLEM_CONSTRAINT: this one takes too much. All with a sentence. */
int steering_new(const struct steering_config *config, struct steering **ret,
		 struct err *e) MUST_CHECK;
void steering_free(struct steering *s);

/* Returns whether the mask of a draw depends on the tokens that the choice has drawn. */
bool steering_depends(const struct steering *s);

/* Lets an object whose choices have drawn nothing use the grammar's automaton and masks of another one, if `shared` has
 * those of an equal grammar of its owner. Else adds its own to `shared`, until they are freed. */
void steering_share(struct steering *s, struct list *shared);

/* While memory is tight, frees the masks that are kept, which can be made again. */
void steering_trim(struct steering *s);

/* Gives the mask of a choice's next draw: *ret [PLAN_MASK_WORDS] is borrowed until the next call for this choice; NULL:
 * every token may be drawn. -PROBLEM_CONSTRAINT: no token may be drawn, or the grammar takes too much memory or work;
 * -PROBLEM_CONSTRAINT_MEMORY: the reserve does not suffice, and there is no more memory; -ENOMEM. All with a
 * sentence. */
int steering_mask(struct steering *s, uint32_t choice, const uint32_t **ret,
		  struct err *e) MUST_CHECK;

/* Takes the token that a choice has drawn. Errors as above. */
int steering_take(struct steering *s, uint32_t choice, int32_t token, struct err *e) MUST_CHECK;

/* Makes a *new* trie of a tokenizer's tokens: those that are shown, and marks [n_marks], special tokens that are shown
 * in some answers. -ENOMEM. */
int steering_trie(const struct tokenizer *tokenizer, const int32_t *marks, size_t n_marks,
		  struct token_trie **ret) MUST_CHECK;
