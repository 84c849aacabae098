/*
 * Cuts a template into tokens, with jinja2's rules for white space: trim_blocks (the newline behind
 * a tag or comment goes), lstrip_blocks (so does the indentation of a tag or comment that begins a
 * line), "-" at either side of a tag strips all white space there, "+" keeps it, and one newline at
 * the very end of the template is dropped.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "protocol/text/jinja_ast.h"
#include "protocol/text/jinja_pystr.h"

struct lexer {
	struct arena *arena;
	const char *name;
	const char *s; /* the text, with newlines made \n */
	size_t n, pos;
	int line;
	bool line_starting; /* what was matched last ended with a newline */
	struct token *tokens;
	size_t count, cap;
	char open[TEMPLATE_NESTING * 2]; /* brackets that wait for their end */
	size_t depth;
	struct err *err;
};

int jinja_syntax_error(const char *name, int line, struct err *e, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX - 128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	err_set(e, EINVAL, "template %.80s, line %d: %s", name, line, text);
	if (e)
		pystr_clean(e->text);
	return -EINVAL;
}

static int no_memory(struct lexer *l)
{
	return err_set(l->err, ENOMEM, "template %.80s: out of memory", l->name);
}

#define lex_error(l, ...) jinja_syntax_error((l)->name, (l)->line, (l)->err, __VA_ARGS__)

static int push(struct lexer *l, struct token t)
{
	if (l->count == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 256;
		struct token *p = realloc(l->tokens, cap * sizeof(*p));

		if (!p)
			return no_memory(l);
		l->tokens = p;
		l->cap = cap;
	}
	l->tokens[l->count++] = t;
	return 0;
}

/* Goes on to `end`, counting lines. */
static void advance(struct lexer *l, size_t end)
{
	for (; l->pos < end; l->pos++)
		l->line += l->s[l->pos] == '\n';
}

static bool starts_with(const struct lexer *l, size_t at, const char *text)
{
	size_t m = strlen(text);

	return l->n - at >= m && !memcmp(l->s + at, text, m);
}

static size_t skip_space(const struct lexer *l, size_t at)
{
	return at + pystr_skip_space(l->s + at, l->n - at);
}

/* Where a tag's end that begins at `at` is over: "%}" and the newline behind it, "-%}" and all
 * white space behind it, "+%}". 0 when there is no end here. `end` is "%}", "}}" or "#}". */
static size_t match_end(const struct lexer *l, size_t at, const char *end)
{
	bool variable = end[0] == '}';

	if (at < l->n && l->s[at] == '-' && starts_with(l, at + 1, end))
		return skip_space(l, at + 3);
	if (!variable && at < l->n && l->s[at] == '+' && starts_with(l, at + 1, end))
		return at + 3;
	if (!starts_with(l, at, end))
		return 0;
	at += 2;
	return !variable && at < l->n && l->s[at] == '\n' ? at + 1 : at;
}

/* Emits the text before a tag, cut as the tag's sign and lstrip_blocks say. */
static int push_data(struct lexer *l, size_t end, char sign, bool variable)
{
	const char *s = l->s + l->pos;
	size_t n = end - l->pos, from;
	const char *p;
	int rc;

	if (sign == '-') {
		n = pystr_trim_space(s, n);
	} else if (sign != '+' && !variable) {
		p = memrchr(s, '\n', n);
		from = p ? (size_t)(p - s) + 1 : 0;
		if ((from || l->line_starting) && from + pystr_skip_space(s + from, n - from) == n)
			n = from;
	}
	rc = n ? push(l, (struct token){.type = T_DATA, .line = l->line, .s = s, .len = n}) : 0;
	advance(l, end);
	return rc;
}

/* ---- raw blocks ---- */

/* "{%- raw -%}" at `at`: where it ends, or 0. */
static size_t match_raw(const struct lexer *l, size_t at, char *ret_sign)
{
	at += 2;
	*ret_sign = at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at++] : 0;
	at = skip_space(l, at);
	if (!starts_with(l, at, "raw"))
		return 0;
	at = skip_space(l, at + 3);
	if (starts_with(l, at, "-%}"))
		return skip_space(l, at + 3);
	return starts_with(l, at, "%}") ? at + 2 : 0;
}

static int lex_raw(struct lexer *l)
{
	for (size_t at = l->pos; at < l->n; at++) {
		const char *p = memmem(l->s + at, l->n - at, "{%", 2);
		size_t end;
		char sign;
		int rc;

		if (!p)
			break;
		at = (size_t)(p - l->s);
		end = at + 2;
		sign = end < l->n && (l->s[end] == '-' || l->s[end] == '+') ? l->s[end++] : 0;
		end = skip_space(l, end);
		if (!starts_with(l, end, "endraw"))
			continue;
		end = match_end(l, skip_space(l, end + 6), "%}");
		if (!end)
			continue;
		rc = push_data(l, at, sign, false);
		if (rc < 0)
			return rc;
		advance(l, end);
		l->line_starting = l->s[end - 1] == '\n';
		return 0;
	}
	/* jinja2 has nothing against one that begins at the very end */
	return l->pos == l->n ? 0 : lex_error(l, "missing end of raw block");
}

static int lex_comment(struct lexer *l)
{
	for (size_t at = l->pos; at < l->n; at++) {
		size_t end = match_end(l, at, "#}");

		if (!end)
			continue;
		advance(l, end);
		l->line_starting = l->s[end - 1] == '\n';
		return 0;
	}
	return l->pos == l->n ? 0 : lex_error(l, "missing end of comment");
}

/* ---- inside tags ---- */

/* Digits with single underscores between them: how many characters from `at` on. */
static size_t digits(const struct lexer *l, size_t at, const char *set)
{
	size_t n = 0;

	while (at + n < l->n) {
		size_t k = at + n;

		if (n && l->s[k] == '_' && k + 1 < l->n)
			k++;
		if (!l->s[k] || !strchr(set, l->s[k]))
			break;
		n = k + 1 - at;
	}
	return n;
}

static const char decimal[] = "0123456789";

/* The length of a float literal at pos, 0 when there is none. */
static size_t float_length(const struct lexer *l)
{
	size_t n = digits(l, l->pos, decimal), k, m;
	bool fraction = false;

	if (!n || (l->pos && l->s[l->pos - 1] == '.'))
		return 0;
	if (l->pos + n < l->n && l->s[l->pos + n] == '.') {
		m = digits(l, l->pos + n + 1, decimal);
		fraction = m > 0;
		n += fraction ? m + 1 : 0;
	}
	k = l->pos + n;
	if (k < l->n && (l->s[k] == 'e' || l->s[k] == 'E')) {
		k++;
		if (k < l->n && (l->s[k] == '+' || l->s[k] == '-'))
			k++;
		m = digits(l, k, decimal);
		if (m)
			return k + m - l->pos;
	}
	return fraction ? n : 0;
}

static size_t int_length(const struct lexer *l, int64_t *ret_base)
{
	const char *set = NULL;
	size_t n;

	*ret_base = 10;
	if (l->s[l->pos] == '0' && l->pos + 1 < l->n) {
		switch (l->s[l->pos + 1] | 0x20) {
		case 'x':
			set = "0123456789abcdefABCDEF";
			*ret_base = 16;
			break;
		case 'o':
			set = "01234567";
			*ret_base = 8;
			break;
		case 'b':
			set = "01";
			*ret_base = 2;
			break;
		}
	}
	if (set) {
		size_t at = l->pos + 2;

		if (at < l->n && l->s[at] == '_')
			at++;
		n = digits(l, at, set);
		if (n)
			return at + n - l->pos;
		*ret_base = 10;
	}
	return digits(l, l->pos, l->s[l->pos] == '0' ? "0" : decimal);
}

static int lex_number(struct lexer *l)
{
	struct token t = {.line = l->line, .s = l->s + l->pos};
	int64_t base;

	t.len = float_length(l);
	if (t.len) {
		t.type = T_FLOAT;
		if (!text_to_float(t.s, t.len, &t.f))
			return lex_error(l, "number too long");
	} else {
		t.type = T_INT;
		t.len = int_length(l, &base);
		if (text_to_int(t.s, t.len, base, &t.i) != PARSE_INT_OK)
			return lex_error(l, "integer %.*s does not fit into 64 bits",
					 (int)MIN(t.len, (size_t)40), t.s);
	}
	advance(l, l->pos + t.len);
	return push(l, t);
}

static int lex_name(struct lexer *l)
{
	size_t at = l->pos, len;
	struct token t = {.type = T_NAME, .line = l->line, .s = l->s + at};
	uint32_t cp;

	for (; at < l->n; at += len) {
		len = pystr_next(l->s + at, l->n - at, &cp);
		if (!pystr_id_continue(cp))
			break;
	}
	t.len = at - l->pos;
	l->pos = at;
	return push(l, t);
}

static int hex_escape(struct lexer *l, const char *s, size_t n, size_t count, uint32_t *ret)
{
	uint32_t cp = 0;

	for (size_t i = 0; i < count; i++) {
		char c = i < n ? s[i] : 0;

		if (!c || !strchr("0123456789abcdefABCDEF", c))
			return lex_error(l, "truncated \\%c escape in a string",
					 count == 2   ? 'x'
					 : count == 4 ? 'u'
						      : 'U');
		cp = cp << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
		return lex_error(l, "a string has an escape for no Unicode character");
	*ret = cp;
	return 0;
}

/* What stands behind a backslash at s: appends to out, *used bytes of s are taken. */
static int unescape(struct lexer *l, const char *s, size_t n, struct buf *out, size_t *used)
{
	static const char plain[] = "\\'\"abfnrtv", meaning[] = "\\'\"\a\b\f\n\r\t\v";
	const char *p = strchr(plain, s[0]);
	uint32_t cp = 0;
	size_t count;
	int rc;

	*used = 1;
	if (s[0] == '\n')
		return 0; /* the line goes on */
	if (s[0] && p) {
		buf_putc(out, meaning[p - plain]);
		return 0;
	}
	if (s[0] >= '0' && s[0] <= '7') {
		for (*used = 0; *used < 3 && *used < n && s[*used] >= '0' && s[*used] <= '7';
		     ++*used)
			cp = cp * 8 + (uint32_t)(s[*used] - '0');
		pystr_put(out, cp);
		return 0;
	}
	count = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
	if (count) {
		rc = hex_escape(l, s + 1, n - 1, count, &cp);
		pystr_put(out, cp);
		*used = 1 + count;
		return rc;
	}
	if (s[0] == 'N')
		return lex_error(l, "\\N{...} is not supported in strings");
	buf_putc(out, '\\');
	*used = pystr_next(s, n, &cp);
	if (cp < 0x80) /* not an escape: both characters stay */
		buf_putc(out, (char)cp);
	else /* the codec Jinja uses spells such a character as an escape first */
		buf_printf(out, cp < 0x100 ? "x%02x" : cp < 0x10000 ? "u%04x" : "U%08x", cp);
	return 0;
}

static int lex_string(struct lexer *l)
{
	struct token t = {.type = T_STRING, .line = l->line};
	char quote = l->s[l->pos];
	size_t at = l->pos + 1, end, used;
	struct buf out;
	char *copy;
	int rc = 0;

	for (end = at; end < l->n && l->s[end] != quote; end++)
		if (l->s[end] == '\\')
			end++;
	if (end >= l->n)
		return lex_error(l, "unexpected char '%c': the string has no end", quote);
	if (!memchr(l->s + at, '\\', end - at)) {
		t.s = l->s + at;
		t.len = end - at;
		advance(l, end + 1);
		return push(l, t);
	}
	buf_init(&out, (end - at) * 8);
	while (at < end && !rc) {
		if (l->s[at] != '\\') {
			buf_putc(&out, l->s[at++]);
			continue;
		}
		rc = unescape(l, l->s + at + 1, end - at - 1, &out, &used);
		at += 1 + used;
	}
	if (!rc) {
		copy = out.failed ? NULL : arena_strndup(l->arena, buf_str(&out), out.len);
		t.s = copy;
		t.len = out.len;
		rc = copy ? 0 : no_memory(l);
	}
	buf_release(&out);
	if (rc < 0)
		return rc;
	advance(l, end + 1);
	return push(l, t);
}

static const struct {
	const char *text;
	enum token_type type;
} operators[] = {
	{"//", T_FLOORDIV}, {"**", T_POW},   {"==", T_EQ},	{"!=", T_NE},
	{">=", T_GE},	    {"<=", T_LE},    {"+", T_ADD},	{"-", T_SUB},
	{"*", T_MUL},	    {"/", T_DIV},    {"%", T_MOD},	{"~", T_TILDE},
	{"<", T_LT},	    {">", T_GT},     {"=", T_ASSIGN},	{".", T_DOT},
	{":", T_COLON},	    {"|", T_PIPE},   {",", T_COMMA},	{";", T_SEMICOLON},
	{"(", T_LPAREN},    {")", T_RPAREN}, {"[", T_LBRACKET}, {"]", T_RBRACKET},
	{"{", T_LBRACE},    {"}", T_RBRACE},
};

static int balance(struct lexer *l, char c)
{
	if (c == '(' || c == '[' || c == '{') {
		if (l->depth == sizeof(l->open))
			return lex_error(l, "brackets are nested too deeply");
		l->open[l->depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
	} else if (c == ')' || c == ']' || c == '}') {
		if (!l->depth)
			return lex_error(l, "unexpected '%c'", c);
		if (l->open[--l->depth] != c)
			return lex_error(l, "unexpected '%c', expected '%c'", c, l->open[l->depth]);
	}
	return 0;
}

static int lex_operator(struct lexer *l)
{
	uint32_t cp;
	size_t len;
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(operators); i++) {
		if (!starts_with(l, l->pos, operators[i].text))
			continue;
		rc = balance(l, operators[i].text[0]);
		if (!rc)
			rc = push(l, (struct token){.type = operators[i].type, .line = l->line});
		l->pos += strlen(operators[i].text);
		return rc;
	}
	len = pystr_next(l->s + l->pos, l->n - l->pos, &cp);
	return lex_error(l, "unexpected char '%.*s'", (int)len, l->s + l->pos);
}

/* Tokens up to the end of the tag, "%}" or "}}". At the end of the text the parser complains. */
static int lex_tag(struct lexer *l, bool variable)
{
	uint32_t cp;
	size_t end;
	int rc;

	l->depth = 0;
	while (l->pos < l->n) {
		end = l->depth ? 0 : match_end(l, l->pos, variable ? "}}" : "%}");
		if (end) {
			rc = push(l, (struct token){.type = variable ? T_VARIABLE_END : T_BLOCK_END,
						    .line = l->line});
			advance(l, end);
			l->line_starting = l->s[end - 1] == '\n';
			return rc;
		}
		end = skip_space(l, l->pos);
		if (end > l->pos) {
			advance(l, end);
			continue;
		}
		pystr_next(l->s + l->pos, l->n - l->pos, &cp);
		if (cp >= '0' && cp <= '9')
			rc = lex_number(l);
		else if (pystr_id_start(cp))
			rc = lex_name(l);
		else if (cp == '\'' || cp == '"')
			rc = lex_string(l);
		else
			rc = lex_operator(l);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* The next "{%", "{{" or "{#" from pos on, or n. */
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

static int lex_text(struct lexer *l)
{
	int rc = 0;

	while (l->pos < l->n && !rc) {
		size_t at = find_tag(l), end;
		char kind, sign;

		if (at == l->n) {
			rc = push(l, (struct token){.type = T_DATA,
						    .line = l->line,
						    .s = l->s + l->pos,
						    .len = l->n - l->pos});
			advance(l, l->n);
			break;
		}
		kind = l->s[at + 1];
		end = kind == '%' ? match_raw(l, at, &sign) : 0;
		if (end) {
			rc = push_data(l, at, sign, false);
			advance(l, end);
			l->line_starting = l->s[end - 1] == '\n';
			if (!rc)
				rc = lex_raw(l);
			continue;
		}
		end = at + 2;
		sign = end < l->n && (l->s[end] == '-' || l->s[end] == '+') ? l->s[end++] : 0;
		rc = push_data(l, at, sign, kind == '{');
		l->pos = end;
		if (rc < 0)
			break;
		if (kind == '#') {
			rc = lex_comment(l);
			continue;
		}
		rc = push(l, (struct token){.type = kind == '{' ? T_VARIABLE_BEGIN : T_BLOCK_BEGIN,
					    .line = l->line});
		if (!rc)
			rc = lex_tag(l, kind == '{');
	}
	return rc;
}

/* A copy with \r\n and \r made \n, and without one newline at the end. */
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

int jinja_lex(struct arena *a, const char *name, const char *text, size_t len, struct token **ret,
	      struct err *e)
{
	struct lexer l = {.arena = a, .name = name, .line = 1, .line_starting = true, .err = e};
	char *copy;
	int rc;

	if (len > TEMPLATE_TEXT_MAX)
		return lex_error(&l, "the template is longer than %d bytes", TEMPLATE_TEXT_MAX);
	if (utf8_valid(text, len) < len)
		return lex_error(&l, "the template is not valid UTF-8");
	copy = arena_alloc(a, len + 1);
	if (!copy)
		return no_memory(&l);
	l.s = copy;
	l.n = normalize(text, len, copy);
	rc = lex_text(&l);
	if (!rc)
		rc = push(&l, (struct token){.type = T_EOF, .line = l.line});
	if (rc < 0) {
		free(l.tokens);
		return rc;
	}
	*ret = l.tokens;
	return 0;
}
