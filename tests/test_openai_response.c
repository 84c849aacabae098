/* protocol/openai: whole bodies, SSE chunks, log-probabilities and errors. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "protocol/openai/models.h"
#include "protocol/openai/writer.h"
#include "base/problem.h"
#include "tests/openai_pieces.h"
#include "tests/quoted.h"
#include "tests/small_vocabulary.h"

#define CHAT                                                                        \
	"{'id':'chatcmpl-1','object':'chat.completion.chunk','created':1700000000," \
	"'model':'lex\\'is','system_fingerprint':'tigon-1','choices':["
#define TEXT                                                                                 \
	"{'id':'cmpl-1','object':'text_completion','created':1700000000,'model':'lex\\'is'," \
	"'system_fingerprint':'tigon-1','choices':["

static const char *take(void)
{
	static char text[1 << 16];

	snprintf(text, sizeof(text), "%s", buf_str(&out));
	buf_reset(&out);
	return text;
}

static void wrote(const char *want, const char *what)
{
	is_str(take(), quoted(want), "%s", what);
}

static void stream_role(const struct openai_head *h, uint32_t index, const int32_t *ids, size_t n)
{
	const struct ids prompt = {(int32_t *)(uintptr_t)ids, n, n};
	const struct openai_delta d = {.index = index};
	struct openai_output o;

	openai_chunks(&o, h, &d, true, &prompt);
	write_out(&o, NULL);
}

/* piece: a piece of a choice's text. scored: a piece that has its tokens, too. */
static struct openai_delta piece(const char *content)
{
	return (struct openai_delta){.content = content, .content_len = strlen(content)};
}

static struct openai_delta scored(const char *content, const struct openai_token *tokens, size_t n,
				  struct openai_cursor *cursor)
{
	struct openai_delta d = piece(content);

	d.tokens = list(tokens, n);
	d.cursor = cursor;
	return d;
}

/* Sets the best tokens of a draw. */
static void best(struct draw_result *d, uint32_t n, const int32_t *ids, const float *logprobs)
{
	d->n_top = n;
	memcpy(d->top_ids, ids, n * sizeof(*ids));
	memcpy(d->top_logprobs, logprobs, n * sizeof(*logprobs));
}

TEST(chat_stream)
{
	struct openai_head h = head(true);
	struct openai_delta d = {.index = 1, .content = "h\xc3\xa9\"\n", .content_len = 5};
	struct openai_usage u = {7, 3, 2, 1};
	const int32_t prompt[] = {4, 5}, ids[] = {1, 2};

	stream_role(&h, 1, NULL, 0);
	wrote("data: " CHAT "{'index':1,'delta':{'role':'assistant','content':'','refusal':null}"
	      ",'logprobs':null,'finish_reason':null}]}\n\n",
	      "role chunk");
	stream_delta(&h, &d);
	wrote("data: " CHAT "{'index':1,'delta':{'content':'h\xc3\xa9\\'\\n'},'logprobs':null,"
	      "'finish_reason':null}]}\n\n",
	      "content chunk");
	d = (struct openai_delta){.index = 0, .finish_reason = "stop"};
	stream_delta(&h, &d);
	wrote("data: " CHAT
	      "{'index':0,'delta':{},'logprobs':null,'finish_reason':'stop','stop_reason':null}]}\n\n",
	      "finish chunk");
	d.stop = "a\"b";
	stream_delta(&h, &d);
	wrote("data: " CHAT
	      "{'index':0,'delta':{},'logprobs':null,'finish_reason':'stop','stop_reason':'a\\'b'}]}\n\n",
	      "a stop string");
	d = (struct openai_delta){.finish_reason = "stop", .stop_token = &ids[1]};
	stream_delta(&h, &d);
	wrote("data: " CHAT
	      "{'index':0,'delta':{},'logprobs':null,'finish_reason':'stop','stop_reason':2}]}\n\n",
	      "a stop token");
	d = (struct openai_delta){.index = 2};
	stream_delta(&h, &d);
	wrote("", "an empty piece writes nothing");
	openai_stream_end(&h, &u, &out);
	openai_stream_comment(&out);
	wrote("data: [DONE]\n\n: keep-alive\n\n",
	      "the end, without usage unless it was asked for, and a comment");

	h.include_usage = h.return_token_ids = true;
	h.fingerprint = NULL;
#define CHAT_NULL                                                                         \
	"data: {'id':'chatcmpl-1','object':'chat.completion.chunk','created':1700000000," \
	"'model':'lex\\'is','system_fingerprint':null,'choices':["
	stream_role(&h, 0, prompt, 2);
	wrote(CHAT_NULL
	      "{'index':0,'delta':{'role':'assistant','content':'','refusal':null}"
	      ",'logprobs':null,'finish_reason':null}],'usage':null,'prompt_token_ids':[4,5]}\n\n",
	      "role chunk with prompt ids and usage to come");
	d = (struct openai_delta){.content = "x",
				  .content_len = 1,
				  .reasoning = "r",
				  .reasoning_len = 1,
				  .token_ids = ids,
				  .n_token_ids = 2,
				  .finish_reason = "length"};
	stream_delta(&h, &d);
	wrote(CHAT_NULL
	      "{'index':0,'delta':{'reasoning_content':'r','content':'x'},'logprobs':null,"
	      "'finish_reason':null,'token_ids':[1,2]}],'usage':null}\n\n" CHAT_NULL
	      "{'index':0,'delta':{},'logprobs':null,'finish_reason':'length','stop_reason':null,'token_ids':[]}],"
	      "'usage':null}\n\n",
	      "a last piece is two chunks");
	d = (struct openai_delta){.token_ids = ids, .n_token_ids = 2};
	stream_delta(&h, &d);
	wrote(CHAT_NULL "{'index':0,'delta':{'content':''},'logprobs':null,'finish_reason':null,"
			"'token_ids':[1,2]}],'usage':null}\n\n",
	      "ids without text");
	d.finish_reason = "stop";
	stream_delta(&h, &d);
	wrote(CHAT_NULL
	      "{'index':0,'delta':{},'logprobs':null,'finish_reason':'stop','stop_reason':null,'token_ids':[1,2]}],"
	      "'usage':null}\n\n",
	      "ids that ride in the finish chunk");
	openai_stream_end(&h, &u, &out);
	wrote(CHAT_NULL "],'usage':{'prompt_tokens':7,'completion_tokens':3,'total_tokens':10,"
			"'prompt_tokens_details':{'cached_tokens':2},'completion_tokens_details':"
			"{'reasoning_tokens':1}}}\n\ndata: [DONE]\n\n",
	      "usage chunk");
	h.return_token_ids = false;
	h.so_far = &u;
	d = (struct openai_delta){.content = "x", .content_len = 1};
	stream_delta(&h, &d);
	wrote(CHAT_NULL "{'index':0,'delta':{'content':'x'},'logprobs':null,'finish_reason':null}],"
			"'usage':{'prompt_tokens':7,'completion_tokens':3,'total_tokens':10,"
			"'prompt_tokens_details':{'cached_tokens':2},'completion_tokens_details':"
			"{'reasoning_tokens':1}}}\n\n",
	      "a chunk with the usage so far");
}

/* A list of two calls, the second of which has no arguments yet. */
static void two_calls(struct openai_calls *c)
{
	openai_calls_init(c, 1 << 16);
	openai_calls_begin(c, "f", 1);
	openai_calls_add(c, "{\"a\": ", 6);
	openai_calls_add(c, "\"\xc3\xa9\"}", 5);
	openai_calls_begin(c, "g", 1);
}

TEST(call_lists)
{
	char a[CALL_ID_MAX], b[CALL_ID_MAX];
	struct openai_calls c;

	two_calls(&c);
	is_int((long long)c.n, 3, "arguments of a call are one piece");
	is_str(buf_str(&c.text), "f{\"a\": \"\xc3\xa9\"}g", "with one text");
	ok(c.v[0].begins && !c.v[1].begins && c.v[1].len == 11 && c.v[1].call == 0 &&
		   c.v[2].begins && c.v[2].call == 1,
	   "names and arguments");
	ok(openai_calls_bytes(&c) >= c.text.len + 3 * sizeof(*c.v), "memory");
	openai_calls_clear(&c);
	openai_calls_add(&c, "{}", 2);
	ok(c.n == 1 && !c.v[0].begins && c.v[0].call == 1, "a cleared list goes on with its call");
	openai_calls_release(&c);
	openai_call_id("call_", "chatcmpl-1", 0, 0, false, a);
	openai_call_id("call_", "chatcmpl-1", 0, 0, false, b);
	ok(!strcmp(a, b) && strlen(a) == 29 && !strncmp(a, "call_", 5), "an id: %s", a);
	for (uint32_t i = 1; i < 8; i++) {
		openai_call_id("call_", i & 1 ? "chatcmpl-2" : "chatcmpl-1", i >> 1 & 1, i >> 2,
			       false, b);
		check(strcmp(a, b) != 0);
	}
	ok_all("other answers, choices and calls have other ids");
	openai_call_id("call_", "chatcmpl-1", 0, 0, true, a);
	ok(strlen(a) == 9 &&
		   strspn(a, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == 9,
	   "a brief id: %s", a);
}

/* Takes what was written, with "ID" in the place of each call's id. */
static const char *take_without_ids(const struct openai_head *h)
{
	static char text[1 << 16];
	char id[CALL_ID_MAX];

	snprintf(text, sizeof(text), "%s", take());
	for (uint32_t k = 0; k < 2; k++) {
		openai_call_id("call_", h->id, 0, k, h->brief_call_ids, id);
		for (char *at; (at = strstr(text, id));) {
			memmove(at + 2, at + strlen(id), strlen(at + strlen(id)) + 1);
			memcpy(at, "ID", 2);
		}
	}
	return text;
}

TEST(call_chunks)
{
#define CHUNK(delta, finish)                                                                   \
	"data: " CHAT "{'index':0,'delta':{" delta "},'logprobs':null,'finish_reason':" finish \
	"}]}\n\n"
#define BEGIN(index, name)                                                                       \
	"'tool_calls':[{'index':" index ",'id':'ID','type':'function','function':{'name':'" name \
	"','arguments':''}}]"
#define ARGUMENTS                                                                                \
	CHUNK("'tool_calls':[{'index':0,'function':{'arguments':'{\\'a\\': \\'\xc3\xa9\\'}'}}]", \
	      "null")
	struct openai_head h = head(true);
	struct openai_calls c;
	struct openai_delta d = {.calls = &c};
	const int32_t ids[] = {1, 2};
	struct openai_output o;

	two_calls(&c);
	stream_delta(&h, &d);
	is_str(take_without_ids(&h),
	       quoted(CHUNK(BEGIN("0", "f"), "null") ARGUMENTS CHUNK(BEGIN("1", "g"), "null")),
	       "a chunk for each piece");
	openai_chunks(&o, &h, &d, true, NULL);
	write_out(&o, NULL);
	is_str(take_without_ids(&h),
	       quoted(CHUNK("'role':'assistant','content':null,'refusal':null," BEGIN("0", "f"),
			    "null") ARGUMENTS CHUNK(BEGIN("1", "g"), "null")),
	       "the first call rides in the first chunk");
	d.content = "x";
	d.content_len = 1;
	d.finish_reason = "tool_calls";
	openai_chunks(&o, &h, &d, true, NULL);
	write_out(&o, NULL);
	is_str(take_without_ids(&h),
	       quoted(CHUNK("'role':'assistant','content':'','refusal':null", "null")
			      CHUNK("'content':'x'", "null") CHUNK(BEGIN("0", "f"), "null")
				      ARGUMENTS CHUNK(BEGIN("1", "g"), "null")
					      CHUNK("", "'tool_calls','stop_reason':null")),
	       "behind text it does not");
	openai_calls_clear(&c);
	openai_calls_begin(&c, "h", 1);
	h.return_token_ids = true;
	d = (struct openai_delta){.calls = &c, .token_ids = ids, .n_token_ids = 2};
	stream_delta(&h, &d);
	ok(strstr(take(),
		  quoted("]},'logprobs':null,'finish_reason':null,'token_ids':[1,2]}]}\n\n")),
	   "token ids ride with a call");
	openai_calls_release(&c);
}

TEST(completion_stream)
{
	struct openai_head h = head(false);
	struct openai_delta d = {.index = 3,
				 .content = "hi",
				 .content_len = 2,
				 .finish_reason = "length"};
	const int32_t prompt[] = {4, 5}, ids[] = {1};

	stream_role(&h, 3, prompt, 2);
	wrote("", "completions have no role chunk");
	stream_delta(&h, &d);
	wrote("data: " TEXT
	      "{'index':3,'text':'hi','logprobs':null,'finish_reason':null}]}\n\ndata: " TEXT
	      "{'index':3,'text':'','logprobs':null,'finish_reason':'length','stop_reason':null}]}\n\n",
	      "a last piece is two chunks");
	h.return_token_ids = true;
	stream_role(&h, 3, prompt, 2);
	wrote("data: " TEXT
	      "{'index':3,'text':'','logprobs':null,'finish_reason':null,'token_ids':[],"
	      "'prompt_token_ids':[4,5]}],'prompt_token_ids':[4,5]}\n\n",
	      "except for the prompt's ids");
	d.token_ids = ids;
	d.n_token_ids = 1;
	d.finish_reason = NULL;
	stream_delta(&h, &d);
	wrote("data: " TEXT
	      "{'index':3,'text':'hi','logprobs':null,'finish_reason':null,'token_ids':[1]}]}\n\n",
	      "token ids");
}

#define USAGE                                                                 \
	"'usage':{'prompt_tokens':7,'completion_tokens':3,'total_tokens':10," \
	"'prompt_tokens_details':{'cached_tokens':0},'completion_tokens_details':{'reasoning_tokens':0}}"

TEST(bodies)
{
	struct openai_head h = head(true);
	struct openai_usage u = {7, 3, 0, 0};
	int32_t first[] = {1, 2}, second[] = {3};
	const struct ids prompts[] = {{first, 2, 2}, {second, 1, 1}};
	const int32_t drawn[] = {9, 8};
	struct openai_calls calls;
	const char *text;
	struct openai_choice c[4] = {
		{{.index = 0, .content = "x", .content_len = 1, .finish_reason = "stop"}},
		{{.index = 1, .reasoning = "r", .reasoning_len = 1, .finish_reason = "length"}},
	};

	body_of(&h, c, 2, NULL, 1, &u);
	wrote("{'id':'chatcmpl-1','object':'chat.completion','created':1700000000,"
	      "'model':'lex\\'is','system_fingerprint':'tigon-1','choices':[{'index':0,"
	      "'message':{'role':'assistant','content':'x','refusal':null},'logprobs':null,"
	      "'finish_reason':'stop','stop_reason':null},{'index':1,'message':{'role':'assistant','content':'',"
	      "'refusal':null,'reasoning_content':'r'},'logprobs':null,'finish_reason':'length','stop_reason':null}]," USAGE
	      "}",
	      "chat body of two choices");
	two_calls(&calls);
	c[0].all.calls = c[1].all.calls = &calls;
	c[0].all.content_len = 0;
	h.brief_call_ids = true;
	body_of(&h, c, 2, NULL, 1, &u);
	text = take_without_ids(&h);
#define CALLS(f, g)                                                                           \
	"'tool_calls':[{'id':" f ",'type':'function','function':{'name':'f','arguments':"     \
	"'{\\'a\\': \\'\xc3\xa9\\'}'}},{'id':" g ",'type':'function','function':{'name':'g'," \
	"'arguments':''}}]},'logprobs':null,"
	ok(strstr(text, quoted("'message':{'role':'assistant','content':null,'refusal':null," CALLS(
				"'ID'", "'ID'"))),
	   "a message of calls: %s", text);
	ok(strstr(text,
		  quoted("'content':null,'refusal':null,'reasoning_content':'r','tool_calls':[{'id':'")),
	   "behind reasoning");
	openai_calls_release(&calls);
	c[0].all.calls = c[1].all.calls = NULL;
	c[0].all.content_len = 1;
	h.return_token_ids = true;
	c[0].all.token_ids = drawn;
	c[0].all.n_token_ids = 2;
	body_of(&h, c, 1, prompts, 1, &u);
	wrote("{'id':'chatcmpl-1','object':'chat.completion','created':1700000000,"
	      "'model':'lex\\'is','system_fingerprint':'tigon-1','choices':[{'index':0,"
	      "'message':{'role':'assistant','content':'x','refusal':null},'logprobs':null,"
	      "'finish_reason':'stop','stop_reason':null,'token_ids':[9,8]}]," USAGE
	      ",'prompt_token_ids':[1,2]}",
	      "chat body with ids");
	h = head(false);
	h.return_token_ids = true;
	for (uint32_t i = 0; i < 4; i++)
		c[i] = (struct openai_choice){
			{.index = i, .content = "y", .content_len = 1, .finish_reason = "stop"}};
	body_of(&h, c, 4, prompts, 2, &u);
#define CHOICE(i, ids)                                                                                                 \
	"{'index':" #i                                                                                                 \
	",'text':'y','logprobs':null,'finish_reason':'stop','stop_reason':null,'token_ids':[],'prompt_token_ids':" ids \
	"}"
	wrote(TEXT CHOICE(0, "[1,2]") "," CHOICE(1, "[1,2]") "," CHOICE(2, "[3]") "," CHOICE(
		      3, "[3]") "]," USAGE "}",
	      "completion body of two prompts with two choices each");
}

TEST(chat_logprobs)
{
	struct openai_head h = head(true);
	struct openai_token tokens[2] = {token(A, -0.5f), token(QUOTE, -INFINITY)};
	struct openai_cursor cursor = {.n_held = 0};
	struct openai_delta d;

	h.logprobs = true;
	h.n_logprobs = 2;
	best(&tokens[0].draw, 3, (int32_t[]){A, FF, BC}, (float[]){-0.5f, -1.25f, -2});
	tokens[1].cut = 2;
	d = scored("a\"", tokens, 2, &cursor);
	stream_delta(&h, &d);
	wrote("data: " CHAT
	      "{'index':0,'delta':{'content':'a\\''},'logprobs':{'content':[{'token':'a',"
	      "'logprob':-0.5,'bytes':[97],'top_logprobs':[{'token':'a','logprob':-0.5,"
	      "'bytes':[97]},{'token':'\xef\xbf\xbd','logprob':-1.25,'bytes':[255]}]},"
	      "{'token':'\\'','logprob':-9999.0,'bytes':[34],'top_logprobs':[]}],'refusal':null},"
	      "'finish_reason':null}]}\n\n",
	      "chat: best tokens, a cut token, no infinities");
	d = piece("b");
	stream_delta(&h, &d);
	wrote("data: " CHAT
	      "{'index':0,'delta':{'content':'b'},'logprobs':{'content':[],'refusal':null},"
	      "'finish_reason':null}]}\n\n",
	      "text whose token is not complete");
	d = (struct openai_delta){.reasoning = "b", .reasoning_len = 1};
	stream_delta(&h, &d);
	wrote("data: " CHAT "{'index':0,'delta':{'reasoning_content':'b'},'logprobs':null,"
	      "'finish_reason':null}]}\n\n",
	      "reasoning has none");
}

/* Takes a chat body. Writes the tokens of its first choice's log-probabilities into `text`: of each token its text,
 * "|", its bytes in hexadecimal, and a blank. */
static void join(const char *json, char *text, size_t max)
{
	json_t *root = json_loads(json, 0, NULL), *content;
	struct buf b;

	content =
		json_object_get(json_object_get(json_array_get(json_object_get(root, "choices"), 0),
						"logprobs"),
				"content");
	buf_init(&b, max);
	check(json_is_array(content));
	for (size_t i = 0; i < json_array_size(content); i++) {
		const json_t *one = json_array_get(content, i),
			     *bytes = json_object_get(one, "bytes");

		buf_puts(&b, json_string_value(json_object_get(one, "token")));
		buf_putc(&b, '|');
		for (size_t k = 0; k < json_array_size(bytes); k++)
			buf_printf(&b, "%02x",
				   (unsigned)json_integer_value(json_array_get(bytes, k)));
		buf_putc(&b, ' ');
	}
	snprintf(text, max, "%s", buf_str(&b));
	buf_release(&b);
	json_decref(root);
}

TEST(split_characters)
{
	struct openai_head h = head(true);
	struct openai_usage u = {1, 1, 0, 0};
	/* é in two tokens, the second of which begins a €; the rest of the €; a 🙂 in three; a byte that is never valid;
	 * and half an é. */
	struct openai_token tokens[] = {token(C3, -1),	 token(A9E2, -1), token(X82AC, -1),
					token(F09F, -1), token(X99, -1),  token(X82, -1),
					token(FF, -1),	 token(C3, -1)};
	struct openai_choice c = {{.content = "", .finish_reason = "length"}};
	struct openai_cursor cursor = {.n_held = 0};
	struct openai_delta d;
	char text[256];

	h.logprobs = true;
	h.n_logprobs = 1;
	best(&tokens[0].draw, 1, (int32_t[]){C3}, (float[]){0});
	best(&tokens[1].draw, 1, (int32_t[]){A9}, (float[]){0});
	c.all.tokens = list(tokens, ARRAY_SIZE(tokens));
	d = scored("", tokens, 1, &cursor);
	body_of(&h, &c, 1, NULL, 1, &u);
	join(take(), text, sizeof(text));
	is_str(text,
	       "|c3 \xc3\xa9|a9e2 \xe2\x82\xac|82ac |f09f |99 \xf0\x9f\x99\x82|82 \xef\xbf\xbd|ff "
	       "\xef\xbf\xbd|c3 ",
	       "a character belongs to the token that completes it, bytes to their own");
	stream_delta(&h, &d);
	ok(strstr(take(),
		  quoted("{'token':'','logprob':-1.0,'bytes':[195],'top_logprobs':[{'token':'',"
			 "'logprob':0.0,'bytes':[195]}]}")),
	   "the drawn token reads the same among the best");
	d.tokens = list(tokens + 1, 1);
	stream_delta(&h, &d);
	ok(strstr(take(),
		  quoted("{'token':'\xc3\xa9','logprob':-1.0,'bytes':[169,226],"
			 "'top_logprobs':[{'token':'\xc3\xa9','logprob':0.0,'bytes':[169]}]}")),
	   "another one is read from where it would stand");
	d.tokens = list(tokens + 2, 1);
	d.finish_reason = "stop";
	stream_delta(&h, &d);
	ok(strstr(take(), quoted("'token':'\xe2\x82\xac'")),
	   "a character that began two pieces ago");
}

TEST(completion_logprobs)
{
	struct openai_head h = head(false);
	struct openai_token tokens[] = {token(DAY, -0.25f), token(C3, -1), token(A9, -1.5f),
					token(LINE, -2)};
	struct openai_cursor cursor = {.n_held = 0};
	struct openai_delta d;

	h.logprobs = true;
	h.n_logprobs = 3;
	best(&tokens[0].draw, 3, (int32_t[]){BC, FF, A9}, (float[]){-0.125f, -3, -4});
	d = scored("\xe6\x97\xa5x\xc3\xa9", tokens, 3, &cursor);
	stream_delta(&h, &d);
	wrote("data: " TEXT
	      "{'index':0,'text':'\xe6\x97\xa5x\xc3\xa9','logprobs':{'tokens':['\xe6\x97\xa5x','',"
	      "'\xc3\xa9'],'token_logprobs':[-0.25,-1.0,-1.5],'top_logprobs':[{' bc':-0.125,"
	      "'\xef\xbf\xbd':-3.0,'\xe6\x97\xa5x':-0.25},{'':-1.0},{'\xc3\xa9':-1.5}],"
	      "'text_offset':[0,2,2]},'finish_reason':null}]}\n\n",
	      "completions: four lists; equal texts once, the drawn token always");
	d.tokens = list(tokens + 3, 1);
	d.content = "\xe2\x80\xa8";
	d.content_len = 3;
	stream_delta(&h, &d);
	wrote("data: " TEXT
	      "{'index':0,'text':'\xe2\x80\xa8','logprobs':{'tokens':['\xe2\x80\xa8'],"
	      "'token_logprobs':[-2.0],'top_logprobs':[{'\xe2\x80\xa8':-2.0}],'text_offset':[3]},"
	      "'finish_reason':null}]}\n\n",
	      "offsets count characters and go on");
}

/* Tokens by their ids. The bytes, and the offsets in the text, are as without. */
TEST(tokens_as_ids)
{
	struct openai_token tokens[] = {token(BC, -0.25f), token(C3, -1)};
	char want[512];

	best(&tokens[0].draw, 2, (int32_t[]){BC, FF}, (float[]){-0.25f, -3});
	for (int chat = 0; chat < 2; chat++) {
		struct openai_head h = head(chat);
		struct openai_cursor cursor = {.n_held = 0};
		struct openai_delta d = scored(" bc", tokens, 2, &cursor);

		h.logprobs = h.tokens_as_ids = true;
		h.n_logprobs = 2;
		stream_delta(&h, &d);
		if (chat)
			snprintf(
				want, sizeof(want),
				"'content':[{'token':'token_id:%d','logprob':-0.25,'bytes':[32,98,99],"
				"'top_logprobs':[{'token':'token_id:%d','logprob':-0.25,'bytes':[32,98,"
				"99]},{'token':'token_id:%d','logprob':-3.0,'bytes':[255]}]},{'token':"
				"'token_id:%d','logprob':-1.0,'bytes':[195],'top_logprobs':[]}]",
				BC, BC, FF, C3);
		else
			snprintf(
				want, sizeof(want),
				"'tokens':['token_id:%d','token_id:%d'],'token_logprobs':[-0.25,-1.0],"
				"'top_logprobs':[{'token_id:%d':-0.25,'token_id:%d':-3.0},{'token_id:%d':"
				"-1.0}],'text_offset':[0,3]}",
				BC, C3, BC, FF, C3);
		ok(strstr(take(), quoted(want)), "%s", chat ? "chat" : "completions");
	}
}

/* An echoed prompt comes first. Its first token has no log-probability. */
TEST(echo)
{
	struct openai_head h = head(false);
	struct openai_token tokens[] = {token(END, 0), token(BC, -1), token(C3, -1.5f),
					token(A9, -2), token(END, -3)};
	struct openai_cursor cursor = {.n_held = 0};
	struct openai_delta d = piece("");

	h.logprobs = true;
	h.n_logprobs = 1;
	tokens[0].first = true;
	tokens[0].cut = 10;
	best(&tokens[1].draw, 1, (int32_t[]){A}, (float[]){-0.5f});
	tokens[2].last = true;
	tokens[4].cut = 10;
	d.echo = " bc\xc3";
	d.echo_len = 4;
	d.echoed = list(tokens, 3);
	d.cursor = &cursor;
	stream_delta(&h, &d);
	wrote("data: " TEXT
	      "{'index':0,'text':' bc\xef\xbf\xbd','logprobs':{'tokens':['',' bc','\xef\xbf\xbd'],"
	      "'token_logprobs':[null,-1.0,-1.5],'top_logprobs':[null,{'a':-0.5,' bc':-1.0},"
	      "{'\xef\xbf\xbd':-1.5}],'text_offset':[0,0,3]},'finish_reason':null}]}\n\n",
	      "an echo: null, a special token without text, half a character that nothing completes");
	d = (struct openai_delta){.content = "\xef\xbf\xbd",
				  .content_len = 3,
				  .tokens = list(tokens + 3, 2),
				  .cursor = &cursor,
				  .finish_reason = "stop"};
	stream_delta(&h, &d);
	ok(strstr(take(),
		  quoted("'tokens':['\xef\xbf\xbd',''],'token_logprobs':[-2.0,-3.0],"
			 "'top_logprobs':[{'\xef\xbf\xbd':-2.0},{'':-3.0}],'text_offset':[4,5]}")),
	   "what is drawn begins anew behind it");
	d.echo = " bc\xc3";
	d.echo_len = 4;
	d.echoed = list(tokens, 3);
	cursor = (struct openai_cursor){0};
	stream_delta(&h, &d);
	ok(strstr(take(),
		  quoted("'text':' bc\xef\xbf\xbd\xef\xbf\xbd','logprobs':{'tokens':['',' bc',"
			 "'\xef\xbf\xbd','\xef\xbf\xbd',''],'token_logprobs':[null,-1.0,-1.5,-2.0,"
			 "-3.0],")),
	   "the two in one piece are one list");
}

TEST(prompt_logprobs)
{
	static const char want[] =
		"'prompt_logprobs':[null,{'1':{'logprob':-1.0,'rank':7,'decoded_token':' bc'},"
		"'0':{'logprob':-0.5,'rank':1,'decoded_token':'a'},'2':{'logprob':-0.75,'rank':2,"
		"'decoded_token':'\xef\xbf\xbd'}},{'0':{'logprob':0.0,'rank':1,"
		"'decoded_token':'a'},'1':{'logprob':-9.0,'rank':2,'decoded_token':' bc'}}]";
	struct openai_token prompt[3] = {
		{.first = true},
		{.draw = {.token = BC, .logprob = -1, .rank = 7}},
		{.draw = {.token = A, .logprob = 0, .rank = 1}},
	};
	struct openai_choice c = {
		.all = {.content = "x", .content_len = 1, .finish_reason = "stop"}};
	struct openai_usage u = {0};

	best(&prompt[1].draw, 3, (int32_t[]){A, C3, A9}, (float[]){-0.5f, -0.75f, -0.875f});
	best(&prompt[2].draw, 3, (int32_t[]){A, BC, A9}, (float[]){0, -9, -10});
	c.prompt = list(prompt, 3);
	for (int chat = 0; chat < 2; chat++) {
		struct openai_head h = head(chat);
		json_t *body, *at;
		char *dump;

		body_of(&h, &c, 1, NULL, 1, &u);
		ok(!strstr(take(), "prompt_logprobs"), "nothing unless asked for");
		h.prompt_logprobs = true;
		h.n_prompt_logprobs = 2;
		body_of(&h, &c, 1, NULL, 1, &u);
		body = json_loads(buf_str(&out), 0, NULL);
		ok(strstr(take(), quoted(want)), "null, then the token and the best, each once");
		at = chat ? body : json_array_get(json_object_get(body, "choices"), 0);
		dump = json_dumps(json_object_get(at, "prompt_logprobs"), JSON_COMPACT);
		ok(dump && !strncmp(dump, "[null,", 6), "where vLLM has it");
		free(dump);
		json_decref(body);
	}
}

TEST(token_lists)
{
	struct openai_token in[3] = {token(BC, -1.5f), token(A, -2), token(END, -3)}, got;
	struct openai_tokens t;
	size_t at = 0, size = 0;

	in[0].first = true;
	in[0].cut = 3;
	in[1].draw.rank = 70000;
	in[1].draw.n_top = TOP_LOGPROBS_MAX;
	for (int32_t i = 0; i < TOP_LOGPROBS_MAX; i++) {
		in[1].draw.top_ids[i] = 1000 + i;
		in[1].draw.top_logprobs[i] = -(float)i;
	}
	in[2].last = true;
	openai_tokens_init(&t);
	for (int i = 0; i < 3; i++) {
		check(openai_tokens_add(&t, &in[i]) == 0);
		size += openai_tokens_size(in[i].draw.n_top);
	}
	ok(t.n == 3 && t.bytes.len == size && size == 3 * 20 + TOP_LOGPROBS_MAX * 8,
	   "a list of three tokens has %zu bytes", t.bytes.len);
	for (int i = 0; i < 3; i++) {
		memset(&got, 0, sizeof(got));
		check(openai_tokens_next(&t, &at, &got) && got.cut == in[i].cut &&
		      got.first == in[i].first && got.last == in[i].last &&
		      !memcmp(&got.draw, &in[i].draw, sizeof(got.draw)));
	}
	ok_all("and gives them back");
	ok(!openai_tokens_next(&t, &at, &got), "and no more");
	openai_tokens_clear(&t);
	at = 0;
	ok(!openai_tokens_next(&t, &at, &got) && !t.n, "cleared");
	openai_tokens_release(&t);
}

/* Every text and every list of this answer is longer than the slices in which response.c writes texts and ids. */
TEST(long_answers)
{
	enum { N = 3000, BYTES = 40000 };
	static struct openai_token tokens[N];
	static int32_t ids[N];
	static char text[BYTES];
	const struct ids prompt = {ids, N, N};
	struct openai_usage u = {0};

	for (size_t i = 0; i < N; i++) {
		tokens[i] = token((int32_t)(i % ARRAY_SIZE(vocabulary)), -(float)i);
		tokens[i].draw.rank = 1 + (uint32_t)i;
		best(&tokens[i].draw, 2, (int32_t[]){A, FF}, (float[]){-0.5f, -1.25f});
		ids[i] = (int32_t)i;
	}
	tokens[0].first = true;
	for (size_t i = 0; i < BYTES; i++)
		text[i] = "\n\xe6\x97\xa5\xff\"a\\"[i % 8];
	for (int chat = 0; chat < 2; chat++) {
		const struct openai_tokens *scores = list(tokens, N);
		struct openai_delta d = {.echo = chat ? NULL : text,
					 .echo_len = chat ? 0 : BYTES,
					 .content = text,
					 .content_len = BYTES,
					 .reasoning = chat ? text : NULL,
					 .reasoning_len = chat ? BYTES : 0,
					 .echoed = chat ? NULL : scores,
					 .tokens = list(tokens + 1, N - 1),
					 .token_ids = ids,
					 .n_token_ids = N,
					 .finish_reason = "stop"};
		const struct openai_choice c[2] = {{d, scores}, {d, scores}};
		struct openai_head h = head(chat);
		json_t *parsed;
		size_t n;

		h.logprobs = h.prompt_logprobs = h.return_token_ids = true;
		h.n_logprobs = h.n_prompt_logprobs = 2;
		body_of(&h, c, 2, &prompt, 1, &u);
		parsed = json_loadb(buf_str(&out), out.len, JSON_REJECT_DUPLICATES, NULL);
		n = json_array_size(json_object_get(
			chat ? parsed : json_array_get(json_object_get(parsed, "choices"), 1),
			"prompt_logprobs"));
		ok(parsed && n == N, "a body of %zu bytes is the same in pieces of any size",
		   out.len);
		json_decref(parsed);
		buf_reset(&out);
		stream_delta(&h, &d);
		ok(out.len > 400000, "and so are chunks of %zu bytes", out.len);
		buf_reset(&out);
	}
}

TEST(errors)
{
	static const struct {
		int code, status;
		const char *type, *name;
	} rows[] = {
		{EINVAL, 400, "invalid_request_error", NULL},
		{PROBLEM_UNSUPPORTED, 400, "invalid_request_error", "unsupported_parameter"},
		{PROBLEM_TEMPLATE, 400, "invalid_request_error", "chat_template_error"},
		{PROBLEM_CONTEXT_LENGTH, 400, "invalid_request_error", "context_length_exceeded"},
		{PROBLEM_API_KEY, 401, "authentication_error", "invalid_api_key"},
		{PROBLEM_CROSS_ORIGIN, 403, "invalid_request_error", "cross_origin"},
		{PROBLEM_UNKNOWN_REQUEST, 404, "invalid_request_error", "request_not_found"},
		{PROBLEM_ABORTED, 410, "invalid_request_error", "request_aborted"},
		{PROBLEM_HOST, 403, "invalid_request_error", "host_not_allowed"},
		{PROBLEM_UNKNOWN_MODEL, 404, "invalid_request_error", "model_not_found"},
		{PROBLEM_UNKNOWN_PATH, 404, "invalid_request_error", "unknown_url"},
		{PROBLEM_FRAMING, 400, "invalid_request_error", "bad_framing"},
		{PROBLEM_HEADERS_TOO_LARGE, 431, "invalid_request_error", "headers_too_large"},
		{PROBLEM_METHOD, 405, "invalid_request_error", "method_not_allowed"},
		{PROBLEM_REQUESTS_RUNNING, 409, "invalid_request_error", "requests_running"},
		{PROBLEM_BODY_TOO_LARGE, 413, "invalid_request_error", "request_too_large"},
		{PROBLEM_MEDIA_TYPE, 415, "invalid_request_error", "unsupported_media_type"},
		{PROBLEM_QUEUE_FULL, 429, "rate_limit_error", "queue_full"},
		{PROBLEM_CONSTRAINT_MEMORY, 429, "rate_limit_error", "constraint_memory_full"},
		{PROBLEM_BODY_MEMORY, 429, "rate_limit_error", "body_memory_full"},
		{PROBLEM_MODEL_LOADING, 503, "server_error", "model_loading"},
		{PROBLEM_UNREAD, 503, "server_error", "answers_unread"},
		{ESHUTDOWN, 503, "server_error", "shutting_down"},
		{EIO, 503, "server_error", "device_error"},
		{ENOMEM, 503, "server_error", "out_of_memory"},
		{PROBLEM_INTERNAL, 500, "server_error", "internal_error"},
		{EDOM, 500, "server_error", "internal_error"},
	};
	struct err e;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		json_t *body, *error, *code;

		err_param(&e, rows[i].code, "p[0]", "what \"happened\"\n");
		check(openai_error(&e, &out) == rows[i].status);
		check(openai_status(rows[i].code) == rows[i].status);
		check(openai_status(-rows[i].code) == rows[i].status);
		body = json_loads(take(), 0, NULL);
		error = json_object_get(body, "error");
		code = json_object_get(error, "code");
		check(!strcmp(json_string_value(json_object_get(error, "type")), rows[i].type));
		check(!strcmp(json_string_value(json_object_get(error, "param")), "p[0]"));
		check(!strcmp(json_string_value(json_object_get(error, "message")),
			      "what \"happened\"\n"));
		check(rows[i].name ? !strcmp(json_string_value(code), rows[i].name)
				   : json_is_null(code));
		json_decref(body);
	}
	ok_all("errors have their status, type and code");
	err_set(&e, EINVAL, "cut \xe2\x82");
	openai_stream_error(&e, &out);
	wrote("data: {\"error\":{\"message\":\"cut \xef\xbf\xbd\","
	      "\"type\":\"invalid_request_error\",\"param\":null,"
	      "\"code\":null}}\n\ndata: [DONE]\n\n",
	      "an error in a stream; a sentence cut inside a character stays UTF-8");
}

TEST(writer)
{
	static const struct {
		const char *in, *out;
	} strings[] = {
		{"", "\"\""},
		{"plain", "\"plain\""},
		{"\b\t\n\f\r\v\x01\x1f\x7f", "\"\\b\\t\\n\\f\\r\\u000b\\u0001\\u001f\x7f\""},
		{"\"\\/", "\"\\\"\\\\/\""},
		{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\xf4\x8f\xbf\xbf",
		 "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\xf4\x8f\xbf\xbf\""},
		/* two overlong forms, a surrogate, a value beyond the last code point, two characters without their
		 * end, and an end without its character */
		{"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},
		{"\xe0\x80\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
		{"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
		{"\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
		{"\xf0\x9f\x99z", "\"\xef\xbf\xbdz\""},
		{"\xe2\x82", "\"\xef\xbf\xbd\""},
		{"a\x80", "\"a\xef\xbf\xbd\""},
	};
	static const struct {
		float in;
		const char *out;
	} logprobs[] = {
		{-1, "-1.0"},	    {-0.1f, "-0.100000001"}, {0, "0.0"},
		{1e-7f, "0.0"},	    {NAN, "-9999.0"},	     {-INFINITY, "-9999.0"},
		{-1e6f, "-9999.0"}, {-9998.5f, "-9998.5"},   {-1e-10f, "-1.00000001e-10"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		writer_string(&out, strings[i].in, strlen(strings[i].in));
		is_str(take(), strings[i].out, "string %zu", i);
	}
	for (size_t i = 0; i < ARRAY_SIZE(logprobs); i++) {
		writer_logprob(&out, logprobs[i].in);
		is_str(take(), logprobs[i].out, "log-probability %zu", i);
	}
	for (uint32_t bits = 0x38d1b700; bits < 0x461c3c00; bits += 997) {
		char want[32];
		float x;
		int n;

		memcpy(&x, &bits, sizeof(x));
		n = snprintf(want, sizeof(want) - 2, "%.9g", -(double)x);
		if (!strpbrk(want, ".e"))
			snprintf(want + n, 3, ".0");
		writer_logprob(&out, -x);
		check(!strcmp(buf_str(&out), want));
		buf_reset(&out);
	}
	ok_all("numbers are those of printf");
	writer_ids(&out, (int32_t[]){0, -1, INT32_MAX, INT32_MIN}, 4);
	is_str(take(), "[0,-1,2147483647,-2147483648]", "ids");
	writer_string(&out, "a\0b", 3);
	is_str(take(), "\"a\\u0000b\"", "a zero byte");
}

TEST(small_bodies)
{
	const struct openai_model models[] = {
		{.id = "a\"", .root = "/x", .created = 5, .max_model_len = 64},
		{.id = "b", .created = 6, .max_model_len = 1}};

	openai_body_models(models, 2, &out);
	wrote("{'object':'list','data':[{'id':'a\\'','object':'model','created':5,"
	      "'owned_by':'tigon','root':'/x','max_model_len':64},{'id':'b','object':'model',"
	      "'created':6,'owned_by':'tigon','root':'b','max_model_len':1}]}",
	      "models");
	openai_body_health(&out);
	openai_body_version("1.2", &out);
	wrote("{'status':'ok'}{'version':'1.2'}", "health and version");
}

int main(void)
{
	buf_init(&out, 1 << 24);
	buf_init(&pieces, 1 << 24);
	run_tests();
	list(NULL, 0);
	buf_release(&out);
	buf_release(&pieces);
	return done();
}
