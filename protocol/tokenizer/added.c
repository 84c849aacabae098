/* Added tokens. A node of the trie names only its first child and its next sibling, which keeps the trie small enough
 * for the processor's cache. */
#include "protocol/tokenizer/added.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"

struct added_node {
	uint32_t child, sibling; /* 0: none */
	int32_t token;		 /* index of the token that ends at this node, or -1 */
	unsigned char byte;
};

void added_init(struct added *a, const struct unicode *u)
{
	*a = (struct added){.unicode = u, .only_first = -1};
}

void added_release(struct added *a)
{
	free(a->nodes);
	free(a->tokens);
	added_init(a, a->unicode);
}

static int new_node(struct added *a, unsigned char byte, uint32_t *ret)
{
	if (a->n_nodes == UINT32_MAX || !array_grow(a->nodes, a->cap_nodes, a->n_nodes + 1))
		return -ENOMEM;
	a->nodes[a->n_nodes] = (struct added_node){.token = -1, .byte = byte};
	*ret = (uint32_t)a->n_nodes++;
	return 0;
}

/* Returns the child of `node` for this byte, or 0. */
static uint32_t child_of(const struct added *a, uint32_t node, unsigned char byte)
{
	uint32_t c = a->nodes[node].child;

	while (c && a->nodes[c].byte != byte)
		c = a->nodes[c].sibling;
	return c;
}

static void note_first(struct added *a, unsigned char byte)
{
	if (a->first[byte])
		return;
	a->first[byte] = true;
	a->only_first = a->n_tokens ? -1 : byte;
}

int added_insert(struct added *a, const char *text, size_t len, struct added_token token)
{
	uint32_t node = 0, child;
	int r;

	if (!a->n_nodes) {
		r = new_node(a, 0, &node);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)text[i];

		child = child_of(a, node, byte);
		if (!child) {
			r = new_node(a, byte, &child);
			if (r < 0)
				return r;
			a->nodes[child].sibling = a->nodes[node].child;
			a->nodes[node].child = child;
		}
		node = child;
	}
	if (a->nodes[node].token >= 0)
		return a->tokens[a->nodes[node].token].id == token.id ? 0 : -EEXIST;
	if (a->n_tokens == INT32_MAX || !array_grow(a->tokens, a->cap_tokens, a->n_tokens + 1))
		return -ENOMEM;
	note_first(a, (unsigned char)text[0]);
	a->nodes[node].token = (int32_t)a->n_tokens;
	a->tokens[a->n_tokens++] = token;
	return 0;
}

/* Returns the longest token that begins at `at`, and sets *ret_end to its end; NULL: there is none. */
static const struct added_token *match(const struct added *a, const char *text, size_t len,
				       size_t at, size_t *ret_end)
{
	const struct added_token *best = NULL;
	uint32_t node = 0;

	while (at < len) {
		node = child_of(a, node, (unsigned char)text[at]);
		if (!node)
			break;
		at++;
		if (a->nodes[node].token >= 0) {
			best = &a->tokens[a->nodes[node].token];
			*ret_end = at;
		}
	}
	return best;
}

int32_t added_find(const struct added *a, const char *text, size_t len)
{
	size_t end = 0;
	const struct added_token *t = a->n_tokens ? match(a, text, len, 0, &end) : NULL;

	return t && end == len ? t->id : -1;
}

static size_t candidate(const struct added *a, const char *text, size_t len, size_t at)
{
	const char *p;

	if (a->only_first >= 0) {
		p = at < len ? memchr(text + at, a->only_first, len - at) : NULL;
		return p ? (size_t)(p - text) : len;
	}
	while (at < len && !a->first[(unsigned char)text[at]])
		at++;
	return at;
}

/* Returns the start of the character that ends at `at`. */
static size_t step_back(const char *text, size_t at)
{
	do
		at--;
	while (at && ((unsigned char)text[at] & 0xc0) == 0x80);
	return at;
}

static bool is_white(const struct unicode *u, uint32_t c)
{
	uint8_t class = unicode_entry(u, c) & UNICODE_CLASS;

	return class == UNICODE_SPACE || class == UNICODE_NEWLINE;
}

static bool stands_alone(const struct unicode *u, const char *text, size_t len, size_t start,
			 size_t end)
{
	size_t n;

	if (start && unicode_is_word(u, utf8_decode(text + step_back(text, start), &n)))
		return false;
	return end == len || !unicode_is_word(u, utf8_decode(text + end, &n));
}

bool added_next(const struct added *a, const char *text, size_t len, struct added_scan *scan,
		struct added_match *ret)
{
	const struct added_token *t;
	size_t start, end = 0, n;

	if (!a->n_tokens)
		return false;
	for (;;) {
		start = candidate(a, text, len, scan->at);
		if (start >= len)
			return false;
		t = match(a, text, len, start, &end);
		if (!t) {
			scan->at = start + 1;
			continue;
		}
		scan->at = end;
		if (!t->single_word || stands_alone(a->unicode, text, len, start, end))
			break;
	}
	if (t->lstrip)
		while (start > scan->done) {
			size_t before = step_back(text, start);

			if (!is_white(a->unicode, utf8_decode(text + before, &n)))
				break;
			start = before;
		}
	if (t->rstrip)
		while (end < len && is_white(a->unicode, utf8_decode(text + end, &n)))
			end += n;
	*ret = (struct added_match){.start = start, .end = end, .id = t->id};
	scan->done = end;
	return true;
}
