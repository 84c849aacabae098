/* Added tokens: texts such as <|im_start|> that are looked for in a text before it is split into words.
 *
 * A set of added tokens is a trie. A scan walks a text and returns the matches one after the other: the leftmost, and
 * of several that begin at the same place the longest, like Hugging Face's added_vocabulary. A set does not change
 * after it was filled: any thread may scan with it. */
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
	bool first[256]; /* bytes with which a token begins */
	int only_first;	 /* if all tokens begin with the same byte, that byte; else -1 */
};

/* `u` is borrowed (unicode_table). */
void added_init(struct added *a, const struct unicode *u);
void added_release(struct added *a);

/* Adds a token whose text has len > 0 bytes. -EEXIST: the set has this text with another id. -ENOMEM. */
int added_insert(struct added *a, const char *text, size_t len,
		 struct added_token token) MUST_CHECK;

/* Returns the id of the token with exactly this text, or -1. */
int32_t added_find(const struct added *a, const char *text, size_t len);

struct added_scan {
	size_t at;   /* where the next search begins */
	size_t done; /* the end of the last match */
};

struct added_match {
	/* The token takes the text [start, end). If the match before took white space behind it (rstrip), and this
	 * token's own text begins with that space, start lies before the end of the match before. */
	size_t start, end;
	int32_t id;
};

/* Finds the next match in text (valid UTF-8). False: there is none. Before the first call *scan is all zero. Let done
 * be the value of scan->done before a call: the text from done to ret->start, if any, is ordinary text. */
bool added_next(const struct added *a, const char *text, size_t len, struct added_scan *scan,
		struct added_match *ret);
