/* protocol/output/tools: calls are found in the text of each format. First examples, which are cut in two at each place
 * and then into single bytes; then random texts, cut at random. */
#include "protocol/output/tools.h"

#include <fcntl.h>

#include "base/file.h"
#include "protocol/output/literal.h"
#include "tests/random.h"
#include "tests/tap.h"
#include "tests/tools_check.h"

enum format { QWEN_XML, HERMES, MISTRAL, LLAMA_JSON, PYTHONIC, FORMATS };

static const char *const names[] = {"qwen_xml", "hermes", "mistral", "llama_json", "pythonic"};

static void run(enum format format, bool one, const char *text, size_t cut, struct seen *s)
{
	size_t len = strlen(text);

	seen_begin(s, format, one);
	if (cut <= len) {
		tools_push(s->tools, text, cut);
		see_pause(s);
		tools_push(s->tools, text + cut, len - cut);
	} else {
		for (size_t i = 0; i < len; i++) {
			tools_push(s->tools, text + i, 1);
			see_pause(s);
		}
	}
	seen_end(s);
}

static void example_of(enum format format, bool one, const char *text, const char *want)
{
	for (size_t cut = 0; cut <= strlen(text) + 1; cut++) {
		struct seen s;

		run(format, one, text, cut, &s);
		if (strcmp(buf_str(&s.all), want) != 0 || s.n_wrong) {
			if (!tap_quiet++)
				printf("# cut at %zu, %zu rules broken:\n# got  %s\n# want %s\n",
				       cut, s.n_wrong, buf_str(&s.all), want);
		}
		seen_release(&s);
	}
	ok_all("%s: %.60s", names[format], strchr(want, '\n') ? "(lines)" : want);
}

static void example(enum format format, const char *text, const char *want)
{
	example_of(format, false, text, want);
}

#define F	"{\"name\": \"f\", \"arguments\": {}}"
#define CALL(x) "<tool_call>\n" x "\n</tool_call>"

TEST(hermes)
{
	const enum format h = HERMES;

	example(h, "", "");
	example(h, "\n plain <b>text</b> { \"name\" } \n", "\n plain <b>text</b> { \"name\" } \n");
	example(h, CALL("{\"name\": \"look_up\", \"arguments\": {\"word\": \"bow\"}}"),
		"«look_up|{\"word\": \"bow\"}»");
	example(h, "Let me see. \r\n\n" CALL(F) "\n", "Let me see. «f|{}»");
	example(h, CALL(F) "\n" CALL(F) CALL(F), "«f|{}»«f|{}»«f|{}»");
	example(h, CALL(F) "\n\nDone.\n", "«f|{}»Done.\n");
	example(h, "<tool_call>" F "</tool_call>", "«f|{}»");
	example(h, CALL("{\"arguments\": {\"a\": [1, {}]}, \"name\": \"f\"}"),
		"«f|{\"a\": [1, {}]}»");
	example(h,
		CALL("{\"id\": 7, \"name\": \"f\", \"x\": [\"}\"], \"parameters\": {\"b\": 1}, \"y\": 2}"),
		"«f|{\"b\": 1}»");
	example(h, CALL("{\"name\": \"f\"}"), "«f|{}»");
	example(h, CALL("{\"name\": \"f\", \"arguments\": null}"), "«f|{}»");
	example(h, CALL("{\"name\": \"f\", \"arguments\": \"\"}"), "«f|{}»");
	example(h, CALL("{\"arguments\": \" \\n\", \"name\": \"f\"}"), "«f|{}»");
	example(h, CALL("{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\\"}\"}"),
		"«f|{\"a\": \"\u00e9\"}»");
	example(h, CALL("{\"na\\u006de\": 1, \"name\": \"\\u0066\", \"arguments\": {}}"), "«f|{}»");
	example(h,
		CALL("{\"name\": \"f\", \"arguments\": {\"t\": \"</tool_call> <tool_call> \u00e9 \\ud83d\\ude00\"}}"),
		"«f|{\"t\": \"</tool_call> <tool_call> \u00e9 \\ud83d\\ude00\"}»");
}

/* Text that is no call comes back as it is. */
TEST(malformed)
{
	static const char *const texts[] = {
		"<tool_call>",
		" <tool_call>\n\n{\"name",
		"<tool_call>\n{\"name\": \"f\", \"arguments\": ",
		CALL("look_up(word)"),
		CALL("{\"name\": \"g\", \"arguments\": {}}"),
		CALL("{\"arguments\": {\"a\": 1}, \"name\": \"g\"}"),
		CALL("{\"name\": \"f\", \"arguments\": [1]}"),
		CALL("{\"name\": \"f\", \"arguments\": 5}"),
		CALL("{\"name\": \"f\", \"arguments\": \"\\u0000\"}"),
		CALL("{\"name\": \"f\\u0000\", \"arguments\": {}}"),
		CALL("{\"name\": \"f\", \"arguments\": \"{\"}"),
		CALL("{\"name\": 5, \"arguments\": {}}"),
		CALL("{\"arguments\": {}}"),
		CALL("{\"arguments\": {\"a\": tru}, \"name\": \"f\"}"),
		CALL("{}"),
		CALL("[]"),
		CALL("{'name': 'f', 'arguments': {}}"),
		CALL("{\"name\": \"f\" \"arguments\": {}}"),
		CALL("{,\"name\": \"f\"}"),
		CALL("{\"name\": \"f\",}"),
		CALL("{\"name\": \"f\", \"arguments\": nul}"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		example(HERMES, texts[i], texts[i]);
	example(HERMES, "<tool_call>\n<tool_call>\n" F "\n</tool_call>", "<tool_call>\n«f|{}»");
	example(HERMES, "<tool_call>{\"name\": <tool_call>" F, "<tool_call>{\"name\": «f|{}»");
	/* A call that has begun ends there, and the rest is text. */
	example(HERMES, CALL("{\"name\": \"f\", \"arguments\": {\"a\": nope}}"),
		"«f|{\"a\": n~»ope}}\n</tool_call>");
	example(HERMES, CALL("{\"name\": \"f\", \"arguments\": {\"a\": 01}}") "\n" CALL(F),
		"«f|{\"a\": 0~»1}}\n</tool_call>«f|{}~»");
	/* Members behind the arguments are dropped as far as they are read. */
	example(HERMES, CALL("{\"name\": \"f\", \"arguments\": {\"a\": 1}, bad: 5}"),
		"«f|{\"a\": 1}»bad: 5}\n</tool_call>");
	example(HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"id\": \"abc", "«f|{}»");
	/* Brackets and tags that are missing or too many. */
	example(HERMES, CALL("{\"name\": \"f\", \"arguments\": {}"), "«f|{}»");
	example(HERMES, "<tool_call>" F "<tool_call>" F, "«f|{}»«f|{}»");
	example(HERMES, "<tool_call>" F "}\n</tool_call>", "«f|{}»}\n</tool_call>");
	example(HERMES, "<tool_call>" F "\n</tool", "«f|{}»");
	example(HERMES, "<tool_call>" F "\n</toolbox>", "«f|{}»</toolbox>");
	example(HERMES, "</tool_call>" CALL(F), "</tool_call>«f|{}»");
}

/* A call that is cut ends with what was there. */
TEST(cut)
{
	static const char text[] =
		"{\"name\": \"f\", \"arguments\": {\"a\": \"x\\n\\ud83d\\ude00\", \"b\": true}}";
	const char *begin = strstr(text, "{\"a\"");
	char cut[256];

	for (const char *end = begin + 1; *end; end++) {
		struct seen s;

		snprintf(cut, sizeof(cut), "<tool_call>%.*s", (int)(end - text), text);
		run(HERMES, false, cut, 0, &s);
		check(s.n_calls == 1 && !s.text.len && !s.n_wrong);
		check(tools_cut(s.tools) == (end - begin < (long)strlen(begin) - 1));
		check(!strncmp(buf_str(&s.arguments), begin, s.arguments.len));
		check(s.arguments.len == MIN((size_t)(end - begin), strlen(begin) - 1));
		seen_release(&s);
	}
	ok_all("the arguments of a call that was cut are those that were there");
}

TEST(repairs)
{
#define ARGS(x) "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"" x "\"}}"
#define GOT(x)	"«f|{\"a\": \"" x "\"}»"
	example(HERMES, ARGS("1\n2\t3\x01"), GOT("1\\n2\\t3\\u0001"));
	example(HERMES, ARGS("\\d+\\w\\\\.\\'"), GOT("\\\\d+\\\\w\\\\.'"));
	example(HERMES, ARGS("\\u12"), GOT("\\\\u12"));
	example(HERMES, ARGS("\\u12\\n\\u\\\\"), GOT("\\\\u12\\n\\\\u\\\\"));
	example(HERMES, ARGS("\\ud83d!\\ude00\\ud83d\\n\\ud83d"),
		GOT("\\ufffd!\\ufffd\\ufffd\\n\\ufffd"));
	example(HERMES, ARGS("\\ud83d\\ud83d\\ude00\\ud83d\\u00e9\\ud83d\\u12"),
		GOT("\\ufffd\\ud83d\\ude00\\ufffd\\u00e9\\ufffd\\\\u12"));
	/* Zero bytes, which no request may have in a member's name. */
	example(HERMES,
		"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\\u0000b\": [{\"\\u0000\": \"\\u0000\"}]}}"
		"</tool_call>",
		"«f|{\"a\\ufffdb\": [{\"\\ufffd\": \"\\u0000\"}]}»");
}

TEST(one)
{
	example_of(HERMES, true, "So: " CALL(F) " and " CALL(F), "So: «f|{}»");
	example_of(HERMES, true, "<tool_call>nothing\n" CALL(F) "x", "<tool_call>nothing«f|{}»");
	example_of(QWEN_XML, true, "<function=f>\n</function>\n<function=f>", "«f|{}»");
	example_of(PYTHONIC, true, "[f(), f()]", "«f|{}»");
}

#define P(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"
#define X(body)	       "<tool_call>\n<function=look_up>\n" body "</function>\n</tool_call>"

TEST(qwen_xml)
{
	const enum format x = QWEN_XML;

	example(x, X(P("word", "bow")), "«look_up|{\"word\": \"bow\"}»");
	example(x, "I look.\n\n" X(P("word", "a\n\"b\"\n\\ <c> \u00e9\n")) "\n" X("") "\nDone",
		"I look.«look_up|{\"word\": \"a\\n\\\"b\\\"\\n\\\\ <c> \u00e9\\n\"}»«look_up|{}»Done");
	example(x, X(P("n", "5") P("all", "True") P("how", "{'a': [1, None]}") P("word", "5")),
		"«look_up|{\"n\": 5, \"all\": true, \"how\": {\"a\": [1, null]}, \"word\": \"5\"}»");
	example(x, X(P("n", "five") P("all", "1") P("how", "5")),
		"«look_up|{\"n\": \"five\", \"all\": \"1\", \"how\": \"5\"}»");
	example(x, X(P("n", " -1.5e3 ") P("how", "[\"a\", {\"b\":1}]")),
		"«look_up|{\"n\": -1.5e3, \"how\": [\"a\", {\"b\": 1}]}»");
	example(x, X(P("maybe", "null") P("maybe", "nul") P("maybe", "5")),
		"«look_up|{\"maybe\": null, \"maybe\": \"nul\", \"maybe\": \"5\"}»");
	example(x, X(P("other", "5") P("a \"b\"", "")),
		"«look_up|{\"other\": \"5\", \"a \\\"b\\\"\": \"\"}»");
	/* Tags and line ends that are missing. */
	example(x, "<function=f>\n<parameter=a>1</parameter></function>", "«f|{\"a\": \"1\"}»");
	example(x, X("<parameter=word>\nbow\n<parameter=n>\n5\n"),
		"«look_up|{\"word\": \"bow\", \"n\": 5}»");
	example(x, X("<parameter=word>\n</parameter>\n"), "«look_up|{\"word\": \"\"}»");
	example(x, X(P("word", "a </parameter")), "«look_up|{\"word\": \"a </parameter\"}»");
	example(x, X(P("word", "<parameter=n> </function>")),
		"«look_up|{\"word\": \"<parameter=n> </function>\"}»");
	example(x,
		"<tool_call>\n<function=f>\n" P("a", "1") "</tool_call>\n<function=f></tool_call>",
		"«f|{\"a\": \"1\"}»«f|{}»");
	example(x,
		"<tool_call>\n<function=f>\n<parameter=a>\nx\n</tool_call>\n<tool_call>\n<function=look_up>\n"
		"</function>\n</tool_call>",
		"«f|{\"a\": \"x\"}»«look_up|{}»");
	example(x, X(P("word", "a </tool_call>")), "«look_up|{\"word\": \"a </tool_call>\"}»");
	/* Texts that are no calls. */
	example(x, "<tool_call>\n<function=g>\n</function>\n</tool_call>",
		"<tool_call>\n<function=g>\n</function>\n</tool_call>");
	example(x, "<tool_call>\n<func>", "<tool_call>\n<func>");
	example(x, "<tool_call>\n<function=f\n>", "<tool_call>\n<function=f\n>");
	example(x, "<tool_call>\n<tool_call>\n<function=f>\n</function>", "<tool_call>\n«f|{}»");
	example(x, "a <function=", "a <function=");
	example(x, CALL(F), CALL(F));
	example(x, "<function=f>", "<function=f>");
	example(x, "<function=f><parameter=a", "<function=f><parameter=a");
	example(x, "Use <function=f> to call", "Use <function=f> to call");
	example(x, "<tool_call>\n<function=f>\n\n</func", "<tool_call>\n<function=f>\n\n</func");
	example(x, "<function=f>\n</tool>\n" X(""), "<function=f>\n</tool>«look_up|{}»");
	example(x, "<function=f>\n<parameter=a\nb>", "<function=f>\n<parameter=a\nb>");
	example(x, "<function=f>\n<tool_call>\n<function=f></function>", "<function=f>\n«f|{}»");
	/* A call that is cut, and one that turns out to be malformed. */
	example(x, "<function=f>\n<parameter=a>\nb\n</para", "«f|{\"a\": \"b\\n</para~»");
	example(x, "<function=look_up>\n<parameter=n>\n12\n", "«look_up|{\"n\": 12\n~»");
	example(x, "<function=f>\n" P("a", "b") "oh\n<function=f></function>",
		"«f|{\"a\": \"b\"~»oh«f|{}~»");
	example(x, "<function=f>\n" P("a", "b") "<parameter=c\nd>",
		"«f|{\"a\": \"b\"~»<parameter=c\nd>");
}

TEST(llama_json)
{
	const enum format l = LLAMA_JSON;

	example(l, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "«f|{\"a\": 1}»");
	example(l,
		"\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}} ; {\"name\": \"f\"}\n{\"name\": \"f\"}",
		"«f|{}»«f|{}»«f|{}»");
	example(l, "{\"name\": \"Bob\", \"parameters\": {}}",
		"{\"name\": \"Bob\", \"parameters\": {}}");
	example(l, "Like {\"name\": \"f\", \"parameters\": {}}",
		"Like {\"name\": \"f\", \"parameters\": {}}");
	example(l, "{}", "{}");
	example(l, "{\"name\": \"f\", \"parameters\": {\"a\": 1", "«f|{\"a\": 1~»");
	example(l, "{\"name\": \"f\"}\nDone; {\"name\": \"f\"}", "«f|{}»Done; {\"name\": \"f\"}");
}

TEST(pythonic)
{
	const enum format p = PYTHONIC;

	example(p, "[f()]", "«f|{}»");
	example(p,
		"\n[look_up(word='it\\'s \"x\"', n = -2, all=True,), f(a=[1,{'b': None,},],c=\"'\")] \n",
		"«look_up|{\"word\": \"it's \\\"x\\\"\", \"n\": -2, \"all\": true}»"
		"«f|{\"a\": [1, {\"b\": null}], \"c\": \"'\"}»");
	example(p, "[1, 2]", "[1, 2]");
	example(p, "[f]", "[f]");
	example(p, "[g()]", "[g()]");
	example(p, "see [f()]", "see [f()]");
	example(p, "[f(), g()]", "«f|{}», g()]");
	example(p, "[f() and", "«f|{}» and");
	example(p, "[f(a=", "«f|{\"a\": ~»");
	example(p, "[f(a='x\\", "«f|{\"a\": \"x\\~»");
	example(p, "[f(a)]", "«f|~»a)]");
	example(p, "[f(a=(1,))]", "«f|{\"a\": ~»(1,))]");
	example(p, "[f()", "«f|{}»");
}

TEST(mistral)
{
	const enum format m = MISTRAL;

	example(m,
		"[TOOL_CALLS][" F
		", {\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}]",
		"«f|{}»«f|{\"a\": 1}»");
	example(m,
		"Well.\n[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]look_up[CALL_ID]abcdefghi[ARGS]{}",
		"Well.«f|{\"a\": 1}»«look_up|{}»");
	example(m, "[TOOL_CALLS] f{}", "«f|{}»");
	example(m, "[TOOL_CALLS]g[ARGS]{}", "[TOOL_CALLS]g[ARGS]{}");
	example(m, "[TOOL_CALLS]f g{}", "[TOOL_CALLS]f g{}");
	example(m, "[TOOL_CALLS]f {\"a\": 1}", "«f|{\"a\": 1}»");
	example(m, "[TOOL_CALLS] f \n[CALL_ID]abc [ARGS] {}", "«f|{}»");
	example(m, "[TOOL_CALLS]x[TOOL_CALLS]f[ARGS]{}", "[TOOL_CALLS]x«f|{}»");
	example(m, "[TOOL_CALLS]f [CALL_ID]a[TOOL_CALLS]f{}", "[TOOL_CALLS]f [CALL_ID]a«f|{}»");
	example(m, "[TOOL_CALLS]f [TOOL_CALLS", "[TOOL_CALLS]f [TOOL_CALLS");
	example(m, "[TOOL_CALLS][5]", "[TOOL_CALLS][5]");
	example(m, "[TOOL_CALLS][" F ", 5]", "«f|{}», 5]");
	example(m, "[TOOL_CALLS]f[ARGS]{\"a\": \"x", "«f|{\"a\": \"x~»");
	example(m, "[TOOL]", "[TOOL]");
}

TEST(detection)
{
	static const struct {
		const char *template;
		int format; /* -1: none */
	} cases[] = {
		{"{%- if tools %}<tool_call>\\n{\\\"name\\\": <name>, \\\"arguments\\\": <args>}",
		 HERMES},
		{"<tool_call>\n<function=example>\n<parameter=p>", QWEN_XML},
		{"<tool_call>{{ tc.name }}<arg_key>", -1},
		{"{{ '[TOOL_CALLS]' }}", MISTRAL},
		{"<|start_header_id|> {\"name\": n, \"parameters\": d}", LLAMA_JSON},
		{"<|header_start|> [func_name1(params_name1=params_value1)]", PYTHONIC},
		{"<|start_header_id|>{{ message.content }}", -1},
		{"", -1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ok(tools_detect(cases[i].template) ==
			   (cases[i].format < 0 ? NULL : tools_format_at((size_t)cases[i].format)),
		   "%s", cases[i].format < 0 ? "no format" : names[cases[i].format]);
}

/* Whole templates, and that of the model which the tests run. */
TEST(detection_in_templates)
{
	static const struct {
		const char *name;
		int format; /* -1: none */
	} cases[] = {{"qwen2.5", HERMES},
		     {"qwen3", HERMES},
		     {"qwen3.5", QWEN_XML},
		     {"qwen3-next", QWEN_XML},
		     {"llama3", -1},
		     {"llama3.1", LLAMA_JSON},
		     {"smollm2", -1},
		     {"mistral", MISTRAL},
		     {"mistral old", -1},
		     {"deepseek", -1},
		     {"hermes", HERMES},
		     {"gemma", -1},
		     {"phi", -1},
		     {"phi reasoning", -1},
		     {"typescript tools", -1}};
	json_t *all = json_load_file("tests/golden/template_cases.json", JSON_ALLOW_NUL, NULL);
	const json_t *templates = json_object_get(json_object_get(all, "whole"), "templates");
	struct err e = {0};
	struct buf lexis;

	is_int((long long)json_object_size(templates), ARRAY_SIZE(cases), "all templates");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *template = json_string_value(json_object_get(templates, cases[i].name));

		ok(template &&
			   tools_detect(template) ==
				   (cases[i].format < 0 ? NULL
							: tools_format_at((size_t)cases[i].format)),
		   "%s", cases[i].name);
	}
	json_decref(all);
	buf_init(&lexis, 1 << 20);
	check(file_read(AT_FDCWD, "models/lexis/chat_template.jinja", "template", &lexis, &e) == 0);
	ok(tools_detect(buf_str(&lexis)) == tools_format_at(HERMES), "lexis");
	buf_release(&lexis);
}

TEST(facts)
{
	const struct tools_format *m = tools_format_at(MISTRAL), *h = tools_format_at(HERMES);

	is_str(tools_name(m), "mistral", "a name");
	ok(tools_brief_ids(m) && !tools_brief_ids(h), "Mistral's ids are brief");
	is_str(tools_mark(m, 0), "[TOOL_CALLS]", "a mark");
	ok(tools_mark(m, 2) && !tools_mark(m, 3) && !tools_mark(m, TOOLS_MARKS_MAX) &&
		   !tools_mark(tools_format_at(PYTHONIC), 0),
	   "and no more than there are");
	for (enum format format = QWEN_XML; format <= HERMES; format++) {
		is_str(tools_mark(tools_format_at(format), 0), "<tool_call>", "%s: a mark",
		       names[format]);
		is_str(tools_mark(tools_format_at(format), 1), "</tool_call>", "and another one");
	}
}

static void converts(bool python, const char *text, const char *want)
{
	struct buf out;

	buf_init(&out, 1 << 16);
	check(literal_convert(text, strlen(text), python, &out) == (want != NULL));
	check(!strcmp(buf_str(&out), want ? want : ""));
	buf_release(&out);
	ok_all("%s %.50s", python ? "Python" : "JSON", text);
}

TEST(values)
{
	static const char *const right[] = {"0",   "-0.5e+10", "123",
					    "1E5", "\"\"",     "[]",
					    "{}",  "null",     "[1, [true, {\"a\" : [] }]]"};
	static const char *const wrong[] = {"",	     " ",	  "01",	  "1.",		".5",
					    "-",     "1e",	  "+1",	  "nul",	"nulll",
					    "True",  "'a'",	  "[1,]", "{\"a\":1,}", "{a:1}",
					    "[1 2]", "{\"a\" 1}", "[}",	  "1 2",	"\"a",
					    "{1:2}", "]",	  "NaN"};
	char deep[2 * LITERAL_DEPTH_MAX + 8] = "";

	for (size_t i = 0; i < ARRAY_SIZE(right); i++)
		converts(false, right[i], right[i]);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		converts(false, wrong[i], NULL);
	converts(true, " {'a':True,\"b\":[None,False,1.5,],} ",
		 "{\"a\": true, \"b\": [null, false, 1.5]}");
	converts(true, "[,]", NULL);
	converts(true, "{'a'}", NULL);
	converts(true, "(1,)", NULL);
	memset(deep, '[', LITERAL_DEPTH_MAX);
	memset(deep + LITERAL_DEPTH_MAX, ']', LITERAL_DEPTH_MAX);
	converts(false, deep, deep);
	memset(deep, '[', LITERAL_DEPTH_MAX + 1);
	converts(false, deep, NULL);
}

/* The text of a JSON string is what JSON's own reader makes of it. */
TEST(text_of_strings)
{
	static const char *const strings[] = {
		"\"\"", "\"a\u00e9\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
		"\"\\u0000\\u0041\\u00e9\\u20AC\\ufffd\\ud7ff\\ue000\"",
		"\"\\ud800\\udc00\\ud83d\\ude00\\uDBFF\\uDFFFz\""};

	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		json_t *want = json_loads(strings[i], JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
		struct buf got;

		buf_init(&got, 1 << 10);
		literal_text(strings[i], &got);
		ok(json_is_string(want) && got.len == json_string_length(want) &&
			   !memcmp(buf_str(&got), json_string_value(want), got.len),
		   "text of %s", strings[i]);
		json_decref(want);
		buf_release(&got);
	}
}

/* Text that is held back takes linear time: so much of it comes byte by byte that quadratic work would not end. Its
 * memory is counted, wherever the parser keeps it. */
TEST(held)
{
	static const char *const texts[] = {
		[QWEN_XML] = "<function=look_up>\n<parameter=how>\n",
		[HERMES] = "<tool_call>{\"arguments\": {\"a\": \"",
		[MISTRAL] = "[TOOL_CALLS]",
		[LLAMA_JSON] = "{\"x\": \"",
		[PYTHONIC] = "[",
	};

	for (enum format format = 0; format < FORMATS; format++) {
		enum { N = 1000000 };
		struct seen s;

		seen_begin(&s, format, false);
		tools_push(s.tools, texts[format], strlen(texts[format]));
		for (int i = 0; i < N; i++)
			tools_push(s.tools, "a", 1);
		ok(tools_bytes(s.tools) >= N, "%s: %zu bytes", names[format], tools_bytes(s.tools));
		seen_end(&s);
		seen_release(&s);
	}
}

/* How calls of each format begin. */
static const char *const beginnings[] = {
	[QWEN_XML] = "<tool_call>\n<function=look_up>\n<parameter=word>\nb",
	[HERMES] = "<tool_call>\n{\"name\": \"f\", \"arguments\": {",
	[MISTRAL] = "[TOOL_CALLS]f[ARGS]{",
	[LLAMA_JSON] = "{\"name\": \"f\", \"parameters\": {",
	[PYTHONIC] = "[f(a=",
};

/* A whole call of each format. */
static const char *const wholes[] = {
	[QWEN_XML] = X(P("word", "bow") P("n", "5")),
	[HERMES] = CALL("{\"name\": \"look_up\", \"arguments\": {\"word\": \"bow\"}}"),
	[MISTRAL] = "[TOOL_CALLS]look_up[ARGS]{\"word\": \"bow\"}",
	[LLAMA_JSON] = "{\"name\": \"look_up\", \"parameters\": {\"word\": \"bow\"}}",
	[PYTHONIC] = "[look_up(word='bow', n=5)]",
};

/* Writes a random answer of a format. Returns its length. */
static size_t random_answer(enum format format, char *text, size_t size)
{
	static const char *const pieces[] = {"<tool_call>",
					     "</tool_call>",
					     "\n",
					     " ",
					     "{\"name\": \"",
					     "f",
					     "look_up",
					     "\", \"arguments\": {",
					     "\"word\": \"",
					     "a\u00e9",
					     "\\",
					     "\"",
					     "}",
					     "}}",
					     ", ",
					     "\\ud83d",
					     "\\ude00",
					     "\\u00",
					     "1",
					     "true",
					     "<",
					     "<tool",
					     "<function=",
					     "f>",
					     "<parameter=",
					     "n>\n",
					     "word>",
					     "</parameter>",
					     "</function>\n",
					     "[",
					     "[TOOL_CALLS]",
					     "f(",
					     "b=",
					     "'",
					     ")",
					     "]",
					     "Some text.",
					     F,
					     CALL(F),
					     X(P("word", "bow") P("n", "5")),
					     "; ",
					     "{\"name\": \"f\"}"};
	size_t len = 0;

	for (size_t n = random_below(4); n > 0; n--) {
		const size_t begins = random_below(8);

		if (begins > 1)
			len += (size_t)snprintf(text + len, size - len, "%s",
						(begins > 6 ? wholes : beginnings)[format]);
		len += random_pieces(pieces, ARRAY_SIZE(pieces), 8, text + len, size - len);
	}
	text[len] = 0;
	return len;
}

struct counts {
	size_t plain, calls, whole; /* answers without calls, calls, those of them that are whole */
};

/* The events of a random answer are those of the whole text, wherever it is cut. */
static void random_events(enum format format, struct counts *counts)
{
	bool one = !random_below(8);
	char text[4096];
	size_t len = random_answer(format, text, sizeof(text));
	struct seen whole, cut, bytes;

	run(format, one, text, len, &whole);
	run(format, one, text, len + 1, &bytes);
	seen_begin(&cut, format, one);
	for (size_t at = 0; at < len;) {
		size_t n = MIN(1 + random_below(12), len - at);

		tools_push(cut.tools, text + at, n);
		see_pause(&cut);
		at += n;
	}
	seen_end(&cut);
	check(!strcmp(buf_str(&whole.all), buf_str(&cut.all)));
	check(!strcmp(buf_str(&whole.all), buf_str(&bytes.all)));
	check(!whole.n_wrong && !cut.n_wrong && !bytes.n_wrong);
	if (!whole.n_calls)
		check(!strcmp(buf_str(&whole.text), text));
	counts->plain += !whole.n_calls;
	counts->calls += whole.n_calls;
	counts->whole += whole.n_whole;
	seen_release(&whole);
	seen_release(&cut);
	seen_release(&bytes);
}

TEST(random)
{
	for (enum format format = 0; format < FORMATS; format++) {
		struct counts n = {0};

		for (int i = 0; i < 10000; i++)
			random_events(format, &n);
		ok_all("%s: 10000 random answers, cut at random", names[format]);
		ok(n.plain > 2000 && n.whole > 500 && n.calls > n.whole + 2000,
		   "%s: %zu without calls, %zu calls, %zu of them whole", names[format], n.plain,
		   n.calls, n.whole);
	}
}

TEST_MAIN()
