/*
 * The vocabulary: for each id the bytes it stands for, and for bytes the id.
 *
 * The two directions are filled apart: vocab_set gives an id its bytes for output, vocab_index lets an id be found by
 * bytes. Every token has bytes for output. A token can be found by bytes if it is in the model's vocabulary and its
 * text is in the byte-level alphabet (tokenizer_load.c), or the file is marked (tokenizer.h) and the token is no byte's;
 * words are made of no other tokens. Ids may have gaps. Nothing
 * changes after loading.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Ids must be below this. Vocabularies of models have up to about 300,000. */
enum { VOCAB_MAX = 1 << 22 };

struct vocab_token {
	uint32_t start;	      /* its bytes are bytes.data + start */
	uint32_t len : 31;    /* 0: the id stands for nothing */
	uint32_t special : 1; /* left out of generated text */
};

/* A slot of the table from bytes to ids. Nearly all tokens have at most 16 bytes, which the slot itself holds. */
struct vocab_slot {
	/* the token's bytes; if it has more than 16: a hash of them, and their start in vocab.bytes */
	uint64_t low, high;
	uint32_t len;	    /* 0: the slot is empty */
	uint32_t whole : 1; /* a word of these bytes becomes this one token (set by bpe.c) */
	uint32_t id : 31;
};

struct vocab {
	struct vocab_token *tokens; /* n, owned */
	size_t n, cap;		    /* n is one past the largest id */
	struct buf bytes;
	struct vocab_slot *slots; /* owned; their number is a power of two, at most half are used */
	size_t n_slots, n_used;
	uint32_t longest; /* bytes of the longest token that can be found */
};

void vocab_init(struct vocab *v);
void vocab_release(struct vocab *v);

/* Gives an id its bytes for output, in place of those it had, and makes it not special. -EINVAL: the id is negative or
 * not below VOCAB_MAX, or len is 0. -E2BIG: the bytes of all tokens are more than 2 GiB. -ENOMEM. */
int vocab_set(struct vocab *v, int64_t id, const char *bytes, size_t len) MUST_CHECK;

/* Lets an id be found by bytes, which need not be those it has for output. -EEXIST: another id is found by them; other
 * errors as of vocab_set. */
int vocab_index(struct vocab *v, int64_t id, const char *bytes, size_t len) MUST_CHECK;

/* Returns the slot of these bytes (len > 0); NULL: no id is found by them. */
struct vocab_slot *vocab_find(const struct vocab *v, const char *bytes, size_t len);
