/* protocol/openai: the parameters that restrict the text of an answer, and tools whose calls are demanded or strict. */
#include "tests/openai_parse.h"

/* Each way to a constraint, and none. */
TEST(constraints)
{
	static const char *const with[][2] = {
		{"'response_format':{'type':'json_object'}", "response_format"},
		{"'response_format':{'type':'json_object','schema':{'type':'null'}}",
		 "response_format.schema"},
		{"'response_format':{'type':'json_schema','json_schema':{'name':'a','strict':true,"
		 "'schema':{'type':'object','properties':{'a':{'type':'integer'}}}}}",
		 "response_format.json_schema.schema"},
		{"'structured_outputs':{'json':{'type':'null'},'disable_fallback':true}",
		 "structured_outputs.json"},
		{"'structured_outputs':{'json':'{}','structural_tag':null,'choice':null}",
		 "structured_outputs.json"},
		{"'structured_outputs':{'regex':'a+'}", "structured_outputs.regex"},
		{"'structured_outputs':{'choice':['a','b']}", "structured_outputs.choice"},
		{"'structured_outputs':{'grammar':'root ::= [a-z]'}", "structured_outputs.grammar"},
		{"'structured_outputs':{'json_object':true,'regex':null}",
		 "structured_outputs.json_object"},
		{"'guided_json':{'enum':[1,2]}", "guided_json"},
		{"'guided_json':'true'", "guided_json"},
		{"'guided_json':{}", "guided_json"},
		{"'json_schema':{}", "json_schema"},
		{"'guided_regex':'a|b'", "guided_regex"},
		{"'guided_choice':['yes','no']", "guided_choice"},
		{"'guided_grammar':'root ::= [0-9]+'", "guided_grammar"},
		{"'json_schema':{'type':'string'}", "json_schema"},
		{"'regex':'x'", "regex"},
		{"'ebnf':'root ::= [x]'", "ebnf"},
		{"'grammar':'root ::= [x]'", "grammar"},
	};
	static const char *const without[] = {
		"'response_format':{'type':'text'}",
		"'response_format':null,'structured_outputs':null,'guided_json':null",
		"'guided_json':'','guided_choice':null,'guided_regex':'','grammar':'','regex':''",
		"'guided_json':false,'guided_choice':false,'guided_grammar':0",
		"'structured_outputs':{}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(with); i++) {
		for (int chat = 0; chat < 2; chat++) {
			takes(chat, with[i][0], with[i][1]);
			ok(r.grammar && r.constraint && !strcmp(r.constraint, with[i][1]),
			   "it has a grammar: %s", r.constraint);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(without); i++) {
		takes(true, without[i], without[i]);
		ok(!r.grammar && !r.constraint, "it has none");
	}
}

/* Answers with calls: of which requests they have a grammar. */
TEST(calls)
{
#define STRICT_IS(strict)                                                          \
	"'tools':[{'function':{'name':'f','strict':" strict                        \
	",'parameters':{'type':'object','properties':{'a':{'type':'integer'}}}}}," \
	"{'function':{'name':'g'}}]"
#define ALLOWED(mode, name)                                      \
	"{'type':'allowed_tools','allowed_tools':{'mode':'" mode \
	"','tools':[{'type':'function','function':{'name':'" name "'}}]}}"
	static const struct {
		const char *members;
		bool grammar, constraint, no_calls;
	} with[] = {
		{STRICT_IS("false"), false},
		{STRICT_IS("true"), true},
		{STRICT_IS("true") ",'tool_choice':'none'", false},
		{STRICT_IS("false") ",'tool_choice':'auto'", false},
		{STRICT_IS("false") ",'tool_choice':'required'", true},
		{STRICT_IS("false") ",'response_format':{'type':'json_object'}", true, true},
		{STRICT_IS("true") ",'guided_json':'{}'", true, true},
		{STRICT_IS("false") ",'guided_regex':'a'", true, true, true},
		{STRICT_IS(
			 "false") ",'tool_choice':'required','response_format':{'type':'json_object'}",
		 true},
		{STRICT_IS("true") ",'tool_choice':'required','guided_json':{'type':'null'}", true},
		{STRICT_IS("true") ",'tool_choice':'none','guided_regex':'a'", true, true, true},
		{STRICT_IS("false") ",'tool_choice':" ALLOWED("auto", "f"), true},
		{STRICT_IS("false") ",'tool_choice':" ALLOWED("required", "f"), true},
		{STRICT_IS("false") ",'guided_regex':'a','tool_choice':" ALLOWED("auto", "f"), true,
		 true, true},
	};
	const struct tools_format *hermes = tools_format_at(1);

	for (size_t i = 0; i < ARRAY_SIZE(with); i++) {
		limits.tools = hermes;
		takes(true, with[i].members, "tools");
		ok(!r.grammar == !with[i].grammar && !r.constraint == !with[i].constraint &&
			   r.no_calls == with[i].no_calls && !r.only_tool && !r.one_call,
		   "%s", with[i].members + strcspn(with[i].members, "]"));
		limits.tools = NULL;
		if (strstr(with[i].members, "required")) {
			is_int(parse_with(true, with[i].members), -PROBLEM_UNSUPPORTED,
			       "of a format that is not known no call is demanded");
			is_str(err.param, "tool_choice", "by tool_choice");
		} else if (strstr(with[i].members, "true") && !strstr(with[i].members, "none")) {
			is_int(parse_with(true, with[i].members), -PROBLEM_UNSUPPORTED,
			       "nor is a tool strict");
			ok(!strcmp(err.param, "tools") && strstr(err.text, "\"f\""), "%s",
			   err.text);
		} else {
			takes(true, with[i].members, "a format that is not known");
			ok(!r.grammar == !with[i].constraint, "a grammar of the text alone");
		}
	}
	limits.tools = hermes;
	takes(true, STRICT_IS("false") ",'tool_choice':{'type':'function','function':{'name':'g'}}",
	      "a named tool");
	ok(r.grammar && r.only_tool == r.tools.v[1].name && r.one_call, "one call of it");
	refuses(true, STRICT_IS("false") ",'tool_choice':'required','guided_regex':'a'",
		"a text and a call");
	is_str(err.text,
	       "guided_regex and tool_choice are both given, but an answer cannot be a text and a call",
	       "are not demanded together");
	refuses(true,
		"'tools':[{'function':{'name':'f','parameters':{'type':'string'}}},"
		"{'function':{'name':'g','parameters':{'properties':{'a':false},'required':['a']}}}],"
		"'tool_choice':'required'",
		"calls that cannot be");
	is_str(err.text, "tools: no arguments can be valid for any tool that may be called",
	       "says that there is no call");
	is_int(parse_with(true, "'tools':[{'function':{'name':'f','strict':true,'parameters':"
				"{'type':'object','propertyX':1}}}]"),
	       -PROBLEM_UNSUPPORTED, "a strict schema that is not known");
	ok(!strcmp(err.param, "tools") && strstr(err.text, "propertyX") &&
		   strstr(err.text, "\"f\""),
	   "%s", err.text);
	refuses(true, STRICT_IS("true") ",'structured_outputs':{'choice':['a']}",
		"a text and a strict tool");
	is_str(err.param, "structured_outputs.choice", "of which the constraint is named");
	/* The parameter at fault, whatever words a client's schema has. */
	is_int(parse_with(true, STRICT_IS("true") ",'guided_json':{' the tool ':1}"),
	       -PROBLEM_UNSUPPORTED, "a schema that is not known beside a strict tool");
	is_str(err.param, "guided_json", "is named");
	is_int(parse_with(true,
			  STRICT_IS("false") ",'tool_choice':'required','response_format':"
					     "{'type':'json_schema','json_schema':{'schema':7}}"),
	       -EINVAL, "a schema that is none beside a demanded call");
	is_str(err.param, "response_format.json_schema.schema", "is named, too");
	limits.tools = NULL;
}

/* clang-format off: a case begins a line. */
static const struct bad bads[] = {
	{'c', "'tools':[{'function':{'name':'f'}}],'tool_choice':{'function':{'name':'f'}}",
	 "tool_choice",
	 "tool_choice cannot demand a call: this server does not know how the model writes tool calls",
	 PROBLEM_UNSUPPORTED},
	{'c', "'response_format':{'type':'sound'}", "response_format.type",
	 "response_format.type is \"sound\", but must be \"text\", \"json_object\" or "
	 "\"json_schema\""},
	{'c', "'response_format':{}", "response_format.type", NULL},
	{'c', "'response_format':{'type':'json_schema'}", "response_format.json_schema", NULL},
	{'c', "'response_format':{'type':'json_schema','json_schema':{'name':'a'}}",
	 "response_format.json_schema.schema",
	 "response_format.json_schema.schema is missing: it must be a JSON schema"},
	{'c', "'response_format':{'type':'json_schema','json_schema':{'name':1,'schema':{}}}",
	 "response_format.json_schema.name", NULL},
	{'c', "'response_format':{'type':'json_schema','json_schema':{'schema':{},'strict':1}}",
	 "response_format.json_schema.strict", NULL},
	{'c', "'response_format':{'type':'json_schema','json_schema':{'schema':[]}}",
	 "response_format.json_schema.schema",
	 "response_format.json_schema.schema: it must be a JSON schema"},
	{'p', "'response_format':{'type':'json_schema','json_schema':{'schema':{'ifX':{}}}}",
	 "response_format.json_schema.schema",
	 "response_format.json_schema.schema: the keyword \"ifX\" of a JSON schema is not supported",
	 PROBLEM_UNSUPPORTED},
	{'c', "'response_format':{'type':'json_object'},'guided_regex':'a'", "guided_regex",
	 "response_format and guided_regex are both given, but an answer can have one constraint"},
	{'c', "'structured_outputs':{'regex':'a','choice':['b']}", "structured_outputs.choice",
	 "structured_outputs.regex and structured_outputs.choice are both given, but an answer can "
	 "have one constraint"},
	{'c', "'structured_outputs':{'regex':5}", "structured_outputs.regex", NULL},
	{'c', "'structured_outputs':{'regx':'a'}", "structured_outputs", NULL},
	{'c', "'structured_outputs':[]", "structured_outputs", NULL},
	{'c', "'structured_outputs':{'structural_tag':{}}", "structured_outputs.structural_tag",
	 "structured_outputs.structural_tag is not supported: a constraint is about the whole "
	 "answer",
	 PROBLEM_UNSUPPORTED},
	{'p', "'guided_regex':'(a'", "guided_regex", NULL},
	{'p', "'guided_regex':'(?=a)'", "guided_regex", NULL, PROBLEM_UNSUPPORTED},
	{'p', "'guided_choice':['a',1]", "guided_choice",
	 "guided_choice: it must be an array of strings"},
	{'c', "'guided_choice':[]", "guided_choice", "guided_choice: the list of choices is empty"},
	{'c', "'guided_choice':{}", "guided_choice",
	 "guided_choice: it must be an array of strings"},
	{'p', "'structured_outputs':{'choice':[]}", "structured_outputs.choice", NULL},
	{'p', "'guided_grammar':'root ::= ('", "guided_grammar", NULL},
	{'p', "'grammar':'a ::= \\\"x\\\"'", "grammar", NULL},
	{'p', "'guided_json':'{'", "guided_json", NULL},
	{'p', "'guided_json':'[[1]'", "guided_json", NULL},
	{'p', "'guided_json':5", "guided_json", "guided_json: it must be a JSON schema"},
	{'p', "'guided_json':'\\\"a\\\"'", "guided_json", NULL},
	{'p', "'guided_regex':'((a{1,1000}){1,1000}){1,1000}'", "guided_regex", NULL},
	{'c', "'response_format':'text'", "response_format", NULL},
};
/* clang-format on */

TEST(bad)
{
	check_bads(bads, ARRAY_SIZE(bads));
}

int main(void)
{
	return run_parse_tests();
}
