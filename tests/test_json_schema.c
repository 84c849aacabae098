/* protocol/grammar/schema*.c and json_text: examples of each keyword with answers that are accepted and answers that
 * are not, the sentences of refusals, and ranges of numbers against comparison. */
#include <errno.h>
#include <limits.h>
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
	schema = json_loads(copy, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
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

	if (constraint_json_schema(schema, &g, &e) < 0 ||
	    automaton_new(g, MAX_BYTES, NULL, &a) < 0) {
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
	/* as pydantic writes them: bytes, Path, SecretStr, Base64Str and Base64UrlStr, HttpUrl, a tagged union */
	accepts("{'type': 'string', 'format': 'binary'}", "''|'\u00e9 \\n'", "1");
	accepts("{'type': 'string', 'format': 'path', 'minLength': 2}", "'/a'", "'/'");
	accepts("{'type': 'string', 'format': 'password', 'pattern': '^a*$'}", "'aa'", "'b'");
	accepts("{'type': 'string', 'format': 'base64'}", "''|'aGFsbG8='|'+/8='",
		"'a'|'_-8='|'===='");
	accepts("{'type': 'string', 'format': 'base64url'}", "'_-8='|'aaaa'", "'+/8='|'aaaaa'");
	accepts("{'type': 'string', 'format': 'uri', 'minLength': 1, 'maxLength': 2083}",
		"'https://a-b.example:80/c/d?e=f'|'http://a'", "''|'a'|'ftp://a'");
	accepts("{'discriminator': {'propertyName': 'k', 'mapping': {'a': '#/$defs/A', 'b': '#/$defs/B'}},"
		"'oneOf': [{'$ref': '#/$defs/A'}, {'$ref': '#/$defs/B'}],"
		"'$defs': {'A': {'type': 'object', 'properties': {'k': {'const': 'a'}, 'm': {'type': "
		"'integer'}}, 'required': ['k', 'm']}, 'B': {'type': 'object', 'properties': {'k': "
		"{'const': 'b'}, 'n': {'type': 'integer'}}, 'required': ['k', 'n']}}}",
		"{'k': 'a', 'm': 1}|{'k': 'b', 'n': 2}",
		"{'k': 'a', 'n': 1}|{'k': 'c'}|{'k': 'a'}");
}

/* Strings of a pattern: each code point has one form. */
TEST(escapes)
{
	json_t *schema = schema_of("{'type': 'string', 'pattern': '^[^~]$'}");
	struct automaton *a = NULL;
	struct grammar *g = NULL;

	if (constraint_json_schema(schema, &g, NULL) < 0 ||
	    automaton_new(g, MAX_BYTES, NULL, &a) < 0)
		abort();
	for (unsigned c = 0; c < 0x80; c++) {
		const char *letters = "\bb\ff\nn\rr\tt\"\"\\\\",
			   *at = c ? strchr(letters, (int)c) : NULL;
		char plain[8], code[12], letter[8];

		/* The letter of a short form stands behind its code point. */
		while (at && (at - letters) % 2)
			at = strchr(at + 1, (int)c);
		snprintf(plain, sizeof(plain), "\"%c\"", (int)c);
		snprintf(code, sizeof(code), "\"\\u%04x\"", c);
		snprintf(letter, sizeof(letter), "\"\\%c\"", at ? at[1] : 'x');
		check(reads(a, plain) == (c >= 0x20 && !at && c != '~'));
		check(reads(a, code) == (c < 0x20 && !at));
		check(reads(a, letter) == (at != NULL));
	}
	ok_all("escapes");
	automaton_free(a);
	grammar_free(g);
	json_decref(schema);
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
	accepts("{'items': [{'type': 'integer'}, {'type': 'string'}]}", "[]|[1]|[1,'a']",
		"['a']|[1,2]|[1,'a',3]");
	accepts("{'items': [{'type': 'integer'}], 'additionalItems': {'type': 'null'}}",
		"[]|[1]|[1,null]", "[null]|[1,2]");
	accepts("{'items': [{'$id': 'http://a/b', 'enum': [1]}], 'additionalItems': {'$ref': 'http://a/b'}}",
		"[1]|[1,1]", "[2]|[1,2]");
	accepts("{'items': {'type': 'integer'}, 'additionalItems': false}", "[]|[1,2]", "['a']");
	accepts("{'type': 'array', 'not': {'items': [true, {'type': 'string'}], 'additionalItems': {'type': 'null'}}}",
		"[1,2]|['a',2]|[1,'a',0]", "[]|[1]|[1,'a']|[1,'a',null]");
	accepts("{'type': 'array', 'not': {'items': {'type': 'null'}, 'additionalItems': false}}",
		"[1]", "[]|[null]");
	accepts("{'const': [1, 'a', null], 'items': [{'type': 'integer'}, {}], 'additionalItems': {'type': 'null'}}",
		"[1,'a',null]", "[1,'a']");
	refuses("{'items': [{}], 'prefixItems': [{}]}", PROBLEM_UNSUPPORTED,
		"the keyword \"items\" of a JSON schema is not supported as a list beside "
		"prefixItems");
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
		"{'ab':3}|{}|{'ac':1}", "{'ab':2}|{'ab':3.5}|{'ac':1.5}|{'b':1}");
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
	/* Schemas beside the one with the keyword do not count. */
	accepts("{'allOf': [{'properties': {'a': {}}}, {'unevaluatedProperties': false}]}", "{}",
		"{'a':1}");
	accepts("{'allOf': [{'unevaluatedProperties': false}], 'anyOf': [{'properties': {'a': {}}}]}",
		"{}", "{'a':1}");
	accepts("{'allOf': [{'properties': {'a': {}}, 'unevaluatedProperties': {'type': 'null'}}], 'properties': {'b': {}}, 'unevaluatedProperties': false}",
		"{'a':1}|{'b':null,'a':1}|{'c':null}", "{'b':1}|{'c':1}");
	/* Neither do schemas inside of `not`. */
	accepts("{'type': 'object', 'not': {'not': {'properties': {'a': {}}}}, 'unevaluatedProperties': false}",
		"{}", "{'a':1}");
	accepts("{'if': {'properties': {'a': {'const': 1}}, 'required': ['a']}, 'then': {'properties': {'b': {}}}, 'unevaluatedProperties': false}",
		"{'a':1,'b':2}|{'a':1}|{}", "{'b':2}|{'a':2}");
	accepts("{'allOf': [{'prefixItems': [{}]}, {'prefixItems': [{'type': 'integer'}, {}]}], 'unevaluatedItems': {'type': 'null'}}",
		"[1]|[1,2]|[1,2,null]", "['a']|[1,2,3]");
}

TEST(complements)
{
	accepts("{'not': {'type': ['integer', 'string', 'object', 'array']}}", "null|true|1.5",
		"1|'a'|1.0|{}|[]");
	accepts("{'type': 'integer', 'not': {'enum': [0, 3, 'a', 4.0]}}", "1|2|-1|5|30",
		"0|-0|3|4");
	accepts("{'type': 'number', 'not': {'const': 0.5}}", "0.25|0.500001|1|-0.5",
		"0.5|0.50|5e-1");
	accepts("{'type': ['string', 'null'], 'not': {'enum': ['a', 'b\\n', null]}}",
		"''|'aa'|'b'|'b\\nc'", "'a'|'b\\n'|null|'\\u0061'");
	accepts("{'type': 'boolean', 'not': {'const': true}}", "false", "true");
	accepts("{'type': 'number', 'not': {'minimum': 3}}", "2|2.999999|-5", "3|4");
	accepts("{'type': 'string', 'not': {'maxLength': 2}}", "'abc'", "'ab'|''");
	accepts("{'type': 'string', 'not': {'pattern': '^a'}}", "''|'ba'", "'a'|'ab'");
	accepts("{'type': 'string', 'not': {'pattern': '^[^\\\\d]$'}}", "''|'ab'|'1'", "'a'");
	accepts("{'type': 'object', 'properties': {'a': {}, 'b': {}}, 'not': {'required': ['a', 'b']}}",
		"{}|{'a':1}|{'b':1}", "{'a':1,'b':1}");
	accepts("{'type': 'object', 'additionalProperties': true, 'not': {'required': ['a']}}",
		"{}|{'b':1}", "{'a':1}");
	accepts("{'not': {'properties': {'a': {'type': 'string'}}}}", "{'a':1}|{'a':null}",
		"{}|{'a':'x'}|1");
	accepts("{'not': {'items': {'type': 'integer'}}}", "['a']|[1.5]", "[]|[1]|1");
	accepts("{'not': {'anyOf': [{'type': 'string'}, {'minimum': 0}]}}", "-1|-0.5", "'a'|0|1");
	accepts("{'not': {'allOf': [{'type': 'string'}, {'minLength': 2}]}}", "'a'|1|null", "'ab'");
	accepts("{'not': {'not': {'type': 'string'}}}", "'a'", "1");
	accepts("{'not': {'if': {'type': 'string'}, 'then': {'maxLength': 1}, 'else': {'type': 'null'}}}",
		"'ab'|1", "'a'|null");
	/* Recursive schemas have recursive complements. */
	accepts("{'$defs': {'s': {'type': 'object', 'properties': {'a': {'$ref': '#/$defs/s'}}}}, 'not': {'$ref': '#/$defs/s'}}",
		"1|{'a':1}|{'a':{'a':null}}", "{}|{'a':{}}");
	accepts("{'oneOf': [{'type': 'integer'}, {'type': 'number', 'minimum': 3}]}", "1|3.5",
		"3|4");
	accepts("{'oneOf': [{'required': ['a'], 'properties': {'a': {}}}, {'required': ['b'], 'properties': {'b': {}}}]}",
		"{'a':1}|{'b':1}", "{}|{'a':1,'b':1}");
	accepts("{'oneOf': [{'type': 'number', 'multipleOf': 5}, {'type': 'integer', 'maximum': 9}, {'const': 'x'}]}",
		"10|15|4|'x'", "5|0|11");
	refuses("{'not': {}}", EINVAL, "no value can be valid by the JSON schema");
	refuses("{'oneOf': [{'const': 1}, {'const': 1.0}]}", EINVAL,
		"no value can be valid by the JSON schema");
	refuses("{'not': {'propertyNames': {'maxLength': 3}}}", PROBLEM_UNSUPPORTED,
		"the keyword \"not\" of a JSON schema is not supported here: no value is left of which it is certain that the schema accepts it");
}

TEST(conditions)
{
	accepts("{'type': 'object', 'properties': {'c': {'enum': ['us', 'ca']}, 'z': {'type': 'string'}}, 'required': ['c', 'z'], 'if': {'properties': {'c': {'const': 'us'}}}, 'then': {'properties': {'z': {'pattern': '^\\\\d{5}$'}}}, 'else': {'properties': {'z': {'maxLength': 2}}}}",
		"{'c':'us','z':'12345'}|{'c':'ca','z':'ab'}",
		"{'c':'us','z':'ab'}|{'c':'ca','z':'12345'}");
	accepts("{'if': {'type': 'string'}, 'else': {'type': 'integer'}}", "'a'|1", "1.5|null");
	accepts("{'if': {'minimum': 3}, 'type': 'integer'}", "3|2", "'a'");
	accepts("{'properties': {'a': {}, 'b': {}}, 'dependentRequired': {'a': ['b']}}",
		"{}|{'b':1}|{'a':1,'b':2}", "{'a':1}|1");
	accepts("{'properties': {'a': {}, 'b': {}}, 'dependentSchemas': {'a': {'properties': {'b': {'type': 'null'}}}}}",
		"{}|{'b':1}|{'a':1,'b':null}|{'a':1}", "{'a':1,'b':2}");
}

TEST(counted)
{
	accepts("{'contains': {'type': 'integer'}}", "[1]|['a',1]|[1,2,'a']", "[]|['a']|1");
	accepts("{'contains': {'const': 1}, 'minContains': 2, 'maxContains': 3, 'items': {'type': 'integer'}}",
		"[1,1]|[1,2,1]|[2,1,1,1,5]", "[1]|[1,2]|[1,1,1,1]|[1,1,'a']");
	accepts("{'contains': {'const': 1}, 'minContains': 0, 'maxContains': 1}",
		"[]|[1]|[2,1,'a']", "[1,1]|[1,2,1.0]");
	accepts("{'prefixItems': [{'type': 'string'}, {'type': 'integer'}], 'contains': {'type': 'integer', 'minimum': 5}, 'maxItems': 3}",
		"['a',5]|['a',1,6]|['a',5,'b']", "['a']|['a',1]|[5]|['a',1,6,7]");
	accepts("{'items': {'enum': ['a', 'b', 'c']}, 'uniqueItems': true, 'minItems': 1, 'maxItems': 2}",
		"['a']|['a','c']|['b','c']", "[]|['a','a']|['a','b','c']");
	accepts("{'properties': {'a': {}, 'b': {}, 'c': {}}, 'minProperties': 1, 'maxProperties': 2}",
		"{'a':1}|{'a':1,'c':2}|{'b':1,'c':2}", "{}|{'a':1,'b':2,'c':3}");
	accepts("{'type': 'object', 'maxProperties': 1}", "{}|{'a':1}", "{'a':1,'b':2}");
	/* A name may come twice, and is one property. */
	accepts("{'type': 'object', 'minProperties': 1}", "{'a':1}|{'a':1,'a':2}", "{}");
	accepts("{'properties': {'a': {}}, 'additionalProperties': {'type': 'null'}, 'minProperties': 2}",
		"{'a':1,'b':null}", "{'a':1}|{'b':null,'b':null}|{'b':null}");
	refuses("{'additionalProperties': {'type': 'null'}, 'minProperties': 2}",
		PROBLEM_UNSUPPORTED,
		"the keyword \"minProperties\" of a JSON schema is not supported here: no value is left of which it is certain that the schema accepts it");
	refuses("{'type': 'object', 'properties': {'a': {}}, 'additionalProperties': false, 'minProperties': 2}",
		EINVAL, "no value can be valid by the JSON schema");
	refuses("{'contains': {'const': 1}, 'allOf': [{'contains': {'const': 2}}]}",
		PROBLEM_UNSUPPORTED,
		"the keyword \"contains\" of a JSON schema is not supported in two schemas at the same place");
}

TEST(names)
{
	accepts("{'patternProperties': {'^a': {'type': 'integer'}, 'b$': {'type': 'string'}}}",
		"{}|{'a':1}|{'b':'x'}|{'a':1,'cb':'x'}",
		"{'a':'x'}|{'b':1}|{'c':1}|{'ab':1}|{'ab':'x'}");
	accepts("{'properties': {'ab': {}}, 'patternProperties': {'^a': {'type': 'integer'}}, 'additionalProperties': {'type': 'null'}}",
		"{'ab':1,'ac':2,'x':null}", "{'ab':null}|{'ac':null}|{'x':1}");
	accepts("{'type': 'object', 'propertyNames': {'pattern': '^[a-c]+$', 'maxLength': 2}}",
		"{}|{'ab':1}|{'a':1,'b':2}", "{'abc':1}|{'d':1}|{'':1}");
	accepts("{'properties': {'a': {}, 'bb': {}}, 'propertyNames': {'maxLength': 1}}", "{'a':1}",
		"{'bb':1}");
	accepts("{'type': 'object', 'propertyNames': {'enum': ['x', 'y', 1]}}",
		"{'x':1}|{'y':1}|{}", "{'z':1}");
	accepts("{'type': 'object', 'propertyNames': {'anyOf': [{'enum': ['a', 'b', 1]}, {'pattern': '^x', 'minLength': 2}]}}",
		"{'a':1,'xx':2}|{}", "{'c':1}|{'x':1}|{'aa':1}");
	accepts("{'allOf': [{'additionalProperties': false}, {'properties': {'a': {}}}]}", "{}",
		"{'a':1}");
	accepts("{'allOf': [{'properties': {'a': {}}, 'additionalProperties': {'type': 'integer'}}, {'properties': {'b': {'minimum': 3}}}]}",
		"{'a':'x','b':3}|{'c':1}", "{'b':1}|{'b':3.5}|{'c':'x'}");
	/* In some dialects \\w has letters of all scripts, so both schemas count for this name. */
	accepts("{'properties': {'\u00e9': {}}, 'patternProperties': {'^\\\\w$': {'type': 'integer'}}}",
		"{'\u00e9':1}", "{'\u00e9':'x'}");
}

TEST(references)
{
	accepts("{'$defs': {'x': {'$anchor': 'n', 'type': 'integer'}}, '$ref': '#n'}", "1", "'a'");
	accepts("{'$id': 'http://e.org/a/b.json', '$defs': {'x': {'$id': 'c.json', '$defs': {'y': {'type': 'null'}}, 'properties': {'q': {'$ref': '#/$defs/y'}}}}, '$ref': '/a/./d/../c.json'}",
		"{'q':null}", "{'q':1}");
	accepts("{'$id': 'http://e.org/root', '$defs': {'y': {'type': 'string'}, 'x': {'$id': 'x', '$defs': {'y': {'type': 'null'}}}}, 'properties': {'a': {'$ref': '#/$defs/y'}, 'b': {'$ref': 'x#/$defs/y'}, 'c': {'$ref': 'http://e.org/root'}}}",
		"{'a':'s','b':null,'c':{}}", "{'a':null}|{'b':'s'}");
	accepts("{'$id': 'urn:a:b', 'properties': {'a': {'$ref': 'urn:a:b#/$defs/y'}}, '$defs': {'y': {'type': 'null'}}}",
		"{'a':null}", "{'a':1}");
	accepts("{'$dynamicAnchor': 'n', 'properties': {'a': {'$dynamicRef': '#n'}}}",
		"{'a':{'a':{}}}", "{'a':1}|1");
	accepts("{'$defs': {'a b%c': {'type': 'null'}}, '$ref': '#/$defs/a%20b%25c'}", "null", "1");
	accepts("{'properties': {'$id': {'type': 'string'}, '$ref': {'type': 'null'}}, 'enum': [{'$id': 'x'}, {'$ref': '#'}, {'$id': 1}]}",
		"{'$id':'x'}", "{'$ref':'#'}|{'$id':1}");
	/* A place may have several recursive schemas. */
	accepts("{'$defs': {'a': {'properties': {'n': {'$ref': '#/$defs/a'}, 'x': {'type': 'integer'}}}, 'b': {'properties': {'n': {'$ref': '#/$defs/b'}, 'x': {'minimum': 3}}}}, 'allOf': [{'$ref': '#/$defs/a'}, {'$ref': '#/$defs/b'}]}",
		"{'n':{'n':{'x':3}},'x':4}", "{'x':2}|{'n':{'x':3.5}}|{'n':{'n':{'x':2}}}");
	refuses("{'$defs': {'a': {'$id': 'x'}, 'b': {'$id': 'x'}}}", EINVAL,
		"two schemas of the JSON schema have the name \"x\"");
	refuses("{'$ref': '#/allOf/+0', 'allOf': [{}]}", EINVAL,
		"the JSON schema has nothing at the place \"#/allOf/+0\"");
}

TEST(constants)
{
	accepts("{'enum': ['a', 'abcd', 3, null], 'maxLength': 3, 'not': {'type': 'null'}}",
		"'a'|3", "'abcd'|null");
	accepts("{'enum': [1, 2, 3, 4, 5, 6, 'x'], 'anyOf': [{'multipleOf': 2}, {'minimum': 5}], 'type': 'integer'}",
		"2|4|5|6", "1|3|'x'");
	accepts("{'enum': [{'a': 1}, {'a': 'x'}, {'b': 1}], 'required': ['a'], 'properties': {'a': {'type': 'integer'}}}",
		"{'a':1}", "{'a':'x'}|{'b':1}");
	accepts("{'enum': [[1, 2], [1, 1], [3]], 'uniqueItems': true, 'contains': {'const': 1}}",
		"[1,2]", "[1,1]|[3]");
	accepts("{'allOf': [{'enum': [1, 2, 3]}, {'enum': [2.0, 3, 4]}], 'oneOf': [{'const': 2}, {'const': 9}]}",
		"2", "3|1|2.0");
	accepts("{'enum': [0.1, 2.5]}", "0.1|2.5", "0.10");
	/* From 2^63 on a number may be one that was rounded. */
	accepts("{'enum': [9223372036854775807, -1e18, 1e19, -1e19, [[1e19]], {'a': 1e19}, {'a': 1}]}",
		"9223372036854775807|-1e18|{'a':1}", "1e19|1e+19|-1e19|-1e+19|[[1e19]]|{'a':1e19}");
	refuses("{'const': 1e19}", PROBLEM_UNSUPPORTED,
		"the keyword \"const\" of a JSON schema is not supported here: no value is left of which it is certain that the schema accepts it");
	accepts("{'properties': {'k': {'enum': ['a', 'b']}}, 'anyOf': [{'properties': {'k': {'const': 'a'}}}, {'properties': {'k': {'pattern': 'c'}}}]}",
		"{'k':'a'}|{}", "{'k':'b'}|{'k':'c'}");
}

TEST(together)
{
	accepts("{'type': 'string', 'allOf': [{'pattern': 'a'}, {'pattern': 'b'}], 'minLength': 3, 'maxLength': 4}",
		"'abc'|'xbya'", "'ab'|'aaa'|'abcde'");
	accepts("{'type': 'string', 'format': 'date', 'pattern': '^2024'}", "'2024-01-31'",
		"'2023-01-31'|'2024-02-30'");
	accepts("{'type': 'string', 'pattern': '^$', 'allOf': [{'pattern': ''}]}", "''", "'a'");
	accepts("{'type': 'integer', 'multipleOf': 3, 'minimum': -4, 'maximum': 14}", "-3|0|3|12",
		"-4|1|14|15|-6");
	accepts("{'type': 'integer', 'allOf': [{'multipleOf': 4}, {'multipleOf': 6}]}",
		"0|12|-24|1200", "4|6|10");
	accepts("{'type': 'integer', 'multipleOf': 0.01}", "1|100", "1.5");
	accepts("{'allOf': [{'items': {'type': 'integer'}}, {'prefixItems': [{'minimum': 3}], 'items': {'maximum': 2}}]}",
		"[]|[3]|[3,2]|[4,1,0]", "[2]|[3,3]|[3,1.5]");
	accepts("{'anyOf': [{'type': 'integer'}, {'type': 'string'}], 'oneOf': [{'minimum': 5}, {'type': 'string', 'maxLength': 1}]}",
		"5|'ab'", "4|'a'");
}

TEST(refusals)
{
	static const char *const unknown[] = {"somethingElse", "dependencies", "minMembers",
					      "$recursiveRef"};

	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
		char schema[100], sentence[200];

		snprintf(schema, sizeof(schema), "{'properties': {'a': {'%s': {}}}}", unknown[i]);
		snprintf(sentence, sizeof(sentence),
			 "the keyword \"%s\" of a JSON schema is not supported", unknown[i]);
		refuses(schema, PROBLEM_UNSUPPORTED, sentence);
	}
	refuses("{'type': 'number', 'multipleOf': 0.1}", PROBLEM_UNSUPPORTED,
		"the keyword \"multipleOf\" of a JSON schema is not supported unless it is a whole number, or a part of 1 and the type is integer");
	refuses("{'type': 'array', 'uniqueItems': true}", PROBLEM_UNSUPPORTED,
		"the keyword \"uniqueItems\" of a JSON schema is not supported for arrays with more than one element, unless the elements are of an enum");
	refuses("{'type': 'string', 'format': 'color'}", PROBLEM_UNSUPPORTED,
		"the format \"color\" of a JSON schema is not supported");
	refuses("{'type': 'string', 'pattern': '(?=a)'}", PROBLEM_UNSUPPORTED,
		"lookahead in a regular expression is not supported");
	refuses("{'$ref': 'https://example.com/x'}", PROBLEM_UNSUPPORTED,
		"the keyword \"$ref\" of a JSON schema is not supported to a schema outside");
	refuses("{'$dynamicRef': '#a', '$defs': {'x': {'$id': 'x', '$dynamicAnchor': 'a'}, 'y': {'$dynamicAnchor': 'a'}}}",
		PROBLEM_UNSUPPORTED,
		"the keyword \"$dynamicRef\" of a JSON schema is not supported to an anchor that several schemas have");
	refuses("{'$ref': '#/$defs/x'}", EINVAL,
		"the JSON schema has nothing at the place \"#/$defs/x\"");
	refuses("{'$ref': '#'}", EINVAL,
		"a JSON schema refers to itself without a property or an element between");
	refuses("{'allOf': [{'$ref': '#'}], 'type': 'object'}", EINVAL,
		"a JSON schema refers to itself without a property or an element between");
	refuses("{'anyOf': [{'$ref': '#'}, {'type': 'null'}]}", EINVAL,
		"the rule \"a schema that refers to itself\" is left-recursive: it calls itself before it reads anything");
	refuses("{'properties': {'a': {'$ref': '#'}}, 'required': ['a']}", EINVAL,
		"no value of the types that the keywords are about can be valid by the JSON schema");
	refuses("{'type': 'integer', 'minimum': 5, 'maximum': 4}", EINVAL,
		"no value can be valid by the JSON schema");
	refuses("false", EINVAL, "no value can be valid by the JSON schema");
	refuses("{'type': 'integer', 'minimum': 1e18}", PROBLEM_UNSUPPORTED,
		"the keyword \"minimum\" of a JSON schema is not supported here: no value is left of which it is certain that the schema accepts it");
	refuses("{'type': 'word'}", EINVAL,
		"the keyword \"type\" of the JSON schema is not the name of a type, or a list of these");
	refuses("{'minLength': -1}", EINVAL,
		"the keyword \"minLength\" of the JSON schema is not a whole number from 0 on");
	refuses("{'required': ['a\\u0000b']}", PROBLEM_UNSUPPORTED,
		"the keyword \"required\" of a JSON schema is not supported with a name that has a zero byte");
	refuses("{'type': 'string\\u0000'}", EINVAL,
		"the keyword \"type\" of the JSON schema is not the name of a type, or a list of these");
	refuses("{'type': 'string', 'format': 'date\\u0000'}", EINVAL,
		"the keyword \"format\" of the JSON schema is not a string without a NUL");
	refuses("{'$ref': '#/$defs/x\\u0000', '$defs': {'x': {}}}", EINVAL,
		"the keyword \"$ref\" of the JSON schema is not a string without a NUL");
	refuses("{'$anchor': 'a\\u0000', 'items': {'$ref': '#a'}}", EINVAL,
		"the keyword \"$anchor\" of the JSON schema is not a string without a NUL");
	refuses("[]", EINVAL, "a JSON schema is neither an object nor a boolean");
	accepts("{'type': 'string', 'maxLength': 100000}", "'a'", "1");
}

/* ---- hostile schemas ---- */

/* Makes {"KEYWORD": [n schemas]}: each is the text, with a number in the place of every #. */
static json_t *repeated(const char *keyword, int n, const char *text, int from)
{
	json_t *list = json_array(), *schema = json_object();

	for (int i = 0; i < n; i++) {
		char copy[400];
		json_t *part;
		size_t len = 0;

		for (const char *p = text; *p && len < sizeof(copy) - 20; p++) {
			if (*p == '#')
				len += (size_t)snprintf(copy + len, 20, "%d", i + from);
			else
				copy[len++] = *p == '\'' ? '"' : *p;
		}
		part = json_loadb(copy, len, JSON_DECODE_ANY, NULL);
		if (!part || json_array_append_new(list, part) < 0)
			abort();
	}
	if (!schema || json_object_set_new(schema, keyword, list) < 0)
		abort();
	return schema;
}

static void too_much(json_t *schema, const char *name, const char *sentence)
{
	struct grammar *g = NULL;
	struct err e = {0};

	is_int(constraint_json_schema(schema, &g, &e), -E2BIG, "%s", name);
	is_str(e.text, sentence, "%s", sentence);
	grammar_free(g);
	json_decref(schema);
}

/* Schemas whose work would be quadratic or exponential. Without a bound some of them take hours. */
TEST(hostile)
{
	static const char *const work = "the JSON schema takes too much work";
	json_t *schema, *defs = json_object();

	schema = json_pack("{s:[o,o]}", "allOf", repeated("enum", 100000, "#", 0),
			   repeated("enum", 100000, "#", 100000));
	too_much(schema, "constants compared with constants", work);

	schema = repeated("const", 100000, "#", 0);
	json_object_set_new(schema, "uniqueItems", json_true());
	too_much(schema, "elements compared with each other", work);

	for (int i = 0; i < 20; i++) {
		char name[20], ref[40];

		snprintf(name, sizeof(name), "%d", i);
		snprintf(ref, sizeof(ref), "#/$defs/%d", i + 1);
		json_object_set_new(defs, name,
				    json_pack("{s:[{s:s},{s:s}],s:i}", "allOf", "$ref", ref, "$ref",
					      ref, "minLength", 1));
	}
	json_object_set_new(defs, "20", json_object());
	schema = json_pack("{s:O,s:s}", "$defs", defs, "$ref", "#/$defs/0");
	ok(json_is_object(schema), "a schema with 2^20 ways to its end");
	{
		struct grammar *g = NULL;

		is_int(constraint_json_schema(schema, &g, NULL), 0, "each is taken once");
		grammar_free(g);
		json_decref(schema);
	}
	json_decref(defs);

	too_much(
		repeated(
			"oneOf", 60,
			"{'type': 'object', 'properties': {'k': {'minLength': #}, 'x': {'minimum': #}}, 'required': ['k', 'x']}",
			0),
		"branches that are not apart",
		"the JSON schema has more than 500 combinations of alternatives at one place");
	too_much(repeated("prefixItems", 300,
			  "{'type': 'string', 'pattern': '[\\\\p{L}\\\\d#]{99}x.#'}", 0),
		 "classes", "the grammar is too large: it has more than 262144 nodes");
	too_much(repeated("prefixItems", 4,
			  "{'allOf': [{'pattern': 'a.{#}b'}, {'pattern': 'b.{#}a'}]}", 20),
		 "patterns with many states",
		 "a pattern, together with others at the same place, needs more than 8192 states");
}

struct counted_pace {
	struct pace pace;
	unsigned n, most;
};

static bool give_up(void *arg)
{
	struct counted_pace *p = arg;

	return ++p->n > p->most;
}

/* A compilation that nobody wants any more ends at the next question. */
TEST(pace)
{
	json_t *schema = repeated("enum", 20000, "'#'", 0);
	struct constraint c = {.kind = CONSTRAINT_JSON_SCHEMA, .schema = schema};
	struct counted_pace p = {.pace = {give_up, &p}, .most = UINT_MAX};
	struct grammar *g = NULL;
	struct err e = {0};
	unsigned n;

	is_int(constraint_grammar(&c, &p.pace, &g, &e), 0, "a long compilation");
	grammar_free(g);
	n = p.n;
	ok(n > 20, "asks %u times", n);
	for (unsigned most = 0; most < n; most++) {
		g = NULL;
		p.n = 0;
		p.most = most;
		check(constraint_grammar(&c, &p.pace, &g, &e) == -ECANCELED && !g);
		check(p.n == most + 1 && !strcmp(e.text, "the grammar is not wanted any more"));
	}
	ok_all("and ends at each of them");
	json_decref(schema);
}

TEST(json_object)
{
	struct automaton *a = NULL;
	struct grammar *g = NULL;

	if (constraint_json_object(&g, NULL) < 0 || automaton_new(g, MAX_BYTES, NULL, &a) < 0)
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
	if (grammar_build(b, root, g, NULL) < 0 || automaton_new(*g, MAX_BYTES, NULL, a) < 0)
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
