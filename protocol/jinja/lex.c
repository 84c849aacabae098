/* Cuts a template into tokens, with jinja2's rules for white space. A tag is {% ... %} or {{ ... }}, and {# ... #} is a
 * comment. trim_blocks: the newline behind "%}" or "#}" is dropped. lstrip_blocks: the white space before "{%" or "{#"
 * is dropped if nothing else precedes it in its line. A "-" inside either end of a tag or comment strips all white
 * space outside that end; a "+" there turns these two rules off. One newline at the very end of the template is
 * dropped. */
#include "protocol/jinja/lex.h"

#include <string.h>

#include "base/utf8.h"
#include "protocol/jinja/number.h"
#include "protocol/jinja/text.h"

struct lexer {
	struct reader *rd;
	const char *s; /* the text, with newlines made \n */
	size_t n, pos;
	int line;
	bool line_starting; /* the text behind the last tag or comment begins a line */
	struct token *tokens;
	size_t count, cap;
	char open[TEMPLATE_NESTING * 2]; /* for each open bracket the one that closes it */
	size_t depth;
};

#define lex_error(l, ...) reader_fail((l)->rd, (l)->line, __VA_ARGS__)

static void push(struct lexer *l, int type, int line, struct value value)
{
	struct token *p = reader_grow(l->rd, l->tokens, l->count, &l->cap, sizeof(*p));

	if (!p)
		return;
	l->tokens = p;
	l->tokens[l->count++] = (struct token){type, line, value};
}

/* Advances to `end`, counting lines. */
static void advance(struct lexer *l, size_t end)
{
	for (; l->pos < end; l->pos++)
		l->line += l->s[l->pos] == '\n';
}

/* Returns the character at a place; 0 behind the end. */
static char peek(const struct lexer *l, size_t at)
{
	return at < l->n ? l->s[at] : 0;
}

static bool starts_with(const struct lexer *l, size_t at, const char *text)
{
	size_t m = strlen(text);

	return l->n - at >= m && !memcmp(l->s + at, text, m);
}

static size_t skip_space(const struct lexer *l, size_t at)
{
	return at + text_skip_space(l->s + at, l->n - at);
}

/* If `at` is where the end of a tag or comment begins, returns the place behind this end and behind the white space
 * that it strips; else 0. `end` is "%}", "}}" or "#}". A "-" may stand before it, and a "+" before "%}" and "#}". With
 * "-" an end strips all white space. Without a sign "%}" and "#}" strip one newline, and "}}" strips nothing. "+%}" and
 * "+#}" strip nothing. */
static size_t match_end(const struct lexer *l, size_t at, const char *end)
{
	bool variable = end[0] == '}';

	if (peek(l, at) == '-' && starts_with(l, at + 1, end))
		return skip_space(l, at + 3);
	if (!variable && peek(l, at) == '+' && starts_with(l, at + 1, end))
		return at + 3;
	if (!starts_with(l, at, end))
		return 0;
	return at + 2 + (!variable && peek(l, at + 2) == '\n');
}

/* Adds the text up to `end`, where a tag or comment begins, as a token. White space at the end of the text may be
 * stripped, because of `sign`, the sign of the tag or comment (0: none), or of lstrip_blocks, which does not apply to
 * "{{" (`variable`). */
static void push_data(struct lexer *l, size_t end, char sign, bool variable)
{
	const char *s = l->s + l->pos, *p;
	size_t n = end - l->pos, from;

	if (sign == '-') {
		n = text_trim_space(s, n);
	} else if (sign != '+' && !variable) {
		p = memrchr(s, '\n', n);
		from = p ? (size_t)(p - s) + 1 : 0;
		if ((from || l->line_starting) && from + text_skip_space(s + from, n - from) == n)
			n = from;
	}
	if (n)
		push(l, T_DATA, l->line, value_str(s, n));
	advance(l, end);
}

static void lex_comment(struct lexer *l)
{
	for (size_t at = l->pos; at < l->n; at++) {
		size_t end = match_end(l, at, "#}");

		if (!end)
			continue;
		advance(l, end);
		l->line_starting = l->s[end - 1] == '\n';
		return;
	}
	if (l->pos < l->n) /* jinja2 accepts a comment that begins at the very end */
		lex_error(l, "missing end of comment");
}

/* ---- inside tags ---- */

/* Returns the number of digits from `at` on. */
static size_t digits(const struct lexer *l, size_t at)
{
	size_t n = 0;

	while (peek(l, at + n) >= '0' && peek(l, at + n) <= '9')
		n++;
	return n;
}

static void lex_number(struct lexer *l)
{
	size_t from = l->pos, n = digits(l, from), more, exponent;
	struct value v = value_int(0);
	bool whole = true;
	struct buf copy;

	more = peek(l, from + n) == '.' ? digits(l, from + n + 1) : 0;
	if (more && !(from && l->s[from - 1] == '.')) {
		n += 1 + more;
		whole = false;
	}
	if ((peek(l, from + n) | 0x20) == 'e') {
		exponent = n + 1 + (peek(l, from + n + 1) == '-' || peek(l, from + n + 1) == '+');
		more = digits(l, from + exponent);
		n = more ? exponent + more : n;
		whole &= !more;
	}
	if (peek(l, from + n) == '_' || (n == 1 && memchr("xXoObB", peek(l, from + 1), 6)) ||
	    (whole && n > 1 && l->s[from] == '0'))
		lex_error(
			l,
			"numbers such as 0x1F, 1_000 and 007 are not supported in chat templates");
	else if (!whole) {
		v.type = V_FLOAT;
		buf_init(&copy, n);
		if (!text_to_float(l->s + from, n, &copy, &v.f))
			lex_error(l, "out of memory for a number");
		buf_release(&copy);
	} else if (text_to_int(l->s + from, n, &v.i) != PARSE_INT_OK) {
		lex_error(l, "integer %.*s does not fit into 64 bits", (int)MIN(n, (size_t)40),
			  l->s + from);
	}
	l->pos += n;
	push(l, whole ? T_INT : T_FLOAT, l->line, v);
}

static void lex_name(struct lexer *l)
{
	size_t at = l->pos, len;
	uint32_t cp;

	for (; at < l->n; at += len) {
		len = text_next(l->s + at, l->n - at, &cp);
		if (!text_is(cp, TEXT_NAME))
			break;
	}
	push(l, T_NAME, l->line, value_str(l->s + l->pos, at - l->pos));
	l->pos = at;
}

/* Returns the code point of an escape \x, \u or \U. s[0] is this letter; `count` hexadecimal digits must follow it. */
static uint32_t hex_escape(struct lexer *l, const char *s, size_t n, size_t count)
{
	static const char hex[] = "0123456789abcdef";
	uint32_t cp = 0;

	for (size_t i = 1; i <= count; i++) {
		const char *p = i < n ? memchr(hex, s[i] > '9' ? s[i] | 0x20 : s[i], 16) : NULL;

		if (!p) {
			lex_error(l, "truncated \\%c escape in a string", s[0]);
			return 0;
		}
		cp = cp << 4 | (uint32_t)(p - hex);
	}
	if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
		lex_error(l, "a string has an escape for no Unicode character");
	return cp;
}

/* Reads an escape; s is the text behind the backslash. Appends the character for which the escape stands (none for a
 * newline), or the backslash and the character behind it if they are no escape. Returns the number of bytes of s that
 * were read. */
static size_t unescape(struct lexer *l, const char *s, size_t n, struct buf *out)
{
	static const char plain[] = "\\'\"abfnrtv", meaning[] = "\\'\"\a\b\f\n\r\t\v";
	const char *p = memchr(plain, s[0], sizeof(plain) - 1);
	size_t count = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0, len;
	uint32_t cp;

	if (s[0] == '\n')
		return 1; /* a backslash joins two lines */
	if (p) {
		buf_putc(out, meaning[p - plain]);
		return 1;
	}
	if (count) {
		text_put(out, hex_escape(l, s, n, count));
		return 1 + count;
	}
	len = text_next(s, n, &cp);
	if (cp >= 0x80 || s[0] == 'N' || (s[0] >= '0' && s[0] <= '7'))
		lex_error(l, "\\%.*s in a string is not supported in chat templates", (int)len, s);
	buf_putc(out, '\\'); /* not an escape: both characters stay */
	buf_putc(out, s[0]);
	return 1;
}

static void lex_string(struct lexer *l)
{
	char quote = l->s[l->pos];
	size_t at = l->pos + 1, end;
	struct value text;
	struct buf out;
	char *copy;

	for (end = at; end < l->n && l->s[end] != quote; end++)
		if (l->s[end] == '\\')
			end++;
	if (end >= l->n) {
		lex_error(l, "unexpected char '%c': the string has no end", quote);
		return;
	}
	text = value_str(l->s + at, end - at);
	if (memchr(text.s, '\\', text.len)) {
		buf_init(&out, text.len);
		while (at < end) {
			if (l->s[at] != '\\')
				buf_putc(&out, l->s[at++]);
			else
				at += 1 + unescape(l, l->s + at + 1, end - at - 1, &out);
		}
		copy = reader_alloc(l->rd, out.len + 1, 1);
		text = value_str(copy ? memcpy(copy, buf_str(&out), out.len) : "", out.len);
		buf_release(&out);
	}
	push(l, T_STRING, l->line, text);
	advance(l, end + 1);
}

/* If c is a bracket, notes that it opens or closes: inside brackets "}}" and "%}" do not end a tag. */
static void balance(struct lexer *l, char c)
{
	if (c == '(' || c == '[' || c == '{') {
		if (l->depth == sizeof(l->open))
			lex_error(l, "brackets are nested too deeply");
		else
			l->open[l->depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
	} else if (c == ')' || c == ']' || c == '}') {
		if (!l->depth)
			lex_error(l, "unexpected '%c'", c);
		else if (l->open[--l->depth] != c)
			lex_error(l, "unexpected '%c', expected '%c'", c, l->open[l->depth]);
	}
}

static void lex_operator(struct lexer *l)
{
	static const struct {
		char text[3];
		int type;
	} pairs[] = {{"//", T_FLOORDIV}, {"**", T_POW}, {"==", T_EQ},
		     {"!=", T_NE},	 {"<=", T_LE},	{">=", T_GE}};
	char c = l->s[l->pos];
	uint32_t cp;
	size_t len;

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		if (!starts_with(l, l->pos, pairs[i].text))
			continue;
		push(l, pairs[i].type, l->line, NOTHING);
		l->pos += 2;
		return;
	}
	len = text_next(l->s + l->pos, l->n - l->pos, &cp);
	if (!memchr("+-*/%~<>=.:|,;()[]{}", c, 20))
		lex_error(l, "unexpected char '%.*s'", (int)len, l->s + l->pos);
	balance(l, c);
	push(l, c, l->line, NOTHING);
	l->pos += len;
}

/* Reads tokens up to the end of the tag, "%}" or "}}". If the tag has no end, the parser reports it. */
static void lex_tag(struct lexer *l, bool variable)
{
	uint32_t cp;
	size_t end;

	l->depth = 0;
	while (l->pos < l->n && !l->rd->rc) {
		end = l->depth ? 0 : match_end(l, l->pos, variable ? "}}" : "%}");
		if (end) {
			push(l, variable ? T_VARIABLE_END : T_BLOCK_END, l->line, NOTHING);
			advance(l, end);
			l->line_starting = l->s[end - 1] == '\n';
			return;
		}
		end = skip_space(l, l->pos);
		if (end > l->pos) {
			advance(l, end);
			continue;
		}
		text_next(l->s + l->pos, l->n - l->pos, &cp);
		if (cp >= '0' && cp <= '9')
			lex_number(l);
		else if (text_is(cp, TEXT_NAME_START))
			lex_name(l);
		else if (cp == '\'' || cp == '"')
			lex_string(l);
		else
			lex_operator(l);
	}
}

/* Returns the place of the next "{%", "{{" or "{#" from l->pos on; l->n: there is none. */
static size_t find_tag(const struct lexer *l)
{
	const char *p = l->s + l->pos, *end = l->s + l->n;

	while ((p = memchr(p, '{', (size_t)(end - p))) && p + 1 < end) {
		if (p[1] == '%' || p[1] == '{' || p[1] == '#')
			return (size_t)(p - l->s);
		p++;
	}
	return l->n;
}

static void lex_text(struct lexer *l)
{
	while (l->pos < l->n && !l->rd->rc) {
		size_t at = find_tag(l), end = at + 2;
		char kind = peek(l, at + 1), sign = peek(l, end);

		if (at == l->n) {
			push(l, T_DATA, l->line, value_str(l->s + l->pos, l->n - l->pos));
			return;
		}
		sign = sign == '-' || sign == '+' ? sign : 0;
		push_data(l, at, sign, kind == '{');
		l->pos = end + (sign != 0);
		if (kind == '#') {
			lex_comment(l);
			continue;
		}
		push(l, kind == '{' ? T_VARIABLE_BEGIN : T_BLOCK_BEGIN, l->line, NOTHING);
		lex_tag(l, kind == '{');
	}
}

/* Copies the text with \r\n and \r changed to \n, and without one newline at the end. Returns the copy's length. */
static size_t normalize(const char *text, size_t len, char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
			continue;
		out[n++] = text[i] == '\r' ? '\n' : text[i];
	}
	return n && out[n - 1] == '\n' ? n - 1 : n;
}

const struct token *lex(struct reader *rd, const char *text, size_t len)
{
	struct lexer l = {.rd = rd, .line = 1, .line_starting = true};
	char *copy;

	if (utf8_valid(text, len) < len)
		lex_error(&l, "the template is not valid UTF-8");
	copy = reader_alloc(rd, len + 1, 1);
	if (copy) {
		l.s = copy;
		l.n = normalize(text, len, copy);
		lex_text(&l);
	}
	push(&l, T_EOF, l.line, NOTHING);
	return l.tokens;
}
