/* Byte pair encoding: one word to ids.
 *
 * A word starts as the tokens of its bytes or, with `characters`, of its characters; a character without a token is the
 * tokens of its bytes then. tokenizer.json lists the pairs of tokens that can merge; a pair's rank is
 * its place in the list. Of the pairs of neighbours in the word, the one with the lowest rank is merged (of equal ranks
 * the leftmost), and so on until no pair can merge. Short words are done in arrays on the stack, long ones with a heap,
 * so that a hostile word of a million letters costs O(n log n). Words that the vocabulary marks as one token
 * (bpe_finish) are only looked up. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ids.h"
#include "base/pace.h"
#include "protocol/tokenizer/vocab.h"

/* A merge of two tokens: left and right, side by side, become the token bpe.merged[rank]. */
struct bpe_pair {
	uint32_t left, right, rank; /* rank BPE_NEVER: this slot of the hash table is empty */
};

#define BPE_NEVER UINT32_MAX

struct bpe {
	struct vocab *vocab;	     /* borrowed */
	bool characters;	     /* words begin as characters, and spaces are marked (below) */
	int32_t byte_id[256];	     /* each byte's token; -1: the byte has none and is dropped */
	uint32_t (*byte_ranks)[256]; /* [256]: rank of the pair of two bytes' tokens; owned */
	struct bpe_pair *pairs;	     /* a hash table, owned */
	size_t n_pairs;		     /* a power of two, at least twice the number of merges */
	int32_t *merged;	     /* [n_merges]: by rank, the token that a merge makes; owned */
	size_t n_merges;
	bool dropping; /* some byte has no token */
};

/* Makes b empty, with room for n_merges merges and without `characters`. Before bpe_finish, vocab must have all tokens that are found by bytes
 * (vocab_index). vocab must outlive b. -ENOMEM. */
int bpe_init(struct bpe *b, struct vocab *vocab, size_t n_merges) MUST_CHECK;
void bpe_release(struct bpe *b);

/* Adds a merge: the tokens left and right, side by side, become `merged`; rank < n_merges. Replaces an earlier merge of
 * the same two tokens. */
void bpe_add(struct bpe *b, size_t rank, int32_t left, int32_t right, int32_t merged);

/* The character that stands for a space in the words and the vocabulary of a tokenizer with `characters`. */
#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */

/* Appends the text with SPACE_MARK in place of its spaces; or the text with spaces in place of its SPACE_MARKs. */
void mark_spaces(const char *text, size_t len, struct buf *out);
void unmark_spaces(const char *text, size_t len, struct buf *out);

/* Must be called after the last bpe_add. With `characters` byte_id must be filled before, and all bytes have tokens.
 * Fills byte_id otherwise, and byte_ranks, and marks in the vocabulary (`whole`) the tokens
 * that bpe_encode finds without merging. They are the tokens whose bytes merge into that one token; with
 * `ignore_merges` they are all tokens that are found by bytes. -ENOMEM. */
int bpe_finish(struct bpe *b, bool ignore_merges) MUST_CHECK;

/* Returns a lower bound on the number of ids of a word of len bytes. */
size_t bpe_least(const struct bpe *b, size_t len);

/* Appends the ids of a word, len > 0 bytes. -ECANCELED: pace_gives_up (pace NULL: never), which is called within long
 * words, because a word of many megabytes takes seconds; -ENOMEM. */
int bpe_encode(const struct bpe *b, const char *word, size_t len, const struct pace *pace,
	       struct ids *out) MUST_CHECK;
