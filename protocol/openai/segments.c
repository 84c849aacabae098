#include "protocol/openai/segments.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "protocol/openai/writer.h"

enum { SLICE = 4 << 10 }; /* bytes of a segment that are written at once */

void segments_init(struct segments *s)
{
	*s = (struct segments){.n = 0};
	buf_init(&s->json, SIZE_MAX / 2);
}

void segments_release(struct segments *s)
{
	buf_release(&s->json);
	free(s->v);
	segments_init(s);
}

void segments_clear(struct segments *s)
{
	buf_reset(&s->json);
	s->n = s->next = s->done = 0;
	s->failed = false;
}

static void add(struct segments *s, const struct segment *one)
{
	if (!one->len)
		return;
	if (array_grow(s->v, s->cap, s->n + 1))
		s->v[s->n++] = *one;
	else
		s->failed = true;
}

void segments_appended(struct segments *s, size_t before)
{
	struct segment *last = s->n ? &s->v[s->n - 1] : NULL;
	size_t more = s->json.len - before;

	s->failed |= s->json.failed;
	if (last && !last->text)
		last->len += more;
	else
		add(s, &(struct segment){.at = before, .len = more});
}

void segments_printf(struct segments *s, const char *fmt, ...)
{
	size_t before = s->json.len;
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		s->failed = true;
	else
		buf_append(&s->json, text, (size_t)n);
	segments_appended(s, before);
}

void segments_json(struct segments *s, const char *json, size_t len)
{
	add(s, &(struct segment){.text = json, .len = len});
}

void segments_text(struct segments *s, const char *text, size_t len)
{
	add(s, &(struct segment){.text = text, .len = len, .escape = true});
}

bool segments_write(struct segments *s, size_t enough, struct buf *out)
{
	while (s->next < s->n && out->len < enough) {
		const struct segment *one = &s->v[s->next];
		const char *from = (one->text ? one->text : buf_str(&s->json) + one->at) + s->done;
		size_t left = one->len - s->done;

		if (one->escape) {
			s->done += writer_escaped_part(out, from, left, SLICE);
		} else {
			left = left < SLICE ? left : SLICE;
			buf_append(out, from, left);
			s->done += left;
		}
		if (s->done < one->len)
			continue;
		s->next++;
		s->done = 0;
	}
	if (s->next < s->n)
		return false;
	segments_clear(s);
	return true;
}

size_t segments_bytes(const struct segments *s)
{
	return s->json.cap + s->cap * sizeof(*s->v);
}
