#include "protocol/grammar/json_text.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "protocol/grammar/parts.h"

enum { BLANKS_MAX = 32, DIGITS = 15, DECIMALS = 6, MILLION = 1000000 };

static uint32_t one_of(struct grammar_builder *b, const char *bytes)
{
	struct grammar_range ranges[16];
	size_t n = 0;

	for (; bytes[n]; n++)
		ranges[n].lo = ranges[n].hi = (uint8_t)bytes[n];
	return grammar_class(b, ranges, n);
}

static uint32_t digit(struct grammar_builder *b, char lo, char hi)
{
	return grammar_byte(b, (uint8_t)lo, (uint8_t)hi);
}

/* The code points that a string has as they are. */
static const struct grammar_range plain[] = {{0x20, '"' - 1},
					     {'"' + 1, '\\' - 1},
					     {'\\' + 1, 0x10ffff}};
static const struct grammar_range plain_but_less[] = {{0x20, '"' - 1},
						      {'"' + 1, '<' - 1},
						      {'<' + 1, '\\' - 1},
						      {'\\' + 1, 0x10ffff}};

static const struct grammar_range *plain_of(const struct json_text *t, size_t *ret_n)
{
	*ret_n = t->escape_less ? ARRAY_SIZE(plain_but_less) : ARRAY_SIZE(plain);
	return t->escape_less ? plain_but_less : plain;
}

static uint32_t plain_class(const struct json_text *t)
{
	size_t n;
	const struct grammar_range *ranges = plain_of(t, &n);

	return grammar_class(t->b, ranges, n);
}

static uint32_t character(const struct json_text *t)
{
	struct grammar_builder *b = t->b;
	static const struct grammar_range hex_ranges[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
	static const struct grammar_range not_d[] = {
		{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
	uint32_t hex = grammar_class(b, hex_ranges, 3), two = grammar_repeat(b, hex, 2, 2);
	uint32_t d = one_of(b, "Dd");
	uint32_t high = grammar_seq(b, d, one_of(b, "89ABab"), two);
	uint32_t low = grammar_seq(b, d, one_of(b, "CDEFcdef"), two);
	uint32_t unit = grammar_alt(b, grammar_seq(b, grammar_class(b, not_d, 5), hex, two),
				    grammar_seq(b, d, digit(b, '0', '7'), two),
				    grammar_seq(b, high, grammar_text(b, "\\u"), low));

	return grammar_alt(b, plain_class(t),
			   grammar_seq(b, grammar_text(b, "\\"),
				       grammar_alt(b, one_of(b, "\"\\/bfnrt"),
						   grammar_seq(b, grammar_text(b, "u"), unit))));
}

static uint32_t number(struct grammar_builder *b)
{
	uint32_t any = digit(b, '0', '9');
	uint32_t whole = grammar_alt(b, grammar_text(b, "0"),
				     grammar_seq(b, digit(b, '1', '9'),
						 grammar_repeat(b, any, 0, DIGITS - 1)));
	uint32_t fraction =
		grammar_seq(b, grammar_text(b, "."), grammar_repeat(b, any, 1, DECIMALS));
	uint32_t exponent =
		grammar_seq(b, one_of(b, "Ee"), grammar_repeat(b, one_of(b, "+-"), 0, 1),
			    grammar_repeat(b, any, 1, 2));

	return grammar_seq(b, grammar_repeat(b, grammar_text(b, "-"), 0, 1), whole,
			   grammar_repeat(b, fraction, 0, 1), grammar_repeat(b, exponent, 0, 1));
}

/* Parts between brackets, with commas. */
static uint32_t listed(const struct json_text *t, const char *open, uint32_t part,
		       const char *close)
{
	struct grammar_builder *b = t->b;
	uint32_t spaced = json_text_spaced(t, part);
	uint32_t more = grammar_seq(b, json_text_spaced(t, grammar_text(b, ",")), spaced);

	return grammar_seq(b, json_text_spaced(t, grammar_text(b, open)),
			   grammar_repeat(b,
					  grammar_seq(b, spaced,
						      grammar_repeat(b, more, 0, GRAMMAR_NO_LIMIT)),
					  0, 1),
			   grammar_text(b, close));
}

void json_text_init(struct json_text *t, struct grammar_builder *b, bool escape_less)
{
	uint32_t quote = grammar_text(b, "\""), member;

	t->b = b;
	t->escape_less = escape_less;
	t->blank = grammar_rule(b, "blank");
	t->character = grammar_rule(b, "character");
	t->string = grammar_rule(b, "string");
	t->number = grammar_rule(b, "number");
	t->value = grammar_rule(b, "value");
	t->array = grammar_rule(b, "array");
	t->object = grammar_rule(b, "object");
	grammar_define(b, t->blank,
		       grammar_alt(b, grammar_text(b, ""), grammar_text(b, " "),
				   grammar_seq(b, grammar_text(b, "\n"),
					       grammar_repeat(b, one_of(b, " \t"), 0,
							      BLANKS_MAX))));
	grammar_define(b, t->character, character(t));
	grammar_define(b, t->string,
		       grammar_seq(b, quote, grammar_repeat(b, character(t), 0, GRAMMAR_NO_LIMIT),
				   quote));
	grammar_define(b, t->number, number(b));
	member = grammar_seq(b, json_text_spaced(t, grammar_call(b, t->string)),
			     json_text_spaced(t, grammar_text(b, ":")), grammar_call(b, t->value));
	grammar_define(b, t->array, listed(t, "[", grammar_call(b, t->value), "]"));
	grammar_define(b, t->object, listed(t, "{", member, "}"));
	grammar_define(b, t->value,
		       grammar_alt(b, grammar_call(b, t->object), grammar_call(b, t->array),
				   grammar_call(b, t->string), grammar_call(b, t->number),
				   grammar_text(b, "true"), grammar_text(b, "false"),
				   grammar_text(b, "null")));
}

uint32_t json_text_spaced(const struct json_text *t, uint32_t part)
{
	return grammar_seq(t->b, part, grammar_call(t->b, t->blank));
}

/* A text of JSON, whose '<' are in strings. */
static uint32_t literal(const struct json_text *t, const char *text, size_t len)
{
	struct parts p = {0};
	uint32_t x;

	for (size_t at = 0, n; at < len; at += n) {
		const char *less = t->escape_less ? memchr(text + at, '<', len - at) : NULL;

		n = less ? (size_t)(less - text) - at : len - at;
		parts_add(&p, grammar_literal(t->b, text + at, n));
		if (less) {
			parts_add(&p, grammar_text(t->b, "\\u003c"));
			n++;
		}
	}
	if (p.failed)
		grammar_no_memory(t->b);
	x = grammar_sequence(t->b, p.v, p.n);
	parts_release(&p);
	return x;
}

/* Returns how many digits a number needs to be read as the same one: models do not write 0.10000000000000001. */
static size_t digits_of(const json_t *value)
{
	char text[40];

	for (int n = 15; json_is_real(value) && n < 17; n++) {
		snprintf(text, sizeof(text), "%.*g", n, json_real_value(value));
		if (strtod(text, NULL) == json_real_value(value))
			return (size_t)n;
	}
	return 17;
}

uint32_t json_text_literal(const struct json_text *t, const json_t *value)
{
	struct grammar_builder *b = t->b;
	bool object = json_is_object(value);
	struct parts p = {0};
	uint32_t x;

	if (!object && !json_is_array(value)) {
		size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits_of(value));
		size_t len = json_dumpb(value, NULL, 0, flags);
		char *text = malloc(len + 1);

		if (!len || !text || json_dumpb(value, text, len, flags) != len)
			grammar_no_memory(b);
		x = text ? literal(t, text, len) : 0;
		free(text);
		return x;
	}
	parts_add(&p, json_text_spaced(t, grammar_text(b, object ? "{" : "[")));
	if (object) {
		const char *name;
		json_t *member;

		json_object_foreach((json_t *)value, name, member)
		{
			if (p.n > 1)
				parts_add(&p, json_text_spaced(t, grammar_text(b, ",")));
			parts_add(&p, json_text_name(t, name));
			parts_add(&p, json_text_spaced(t, json_text_literal(t, member)));
		}
	} else {
		json_t *element;
		size_t i;

		json_array_foreach(value, i, element)
		{
			if (i)
				parts_add(&p, json_text_spaced(t, grammar_text(b, ",")));
			parts_add(&p, json_text_spaced(t, json_text_literal(t, element)));
		}
	}
	parts_add(&p, grammar_text(b, object ? "}" : "]"));
	if (p.failed)
		grammar_no_memory(b);
	x = grammar_sequence(b, p.v, p.n);
	parts_release(&p);
	return x;
}

uint32_t json_text_name(const struct json_text *t, const char *name)
{
	json_t *string = json_string(name);
	uint32_t x;

	if (!string)
		grammar_no_memory(t->b);
	x = string ? json_text_literal(t, string) : 0;
	json_decref(string);
	return grammar_seq(t->b, json_text_spaced(t, x),
			   json_text_spaced(t, grammar_text(t->b, ":")));
}

/* Returns the rest, up to the closing quote, of all names but these n. The first `at` bytes are read already; the n
 * names have them in common. */
static uint32_t other_rest(const struct json_text *t, uint32_t any_rest, const char *const *names,
			   size_t n, size_t at)
{
	struct grammar_builder *b = t->b;
	struct grammar_range *others = NULL;
	size_t n_others = 0, cap = 0;
	uint32_t from = 0x20, rule = grammar_rule(b, "name"), x;
	bool ended = false;
	struct parts p = {0};

	/* Code points of valid UTF-8 have the order of their bytes, and the names are sorted. */
	for (size_t i = 0; i < n;) {
		uint32_t c;
		size_t len, k = i;

		if (!names[i][at]) {
			ended = true;
			i++;
			continue;
		}
		c = utf8_decode(names[i] + at, &len);
		while (k < n && !strncmp(names[k] + at, names[i] + at, len))
			k++;
		parts_add(&p, grammar_seq(b, grammar_literal(b, names[i] + at, len),
					  other_rest(t, any_rest, names + i, k - i, at + len)));
		if (!array_grow(others, cap, n_others + 2))
			p.failed = true;
		else if (c > from)
			others[n_others++] = (struct grammar_range){from, c - 1};
		from = c + 1;
		i = k;
	}
	if (!array_grow(others, cap, n_others + 1)) {
		p.failed = true;
	} else if (n) {
		struct grammar_range cut[64];
		size_t n_cut = 0, n_ranges;
		const struct grammar_range *ranges = plain_of(t, &n_ranges);

		others[n_others++] = (struct grammar_range){from, 0x10ffff};
		for (size_t i = 0; i < n_others; i++) {
			for (size_t k = 0; k < n_ranges; k++) {
				uint32_t lo = MAX(others[i].lo, ranges[k].lo),
					 hi = MIN(others[i].hi, ranges[k].hi);

				if (lo <= hi)
					cut[n_cut++] = (struct grammar_range){lo, hi};
				if (n_cut < ARRAY_SIZE(cut) &&
				    (i + 1 < n_others || k + 1 < n_ranges))
					continue;
				parts_add(&p,
					  grammar_seq(b, grammar_class(b, cut, n_cut), any_rest));
				n_cut = 0;
			}
		}
	}
	if (!ended)
		parts_add(&p, grammar_text(b, "\""));
	if (p.failed)
		grammar_no_memory(b);
	x = grammar_choice(b, p.v, p.n);
	grammar_define(b, rule, x);
	parts_release(&p);
	free(others);
	return grammar_call(b, rule);
}

static int by_bytes(const void *x, const void *y)
{
	return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* Returns whether a name can be written without escapes; one that cannot needs no care here. */
static bool is_plain(const struct json_text *t, const char *name)
{
	for (; *name; name++) {
		if ((uint8_t)*name < 0x20 || *name == '"' || *name == '\\' ||
		    (t->escape_less && *name == '<'))
			return false;
	}
	return true;
}

uint32_t json_text_other_name(const struct json_text *t, const char *const *names, size_t n)
{
	struct grammar_builder *b = t->b;
	uint32_t any = grammar_repeat(b, plain_class(t), 0, GRAMMAR_NO_LIMIT);
	uint32_t quote = grammar_text(b, "\""), rest = grammar_rule(b, "name"), x = 0;
	const char **sorted = calloc(n + 1, sizeof(*sorted));
	size_t kept = 0;

	grammar_define(b, rest, grammar_seq(b, any, quote));
	for (size_t i = 0; sorted && i < n; i++) {
		if (is_plain(t, names[i]))
			sorted[kept++] = names[i];
	}
	if (!sorted)
		grammar_no_memory(b);
	else if (!kept)
		x = grammar_call(b, rest);
	else {
		qsort(sorted, kept, sizeof(*sorted), by_bytes);
		x = other_rest(t, grammar_call(b, rest), sorted, kept, 0);
	}
	free(sorted);
	return grammar_seq(b, quote, json_text_spaced(t, x),
			   json_text_spaced(t, grammar_text(b, ":")));
}

/* ---- ranges of numbers ---- */

static uint32_t digits_from(struct grammar_builder *b, uint32_t n)
{
	return grammar_repeat(b, digit(b, '0', '9'), n, n);
}

/* The digits of numbers from lo to hi, two texts of n digits. */
static uint32_t between(struct grammar_builder *b, const char *lo, const char *hi, uint32_t n)
{
	uint32_t parts[3];
	size_t n_parts = 0;
	char from = lo[0], to = hi[0];

	if (!n)
		return 0;
	if (from == to)
		return grammar_seq(b, digit(b, from, to), between(b, lo + 1, hi + 1, n - 1));
	if (strspn(lo + 1, "0") < n - 1) {
		char nines[DIGITS + 2] = "";

		memset(nines, '9', DIGITS + 1);
		parts[n_parts++] =
			grammar_seq(b, digit(b, from, from), between(b, lo + 1, nines, n - 1));
		from++;
	}
	if (strspn(hi + 1, "9") < n - 1) {
		char zeros[DIGITS + 2] = "";

		memset(zeros, '0', DIGITS + 1);
		parts[n_parts++] =
			grammar_seq(b, digit(b, to, to), between(b, zeros, hi + 1, n - 1));
		to--;
	}
	if (from <= to)
		parts[n_parts++] = grammar_seq(b, digit(b, from, to), digits_from(b, n - 1));
	return grammar_choice(b, parts, n_parts);
}

/* As json_text_integers, for 0 <= lo. */
static uint32_t naturals(struct grammar_builder *b, int64_t lo, int64_t hi)
{
	uint32_t parts[DIGITS + 1];
	size_t n_parts = 0;
	int64_t least = 0, most = 9;

	for (uint32_t n = 1; n <= DIGITS; n++) {
		int64_t from = MAX(lo, least), to = MIN(hi, most);
		char low[24], high[24];

		if (from <= to) {
			snprintf(low, sizeof(low), "%lld", (long long)from);
			snprintf(high, sizeof(high), "%lld", (long long)to);
			parts[n_parts++] = between(b, low, high, n);
		}
		least = most + 1;
		most = most * 10 + 9;
	}
	return grammar_choice(b, parts, n_parts);
}

/* The numbers from lo to hi, of those that `make` writes for bounds from 0 on, with a sign before the negative ones. */
static uint32_t with_sign(struct grammar_builder *b, int64_t lo, int64_t hi,
			  uint32_t (*make)(struct grammar_builder *b, int64_t lo, int64_t hi))
{
	uint32_t parts[2];
	size_t n = 0;

	if (hi >= 0 && lo <= hi)
		parts[n++] = make(b, MAX(lo, (int64_t)0), hi);
	if (lo <= 0 && lo <= hi)
		parts[n++] =
			grammar_seq(b, grammar_text(b, "-"), make(b, MAX(-hi, (int64_t)0), -lo));
	return grammar_choice(b, parts, n);
}

uint32_t json_text_integers(struct grammar_builder *b, int64_t lo, int64_t hi)
{
	return with_sign(b, lo, hi, naturals);
}

/* The digits behind the point from place `at` on, if the fraction lies between two texts of DECIMALS digits; NULL: that
 * bound is kept already. */
static uint32_t fraction(struct grammar_builder *b, const char *lo, const char *hi, uint32_t at)
{
	uint32_t parts[12];
	size_t n = 0;

	if (at == DECIMALS)
		return 0;
	if (!lo && !hi)
		return grammar_repeat(b, digit(b, '0', '9'), at == 0, DECIMALS - at);
	/* The digits may end here if zeros in their place keep the bounds. */
	if (at && (!lo || strspn(lo + at, "0") == DECIMALS - at))
		parts[n++] = 0;
	for (char c = lo ? lo[at] : '0'; c <= (hi ? hi[at] : '9'); c++) {
		const char *l = lo && c == lo[at] ? lo : NULL, *h = hi && c == hi[at] ? hi : NULL;

		parts[n++] = grammar_seq(b, digit(b, c, c), fraction(b, l, h, at + 1));
	}
	return grammar_choice(b, parts, n);
}

/* The whole number n, and behind the point lo to hi millionths. */
static uint32_t with_fraction(struct grammar_builder *b, uint32_t n, int64_t lo, int64_t hi)
{
	char low[24], high[24];
	uint32_t x;

	snprintf(low, sizeof(low), "%06lld", (long long)lo);
	snprintf(high, sizeof(high), "%06lld", (long long)hi);
	x = grammar_seq(b, grammar_text(b, "."),
			fraction(b, lo ? low : NULL, hi < MILLION - 1 ? high : NULL, 0));
	return grammar_seq(b, n, lo ? x : grammar_repeat(b, x, 0, 1));
}

static uint32_t positives(struct grammar_builder *b, int64_t lo, int64_t hi)
{
	int64_t first = lo / MILLION, last = hi / MILLION;
	uint32_t parts[3];
	size_t n = 0;

	if (first == last)
		return with_fraction(b, naturals(b, first, first), lo % MILLION, hi % MILLION);
	parts[n++] = with_fraction(b, naturals(b, first, first), lo % MILLION, MILLION - 1);
	if (first + 1 < last)
		parts[n++] = with_fraction(b, naturals(b, first + 1, last - 1), 0, MILLION - 1);
	parts[n++] = with_fraction(b, naturals(b, last, last), 0, hi % MILLION);
	return grammar_choice(b, parts, n);
}

uint32_t json_text_decimals(struct grammar_builder *b, int64_t lo, int64_t hi)
{
	return with_sign(b, lo, hi, positives);
}
