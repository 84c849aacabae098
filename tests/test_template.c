/* Chat templates compared with Python's jinja2, set up as in transformers; refused constructs; bounds; the template
 * of a model.
 *
 * tests/golden/template_cases.json is made by template_cases.py beside it. With "-" as argument this program answers
 * cases on standard input, a JSON object a line, for template_random.py. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/jinja/jinja.h"
#include "tests/impatient.h"
#include "tests/model_text.h"
#include "tests/tap.h"

enum { OUT_MAX = 256 << 20 };

/* Parses a template and renders it. *e gets the error of either. */
static int render(const char *text, size_t len, const json_t *context, struct buf *out,
		  struct err *e)
{
	struct template *t;
	int rc = template_parse("test", text, len, &t, e);

	if (rc < 0)
		return rc;
	rc = template_render(t, context, NULL, out, e);
	template_free(t);
	return rc;
}

/* ---- cases from Python ---- */

static bool same_text(const struct buf *out, const json_t *want)
{
	return out->len == json_string_length(want) &&
	       !memcmp(buf_str(out), json_string_value(want), out->len);
}

/* A case has "output", or it has "error". This is "raised", and the case has the message as "text"; or it is
 * "invalid". */
static void run_case(const json_t *c, const json_t *template, const json_t *context,
		     const char *name)
{
	const json_t *want = json_object_get(c, "output");
	const char *error = json_string_value(json_object_get(c, "error"));
	struct err e = {0};
	struct buf out;
	bool good;
	int rc;

	buf_init(&out, OUT_MAX);
	rc = render(json_string_value(template), json_string_length(template), context, &out, &e);
	if (!error)
		good = rc == 0 && same_text(&out, want);
	else if (!strcmp(error, "raised"))
		good = rc == -EBADMSG &&
		       !strcmp(e.text, json_string_value(json_object_get(c, "text")));
	else
		good = (rc == -EINVAL || rc == -E2BIG) && e.text[0];
	if (!good) {
		printf("# %s: %.1000s\n", name, json_string_value(template));
		printf("#   got  %d %s\n", rc, rc ? e.text : buf_str(&out));
		printf("#   want %s\n", error ? error : json_string_value(want));
		tap_quiet++;
	}
	buf_release(&out);
}

/* Whole templates: each with each conversation and each set of options. */
static void run_whole(const json_t *whole)
{
	const json_t *cases = json_object_get(whole, "cases"), *c;
	size_t i;

	json_array_foreach(cases, i, c)
	{
		const char *style = json_string_value(json_object_get(c, "style"));
		const char *talk = json_string_value(json_object_get(c, "talk"));
		size_t number = (size_t)json_integer_value(json_object_get(c, "options"));
		const json_t *options = json_array_get(json_object_get(whole, "options"), number);
		json_t *context = json_copy((json_t *)options);
		char name[128];

		json_object_set(context, "messages",
				json_object_get(json_object_get(whole, "conversations"), talk));
		snprintf(name, sizeof(name), "in the style of %s, %s, options %zu", style, talk,
			 number);
		run_case(c, json_object_get(json_object_get(whole, "templates"), style), context,
			 name);
		json_decref(context);
	}
	ok(i > 500, "there are whole templates");
	ok_all("%zu renderings of whole templates", i);
}

TEST(python)
{
	json_t *all = json_load_file("tests/golden/template_cases.json", JSON_ALLOW_NUL, NULL);
	const json_t *shared = json_object_get(all, "context"), *group, *c;
	const char *name;
	size_t i;

	ok(json_is_object(shared), "the cases made by Python are there");
	json_object_foreach(json_object_get(all, "groups"), name, group)
	{
		json_array_foreach(group, i, c)
			run_case(c, json_object_get(c, "template"), shared,
				 json_string_value(json_object_get(c, "name")));
		ok_all("%zu cases: %s", json_array_size(group), name);
	}
	run_whole(json_object_get(all, "whole"));
	json_decref(all);
}

/* ---- lexis ---- */

TEST(lexis)
{
	json_t *golden = json_load_file("models/lexis/golden.json", JSON_ALLOW_NUL, NULL), *context;
	const json_t *cases = json_object_get(golden, "cases"), *c;
	struct template *t = NULL;
	struct err e = {0};
	size_t i, rendered = 0;
	struct buf out;

	is_int(model_template("models/lexis", &t, &e), 0, "lexis has a template: %s", e.text);
	json_array_foreach(cases, i, c)
	{
		if (!json_object_get(c, "messages") || !t)
			continue;
		context = json_pack("{s:O, s:b}", "messages", json_object_get(c, "messages"),
				    "add_generation_prompt", 1);
		if (json_object_get(c, "tools"))
			json_object_set(context, "tools", json_object_get(c, "tools"));
		if (json_object_get(c, "chat_template_kwargs"))
			json_object_update(context, json_object_get(c, "chat_template_kwargs"));
		buf_init(&out, OUT_MAX);
		check(template_render(t, context, NULL, &out, &e) == 0);
		check(same_text(&out, json_object_get(c, "text")));
		rendered++;
		buf_release(&out);
		json_decref(context);
	}
	ok_all("lexis: %zu conversations read as in golden.json", rendered);
	ok(rendered > 20, "there are conversations to compare");
	template_free(t);
	json_decref(golden);
}

/* ---- errors, bounds ---- */

static int fails(const char *text, const char *context, struct err *e)
{
	json_t *j = json_loads(context, 0, NULL);
	struct buf out;
	int rc;

	buf_init(&out, OUT_MAX);
	buf_puts(&out, "before");
	rc = render(text, strlen(text), j, &out, e);
	check(rc == 0 || !strcmp(buf_str(&out), "before"));
	buf_release(&out);
	json_decref(j);
	return rc;
}

TEST(errors)
{
	struct err e = {0};

	is_int(fails("a\n{{ b c }}", "{}", &e), -EINVAL, "a syntax error");
	is_str(e.text, "template test, line 2: expected 'end of print statement', got 'c'",
	       "names line and reason");
	is_int(fails("a\n\n{{ b.c.d }}", "{\"b\": {}}", &e), -EINVAL, "an undefined attribute");
	is_str(e.text, "template test, line 3: 'dict object' has no attribute 'c'",
	       "names line and attribute");
	is_int(fails("{{ x|nothing }}", "{}", &e), -EINVAL, "an unknown filter");
	is_str(e.text, "template test, line 1: no filter named 'nothing'", "is named");
	is_int(fails("{{ x is nothing }}", "{}", &e), -EINVAL, "an unknown test");
	is_str(e.text, "template test, line 1: no test named 'nothing'", "is named");
	is_int(fails("\n{{ 'a'.nothing() }}", "{}", &e), -EINVAL, "an unknown method");
	is_str(e.text, "template test, line 2: 'str object' has no attribute 'nothing'",
	       "is named");
	is_int(fails("x{{ raise_exception('no ' + what) }}", "{\"what\": \"luck\"}", &e), -EBADMSG,
	       "raise_exception");
	is_str(e.text, "no luck", "says only its text");
	is_int(fails("x{{ raise_exception('\xc3\xa9' * 1000) }}", "{}", &e), -EBADMSG,
	       "a long message");
	is_int(strlen(e.text) % 2, 0, "is cut between characters");
	is_int(fails("{{ x.append(1) }}", "{\"x\": []}", &e), -EINVAL, "lists cannot be changed");
	ok(strstr(e.text, "unsafe"), "and the message says so");
	is_int(fails("{{ s|indent(1, width=2) }}", "{\"s\": \"\"}", &e), -EINVAL,
	       "an argument that is given twice");
	is_str(e.text, "template test, line 1: indent: argument 'width' is given twice",
	       "is named");
	is_int(fails("{{ strftime_now('%Y\\x00') }}", "{}", &e), -EINVAL,
	       "a NUL in a time's format");
	is_str(e.text, "template test, line 1: strftime_now: the format has a NUL", "is named");
	is_int(fails("{{ '}'.format() }}", "{}", &e), -EINVAL, "a single brace in a format");
	is_str(e.text, "template test, line 1: format: single '}' in format string", "is named");
	is_int(fails("{{ '{'.format() }}", "{}", &e), -EINVAL, "an opening one");
	is_str(e.text, "template test, line 1: format: single '{' in format string", "too");
	is_int(fails("{{ '}s'.format(1) }}", "{}", &e), -EINVAL,
	       "a single brace before the letter of a conversion");
	is_str(e.text, "template test, line 1: format: single '}' in format string", "likewise");
	is_int(fails("x", "[]", &e), -EINVAL, "the context must be an object");
	is_int(render("\xff", 1, NULL, NULL, &e), -EINVAL, "a template is UTF-8");
	is_int(render("{{ x }", 6, NULL, NULL, NULL), -EINVAL, "no struct err is fine");
	ok_all("what was in the buffer stays when a rendering fails");
}

/* ---- constructs that no published chat template uses ---- */

/* use: how a template uses a name of this kind; why: how the error begins; names: those that are not supported. */
static const struct {
	const char *use, *why, *names;
} unsupported_names[] = {
	{"{{ s|%s }}", "filter '%s' is",
	 "attr batch center filesizeformat forceescape format groupby pprint random slice striptags "
	 "truncate urlencode urlize wordcount wordwrap xmlattr"},
	{"{{ s is %s }}", "test '%s' is", "escaped filter lower test upper"},
	{"{{ %s() }}", "function '%s' is", "cycler joiner lipsum"},
	{"{%% %s x %%}", "tag '%s' is",
	 "autoescape block call extends from import include print raw with"},
	{"{{ s.%s() }}", "'%s' of a str is",
	 "casefold center count encode expandtabs format_map index isalnum isalpha isascii isdecimal isdigit "
	 "isidentifier islower isnumeric isprintable isspace istitle isupper ljust maketrans partition "
	 "rindex rjust rpartition swapcase translate zfill"},
	{"{{ [].%s() }}", "'%s' of a list is", "copy count index"},
	{"{{ ().%s() }}", "'%s' of a tuple is", "count index"},
	{"{{ {}.%s() }}", "'%s' of a dict is", "copy fromkeys"},
	{"{{ range(1).%s }}", "'%s' of a range is", "count index start step stop"},
	{"{%% for x in [1] %%}{{ loop.%s(1) }}{%% endfor %%}", "'%s' of a loop is",
	 "changed cycle"},
	{"{%% macro m() %%}{{ %s }}{%% endmacro %%}", "'%s' in a macro is",
	 "caller kwargs varargs"},
};

static const struct {
	const char *text, *why;
} unsupported[] = {
	{"{{ 2 ** 3 }}", "the operator ** is"},
	{"{{ 1 < 2 < 3 }}", "comparisons in a chain (a < b < c) are"},
	{"{{ 5.5 // 2 }}", "// of a float is"},
	{"{{ 5 % 2.5 }}", "% of a float is"},
	{"{{ 0x1F }}", "numbers such as 0x1F, 1_000 and 007 are"},
	{"{{ 1_000 }}", "numbers such as 0x1F, 1_000 and 007 are"},
	{"{{ 007 }}", "numbers such as 0x1F, 1_000 and 007 are"},
	{"{{ '\\N{DASH}' }}", "\\N in a string is"},
	{"{{ '\\101' }}", "\\1 in a string is"},
	{"{{ '\\\xc3\xa9' }}", "\\\xc3\xa9 in a string is"},
	{"{{ s[1, 2] }}", "an index of several parts is"},
	{"{{ range(*[1]) }}", "arguments with * or ** are"},
	{"{{ dict(**{}) }}", "arguments with * or ** are"},
	{"{% macro m() %}{% endmacro %}{{ m.name }}", "attributes of a macro are"},
	{"{{ s.upper.x }}", "attributes of a method are"},
	{"{{ range.x }}", "attributes of a function are"},
	{"{% for x in [1] %}{{ loop }}{% endfor %}", "the text of a loop is"},
	{"{% for x in [1] %}{{ loop|length }}{% endfor %}", "the length of 'loop' itself is"},
	{"{% for x in [1] %}{{ loop|list }}{% endfor %}", "'loop' itself as a list is"},
	{"{{ '5'|int(base=16) }}", "int: the argument 'base' is"},
	{"{{ 5.5|round(0, 'ceil') }}", "round: the argument 'method' is"},
	{"{{ 55|round(-1) }}", "round: a negative precision is"},
	{"{{ {}|tojson(sort_keys=true) }}", "tojson: the argument 'sort_keys' is"},
	{"{{ dict([['a', 1]]) }}", "dict of anything but a dict is"},
	{"{{ strftime_now('%f') }}", "strftime_now: '%f' is"},
	{"{{ strftime_now('%z') }}", "strftime_now: '%z' is"},
	{"{{ strftime_now('%Z') }}", "strftime_now: '%Z' is"},
	{"{{ s.find('a', 1) }}", "find: the argument 'start' is"},
	{"{{ s.rfind('a', 1) }}", "rfind: the argument 'start' is"},
	{"{{ range(3)[1:] }}", "a slice of a range is"},
	{"{{ range(3) }}", "the text of a range is"},
	{"{{ range }}", "the text of a function is"},
	{"{{ s|map('upper') }}", "the text of a generator is"},
	{"{{ s.startswith('a', 1) }}", "startswith: the argument 'start' is"},
	{"{{ s.endswith('a', 1) }}", "endswith: the argument 'start' is"},
	{"{{ '%5d' % 1 }}", "'%5d' is"},
	{"{{ '%.2f' % 1 }}", "'%.2f' is"},
	{"{{ '%(a)s' % {} }}", "'%(a)s' is"},
	{"{{ '%r' % 1 }}", "'%r' is"},
	{"{{ '%x' % 1 }}", "'%x' is"},
	{"{{ '{0}'.format(1) }}", "'{0}' is"},
	{"{{ '{a}'.format(a=1) }}", "'{a}' is"},
	{"{{ '{:>5}'.format(1) }}", "'{:>5}' is"},
	{"{{ '{!r}'.format(1) }}", "'{!r}' is"},
	{"{{ '{0.a}'.format(1) }}", "'{0.a}' is"},
	{"{{ '{a[0]}'.format(1) }}", "'{a[0]}' is"},
	{"{{ (s|safe).upper() }}", "methods of a text of the filter 'safe' are"},
	{"{{ (s|safe) % 1 }}", "formatting a text of the filter 'safe' is"},
	{"{{ s|map('batch')|list }}", "filter 'batch' is"},
	{"{% if s %}{{ s|batch }}{% endif %}", "filter 'batch' is"},
};

static void is_unsupported(const char *text, const char *why)
{
	struct err e = {0};
	char want[200];

	snprintf(want, sizeof(want), "template test, line 1: %s not supported in chat templates",
		 why);
	fails(text, "{\"s\": \"text\"}", &e);
	if (ok(!strncmp(e.text, want, strlen(want)), "refused: %s", text))
		return;
	printf("#   %s\n", e.text);
}

/* Texts longer than any buffer of fixed size that a number or a time would be put into. */
TEST(long_texts)
{
	static const char text[] =
		"{{ ('1' * 600)|float }} {{ ('0.' ~ '1' * 600)|float }} "
		"{{ ('_' ~ '1' * 600)|float }} {{ (' ' * 600 ~ '1_0 ')|int }} "
		"{{ (strftime_now('%c' * 255)|length) == 255 * strftime_now('%c')|length }} ";
	char ones[601] = "", literal[700];
	struct err e = {0};
	json_t *context = json_object();
	struct buf out;

	memset(ones, '1', 600);
	buf_init(&out, OUT_MAX);
	is_int(render(text, strlen(text), context, &out, &e), 0, "long texts: %s", e.text);
	snprintf(literal, sizeof(literal), "{{ %s.0 }}", ones);
	is_int(render(literal, strlen(literal), context, &out, &e), 0, "a long literal: %s",
	       e.text);
	is_str(buf_str(&out), "inf 0.1111111111111111 0.0 10 True inf", "give what Python gives");
	is_int(fails("{{ ('1' * 600)|int }}", "{}", &e), -EINVAL, "a long integer");
	is_str(e.text, "template test, line 1: integer overflow (64 bits)", "does not fit");
	is_int(fails("{{ '9223372036854775808'|int }}", "{}", &e), -EINVAL, "nor does 2^63");
	out.len = 0;
	is_int(render("{{ '-9223372036854775808'|int }}", 32, context, &out, &e), 0,
	       "but -2^63: %s", e.text);
	is_str(buf_str(&out), "-9223372036854775808", "does");
	buf_release(&out);
	json_decref(context);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
TEST(unsupported)
{
	char name[32], text[100], why[100];
	struct err e;

	for (size_t i = 0; i < ARRAY_SIZE(unsupported_names); i++) {
		const char *p = unsupported_names[i].names;

		for (size_t n; *p; p += n + (p[n] == ' ')) {
			n = strcspn(p, " ");
			snprintf(name, sizeof(name), "%.*s", (int)n, p);
			snprintf(text, sizeof(text), unsupported_names[i].use, name);
			snprintf(why, sizeof(why), unsupported_names[i].why, name);
			is_unsupported(text, why);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(unsupported); i++)
		is_unsupported(unsupported[i].text, unsupported[i].why);
	fails("{% for x in [1] recursive %}{% endfor %}", "{}", &e);
	is_str(e.text, "template test, line 1: recursive loops are not supported",
	       "recursive loops");
	fails("{{ 9223372036854775807 + 1 }}", "{}", &e);
	is_str(e.text, "template test, line 1: integer overflow (64 bits)", "large integers");
	fails("{{ 99999999999999999999 }}", "{}", &e);
	is_str(e.text,
	       "template test, line 1: integer 99999999999999999999 does not fit into 64 bits",
	       "in literals too");
}
#pragma GCC diagnostic pop

static char *repeated(const char *head, const char *piece, size_t n, const char *tail)
{
	struct buf b;

	buf_init(&b, OUT_MAX);
	buf_puts(&b, head);
	for (size_t i = 0; i < n; i++)
		buf_puts(&b, piece);
	buf_puts(&b, tail);
	return b.data;
}

/* Each of these would take forever, or all memory, or the stack, or more than 64 bits. */
TEST(bounds)
{
	static const char *const hostile[] = {
		"{{ range(1000000000)|list }}",
		"{% for i in range(100000) %}{% for k in range(100000) %}{% for m in range(100000) "
		"%}"
		"{% endfor %}{% endfor %}{% endfor %}",
		"{{ 'a' * 1000000000000 }}",
		"{{ 'a' * 9223372036854775807 }}",
		"{{ [1] * 1000000000000 }}",
		"{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s * 2 %}"
		"{% endfor %}",
		"{% for i in range(100000) %}{{ 'abcdefgh' * 100000 }}{% endfor %}",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}"
		"{% endfor %}{{ ns.l }}",
		"{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}"
		"{% endfor %}{{ ns.l|tojson }}",
		"{% set ns = namespace(l=[], m=[]) %}{% for i in range(5000) %}{% set ns.l = "
		"[ns.l] %}"
		"{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
		"{% set ns = namespace(l=()) %}{% for i in range(5000) %}{% set ns.l = (ns.l,) %}"
		"{% endfor %}{{ {ns.l: 1} }}",
		"{% set ns = namespace(l=['a']) %}{% for i in range(50000) %}"
		"{% set ns.l = ns.l|map('upper') %}{% endfor %}{{ ns.l|list }}",
		"{{ ''.join(['aaaaaaaaaa' * 1000000] * 100000) }}",
		"{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
		"{{ ('a' * 1000000).rfind('a' * 500000 ~ 'b') }}",
		"{{ ('a' * 1000000).rsplit('a' * 500000 ~ 'b') }}",
		"{{ ('a' * 1000000).strip('b' * 10000000 ~ 'a') }}",
		"{{ [range(100000)]|map('list')|map('list')|list * 10000 }}",
		"{{ range(100000)|map('string')|list|join('a' * 100000) }}",
		"{% set ns = namespace(x=0) %}{% for i in range(100000) %}{% for k in range(100000) %}"
		"{% set ns.x = ns.x + 1 %}{% endfor %}{% endfor %}",
		"{{ 9223372036854775807 * 2 }}",
		"{{ -9223372036854775807 - 2 }}",
	};
	struct err e = {0};
	char *text;
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		rc = fails(hostile[i], "{}", &e);
		if (rc != -E2BIG && rc != -EINVAL)
			printf("# %d %s\n", rc, hostile[i]);
		check(rc == -E2BIG || rc == -EINVAL);
	}
	ok_all("hostile templates end with an error");
	static const struct {
		const char *head, *piece, *tail;
	} deep[] = {
		{"{{ ", "(", ""},
		{"{{ ", "[", ""},
		{"{{ ", "{", ""},
		{"{{ ", "not ", "1 }}"},
		{"{{ ", "- ", "1 }}"},
		{"{{ ", "1 if 1 else ", "1 }}"},
		{"{{ 1", "+1", " }}"},
		{"{{ x", ".a", " }}"},
		{"{{ x", "[0]", " }}"},
		{"{{ x", "()", " }}"},
		{"{{ x", "|list", " }}"},
		{"{{ 1", " and 1", " }}"},
		{"", "{% if 1 %}", ""},
		{"{{ x", "(a", ""},
		{"{{ x is ", "a is ", "b }}"},
		{"", "{% for i in x %}", ""},
		{"{{ x", "[a:", ""},
		{"{{ ", "f(a=", ""},
		{"", "{% macro a() %}", ""},
		{"", "{% set x %}", ""},
		{"{% set ", "(", "a = 1 %}"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(deep); i++) {
		text = repeated(deep[i].head, deep[i].piece, 100000, deep[i].tail);
		check(fails(text, "{}", &e) == -EINVAL);
		free(text);
	}
	ok_all("deep nesting is refused when a template is read");
	text = repeated("", "x", 2 << 20, "");
	is_int(fails(text, "{}", &e), -EINVAL, "a template of two megabytes is refused");
	free(text);
	text = repeated("{% if x %}", "{% elif y %}b", 50000, "{% endif %}ok");
	is_int(fails(text, "{}", &e), 0, "fifty thousand branches are fine");
	free(text);
	text = repeated("", "{{ x }}{% if y %}{% set x = 1 %}{% endif %}", 20000, "");
	is_int(fails(text, "{}", &e), 0, "so are twenty thousand ifs");
	free(text);
}

TEST(buffer)
{
	static const char text[] = "{% for i in range(50) %}0123456789{% endfor %}";
	json_t *context = json_object();
	struct err e = {0};
	struct buf out;

	buf_init(&out, 100);
	is_int(render(text, strlen(text), context, &out, &e), -E2BIG,
	       "a small buffer is respected");
	ok(!out.failed && out.len == 0, "and left as it was");
	buf_release(&out);
	json_decref(context);
}

/* ---- strings ---- */

TEST(nul)
{
	static const char text[] = "{{ x|length }}{{ x }}|{{ x[1:] }}|{{ x|tojson }}|{{ [x] }}";
	static const char want[] = "3a\0b|\0b|\"a\\u0000b\"|['a\\x00b']";
	json_t *context = json_loads("{\"x\": \"a\\u0000b\"}", JSON_ALLOW_NUL, NULL);
	struct err e = {0};
	struct buf out;

	buf_init(&out, OUT_MAX);
	is_int(render(text, strlen(text), context, &out, &e), 0, "a NUL in a message");
	ok(out.len == sizeof(want) - 1 && !memcmp(out.data, want, out.len), "is a character");
	buf_release(&out);
	json_decref(context);
}

/* ---- the text ---- */

TEST(text)
{
	char text[] = "a{{ b }}";
	struct template *t;
	struct err e = {0};
	size_t len;

	is_int(template_parse("test", text, sizeof(text) - 1, &t, &e), 0, "a template");
	memset(text, 0, sizeof(text));
	is_str(template_text(t, &len), "a{{ b }}", "has a copy of its text");
	is_int((long long)len, sizeof(text) - 1, "all of it");
	template_free(t);
}

/* ---- a pace ---- */

TEST(pace)
{
	static const char text[] = "{% for i in range(100000) %}{{ i }}{% endfor %}";
	int left = 2;
	const struct pace pace = {impatient, &left};
	json_t *context = json_object();
	struct template *t;
	struct err e = {0};
	struct buf out;

	buf_init(&out, OUT_MAX);
	check(template_parse("test", text, sizeof(text) - 1, &t, &e) == 0);
	is_int(template_render(t, context, &pace, &out, &e), -ECANCELED,
	       "a rendering is given up at the third question");
	is_int((long long)out.len, 0, "which leaves nothing behind");
	left = 1 << 30;
	is_int(template_render(t, context, &pace, &out, &e), 0, "a patient caller gets all");
	ok((1 << 30) - left > 9, "and is asked often (%d times)", (1 << 30) - left);
	template_free(t);
	json_decref(context);
	buf_release(&out);
}

/* ---- threads ---- */

enum { THREADS = 8, ROUNDS = 200 };

struct job {
	const struct template *t;
	const json_t *context;
	const char *want;
	int wrong;
};

static void *render_often(void *arg)
{
	struct job *j = arg;
	struct err e;
	struct buf out;

	buf_init(&out, OUT_MAX);
	for (int i = 0; i < ROUNDS; i++) {
		buf_reset(&out);
		if (template_render(j->t, j->context, NULL, &out, &e) < 0 ||
		    strcmp(buf_str(&out), j->want))
			j->wrong++;
	}
	buf_release(&out);
	return NULL;
}

/* One template and one context, rendered by all threads at once. */
TEST(threads)
{
	static const char text[] =
		"{% macro m(a, b='x') %}{{ a|upper }}{{ b }}{% endmacro %}"
		"{% set ns = namespace(n=0) %}"
		"{% for message in messages if message.role != 'system' %}"
		"{% set ns.n = ns.n + loop.index %}{{ m(message.content) }}"
		"{{ message.extra|dictsort|map('join', '=')|join(',') }};{% endfor %}{{ ns.n }}";
	json_t *context = json_loads("{\"messages\": [{\"role\": \"system\", \"content\": \"s\"},"
				     "{\"role\": \"user\", \"content\": \"\\u00e9t\\u00e9\", "
				     "\"extra\": {\"b\": 1, \"a\": 2}},"
				     "{\"role\": \"user\", \"content\": \"b\", \"extra\": {}}]}",
				     0, NULL);
	pthread_t threads[THREADS];
	struct job jobs[THREADS];
	struct template *t = NULL;
	struct err e = {0};

	is_int(template_parse("threads", text, strlen(text), &t, &e), 0, "parses %s", e.text);
	for (int i = 0; i < THREADS; i++) {
		jobs[i] = (struct job){t, context, "\xc3\x89T\xc3\x89xa=2,b=1;Bx;3", 0};
		pthread_create(&threads[i], NULL, render_often, &jobs[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		check(jobs[i].wrong == 0);
	}
	ok_all("%d threads render one template %d times each", THREADS, ROUNDS);
	template_free(t);
	json_decref(context);
}

/* ---- answering template_random.py ---- */

static void answer(const json_t *c)
{
	const json_t *template = json_object_get(c, "template");
	struct err e = {0};
	struct buf out;
	json_t *reply;
	int rc;

	buf_init(&out, OUT_MAX);
	rc = render(json_string_value(template), json_string_length(template),
		    json_object_get(c, "context"), &out, &e);
	reply = rc ? json_pack("{s:i, s:s}", "error", -rc, "text", e.text)
		   : json_pack("{s:o}", "output", json_stringn_nocheck(buf_str(&out), out.len));
	json_dumpf(reply, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	printf("\n");
	fflush(stdout);
	json_decref(reply);
	buf_release(&out);
}

static int serve(void)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	while ((n = getline(&line, &cap, stdin)) > 0) {
		json_t *c = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);

		answer(c);
		json_decref(c);
	}
	free(line);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "-"))
		return serve();
	run_tests();
	return done();
}
