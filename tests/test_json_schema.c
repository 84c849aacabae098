/* protocol/grammar/json_schema and json_text: examples of each keyword with answers that are accepted and answers that
 * are not, the sentences of refusals, and ranges of numbers against comparison. */
#include <errno.h>
#include <stdlib.h>

#include "base/problem.h"
#include "protocol/grammar/automaton.h"
#include "protocol/grammar/constraint.h"
#include "protocol/grammar/json_text.h"
#include "tests/random.h"
#include "tests/tap.h"

enum { MAX_BYTES = 64 << 20 };

static bool reads(struct automaton *a, const char *text)
{
	return automaton_may_end(a, automaton_read(a, AUTOMATON_START, text, strlen(text)));
}

/* Schemas and answers have ' in the place of ". */
static void quotes(const char *from, char *to, size_t size)
{
	size_t n = strlen(from);

	if (n >= size)
		abort();
	for (size_t i = 0; i <= n; i++)
		to[i] = from[i] == '\'' ? '"' : from[i];
}

static json_t *schema_of(const char *text)
{
	char copy[4096];
	json_t *schema;

	quotes(text, copy, sizeof(copy));
	schema = json_loads(copy, JSON_DECODE_ANY, NULL);
	if (!schema)
		abort();
	return schema;
}

/* yes, no: answers with ' for ", separated by bars. */
static void accepts(const char *text, const char *yes, const char *no)
{
	json_t *schema = schema_of(text);
	struct automaton *a = NULL;
	struct grammar *g = NULL;
	struct err e = {0};

	if (constraint_json_schema(schema, &g, &e) < 0 || automaton_new(g, MAX_BYTES, &a) < 0) {
		ok(false, "%s: %s", text, e.text);
		json_decref(schema);
		return;
	}
	for (int list = 0; list < 2; list++) {
		char all[4096], *at = all;

		quotes(list ? no : yes, all, sizeof(all));
		while (at) {
			char *end = strchr(at, '|');

			if (end)
				*end++ = 0;
			if (reads(a, at) == (list == 1)) {
				tap_quiet++;
				printf("# %s: %s\n", list ? "accepted" : "not accepted", at);
			}
			at = end;
		}
	}
	ok_all("%.200s", text);
	automaton_free(a);
	grammar_free(g);
	json_decref(schema);
}

static void refuses(const char *text, int code, const char *sentence)
{
	json_t *schema = schema_of(text);
	struct grammar *g = NULL;
	struct err e = {0};

	is_int(constraint_json_schema(schema, &g, &e), -code, "refused: %.200s", text);
	is_str(e.text, sentence, "%s", sentence);
	json_decref(schema);
}

TEST(values)
{
	accepts("{}", "1|-0.5e+10|'a\\n\\u00e9\\ud83d\\ude00'|[]|[1, {'a':\n\t\t2}]|true|null",
		"|01|1.|+1|'a|'\\ud83d'|'\\x'|'\n'|[1,]|{'a'}|nul|1 |[1,  2]|1e400");
	accepts("true", "1|{}", "");
	accepts("{'type': 'null'}", "null", "0|'null'");
	accepts("{'type': ['boolean', 'string']}", "true|false|'x'", "1|null");
	accepts("{'enum': ['a', 1, null, [true, {'b': 2}]]}",
		"'a'|1|null|[true,{'b':2}]|[true, {'b': 2}]", "'b'|2|[true]");
	accepts("{'enum': ['a', 1, 2.5, null], 'type': ['integer', 'null']}", "1|null", "'a'|2.5");
	accepts("{'const': '\u00e9\\n'}", "'\u00e9\\n'", "'\u00e9'|'\\u00e9\\n'");
}

TEST(strings)
{
	accepts("{'type': 'string', 'minLength': 1, 'maxLength': 2}",
		"'a'|'ab'|'\\n\u00e9'|'\\ud83d\\ude00b'", "''|'abc'");
	accepts("{'pattern': 'b+$'}", "'b'|'abb'", "'a'|'ba'|1");
	accepts("{'type': 'string', 'pattern': '^[a-c\\\\n]*$'}", "''|'a\\nb'",
		"'d'|'a\n'|'a\\u000a'");
	accepts("{'type': 'string', 'pattern': '^a{2,3}$', 'minLength': 1, 'maxLength': 5}",
		"'aa'|'aaa'", "'a'");
	accepts("{'type': 'string', 'format': 'date'}", "'2024-02-28'|'1999-12-31'",
		"'2024-02-30'|'2024-04-31'|'24-1-1'");
	accepts("{'type': 'string', 'format': 'date-time'}",
		"'2024-02-28T23:59:59Z'|'2024-02-28T00:00:00.5+02:00'",
		"'2024-02-28'|'2024-02-28T24:00:00Z'");
	accepts("{'type': 'string', 'format': 'uuid'}", "'123e4567-e89b-12d3-a456-426614174000'",
		"'123e4567'");
	accepts("{'type': 'string', 'format': 'ipv4'}", "'127.0.0.1'|'255.249.99.0'",
		"'256.0.0.1'|'1.2.3'|'01.2.3.4'");
	accepts("{'type': 'string', 'format': 'email'}", "'a.b@c-d.example'",
		"'a@b'|'@b.c'|'a b@c.d'");
}

TEST(numbers)
{
	accepts("{'type': 'integer'}", "0|-12|123456789012345", "1.5|1e3|01|1234567890123456");
	accepts("{'type': 'integer', 'minimum': -1.5, 'exclusiveMaximum': 12}", "-1|0|9|11|-0",
		"-2|12|100");
	accepts("{'type': 'number', 'exclusiveMinimum': 0, 'maximum': 1}",
		"0.5|1|0.000001|1.000|0.10", "0|0.0|1.000001|-0.5|1e0");
	accepts("{'minimum': 2.25}", "2.25|2.3|10|999999999.5", "2.2|2|2.249999|-3|'a'");
	accepts("{'type': 'number', 'multipleOf': 1}", "1|-5", "1.5");
}

TEST(arrays)
{
	accepts("{'type': 'array', 'items': {'type': 'integer'}, 'minItems': 1, 'maxItems': 3}",
		"[1]|[1,2, 3]|[ 1 ,2]", "[]|[1,2,3,4]|['a']|[1,]");
	accepts("{'items': {'type': 'null'}}", "[]|[null,null]", "[1]|{}");
	accepts("{'prefixItems': [{'type': 'integer'}, {'type': 'string'}], 'minItems': 1}",
		"[1]|[1,'a']", "[]|['a']|[1,'a',1]");
	accepts("{'prefixItems': [{'type': 'integer'}], 'items': {'type': 'string'}, 'maxItems': 3}",
		"[]|[1]|[1,'a','b']", "['a']|[1,2]|[1,'a','b','c']");
	accepts("{'prefixItems': [{}, {}], 'items': false}", "[]|[1]|[1,2]", "[1,2,3]");
	accepts("{'type': 'array', 'maxItems': 0}", "[]", "[1]");
	accepts("{'type': 'array', 'uniqueItems': true, 'maxItems': 1}", "[]|[1]", "[1,1]");
}

TEST(objects)
{
	accepts("{'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'string'}, 'c': {}}, 'required': ['b']}",
		"{'a':1,'b':'x'}|{'b': 'x'}|{'b':'','c':[]}|{\n  'a' : 1 , 'b':''}",
		"{}|{'a':1}|{'b':'x','a':1}|{'b':'x','d':1}|{'b':'x',}|{,'b':'x'}");
	accepts("{'properties': {'a': {}}}", "{}|{'a':1}", "1|{'b':1}");
	accepts("{'type': 'object', 'properties': {'ab': {'type': 'null'}, 'a': {'type': 'null'}, '\u00e9': {'type': 'null'}}, 'additionalProperties': {'type': 'integer'}}",
		"{}|{'ab':null,'abc':1}|{'b':1,'':2}|{'\u00e8':3}|{'a':null,'x':1}|{'\u00e9':null}|{'aa':1}",
		"{'ab':1}|{'x':1,'ab':1}|{'\u00e9':1}|{'a':1}|{'x':null}|{'\\u0061':1}");
	accepts("{'type': 'object', 'additionalProperties': false}", "{}", "{'a':1}");
	accepts("{'required': ['x', 'y'], 'additionalProperties': {'type': 'integer'}}",
		"{'x':1,'y':2}|{'x':1,'y':2,'z':3}", "{'x':1}|{'x':1,'y':'a'}");
	accepts("{'properties': {'ab': {'minimum': 3}}, 'patternProperties': {'^a': {'type': 'integer'}}}",
		"{'ab':3}|{}", "{'ab':2}|{'ab':3.5}|{'ac':1}");
	accepts("{'type': 'object', 'properties': {'a': false, 'b': true}}", "{}|{'b':1}",
		"{'a':1}");
}

TEST(combinations)
{
	accepts("{'anyOf': [{'type': 'integer'}, {'type': 'string', 'maxLength': 1}]}", "1|'a'",
		"'ab'|null");
	accepts("{'type': ['integer', 'string'], 'anyOf': [{'minimum': 3}, {'type': 'string'}]}",
		"3|'a'", "2|3.5");
	accepts("{'allOf': [{'properties': {'a': {'type': 'integer'}}, 'required': ['a']}, {'properties': {'a': {'minimum': 3}, 'b': {}}}]}",
		"{'a':3}|{'a':4,'b':1}", "{'a':2}|{}|{'a':3.5}");
	accepts("{'allOf': [{'type': ['integer', 'string']}, {'type': ['number', 'null']}, {'minimum': 1}, {'minimum': 3}]}",
		"3", "1|null|'a'|3.5");
	accepts("{'oneOf': [{'type': 'string'}, {'type': 'array'}]}", "'a'|[]", "1");
	accepts("{'oneOf': [{'properties': {'k': {'const': 'a'}, 'x': {'type': 'integer'}}, 'required': ['k', 'x'], 'type': 'object'}, {'$ref': '#/$defs/b'}], '$defs': {'b': {'type': 'object', 'properties': {'k': {'enum': ['b', 'c']}}, 'required': ['k']}}}",
		"{'k':'a','x':1}|{'k':'b'}|{'k':'c'}", "{'k':'a'}|{'k':'b','x':1}");
	accepts("{'$defs': {'list': {'type': 'object', 'properties': {'next': {'anyOf': [{'$ref': '#/$defs/list'}, {'type': 'null'}]}}, 'required': ['next']}}, '$ref': '#/$defs/list'}",
		"{'next':null}|{'next':{'next':{'next':null}}}", "{}|{'next':{}}");
	accepts("{'properties': {'a': {'$ref': '#'}, 'b~/c': {'type': 'null'}, 'd': {'$ref': '#/properties/b~0~1c'}}}",
		"{'a':{'a':{}}}|{'d':null}", "{'d':1}|{'a':1}");
	accepts("{'$ref': '#/definitions/x', 'minimum': 3, 'definitions': {'x': {'type': 'integer', 'maximum': 5}}}",
		"3|5", "2|6|'a'");
}

/* Members and items that no schema at the same place has looked at. */
TEST(unevaluated)
{
	accepts("{'properties': {'a': {'type': 'integer'}}, 'unevaluatedProperties': false}",
		"{}|{'a':1}", "{'b':1}");
	accepts("{'properties': {'a': {}}, 'unevaluatedProperties': {'type': 'null'}}",
		"{}|{'a':1,'b':null}", "{'b':1}");
	accepts("{'type': 'object', 'allOf': [{'properties': {'a': {}}}, {'properties': {'b': {}}}], 'unevaluatedProperties': false}",
		"{'a':1,'b':2}|{}", "{'c':1}");
	accepts("{'type': 'object', 'properties': {'c': {}}, 'anyOf': [{'properties': {'a': {}}, 'required': ['a']}, {'required': ['b'], 'properties': {'b': {}}}], 'unevaluatedProperties': false}",
		"{'c':1,'a':1}|{'b':2}", "{}|{'c':1}|{'a':1,'b':1}");
	accepts("{'prefixItems': [{'type': 'integer'}], 'unevaluatedItems': {'type': 'null'}}",
		"[]|[1]|[1,null]", "[null]|[1,1]");
	accepts("{'unevaluatedItems': false}", "[]", "[1]");
	refuses("{'allOf': [{'properties': {'a': {}}}, {'unevaluatedProperties': false}]}",
		PROBLEM_UNSUPPORTED,
		"schemas that are combined with \"unevaluatedProperties\" or \"unevaluatedItems\" of one of them are not supported");
	refuses("{'allOf': [{'unevaluatedProperties': false}], 'anyOf': [{'properties': {'a': {}}}]}",
		PROBLEM_UNSUPPORTED,
		"schemas that are combined with \"unevaluatedProperties\" or \"unevaluatedItems\" of one of them are not supported");
}

TEST(refusals)
{
	static const char *const unknown[] = {"not",
					      "if",
					      "contains",
					      "propertyNames",
					      "dependentRequired",
					      "dependentSchemas",
					      "$dynamicRef",
					      "minContains",
					      "somethingElse"};

	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
		char schema[100], sentence[200];

		snprintf(schema, sizeof(schema), "{'properties': {'a': {'%s': {}}}}", unknown[i]);
		snprintf(sentence, sizeof(sentence),
			 "the keyword \"%s\" of a JSON schema is not supported", unknown[i]);
		refuses(schema, PROBLEM_UNSUPPORTED, sentence);
	}
	refuses("{'oneOf': [{'type': 'integer'}, {'type': 'number'}]}", PROBLEM_UNSUPPORTED,
		"the keyword \"oneOf\" of a JSON schema is not supported unless it is clear that no two branches accept the same value");
	refuses("{'oneOf': [{'const': 1}, {'const': 1.0}]}", PROBLEM_UNSUPPORTED,
		"the keyword \"oneOf\" of a JSON schema is not supported unless it is clear that no two branches accept the same value");
	refuses("{'oneOf': [{'properties': {'k': {'const': 1}}, 'type': 'object'}, {'properties': {'k': {'const': 2}}, 'required': ['k'], 'type': 'object'}]}",
		PROBLEM_UNSUPPORTED,
		"the keyword \"oneOf\" of a JSON schema is not supported unless it is clear that no two branches accept the same value");
	refuses("{'type': 'integer', 'multipleOf': 3}", PROBLEM_UNSUPPORTED,
		"the keyword \"multipleOf\" of a JSON schema is not supported unless it is 1");
	refuses("{'type': 'array', 'uniqueItems': true}", PROBLEM_UNSUPPORTED,
		"the keyword \"uniqueItems\" of a JSON schema is not supported for arrays with more than one element");
	refuses("{'type': 'string', 'format': 'regex'}", PROBLEM_UNSUPPORTED,
		"the format \"regex\" of a JSON schema is not supported");
	refuses("{'type': 'string', 'pattern': 'a', 'maxLength': 3}", PROBLEM_UNSUPPORTED,
		"the keyword \"maxLength\" of a JSON schema is not supported beside a pattern with texts of other lengths");
	refuses("{'type': 'string', 'pattern': '(?=a)'}", PROBLEM_UNSUPPORTED,
		"lookahead in a regular expression is not supported");
	refuses("{'enum': ['a'], 'maxLength': 3}", PROBLEM_UNSUPPORTED,
		"the keyword \"maxLength\" of a JSON schema is not supported beside enum or const");
	refuses("{'allOf': [{'additionalProperties': false}, {'properties': {'a': {}}}]}",
		PROBLEM_UNSUPPORTED,
		"schemas that are combined with \"additionalProperties\" or \"patternProperties\" of one of them are not supported");
	refuses("{'allOf': [{'pattern': 'a'}, {'pattern': 'b'}]}", PROBLEM_UNSUPPORTED,
		"schemas that are combined with different values of \"pattern\" are not supported");
	refuses("{'$ref': 'https://example.com/x'}", PROBLEM_UNSUPPORTED,
		"the keyword \"$ref\" of a JSON schema is not supported unless it is # or begins with #/");
	refuses("{'properties': {'a': {'$id': 'b'}}}", PROBLEM_UNSUPPORTED,
		"the keyword \"$id\" of a JSON schema is not supported inside a schema");
	refuses("{'$ref': '#/$defs/x'}", EINVAL,
		"the JSON schema has nothing at the place \"#/$defs/x\"");
	refuses("{'$ref': '#'}", EINVAL, "the grammar has no text that ends");
	refuses("{'anyOf': [{'$ref': '#'}, {'type': 'null'}]}", EINVAL,
		"the rule \"a schema that refers to itself\" is left-recursive: it calls itself before it reads anything");
	refuses("{'properties': {'a': {'$ref': '#'}}, 'required': ['a']}", EINVAL,
		"the grammar has no text that ends");
	refuses("{'type': 'integer', 'minimum': 5, 'maximum': 4}", EINVAL,
		"the grammar has no text that ends");
	refuses("{'type': 'word'}", EINVAL,
		"the keyword \"type\" of the JSON schema is not the name of a type, or a list of these");
	refuses("{'minLength': -1}", EINVAL,
		"the keyword \"minLength\" of the JSON schema is not a whole number from 0 on");
	refuses("[]", EINVAL, "a JSON schema is neither an object nor a boolean");
	refuses("{'allOf': [{'$ref': '#'}]}", E2BIG,
		"the JSON schema has $ref, allOf or anyOf more than 32 deep in each other");
	refuses("{'type': 'string', 'maxLength': 100000}", E2BIG,
		"the grammar has a repetition of more than 65536 times");
}

TEST(json_object)
{
	struct automaton *a = NULL;
	struct grammar *g = NULL;

	if (constraint_json_object(&g, NULL) < 0 || automaton_new(g, MAX_BYTES, &a) < 0)
		abort();
	ok(reads(a, "{}") && reads(a, "{\"a\": [1, {\"\\n\": null}]}"), "objects");
	ok(!reads(a, "[]") && !reads(a, "") && !reads(a, "{\"a\": }"), "other texts");
	automaton_free(a);
	grammar_free(g);
}

/* ---- ranges of numbers ---- */

/* Builds an automaton of what `make` writes for lo to hi. */
static void range(uint32_t (*make)(struct grammar_builder *b, int64_t lo, int64_t hi), int64_t lo,
		  int64_t hi, struct grammar **g, struct automaton **a)
{
	struct grammar_builder *b = grammar_builder_new();
	uint32_t root;

	if (!b)
		abort();
	root = grammar_rule(b, "root");
	grammar_define(b, root, make(b, lo, hi));
	if (grammar_build(b, root, g, NULL) < 0 || automaton_new(*g, MAX_BYTES, a) < 0)
		abort();
	grammar_builder_free(b);
}

TEST(integers)
{
	for (int round = 0; round < 300; round++) {
		int64_t lo = (int64_t)random_below(2400) - 1200,
			hi = lo + random_below(round % 3 ? 1500 : 30);
		struct automaton *a = NULL;
		struct grammar *g = NULL;

		range(json_text_integers, lo, hi, &g, &a);
		for (int64_t n = -3000; n <= 3000; n++) {
			char text[24];

			snprintf(text, sizeof(text), "%lld", (long long)n);
			check(reads(a, text) == (lo <= n && n <= hi));
		}
		check(!reads(a, "01") && !reads(a, "") && !reads(a, "-"));
		automaton_free(a);
		grammar_free(g);
	}
	ok_all("random ranges of integers");
}

TEST(decimals)
{
	for (int round = 0; round < 300; round++) {
		int64_t unit = round % 2 ? 10000 : 1;
		int64_t lo = ((int64_t)random_below(4000000) - 2000000) / unit * unit;
		int64_t hi = lo + (int64_t)random_below(round % 3 ? 3000000 : 30) / unit * unit;
		struct automaton *a = NULL;
		struct grammar *g = NULL;

		range(json_text_decimals, lo, hi, &g, &a);
		for (int i = 0; i < 1000; i++) {
			int64_t v = (int64_t)random_below(8000000) - 4000000, size;
			int64_t edges[] = {lo - 1, lo, lo + 1, hi - 1, hi, hi + 1, 0, v};
			char text[40];
			size_t n;
			bool in;

			v = edges[random_below(ARRAY_SIZE(edges))];
			size = llabs(v);
			in = lo <= v && v <= hi;
			snprintf(text, sizeof(text), "%s%lld.%06lld", v < 0 ? "-" : "",
				 (long long)(size / 1000000), (long long)(size % 1000000));
			check(reads(a, text) == in);
			/* Zeros at the end may go, and the point with the last one. */
			for (n = strlen(text); text[n - 1] == '0' && text[n - 2] != '.'; n--) {
				text[n - 1] = 0;
				check(reads(a, text) == in);
			}
			if (!strcmp(text + n - 2, ".0")) {
				text[n - 2] = 0;
				check(reads(a, text) == in);
			}
		}
		automaton_free(a);
		grammar_free(g);
	}
	ok_all("random ranges of decimals");
}

TEST_MAIN()
