#include "protocol/output/literal.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum state {
	START,	   /* a value must follow */
	FIRST,	   /* behind '[': a value, or the end */
	KEY_FIRST, /* behind '{': a key, or the end */
	KEY,	   /* behind a comma in an object */
	COLON,	   /* behind a key */
	NEXT,	   /* behind a value that is inside another one */
	STRING,
	WORD,
	/* numbers: behind the sign, a zero, further digits, the point, digits behind it, 'e', its sign, its digits */
	MINUS,
	ZERO,
	INTEGER,
	POINT,
	FRACTION,
	EXPONENT,
	EXPONENT_SIGN,
	EXPONENT_DIGITS,
	OVER,
};

static const char replacement[] = "\\ufffd";

void literal_init(struct literal *v, bool python)
{
	*v = (struct literal){.python = python};
}

static bool in_object(const struct literal *v)
{
	return v->depth && v->objects[(v->depth - 1) / 64] >> (v->depth - 1) % 64 & 1;
}

/* Writes a comma that was read before. */
static void put_comma(struct literal *v, struct buf *out)
{
	if (v->comma)
		buf_puts(out, ", ");
	v->comma = false;
}

static enum literal_status open_container(struct literal *v, char c, struct buf *out)
{
	uint64_t bit = UINT64_C(1) << v->depth % 64;

	if (v->depth == LITERAL_DEPTH_MAX)
		return LITERAL_WRONG;
	if (c == '{')
		v->objects[v->depth / 64] |= bit;
	else
		v->objects[v->depth / 64] &= ~bit;
	v->depth++;
	v->state = c == '{' ? KEY_FIRST : FIRST;
	buf_putc(out, c);
	return LITERAL_MORE;
}

static enum literal_status end_value(struct literal *v)
{
	v->state = v->depth ? NEXT : OVER;
	return v->depth ? LITERAL_MORE : LITERAL_END;
}

static enum literal_status close_container(struct literal *v, char c, struct buf *out)
{
	if (!v->depth || c != (in_object(v) ? '}' : ']'))
		return LITERAL_WRONG;
	v->comma = false;
	v->depth--;
	buf_putc(out, c);
	return end_value(v);
}

static enum literal_status begin_string(struct literal *v, char c, bool key, struct buf *out)
{
	if (c != '"' && !(v->python && c == '\''))
		return LITERAL_WRONG;
	put_comma(v, out);
	v->quote = c;
	v->key = key;
	v->state = STRING;
	buf_putc(out, '"');
	return LITERAL_MORE;
}

/* ---- strings ---- */

void literal_escape(char c, struct buf *out)
{
	static const char letters[] = "btn\0fr"; /* for the characters 8 to 13 */
	unsigned char u = (unsigned char)c;

	if (c == '"' || c == '\\')
		buf_printf(out, "\\%c", c);
	else if (u >= 8 && u <= 13 && u != 11)
		buf_printf(out, "\\%c", letters[u - 8]);
	else if (u < 0x20)
		buf_printf(out, "\\u%04x", u);
	else
		buf_putc(out, c);
}

/* Returns the code unit of the escape sequence \uXXXX. */
static uint32_t code_unit(const char *escape)
{
	char digits[5] = "";

	memcpy(digits, escape + 2, 4);
	return (uint32_t)strtoul(digits, NULL, 16);
}

void literal_text(const char *json, struct buf *out)
{
	static const char letters[] = "bfnrt", bytes[] = "\b\f\n\r\t";
	const char *p = json + 1, *letter;
	char character[4];
	uint32_t c;

	while (*p != '"') {
		if (*p != '\\') {
			buf_putc(out, *p++);
		} else if (p[1] != 'u') {
			letter = strchr(letters, p[1]);
			buf_putc(out, letter ? bytes[letter - letters] : p[1]);
			p += 2;
		} else {
			c = code_unit(p);
			p += 6;
			if (c >= 0xd800 && c < 0xdc00) {
				c = 0x10000 + ((c & 0x3ff) << 10 | (code_unit(p) & 0x3ff));
				p += 6;
			}
			buf_append(out, character, utf8_encode(c, character));
		}
	}
}

/* Returns the first byte of the code unit in held at `at`, such as 0xd8. */
static unsigned upper_half(const struct literal *v, size_t at)
{
	char digits[3] = {v->held[at + 2], v->held[at + 3], 0};

	return (unsigned)strtoul(digits, NULL, 16);
}

static bool is_high(unsigned half)
{
	return half >= 0xd8 && half < 0xdc;
}

static bool is_low(unsigned half)
{
	return half >= 0xdc && half < 0xe0;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Takes the escape sequence \uXXXX that held begins with, and nothing else does. Keeps the first half of a pair. */
static void take_unit(struct literal *v, struct buf *out)
{
	unsigned half = upper_half(v, 0);
	bool zero = !memcmp(v->held + 2, "0000", 4);

	if (is_high(half))
		return;
	if (is_low(half) || (zero && v->key))
		buf_puts(out, replacement);
	else
		buf_append(out, v->held, v->n_held);
	v->n_held = 0;
}

static enum literal_status plain_byte(struct literal *v, char c, struct buf *out);

/* Held, from `from` on, is no escape sequence: writes its backslash twice. */
static enum literal_status no_escape(struct literal *v, size_t from, char c, struct buf *out)
{
	buf_puts(out, "\\\\");
	buf_append(out, v->held + from + 1, v->n_held - from - 1);
	v->n_held = 0;
	return plain_byte(v, c, out);
}

/* Takes a byte behind a backslash. At most two sequences \uXXXX, the halves of a pair, are held. */
static enum literal_status escape_byte(struct literal *v, char c, struct buf *out)
{
	size_t from = v->n_held > 6 ? 6 : 0, n = v->n_held - from;

	if (v->n_held == 6 && c != '\\') {
		buf_puts(out, replacement);
		v->n_held = 0;
		return plain_byte(v, c, out);
	}
	if (from && n == 1 && c != 'u') {
		buf_puts(out, replacement);
		v->n_held = 1;
		return escape_byte(v, c, out);
	}
	if (v->n_held == 1 && strchr("\"\\/bfnrt", c) && c) {
		buf_printf(out, "\\%c", c);
		v->n_held = 0;
		return LITERAL_MORE;
	}
	if (v->n_held == 1 && c == '\'') {
		buf_putc(out, c);
		v->n_held = 0;
		return LITERAL_MORE;
	}
	if (v->n_held != 6 && (n == 1 ? c != 'u' : !is_hex(c))) {
		if (from)
			buf_puts(out, replacement);
		return no_escape(v, from, c, out);
	}
	v->held[v->n_held++] = c;
	if (v->n_held == 6) {
		take_unit(v, out);
	} else if (v->n_held == 12 && is_low(upper_half(v, 6))) {
		buf_append(out, v->held, 12);
		v->n_held = 0;
	} else if (v->n_held == 12) {
		buf_puts(out, replacement);
		memmove(v->held, v->held + 6, 6);
		v->n_held = 6;
		take_unit(v, out);
	}
	return LITERAL_MORE;
}

/* Takes a byte of a string that is not behind a backslash. */
static enum literal_status plain_byte(struct literal *v, char c, struct buf *out)
{
	if (c == '\\') {
		v->held[v->n_held++] = c;
		return LITERAL_MORE;
	}
	if (c != v->quote) {
		if (!c && v->key)
			buf_puts(out, replacement);
		else
			literal_escape(c, out);
		return LITERAL_MORE;
	}
	buf_putc(out, '"');
	if (!v->key)
		return end_value(v);
	v->state = COLON;
	return LITERAL_MORE;
}

/* ---- words and numbers ---- */

static enum literal_status word_byte(struct literal *v, char c, struct buf *out)
{
	static const struct {
		const char *text, *json;
	} words[] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
		     {"True", "true"}, {"False", "false"}, {"None", "null"}};

	v->state = WORD;
	v->held[v->n_held++] = c;
	for (size_t i = 0; i < (v->python ? ARRAY_SIZE(words) : 3); i++) {
		if (strncmp(words[i].text, v->held, v->n_held) != 0)
			continue;
		if (strlen(words[i].text) > v->n_held)
			return LITERAL_MORE;
		buf_puts(out, words[i].json);
		v->n_held = 0;
		return end_value(v);
	}
	v->n_held--;
	return LITERAL_WRONG;
}

/* Returns the state behind a byte of a number; OVER: the byte does not belong to it. */
static enum state number_state(enum state s, char c)
{
	bool digit = c >= '0' && c <= '9', e = c == 'e' || c == 'E';

	switch (s) {
	case MINUS: return !digit ? OVER : c == '0' ? ZERO : INTEGER;
	case ZERO: return c == '.' ? POINT : e ? EXPONENT : OVER;
	case INTEGER: return digit ? INTEGER : c == '.' ? POINT : e ? EXPONENT : OVER;
	case POINT: return digit ? FRACTION : OVER;
	case FRACTION: return digit ? FRACTION : e ? EXPONENT : OVER;
	case EXPONENT: return digit ? EXPONENT_DIGITS : c == '+' || c == '-' ? EXPONENT_SIGN : OVER;
	case EXPONENT_SIGN:
	case EXPONENT_DIGITS: return digit ? EXPONENT_DIGITS : OVER;
	default: return OVER;
	}
}

static enum literal_status number_byte(struct literal *v, char c, struct buf *out)
{
	enum state s = (enum state)v->state, next = number_state(s, c);

	if (next != OVER) {
		v->state = next;
		buf_putc(out, c);
		return LITERAL_MORE;
	}
	if (s != ZERO && s != INTEGER && s != FRACTION && s != EXPONENT_DIGITS)
		return LITERAL_WRONG;
	if (end_value(v) == LITERAL_END)
		return LITERAL_BEHIND;
	return literal_byte(v, c, out);
}

/* ---- all values ---- */

static enum literal_status begin_value(struct literal *v, char c, struct buf *out)
{
	if (c == '"' || c == '\'')
		return begin_string(v, c, false, out);
	if (c == ']' && v->state == FIRST)
		return close_container(v, c, out);
	put_comma(v, out);
	if (c == '{' || c == '[')
		return open_container(v, c, out);
	if (c == '-' || (c >= '0' && c <= '9')) {
		v->state = c == '-' ? MINUS : c == '0' ? ZERO : INTEGER;
		buf_putc(out, c);
		return LITERAL_MORE;
	}
	return word_byte(v, c, out);
}

static enum literal_status behind_value(struct literal *v, char c, struct buf *out)
{
	if (c != ',')
		return close_container(v, c, out);
	/* Python allows a comma before the end, which JSON must not have. */
	v->comma = v->python;
	if (v->python)
		v->state = in_object(v) ? KEY_FIRST : FIRST;
	else
		v->state = in_object(v) ? KEY : START;
	if (!v->python)
		buf_putc(out, c);
	return LITERAL_MORE;
}

enum literal_status literal_byte(struct literal *v, char c, struct buf *out)
{
	if (v->state == STRING)
		return v->n_held ? escape_byte(v, c, out) : plain_byte(v, c, out);
	if (v->state == WORD)
		return word_byte(v, c, out);
	if (v->state >= MINUS)
		return number_byte(v, c, out);
	if (literal_blank(c)) {
		if (v->depth && !v->python)
			buf_putc(out, c);
		return LITERAL_MORE;
	}
	switch (v->state) {
	case KEY_FIRST:
		if (c == '}')
			return close_container(v, c, out);
		return begin_string(v, c, true, out);
	case KEY: return begin_string(v, c, true, out);
	case COLON:
		if (c != ':')
			return LITERAL_WRONG;
		buf_puts(out, v->python ? ": " : ":");
		v->state = START;
		return LITERAL_MORE;
	case NEXT: return behind_value(v, c, out);
	default: return begin_value(v, c, out);
	}
}

void literal_cut(struct literal *v, struct buf *out)
{
	buf_append(out, v->held, v->n_held);
	v->n_held = 0;
}

bool literal_convert(const char *text, size_t len, bool python, struct buf *out)
{
	enum literal_status status = LITERAL_MORE;
	size_t before = out->len, i = 0;
	struct literal v;

	literal_init(&v, python);
	while (status == LITERAL_MORE && i < len)
		status = literal_byte(&v, text[i++], out);
	if (status == LITERAL_MORE) { /* a number at the end of the text */
		status = literal_byte(&v, ' ', out);
	} else if (status == LITERAL_BEHIND) {
		i--;
	}
	while (i < len && literal_blank(text[i]))
		i++;
	if (i == len && (status == LITERAL_END || status == LITERAL_BEHIND))
		return true;
	out->len = before;
	if (out->data)
		out->data[before] = 0;
	return false;
}
