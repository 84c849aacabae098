#include "protocol/output/tools.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/output/tools_internal.h"

enum { TEXT_MAX = 256 << 20 }; /* the most bytes of each text that a parser keeps */

#define DECLARE(name) extern const struct tools_format tools_##name;
TOOLS_FORMATS(DECLARE)

#define ADDRESS(name) &tools_##name,
static const struct tools_format *const formats[] = {TOOLS_FORMATS(ADDRESS)};

const struct tools_format *tools_format_at(size_t i)
{
	return formats[i];
}

#define NAME(name) #name,

const char *tools_name(const struct tools_format *format)
{
	static const char *const names[] = {TOOLS_FORMATS(NAME)};
	size_t i = 0;

	while (formats[i] != format)
		i++;
	return names[i];
}

const struct tools_format *tools_detect(const char *template)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		bool all = !formats[i]->unlike || !strstr(template, formats[i]->unlike);

		for (size_t k = 0; k < TOOLS_SIGNS_MAX && formats[i]->signs[k]; k++)
			all = all && strstr(template, formats[i]->signs[k]);
		if (all)
			return formats[i];
	}
	return NULL;
}

bool tools_brief_ids(const struct tools_format *format)
{
	return format->brief_ids;
}

const char *tools_mark(const struct tools_format *format, size_t i)
{
	return i < TOOLS_MARKS_MAX ? format->marks[i] : NULL;
}

struct tools *tools_new(const struct tools_format *format, const struct tool_list *list, bool one,
			tools_take_event *take, void *to)
{
	struct tools *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->format = format;
	t->list = list;
	t->one = one;
	t->take = take;
	t->to = to;
	buf_init(&t->held, TEXT_MAX);
	buf_init(&t->out, TEXT_MAX);
	buf_init(&t->name, TEXT_MAX);
	buf_init(&t->text, TEXT_MAX);
	buf_init(&t->object.key, TEXT_MAX);
	buf_init(&t->object.name, TEXT_MAX);
	buf_init(&t->object.arguments, TEXT_MAX);
	return t;
}

void tools_free(struct tools *t)
{
	if (!t)
		return;
	buf_release(&t->held);
	buf_release(&t->out);
	buf_release(&t->name);
	buf_release(&t->text);
	buf_release(&t->object.key);
	buf_release(&t->object.name);
	buf_release(&t->object.arguments);
	free(t);
}

/* ---- events ---- */

static void give(struct tools *t, enum tools_event_type type, const char *text, size_t len)
{
	const struct tools_event e = {.type = type, .text = text, .len = len};

	t->take(t->to, &e);
}

static void flush(struct tools *t)
{
	if (t->out.len)
		give(t, t->pending, t->out.data, t->out.len);
	tools_clear(t, &t->out);
}

static void append(struct tools *t, enum tools_event_type type, const char *text, size_t len)
{
	if (t->pending != type)
		flush(t);
	t->pending = type;
	buf_append(&t->out, text, len);
}

void tools_clear(struct tools *t, struct buf *b)
{
	t->failed |= b->failed;
	buf_reset(b);
}

static void clear_held(struct tools *t)
{
	tools_clear(t, &t->held);
	t->n_blank = 0;
}

/* Gives the first n bytes of what is held back as text. */
static void give_back(struct tools *t, size_t n)
{
	append(t, TOOLS_TEXT, buf_str(&t->held), n);
	if (n)
		t->trim = false;
	t->begun |= n > t->n_blank;
}

void tools_begin(struct tools *t, const char *name)
{
	clear_held(t);
	flush(t);
	t->open = true;
	t->n_calls++;
	give(t, TOOLS_BEGIN, name, strlen(name));
}

void tools_arguments(struct tools *t, const char *json, size_t len)
{
	append(t, TOOLS_ARGUMENTS, json, len);
}

void tools_put(struct tools *t, const char *json)
{
	tools_arguments(t, json, strlen(json));
}

struct buf *tools_arguments_out(struct tools *t)
{
	tools_arguments(t, "", 0);
	return &t->out;
}

static void end(struct tools *t, bool cut)
{
	const struct tools_event e = {.type = TOOLS_END, .text = "", .cut = cut};

	flush(t);
	t->open = false;
	t->trim = !cut;
	t->over = t->one;
	t->take(t->to, &e);
}

void tools_end(struct tools *t)
{
	end(t, false);
}

void tools_end_members(struct tools *t)
{
	tools_put(t, t->n_arguments ? "}" : "{}");
	tools_end(t);
}

static void cut(struct tools *t)
{
	if (t->format->cut)
		t->format->cut(t);
	t->cut = true;
	end(t, true);
}

const struct tool *tools_find(const struct tools *t, const char *name, size_t len)
{
	for (size_t i = 0; i < t->list->n; i++)
		if (strlen(t->list->v[i].name) == len && !memcmp(t->list->v[i].name, name, len))
			return &t->list->v[i];
	return NULL;
}

/* ---- the text between calls ---- */

bool tools_match(struct buf *text, const char *tag, char c)
{
	size_t n = text->len;

	if (n >= strlen(tag) || memcmp(buf_str(text), tag, n) != 0 || tag[n] != c)
		return false;
	buf_putc(text, c);
	return true;
}

/* Returns whether c goes on with an opening; *ret: the number of the one that is complete, TOOLS_OPENINGS_MAX: none. */
static bool match_opening(struct tools *t, char c, size_t *ret)
{
	const char *tag = buf_str(&t->held) + t->n_blank;
	size_t n = t->held.len - t->n_blank;

	*ret = TOOLS_OPENINGS_MAX;
	if (t->format->at_start && t->begun)
		return false;
	for (size_t i = 0; i < TOOLS_OPENINGS_MAX && t->format->openings[i]; i++) {
		const char *opening = t->format->openings[i];

		if (n >= strlen(opening) || (n && memcmp(tag, opening, n) != 0) || opening[n] != c)
			continue;
		if (n + 1 == strlen(opening))
			*ret = i;
		return true;
	}
	return false;
}

/* An opening has its first character only once. So when text that was held back is none, no opening can begin inside
 * it, and c is looked at afresh. */
static void outside_byte(struct tools *t, char c)
{
	bool start = t->format->at_start && !t->begun;
	bool drops = start ? literal_blank(c) : c == '\n' || c == '\r';
	size_t opening;

	if (t->held.len > t->n_blank && !match_opening(t, c, &opening)) {
		give_back(t, t->held.len);
		clear_held(t);
	}
	if (t->held.len == t->n_blank && drops) {
		if (t->trim)
			return;
		buf_putc(&t->held, c);
		t->n_blank = t->held.len;
	} else if (match_opening(t, c, &opening)) {
		buf_putc(&t->held, c);
		if (opening < TOOLS_OPENINGS_MAX)
			t->format->enter(t, opening);
	} else {
		give_back(t, t->held.len);
		clear_held(t);
		append(t, TOOLS_TEXT, &c, 1);
		t->trim = false;
		t->begun |= !literal_blank(c);
	}
}

static void byte(struct tools *t, char c);

/* Takes bytes that were held, and c, in the state TOOLS_OUTSIDE. */
static void read_again(struct tools *t, const char *text, size_t len, char c)
{
	t->state = TOOLS_OUTSIDE;
	for (size_t i = 0; i < len; i++)
		byte(t, text[i]);
	byte(t, c);
}

/* Holds blanks and the beginning of the closing tag. */
static void closing_byte(struct tools *t, char c)
{
	const char *closing = t->format->closing;
	size_t n = t->held.len - t->n_blank;
	struct buf held = t->held;

	if (!n && literal_blank(c)) {
		buf_putc(&t->held, c);
		t->n_blank = t->held.len;
	} else if (closing && closing[n] == c &&
		   !strncmp(buf_str(&t->held) + t->n_blank, closing, n)) {
		buf_putc(&t->held, c);
		if (closing[n + 1])
			return;
		t->state = TOOLS_OUTSIDE;
		clear_held(t);
	} else {
		t->failed |= held.failed;
		buf_init(&t->held, TEXT_MAX);
		t->n_blank = 0;
		read_again(t, buf_str(&held), held.len, c);
		buf_release(&held);
	}
}

void tools_wrong(struct tools *t, unsigned next, size_t n_again, char c)
{
	struct buf held;
	size_t n;

	if (t->open) {
		cut(t);
		next = TOOLS_OUTSIDE;
	}
	if (t->over) {
		clear_held(t);
		return;
	}
	t->failed |= t->held.failed;
	held = t->held;
	n = held.len - MIN(n_again, held.len);
	give_back(t, n);
	buf_init(&t->held, TEXT_MAX);
	t->n_blank = 0;
	t->state = next;
	for (size_t i = n; i < held.len; i++)
		byte(t, held.data[i]);
	byte(t, c);
	buf_release(&held);
}

void tools_close(struct tools *t)
{
	t->state = TOOLS_CLOSING;
	clear_held(t);
}

static void byte(struct tools *t, char c)
{
	if (t->over)
		return;
	switch (t->state) {
	case TOOLS_OUTSIDE: outside_byte(t, c); break;
	case TOOLS_CLOSING: closing_byte(t, c); break;
	default: t->format->byte(t, c);
	}
}

void tools_push(struct tools *t, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		byte(t, text[i]);
	flush(t);
}

void tools_start_again(struct tools *t)
{
	t->begun = false;
}

void tools_finish(struct tools *t)
{
	if (t->open)
		cut(t);
	else if (!t->over && t->state != TOOLS_CLOSING)
		give_back(t, t->held.len);
	clear_held(t);
	flush(t);
	t->state = TOOLS_OUTSIDE;
}

size_t tools_held(const struct tools *t)
{
	return t->held.len;
}

size_t tools_bytes(const struct tools *t)
{
	return sizeof(*t) + t->held.cap + t->out.cap + t->name.cap + t->text.cap +
	       t->object.key.cap + t->object.name.cap + t->object.arguments.cap;
}

uint32_t tools_calls(const struct tools *t)
{
	return t->n_calls;
}

bool tools_cut(const struct tools *t)
{
	return t->cut || t->open;
}

bool tools_over(const struct tools *t)
{
	return t->over;
}

bool tools_failed(const struct tools *t)
{
	return t->failed || t->held.failed || t->name.failed || t->text.failed ||
	       t->object.key.failed || t->object.name.failed || t->object.arguments.failed;
}
