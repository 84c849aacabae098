/* Byte pair encoding: one word's bytes to ids.
 *
 * A word starts as its single bytes. Of all adjacent pairs that can merge, the pair with the lowest rank is merged,
 * the leftmost first, until none can. Short words are done in arrays on the stack, long ones with a heap, so that a
 * hostile word of a million letters costs O(n log n). Words that are known to end as one token are only looked up. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ids.h"
#include "protocol/tokenizer/vocab.h"

/* A merge: left + right -> merged[rank]. */
struct bpe_pair {
	uint32_t left, right, rank; /* rank BPE_NEVER: the slot is empty */
};

#define BPE_NEVER UINT32_MAX

struct bpe {
	struct vocab *vocab;	     /* borrowed */
	int32_t byte_id[256];	     /* -1: a byte without a token, it is dropped */
	uint32_t (*byte_ranks)[256]; /* 256 rows: the rank of two bytes' tokens, owned */
	struct bpe_pair *pairs;	     /* a hash table, owned */
	size_t n_pairs;		     /* a power of two, at least twice the number of merges */
	int32_t *merged;	     /* by rank, owned */
	size_t n_merges;
};

/* Makes room for n merges; vocab is complete and outlives b. -ENOMEM. */
int bpe_init(struct bpe *b, struct vocab *vocab, size_t n_merges) MUST_CHECK;
void bpe_release(struct bpe *b);

/* Adds a merge: the tokens left and right, side by side, become `merged`; rank < n_merges. A later call for the same
 * two wins. */
void bpe_add(struct bpe *b, size_t rank, int32_t left, int32_t right, int32_t merged);

/* Called after the last bpe_add: marks the words that are one token. These are words whose merges end in one token,
 * or with `ignore_merges` all words in the vocabulary. -ENOMEM. */
int bpe_finish(struct bpe *b, bool ignore_merges) MUST_CHECK;

/* Appends the ids of a word, len > 0 bytes. -ENOMEM. */
int bpe_encode(const struct bpe *b, const char *word, size_t len, struct ids *out) MUST_CHECK;
