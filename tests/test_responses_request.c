/* protocol/responses: bodies of /v1/responses become what chat has; bad ones get one sentence with the parameter. */
#include "base/problem.h"
#include "protocol/responses/list.h"
#include "protocol/responses/request.h"
#include "tests/request_parse.h"

static const char *earlier; /* the items that recall gives; NULL: it knows no response */

static int recall(void *arg, const char *id, struct buf *out, struct err *e)
{
	check(arg == &earlier);
	if (!earlier || strcmp(id, "resp_1"))
		return err_param(e, PROBLEM_UNKNOWN_PREVIOUS, "previous_response_id", "unknown");
	buf_puts(out, quoted(earlier));
	return 0;
}

static int parse(const char *body)
{
	return parse_as(responses_parse, body);
}

/* Parses {"input":"hi", members}. */
static int parse_with(const char *members)
{
	char body[4096];

	snprintf(body, sizeof(body), "{'input':'hi'%s%s}", members[0] ? "," : "", members);
	return parse(body);
}

static int parse_items(const char *items)
{
	char body[4096];

	snprintf(body, sizeof(body), "{'input':[%s]}", items);
	return parse(body);
}

/* Returns the messages of the last request as JSON; valid until the next call. */
static const char *messages(void)
{
	static char text[4096];
	char *dump = json_dumps(json_object_get(r.context, "messages"), JSON_COMPACT);

	snprintf(text, sizeof(text), "%s", dump ? dump : "");
	free(dump);
	return text;
}

/* Checks that items become the messages of a chat body. */
static void same_as_chat(const char *items, const char *of_chat, const char *name)
{
	char body[4096];

	snprintf(body, sizeof(body), "{'messages':[%s]}", of_chat);
	same_context(parse_items(items), body, name);
}

#define CALL "{'type':'function_call','call_id':'c','name':'f','arguments':'{}'}"

TEST(input)
{
	is_int(parse_with("'instructions':'Be brief.'"), 0, "a text");
	is_str(messages(),
	       quoted("[{'role':'system','content':'Be brief.'},{'role':'user','content':'hi'}]"),
	       "becomes the user's message");
	same_as_chat("{'role':'developer','content':'D'},{'type':'message','role':'user','content':"
		     "[{'type':'input_text','text':'a'},{'type':'input_text','text':'b'}]}",
		     "{'role':'developer','content':'D'},{'role':'user','content':'ab'}",
		     "messages and parts");
	same_as_chat(
		"{'role':'user','content':'u'},"
		"{'type':'reasoning','id':'rs_1','summary':[],'content':[{'type':"
		"'reasoning_text','text':'Hm.'}]},"
		"{'type':'message','role':'assistant','content':[{'type':'output_text','text':"
		"'I look.','annotations':[]}]},"
		"{'type':'function_call','call_id':'c1','name':'f','arguments':'{}'},"
		"{'type':'function_call','call_id':'c2','name':'g','arguments':'{}'},"
		"{'type':'function_call_output','call_id':'c1','output':'one'},"
		"{'type':'function_call_output','call_id':'c2','output':[{'type':'input_text',"
		"'text':'two'}]}",
		"{'role':'user','content':'u'},"
		"{'role':'assistant','content':'I look.','reasoning_content':'Hm.','tool_calls':["
		"{'id':'c1','type':'function','function':{'name':'f','arguments':'{}'}},"
		"{'id':'c2','type':'function','function':{'name':'g','arguments':'{}'}}]},"
		"{'role':'tool','tool_call_id':'c1','content':'one'},"
		"{'role':'tool','tool_call_id':'c2','content':'two'}",
		"reasoning, text and two calls are one answer");
	same_as_chat("{'role':'user','content':'u'},{'role':'assistant','content':'a'},"
		     "{'role':'assistant','content':'b'}",
		     "{'role':'user','content':'u'},{'role':'assistant','content':'a'},"
		     "{'role':'assistant','content':'b'}",
		     "two answers stay two");
	same_as_chat("{'type':'function_call','call_id':'c1','name':'f','arguments':'{}'},"
		     "{'role':'assistant','content':'behind'}",
		     "{'role':'assistant','content':'behind','tool_calls':[{'id':'c1','type':"
		     "'function','function':{'name':'f','arguments':'{}'}}]}",
		     "text behind a call belongs to it");
	same_as_chat("{'type':'reasoning','summary':[],'encrypted_content':'tigon:Hm.'},"
		     "{'role':'assistant','content':'a'},"
		     "{'type':'reasoning','summary':[{'type':'summary_text','text':'S'}],"
		     "'encrypted_content':'gAAAA'},{'role':'assistant','content':'b'}",
		     "{'role':'assistant','content':'a','reasoning_content':'Hm.'},"
		     "{'role':'assistant','content':'b','reasoning_content':'S'}",
		     "reasoning that came as encrypted_content, or as a summary");
}

TEST(earlier_responses)
{
	const char *body = "{'previous_response_id':'resp_1','input':'and?'}";

	earlier = NULL;
	is_int(parse(body), -PROBLEM_UNKNOWN_PREVIOUS, "an unknown earlier response");
	is_str(err.param, "previous_response_id", "is named");
	earlier = "{'role':'user','content':'q'},{'type':'message','role':'assistant','content':[{"
		  "'type':'output_text','text':'a'}]}";
	is_int(parse(body), 0, "an earlier response");
	is_str(messages(),
	       quoted("[{'role':'user','content':'q'},{'role':'assistant','content':'a'},"
		      "{'role':'user','content':'and?'}]"),
	       "comes before the input");
	is_str(r.responses->input,
	       quoted("{'type':'message','role':'user','content':[{'type':'input_text','text':"
		      "'and?'}]}"),
	       "of which the request's own is kept");
	is_int(parse("{'previous_response_id':'resp_1','input':[{'type':'odd'}]}"),
	       -PROBLEM_UNSUPPORTED, "an error behind it");
	is_str(err.param, "input[0]", "has the client's numbers");
	is_int(parse("{'previous_response_id':'resp_1','input':[{'type':'function_call_output',"
		     "'call_id':'c','output':'x'}]}"),
	       -EINVAL, "an output without its call");
	is_str(err.text, "input[0].call_id is \"c\", but must be the id of a tool call before it",
	       "is refused");
	earlier = CALL;
	is_int(parse("{'previous_response_id':'resp_1','input':[{'type':'function_call_output',"
		     "'call_id':'c','output':'x'}]}"),
	       0, "the call may stand in the earlier response");
	is_int(parse("{'previous_response_id':'resp_1'}"), 0, "no input is needed then");
	is_int(parse("{'previous_response_id':'resp_1','input':'x','store':false}"), 0,
	       "store false");
	ok(!r.responses->store && !r.responses->input, "keeps nothing");
	limits.recall = NULL;
	is_int(parse(body), -PROBLEM_UNKNOWN_PREVIOUS, "a server that keeps nothing");
	limits.recall = recall;
}

TEST(parameters)
{
	is_int(parse_with(
		       "'max_output_tokens':7,'temperature':0.25,'top_p':0.75,'stream':true,"
		       "'include':['message.output_text.logprobs','reasoning.encrypted_content'],"
		       "'top_logprobs':3,'parallel_tool_calls':false,'truncation':'auto',"
		       "'reasoning':{'effort':'low','summary':'auto'},'metadata':{'a':'b'},"
		       "'user':'u','seed':5,'stop':'x','service_tier':'flex','background':false,"
		       "'text':{'format':{'type':'json_schema','name':'n','strict':true,'schema':"
		       "{'type':'object'}},'verbosity':'low'}"),
	       0, "many parameters");
	ok(r.max_tokens == 7 && r.sampling.temperature == 0.25f && r.sampling.top_p == 0.75f &&
		   r.stream && r.sampling.want_logprobs && r.sampling.n_logprobs == 3 &&
		   r.one_call && r.truncate && r.thinking && r.responses->encrypted && r.has_seed &&
		   r.n_stops == 1 && r.n == 1,
	   "are read");
	ok(r.grammar && !strcmp(r.constraint, "text.format.schema"), "with the format");
	ok(strstr(r.responses->fields, quoted("'reasoning':{'effort':'low','summary':'auto'}")) &&
		   strstr(r.responses->fields, quoted("'metadata':{'a':'b'}")) &&
		   strstr(r.responses->fields, quoted("'truncation':'auto'")),
	   "and repeated");
	is_int(parse_with("'background':null,'conversation':null,'prompt':null"), 0, "null");
	is_int(parse_with("'background':false,'conversation':'','prompt':{}"), 0,
	       "and what asks for nothing, is absent");
	is_int(parse_with(""), 0, "none");
	ok(!r.thinking && !r.truncate && !r.stream && !r.one_call && r.responses->store &&
		   !r.sampling.want_logprobs && !r.grammar && !r.max_tokens,
	   "have their defaults");
	ok(strstr(r.responses->fields, quoted("'text':{'format':{'type':'text'}}")) &&
		   strstr(r.responses->fields, quoted("'instructions':null")) &&
		   strstr(r.responses->fields, quoted("'tool_choice':'auto'")),
	   "which are repeated, too");
	is_int(parse_with("'reasoning':{'effort':'none'}"), 0, "effort none");
	ok(!r.thinking, "does not think");
	is_int(parse_with("'text':{'format':{'type':'json_object'}}"), 0, "json_object");
	is_str(r.constraint, "text.format", "is a constraint");
}

TEST(tools)
{
	limits.tools = tools_detect("<tool_call> tojson");
	is_int(parse_with("'tools':[{'type':'function','name':'f','description':'d','parameters':"
			  "{'type':'object','properties':{'n':{'type':'integer'}}},'strict':true},"
			  "{'type':'function','name':'g','parameters':null}]"),
	       0, "two tools");
	ok(r.tools.n == 2 && !strcmp(r.tools.v[0].name, "f") && r.tools.v[0].n_parameters == 1,
	   "are known to the parser of calls");
	{
		char *dump = json_dumps(json_object_get(r.context, "tools"), JSON_COMPACT);

		is_str(dump,
		       quoted("[{'type':'function','function':{'name':'f','description':'d',"
			      "'parameters':{'type':'object','properties':{'n':{'type':'integer'}}},"
			      "'strict':true}},{'type':'function','function':{'name':'g'}}]"),
		       "and have the shape of chat in the template");
		free(dump);
	}
	is_int(parse_with("'tools':[{'type':'function','name':'f'},{'type':'function','name':'g'}],"
			  "'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':"
			  "'function','name':'g'}]}"),
	       0, "allowed_tools");
	ok(r.tools.n == 1 && !strcmp(r.tools.v[0].name, "g") && r.grammar,
	   "leaves one that may be called");
	is_int(json_array_size(json_object_get(r.context, "tools")), 2, "and both in the prompt");
	is_int(parse_with("'tools':[{'type':'function','name':'f'}],'tool_choice':'none'"), 0,
	       "tool_choice none");
	is_int(r.tools.n, 0, "leaves none");
}

TEST(refusals)
{
	static const struct {
		const char *members, *param;
		int code;
	} bad[] = {
		{"'tools':[{'type':'web_search'}]", "tools[0]", PROBLEM_UNSUPPORTED},
		{"'tools':[{'type':'function'}]", "tools[0].name", EINVAL},
		{"'tools':[{'name':'f'}]", "tools[0].type", EINVAL},
		{"'tools':[{'type':'function','name':'f','parameters':[]}]", "tools[0].parameters",
		 EINVAL},
		{"'tools':{}", "tools", EINVAL},
		{"'tools':[{'type':'function','name':'f','strict':1}]", "tools[0].strict", EINVAL},
		{"'tool_choice':{'type':'web_search'}", "tool_choice", PROBLEM_UNSUPPORTED},
		{"'tool_choice':7", "tool_choice", EINVAL},
		{"'tool_choice':{'type':'allowed_tools'}", "tool_choice.tools", EINVAL},
		{"'tool_choice':{'type':'allowed_tools','tools':[5]}", "tool_choice.tools[0]",
		 EINVAL},
		{"'tool_choice':{'type':'allowed_tools','tools':[{'type':'mcp'}]}",
		 "tool_choice.tools[0]", PROBLEM_UNSUPPORTED},
		{"'tool_choice':{'type':'allowed_tools','tools':[{'name':''}]}",
		 "tool_choice.tools[0].name", EINVAL},
		{"'tool_choice':{'type':'allowed_tools','tools':[{'name':'f'}]}", "tool_choice",
		 EINVAL},
		{"'tool_choice':{'type':'function','name':''}", "tool_choice.name", EINVAL},
		{"'background':true", "background", PROBLEM_UNSUPPORTED},
		{"'conversation':'c'", "conversation", PROBLEM_UNSUPPORTED},
		{"'prompt':{'id':'p'}", "prompt", PROBLEM_UNSUPPORTED},
		{"'response_format':{'type':'text'}", "response_format", PROBLEM_UNSUPPORTED},
		{"'prompt_logprobs':0", "prompt_logprobs", PROBLEM_UNSUPPORTED},
		{"'n':2", "n", PROBLEM_UNSUPPORTED},
		{"'truncation':'always'", "truncation", EINVAL},
		{"'truncation':1", "truncation", EINVAL},
		{"'max_output_tokens':0", "max_output_tokens", EINVAL},
		{"'max_output_tokens':'7'", "max_output_tokens", EINVAL},
		{"'top_logprobs':2", "top_logprobs", EINVAL},
		{"'include':['message.output_text.logprobs'],'top_logprobs':21", "top_logprobs",
		 EINVAL},
		{"'include':'x'", "include", EINVAL},
		{"'include':[7]", "include", EINVAL},
		{"'metadata':{'a':1}", "metadata", EINVAL},
		{"'metadata':'a'", "metadata", EINVAL},
		{"'store':'yes'", "store", EINVAL},
		{"'instructions':['x']", "instructions", EINVAL},
		{"'previous_response_id':7", "previous_response_id", EINVAL},
		{"'reasoning':'high'", "reasoning", EINVAL},
		{"'reasoning':{'effort':'huge'}", "reasoning.effort", EINVAL},
		{"'reasoning':{'summary':7}", "reasoning.summary", EINVAL},
		{"'text':'json'", "text", EINVAL},
		{"'text':{'format':'json'}", "text.format", EINVAL},
		{"'text':{'format':{'type':'xml'}}", "text.format.type", EINVAL},
		{"'text':{'format':{'type':'json_schema','name':'n'}}", "text.format.schema",
		 EINVAL},
		{"'text':{'format':{'type':'json_schema','name':'n','schema':7}}",
		 "text.format.schema", EINVAL},
		{"'text':{'verbosity':'loud'}", "text.verbosity", EINVAL},
		/* A NUL does not end a word. */
		{"'text':{'verbosity':'low\\u0000'}", "text.verbosity", EINVAL},
		{"'text':{'format':{'type':'text\\u0000'}}", "text.format.type", EINVAL},
		{"'tools':[{'type':'function\\u0000','name':'f'}]", "tools[0].type", EINVAL},
		{"'tool_choice':'auto\\u0000'", "tool_choice", EINVAL},
		{"'tool_choice':{'type':'allowed_tools\\u0000','tools':[]}", "tool_choice", EINVAL},
		{"'previous_response_id':'resp_1\\u0000'", "previous_response_id", EINVAL},
		{"'include':['message.output_text.logprobs\\u0000'],'top_logprobs':2",
		 "top_logprobs", EINVAL},
	};
	static const struct {
		const char *items, *param;
		int code;
	} items[] = {
		{"", "input", EINVAL},
		{"7", "input[0]", EINVAL},
		{"{'type':7}", "input[0].type", EINVAL},
		{"{'type':'message\\u0000','role':'user','content':'x'}", "input[0].type", EINVAL},
		{"{'role':'user\\u0000','content':'x'}", "input[0].role", EINVAL},
		{"{'role':'user','content':[{'type':'text\\u0000','text':'x'}]}",
		 "input[0].content[0].type", EINVAL},
		{"{'type':'item_reference','id':'x'}", "input[0]", PROBLEM_UNSUPPORTED},
		{"{'type':'web_search_call','id':'x'}", "input[0]", PROBLEM_UNSUPPORTED},
		{"{'role':'user'}", "input[0].content", EINVAL},
		{"{'role':'king','content':'x'}", "input[0].role", EINVAL},
		{"{'content':'x'}", "input[0].role", EINVAL},
		{"{'role':'user','content':7}", "input[0].content", EINVAL},
		{"{'role':'user','content':['x']}", "input[0].content[0]", EINVAL},
		{"{'role':'user','content':[{'type':'input_image','image_url':'x'}]}",
		 "input[0].content[0]", PROBLEM_UNSUPPORTED},
		{"{'role':'user','content':[{'type':'output_text','text':'x'}]}",
		 "input[0].content[0]", PROBLEM_UNSUPPORTED},
		{"{'role':'user','content':[{'type':'input_text'}]}", "input[0].content[0].text",
		 EINVAL},
		{"{'role':'user','content':'a'},{'type':'function_call','name':'f'}",
		 "input[1].call_id", EINVAL},
		{"{'type':'function_call','call_id':'c','name':''}", "input[0].name", EINVAL},
		{"{'type':'function_call','call_id':'c','name':'f','arguments':{}}",
		 "input[0].arguments", EINVAL},
		{"{'type':'function_call_output','output':'x'}", "input[0].call_id", EINVAL},
		{CALL ",{'type':'function_call_output','call_id':'c'}", "input[1].output", EINVAL},
		{CALL ",{'type':'function_call_output','call_id':'c','output':7}",
		 "input[1].output", EINVAL},
		{CALL ",{'type':'function_call_output','call_id':'d','output':'x'}",
		 "input[1].call_id", EINVAL},
		{"{'type':'function_call_output','call_id':'c','output':'x'}," CALL,
		 "input[0].call_id", EINVAL},
		{"{'role':'user','content':'x','id':'a\\u0000'}", "input[0].id", EINVAL},
		{"{'type':'reasoning','content':7}", "input[0].content", EINVAL},
		{"{'type':'reasoning','encrypted_content':7}", "input[0].encrypted_content",
		 EINVAL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int got = parse_with(bad[i].members);

		if (got != -bad[i].code || strcmp(err.param, bad[i].param) || !err.text[0])
			ok(false, "%s: %d, %s: %s", bad[i].members, got, err.param, err.text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
		int got = parse_items(items[i].items);

		if (got != -items[i].code || strcmp(err.param, items[i].param) || !err.text[0])
			ok(false, "%s: %d, %s: %s", items[i].items, got, err.param, err.text);
	}
	ok(true, "%zu bad bodies", ARRAY_SIZE(bad) + ARRAY_SIZE(items));
	is_int(parse("{}"), -EINVAL, "no input");
	is_str(err.text, "input is missing: it must be a string or an array of items", "says so");
	parse_with("'tools':[{'type':'web_search'}]");
	is_str(err.text,
	       "tools[0] is of type \"web_search\", and this server takes functions alone",
	       "another tool is named in one sentence");
}

static const char *role_at(size_t i)
{
	return json_string_value(
		json_object_get(json_array_get(json_object_get(r.context, "messages"), i), "role"));
}

/* A chat fits with at most so many messages. Its last one has this role. */
struct fit {
	size_t most;
	const char *last;
};

static int fits(void *arg, struct err *e)
{
	const struct fit *f = arg;
	const size_t n = json_array_size(json_object_get(r.context, "messages"));

	check(n && !strcmp(f->last, role_at(n - 1)) && strcmp("tool", role_at(0)) != 0);
	return n <= f->most ? 0 : err_set(e, PROBLEM_CONTEXT_LENGTH, "%zu messages", n);
}

/* Leaves out messages until ever fewer are left, and returns how many always stay. `last` is the role of the last one. */
static size_t dropped(const char *items, const char *last)
{
	size_t n = 0;

	for (size_t most = 20; most--;) {
		int ret;

		check(parse_items(items) == 0);
		ret = openai_truncate(r.context, fits, &(struct fit){most, last}, &err);
		n = json_array_size(json_object_get(r.context, "messages"));
		check(ret == (n <= most ? 0 : -PROBLEM_CONTEXT_LENGTH));
	}
	return n;
}

TEST(truncation)
{
#define USER "{'role':'user','content':'u'},"
#define TURN CALL ",{'type':'function_call_output','call_id':'c','output':'o'},"
	is_int(dropped("{'role':'system','content':'s'}," USER
		       "{'role':'assistant','content':'a'}," USER
		       "{'role':'assistant','content':'a'},{'role':'user','content':'last'}",
		       "user"),
	       2, "the system's and the last message of the user are kept");
	is_str(messages(),
	       quoted("[{'role':'system','content':'s'},{'role':'user','content':'last'}]"),
	       "both");
	is_int(dropped(USER TURN TURN TURN "{'role':'assistant','content':'end'}", "assistant"), 2,
	       "of one turn, the oldest answers go, each with its outputs");
	is_int(dropped("{'role':'user','content':'alone'}", "user"), 1, "one message is kept");
	ok_all("and no output is left without its call");
}

static json_t *list_of(const char *items, struct responses_page page)
{
	/* The items may be in several texts: one ends at each '|'. */
	char *copy = strdup(quoted(items)), *rest = copy;
	struct response_text texts[200];
	struct buf out;
	json_t *list = NULL;
	size_t n = 0;

	buf_init(&out, 1 << 20);
	for (char *text; (text = strsep(&rest, "|"));)
		if (*text)
			texts[n++] = (struct response_text){text, strlen(text)};
	if (responses_list(texts, n, &page, NULL, &out, &err) == 0)
		list = json_loadb(buf_str(&out), out.len, JSON_ALLOW_NUL, NULL);
	free(copy);
	buf_release(&out);
	return list;
}

TEST(lists)
{
	const char *items =
		"{'role':'user','content':'a'},{'id':'rs_1','type':'reasoning'},{'role':"
		"'assistant','content':'b'}";
	json_t *list = list_of(items, (struct responses_page){.limit = 2});
	char *dump = json_dumps(list, JSON_COMPACT);

	is_str(dump,
	       quoted("{'object':'list','data':[{'role':'assistant','content':[{'type':'output_text',"
		      "'text':'b','annotations':[],'logprobs':[]}],'id':'item_2','type':'message',"
		      "'status':'completed'},{'id':'rs_1','type':'reasoning'}],'first_id':'item_2',"
		      "'last_id':'rs_1','has_more':true}"),
	       "the newest items");
	free(dump);
	json_decref(list);
	list = list_of(items, (struct responses_page){.limit = 2, .after = "rs_1"});
	is_str(json_string_value(json_object_get(list, "first_id")), "item_0", "the next page");
	ok(json_is_false(json_object_get(list, "has_more")), "is the last");
	json_decref(list);
	list = list_of(items, (struct responses_page){.limit = 20, .rising = true});
	is_str(json_string_value(json_object_get(list, "last_id")), "item_2", "the oldest first");
	json_decref(list);
	ok(!list_of(items, (struct responses_page){.limit = 20, .after = "x"}) &&
		   !strcmp(err.param, "after"),
	   "an unknown item");
	list = list_of("{'id':'a\\u0000b','type':'reasoning'}",
		       (struct responses_page){.limit = 1});
	is_int(json_string_length(json_object_get(list, "first_id")), 3,
	       "an id with a NUL is whole");
	json_decref(list);
	list = list_of("", (struct responses_page){.limit = 20});
	is_int(json_array_size(json_object_get(list, "data")), 0, "no items");
	ok(json_is_null(json_object_get(list, "last_id")), "so no last one");
	json_decref(list);
}

/* An id is that of the item alone: no member of a part, no text that looks like one. */
TEST(list_ids)
{
	static const struct {
		const char *id, *next; /* the item behind it, in the order of the conversation */
	} rows[] = {{"item_0", "a,b"}, {"a,b", "item_2"}, {"item_2", "q\"\\"}, {"q\"\\", "item_4"},
		    {"item_4", "x"},   {"x", NULL},	  {"inner", ""},       {"text", ""}};
	const char *items =
		"{'role':'user','content':[{'id':'inner','type':'input_text','text':'id'}]},"
		"{'id':'a,b','content':'}],\\'id\\':\\'text\\'','role':'user'}|"
		"{'type':'reasoning','id':null,'summary':[{'id':'inner'}]},"
		"{'role':'user','content':'}','id':'q\\'\\\\'}|"
		"{'role':'user','content':'id'}|{'id':'x','type':'reasoning'}";

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		json_t *list = list_of(items, (struct responses_page){.limit = 1,
								      .after = rows[i].id,
								      .rising = true});
		const char *next = json_string_value(json_object_get(list, "first_id"));

		if (!rows[i].next)
			ok(list && !next, "behind the last one is none");
		else if (!rows[i].next[0])
			ok(!list, "%s is no id", rows[i].id);
		else
			is_str(next, rows[i].next, "behind %s", rows[i].id);
		json_decref(list);
	}
}

/* Appends the ids of a list's items. Returns the last one, as text of the list; NULL: there are no more. */
static const char *add_ids(const json_t *list, struct buf *ids)
{
	const json_t *data = json_object_get(list, "data");

	for (size_t i = 0; i < json_array_size(data); i++)
		buf_printf(ids, " %s",
			   json_string_value(json_object_get(json_array_get(data, i), "id")));
	return json_is_true(json_object_get(list, "has_more"))
		       ? json_string_value(json_object_get(list, "last_id"))
		       : NULL;
}

/* Pages of any length and order, one behind the other, give all items. */
TEST(list_pages)
{
	enum { ITEMS = 150 };
	struct buf items, up, down;

	buf_init(&items, 1 << 16);
	buf_init(&up, 1 << 16);
	buf_init(&down, 1 << 16);
	for (int i = 0; i < ITEMS; i++) {
		buf_printf(&items, "%s{'role':'user','content':'%d'%s%d%s}",
			   !i	   ? ""
			   : i % 7 ? ","
				   : "|",
			   i, i % 3 ? ",'no':'" : ",'id':'own_", i, "'");
		buf_printf(&up, i % 3 ? " item_%d" : " own_%d", i);
		buf_printf(&down, (ITEMS - 1 - i) % 3 ? " item_%d" : " own_%d", ITEMS - 1 - i);
	}
	for (int rising = 0; rising < 2; rising++)
		for (uint64_t limit = 1; limit <= RESPONSES_PAGE_MAX; limit += limit < 8 ? 1 : 46) {
			struct responses_page page = {.limit = limit, .rising = rising};
			json_t *list, *last = NULL;
			struct buf ids;

			buf_init(&ids, 1 << 16);
			do {
				list = list_of(buf_str(&items), page);
				check(list &&
				      json_array_size(json_object_get(list, "data")) <= limit);
				page.after = add_ids(list, &ids);
				json_decref(last);
				last = list;
			} while (page.after);
			json_decref(last);
			check(!strcmp(buf_str(&ids), buf_str(rising ? &up : &down)));
			buf_release(&ids);
		}
	ok_all("pages of all lengths have all items once");
	buf_release(&items);
	buf_release(&up);
	buf_release(&down);
}

static bool stop(void *arg)
{
	return ++*(int *)arg > 1;
}

/* A long conversation is read with a pace. */
TEST(list_pace)
{
	int asked = 0;
	const struct pace pace = {stop, &asked};
	struct responses_page page = {.limit = 1};
	struct response_text text;
	struct buf items, out;

	buf_init(&items, 1 << 24);
	buf_init(&out, 1 << 16);
	for (int i = 0; i < 10000; i++)
		buf_puts(&items, quoted(i ? ",{'role':'user','content':'some words'}"
					  : "{'role':'user','content':'some words'}"));
	text = (struct response_text){buf_str(&items), items.len};
	is_int(responses_list(&text, 1, &page, &pace, &out, &err), -ECANCELED, "it may end");
	is_int(asked, 2, "soon");
	buf_release(&items);
	buf_release(&out);
}

int main(void)
{
	limits.recall = recall;
	limits.recall_arg = &earlier;
	return run_parse_tests();
}
