/* protocol/ollama: bodies of /api/chat and /api/generate are parsed like the chats that they stand for. */
#include "base/problem.h"
#include "protocol/ollama/errors.h"
#include "protocol/ollama/models.h"
#include "protocol/ollama/request.h"
#include "tests/request_parse.h"

/* Parses a body of /api/chat, or, if it has no messages, of /api/generate. */
static int parse(const char *body)
{
	return parse_as(strstr(body, "'messages'") ? ollama_parse_chat : ollama_parse_generate,
			body);
}

/* Parses a body of /api/chat that is valid but for `members`. */
static int parse_with(const char *members)
{
	char body[4096];

	snprintf(body, sizeof(body),
		 "{'model':'m','messages':[{'role':'user','content':'hi'}]%s%s}",
		 members[0] ? "," : "", members);
	return parse(body);
}

/* Whether the members of a body have the same context as those of a chat. */
static void same_chat(const char *members, const char *of_chat, const char *what)
{
	char body[8192];
	int got;

	snprintf(body, sizeof(body), "{'model':'m',%s}", members);
	got = parse(body);
	snprintf(body, sizeof(body), "{%s}", of_chat);
	if (!same_context(got, body, what))
		return;
	ok(r.thinking == as_chat.thinking && r.tools.n == as_chat.tools.n && !r.errand,
	   "%s: and the same settings", what);
}

#define HI "'messages':[{'role':'user','content':'hi'}]"

TEST(defaults)
{
	is_int(parse_with(""), 0, "a smallest request: %s", err.text);
	ok(r.stream && r.clamp && r.truncate && !strcmp(r.source, "messages") && r.n == 1 &&
		   !r.max_tokens && !r.thinking && !r.prefill && !r.n_stops && !r.grammar &&
		   !r.errand && !r.has_seed && !r.include_usage && !strcmp(r.model, "m"),
	   "streams; other settings are those of a chat");
	ok(r.sampling.temperature == 0.75f && r.sampling.top_k == 20 && !r.sampling.want_logprobs,
	   "sampling comes from the model's defaults");
	is_int(parse_with("'stream':false,'truncate':false,'keep_alive':'10m','n':7,"
			  "'options':null,'max_tokens':3,'cache_salt':'s','logprobs':true,"
			  "'top_logprobs':2"),
	       0, "more of it: %s", err.text);
	ok(!r.stream && !r.truncate && r.n == 1 && !r.max_tokens && r.cache_salt_len == 1 &&
		   r.sampling.want_logprobs && r.sampling.n_logprobs == 2,
	   "is taken, and what the API does not have is not");
	is_int(parse_with("'top_logprobs':2"), 0, "top_logprobs without logprobs");
	ok(!r.sampling.want_logprobs && !r.sampling.n_logprobs, "has no effect");
	is_int(parse_with("'top_logprobs':21"), -EINVAL, "but has a range");
	refused(EINVAL, "top_logprobs", "top_logprobs is 21");
	is_int(parse("{" HI "}"), -EINVAL, "without a model");
	refused(EINVAL, "model", "model is missing");
}

TEST(options)
{
	is_int(parse_with("'options':{'temperature':0.5,'top_p':0.25,'top_k':7,'min_p':0.125,"
			  "'seed':5,'stop':['a','b'],'presence_penalty':1,'frequency_penalty':-1,"
			  "'repeat_penalty':1.5,'num_predict':12,'num_ctx':4096,'num_gpu':99,"
			  "'repeat_last_n':64,'typical_p':1.0,'tfs_z':1,'mirostat':0,'x':[]}"),
	       0, "options: %s", err.text);
	ok(r.sampling.temperature == 0.5f && r.sampling.top_p == 0.25f && r.sampling.top_k == 7 &&
		   r.sampling.min_p == 0.125f && r.has_seed && r.sampling.seed == 5 &&
		   r.n_stops == 2 && !strcmp(r.stops[1], "b") && r.max_tokens == 12 &&
		   r.sampling.presence_penalty == 1 && r.sampling.frequency_penalty == -1 &&
		   r.sampling.repetition_penalty == 1.5f,
	   "say how tokens are drawn");
	is_int(parse_with("'options':{'stop':'x','num_predict':-1,'seed':-1}"), 0,
	       "one stop string, and numbers below 0: %s", err.text);
	ok(r.n_stops == 1 && !r.max_tokens && !r.has_seed && !r.prompt_only,
	   "which ask for nothing");
	is_int(parse_with("'options':{'num_predict':-2}"), 0, "num_predict -2");
	ok(!r.max_tokens, "fills the context");
	is_int(parse_with("'options':{'num_predict':0}"), 0, "num_predict 0");
	ok(!r.prompt_only && !r.max_tokens, "fills it as well");
	is_int(parse_with("'options':{'repeat_last_n':0,'repeat_penalty':1.5,"
			  "'presence_penalty':1}"),
	       0, "repeat_last_n 0");
	ok(r.sampling.repetition_penalty == 1 && r.sampling.presence_penalty == 0,
	   "turns penalties off");
}

TEST(messages)
{
	same_chat("'messages':[{'role':'System','content':'s'},{'role':'USER','content':'hi'}]",
		  "'messages':[{'role':'system','content':'s'},{'role':'user','content':'hi'}]",
		  "roles");
	same_chat(
		"'messages':[{'role':'user','content':'a','images':[]},{'role':'assistant','content':'',"
		"'thinking':'hm','tool_calls':[{'function':{'index':0,'name':'f','arguments':{'b':[1,"
		"null]}}},{'id':'c','function':{'name':'g','arguments':{}}}]},{'role':'tool',"
		"'content':'42','tool_name':'f'},{'role':'tool','content':'','tool_call_id':'c'},"
		"{'role':'assistant','content':'b','thinking':null},{'role':'user','content':'d'}]",
		"'messages':[{'role':'user','content':'a'},{'role':'assistant','content':'',"
		"'reasoning_content':'hm','tool_calls':[{'type':'function','function':{'name':'f',"
		"'arguments':'{\\'b\\':[1,null]}'}},{'id':'c','function':{'name':'g'}}]},"
		"{'role':'tool','name':'f','content':'42'},{'role':'tool','tool_call_id':'c',"
		"'content':''},{'role':'assistant','content':'b'},{'role':'user','content':'d'}]",
		"thinking, calls and their results");
	same_chat("'tools':[{'type':'function','function':{'name':'f','parameters':{'type':"
		  "'object'}}}]," HI,
		  "'tools':[{'type':'function','function':{'name':'f','parameters':{'type':"
		  "'object'}}}]," HI,
		  "tools");
}

TEST(prefill)
{
	is_int(parse("{'model':'m','messages':[{'role':'user','content':'a'},"
		     "{'role':'assistant','content':'{\\'b'}]}"),
	       0, "the answer's beginning: %s", err.text);
	ok(r.prefill && r.prefill_len == 3 && !strcmp(r.prefill, "{\"b"), "is the prompt's end");
	is_int((long long)json_array_size(json_object_get(r.context, "messages")), 1,
	       "and no message");
	is_int(parse("{'model':'m','think':true,'messages':[{'role':'user','content':'a'},"
		     "{'role':'assistant','content':'b'}]}"),
	       -EINVAL, "not with thinking");
	refused(EINVAL, "think", "thinking is on");
	is_int(parse("{'model':'m','messages':[{'role':'user','content':'a'},{'role':'assistant',"
		     "'content':'b','tool_calls':[{'function':{'name':'f','arguments':{}}}]}]}"),
	       0, "a last message with calls");
	ok(!r.prefill, "is a turn");
	is_int(parse("{'model':'m','messages':[{'role':'assistant','content':'b'}]}"), 0,
	       "a chat of one message");
	ok(!r.prefill, "has a turn");
}

TEST(thinking)
{
	same_chat("'think':true," HI, "'enable_thinking':true," HI, "true");
	same_chat("'think':false," HI, "'enable_thinking':false," HI, "false");
	same_chat("'think':null," HI, HI, "null");
	same_chat("'think':'max'," HI, "'reasoning_effort':'max'," HI, "a level");
	ok(r.thinking, "turns thinking on");
	same_chat("'think':true,'chat_template_kwargs':{'x':1}," HI,
		  "'enable_thinking':true,'chat_template_kwargs':{'x':1}," HI,
		  "arguments of the template");
}

TEST(formats)
{
	static const char *const bodies[] = {"'format':'json'",
					     "'format':{'type':'object','properties':{}}",
					     "'format':{}"};

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		is_int(parse_with(bodies[i]), 0, "%s: %s", bodies[i], err.text);
		ok(r.grammar && r.constraint && !strcmp(r.constraint, "format"), "has a grammar");
	}
	is_int(parse_with("'format':''"), 0, "an empty one");
	ok(!r.grammar, "asks for nothing");
}

TEST(generate)
{
	same_chat("'prompt':'hi','system':'s'",
		  "'messages':[{'role':'system','content':'s'},{'role':'user','content':'hi'}]",
		  "a prompt behind a system message");
	same_chat("'prompt':'hi','system':'','suffix':'','template':'','context':[],'images':null,"
		  "'think':true",
		  "'enable_thinking':true," HI, "and what asks for nothing");
	ok(r.stream && r.clamp && !r.truncate && !strcmp(r.source, "prompt"), "its settings");
	is_int(parse("{'model':'m','prompt':'<s>hi','raw':true,'stream':false,"
		     "'options':{'num_predict':3}}"),
	       0, "a raw prompt: %s", err.text);
	ok(!r.context && r.n_prompts == 1 && !strcmp(r.prompts[0].text, "<s>hi") &&
		   r.max_tokens == 3 && !r.stream && !r.echo && !r.thinking &&
		   !strcmp(r.source, "prompt"),
	   "has no template");
}

TEST(errands)
{
	static const struct {
		const char *body, *errand;
	} rows[] = {
		{"{'model':'m','messages':[]}", "load"},
		{"{'model':'m','messages':null,'keep_alive':'5m'}", "load"},
		{"{'model':'m','messages':[],'keep_alive':0}", "unload"},
		{"{'model':'m','messages':[],'keep_alive':-1}", "load"},
		{"{'model':'m','messages':[],'keep_alive':'0s'}", "unload"},
		{"{'model':'m'}", "load"},
		{"{'model':'m','prompt':'','keep_alive':'0'}", "unload"},
		{"{'model':'m','prompt':null,'keep_alive':'1h30m'}", "load"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		is_int(parse(rows[i].body), 0, "%s: %s", rows[i].body, err.text);
		is_str(r.errand, rows[i].errand, "asks for that");
		ok(!strcmp(r.model, "m") && !r.context && !r.n_prompts, "and for nothing else");
	}
}

TEST(bad)
{
	static const struct {
		const char *members, *param, *text;
		int code;
	} rows[] = {
		{"'stream':1", "stream", "must be", 0},
		{"'keep_alive':true", "keep_alive", "must be a number of seconds", 0},
		{"'keep_alive':'soon'", "keep_alive", "must be a number of seconds", 0},
		{"'truncate':'x'", "truncate", "must be", 0},
		{"'think':'none'", "think", "must be true, false", 0},
		{"'think':1", "think", "must be true, false", 0},
		{"'think':'low\\u0000'", "think", "must be true, false", 0},
		{"'format':'json\\u0000'", "format", "must be \"json\" or a JSON schema", 0},
		{"'format':'\\u0000'", "format", "must be \"json\" or a JSON schema", 0},
		{"'keep_alive':'5m\\u0000'", "keep_alive", "must be a number of seconds", 0},
		{"'format':'xml'", "format", "must be \"json\" or a JSON schema", 0},
		{"'format':{'type':'number','multipleOf':0.1}", "format",
		 "format: ", PROBLEM_UNSUPPORTED},
		{"'options':[]", "options", "must be an object", 0},
		{"'options':{'temperature':9}", "options.temperature", "options.temperature is 9",
		 0},
		{"'options':{'repeat_penalty':1000}", "options.repeat_penalty",
		 "options.repeat_penalty is 1000", 0},
		{"'options':{'num_predict':'x'}", "options.num_predict", "options.num_predict is",
		 0},
		{"'options':{'num_predict':-0.5}", "options.num_predict",
		 "options.num_predict is -0.5, but must be a whole number", 0},
		{"'options':{'seed':-1.5}", "options.seed",
		 "options.seed is -1.5, but must be a whole number", 0},
		{"'options':{'stop':['a','']}", "options.stop[1]", "options.stop[1] is", 0},
		{"'options':{'mirostat':1}", "options.mirostat", "is not supported",
		 PROBLEM_UNSUPPORTED},
		{"'options':{'typical_p':0.5}", "options.typical_p", "is not supported",
		 PROBLEM_UNSUPPORTED},
		{"'tools':{}", "tools", "must be an array", 0},
		{"'logprobs':3", "logprobs", "must be", 0},
	};
	static const struct {
		const char *body, *param, *text;
		int code;
	} bodies[] = {
		{"{'model':'','messages':[]}", "model", "model is missing", 0},
		{"{'model':5,'messages':[]}", "model", "must be a string", 0},
		{"{'model':'m','messages':5}", "messages", "must be an array", 0},
		{"{'model':'m','messages':[5]}", "messages[0]", "must be an object", 0},
		{"{'model':'m','messages':[{'role':'developer','content':'x'}]}",
		 "messages[0].role", "one of system, user, assistant and tool", 0},
		{"{'model':'m','messages':[{'role':'user\\u0000x','content':'x'}]}",
		 "messages[0].role", "one of system, user, assistant and tool", 0},
		{"{'model':'m','messages':[{'role':'user','content':5}]}", "messages[0].content",
		 "must be", 0},
		{"{'model':'m','messages':[{'role':'user','content':'x','images':['aa']}]}",
		 "messages[0].images", "reads text alone", PROBLEM_UNSUPPORTED},
		{"{'model':'m','messages':[{'role':'assistant','thinking':1}]}",
		 "messages[0].thinking", "must be a string", 0},
		{"{'model':'m','messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f',"
		 "'arguments':[]}}]}]}",
		 "messages[0].tool_calls[0].function.arguments", "must be", 0},
		{"{'model':'m','prompt':5}", "prompt", "must be a string", 0},
		{"{'model':'m','prompt':'x','system':[]}", "system", "must be a string", 0},
		{"{'model':'m','prompt':'x','suffix':'y'}", "suffix", "suffix is not supported",
		 PROBLEM_UNSUPPORTED},
		{"{'model':'m','prompt':'x','template':'y'}", "template", "is not supported",
		 PROBLEM_UNSUPPORTED},
		{"{'model':'m','prompt':'x','context':[1]}", "context", "is not supported",
		 PROBLEM_UNSUPPORTED},
		{"{'model':'m','prompt':'x','images':['aa']}", "images", "reads text alone",
		 PROBLEM_UNSUPPORTED},
		{"{'model':'m','prompt':'x','raw':true,'system':'y'}", "system",
		 "system and raw are both given", 0},
		{"[]", "", "object", 0},
		{"{", "", "JSON", 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		ok(parse_with(rows[i].members) < 0, "%s", rows[i].members);
		refused(rows[i].code ? rows[i].code : EINVAL, rows[i].param, rows[i].text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		ok(parse(bodies[i].body) < 0, "%s", bodies[i].body);
		refused(bodies[i].code ? bodies[i].code : EINVAL, bodies[i].param, bodies[i].text);
	}
}

TEST(show)
{
	static const struct {
		const char *body, *model;
	} rows[] = {{"{'model':'m'}", "m"},
		    {"{'name':'m','verbose':true}", "m"},
		    {"{'model':'m','name':'n'}", "m"}};
	const char *body, *model;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		body = quoted(rows[i].body);
		is_int(ollama_parse_show(body, strlen(body), NULL, &arena, &model, &err), 0, "%s",
		       rows[i].body);
		is_str(model, rows[i].model, "its model");
	}
	is_int(ollama_parse_show("{}", 2, NULL, &arena, &model, &err), -EINVAL, "no model");
	refused(EINVAL, "model", "model is missing");
}

/* Parses a body of /api/embed, or, if it has a prompt, of /api/embeddings. */
static int parse_vectors(const char *body)
{
	return parse_as(strstr(body, "'prompt'") ? ollama_parse_embeddings : ollama_parse_embed,
			body);
}

TEST(vectors)
{
	static const struct {
		const char *body, *param, *text;
	} bad[] = {
		{"{'input':'a'}", "model", "model is missing"},
		{"{'prompt':'a'}", "model", "model is missing"},
		{"{'model':'m','input':7}", "input", "input is 7"},
		{"{'model':'m','input':['a','']}", "input[1]", "input[1] is empty"},
		{"{'model':'m','input':['a',2]}", "input[1]", "input[1] is 2"},
		{"{'model':'m','prompt':['a']}", "prompt", "prompt is an array"},
		{"{'model':'m','input':'a','dimensions':65}", "dimensions", "from 0 to 64"},
		{"{'model':'m','input':'a','truncate':1}", "truncate", "truncate is 1"},
		{"{'model':'m','input':'a','keep_alive':'x'}", "keep_alive", "keep_alive is"},
		{"{'model':'m','prompt':'a','dimensions':false}", "dimensions", "from 0 to 64"},
	};

	ok(parse_vectors("{'model':'m:latest','input':['a','bc'],'options':{'num_ctx':9}}") == 0 &&
		   r.task == TASK_EMBED && r.n_prompts == 2 && !strcmp(r.prompts[1].text, "bc") &&
		   !strcmp(r.model, "m:latest") && r.embed.dimensions == 64 && !r.embed.base64 &&
		   r.embed.pooling == POOLING_LAST && r.keep_tokens == KEEP_FITTING && !r.errand,
	   "a list of texts, which are cut to the context");
	ok(parse_vectors("{'model':'m','input':'a','truncate':false,'dimensions':8,"
			 "'cache_prompt':false,'keep_alive':'5m'}") == 0 &&
		   r.n_prompts == 1 && r.embed.dimensions == 8 && !r.keep_tokens && !r.cache_prompt,
	   "a text that is not cut");
	ok(parse_vectors("{'model':'m','prompt':'a','dimensions':0}") == 0 && r.n_prompts == 1 &&
		   !strcmp(r.prompts[0].text, "a") && !strcmp(r.source, "prompt") &&
		   r.embed.dimensions == 64 && r.keep_tokens == KEEP_FITTING,
	   "the older body");
	ok(parse_vectors("{'model':'m'}") == 0 && !strcmp(r.errand, "load"), "no text");
	ok(parse_vectors("{'model':'m','input':[]}") == 0 && r.errand, "an empty list");
	ok(parse_vectors("{'model':'m','input':'','keep_alive':0}") == 0 &&
		   !strcmp(r.errand, "unload"),
	   "an empty text");
	ok(parse_vectors("{'model':'m','prompt':''}") == 0 && r.errand, "an empty prompt");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ok(parse_vectors(bad[i].body) == -EINVAL && !strcmp(err.param, bad[i].param) &&
			   strstr(err.text, bad[i].text),
		   "%s: %s in %s", bad[i].body, err.text, err.param);
}

TEST(names)
{
	ok(ollama_same_name("m", "m") && ollama_same_name("m:latest", "m") &&
		   ollama_same_name("m", "m:latest"),
	   "the tag latest says nothing");
	ok(!ollama_same_name("m:8b", "m") && !ollama_same_name("m", "n") &&
		   !ollama_same_name("mm", "m:latest") && !ollama_same_name("m:latest2", "m"),
	   "any other does");
}

TEST(out_of_memory)
{
	static const char *const bodies[] = {
		"{'model':'m','messages':[{'role':'user','content':'a'},{'role':'assistant','content':'',"
		"'thinking':'t','tool_calls':[{'function':{'name':'f','arguments':{'a':[1]}}}]},"
		"{'role':'tool','content':'r','tool_name':'f'},{'role':'assistant','content':'p'}],"
		"'tools':[{'type':'function','function':{'name':'f'}}],'think':false,"
		"'options':{'top_k':3,'stop':['a'],'num_predict':7},'logprobs':true,'top_logprobs':1}",
		"{'model':'m','prompt':'a','system':'s','format':'json','think':'low'}",
	};

	parse_short_of_memory(ollama_parse_chat, bodies[0], 30);
	parse_short_of_memory(ollama_parse_generate, bodies[1], 30);
}

TEST(pace)
{
	const char *body = quoted("{'model':'m'," HI "}");
	int left = 0;
	const struct pace pace = {impatient, &left};

	is_int(parse_paced(ollama_parse_chat, body, strlen(body), &pace), -ECANCELED,
	       "a body is given up");
}

TEST(errors)
{
	struct buf out;

	buf_init(&out, 1000);
	err_param(&err, PROBLEM_UNKNOWN_MODEL, "model", "model '\"' not found");
	is_int(ollama_error(&err, &out), 404, "the status of an unknown model");
	is_str(buf_str(&out), "{\"error\":\"model '\\\"' not found\"}", "its body");
	buf_release(&out);
}

int main(void)
{
	limits.defaults.want_logprobs = false;
	return run_parse_tests();
}
