/* Strings: lengths, patterns, formats, and strings that are excluded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/grammar/code_points.h"
#include "protocol/grammar/regex.h"
#include "protocol/grammar/schema.h"
#include "protocol/word.h"

#define YEAR   "[1-9]\\d{3}"
#define DAY_30 "(?:0[1-9]|[12]\\d|30)"
#define DATE                                                                  \
	YEAR "-(?:(?:0[13578]|1[02])-(?:" DAY_30 "|31)|(?:0[469]|11)-" DAY_30 \
	     "|02-(?:0[1-9]|1\\d|2[0-8]))"
#define HOUR "(?:[01]\\d|2[0-3])"
#define TIME HOUR ":[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-]" HOUR ":[0-5]\\d)"
/* Two hyphens in a row would begin a label of an international name. */
#define LABEL "[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20}){0,2}"
#define HOST  LABEL "(?:\\." LABEL "){0,3}"
#define LOCAL "[A-Za-z0-9_+-]{1,30}"
#define EMAIL LOCAL "(?:\\." LOCAL ")?@" LABEL "(?:\\." LABEL "){1,3}"
#define OCTET "(?:\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"
#define GROUP "[0-9a-fA-F]{1,4}"
#define PATH  "(?:/[A-Za-z0-9._~-]*)*(?:\\?[A-Za-z0-9._~=&-]*)?"
#define SITE  "https?://" HOST "(?::\\d{1,4})?"
#define URI   SITE PATH
/* At most 953 characters, beside maxLength. */
#define SHORT_URI SITE "(?:/[A-Za-z0-9._~-]{0,60}){0,8}(?:\\?[A-Za-z0-9._~=&-]{0,200})?"
#define TOKEN	  "(?:/[A-Za-z0-9._-]*)*"

/* Of a format that says what a text is for, and not which texts it may be. */
static const char any_text[] = "[\\s\\S]*";

static const struct {
	const char *name, *pattern;
} formats[] = {
	{"date", DATE},
	{"time", TIME},
	{"date-time", DATE "T" TIME},
	{"duration",
	 "P(?:\\d{1,4}Y(?:\\d{1,2}M(?:\\d{1,2}D)?)?|\\d{1,2}M(?:\\d{1,2}D)?|\\d{1,3}[DW]|T\\d{1,3}[HMS])"},
	{"email", EMAIL},
	{"idn-email", EMAIL},
	{"hostname", HOST},
	{"idn-hostname", HOST},
	{"ipv4", OCTET "(?:\\." OCTET "){3}"},
	{"ipv6", GROUP "(?::" GROUP "){7}"},
	{"uri", URI},
	{"uri-reference", "(?:" URI "|/[A-Za-z0-9._~-]+" PATH ")"},
	{"iri", URI},
	{"iri-reference", "(?:" URI "|/[A-Za-z0-9._~-]+" PATH ")"},
	{"uri-template", "(?:" URI "|/[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]*|/\\{[a-z]{1,20}\\})*)"},
	{"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
	{"json-pointer", TOKEN},
	{"relative-json-pointer", "(?:0|[1-9]\\d{0,3})(?:#|" TOKEN ")"},
	{"regex", "[A-Za-z0-9 _,:;=@-]*"},
	/* Those below are pydantic's, and OpenAPI's. */
	{"base64", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
	{"base64url", "(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}==|[A-Za-z0-9_-]{3}=)?"},
	{"binary", any_text},
	{"password", any_text},
	{"path", any_text},
};

const char *schema_format(const json_t *format)
{
	const char *name = word_of(format);

	for (size_t i = 0; name && i < ARRAY_SIZE(formats); i++) {
		if (!strcmp(name, formats[i].name))
			return formats[i].pattern;
	}
	return NULL;
}

struct strings {
	uint32_t min, max;
	uint32_t x; /* the first condition, if has_x */
	bool has_x;
	struct regex_lengths lengths;
	struct language *l;  /* the texts so far, if one expression does not have them; owned */
	uint32_t n;	     /* conditions besides the lengths */
	const char *keyword; /* of the last condition */
};

uint32_t schema_any_inside(struct schemas *s, uint32_t min, uint32_t max)
{
	struct grammar_range all = {0, 0x10ffff};
	struct code_points set = {.v = &all, .n = 1};

	return grammar_repeat(s->b,
			      regex_class(s->b, &set,
					  (struct regex_form){.json = true,
							      .escape_less = s->text.escape_less}),
			      min, max);
}

void schema_keep_language(struct schemas *s, struct language **l, const struct language *other,
			  bool without)
{
	if (!s->r)
		s->r = language_keep(l, other, without, s->e);
	if (!s->r)
		schema_works(s, language_work(*l));
}

void schema_keep_texts(struct schemas *s, struct language **l, uint32_t expression, bool without)
{
	struct language *other = NULL;

	if (!*l && !s->r)
		s->r = language_new(s->b, schema_any_inside(s, 0, GRAMMAR_NO_LIMIT), l, s->e);
	if (!s->r)
		s->r = language_new(s->b, expression, &other, s->e);
	if (!s->r)
		schema_works(s, language_work(other));
	schema_keep_language(s, l, other, without);
	language_free(other);
}

uint32_t schema_texts(struct schemas *s, struct language *l)
{
	uint32_t x = s->r || !l ? 0 : language_expression(s->b, l);

	language_free(l);
	return x;
}

/* Adds a condition: the strings are (without: are not) among those of an expression. */
static void limit(struct schemas *s, struct strings *t, uint32_t x, bool without)
{
	if (t->has_x && !t->l)
		schema_keep_texts(s, &t->l, t->x, false);
	schema_keep_texts(s, &t->l, x, without);
}

static void match(struct schemas *s, struct strings *t, const char *pattern, size_t len,
		  struct regex_form form, bool without)
{
	struct regex_lengths lengths = {0};
	uint32_t x = 0;

	if (!s->r)
		s->r = regex_expression(s->b, pattern, len, form, &x, &lengths, s->e);
	if (s->r)
		return;
	if (!t->n++ && !without) {
		t->x = x;
		t->has_x = true;
		t->lengths = lengths;
	} else {
		limit(s, t, x, without);
	}
}

static void take_schema(struct schemas *s, struct strings *t, const json_t *schema)
{
	const json_t *pattern = json_object_get(schema, "pattern"),
		     *format = json_object_get(schema, "format");
	const json_t *not = schema_not(schema, "pattern");
	const char *expression;

	t->min = MAX(t->min, schema_count(s, schema, "minLength", 0));
	t->max = MIN(t->max, schema_count(s, schema, "maxLength", GRAMMAR_NO_LIMIT));
	if ((pattern && !json_is_string(pattern)) || (not &&!json_is_string(not )))
		schema_wrong(s, "pattern", "a string");
	if (format && !word_of(format))
		schema_wrong(s, "format", "a string without a NUL");
	if (s->r)
		return;
	if (pattern) {
		t->keyword = "pattern";
		match(s, t, json_string_value(pattern), json_string_length(pattern),
		      (struct regex_form){.search = true,
					  .json = true,
					  .escape_less = s->text.escape_less},
		      false);
	}
	expression = format ? schema_format(format) : NULL;
	if (format && !expression && !s->r)
		s->r = err_set(s->e, PROBLEM_UNSUPPORTED,
			       "the format \"%.60s\" of a JSON schema is not supported",
			       json_string_value(format));
	if (expression && expression != any_text) {
		t->keyword = "format";
		if (t->max != GRAMMAR_NO_LIMIT && !strcmp(expression, URI))
			expression = SHORT_URI;
		match(s, t, expression, strlen(expression),
		      (struct regex_form){.json = true, .escape_less = s->text.escape_less}, false);
	}
	if (not )
		match(s, t, json_string_value(not ), json_string_length(not ),
		      (struct regex_form){.search = true,
					  .json = true,
					  .escape_less = s->text.escape_less,
					  .most = true},
		      true);
}

/* Returns a choice of the strings that `not` of constants excludes; *any: there are some. */
static uint32_t excluded(struct schemas *s, const struct schema_case *c, bool *some)
{
	struct parts p = {0};

	for (size_t i = 0; i < c->n; i++) {
		const json_t *schema = c->nodes[i]->schema, *one = schema_not(schema, "const"), *v;
		const json_t *list = schema_not(schema, "enum");
		size_t k, n = json_array_size(list) + (one != NULL);

		for (k = 0; k < n; k++) {
			v = k < json_array_size(list) ? json_array_get(list, k) : one;
			if (!json_is_string(v) || !schema_works(s, json_string_length(v)))
				continue;
			*some = true;
			parts_add(&p, regex_text(s->b, json_string_value(v), json_string_length(v),
						 s->text.escape_less));
		}
	}
	return schema_choice(s, &p);
}

uint32_t schema_string_inside(struct schemas *s, const struct schema_case *c, bool *ret_any)
{
	struct strings t = {.max = GRAMMAR_NO_LIMIT};
	bool some = false;
	uint32_t x;

	*ret_any = false;
	for (size_t i = 0; i < c->n; i++)
		take_schema(s, &t, c->nodes[i]->schema);
	x = excluded(s, c, &some);
	if (some) {
		t.n++;
		limit(s, &t, x, true);
	}
	if (s->r || t.min > t.max) {
		language_free(t.l);
		return grammar_choice(s->b, NULL, 0);
	}
	if (t.max != GRAMMAR_NO_LIMIT)
		t.max = MIN(t.max, MAX(t.min, (uint32_t)SCHEMA_LENGTH_MAX));
	if (!t.n && !t.min && t.max == GRAMMAR_NO_LIMIT) {
		*ret_any = true;
		return schema_any_inside(s, 0, GRAMMAR_NO_LIMIT);
	}
	if (!t.n)
		return schema_any_inside(s, t.min, t.max);
	if (t.n > 1 || t.l || t.lengths.min < t.min || t.lengths.max > t.max) {
		if (t.min || t.max != GRAMMAR_NO_LIMIT) {
			limit(s, &t, schema_any_inside(s, t.min, t.max), false);
			if (s->r == -E2BIG) {
				s->r = 0;
				schema_unsupported(
					s, t.min ? "minLength" : "maxLength",
					t.keyword && !strcmp(t.keyword, "format")
						? " beside a format with texts of other lengths"
						: " beside a pattern with texts of other lengths");
			}
		}
		return schema_texts(s, t.l);
	}
	return t.x;
}

uint32_t schema_string(struct schemas *s, const struct schema_case *c)
{
	uint32_t quote = grammar_text(s->b, "\""), x;
	bool free_form = true, any_string;

	/* Of strings with lengths alone every escape is known. */
	for (size_t i = 0; i < c->n && free_form; i++) {
		const json_t *schema = c->nodes[i]->schema;

		free_form = !json_object_get(schema, "pattern") &&
			    !json_object_get(schema, "format") && !json_object_get(schema, "not");
	}
	if (free_form) {
		uint32_t min = 0, max = GRAMMAR_NO_LIMIT;

		for (size_t i = 0; i < c->n; i++) {
			min = MAX(min, schema_count(s, c->nodes[i]->schema, "minLength", 0));
			max = MIN(max, schema_count(s, c->nodes[i]->schema, "maxLength",
						    GRAMMAR_NO_LIMIT));
		}
		if (s->r)
			return 0;
		if (!min && max == GRAMMAR_NO_LIMIT)
			return grammar_call(s->b, s->text.string);
		if (max != GRAMMAR_NO_LIMIT)
			max = MIN(max, MAX(min, (uint32_t)SCHEMA_LENGTH_MAX));
		x = grammar_repeat(s->b, grammar_call(s->b, s->text.character), min, max);
		return grammar_seq(s->b, quote, x, quote);
	}
	x = schema_string_inside(s, c, &any_string);
	if (any_string)
		return grammar_call(s->b, s->text.string);
	return s->r ? 0 : grammar_seq(s->b, quote, x, quote);
}
