/* protocol/openai: bodies of /v1/chat/completions and /v1/completions are parsed into structs. */
#include "base/buf.h"
#include "tests/impatient.h"
#include "tests/openai_parse.h"

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
		   !r.return_token_ids && !r.tokens_as_ids && !r.thinking,
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
	messages("[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':"
		 "'{\\'a\\':[1E+400,-1e999,1e-999,\\'1e999\\']}'}}]}]",
		 "[{'role':'assistant','content':'','tool_calls':[{'type':'function','function':"
		 "{'name':'f','arguments':{'a':[1.7976931348623157e308,-1.7976931348623157e308,"
		 "0.0,'1e999']}}}]}]",
		 "a number that a model wrote beyond double stays a number");
	messages("[{'role':'tool','content':'3'},{'role':'tool','content':'4','tool_call_id':''}]",
		 "[{'role':'tool','content':'3'},{'role':'tool','content':'4','tool_call_id':''}]",
		 "a result without an id is taken");
	messages("[{'role':'assistant','tool_calls':[{'function':{'name':'f'}}]},{'role':'tool',"
		 "'content':'3','tool_call_id':'c'}]",
		 "[{'role':'assistant','content':'','tool_calls':[{'type':'function','function':"
		 "{'name':'f','arguments':{}}}]},{'role':'tool','content':'3','tool_call_id':'c'}]",
		 "and so is one that may be of a call without an id");
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
	limits.template_arguments = json_pack("{s:b,s:s,s:i}", "enable_thinking", 1,
					      "reasoning_effort", "low", "custom", 1);
	thinking("'seed':1", true, "the operator turns it on");
	ok(equals(r.context,
		  "{'enable_thinking':true,'reasoning_effort':'low','custom':1,'messages':"
		  "[{'role':'user','content':'hi'}],'tools':null,'documents':null,"
		  "'add_generation_prompt':true}"),
	   "with arguments of the operator");
	thinking(KWARGS "{'enable_thinking':null}", true, "null leaves it on");
	thinking(KWARGS "{'enable_thinking':false}", false, "chat_template_kwargs turns it off");
	thinking("'reasoning_effort':'none'", false, "so does reasoning_effort");
	is_str(json_string_value(json_object_get(r.context, "reasoning_effort")), "none",
	       "which overrides that of the operator");
	json_decref((json_t *)limits.template_arguments);
	limits.template_arguments = NULL;
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

static void arguments_of(const char *text, const char *sentence)
{
	json_t *arguments = NULL;

	memset(&err, 0, sizeof(err));
	is_int(openai_template_arguments(quoted(text), "--a", &arguments, &err),
	       sentence[0] ? -EINVAL : 0, "arguments of the operator: %s", text);
	is_str(err.text, sentence, "%s", sentence);
	json_decref(arguments);
}

TEST(template_arguments_of_the_operator)
{
	arguments_of("{'enable_thinking':true,'x':null}", "");
	arguments_of("{'x'}", "--a is no JSON of an object");
	arguments_of("'x'", "--a is no JSON of an object");
	arguments_of("[]", "--a is an array, but must be an object");
	arguments_of("{'enable_thinking':1}",
		     "--a.enable_thinking is 1, but must be true or false");
	arguments_of("{'tools':[]}",
		     "--a.tools cannot be set here: it is a parameter of the request");
}

TEST(tools)
{
#define ALLOWED(mode, name)                                                             \
	"{'type':'allowed_tools','allowed_tools':{" mode "'tools':[{'type':'function'," \
	"'function':{'name':'" name "'}}]}}"
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
	is_int(json_array_size(json_object_get(r.context, "tools")), 2, "keeps them in the prompt");
	ok(!r.tools.n, "but none may be called");
	takes(true, TOOLS ",'tool_choice':'none','response_format':{'type':'json_object'}",
	      "beside JSON");
	ok(r.no_calls && !r.tools.n, "there are no calls either");
	takes(true, TOOLS ",'tool_choice':" ALLOWED("'mode':'auto',", "g"), "one tool is allowed");
	is_int(json_array_size(json_object_get(r.context, "tools")), 2, "the prompt keeps both");
	ok(r.tools.n == 1 && !strcmp(r.tools.v[0].name, "g") && r.tool_choice == TOOL_CHOICE_AUTO,
	   "one may be called");
	takes(true, TOOLS ",'tool_choice':{'type':'allowed_tools','allowed_tools':{'tools':[]}}",
	      "no tool is allowed");
	ok(!r.tools.n && r.tool_choice == TOOL_CHOICE_NONE, "as with tool_choice none");
	takes(true, "'tools':[],'tool_choice':'auto'", "no tools");
	ok(json_is_null(json_object_get(r.context, "tools")) && !r.tools.n, "are none");
	limits.tools = tools_format_at(0);
	takes(true, TOOLS ",'parallel_tool_calls':false", "parallel_tool_calls false");
	limits.tools = NULL;
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
	is_int(parse_paced(openai_parse_chat, buf_str(&body), body.len, &pace), 0,
	       "with a pace that is asked");
	asked = (1 << 30) - left;
	left = asked - 1;
	is_int(parse_paced(openai_parse_chat, buf_str(&body), body.len, &pace), -ECANCELED,
	       "the last of %d questions", asked);
	ok(strstr(err.text, "tools"), "is asked while the tools are read: %s", err.text);
	buf_release(&body);
}

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
	{'C', "{'messages':[{'role':'user\\u0000'}]}", "messages[0].role", NULL},
	{'C', "{'messages':[{'role':'user'}],'reasoning_effort':'low\\u0000'}", "reasoning_effort",
	 NULL},
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
	{'C', "{'messages':[{'role':'tool','tool_call_id':'c'}]}", "messages[0].tool_call_id",
	 "messages[0].tool_call_id is \"c\", but must be the id of a tool call before it"},
	{'C',
	 "{'messages':[{'role':'tool','tool_call_id':'c'},{'role':'assistant','tool_calls':[{'id':'c','function':{'name':'f'}}]}]}",
	 "messages[0].tool_call_id", NULL},
	{'C',
	 "{'messages':[{'role':'assistant','tool_calls':[{'id':'c','function':{'name':'f'}}]},{'role':'tool','tool_call_id':'c\\u0000'}]}",
	 "messages[1].tool_call_id", NULL},
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
	 "messages[0].audio is not supported: answers are text", PROBLEM_UNSUPPORTED},
	{'C', "{'messages':[{'role':'assistant','function_call':{'name':'x'}}]}",
	 "messages[0].function_call", NULL, PROBLEM_UNSUPPORTED},

	{'c', "'model':1", "model", "model is 1, but must be a string"},
	{'c', "'stream':'yes'", "stream", NULL},
	{'c', "'stream_options':{}", "stream_options",
	 "stream_options is given, but only allowed when stream is true"},
	{'c', "'stream':false,'stream_options':{'include_usage':true}", "stream_options", NULL},
	{'c', "'stream':true,'stream_options':[]", "stream_options", NULL},
	{'c', "'stream':true,'stream_options':{'include_usage':1}", "stream_options.include_usage",
	 NULL},
	{'c', "'stream':true,'stream_options':{'continuous_usage_stats':1}",
	 "stream_options.continuous_usage_stats", NULL},
	{'c', "'return_token_ids':'x'", "return_token_ids", NULL},
	{'p', "'return_tokens_as_token_ids':1", "return_tokens_as_token_ids", NULL},
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
	{'c', "'tool_choice':{'type':'custom','custom':{'name':'x'}}", "tool_choice.type",
	 "tool_choice.type \"custom\" is not supported by this server, which has functions alone",
	 PROBLEM_UNSUPPORTED},
	{'c', "'tool_choice':{'type':'allowed_tools'}", "tool_choice.allowed_tools", NULL},
	{'c', "'tool_choice':{'type':'allowed_tools','allowed_tools':{}}",
	 "tool_choice.allowed_tools.tools", NULL},
	{'c', "'tool_choice':{'type':'allowed_tools','allowed_tools':{'mode':'none','tools':[]}}",
	 "tool_choice.allowed_tools.mode", NULL},
	{'c', "'tool_choice':{'type':'allowed_tools','allowed_tools':{'tools':['f']}}",
	 "tool_choice.allowed_tools.tools[0]", NULL},
	{'c', "'tool_choice':{'type':'allowed_tools','allowed_tools':{'tools':[{'function':{}}]}}",
	 "tool_choice.allowed_tools.tools[0].function.name", NULL},
	{'c', "'tool_choice':{'type':'allowed_tools','allowed_tools':{'tools':[{'type':'mcp'}]}}",
	 "tool_choice.allowed_tools.tools[0].type", NULL, PROBLEM_UNSUPPORTED},
	{'c',
	 "'tools':[{'function':{'name':'f'}}],'tool_choice':{'type':'allowed_tools',"
	 "'allowed_tools':{'tools':[{'function':{'name':'f'}},{'function':{'name':'g'}}]}}",
	 "tool_choice", "tool_choice names \"g\", which is none of the tools"},
	{'c',
	 "'tools':[{'function':{'name':'f'}}],'tool_choice':{'type':'allowed_tools',"
	 "'allowed_tools':{'mode':'required','tools':[]}}",
	 "tool_choice", "tool_choice demands a call, but there are no tools"},
	{'c', "'tools':[{'function':{'name':'f'}}],'parallel_tool_calls':false",
	 "parallel_tool_calls",
	 "parallel_tool_calls lets an answer end with its first call, but this server does not "
	 "know how the model writes tool calls",
	 PROBLEM_UNSUPPORTED},
	{'c', "'tool_choice':{'type':'function'}", "tool_choice.function", NULL},
	{'c', "'tool_choice':{'type':'function','function':{}}", "tool_choice.function.name", NULL},
	{'c', "'tool_choice':'sometimes'", "tool_choice",
	 "tool_choice is \"sometimes\", but must be \"none\", \"auto\", \"required\", a function "
	 "or allowed_tools"},
	{'c', "'tool_choice':5", "tool_choice", NULL},
	{'c', "'parallel_tool_calls':1", "parallel_tool_calls", NULL},
	{'c', "'function_call':'auto'", "function_call",
	 "function_call is not supported: tool_choice is the newer one", PROBLEM_UNSUPPORTED},
	{'p', "'suffix':'x','logprobs':1", "suffix",
	 "suffix is not supported: the models continue a text and do not fill in its middle",
	 PROBLEM_UNSUPPORTED},
	{'c', "'mirostat':1", "mirostat", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'web_search_options':{}", "web_search_options",
	 "web_search_options is not supported: the server has no tools of its own",
	 PROBLEM_UNSUPPORTED},
	{'c', "'xtc_probability':0.5", "xtc_probability", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'dry_multiplier':0.8", "dry_multiplier", NULL, PROBLEM_UNSUPPORTED},
	{'c', "'dynatemp_range':0.5", "dynatemp_range", NULL, PROBLEM_UNSUPPORTED},
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
	{'p', "'echo':1", "echo", NULL},

	/* A NUL does not end a word. */
	{'c', "'tool_choice':'auto\\u0000x'", "tool_choice",
	 "tool_choice is a string with a NUL, but must be \"none\", \"auto\", \"required\", a function "
	 "or allowed_tools"},
	{'c', "'tool_choice':'none\\u0000'", "tool_choice", NULL},
	{'c', "'tools':[{'function':{'name':'f'}}],'tool_choice':{'function':{'name':'f\\u0000'}}",
	 "tool_choice.function.name", NULL},
	{'c',
	 "'tools':[{'function':{'name':'f'}}],'tool_choice':{'type':'function\\u0000','function':{'name':'f'}}",
	 "tool_choice.type", NULL},
	{'c', "'tools':[{'type':'function\\u0000','function':{'name':'f'}}]", "tools[0].type",
	 NULL},
	{'c', "'response_format':{'type':'text\\u0000'}", "response_format.type", NULL},
	{'c', "'response_format':{'type':'json_object\\u0000'}", "response_format.type", NULL},
	{'c', "'modalities':['text\\u0000']", "modalities", NULL, PROBLEM_UNSUPPORTED},
	{'C', "{'messages':[{'role':'user','content':[{'type':'text\\u0000','text':'x'}]}]}",
	 "messages[0].content[0].type", NULL},
	{'C',
	 "{'messages':[{'role':'assistant','tool_calls':[{'type':'function\\u0000','function':{'name':'f'}}]}]}",
	 "messages[0].tool_calls[0].type", NULL},
	{'p', "'stream_options':{}", "stream_options", NULL},
};
/* clang-format on */

/* A chat that fits if it has at most so many messages. */
struct fit {
	const json_t *context;
	size_t most, n_calls;
};

static size_t n_messages(const json_t *context)
{
	return json_array_size(json_object_get(context, "messages"));
}

static int fits(void *arg, struct err *e)
{
	struct fit *f = arg;

	f->n_calls++;
	return n_messages(f->context) <= f->most ? 0 : err_set(e, PROBLEM_CONTEXT_LENGTH, "no");
}

/* A context with n messages: the user's and the assistant's in turns, or the assistant's alone behind the first. */
static json_t *long_context(size_t n, bool turns)
{
	json_t *context = json_object(), *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s}", "role",
						      i && (i % 2 || !turns) ? "assistant" : "user",
						      "content", ""));
	json_object_set_new(context, "messages", list);
	return context;
}

TEST(truncation)
{
	enum { N = 160001 };

	for (int turns = 0; turns < 2; turns++) {
		json_t *context = long_context(N, turns), *all;
		struct fit f = {.context = context};
		size_t most = 0;

		all = json_incref(json_object_get(context, "messages"));
		is_int(openai_truncate(context, fits, &f, &err), -PROBLEM_CONTEXT_LENGTH,
		       "a chat of which nothing fits");
		is_int((long long)f.n_calls, 2, "is tried with all messages and with the fewest");
		is_int((long long)n_messages(context), turns ? 1 : 2, "which are these");
		for (size_t limit = 2; limit <= N; limit = limit * 5 / 2) {
			f = (struct fit){.context = context, .most = limit};
			check(!json_object_set(context, "messages", all));
			check(!openai_truncate(context, fits, &f, &err));
			most = MAX(most, f.n_calls);
			/* A step more than needed leaves out an eighth, and a message for whole turns. */
			check(n_messages(context) <= limit &&
			      n_messages(context) + 3 >= limit - limit / 8);
			check(json_array_get(json_object_get(context, "messages"),
					     n_messages(context) - 1) ==
			      json_array_get(all, N - 1));
		}
		ok(most <= 10, "at most %zu tries find those that fit", most);
		f = (struct fit){.context = context, .most = N};
		check(!json_object_set(context, "messages", all));
		is_int(openai_truncate(context, fits, &f, &err), 0, "a chat that fits");
		ok(f.n_calls == 1 && n_messages(context) == N, "is tried once and keeps all");
		json_decref(all);
		json_decref(context);
	}
	ok_all("and no more than an eighth is left out in vain");
}

TEST(bad)
{
	check_bads(bads, ARRAY_SIZE(bads));
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

	parse_short_of_memory(openai_parse_chat, body, 50);
}

TEST(truncation_out_of_memory)
{
	json_t *context = long_context(50, true), *all;
	struct fit f = {.context = context, .most = 20};
	long n = 0;
	int ret;

	all = json_incref(json_object_get(context, "messages"));
	json_set_alloc_funcs(failing_malloc, free);
	do {
		check(!json_object_set(context, "messages", all));
		allocations_left = n++;
		ret = openai_truncate(context, fits, &f, &err);
		check(ret == 0 || ret == -ENOMEM);
	} while (ret < 0 && n < 10000);
	json_set_alloc_funcs(malloc, free);
	check(ret == 0 && n > 10 && n_messages(context) <= 20);
	ok_all("out of memory at each of %ld allocations", n - 1);
	json_decref(all);
	json_decref(context);
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
	is_int(parse_paced(openai_parse_completion, buf_str(&body), body.len, &pace), -ECANCELED,
	       "a body is given up at the sixth question");
	left = 1 << 30;
	used = arena.used;
	is_int(parse_paced(openai_parse_completion, buf_str(&body), body.len, &pace), 0,
	       "a patient caller gets all");
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
	return run_parse_tests();
}
