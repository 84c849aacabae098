/* Token masks: which tokens of a vocabulary may come next, as bits.
 *
 * The tokens' bytes are in a trie, which is walked together with the automaton: a branch that the automaton does not
 * accept is left at once, and the next states are in the automaton's rows after they were met once. So a mask costs a
 * look into a table for each node that is reached. Two things make it cheaper:
 *
 *   kept     the masks of states are kept, and most states of an answer come again
 *   slices   inside a string of JSON nearly all tokens may come. The tokens of 1, 2, ... whole code points that a
 *            string has as they are (no quote, backslash or control character) are in bits of their own, and in a trie
 *            of their own. A state for which any k such code points may follow takes the first k slices as they are,
 *            and walks only through longer tokens and through the trie of all other tokens. The walk through longer
 *            tokens is left out where no such code point may follow behind the k: in a string whose length is limited
 *
 * (llguidance walks and slices in this way; XGrammar keeps masks by place in the grammar, and checks the tokens that
 * leave the rule by the stack. Here the state has the stack in it.) */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "protocol/grammar/automaton.h"

enum { TOKEN_BYTES_MAX = 1024 }; /* longer tokens are never in a mask */

struct token_trie;
struct token_masks;

struct token_source {
	int32_t n; /* ids are below n */
	/* Returns the bytes of a token, valid during token_trie_new; NULL or *len = 0: the token is never in a mask, as
	 * special tokens should not be. */
	const char *(*bytes)(const void *arg, int32_t id, size_t *len);
	const void *arg;
	/* The tokens that end an answer: in a mask if the text may end. They have no bytes. */
	const int32_t *ends;
	size_t n_ends;
};

/* Makes a *new* trie of a vocabulary, which any thread may use at the same time. -ENOMEM. */
int token_trie_new(const struct token_source *source, struct token_trie **ret) MUST_CHECK;
void token_trie_free(struct token_trie *t);
size_t token_trie_words(const struct token_trie *t);

/* Returns the bytes of memory that the trie takes. */
size_t token_trie_bytes(const struct token_trie *t);

/* Makes *new* masks of an automaton's states. Trie and automaton must outlive them; they belong to the thread of the
 * automaton. max_bytes: about the most memory for masks that are kept, but one is always kept. Masks are counted in the
 * automaton's account, and those but one only while it has memory to spare (account_take_spare). -ENOMEM; -ENOBUFS,
 * -ENOSPC, -EDQUOT: the account has no memory for one (automaton_new). */
int token_masks_new(const struct token_trie *t, struct automaton *a, size_t max_bytes,
		    struct token_masks **ret) MUST_CHECK;
void token_masks_free(struct token_masks *m);

/* Frees the masks that are kept, but for one. */
void token_masks_drop(struct token_masks *m);

/* Makes the mask of a state: *ret [token_trie_words] has bit id % 32 of word id / 32 for each token that may come next,
 * none of them if no token leads on and the text may not end. Borrowed until the next call. -ENOMEM, -ENOBUFS, -ENOSPC,
 * -EDQUOT: the automaton has failed; -E2BIG: the grammar is so ambiguous that the mask takes too much work. All with a
 * sentence. */
int token_mask(struct token_masks *m, uint32_t state, const uint32_t **ret,
	       struct err *e) MUST_CHECK;
