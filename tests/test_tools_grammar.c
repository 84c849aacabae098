/* protocol/output/tools_grammar: random answers of the grammars of all formats are read by their parsers as calls whose
 * arguments are valid. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/problem.h"
#include "protocol/grammar/automaton.h"
#include "protocol/output/tools_grammar.h"
#include "tests/quoted.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { TEXT_MAX = 1 << 14, ROUNDS = 400 };

/* `look` has parameters of all kinds, `now` none, `old` no schema. */
#define LOOK                                                                                              \
	"{'type':'function','function':{'name':'look','parameters':{'type':'object','properties':{"       \
	"'word':{'type':'string'},'kind':{'enum':['bow','arrow <','x y']},"                               \
	"'n':{'type':'integer','minimum':1,'maximum':40},"                                                \
	"'short':{'type':'string','minLength':2,'maxLength':4},"                                          \
	"'code':{'type':'string','pattern':'^[a-z<]{2}[0-9]+$'},'day':{'type':'string','format':'date'}," \
	"'maybe':{'anyOf':[{'type':'string','enum':['p','q']},{'type':'null'},{'type':'integer'}]},"      \
	"'list':{'type':'array','items':{'type':'boolean'},'minItems':1,'maxItems':3},"                   \
	"'inner':{'type':'object','properties':{'a':{'type':'string','maxLength':5}},'required':['a']},"  \
	"'any':{'type':'array'},'ref':{'$ref':'#/$defs/r'}},"                                             \
	"'required':['word','kind','n','list','free'],'$defs':{'r':{'enum':['r1','r2']}}}}}"
#define NOW   "{'function':{'name':'now'}}"
#define OLD   "{'function':{'name':'old','parameters':{'type':'object','properties':{}}}}"
#define TOOLS "[" LOOK "," NOW "," OLD "]"

/* As protocol/openai/tools.c lists it. */
static const struct tool_parameter types[] = {
	{"n", TOOLS_NUMBER},   {"maybe", TOOLS_STRING | TOOLS_NULL | TOOLS_NUMBER},
	{"list", TOOLS_ARRAY}, {"inner", TOOLS_OBJECT},
	{"any", TOOLS_ARRAY},
};
static const struct tool list_of_tools[] = {{"look", types, ARRAY_SIZE(types)}, {"now"}, {"old"}};
static const struct tool_list list = {list_of_tools, ARRAY_SIZE(list_of_tools)};

static const struct tools_format *format_of(const char *name)
{
	for (size_t i = 0;; i++)
		if (!strcmp(tools_name(tools_format_at(i)), name))
			return tools_format_at(i);
}

static const char *const formats[] = {"hermes", "qwen_xml", "mistral", "llama_json", "pythonic"};

/* ---- random texts of a grammar ---- */

static const char *const hints[] = {"\"",
				    "}",
				    "]",
				    ")",
				    ", ",
				    ": ",
				    "\n",
				    "<tool_call>\n",
				    "\n</tool_call>",
				    "\n</parameter>\n",
				    "</function>\n</tool_call>",
				    "true",
				    "null",
				    "bow",
				    "1",
				    "2024-01-31",
				    "ab7",
				    "abc",
				    "</param",
				    "</parameter>",
				    "[\"",
				    "\n<",
				    "\\\"",
				    "{\"a\": \"",
				    "[TOOL_CALLS]",
				    "[ARGS]",
				    "{",
				    "[",
				    "'"};

/* Writes a random text of the grammar. Returns its length; 0: it became too long. */
static size_t random_text(struct automaton *a, char *out)
{
	uint32_t state = AUTOMATON_START;
	size_t n = 0;

	while (n < TEXT_MAX - 64) {
		const char *hint = hints[random_below(ARRAY_SIZE(hints))];
		uint32_t next = automaton_read(a, state, hint, strlen(hint));
		int c = (int)random_below(256);

		if (automaton_may_end(a, state) && n && !random_below(3))
			return n;
		if (random_below(4) && next != AUTOMATON_DEAD) {
			memcpy(out + n, hint, strlen(hint));
			n += strlen(hint);
			state = next;
			continue;
		}
		for (int k = 0; k < 256; k++, c = (c + 1) % 256) {
			next = automaton_next(a, state, (uint8_t)c);
			if (next != AUTOMATON_DEAD)
				break;
		}
		if (next == AUTOMATON_DEAD)
			return n;
		out[n++] = (char)c;
		state = next;
	}
	return 0;
}

/* ---- reading calls ---- */

struct reader {
	char names[64][8];
	struct buf arguments[64], text;
	uint32_t n;
	bool open;
};

static void take(void *to, const struct tools_event *e)
{
	struct reader *r = to;

	switch (e->type) {
	case TOOLS_TEXT: buf_append(&r->text, e->text, e->len); break;
	case TOOLS_BEGIN:
		snprintf(r->names[r->n], sizeof(r->names[0]), "%.*s", (int)e->len, e->text);
		buf_init(&r->arguments[r->n++], 1 << 20);
		break;
	case TOOLS_ARGUMENTS: buf_append(&r->arguments[r->n - 1], e->text, e->len); break;
	case TOOLS_END: break;
	}
}

static bool is_string_of(const json_t *v, size_t min, size_t max)
{
	return json_is_string(v) && json_string_length(v) >= min && json_string_length(v) <= max;
}

/* Whether the value is one of the strings; or it is absent and may be. */
static bool is_one(const json_t *v, bool optional, const char *const *texts)
{
	if (!v)
		return optional;
	for (; *texts; texts++)
		if (json_is_string(v) && !strcmp(json_string_value(v), *texts))
			return true;
	return false;
}

static bool look_is_valid(const json_t *o)
{
	const json_t *n = json_object_get(o, "n"), *list_ = json_object_get(o, "list"), *v;
	const json_t *code = json_object_get(o, "code"), *inner = json_object_get(o, "inner");
	const char *key;
	bool good = json_is_string(json_object_get(o, "word")) && json_object_get(o, "free");
	size_t i;

	good &= is_one(json_object_get(o, "kind"), false,
		       (const char *const[]){"bow", "arrow <", "x y", NULL});
	good &= json_is_integer(n) && json_integer_value(n) >= 1 && json_integer_value(n) <= 40;
	good &= json_array_size(list_) >= 1 && json_array_size(list_) <= 3;
	json_array_foreach(list_, i, v) good &= json_is_boolean(v);
	v = json_object_get(o, "short");
	good &= !v || is_string_of(v, 2, 16);
	good &= !code ||
		(is_string_of(code, 3, 1000) &&
		 strspn(json_string_value(code) + 2, "0123456789") == json_string_length(code) - 2);
	v = json_object_get(o, "day");
	good &= !v || (is_string_of(v, 10, 10) && json_string_value(v)[4] == '-');
	v = json_object_get(o, "maybe");
	good &= !v || json_is_null(v) || json_is_integer(v) ||
		is_one(v, false, (const char *const[]){"p", "q", NULL});
	good &= !inner ||
		(json_object_size(inner) == 1 && is_string_of(json_object_get(inner, "a"), 0, 20));
	good &= is_one(json_object_get(o, "ref"), true, (const char *const[]){"r1", "r2", NULL});
	v = json_object_get(o, "any");
	good &= !v || json_is_array(v);
	json_object_foreach((json_t *)o, key, v) good &=
		strstr("word kind n short code day maybe list inner any ref free", key) != NULL;
	return good;
}

/* Reads an answer. Returns whether it is calls alone, or text alone, or text and calls, as `rest` says. */
static bool answer_is_valid(const struct tools_demand *d, const char *text, size_t len)
{
	struct reader r = {0};
	struct tools *t;
	bool good;

	buf_init(&r.text, 1 << 20);
	t = tools_new(d->format, &list, false, take, &r);
	tools_push(t, text, len);
	tools_finish(t);
	good = !tools_cut(t) && !tools_failed(t) &&
	       (d->rest != TOOLS_CALLS_ONLY || (r.n && !r.text.len));
	good &= !d->one || r.n <= 1;
	for (uint32_t i = 0; i < r.n; i++) {
		json_t *o = json_loadb(r.arguments[i].data ? r.arguments[i].data : "",
				       r.arguments[i].len, 0, NULL);

		good &= json_is_object(o) && (!d->only || !strcmp(d->only, r.names[i]));
		if (d->strict && !strcmp(r.names[i], "look"))
			good &= look_is_valid(o);
		else if (d->strict)
			good &= !json_object_size(o);
		json_decref(o);
		buf_release(&r.arguments[i]);
	}
	tools_free(t);
	buf_release(&r.text);
	return good;
}

static int make(const struct tools_demand *d, struct grammar **ret, struct err *e)
{
	*e = (struct err){0};
	return tools_grammar(d, NULL, ret, e);
}

static void walk(struct tools_demand d, const char *what)
{
	json_t *tools = json_loads(quoted(TOOLS), 0, NULL);
	struct grammar *g = NULL;
	struct automaton *a = NULL;
	static char text[TEXT_MAX];
	uint32_t n = 0;
	struct err e;

	d.tools = tools;
	d.list = &list;
	if (make(&d, &g, &e) < 0 || automaton_new(g, (size_t)256 << 20, NULL, &a) < 0) {
		ok(false, "%s: %s", what, e.text);
		json_decref(tools);
		return;
	}
	for (int i = 0; i < ROUNDS; i++) {
		size_t len = random_text(a, text);

		if (!len)
			continue;
		n++;
		if (!answer_is_valid(&d, text, len)) {
			printf("# not valid: %.*s\n", (int)len, text);
			tap_quiet++;
			break;
		}
	}
	if (automaton_failed(a, &e) < 0)
		printf("# %s\n", e.text);
	check(n > ROUNDS / 4 && !automaton_failed(a, NULL));
	ok_all("%s: %u answers", what, n);
	automaton_free(a);
	grammar_free(g);
	json_decref(tools);
}

TEST(demanded)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		struct tools_demand d = {.format = format_of(formats[i]), .strict = true};
		char what[64];

		snprintf(what, sizeof(what), "%s, required", formats[i]);
		walk(d, what);
		d.one = true;
		d.only = "look";
		snprintf(what, sizeof(what), "%s, named", formats[i]);
		walk(d, what);
		d.strict = false;
		d.only = NULL;
		snprintf(what, sizeof(what), "%s, any arguments", formats[i]);
		walk(d, what);
	}
}

TEST(text_or_calls)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		struct tools_demand d = {.format = format_of(formats[i]),
					 .strict = true,
					 .rest = TOOLS_OR_TEXT};
		char what[64];

		snprintf(what, sizeof(what), "%s, or text", formats[i]);
		walk(d, what);
		d.rest = TOOLS_OR_JSON;
		snprintf(what, sizeof(what), "%s, or JSON", formats[i]);
		/* JSON in which a call may be seen: the format of Llama, and strings, which choice.c keeps apart. */
		if (strcmp(formats[i], "llama_json") && strcmp(formats[i], "pythonic"))
			walk(d, what);
	}
}

/* The text of the calls is as the templates write it. */
TEST(texts)
{
	static const struct {
		const char *format, *text;
	} texts[] = {
		{"hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n"
			   "<tool_call>\n{\"name\": \"old\", \"arguments\": {}}\n</tool_call>"},
		{"qwen_xml",
		 "<tool_call>\n<function=look>\n<parameter=word>\na <b>\n\n</parameter>\n"
		 "<parameter=kind>\nbow\n</parameter>\n<parameter=n>\n7\n</parameter>\n"
		 "<parameter=list>\n[true, false]\n</parameter>\n"
		 "<parameter=free>\nx\n</parameter>\n</function>\n</tool_call>"},
		{"mistral", "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]old[ARGS]{}"},
		{"mistral", "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]"},
		{"llama_json",
		 "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"old\", \"parameters\": {}}"},
		{"pythonic", "[look(word=\"a\", kind=\"x y\", n=2, list=[true], free=1), now()]"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		json_t *tools = json_loads(quoted(TOOLS), 0, NULL);
		const struct tools_demand d = {.format = format_of(texts[i].format),
					       .strict = true,
					       .tools = tools,
					       .list = &list};
		struct grammar *g = NULL;
		struct automaton *a = NULL;
		struct err e;
		uint32_t state;

		if (make(&d, &g, &e) < 0 || automaton_new(g, (size_t)64 << 20, NULL, &a) < 0)
			abort();
		state = automaton_read(a, AUTOMATON_START, texts[i].text, strlen(texts[i].text));
		ok(state != AUTOMATON_DEAD && automaton_may_end(a, state), "%s: %s",
		   texts[i].format, strchr(texts[i].text, '\n') ? "calls" : texts[i].text);
		automaton_free(a);
		grammar_free(g);
		json_decref(tools);
	}
}

/* A strict call of Qwen's XML, up to the value of its only parameter x. */
struct xml_value {
	struct tool_parameter x;
	struct tool tool;
	json_t *tools;
	struct grammar *g;
	struct automaton *a;
	uint32_t start; /* the automaton's state in front of the value */
};

static bool xml_value_open(struct xml_value *v, const char *schema, unsigned x_types)
{
	static const char before[] = "<tool_call>\n<function=f>\n<parameter=x>\n";
	struct tool_list only = {&v->tool, 1};
	struct tools_demand d = {.format = format_of("qwen_xml"), .strict = true, .list = &only};
	struct err e = {0};

	*v = (struct xml_value){.x = {"x", x_types}, .tool = {"f", &v->x, 1}};
	v->tools = json_pack("[{s:{s:s,s:{s:s,s:{s:o},s:[s]}}}]", "function", "name", "f",
			     "parameters", "type", "object", "properties", "x",
			     json_loads(quoted(schema), 0, NULL), "required", "x");
	d.tools = v->tools;
	if (make(&d, &v->g, &e) < 0 || automaton_new(v->g, (size_t)64 << 20, NULL, &v->a) < 0)
		return ok(false, "%s: %s", schema, e.text);
	v->start = automaton_read(v->a, AUTOMATON_START, before, strlen(before));
	return true;
}

/* Returns the state behind the value and the rest of the call. */
static uint32_t xml_value_read(const struct xml_value *v, const char *text, size_t n)
{
	static const char behind[] = "\n</parameter>\n</function>\n</tool_call>";
	uint32_t state = automaton_read(v->a, v->start, text, n);

	return automaton_read(v->a, state, behind, strlen(behind));
}

static void xml_value_close(struct xml_value *v)
{
	automaton_free(v->a);
	grammar_free(v->g);
	json_decref(v->tools);
}

/* A value of Qwen's XML ends at </parameter>, also within a string of JSON: there '<' is escaped, however the schema has
 * brought it. */
TEST(no_tag_in_json)
{
	static const struct {
		const char *schema, *bad, *good;
	} values[] = {
		{"{'type':'array'}", "['</parameter>']", "['\\u003c/parameter>']"},
		{"{'type':'object','additionalProperties':true}", "{'</parameter>': 1}",
		 "{'b': '\\u003c'}"},
		{"{'type':'array','items':{'type':'string','minLength':3}}", "['</parameter>']",
		 "['\\u003c/parameter>']"},
		{"{'type':'array','items':{'type':'string','pattern':'^<[^a]'}}",
		 "['</parameter>']", "['\\u003c/\\u003c']"},
		{"{'type':'array','items':{'enum':['a<b<','</parameter>']}}", "['</parameter>']",
		 "['a\\u003cb\\u003c', '\\u003c/parameter>']"},
		{"{'type':'array','items':{'not':{'const':'a<'}}}", "['a\\u003c']", "['b']"},
		{"{'type':'object','properties':{'<':{}},'required':['<']}", "{'<': 1}",
		 "{'\\u003c': 1}"},
		{"{'type':'object','patternProperties':{'<':{'type':'null'}}}",
		 "{'</parameter>': null}", "{'\\u003c/parameter>': null}"},
		{"{'const':{'<':['<']}}", "{'<': ['<']}", "{'\\u003c': ['\\u003c']}"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		struct xml_value v;
		uint32_t state;
		const char *text;

		if (!xml_value_open(&v, values[i].schema, TOOLS_ARRAY | TOOLS_OBJECT))
			continue;
		text = quoted(values[i].bad);
		state = automaton_read(v.a, v.start, text, strlen(text));
		check(state == AUTOMATON_DEAD);
		text = quoted(values[i].good);
		state = xml_value_read(&v, text, strlen(text));
		check(state != AUTOMATON_DEAD && automaton_may_end(v.a, state));
		ok_all("%s", values[i].schema);
		xml_value_close(&v);
	}
}

/* A text in the form of a number, a word or a list is read as one if the schema has values of that type. So it is no string
 * of Qwen's XML, and it is written only if the schema accepts the value. */
TEST(no_json_in_strings)
{
	enum { S = TOOLS_STRING, N = TOOLS_NUMBER, B = TOOLS_BOOLEAN, A = TOOLS_ARRAY };
	static const struct {
		const char *schema, *bad, *good; /* texts with '|' between */
		unsigned types;
	} values[] = {
		{"{'type':['string','integer'],'minimum':50}", "12|1.5| 49 |-1e5",
		 "60|a|12a|1.|-|e5|", S | N},
		{"{'type':['string','integer'],'maximum':5,'maxLength':4}", "12|1.50|6",
		 "5|abc|1.|6 a", S | N},
		{"{'enum':['1','-0','a',2]}", "1|-0", "a|2", S | N},
		{"{'type':['string','integer'],'maximum':5,'maxLength':9000}", "12|1.50|6", "5|abc",
		 S | N},
		{"{'anyOf':[{'type':'string','pattern':'^[0-9a]+$'},{'const':7}]}", "8|77",
		 "7|7a|aa", S | N},
		{"{'anyOf':[{'type':'string'},{'const':true}]}", "false|False| false",
		 "true|falsehood|x", S | B},
		{"{'anyOf':[{'type':'string'},{'type':'array','maxItems':0}]}", "[1]| [x",
		 "[]|x [1]", S | A},
		{"{'type':['string','null'],'maxLength':4}", "nulls", "null|None|abcd",
		 S | TOOLS_NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		struct xml_value v;

		if (!xml_value_open(&v, values[i].schema, values[i].types))
			continue;
		for (int good = 0; good < 2; good++) {
			const char *text = good ? values[i].good : values[i].bad;

			for (size_t n;; text += n + 1) {
				n = strcspn(text, "|");
				check((xml_value_read(&v, text, n) != AUTOMATON_DEAD) == good);
				if (!text[n])
					break;
			}
		}
		ok_all("%s", values[i].schema);
		xml_value_close(&v);
	}
}

TEST(refused)
{
	static const struct {
		const char *format, *name, *parameters, *text;
	} bad[] = {
		{"hermes", "f", "{'properties':{'a':{'contentX':1}}}", "contentX"},
		{"hermes", "f", "{'type':'array'}", "no arguments can be valid"},
		{"qwen_xml", "f", "{'properties':{'a':{'contentX':1}}}", "contentX"},
		{"qwen_xml", "f", "{'anyOf':[{'type':'object'}]}", "anyOf"},
		{"qwen_xml", "f", "{'properties':{'a<':{}}}", "a parameter's name"},
		{"qwen_xml", "f>", "{}", "its name"},
		{"mistral", "f[", "{}", "its name"},
		{"pythonic", "f g", "{}", "its name"},
		{"pythonic", "f", "{'properties':{'a b':{}}}", "a parameter's name"},
		{"pythonic", "f", "{'properties':{'':{}}}", "a parameter's name"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct tool one = {bad[i].name};
		struct tool_list only = {&one, 1};
		json_t *schema = json_loads(quoted(bad[i].parameters), 0, NULL);
		json_t *tools = json_pack("[{s:{s:s,s:o}}]", "function", "name", bad[i].name,
					  "parameters", schema);
		const struct tools_demand d = {.format = format_of(bad[i].format),
					       .strict = true,
					       .tools = tools,
					       .list = &only};
		struct grammar *g = NULL;
		struct err e;
		int r = make(&d, &g, &e);

		ok(r < 0 && r == -e.code && strstr(e.text, bad[i].text), "%s: %s", bad[i].format,
		   e.text);
		grammar_free(g);
		json_decref(tools);
	}
}

TEST_MAIN()
