/* Methods of str, and filters on texts. Positions are code points, as in Python. A result that is a part of a text
 * borrows its bytes. In the comments below, "data:" tells what the member `data` of the builtin's row (struct builtin,
 * builtin.h) means. */
#include <string.h>

#include "protocol/jinja/format.h"
#include "protocol/jinja/ops.h"
#include "protocol/jinja/seq.h"
#include "protocol/jinja/tables.h"
#include "protocol/jinja/text.h"
#include "protocol/jinja/write.h"

#define FUNCTION(name) static struct value name(struct render *r, const struct builtin_call *c)

static void push_piece(struct render *r, struct list *l, struct value v, size_t from, size_t to)
{
	if (render_charge(r, 1))
		list_push(r, l, value_piece(v, from, to));
}

/* ---- case ---- */

/* data: enum casing */
FUNCTION(str_recase)
{
	size_t start = r->scratch.len;
	struct value text = value_soft_str(r, c->self);

	text_recase(&r->scratch, text.s, text.len, (enum casing)c->b->data);
	return value_take(r, start);
}

/* Words begin at the front, and behind white space, a hyphen or an opening bracket, unlike in str.title(). */
FUNCTION(filter_title)
{
	size_t start = r->scratch.len, len = 0;
	struct value text = value_soft_str(r, c->self);
	uint32_t cp;

	for (size_t i = 0, end; i < text.len; i = end) {
		for (end = i; end < text.len; end += len) {
			len = text_next(text.s + end, text.len - end, &cp);
			if (text_is(cp, TEXT_SPACE) || (cp < 0x80 && memchr("-({[<", (int)cp, 5)))
				break;
		}
		if (end > i) {
			len = text_next(text.s + i, end - i, &cp);
			text_recase(&r->scratch, text.s + i, len, CASE_UPPER);
			text_recase(&r->scratch, text.s + i + len, end - i - len, CASE_LOWER);
		} else {
			buf_append(&r->scratch, text.s + i, len);
			end += len;
		}
	}
	return value_take(r, start);
}

/* ---- ends ---- */

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };

static bool in_set(struct value chars, const char *s, size_t len, uint32_t cp)
{
	if (chars.type != V_STR)
		return text_is(cp, TEXT_SPACE);
	return text_find(chars.s, chars.len, s, len) != SIZE_MAX;
}

/* data: the sides that are stripped */
FUNCTION(str_strip)
{
	struct value v = value_soft_str(r, c->self), chars = c->arg[0];
	size_t from = 0, to = v.len, len, each = 1 + (chars.type == V_STR ? chars.len / 64 : 0);
	uint32_t cp;

	for (; c->b->data & STRIP_LEFT && from < to && render_charge(r, each); from += len) {
		len = text_next(v.s + from, to - from, &cp);
		if (!in_set(chars, v.s + from, len, cp))
			break;
	}
	for (; c->b->data & STRIP_RIGHT && to > from && render_charge(r, each); to -= len) {
		len = text_prev(v.s + from, to - from, &cp);
		if (!in_set(chars, v.s + to - len, len, cp))
			break;
	}
	return value_piece(v, from, to);
}

static bool has_affix(struct value v, struct value affix, bool end)
{
	return v.len >= affix.len &&
	       !memcmp(v.s + (end ? v.len - affix.len : 0), affix.s, affix.len);
}

/* startswith, endswith; data: true for endswith. The argument may be a tuple, of which one text has to match. */
FUNCTION(str_has_affix)
{
	bool tuple = c->arg[0].type == V_TUPLE;
	const struct value *all = tuple ? c->arg[0].list->v : c->arg;
	size_t n = tuple ? c->arg[0].list->n : 1;

	for (size_t i = 0; i < n; i++) {
		if (all[i].type != V_STR)
			return value_fail_type(r, c->b->name, "a string", all[i]);
		if (!render_charge_bytes(r, all[i].len))
			break;
		if (has_affix(c->self, all[i], c->b->data))
			return value_bool(true);
	}
	return value_bool(false);
}

/* removeprefix, removesuffix; data: true for removesuffix */
FUNCTION(str_remove_affix)
{
	bool end = c->b->data;
	size_t n = has_affix(c->self, c->arg[0], end) ? c->arg[0].len : 0;

	return value_piece(c->self, end ? 0 : n, c->self.len - (end ? n : 0));
}

/* ---- search ---- */

/* Returns the byte offset of the last occurrence; SIZE_MAX: there is none. Each place with a matching first byte costs
 * steps, so a needle that nearly matches everywhere ends in an error, not in a long wait. */
static size_t rfind(struct render *r, const char *s, size_t n, const char *needle, size_t m)
{
	const char *p;

	if (!m)
		return n;
	for (size_t end = m <= n ? n - m + 1 : 0; (p = memrchr(s, needle[0], end));
	     end = (size_t)(p - s))
		if (!render_charge_bytes(r, m) || !memcmp(p, needle, m))
			return (size_t)(p - s);
	return SIZE_MAX;
}

/* find, rfind; data: true for rfind */
FUNCTION(str_find)
{
	struct value v = c->self, part = c->arg[0];
	size_t at = c->b->data ? rfind(r, v.s, v.len, part.s, part.len)
			       : text_find(v.s, v.len, part.s, part.len);

	return value_int(at == SIZE_MAX ? -1 : (int64_t)text_length(v.s, at));
}

/* ---- pieces ---- */

static void split_space(struct render *r, struct value v, int64_t most, struct list *l)
{
	size_t at = text_skip_space(v.s, v.len), end, len;
	uint32_t cp;

	for (; at < v.len && !r->rc; at = end + text_skip_space(v.s + end, v.len - end)) {
		for (end = at; end < v.len; end += len) {
			len = text_next(v.s + end, v.len - end, &cp);
			if (text_is(cp, TEXT_SPACE))
				break;
		}
		if (most-- == 0)
			end = v.len;
		push_piece(r, l, v, at, end);
	}
}

static void split_text(struct render *r, struct value v, struct value sep, int64_t most,
		       struct list *l)
{
	size_t from = 0, at;

	while (!r->rc && most-- != 0) {
		at = text_find(v.s + from, v.len - from, sep.s, sep.len);
		if (at == SIZE_MAX)
			break;
		push_piece(r, l, v, from, from + at);
		from += at + sep.len;
	}
	push_piece(r, l, v, from, v.len);
}

static void rsplit_space(struct render *r, struct value v, int64_t most, struct list *l)
{
	size_t end = text_trim_space(v.s, v.len), from, len;
	uint32_t cp;

	for (; end && !r->rc; end = text_trim_space(v.s, from)) {
		for (from = end; from; from -= len) {
			len = text_prev(v.s, from, &cp);
			if (text_is(cp, TEXT_SPACE))
				break;
		}
		if (most-- == 0)
			from = 0;
		push_piece(r, l, v, from, end);
	}
}

static void rsplit_text(struct render *r, struct value v, struct value sep, int64_t most,
			struct list *l)
{
	size_t end = v.len, at;

	while (!r->rc && most-- != 0) {
		at = rfind(r, v.s, end, sep.s, sep.len);
		if (at == SIZE_MAX)
			break;
		push_piece(r, l, v, at + sep.len, end);
		end = at;
	}
	push_piece(r, l, v, 0, end);
}

/* split, rsplit; data: true for rsplit */
FUNCTION(str_split)
{
	struct list *l = list_new(r, 0);
	struct value sep = c->arg[0], all = value_of_list(V_LIST, l);
	int64_t most = c->arg[1].type == V_INT ? c->arg[1].i : -1;

	if (sep.type == V_STR && !sep.len)
		return value_fail(r, "split: empty separator");
	if (!c->b->data) {
		if (sep.type == V_STR)
			split_text(r, c->self, sep, most, l);
		else
			split_space(r, c->self, most, l);
		return all;
	}
	if (sep.type == V_STR)
		rsplit_text(r, c->self, sep, most, l);
	else
		rsplit_space(r, c->self, most, l);
	return value_of_list(V_LIST, l ? value_reversed(r, all) : NULL);
}

FUNCTION(str_splitlines)
{
	struct list *l = list_new(r, 0);
	struct value v = c->self;
	bool keep = value_truth(c->arg[0]);

	for (size_t at = 0, line, end; at < v.len && !r->rc; at += line + end) {
		line = text_line(v.s + at, v.len - at, &end);
		push_piece(r, l, v, at, at + line + (keep ? end : 0));
	}
	return value_of_list(V_LIST, l);
}

/* ---- building ---- */

/* Appends v with `new` before each character and at the end. If count >= 0, appends `new` at most `count` times, and
 * stops behind the character that follows the last of them. Returns the number of bytes of v that were appended. */
static size_t interleave(struct render *r, struct value v, struct value new, int64_t count)
{
	size_t at = 0, len;
	uint32_t cp;

	while (count-- != 0) {
		buf_append(&r->scratch, new.s, new.len);
		if (at == v.len || r->scratch.failed)
			break;
		len = text_next(v.s + at, v.len - at, &cp);
		buf_append(&r->scratch, v.s + at, len);
		at += len;
	}
	return at;
}

/* The method `replace` takes texts only, the filter `replace` any value. */
FUNCTION(str_replace)
{
	struct value v = value_to_str(r, c->self), old = value_to_str(r, c->arg[0]);
	struct value new = value_to_str(r, c->arg[1]);
	int64_t count = c->arg[2].type == V_INT ? c->arg[2].i : -1;
	size_t start = r->scratch.len, from = 0, at;

	if (r->rc)
		return NOTHING;
	if (!old.len)
		from = interleave(r, v, new, count);
	while (old.len && count-- != 0 && !r->scratch.failed) {
		at = text_find(v.s + from, v.len - from, old.s, old.len);
		if (at == SIZE_MAX)
			break;
		buf_append(&r->scratch, v.s + from, at);
		buf_append(&r->scratch, new.s, new.len);
		from += at + old.len;
	}
	buf_append(&r->scratch, v.s + from, v.len - from);
	return value_take(r, start);
}

FUNCTION(str_join)
{
	size_t start = r->scratch.len;
	struct iter local, *it = value_iter(r, c->arg[0], &local);
	struct value item;

	for (bool first = true; iter_next(r, it, &item); first = false) {
		if (item.type != V_STR)
			return value_fail_type(r, "join", "strings", item);
		if (!first)
			buf_append(&r->scratch, c->self.s, c->self.len);
		value_write_str(r, &r->scratch, item);
	}
	return value_take(r, start);
}

FUNCTION(str_format)
{
	return value_format_braces(r, c->self, &c->args);
}

/* Returns the text with which lines are indented: `width` itself if it is a text, else `width` spaces (4 if it is not
 * given). */
static struct value indent_text(struct render *r, struct value width)
{
	if (width.type == V_STR)
		return width;
	return value_binary(r, OP_MUL, value_str(" ", 1),
			    width.type == V_MISSING ? value_int(4) : width);
}

/* Indents the lines that the text has when a newline is appended to it. So a text that ends with a newline has one more
 * line, which is empty. */
FUNCTION(filter_indent)
{
	bool first = value_truth(c->arg[1]), blank = value_truth(c->arg[2]);
	size_t start = r->scratch.len, at = 0, line, end = 0;
	struct value v = c->self, indent = indent_text(r, c->arg[0]);

	if (v.type != V_STR)
		return value_fail_type(r, "indent", "a string", v);
	for (bool begin = true; at < v.len || begin || end; begin = false) {
		line = text_line(v.s + at, v.len - at, &end);
		if (!begin)
			buf_putc(&r->scratch, '\n');
		if (begin ? first : blank || line)
			buf_append(&r->scratch, indent.s, indent.len);
		buf_append(&r->scratch, v.s + at, line);
		at += line + end;
		if (r->scratch.failed || (at == v.len && at && v.s[at - 1] == '\r'))
			break;
	}
	return value_take(r, start);
}

FUNCTION(filter_string)
{
	return value_soft_str(r, c->self);
}

FUNCTION(filter_safe)
{
	struct value text = value_soft_str(r, c->self);

	text.safe = text.type == V_STR;
	return text;
}

FUNCTION(filter_escape)
{
	return value_escape(r, c->self);
}

enum { P = BUILTIN_POSITIONAL, S = BUILTIN_SAFE };

static const struct builtin methods[] = {
	{"split", str_split, false, .params = {"S:sep", "i:maxsplit"}},
	{"rsplit", str_split, true, .params = {"S:sep", "i:maxsplit"}},
	{"splitlines", str_splitlines, .params = {"i:keepends"}},
	{"strip", str_strip, STRIP_BOTH, P, .params = {"S:chars"}},
	{"lstrip", str_strip, STRIP_LEFT, P, .params = {"S:chars"}},
	{"rstrip", str_strip, STRIP_RIGHT, P, .params = {"S:chars"}},
	{"startswith", str_has_affix, false, P, 1, {"prefix", "x:start", "x:end"}},
	{"endswith", str_has_affix, true, P, 1, {"prefix", "x:start", "x:end"}},
	{"removeprefix", str_remove_affix, false, P, 1, {"s:prefix"}},
	{"removesuffix", str_remove_affix, true, P, 1, {"s:suffix"}},
	{"replace", str_replace, 0, P, 2, {"s:old", "s:new", "i:count"}},
	{"join", str_join, 0, P, 1, {"iterable"}},
	{"find", str_find, false, P, 1, {"s:sub", "x:start", "x:end"}},
	{"rfind", str_find, true, P, 1, {"s:sub", "x:start", "x:end"}},
	{"format", str_format, .flags = BUILTIN_RAW},
	{"upper", str_recase, CASE_UPPER},
	{"lower", str_recase, CASE_LOWER},
	{"title", str_recase, CASE_TITLE},
	{"capitalize", str_recase, CASE_CAPITALIZE},
};
const struct builtin_table str_methods = {
	METHOD_STR,
	methods,
	ARRAY_SIZE(methods),
	"casefold center count encode expandtabs format_map index isalnum isalpha isascii isdecimal isdigit "
	"isidentifier islower isnumeric isprintable isspace istitle isupper ljust maketrans partition "
	"rindex rjust rpartition swapcase translate zfill",
};

static const struct builtin filters[] = {
	{"trim", str_strip, STRIP_BOTH, S, .params = {"S:chars"}},
	{"upper", str_recase, CASE_UPPER, S},
	{"lower", str_recase, CASE_LOWER, S},
	{"capitalize", str_recase, CASE_CAPITALIZE, S},
	{"title", filter_title},
	{"replace", str_replace, 0, 0, 2, {"old", "new", "I:count"}},
	{"indent", filter_indent, 0, S, .params = {"width", "first", "blank"}},
	{"string", filter_string},
	{"safe", filter_safe},
	{"escape", filter_escape},
	{"e", filter_escape},
};
const struct builtin_table text_filters = {
	FILTER,
	filters,
	ARRAY_SIZE(filters),
	"center forceescape format striptags truncate urlencode urlize wordcount wordwrap xmlattr",
};
