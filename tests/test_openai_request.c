/* protocol/openai: bodies of /v1/chat/completions and /v1/completions are parsed into structs. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "protocol/openai/errors.h"
#include "protocol/openai/request.h"
#include "base/problem.h"
#include "tests/impatient.h"
#include "tests/quoted.h"
#include "tests/tap.h"

static struct openai_limits limits = {
	.vocab_size = 1000,
	.max_choices = 8,
	.defaults = {.temperature = 0.75f,
		     .top_p = 0.5f,
		     .top_k = 20,
		     .repetition_penalty = 1,
		     .want_logprobs = true,
		     .n_logprobs = 3},
};

static struct arena arena;
static struct err err;

/* The request that was read last. */
static struct openai_request r;

static int parse_bytes(bool chat, const char *body, size_t len)
{
	openai_request_release(&r);
	memset(&err, 0, sizeof(err));
	memset(&r, 0xee, sizeof(r)); /* so that a member that nothing sets is seen */
	r.context = r.texts = NULL;
	r.n_prompts = 0;
	r.stop_token_ids = r.allowed = (struct ids){0};
	r.grammar = NULL;
	return chat ? openai_parse_chat(body, len, NULL, &limits, &arena, &r, &err)
		    : openai_parse_completion(body, len, NULL, &limits, &arena, &r, &err);
}

static int parse(bool chat, const char *body)
{
	body = quoted(body);
	return parse_bytes(chat, body, strlen(body));
}

/* Parses a body that is valid but for `members`: of 'a':1 a chat body is {"messages":[...],"a":1}. */
static int parse_with(bool chat, const char *members)
{
	char body[4096];

	snprintf(body, sizeof(body), "{%s%s%s}",
		 chat ? "'messages':[{'role':'user','content':'hi'}]" : "'prompt':'hi'",
		 members[0] ? "," : "", members);
	return parse(chat, body);
}

static void takes(bool chat, const char *members, const char *what)
{
	is_int(parse_with(chat, members), 0, "%s", what);
}

static void refuses(bool chat, const char *members, const char *what)
{
	is_int(parse_with(chat, members), -EINVAL, "%s", what);
}

static bool equals(const json_t *got, const char *want)
{
	json_t *w = json_loads(quoted(want), JSON_DECODE_ANY, NULL);
	bool same = w && json_equal(got, w);

	if (!same) {
		char *text = json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY);

		printf("#   got  %s\n#   want %s\n", text ? text : "(null)", want);
		free(text);
	}
	json_decref(w);
	return same;
}

TEST(defaults)
{
	takes(true, "", "a smallest chat request");
	ok(r.context && !strcmp(r.source, "messages") && !r.model && !r.prompts && !r.n_prompts &&
		   !r.echo,
	   "is a chat request");
	ok(r.sampling.temperature == 0.75f && r.sampling.top_p == 0.5f && r.sampling.top_k == 20 &&
		   r.sampling.repetition_penalty == 1,
	   "sampling comes from the model's defaults");
	ok(!r.sampling.want_logprobs && !r.sampling.n_logprobs, "but log-probabilities do not");
	ok(!r.has_seed && r.n == 1 && !r.max_tokens && !r.min_tokens && !r.ignore_eos &&
		   !r.n_stops && !r.stop_token_ids.len && !r.stream && !r.include_usage &&
		   !r.return_token_ids && !r.thinking,
	   "everything else is off");
	ok(equals(r.context,
		  "{'messages':[{'role':'user','content':'hi'}],'tools':null,'documents':null,"
		  "'add_generation_prompt':true,'enable_thinking':false}"),
	   "context of the template");

	takes(true,
	      "'model':null,'temperature':null,'seed':null,'stop':null,'n':null,'stream':null,"
	      "'stream_options':null,'logprobs':null,'top_logprobs':null,'tools':null,"
	      "'tool_choice':null,'max_tokens':null,'logit_bias':null,'response_format':null,"
	      "'chat_template_kwargs':null,'reasoning_effort':null,'stop_token_ids':null,"
	      "'whatever':{'a':[1]},'user':5,'metadata':[],'store':true,'service_tier':'auto'",
	      "null is absent and unknown fields are ignored");
	ok(!r.has_seed && r.n == 1 && !r.model && r.sampling.temperature == 0.75f,
	   "as if not given");
}

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
		"'guided_json':{},'guided_choice':[],'guided_regex':'','grammar':'','regex':''",
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

TEST(restrictions)
{
	takes(true,
	      "'logit_bias':{'7':-100,'0':1.5,'999':100,'12':0},'allowed_token_ids':[3,1],"
	      "'bad_words':['a b','\\u0000']",
	      "restrictions of tokens");
	ok(r.n_biases == 4 && r.biases[0].token == 0 && r.biases[0].value == 1.5f &&
		   r.biases[1].token == 7 && r.biases[3].token == 999 && r.biases[3].value == 100,
	   "biases by rising token");
	ok(r.allowed.len == 2 && r.allowed.v[0] == 3, "allowed tokens");
	ok(r.n_bad_words == 2 && !strcmp(r.bad_words[0].text, "a b") && r.bad_words[1].len == 1,
	   "bad words");
	takes(true, "'logit_bias':{},'allowed_token_ids':null,'bad_words':[]", "none of them");
	ok(!r.n_biases && !r.allowed.len && !r.n_bad_words, "there are none");
}

TEST(sampling)
{
	uint32_t n_top;

	takes(true,
	      "'model':'lexis','temperature':1.5,'top_p':1,'top_k':-1,'min_p':0.25,'n':8,'seed':"
	      "-1,'presence_penalty':-2,'frequency_penalty':2,'repetition_penalty':1.5,"
	      "'max_tokens':16.0,'min_tokens':7,'ignore_eos':true,'stop_token_ids':[0,999],"
	      "'stop':['a','\\u00e9\\n'],'stream':true,'stream_options':{'include_usage':true,"
	      "'include_obfuscation':false},'logprobs':true,'top_logprobs':20,"
	      "'return_token_ids':true",
	      "everything at once");
	is_str(r.model, "lexis", "model");
	ok(r.sampling.temperature == 1.5f && r.sampling.top_p == 1 && r.sampling.top_k == 0 &&
		   r.sampling.min_p == 0.25f && r.sampling.presence_penalty == -2 &&
		   r.sampling.frequency_penalty == 2 && r.sampling.repetition_penalty == 1.5f,
	   "floats; top_k -1 is off");
	ok(r.has_seed && r.sampling.seed == UINT64_MAX, "a negative seed is a seed");
	ok(r.n == 8 && r.max_tokens == 16 && r.min_tokens == 7 && r.ignore_eos, "counts");
	ok(r.stop_token_ids.len == 2 && r.stop_token_ids.v[0] == 0 && r.stop_token_ids.v[1] == 999,
	   "stop token ids");
	ok(r.n_stops == 2 && !strcmp(r.stops[0], "a") && !strcmp(r.stops[1], "\xc3\xa9\n"),
	   "stop strings");
	ok(r.stream && r.include_usage && !r.continuous_usage && r.return_token_ids,
	   "stream and its options");
	ok(r.sampling.want_logprobs && r.sampling.n_logprobs == 20, "log-probabilities");

	takes(true, "'stream':true,'stream_options':{'continuous_usage_stats':true}",
	      "usage all along");
	ok(r.include_usage && r.continuous_usage, "is usage at the end, too");
	takes(true,
	      "'stream':true,'stream_options':{'continuous_usage_stats':true,'include_usage':false}",
	      "usage all along, but none");
	ok(!r.include_usage && !r.continuous_usage, "is none");

	takes(true,
	      "'seed':9223372036854775807,'stop':'x','max_tokens':3,'max_completion_tokens':5,"
	      "'temperature':1e-30,'top_p':1e-60",
	      "limits");
	ok(r.sampling.seed == INT64_MAX && r.n_stops == 1 && !strcmp(r.stops[0], "x"),
	   "largest seed, one stop string");
	takes(true,
	      "'stop':['a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q','r','s','t','u',"
	      "'v','w','x','y','z','a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q','r',"
	      "'s','t','u','v','w','x','y','z','a','b','c','d','e','f','g','h','i','j','k','l']",
	      "many stop strings");
	ok(r.n_stops == 64 && !strcmp(r.stops[63], "l"), "64 stop strings");
	takes(true, "'max_tokens':3,'max_completion_tokens':5,'temperature':1e-30,'top_p':1e-60",
	      "limits");
	ok(r.max_tokens == 5, "max_completion_tokens wins over max_tokens");
	ok(r.sampling.temperature == 0, "a temperature near 0 is greedy");
	ok(r.sampling.top_p > 0, "a tiny top_p stays above 0");

	takes(true,
	      "'seed':9223372036854775807,'a':[18446744073709551615,-9223372036854775809,"
	      "'\\'99999999999999999999',1.99999999999999999999],'chat_template_kwargs':{'x':"
	      "9223372036854775808,'y':-9223372036854775808,'z':'9223372036854775808'}",
	      "whole numbers beyond 64 bits");
	ok(r.sampling.seed == INT64_MAX, "leave those within as they are");
	ok(json_real_value(json_object_get(r.context, "x")) == 9223372036854775808.0 &&
		   json_integer_value(json_object_get(r.context, "y")) == INT64_MIN &&
		   !strcmp(json_string_value(json_object_get(r.context, "z")),
			   "9223372036854775808"),
	   "and become real numbers, outside of strings");

	takes(true,
	      "'seed':-9223372036854775808,'top_k':0,'temperature':0,'top_logprobs':0,'stop':[]",
	      "other limits");
	ok(r.has_seed && r.sampling.seed == (uint64_t)INT64_MIN && r.sampling.top_k == 0 &&
		   r.sampling.temperature == 0 && !r.n_stops,
	   "smallest seed, greedy, no stops");

	takes(false, "'logprobs':0", "completions: logprobs 0");
	ok(r.sampling.want_logprobs && r.sampling.n_logprobs == 0, "asks for the drawn token's");
	takes(false, "'logprobs':5,'n':2,'best_of':2,'echo':false",
	      "completions: logprobs 5, best_of = n");
	ok(!r.context && !strcmp(r.source, "prompt") && r.sampling.want_logprobs &&
		   r.sampling.n_logprobs == 5,
	   "five");
	takes(false, "'echo':true", "echo");
	ok(r.echo && r.add_special_tokens, "is kept; a text gets its special tokens");
	ok(!openai_wants_scores(&r, &n_top), "and asks nothing about them");
	takes(false, "'echo':true,'logprobs':3,'max_tokens':0", "the prompt's log-probabilities");
	ok(openai_wants_scores(&r, &n_top) && n_top == 3, "are wanted");
	ok(r.prompt_only && r.max_tokens == 1, "and nothing else");
	takes(false, "'prompt_logprobs':0,'max_tokens':1", "prompt_logprobs");
	ok(r.prompt_logprobs && !r.prompt_only && openai_wants_scores(&r, &n_top) && !n_top,
	   "of the tokens themselves");
	takes(true, "'prompt_logprobs':20,'stream':false", "in chat");
	ok(openai_wants_scores(&r, &n_top) && n_top == 20, "with the twenty best");
	takes(false, "'prompt_logprobs':2,'echo':true,'logprobs':1", "both");
	ok(openai_wants_scores(&r, &n_top) && n_top == 2, "the larger number");
	takes(true, "'prompt_logprobs':null,'stream':true", "null");
	ok(!openai_wants_scores(&r, &n_top), "is none");
	takes(false, "'add_special_tokens':false", "unless");
	ok(!r.add_special_tokens, "they are refused");
}

TEST(cache)
{
	static char members[2048];

	takes(true, "", "nothing about the cache");
	ok(r.priority == 0 && r.cache_prompt && !r.cache_salt && !r.cache_salt_len,
	   "the cache is used, without salt, at priority 0");
	takes(true, "'priority':-2147483648,'cache_prompt':false,'cache_salt':'a\\u0000b'",
	      "all of them");
	ok(r.priority == INT32_MIN && !r.cache_prompt, "priority, cache_prompt");
	ok(r.cache_salt_len == 3 && !memcmp(r.cache_salt, "a\0b", 3), "a salt may hold any byte");
	takes(false, "'priority':2147483647,'cache_salt':null", "in completions as well");
	ok(r.priority == INT32_MAX && r.cache_prompt && !r.cache_salt, "null is absent");
	refuses(false, "'cache_salt':''", "an empty salt");
	is_str(err.param, "cache_salt", "names its parameter");
	is_str(err.text, "cache_salt has 0 bytes, but must have 1 to 1024", "and the bounds");
	snprintf(members, sizeof(members), "'cache_salt':'%01024d'", 7);
	takes(false, members, "the longest salt");
	snprintf(members, sizeof(members), "'cache_salt':'%01025d'", 7);
	refuses(false, members, "one byte more");
	refuses(true, "'cache_salt':5", "a salt that is no string");
	snprintf(members, sizeof(members), "'model':'%01025d'", 7);
	refuses(true, members, "a model's name that is as long");
	is_str(err.param, "model", "names its parameter");
	refuses(true, "'priority':1.5", "a priority that is not whole");
	refuses(true, "'priority':2147483648", "a priority too large");
	is_str(err.param, "priority", "names its parameter");
	refuses(true, "'cache_prompt':'no'", "a switch that is a text");
}

TEST(prompts)
{
	is_int(parse(false, "{'prompt':'a\\n\\u00e9'}"), 0, "a string");
	ok(r.n_prompts == 1 && r.prompts[0].text_len == 4 &&
		   !strcmp(r.prompts[0].text, "a\n\xc3\xa9") && !r.prompts[0].ids.len,
	   "one text");
	is_int(parse(false, "{'prompt':['a','bc']}"), 0, "strings");
	ok(r.n_prompts == 2 && !strcmp(r.prompts[1].text, "bc") && r.prompts[1].text_len == 2,
	   "two texts");
	is_int(parse(false, "{'prompt':[1,2,999]}"), 0, "token ids");
	ok(r.n_prompts == 1 && !r.prompts[0].text && r.prompts[0].ids.len == 3 &&
		   r.prompts[0].ids.v[2] == 999,
	   "one prompt of ids");
	is_int(parse(false, "{'prompt':[[0],[5,6]]}"), 0, "lists of token ids");
	ok(r.n_prompts == 2 && r.prompts[0].ids.len == 1 && r.prompts[1].ids.len == 2 &&
		   r.prompts[1].ids.v[1] == 6,
	   "two prompts of ids");
}

/* Checks that a chat body with the messages `in` gives the template the messages `want`. */
static void messages(const char *in, const char *want, const char *what)
{
	char body[4096];

	snprintf(body, sizeof(body), "{'messages':%s}", in);
	if (parse(true, body) < 0) {
		ok(false, "%s", what);
		printf("#   %s\n", err.text);
		return;
	}
	ok(equals(json_object_get(r.context, "messages"), want), "%s", what);
}

TEST(messages)
{
	messages("[{'role':'developer','content':'a'},{'role':'user','content':'b'}]",
		 "[{'role':'system','content':'a'},{'role':'user','content':'b'}]",
		 "developer is system");
	messages("[{'role':'system','content':'a'},{'role':'user','content':'b'},{'role':'system',"
		 "'content':'c'},{'role':'developer','content':'d'}]",
		 "[{'role':'system','content':'a\\n\\nc\\n\\nd'},{'role':'user','content':'b'}]",
		 "later system messages join the first");
	messages("[{'role':'user','content':'b'},{'role':'system','content':'c'}]",
		 "[{'role':'system','content':'c'},{'role':'user','content':'b'}]",
		 "a late system message goes to the front");
	messages("[{'role':'system','content':''},{'role':'user','content':'b'},{'role':'system',"
		 "'content':[{'type':'text','text':'c'},{'type':'text','text':'d'}]},"
		 "{'role':'system','content':null}]",
		 "[{'role':'system','content':'cd'},{'role':'user','content':'b'}]",
		 "empty system messages add nothing; parts and null are texts");
	messages("[{'role':'system','content':null}]", "[{'role':'system','content':''}]",
		 "an empty system message stays");
	messages("[{'role':'user','content':null},{'role':'user'},{'role':'user','content':[]}]",
		 "[{'role':'user','content':''},{'role':'user','content':''},{'role':'user',"
		 "'content':''}]",
		 "null, absent and no parts are empty");
	messages("[{'role':'user','name':'Ann','content':[{'type':'text','text':'Define '},"
		 "{'text':'\\u00e9.','type':'text','cache_control':{}}]}]",
		 "[{'role':'user','content':'Define \\u00e9.','name':'Ann'}]",
		 "text parts become their text");
	messages("[{'role':'user','content':'q'},{'role':'assistant','content':'x','refusal':null,"
		 "'annotations':[],'audio':null,'function_call':null,'tool_calls':null,"
		 "'reasoning_content':'why','id':7},{'role':'assistant','content':null,"
		 "'tool_calls':[]}]",
		 "[{'role':'user','content':'q'},{'role':'assistant','content':'x',"
		 "'reasoning_content':'why'},{'role':'assistant','content':''}]",
		 "messages that came from the server go back");
	messages("[{'role':'assistant','content':'x','reasoning':'r'},{'role':'assistant',"
		 "'content':'y','reasoning':'r','reasoning_content':'s'}]",
		 "[{'role':'assistant','content':'x','reasoning_content':'r'},{'role':'assistant',"
		 "'content':'y','reasoning_content':'s'}]",
		 "reasoning is another name");
	messages("[{'role':'assistant','content':null,'tool_calls':[{'id':'c1','type':'function',"
		 "'index':0,'function':{'name':'f','arguments':'{\\'b\\':1,\\'a\\':[1.5,"
		 "\\'\\u00e9\\']}'}},{'function':{'name':'g','arguments':{'x':1}}},{'id':null,"
		 "'function':{'name':'h','arguments':'{nonsense'}},{'function':{'name':'i',"
		 "'arguments':''}},{'function':{'name':'j'}},{'function':{'name':'k',"
		 "'arguments':'[1]'}}]},{'role':'tool','tool_call_id':'c1',"
		 "'content':[{'type':'text','text':'ok'}]}]",
		 "[{'role':'assistant','content':'','tool_calls':[{'id':'c1','type':'function',"
		 "'function':{'name':'f','arguments':{'b':1,'a':[1.5,'\\u00e9']}}},"
		 "{'type':'function','function':{'name':'g','arguments':{'x':1}}},"
		 "{'type':'function','function':{'name':'h','arguments':'{nonsense'}},"
		 "{'type':'function','function':{'name':'i','arguments':{}}},{'type':'function',"
		 "'function':{'name':'j','arguments':{}}},{'type':'function','function':{'name':"
		 "'k','arguments':'[1]'}}]},{'role':'tool','content':'ok','tool_call_id':'c1'}]",
		 "tool calls: arguments are parsed when they are an object's text");
	messages("[{'role':'function','name':'f','content':'3'}]",
		 "[{'role':'tool','content':'3','name':'f'}]", "function is a tool's older name");
	messages("[{'role':'assistant','content':[{'type':'thinking','thinking':'so '},{'type':"
		 "'text','text':'a'},{'type':'thinking','thinking':'it is'},{'type':'refusal',"
		 "'refusal':'b'}]},{'role':'assistant','content':[{'type':'thinking','thinking':"
		 "'x'}],'reasoning':'y'},{'role':'assistant','content':[{'type':'refusal',"
		 "'refusal':'no'}]}]",
		 "[{'role':'assistant','content':'ab','reasoning_content':'so it is'},"
		 "{'role':'assistant','content':'','reasoning_content':'y'},"
		 "{'role':'assistant','content':'no'}]",
		 "parts with a refusal or with thinking");
}

/* The order of an object's members matters to templates that print the object. */
TEST(order)
{
	char *text;

	takes(true,
	      "'tools':[{'type':'function','function':{'name':'z','b':1,'a':2,'parameters':{'y':{}"
	      ",'x':{}}}}]",
	      "tools");
	text = json_dumps(json_object_get(r.context, "tools"), JSON_COMPACT);
	is_str(text,
	       quoted("[{'type':'function','function':{'name':'z','b':1,'a':2,'parameters':{'y':{}"
		      ",'x':{}}}}]"),
	       "keep the order of their members");
	free(text);
}

static void thinking(const char *members, bool want, const char *what)
{
	if (parse_with(true, members) < 0) {
		ok(false, "%s: %s", what, err.text);
		return;
	}
	ok(r.thinking == want &&
		   json_is_true(json_object_get(r.context, "enable_thinking")) == want &&
		   json_is_boolean(json_object_get(r.context, "enable_thinking")),
	   "%s", what);
}

TEST(template_arguments)
{
#define KWARGS "'chat_template_kwargs':"

	thinking(KWARGS "{}", false, "thinking is off");
	thinking(KWARGS "{'enable_thinking':true}", true, "chat_template_kwargs turns it on");
	thinking(KWARGS "{'enable_thinking':null}", false, "null does not");
	thinking("'enable_thinking':true", true, "enable_thinking turns it on");
	thinking("'reasoning_effort':'low'", true, "reasoning_effort turns it on");
	thinking("'reasoning_effort':'none'", false, "none turns it off");
	thinking("'reasoning_effort':'none','enable_thinking':true", true,
		 "enable_thinking is stronger than reasoning_effort");
	thinking("'enable_thinking':true," KWARGS "{'enable_thinking':false}", false,
		 "chat_template_kwargs is strongest");
	takes(true,
	      "'reasoning_effort':'high','add_generation_prompt':false," KWARGS
	      "{'custom':[1,{'a':null}],'documents':[1]}",
	      "arguments of the template");
	ok(!r.thinking, "no generation prompt, no open <think>");
	ok(equals(r.context, "{'custom':[1,{'a':null}],'documents':[1],'reasoning_effort':'high',"
			     "'enable_thinking':true,'messages':[{'role':'user','content':'hi'}"
			     "],'tools':null,'add_generation_prompt':false}"),
	   "are members of the context");
#undef KWARGS
}

TEST(tools)
{
#define TOOLS \
	"'tools':[{'type':'function','function':{'name':'f'}},{'function':{'name':'g','parameters':{}}}]"
	static const char *const choices[] = {"'auto'", "null"};
	char members[512];

	for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
		snprintf(members, sizeof(members),
			 TOOLS ",'parallel_tool_calls':true,'tool_choice':%s", choices[i]);
		takes(true, members, choices[i]);
		is_int(json_array_size(json_object_get(r.context, "tools")), 2, "keeps the tools");
	}
	takes(true, TOOLS ",'tool_choice':'none'", "tool_choice none");
	ok(json_is_null(json_object_get(r.context, "tools")), "drops them");
	ok(!r.tools.n, "for the parser, too");
	takes(true, "'tools':[],'tool_choice':'auto'", "no tools");
	ok(json_is_null(json_object_get(r.context, "tools")) && !r.tools.n, "are none");
	takes(true, TOOLS ",'parallel_tool_calls':false", "parallel_tool_calls false");
	ok(r.one_call && r.tools.n == 2 && !strcmp(r.tools.v[1].name, "g"), "is noted");
	takes(true, TOOLS ",'parallel_tool_calls':null", "parallel_tool_calls null");
	ok(!r.one_call, "is true");
	takes(false, "'parallel_tool_calls':false", "completions have no tools");
}

/* Returns the types that the first tool's schema gives a parameter; 0: it is not listed. */
static unsigned types(const char *name)
{
	for (size_t i = 0; i < r.tools.v[0].n_parameters; i++)
		if (!strcmp(r.tools.v[0].parameters[i].name, name))
			return r.tools.v[0].parameters[i].types;
	return 0;
}

TEST(schemas)
{
	takes(true,
	      "'tools':[{'function':{'name':'f','parameters':{'type':'object','$defs':{'D':{'type':'array'},'E':"
	      "{'$ref':'#/$defs/E'}},'definitions':{'G':{'const':true}},'properties':{'a':{'type':'string'},'b':{"
	      "'type':'integer'},'c':{'type':['string','null']},'d':{'anyOf':[{'$ref':'#/$defs/D'},{'type':'null'}]"
	      "},'e':{'$ref':'#/$defs/E'},'g':{'$ref':'#/definitions/G'},'h':{'enum':[1,'x',{}]},'i':{},'j':5,'k':{"
	      "'oneOf':[{'type':'number'},5]},'l':{'type':'boolean'},'m':{'$ref':'#/$defs/none'},'n':{'$ref':'#'},"
	      "'o':{'allOf':[{'$ref':'#/$defs/D'}]},'p':{'properties':{}},'q':{'items':{}},"
	      "'r':{'enum':['x'],'items':{}}}}}}]",
	      "schemas");
	ok(!types("a") && types("b") == TOOLS_NUMBER && types("c") == (TOOLS_STRING | TOOLS_NULL) &&
		   types("d") == (TOOLS_ARRAY | TOOLS_NULL) && types("g") == TOOLS_BOOLEAN &&
		   types("h") == (TOOLS_NUMBER | TOOLS_STRING | TOOLS_OBJECT) &&
		   types("k") == TOOLS_NUMBER && types("l") == TOOLS_BOOLEAN,
	   "types of parameters");
	ok(types("o") == TOOLS_ARRAY && types("p") == TOOLS_OBJECT && types("q") == TOOLS_ARRAY &&
		   !types("r"),
	   "allOf, properties and items");
	ok(!types("e") && !types("i") && !types("j") && !types("m") && !types("n"),
	   "schemas that do not say");
	takes(true, "'tools':[{'function':{'name':'f','parameters':{'properties':[1]}}}]",
	      "no properties");
	ok(r.tools.n == 1 && !r.tools.v[0].n_parameters, "no parameters");
}

/* Parameters that share one large schema: few of them are read, and somebody is asked meanwhile. */
TEST(many_schemas)
{
	enum { PARAMETERS = 2000, LEAST = 16 };
	int left = 1 << 30, asked;
	const struct pace pace = {impatient, &left};
	struct buf body;

	buf_init(&body, 1 << 20);
	buf_puts(&body,
		 "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":[{\"function\":"
		 "{\"name\":\"f\",\"parameters\":{\"$defs\":{\"e\":{\"anyOf\":[");
	for (int i = 0; i < 62; i++) {
		buf_puts(&body, i ? ",{\"enum\":[1" : "{\"enum\":[1");
		for (int k = 1; k < 64; k++)
			buf_puts(&body, ",\"a\"");
		buf_puts(&body, "]}");
	}
	buf_puts(&body, "]}},\"properties\":{");
	for (int i = 0; i < PARAMETERS; i++)
		buf_printf(&body, "%s\"p%d\":{\"$ref\":\"#/$defs/e\"}", i ? "," : "", i);
	buf_puts(&body, "}}}}]}");
	is_int(parse_bytes(true, buf_str(&body), body.len), 0, "%d parameters", PARAMETERS);
	ok(r.tools.v[0].n_parameters >= LEAST && r.tools.v[0].n_parameters <= 2 * LEAST &&
		   types("p15") == (TOOLS_STRING | TOOLS_NUMBER),
	   "of %zu the types are read", r.tools.v[0].n_parameters);
	openai_request_release(&r);
	is_int(openai_parse_chat(buf_str(&body), body.len, &pace, &limits, &arena, &r, &err), 0,
	       "with a pace that is asked");
	openai_request_release(&r);
	asked = (1 << 30) - left;
	left = asked - 1;
	is_int(openai_parse_chat(buf_str(&body), body.len, &pace, &limits, &arena, &r, &err),
	       -ECANCELED, "the last of %d questions", asked);
	ok(strstr(err.text, "tools"), "is asked while the tools are read: %s", err.text);
	buf_release(&body);
}

struct bad {
	int kind; /* chat: 'c' or 'C', completion: 'p' or 'P'; body has members ('c', 'p'), or is whole ('C', 'P') */
	const char *body;
	const char *param, *text; /* what the error has to have; text NULL: any text */
	int code;
};

/* clang-format off: a case begins a line. */
static const struct bad bads[] = {
	{'C', "", "", "the request body is empty, but must be a JSON object"},
	{'C', "[]", "", "the request body is an array, but must be a JSON object"},
	{'C', "3", "", "the request body is a number, but must be a JSON object"},
	{'C', "null", "", "the request body is null, but must be a JSON object"},
	{'C', "{\n'a' 1}", "",
	 "the request body is not valid JSON: ':' expected near '1' (line 2, column 5)"},
	{'C', "{} x", "", NULL},
	{'C', "{'a':NaN}", "", NULL},
	{'C', "{'a':1e999}", "", NULL},
	/* A whole number of any size is read; only `messages` is missing. */
	{'C', "{'a':99999999999999999999}", "messages", NULL},
	{'C', "{'a':1e999,'b':99999999999999999999}", "", NULL},
	{'C', "{'a':99999999999999999999", "", NULL},
	{'C', "{'a':1,'a':2}", "",
	 "the request body is not valid JSON: duplicate object key near '\"a\"' (line 1, column 10)"},
	{'C', "{'a':'\xff'}", "", NULL},
	{'C', "{'a':'\\ud800'}", "", NULL},
	{'P', "{'prompt':'x','stop':'a\\u0000b'}", "stop", NULL},
	{'P', "{'prompt':'x','model':'a\\u0000b'}", "model", NULL},
	{'C', "{'a\\u0000':1}", "", NULL},
	{'C', "{'a':'x", "", NULL},
	{'C', "{}", "messages", "messages is missing: it must be an array of at least one message"},
	{'C', "{'messages':[]}", "messages",
	 "messages is empty, but must have at least one message"},
	{'C', "{'messages':'hi'}", "messages",
	 "messages is \"hi\", but must be an array of at least one message"},
	{'C', "{'messages':[1]}", "messages[0]", NULL},
	{'C', "{'messages':[{}]}", "messages[0].role",
	 "messages[0].role is missing: it must be one of system, developer, user, assistant, tool and function"},
	{'C', "{'messages':[{'role':'user'},{'role':'alien'}]}", "messages[1].role",
	 "messages[1].role is \"alien\", but must be one of system, developer, user, assistant, tool and function"},
	{'C', "{'messages':[{'role':7}]}", "messages[0].role", NULL},
	{'C', "{'messages':[{'role':'user','content':5}]}", "messages[0].content",
	 "messages[0].content is 5, but must be a string, null or an array of text parts"},
	{'C', "{'messages':[{'role':'user','content':['x']}]}", "messages[0].content[0]", NULL},
	{'C',
	 "{'messages':[{'role':'user','content':[{'type':'text','text':'a'},{'type':'image_url','image_url':{}}]}]}",
	 "messages[0].content[1].type",
	 "messages[0].content[1].type is \"image_url\", but must be \"text\": this server takes no other parts"},
	{'C', "{'messages':[{'role':'user','content':[{'type':'refusal','refusal':'no'}]}]}",
	 "messages[0].content[0].type", NULL},
	{'C', "{'messages':[{'role':'assistant','content':[{'type':'thinking','text':'a'}]}]}",
	 "messages[0].content[0].thinking", NULL},
	{'C', "{'messages':[{'role':'assistant','content':[{'type':'image_url'}]}]}",
	 "messages[0].content[0].type",
	 "messages[0].content[0].type is \"image_url\", but must be \"text\", \"refusal\" or \"thinking\""},
	{'C', "{'messages':[{'role':'user','content':[{'type':'text'}]}]}",
	 "messages[0].content[0].text", NULL},
	{'C', "{'messages':[{'role':'user','content':[{'type':'text','text':[]}]}]}",
	 "messages[0].content[0].text", NULL},
	{'C', "{'messages':[{'role':'user','name':1}]}", "messages[0].name", NULL},
	{'C', "{'messages':[{'role':'tool','tool_call_id':1}]}", "messages[0].tool_call_id", NULL},
	{'C', "{'messages':[{'role':'assistant','reasoning_content':1}]}",
	 "messages[0].reasoning_content", NULL},
	{'C', "{'messages':[{'role':'assistant','tool_calls':{}}]}", "messages[0].tool_calls",
	 NULL},
	{'C', "{'messages':[{'role':'assistant','tool_calls':[1]}]}", "messages[0].tool_calls[0]",
	 NULL},
	{'C', "{'messages':[{'role':'assistant','tool_calls':[{'id':'a'}]}]}",
	 "messages[0].tool_calls[0].function", NULL},
	{'C', "{'messages':[{'role':'assistant','tool_calls':[{'function':{}}]}]}",
	 "messages[0].tool_calls[0].function.name", NULL},
	{'C',
	 "{'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':3}}]}]}",
	 "messages[0].tool_calls[0].function.arguments", NULL},
	{'C', "{'messages':[{'role':'assistant','tool_calls':[{'type':'custom'}]}]}",
	 "messages[0].tool_calls[0].type", NULL},
	{'C', "{'messages':[{'role':'assistant','audio':{'id':'x'}}]}", "messages[0].audio",
	 "messages[0].audio is not supported by this server", PROBLEM_UNSUPPORTED},
	{'C', "{'messages':[{'role':'assistant','function_call':{'name':'x'}}]}",
	 "messages[0].function_call", NULL, PROBLEM_UNSUPPORTED},

	{'c', "'model':1", "model", "model is 1, but must be a string"},
	{'c', "'temperature':2.5", "temperature",
	 "temperature is 2.5, but must be a number from 0 to 2"},
	{'c', "'temperature':-0.1", "temperature", NULL},
	{'c', "'temperature':'1'", "temperature",
	 "temperature is \"1\", but must be a number from 0 to 2"},
	{'c', "'temperature':true", "temperature", NULL},
	{'c', "'top_p':0", "top_p", "top_p is 0, but must be a number above 0 and at most 1"},
	{'c', "'top_p':1.01", "top_p", NULL},
	{'c', "'top_k':-2", "top_k",
	 "top_k is -2, but must be a whole number from -1 to 2147483647"},
	{'c', "'top_k':1.5", "top_k", NULL},
	{'c', "'min_p':-1", "min_p", NULL},
	{'c', "'min_p':1.5", "min_p", NULL},
	{'c', "'n':0", "n", "n is 0, but must be a whole number from 1 to 8"},
	{'c', "'n':9", "n", NULL},
	{'c', "'n':'2'", "n", NULL},
	{'c', "'seed':1.5", "seed", NULL},
	{'c', "'seed':'x'", "seed", NULL},
	{'c', "'presence_penalty':2.1", "presence_penalty", NULL},
	{'c', "'frequency_penalty':-2.1", "frequency_penalty", NULL},
	{'c', "'repetition_penalty':0", "repetition_penalty", NULL},
	{'c', "'max_tokens':0", "max_tokens", NULL},
	{'c', "'max_tokens':-1", "max_tokens", NULL},
	{'c', "'max_tokens':1.5", "max_tokens", NULL},
	{'c', "'max_tokens':9223372036854775807", "max_tokens", NULL},
	{'c', "'max_completion_tokens':[]", "max_completion_tokens", NULL},
	{'c', "'min_tokens':5,'max_tokens':4", "min_tokens",
	 "min_tokens is 5, but may be at most max_tokens, 4"},
	{'c', "'ignore_eos':1", "ignore_eos", "ignore_eos is 1, but must be true or false"},
	{'c', "'stop':5", "stop",
	 "stop is 5, but must be a string or an array of up to 64 strings"},
	{'c', "'stop':''", "stop", NULL},
	{'c', "'stop':['a','']", "stop[1]",
	 "stop[1] is \"\", but must be a string that is not empty"},
	{'c', "'stop':[null]", "stop[0]", NULL},
	{'c',
	 "'stop':['a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q','r','s','t','u','v','w','x','y',"
	 "'z','a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q','r','s','t','u','v','w','x','y','z',"
	 "'a','b','c','d','e','f','g','h','i','j','k','l','m']",
	 "stop", "stop has 65 strings, but may have at most 64"},
	{'c', "'seed':18446744073709551615", "seed", NULL},
	{'c', "'stop_token_ids':[1,1000]", "stop_token_ids[1]",
	 "stop_token_ids[1] is 1000, but must be a token id of the vocabulary, from 0 to 999"},
	{'c', "'stop_token_ids':[-1]", "stop_token_ids[0]", NULL},
	{'c', "'stop_token_ids':5", "stop_token_ids", NULL},
	{'c', "'stream':'yes'", "stream", NULL},
	{'c', "'stream_options':{}", "stream_options",
	 "stream_options is given, but only allowed when stream is true"},
	{'c', "'stream':false,'stream_options':{'include_usage':true}", "stream_options", NULL},
	{'c', "'stream':true,'stream_options':[]", "stream_options", NULL},
	{'c', "'stream':true,'stream_options':{'include_usage':1}", "stream_options.include_usage",
	 NULL},
	{'c', "'stream':true,'stream_options':{'continuous_usage_stats':1}",
	 "stream_options.continuous_usage_stats", NULL},
	{'c', "'logprobs':3", "logprobs", NULL},
	{'c', "'logprobs':true,'top_logprobs':21", "top_logprobs", NULL},
	{'c', "'logprobs':true,'top_logprobs':-1", "top_logprobs", NULL},
	{'c', "'top_logprobs':2", "top_logprobs",
	 "top_logprobs is 2, but only allowed when logprobs is true"},
	{'c', "'return_token_ids':'x'", "return_token_ids", NULL},
	{'c', "'reasoning_effort':'huge'", "reasoning_effort", NULL},
	{'c', "'enable_thinking':'yes'", "enable_thinking", NULL},
	{'c', "'chat_template_kwargs':[]", "chat_template_kwargs", NULL},
	{'c', "'chat_template_kwargs':{'enable_thinking':1}",
	 "chat_template_kwargs.enable_thinking", NULL},
	{'c', "'chat_template_kwargs':{'messages':[]}", "chat_template_kwargs.messages", NULL},
	{'c', "'tools':{}", "tools", NULL},
	{'c', "'tools':[1]", "tools[0]", NULL},
	{'c', "'tools':[{'type':'web_search'}]", "tools[0].type", NULL},
	{'c', "'tools':[{'type':'function'}]", "tools[0].function", NULL},
	{'c', "'tools':[{'function':{'name':''}}]", "tools[0].function.name", NULL},
	{'c', "'tools':[{'function':{'name':'a\\u0000b'}}]", "tools[0].function.name", NULL},
	{'c', "'tools':[{'function':{'name':'f','strict':'yes'}}]", "tools[0].function.strict",
	 "tools[0].function.strict is \"yes\", but must be true or false"},
	{'c', "'tools':[{'function':{'name':'f','parameters':'x'}}]",
	 "tools[0].function.parameters", NULL},
	{'c', "'tool_choice':'required'", "tool_choice",
	 "tool_choice demands a call, but there are no tools"},
	{'c', "'tools':[{'function':{'name':'f'}}],'tool_choice':{'function':{'name':'g'}}",
	 "tool_choice", "tool_choice names \"g\", which is none of the tools"},
	{'c', "'tool_choice':{'type':'allowed_tools','allowed_tools':{}}", "tool_choice.type", NULL,
	 PROBLEM_UNSUPPORTED},
	{'c', "'tool_choice':{'type':'function'}", "tool_choice.function", NULL},
	{'c', "'tool_choice':{'type':'function','function':{}}", "tool_choice.function.name", NULL},
	{'c', "'tool_choice':'sometimes'", "tool_choice",
	 "tool_choice is \"sometimes\", but must be \"none\", \"auto\", \"required\" or an object "
	 "that names a function"},
	{'c', "'tool_choice':5", "tool_choice", NULL},
	{'c', "'tools':[{'function':{'name':'f'}}],'tool_choice':{'function':{'name':'f'}}",
	 "tool_choice",
	 "tool_choice cannot demand a call: this server does not know how the model writes tool calls",
	 PROBLEM_UNSUPPORTED},
	{'c', "'parallel_tool_calls':1", "parallel_tool_calls", NULL},
	{'c', "'function_call':'auto'", "function_call",
	 "function_call is not supported by this server", PROBLEM_UNSUPPORTED},
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
	{'c', "'structured_outputs':{'structural_tag':{}}", "structured_outputs",
	 "structured_outputs.structural_tag is not supported by this server", PROBLEM_UNSUPPORTED},
	{'p', "'guided_regex':'(a'", "guided_regex", NULL},
	{'p', "'guided_regex':'(?=a)'", "guided_regex", NULL, PROBLEM_UNSUPPORTED},
	{'p', "'guided_choice':['a',1]", "guided_choice",
	 "guided_choice: it must be an array of strings"},
	{'p', "'guided_grammar':'root ::= ('", "guided_grammar", NULL},
	{'p', "'grammar':'a ::= \\\"x\\\"'", "grammar", NULL},
	{'p', "'guided_json':'{'", "guided_json", NULL},
	{'p', "'guided_json':'[[1]'", "guided_json", NULL},
	{'p', "'guided_json':5", "guided_json", "guided_json: it must be a JSON schema"},
	{'p', "'guided_json':'\\\"a\\\"'", "guided_json", NULL},
	{'p', "'guided_regex':'((a{1,1000}){1,1000}){1,1000}'", "guided_regex", NULL},
	{'c', "'response_format':'text'", "response_format", NULL},
	{'c', "'logit_bias':{'5':-101}", "logit_bias.5",
	 "logit_bias.5 is -101, but must be a number from -100 to 100"},
	{'c', "'logit_bias':{'5':'a'}", "logit_bias.5", NULL},
	{'c', "'logit_bias':{'1000':1}", "logit_bias",
	 "logit_bias has the name \"1000\", but names must be token ids of the vocabulary, from 0 to "
	 "999"},
	{'c', "'logit_bias':{'-1':1}", "logit_bias", NULL},
	{'c', "'logit_bias':{'':1}", "logit_bias", NULL},
	{'c', "'logit_bias':{'99999999999999999999':1}", "logit_bias", NULL},
	{'c', "'logit_bias':{'7':1,'07':2}", "logit_bias", "logit_bias has token 7 twice"},
	{'c', "'logit_bias':[5]", "logit_bias", NULL},
	{'c', "'allowed_token_ids':[]", "allowed_token_ids", NULL},
	{'c', "'allowed_token_ids':[1000]", "allowed_token_ids[0]", NULL},
	{'c', "'bad_words':'a'", "bad_words", NULL},
	{'c', "'bad_words':['a','']", "bad_words[1]",
	 "bad_words[1] is \"\", but must be a string that is not empty"},
	{'p', "'suffix':'x'", "suffix", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'mirostat':1", "mirostat", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'xtc_probability':0.5", "xtc_probability", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'dry_multiplier':0.8", "dry_multiplier", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'dynatemp_range':0.5", "dynatemp_range", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'web_search_options':{}", "web_search_options", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'use_beam_search':true", "use_beam_search", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'echo':true", "echo", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'skip_special_tokens':false", "skip_special_tokens", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'modalities':['text','audio']", "modalities", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'functions':[{'name':'f'}]", "functions", NULL, PROBLEM_UNSUPPORTED},

	{'P', "{}", "prompt", NULL},
	{'P', "{'prompt':null}", "prompt", NULL},
	{'P', "{'prompt':5}", "prompt", NULL},
	{'P', "{'prompt':''}", "prompt", "prompt is empty, but must have at least one token"},
	{'P', "{'prompt':[]}", "prompt", "prompt is empty, but must have at least one token"},
	{'P', "{'prompt':[[]]}", "prompt[0]", NULL},
	{'P', "{'prompt':['a','']}", "prompt[1]", NULL},
	{'P', "{'prompt':['a',1]}", "prompt[1]", NULL},
	{'P', "{'prompt':[1,'a']}", "prompt[1]", NULL},
	{'P', "{'prompt':[[1],'a']}", "prompt[1]", NULL},
	{'P', "{'prompt':[1,1000]}", "prompt[1]",
	 "prompt[1] is 1000, but must be a token id of the vocabulary, from 0 to 999"},
	{'P', "{'prompt':[[1],[2,-1]]}", "prompt[1][1]", NULL},
	{'P', "{'prompt':[true]}", "prompt[0]", NULL},
	{'P', "{'prompt':{}}", "prompt", NULL},
	{'p', "'logprobs':true", "logprobs", NULL},
	{'p', "'logprobs':21", "logprobs", NULL},
	{'p', "'echo':1", "echo", NULL},
	{'p', "'max_tokens':0", "max_tokens",
	 "max_tokens is 0, but must be at least 1 without echo"},
	{'p', "'max_tokens':0,'echo':true,'min_tokens':1", "min_tokens", NULL},
	{'p', "'max_tokens':-1,'echo':true", "max_tokens", NULL},
	{'p', "'prompt_logprobs':21", "prompt_logprobs", NULL},
	{'c', "'prompt_logprobs':-1", "prompt_logprobs", NULL},
	{'c', "'prompt_logprobs':true", "prompt_logprobs", NULL},
	{'p', "'prompt_logprobs':1,'stream':true", "prompt_logprobs",
	 "prompt_logprobs is not supported when stream is true", PROBLEM_UNSUPPORTED},
	{'p', "'best_of':2", "best_of", "best_of is 2, but must be equal to n, 1",
	 PROBLEM_UNSUPPORTED},
	{'p', "'best_of':1,'n':2", "best_of", NULL},
	{'p', "'best_of':0", "best_of", NULL},
	{'p', "'best_of':9", "best_of", NULL},
	{'p', "'stream_options':{}", "stream_options", NULL},
};
/* clang-format on */

TEST(bad)
{
	for (size_t i = 0; i < ARRAY_SIZE(bads); i++) {
		const struct bad *b = &bads[i];
		bool chat = b->kind == 'c' || b->kind == 'C';
		int want = b->code ? b->code : EINVAL, ret;

		ret = b->kind == 'c' || b->kind == 'p' ? parse_with(chat, b->body)
						       : parse(chat, b->body);
		if (!ok(ret == -want && err.code == want && openai_status(ret) == 400 &&
				!strcmp(err.param, b->param) && err.text[0] &&
				(!b->text || !strcmp(err.text, b->text)),
			"bad body %zu: param %s", i, b->param[0] ? b->param : "null"))
			printf("#   %s: %d, %s: %s\n", b->body, ret, err.param, err.text);
		check(r.n == 0xeeeeeeee);
	}
	ok_all("failures leave *ret alone");
}

/* The server makes a table for each stop string, so the length of a stop string has a bound. */
TEST(stop_length)
{
	char members[STOP_BYTES_MAX + 32];

	for (int more = 0; more < 2; more++) {
		int n = snprintf(members, sizeof(members), "'stop':'");

		memset(members + n, 'x', (size_t)(STOP_BYTES_MAX + more));
		snprintf(members + n + STOP_BYTES_MAX + more, 2, "'");
		is_int(parse_with(true, members), more ? -EINVAL : 0, "a stop string of %d bytes",
		       STOP_BYTES_MAX + more);
	}
}

static long allocations_left;

static void *failing_malloc(size_t n)
{
	return allocations_left-- > 0 ? malloc(n) : NULL;
}

/* In each round the JSON library gets one allocation more than in the round before, and no further ones, until parsing
 * succeeds. AddressSanitizer sees leaks. */
TEST(out_of_memory)
{
	static const char body[] =
		"{'messages':[{'role':'user','content':[{'type':'text','text':'a'}]},"
		"{'role':'system','content':'s'},{'role':'assistant','reasoning':'r',"
		"'tool_calls':[{'id':'c','function':{'name':'f','arguments':'{\\'a\\':[1]}'}}]},"
		"{'role':'tool','content':'t'}],'tools':[{'function':{'name':'f'}}],"
		"'reasoning_effort':'low','chat_template_kwargs':{'x':1}}";
	long n = 0;
	int ret;

	json_set_alloc_funcs(failing_malloc, free);
	do {
		allocations_left = n++;
		ret = parse(true, body);
		/* Jansson's parser does not always tell a lack of memory from a wrong token. */
		check(ret == 0 || ret == -ENOMEM || strstr(err.text, "is not valid JSON: "));
	} while (ret < 0 && n < 10000);
	json_set_alloc_funcs(malloc, free);
	check(ret == 0 && n > 50);
	ok_all("out of memory at each of %ld allocations", n - 1);
}

static void repeat(struct buf *b, const char *text, size_t n)
{
	while (n--)
		buf_puts(b, text);
}

TEST(pace)
{
	enum { N = 100000 };
	int left = 5;
	const struct pace pace = {impatient, &left};
	struct buf body;
	size_t used;

	buf_init(&body, 1 << 20);
	buf_puts(&body, "{\"prompt\":\"");
	for (int i = 0; i < N; i++)
		buf_putc(&body, 'a');
	buf_puts(&body, "\"}");
	openai_request_release(&r);
	is_int(openai_parse_completion(buf_str(&body), body.len, &pace, &limits, &arena, &r, &err),
	       -ECANCELED, "a body is given up at the sixth question");
	left = 1 << 30;
	used = arena.used;
	is_int(openai_parse_completion(buf_str(&body), body.len, &pace, &limits, &arena, &r, &err),
	       0, "a patient caller gets all");
	is_int((long long)r.prompts[0].text_len, N, "of it");
	ok(arena.used - used < N, "but no copy that lasts as long as the request");
	ok((1 << 30) - left > 20, "and is asked often (%d times)", (1 << 30) - left);
	buf_release(&body);
}

/* Large and hostile bodies are taken or refused, and none of them takes long. */
TEST(bounds)
{
	static const char *const fills[] = {"[", "{\"a\":", "[],", "1,", "{},"};
	static const size_t sizes[] = {300, 300, 300000, 5000000, 300000};
	struct buf b;

	buf_init(&b, 64 << 20);
	for (size_t i = 0; i < ARRAY_SIZE(fills); i++) {
		buf_puts(&b, i < 2 ? "" : "[");
		repeat(&b, fills[i], sizes[i]);
		is_int(parse_bytes(true, b.data, b.len), -EINVAL, "many \"%s\": %s", fills[i],
		       err.text);
		buf_reset(&b);
	}
	buf_puts(&b, quoted("{'messages':[{'role':'user','content':'"));
	repeat(&b, "[{,", 400000);
	buf_puts(&b, quoted("\\'['}]}"));
	is_int(parse_bytes(true, b.data, b.len), 0, "brackets inside of strings do not count");
	buf_reset(&b);
	buf_puts(&b,
		 quoted("{'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f',"
			"'arguments':'{\\'a\\':"));
	repeat(&b, "[", 2000);
	repeat(&b, "]", 2000);
	buf_puts(&b, quoted("}'}}]}]}"));
	is_int(parse_bytes(true, b.data, b.len), 0, "arguments that are nested too deeply");
	buf_reset(&b);
	buf_puts(&b, "{\"prompt\":[\"a\"");
	repeat(&b, ",\"a\"", PROMPTS_MAX);
	buf_puts(&b, "]}");
	is_int(parse_bytes(false, b.data, b.len), -EINVAL, "too many prompts: %s", err.text);
	buf_release(&b);

	arena_release(&arena);
	arena_init(&arena, 32);
	is_int(parse(false, "{'prompt':[1]}"), -ENOMEM, "an arena that is too small");
}

int main(void)
{
	arena_init(&arena, 64 << 20);
	run_tests();
	openai_request_release(&r);
	arena_release(&arena);
	return done();
}
