/* Added tokens: texts such as <|im_start|> that are looked for in a text before it is split into words.
 *
 * A set of them is a trie. A scan walks a text and returns its matches one after the other: the leftmost, and of
 * several that begin there the longest, like Hugging Face's added_vocabulary. A set does not change after it was
 * filled: any thread may scan with it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "protocol/tokenizer/unicode.h"

struct added_token {
	int32_t id;
	bool lstrip, rstrip; /* the token also takes the white space on that side */
	bool single_word;    /* only matches without a word character beside it */
};

struct added_node; /* in added.c */

struct added {
	const struct unicode *unicode;
	struct added_node *nodes; /* owned; nodes[0] is the root */
	size_t n_nodes, cap_nodes;
	struct added_token *tokens; /* owned */
	size_t n_tokens, cap_tokens;
	bool first[256]; /* bytes with which some token begins */
	int only_first;	 /* that byte if there is only one, else -1 */
};

/* `u` is borrowed (unicode_table). */
void added_init(struct added *a, const struct unicode *u);
void added_release(struct added *a);

/* Adds a token whose text has len > 0 bytes. -EEXIST: the set has this text with another id. -ENOMEM. */
int added_insert(struct added *a, const char *text, size_t len,
		 struct added_token token) MUST_CHECK;

/* The id of the token with exactly this text, or -1. */
int32_t added_find(const struct added *a, const char *text, size_t len);

struct added_scan {
	size_t at;   /* where the next search begins */
	size_t done; /* the end of the last match */
};

struct added_match {
	/* The part of the text that the token takes. Behind a token that took white space (rstrip), start may lie
	 * before the end of that match, if this token's own text begins with that space. */
	size_t start, end;
	int32_t id;
};

/* Finds the next match in text (valid UTF-8); false: there is none. A scan starts all zero. The text between the match
 * before (it ends at scan->done, as it was before the call) and ret->start, if there is any, is ordinary text. */
bool added_next(const struct added *a, const char *text, size_t len, struct added_scan *scan,
		struct added_match *ret);
