/* Splits reasoning from content. A tag has a '<' only at its start. So when held-back text turns out to be no tag, no
 * tag can begin inside it, and all of it is passed on. */
#include "protocol/output/reasoning.h"

#include <string.h>

static const char opening[] = "<think>", closing[] = "</think>";

void reasoning_init(struct reasoning *r, bool inside, bool once)
{
	*r = (struct reasoning){.inside = inside, .once = once, .trim = inside ? UINT32_MAX : 0};
}

static bool begins(const char *tag, const char *text, size_t len)
{
	return len <= strlen(tag) && !memcmp(tag, text, len);
}

static bool is_line_end(char c)
{
	return c == '\n' || c == '\r';
}

size_t reasoning_line_ends(const char *text, size_t len, uint32_t *left)
{
	size_t n = 0;

	while (n < len && n < *left && is_line_end(text[n]))
		n++;
	*left = n < len ? 0 : *left - (uint32_t)n;
	return n;
}

static void put(struct reasoning *r, const char *text, size_t len, struct buf *reasoning,
		struct buf *content)
{
	size_t n = reasoning_line_ends(text, len, &r->trim);

	for (size_t i = n; i < len && !r->inside && !r->content; i++)
		r->content = !is_line_end(text[i]);
	buf_append(r->inside ? reasoning : content, text + n, len - n);
}

static void flush(struct reasoning *r, struct buf *reasoning, struct buf *content)
{
	if (r->n_held)
		put(r, r->held, r->n_held, reasoning, content);
	r->n_held = 0;
}

/* Handles one byte that is a '<' or comes behind held-back text: holds it back, ends a tag with it, or passes it on. */
static void take(struct reasoning *r, char c, struct buf *reasoning, struct buf *content)
{
	if (c == '<')
		flush(r, reasoning, content);
	r->held[r->n_held++] = c;
	if (begins(opening, r->held, r->n_held)) {
		if (r->n_held < strlen(opening))
			return;
		r->inside = true;
		r->trim = UINT32_MAX;
		r->n_held = 0;
	} else if (begins(closing, r->held, r->n_held)) {
		if (r->n_held < strlen(closing))
			return;
		r->inside = false;
		r->trim = r->content ? 0 : r->once ? REASONING_LINE_ENDS : UINT32_MAX;
		r->n_held = 0;
	} else {
		flush(r, reasoning, content);
	}
}

void reasoning_push(struct reasoning *r, const char *text, size_t len, struct buf *reasoning,
		    struct buf *content)
{
	size_t at = 0;

	while (at < len) {
		const char *tag;
		size_t n;

		if (r->n_held) {
			take(r, text[at++], reasoning, content);
			continue;
		}
		tag = r->once && !r->inside ? NULL : memchr(text + at, '<', len - at);
		n = tag ? (size_t)(tag - text) - at : len - at;
		if (n)
			put(r, text + at, n, reasoning, content);
		at += n;
		if (tag)
			take(r, text[at++], reasoning, content);
	}
}

void reasoning_finish(struct reasoning *r, struct buf *reasoning, struct buf *content)
{
	flush(r, reasoning, content);
}
