/* protocol/anthropic: bodies of /v1/messages are parsed like the chats that they stand for. */
#include "base/problem.h"
#include "protocol/anthropic/errors.h"
#include "protocol/anthropic/models.h"
#include "protocol/anthropic/request.h"
#include "tests/request_parse.h"

static int parse(const char *body)
{
	return parse_as(anthropic_parse_messages, body);
}

/* Parses a body that is valid but for `members`. */
static int parse_with(const char *members)
{
	char body[8192];

	snprintf(body, sizeof(body),
		 "{'max_tokens':9,'messages':[{'role':'user','content':'hi'}]%s%s}",
		 members[0] ? "," : "", members);
	return parse(body);
}

/* Whether messages (and other members of a body) have the same context as those of a chat. */
static void same_chat(const char *members, const char *of_chat, const char *what)
{
	char body[8192];
	int got;

	snprintf(body, sizeof(body), "{'max_tokens':9,%s}", members);
	got = parse(body);
	snprintf(body, sizeof(body), "{'chat_template_kwargs':{'preserve_thinking':true},%s}",
		 of_chat);
	if (!same_context(got, body, what))
		return;
	ok(r.thinking == as_chat.thinking && r.one_call == as_chat.one_call &&
		   r.tools.n == as_chat.tools.n && r.billing == as_chat.billing,
	   "%s: and the same settings", what);
}

#define HI "'messages':[{'role':'user','content':'hi'}]"

TEST(defaults)
{
	is_int(parse_with(""), 0, "a smallest request");
	ok(r.max_tokens == 9 && r.clamp && r.n == 1 && !r.stream && !r.continuous_usage &&
		   !r.thinking && !r.prefill && !r.n_stops && !r.one_call && !r.billing &&
		   !r.grammar,
	   "its settings");
	ok(r.sampling.temperature == 0.75f && r.sampling.top_p == 0.5f && r.sampling.top_k == 20 &&
		   !r.sampling.want_logprobs && !r.sampling.n_logprobs,
	   "sampling comes from the model's defaults");
	is_int(parse_with("'model':'lexis','stream':true,'temperature':0.5,'top_p':0.25,'top_k':7,"
			  "'stop_sequences':['a','b'],'metadata':{'user_id':'u'},'seed':5,"
			  "'service_tier':'auto','compaction':null,'n':7,"
			  "'context_management':{'edits':[{'type':'clear_thinking_20251015'}]},"
			  "'logprobs':true,'mcp_servers':[],'container':null,'top_logprobs':3"),
	       0, "more of it: %s", err.text);
	ok(!strcmp(r.model, "lexis") && r.stream && r.continuous_usage &&
		   r.sampling.temperature == 0.5f && r.sampling.top_p == 0.25f &&
		   r.sampling.top_k == 7 && r.n_stops == 2 && !strcmp(r.stops[1], "b") &&
		   r.has_seed && r.sampling.seed == 5,
	   "is taken");
	ok(r.n == 1 && !r.sampling.want_logprobs, "what the shape has no place for is not");
	is_int(parse("{'max_tokens':0,'min_tokens':3," HI "}"), 0, "max_tokens 0");
	ok(r.prompt_only && !r.max_tokens && !r.min_tokens, "asks for the prompt alone");
	is_int(parse("{" HI "}"), -EINVAL, "without max_tokens");
	refused(EINVAL, "max_tokens", "max_tokens is missing");
}

TEST(count)
{
	is_int(parse_as(anthropic_parse_count, "{" HI "}"), 0, "counting needs no max_tokens");
	ok(r.context && !r.max_tokens, "and has a context");
}

TEST(messages)
{
	same_chat("'system':'s'," HI,
		  "'messages':[{'role':'system','content':'s'},"
		  "{'role':'user','content':'hi'}]",
		  "system as text");
	same_chat(
		"'system':[{'type':'text','text':'a','cache_control':{'type':'ephemeral'}},"
		"{'type':'text','text':''},{'type':'text','text':'b'}]," HI,
		"'messages':[{'role':'system','content':'a\\n\\nb'},{'role':'user','content':'hi'}]",
		"system as blocks");
	same_chat("'messages':[{'role':'user','content':[{'type':'text','text':'a'},"
		  "{'type':'text','text':' b','cache_control':{'type':'ephemeral'}}]}]",
		  "'messages':[{'role':'user','content':'a b'}]", "text blocks");
	same_chat("'messages':[{'role':'user','content':'a'},{'role':'system','content':'s'},"
		  "{'role':'user','content':'b'}]",
		  "'messages':[{'role':'user','content':'a'},{'role':'system','content':'s'},"
		  "{'role':'user','content':'b'}]",
		  "a system message further on");
	same_chat(
		"'messages':[{'role':'user','content':'a'},{'role':'assistant','content':["
		"{'type':'thinking','thinking':'hm','signature':'x'},"
		"{'type':'redacted_thinking','data':'zz'},{'type':'thinking','thinking':' so'},"
		"{'type':'text','text':'I look.'},"
		"{'type':'tool_use','id':'t1','name':'f','input':{'a':[1,{'b':null}]}},"
		"{'type':'tool_use','id':'t2','name':'g'}]},"
		"{'role':'user','content':[{'type':'tool_result','tool_use_id':'t1',"
		"'content':[{'type':'text','text':'4'},{'type':'text','text':'2'}]},"
		"{'type':'text','text':'and'},{'type':'text','text':' so'},"
		"{'type':'tool_result','tool_use_id':'t2','is_error':true},"
		"{'type':'text','text':'on'}]}]",
		"'messages':[{'role':'user','content':'a'},{'role':'assistant','content':'I look.',"
		"'reasoning_content':'hm so','tool_calls':["
		"{'id':'t1','function':{'name':'f','arguments':'{\\'a\\':[1,{\\'b\\':null}]}'}},"
		"{'id':'t2','function':{'name':'g'}}]},"
		"{'role':'tool','tool_call_id':'t1','content':'42'},"
		"{'role':'user','content':'and so'},"
		"{'role':'tool','tool_call_id':'t2','content':''},{'role':'user','content':'on'}]",
		"thinking, calls and their results");
	same_chat("'messages':[{'role':'user','content':'a'},{'role':'assistant','content':[]},"
		  "{'role':'user','content':[]},{'role':'user','content':''}]",
		  "'messages':[{'role':'user','content':'a'},{'role':'assistant','content':''},"
		  "{'role':'user','content':''}]",
		  "empty content");
}

TEST(prefill)
{
	is_int(parse("{'max_tokens':9,'messages':[{'role':'user','content':'a'},"
		     "{'role':'assistant','content':[{'type':'text','text':'{\\'b'}]}]}"),
	       0, "the answer's beginning: %s", err.text);
	ok(r.prefill && r.prefill_len == 3 && !strcmp(r.prefill, "{\"b"), "is the prompt's end");
	is_int((long long)json_array_size(json_object_get(r.context, "messages")), 1,
	       "and no message");
	is_int(parse("{'max_tokens':9,'thinking':{'type':'enabled'},'messages':["
		     "{'role':'user','content':'a'},{'role':'assistant','content':'b'}]}"),
	       -EINVAL, "not with thinking");
	refused(EINVAL, "thinking", "thinking is on");
	is_int(parse("{'max_tokens':9,'messages':[{'role':'user','content':'a'},{'role':'assistant',"
		     "'content':[{'type':'tool_use','id':'t','name':'f'}]}]}"),
	       -EINVAL, "not with calls");
	refused(EINVAL, "messages", "may have text alone");
	is_int(parse("{'max_tokens':9,'messages':[{'role':'assistant','content':'b'}]}"), -EINVAL,
	       "and not alone");
}

TEST(billing)
{
	static const char *const systems[] = {
		("[{'type':'text','text':'x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;'},"
		 "{'type':'text','text':'You are an agent.'}]"),
		"'x-anthropic-billing-header: cch=ffff;\\nYou are an agent.'",
		"[{'type':'text','text':'x-anthropic-billing-header: cch=1;\\nYou are an agent.'}]",
	};
	char members[512];

	for (size_t i = 0; i < ARRAY_SIZE(systems); i++) {
		snprintf(members, sizeof(members), "'system':%s", systems[i]);
		is_int(parse_with(members), 0, "a billing line");
		ok(r.billing, "is seen");
		is_str(json_string_value(json_object_get(
			       json_array_get(json_object_get(r.context, "messages"), 0),
			       "content")),
		       "You are an agent.", "and left out");
	}
	same_chat("'system':'x-anthropic-billing-header: a'," HI,
		  "'messages':[{'role':'system','content':'x-anthropic-billing-header: b'},"
		  "{'role':'user','content':'hi'}]",
		  "a billing line alone");
	is_int((long long)json_array_size(json_object_get(r.context, "messages")), 1,
	       "is no system message");
	parse_with("'system':'The header x-anthropic-billing-header: is one.'");
	ok(!r.billing, "a text that only mentions it is whole");
	parse("{'max_tokens':9,'messages':[{'role':'user',"
	      "'content':'x-anthropic-billing-header: a'}]}");
	ok(!r.billing, "and so is what a user says");
	same_chat("'system':[{'type':'text','text':'x-anthropic-billing-header: a;'},"
		  "{'type':'text','text':'b'}]," HI,
		  "'messages':[{'role':'system','content':[{'type':'text',"
		  "'text':'x-anthropic-billing-header: c;'},{'type':'text','text':'b'}]},"
		  "{'role':'user','content':'hi'}]",
		  "a chat's parts have it, too");
}

TEST(tools)
{
	static const char *const body =
		"'tools':[{'name':'f','description':'d','input_schema':{'type':'object',"
		"'properties':{'n':{'type':'integer'}}},'cache_control':{'type':'ephemeral'}},"
		"{'type':'custom','name':'g','input_schema':{}}],%s" HI;
	static const char *const of_chat =
		"'tools':[{'type':'function','function':{'name':'f','description':'d','parameters':"
		"{'type':'object','properties':{'n':{'type':'integer'}}}}},{'type':'function',"
		"'function':{'name':'g','parameters':{}}}],%s" HI;
	static const char *const choices[][2] = {
		{"", ""},
		{"'tool_choice':{'type':'auto'},", "'tool_choice':'auto',"},
		{"'tool_choice':{'type':'none'},", "'tool_choice':'none',"},
		{"'tool_choice':{'type':'auto','disable_parallel_tool_use':true},",
		 "'parallel_tool_calls':false,"},
	};
	char a[2048], b[4096];

	for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
		snprintf(a, sizeof(a), body, choices[i][0]);
		snprintf(b, sizeof(b), of_chat, choices[i][1]);
		same_chat(a, b, i ? choices[i][0] : "tools");
	}
	snprintf(a, sizeof(a), body, "'tool_choice':{'type':'any'},");
	snprintf(b, sizeof(b), of_chat, "'tool_choice':'required',");
	same_chat(a, b, "any");
	ok(r.tool_choice == TOOL_CHOICE_REQUIRED && r.grammar && !r.only_tool && !r.one_call,
	   "demands calls");
	snprintf(a, sizeof(a), body, "'tool_choice':{'type':'tool','name':'g'},");
	snprintf(b, sizeof(b), of_chat,
		 "'tool_choice':{'type':'function','function':{'name':'g'}},");
	same_chat(a, b, "a tool");
	ok(r.grammar && r.only_tool && !strcmp(r.only_tool, "g") && r.one_call,
	   "demands one call of it");
	same_chat(
		"'tools':[{'name':'f','strict':true,'input_schema':{'type':'object'}}]," HI,
		"'tools':[{'type':'function','function':{'name':'f','parameters':{'type':'object'},"
		"'strict':true}}]," HI,
		"a strict tool");
	ok(r.grammar && r.tool_choice == TOOL_CHOICE_AUTO, "has a grammar");
}

TEST(thinking)
{
	same_chat("'thinking':{'type':'enabled','budget_tokens':1024}," HI,
		  "'enable_thinking':true," HI, "enabled");
	same_chat("'thinking':{'type':'adaptive','display':'summarized'}," HI,
		  "'enable_thinking':true," HI, "adaptive");
	same_chat("'thinking':{'type':'between_tools'}," HI, "'enable_thinking':true," HI,
		  "between_tools");
	same_chat("'thinking':{'type':'disabled'}," HI, "'enable_thinking':false," HI, "disabled");
	same_chat("'output_config':{'effort':'high'}," HI,
		  "'reasoning_effort':'high','enable_thinking':false," HI, "an effort");
	same_chat("'thinking':{'type':'adaptive'},'output_config':{'effort':'low'}," HI,
		  "'reasoning_effort':'low','enable_thinking':true," HI, "both");
	is_int(parse_with("'chat_template_kwargs':{'preserve_thinking':false,'x':1}"), 0,
	       "the template's arguments");
	ok(json_is_false(json_object_get(r.context, "preserve_thinking")) &&
		   json_object_get(r.context, "x"),
	   "are the client's");
}

TEST(formats)
{
	static const char *const bodies[] = {
		"'output_config':{'format':{'type':'json_schema','schema':{'type':'null'}}}",
		"'output_format':{'type':'json_schema','schema':{'type':'null'}}",
		"'response_format':{'type':'json_object'}", "'guided_regex':'a+'"};

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		is_int(parse_with(bodies[i]), 0, "%s: %s", bodies[i], err.text);
		ok(r.grammar, "has a grammar");
	}
}

TEST(bad)
{
	static const struct {
		const char *members, *param, *text;
		int code;
	} rows[] = {
		{"'system':5", "system", "system is 5, but must be", 0},
		{"'system':[5]", "system[0]", "must be an object with a type", 0},
		{"'system':[{'type':'image'}]", "system[0].type", "\"image\", but must be \"text\"",
		 0},
		{"'system':[{'type':'text'}]", "system[0].text", "is missing", 0},
		{"'tools':{}", "tools", "must be an array", 0},
		{"'tools':[5]", "tools[0]", "must be an object", 0},
		{"'tools':[{'name':'f'}]", "tools[0].input_schema", "is missing", 0},
		{"'tools':[{'name':'f','input_schema':[]}]", "tools[0].input_schema", "an array",
		 0},
		{"'tools':[{'name':'','input_schema':{}}]", "tools[0].name", "not empty", 0},
		{"'tools':[{'name':'a\\u0000','input_schema':{}}]", "tools[0].name", "no NUL", 0},
		{"'tools':[{'type':'custom\\u0000','name':'a','input_schema':{}}]", "tools[0].type",
		 "a NUL", 0},
		{"'tool_choice':{'type':'none\\u0000'}", "tool_choice.type", "a NUL", 0},
		{"'thinking':{'type':'disabled\\u0000'}", "thinking.type", "a NUL", 0},
		{"'output_format':{'type':'json_schema\\u0000','schema':{}}", "output_format.type",
		 "a NUL", 0},
		{"'tools':[{'name':'f','description':1,'input_schema':{}}]", "tools[0].description",
		 "must be a string", 0},
		{"'tools':[{'type':'web_search_20250305','name':'web_search'}]", "tools[0].type",
		 "this server has no tools of its own", 0},
		{"'tool_choice':'auto'", "tool_choice", "an object with a type", 0},
		{"'tool_choice':{'type':'all'}", "tool_choice.type", "\"all\"", 0},
		{"'tool_choice':{'type':'tool','name':'f'}", "tool_choice.name",
		 "the name of one of the tools", 0},
		{"'tool_choice':{'type':'auto','disable_parallel_tool_use':1}",
		 "tool_choice.disable_parallel_tool_use", "true or false", 0},
		{"'stop_sequences':['a','']", "stop_sequences[1]", "not empty", 0},
		{"'stop_sequences':{}", "stop_sequences", "an array", 0},
		{"'temperature':3", "temperature", "from 0 to 2", 0},
		{"'top_k':'a'", "top_k", "whole number", 0},
		{"'thinking':true", "thinking", "an object with a type", 0},
		{"'thinking':{'type':'on'}", "thinking.type", "\"on\"", 0},
		{"'thinking':{'type':'enabled','budget_tokens':0}", "thinking.budget_tokens",
		 "whole number", 0},
		{"'metadata':[]", "metadata", "an object", 0},
		{"'metadata':{'user_id':5}", "metadata.user_id", "a string", 0},
		{"'output_config':{'effort':'huge'}", "output_config.effort",
		 "output_config.effort is \"huge\", but must be one of", 0},
		{"'output_config':{'format':{'type':'xml'}}", "output_config.format.type", "xml",
		 0},
		{"'output_format':{'type':'json_schema'}", "output_format.schema", "is missing", 0},
		{"'output_format':{'type':'json_schema','schema':{}},'guided_regex':'a'",
		 "guided_regex", "output_format.schema and guided_regex are both given", 0},
		{"'output_format':{'type':'json_schema','schema':{'type':'thing'}}",
		 "output_format.schema", "output_format.schema: ", 0},
		{"'output_config':{'format':{'type':'json_schema','schema':{'ifX':1}}}",
		 "output_config.format.schema", "output_config.format.schema: the keyword \"ifX\"",
		 PROBLEM_UNSUPPORTED},
		{"'output_config':{'format':{'type':'json_schema','schema':5}}",
		 "output_config.format.schema", "a JSON schema", 0},
		{"'response_format':{'type':'json_object'},'output_format':{'type':'json_schema',"
		 "'schema':{}}",
		 "output_format.schema", "both given", 0},
		{"'chat_template_kwargs':5", "chat_template_kwargs", "an object", 0},
		{"'chat_template_kwargs':{'messages':[]}", "chat_template_kwargs.messages",
		 "cannot be set", 0},
		{"'mcp_servers':[{'url':'x'}]", "mcp_servers", "not supported",
		 PROBLEM_UNSUPPORTED},
		{"'thread':{'type':'create'}", "thread", "not supported", PROBLEM_UNSUPPORTED},
		{"'compaction':{'type':'summarize'}", "compaction", "not supported",
		 PROBLEM_UNSUPPORTED},
		{"'context_management':{'edits':[{'type':'clear_thinking_20251015'},"
		 "{'type':'compact_20260112','pause_after_compaction':true}]}",
		 "context_management.edits[1]", "compact_20260112", PROBLEM_UNSUPPORTED},
		{"'context_management':{'edits':[{'type':'clear_tool_uses_20250919'}]}",
		 "context_management.edits[0]",
		 "context_management.edits[0]: clear_tool_uses_20250919 is not supported by this "
		 "server, which clears no results of tools",
		 PROBLEM_UNSUPPORTED},
		{"'context_management':[]", "context_management", "an object", 0},
		{"'context_management':{'edits':'x'}", "context_management.edits", "an array", 0},
		{"'model':5", "model", "a string", 0},
	};
	static const struct {
		const char *messages, *param, *text;
	} lists[] = {
		{"null", "messages", "is missing"},
		{"[]", "messages", "is empty"},
		{"[5]", "messages[0]", "an object with role and content"},
		{"[{'content':'a'}]", "messages[0].role", "is missing"},
		{"[{'role':'tool','content':'a'}]", "messages[0].role", "\"tool\""},
		{"[{'role':'user'}]", "messages[0].content", "is missing"},
		{"[{'role':'user\\u0000','content':'a'}]", "messages[0].role", "a NUL"},
		{"[{'role':'user','content':[{'type':'text\\u0000','text':'a'}]}]",
		 "messages[0].content[0].type", "a NUL"},
		{"[{'role':'user','content':5}]", "messages[0].content", "an array of blocks"},
		{"[{'role':'user','content':[]}]", "messages", "no content at all"},
		{"[{'role':'assistant','content':'a'}]", "messages", "no content before the last"},
		{"[{'role':'user','content':[{'type':'image','source':{}}]}]",
		 "messages[0].content[0].type",
		 "\"image\", but must be \"text\" or \"tool_result\""},
		{"[{'role':'user','content':[{'type':'tool_use','id':'a','name':'f'}]}]",
		 "messages[0].content[0].type", "\"tool_use\""},
		{"[{'role':'user','content':[{'type':'tool_result','content':'a'}]}]",
		 "messages[0].content[0].tool_use_id", "is missing"},
		{"[{'role':'assistant','content':[{'type':'tool_use','id':'a','name':'f'}]},"
		 "{'role':'user','content':[{'type':'tool_result','tool_use_id':'a','content':"
		 "[{'type':'text','text':'x'},{'type':'document'}]}]}]",
		 "messages[1].content[0].content[1].type", "\"document\", but must be \"text\""},
		{"[{'role':'assistant','content':[{'type':'tool_use','id':'a','name':'f'}]},"
		 "{'role':'user','content':[{'type':'text','text':'x'},{'type':'tool_result',"
		 "'tool_use_id':'b'}]}]",
		 "messages[1].content[1].tool_use_id",
		 "messages[1].content[1].tool_use_id is \"b\", but must be the id of a tool call "
		 "before it"},
		{"[{'role':'assistant','content':[{'type':'tool_use','id':'a','name':'f','input':'{}'"
		 "}]},{'role':'user','content':'a'}]",
		 "messages[0].content[0].input", "must be an object"},
		{"[{'role':'assistant','content':[{'type':'tool_use','id':'a','name':''}]},"
		 "{'role':'user','content':'a'}]",
		 "messages[0].content[0].name", "not empty"},
		{"[{'role':'assistant','content':[{'type':'thinking'}]},{'role':'user','content':'a'}]",
		 "messages[0].content[0].thinking", "is missing"},
		{"[{'role':'assistant','content':[{'type':'compaction','content':'a summary'}]},"
		 "{'role':'user','content':'a'}]",
		 "messages[0].content[0].type", "\"compaction\", but must be"},
		{"[{'role':'system','content':[{'type':'tool_result','tool_use_id':'a'}]},"
		 "{'role':'user','content':'a'}]",
		 "messages[0].content[0].type", "\"tool_result\", but must be \"text\""},
	};
	char body[1024];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int code = rows[i].code ? rows[i].code : EINVAL;

		is_int(parse_with(rows[i].members), -code, "%s", rows[i].members);
		refused(code, rows[i].param, rows[i].text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		snprintf(body, sizeof(body), "{'max_tokens':9,'messages':%s}", lists[i].messages);
		is_int(parse(body), -EINVAL, "%s", lists[i].messages);
		refused(EINVAL, lists[i].param, lists[i].text);
	}
	is_int(parse("[]"), -EINVAL, "no object");
	is_int(parse(""), -EINVAL, "no body");
	is_int(parse("{'max_tokens':-1," HI "}"), -EINVAL, "max_tokens -1");
	refused(EINVAL, "max_tokens", "is -1, but must be a whole number from 0");
}

TEST(out_of_memory)
{
	static const char body[] =
		"{'max_tokens':9,'system':[{'type':'text','text':'s'}],'messages':["
		"{'role':'user','content':[{'type':'text','text':'a'}]},{'role':'assistant','content':["
		"{'type':'thinking','thinking':'t'},{'type':'tool_use','id':'i','name':'f',"
		"'input':{'a':[1]}}]},{'role':'user','content':[{'type':'tool_result',"
		"'tool_use_id':'i','content':'r'}]},{'role':'assistant','content':'p'}],"
		"'tools':[{'name':'f','description':'d','input_schema':{}}],"
		"'tool_choice':{'type':'auto','disable_parallel_tool_use':true},"
		"'output_config':{'effort':'low'},'thinking':{'type':'disabled'}}";

	parse_short_of_memory(anthropic_parse_messages, body, 50);
}

TEST(pace)
{
	const char *body = quoted("{'max_tokens':9," HI "}");
	int left = 0;
	const struct pace pace = {impatient, &left};

	is_int(parse_paced(anthropic_parse_messages, body, strlen(body), &pace), -ECANCELED,
	       "a body is given up");
}

TEST(errors)
{
	static const struct {
		int code, status;
		const char *type;
	} rows[] = {
		{EINVAL, 400, "invalid_request_error"},
		{PROBLEM_UNSUPPORTED, 400, "invalid_request_error"},
		{PROBLEM_TEMPLATE, 400, "invalid_request_error"},
		{PROBLEM_API_KEY, 401, "authentication_error"},
		{PROBLEM_HOST, 403, "permission_error"},
		{PROBLEM_UNKNOWN_MODEL, 404, "not_found_error"},
		{PROBLEM_METHOD, 405, "invalid_request_error"},
		{PROBLEM_BODY_TOO_LARGE, 413, "request_too_large"},
		{PROBLEM_MEDIA_TYPE, 415, "invalid_request_error"},
		{PROBLEM_QUEUE_FULL, 429, "rate_limit_error"},
		{PROBLEM_INTERNAL, 500, "api_error"},
		{EIO, 503, "api_error"},
		{ENOMEM, 503, "overloaded_error"},
		{PROBLEM_MODEL_LOADING, 503, "overloaded_error"},
		{ESHUTDOWN, 503, "overloaded_error"},
	};
	struct buf out;
	char want[256];

	buf_init(&out, 1 << 16);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err e;

		err_set(&e, rows[i].code, "a \"word\"");
		buf_reset(&out);
		is_int(anthropic_error(&e, &out), rows[i].status, "status of %d", rows[i].code);
		snprintf(want, sizeof(want),
			 "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"a "
			 "\\\"word\\\"\"}}",
			 rows[i].type);
		is_str(buf_str(&out), want, "body of %d", rows[i].code);
	}
	err_set(&err, PROBLEM_CONTEXT_LENGTH, "9 tokens");
	buf_reset(&out);
	anthropic_error(&err, &out);
	ok(strstr(buf_str(&out), "\"prompt is too long: 9 tokens\""), "a prompt that is too long");
	err_param(&err, PROBLEM_UNSUPPORTED, "thread", "no");
	buf_reset(&out);
	anthropic_error(&err, &out);
	is_str(buf_str(&out),
	       "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\","
	       "\"details\":{\"error_code\":\"thread_unsupported_request\","
	       "\"unsupported\":[\"thread\"]}}}",
	       "the SDKs send a conversation whole when threads are not supported");
	buf_release(&out);
}

TEST(models)
{
	static const struct openai_model models[] = {{.id = "a\"b",
						      .created = 1700000000,
						      .max_model_len = 4096},
						     {.id = "c", .created = 0, .max_model_len = 1}};
	struct buf out;

	buf_init(&out, 1 << 16);
	anthropic_body_models(models, 2, &out);
	is_str(buf_str(&out),
	       "{\"data\":[{\"type\":\"model\",\"id\":\"a\\\"b\",\"display_name\":\"a\\\"b\","
	       "\"created_at\":\"2023-11-14T22:13:20Z\",\"lifecycle\":\"active\",\"max_input_tokens\":4096,"
	       "\"max_tokens\":4096},{\"type\":\"model\",\"id\":\"c\",\"display_name\":\"c\","
	       "\"created_at\":\"1970-01-01T00:00:00Z\",\"lifecycle\":\"active\",\"max_input_tokens\":1,\"max_tokens\":1}],"
	       "\"has_more\":false,\"first_id\":\"a\\\"b\",\"last_id\":\"c\"}",
	       "the list of models");
	buf_reset(&out);
	anthropic_body_count(12, &out);
	is_str(buf_str(&out), "{\"input_tokens\":12}", "a count");
	buf_release(&out);
}

int main(void)
{
	limits.tools = tools_detect("<tool_call> tojson");
	return run_parse_tests();
}
