/* A choice's text, reasoning and log-probabilities, compared with its raw tokens. */
#include "daemon/request/choice.h"

#include <stdlib.h>

#include "protocol/tokenizer/tokenizer.h"
#include "tests/model_text.h"
#include "tests/random.h"
#include "tests/tap.h"

static struct tokenizer *tokenizer;
static const int32_t start_token = 1, end_token = 2, think_end = 4;

/* The results of a choice, added up over its pieces. */
struct sum {
	struct buf content, reasoning, tokens;
	struct openai_calls calls;
	struct ids ids;
	size_t n_reported, n_reasoning;
	char stop[16];	    /* the stop string that ended the choice; "": none did */
	int32_t stop_token; /* as in struct choice */
	bool covered; /* the reported tokens never had more bytes than the content and 3 for each of them */
};

static void sum_init(struct sum *s)
{
	*s = (struct sum){.covered = true};
	buf_init(&s->content, 1 << 20);
	buf_init(&s->reasoning, 1 << 20);
	buf_init(&s->tokens, 1 << 20);
	openai_calls_init(&s->calls, 1 << 20);
}

static void sum_release(struct sum *s)
{
	buf_release(&s->content);
	buf_release(&s->reasoning);
	buf_release(&s->tokens);
	openai_calls_release(&s->calls);
	ids_release(&s->ids);
}

static void sum_add(struct sum *s, struct choice *c)
{
	const char *text = buf_str(&c->calls.text);
	struct openai_token token;

	for (size_t i = 0; i < c->calls.n; text += c->calls.v[i++].len) {
		const struct openai_call_piece *p = &c->calls.v[i];

		if (p->begins)
			openai_calls_begin(&s->calls, text, p->len);
		else
			openai_calls_add(&s->calls, text, p->len);
		check(p->len && p->call == s->calls.n_begun - 1);
	}
	buf_append(&s->content, buf_str(&c->content), c->content.len);
	buf_append(&s->reasoning, buf_str(&c->reasoning), c->reasoning.len);
	for (size_t at = 0; openai_tokens_next(&c->ready, &at, &token); s->n_reported++) {
		size_t len;
		const char *bytes = tokenizer_bytes(tokenizer, token.draw.token, &len);

		buf_append(&s->tokens, bytes, len - token.cut);
	}
	s->covered &= s->tokens.len <= s->content.len + 3 * s->n_reported;
	check(ids_append(&s->ids, c->token_ids.v, c->token_ids.len) == 0);
}

/* Runs tokens through a choice; a stream takes the pieces as they come. `finish` comes with the last token. *ret_last:
 * what the last choice_push returned. Returns how many tokens were pushed. */
static size_t run(const struct choice_config *config, const int32_t *ids, size_t n,
		  enum finish_reason finish, bool stream, struct sum *ret, const char **ret_finish,
		  int *ret_last)
{
	struct choice c;
	size_t i;

	*ret_last = 0;
	sum_init(ret);
	check(choice_init(&c, config) == 0);
	for (i = 0; i < n && !c.finish; i++) {
		struct draw_result draw = {.token = ids[i], .logprob = -1};

		*ret_last = choice_push(&c, &draw, i + 1 == n ? finish : FINISH_NONE);
		check(*ret_last >= 0);
		if (stream && (c.content.len || c.calls.n || c.ready.n)) {
			sum_add(ret, &c);
			choice_clear(&c);
		}
	}
	sum_add(ret, &c);
	*ret_finish = c.finish;
	ret->n_reasoning = c.n_reasoning;
	snprintf(ret->stop, sizeof(ret->stop), "%s", c.stop ? c.stop : "");
	ret->stop_token = c.stop_token;
	check(c.n_drawn == i);
	choice_release(&c);
	return i;
}

static void encode(const char *text, struct ids *out)
{
	out->len = 0;
	check(tokenizer_encode(tokenizer, text, strlen(text), true, NULL, out) == 0);
}

TEST(plain)
{
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .logprobs = true,
				       .token_ids = true};
	struct ids ids = {0};
	struct sum s;
	const char *finish;
	int last;

	encode("A violin has four strings: \xf0\x9f\x8e\xbb!", &ids);
	check(ids_push(&ids, end_token) == 0);
	run(&config, ids.v, ids.len, FINISH_STOP, true, &s, &finish, &last);
	is_str(buf_str(&s.content), "A violin has four strings: \xf0\x9f\x8e\xbb!", "content");
	is_str(buf_str(&s.tokens), buf_str(&s.content), "the reported tokens are the content");
	is_str(finish, "stop", "an end token stops");
	is_int(last, 0, "which the engine knows");
	ok(s.ids.len == ids.len && s.ids.v[s.ids.len - 1] == end_token,
	   "the ids have the end token");
	sum_release(&s);
	run(&config, ids.v, 3, FINISH_LENGTH, false, &s, &finish, &last);
	is_str(finish, "length", "length");
	is_str(buf_str(&s.tokens), buf_str(&s.content), "the reported tokens are the content");
	sum_release(&s);
	ids.v[2] = start_token;
	run(&config, ids.v, ids.len, FINISH_STOP, true, &s, &finish, &last);
	ok(!strstr(buf_str(&s.content), "<|") && s.n_reported == ids.len - 2,
	   "a special token inside is neither text nor reported");
	ok(s.ids.len == ids.len && s.ids.v[2] == start_token, "but is among the ids");
	is_str(buf_str(&s.tokens), buf_str(&s.content), "the others are the content");
	sum_release(&s);
	ids_release(&ids);
}

TEST(reasoning)
{
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .thinking = true,
				       .logprobs = true};
	struct ids ids = {0};
	struct sum s;
	const char *finish;
	int last;

	encode("Let me think.\n</think>\n\nIt is a bow.", &ids);
	for (int stream = 0; stream < 2; stream++) {
		run(&config, ids.v, ids.len, FINISH_LENGTH, stream, &s, &finish, &last);
		is_str(buf_str(&s.content), "It is a bow.", "content behind </think>");
		is_str(buf_str(&s.reasoning), "Let me think.\n", "reasoning before it");
		ok(s.n_reasoning > 3 && ids.v[s.n_reasoning - 1] == think_end,
		   "its tokens are counted, the tag with them");
		is_str(buf_str(&s.tokens), "It is a bow.",
		       "only tokens of the content are reported");
		sum_release(&s);
	}
	config.thinking = false;
	run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
	is_str(buf_str(&s.tokens), buf_str(&s.content), "a stray tag takes nothing from the rest");
	ok(!strstr(buf_str(&s.content), "think>"), "and shows nowhere");
	sum_release(&s);
	config.reasoning = false;
	run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
	is_str(buf_str(&s.content), "Let me think.\n</think>\n\nIt is a bow.",
	       "completions keep tags");
	is_str(buf_str(&s.tokens), buf_str(&s.content), "and report them");
	sum_release(&s);
	ids_release(&ids);
}

TEST(stop)
{
	const char *strings[] = {" strings", "zzz"};
	struct stops *stops = stops_new(strings, 2);
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .logprobs = true,
				       .stops = stops};
	struct ids ids = {0};
	struct sum s;
	const char *finish;
	int last;
	size_t n;

	encode("It has four strings and a bow", &ids);
	n = run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
	is_str(buf_str(&s.content), "It has four", "text ends before the stop string");
	is_str(buf_str(&s.tokens), "It has four", "so do the reported tokens");
	is_str(finish, "stop", "finish reason");
	is_int(last, 1, "the engine has to be told");
	ok(n < ids.len, "and nothing more was taken");
	ok(!strcmp(s.stop, " strings") && s.stop_token < 0, "the string is known");
	sum_release(&s);
	/* The stop string begins inside a token: " strings" without its space. */
	strings[0] = "trings";
	stops_free(stops);
	config.stops = stops = stops_new(strings, 2);
	run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
	is_str(buf_str(&s.content), "It has four s", "text ends inside a token");
	is_str(buf_str(&s.tokens), "It has four s", "which is reported in part");
	stops_free(stops);
	sum_release(&s);
	/* The last token is the first byte of a character of three. It becomes U+FFFD, which is the stop string, when
	 * no other byte follows. */
	strings[0] = "\xef\xbf\xbd";
	config.stops = stops = stops_new(strings, 1);
	for (int end = FINISH_STOP; end <= FINISH_LENGTH; end++) {
		ids.len = 0;
		encode("bow", &ids);
		check(ids_push(&ids, tokenizer_id(tokenizer, "\xe2")) == 0);
		if (end == FINISH_STOP)
			check(ids_push(&ids, end_token) == 0);
		run(&config, ids.v, ids.len, (enum finish_reason)end, true, &s, &finish, &last);
		is_str(finish, "stop", "a stop string that broken bytes complete");
		is_str(buf_str(&s.content), "bow", "ends the text");
		is_str(buf_str(&s.tokens), "bow", "and the reported tokens");
		is_int(last, 0, "the engine has ended the choice already");
		sum_release(&s);
	}
	stops_free(stops);
	ids_release(&ids);
}

/* The text that a stop string or a stop token ends may include it. */
TEST(include_stop)
{
	const char *string = "trin";
	struct stops *stops = stops_new(&string, 1);
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .logprobs = true,
				       .include_stop = true,
				       .model_ends = &end_token,
				       .n_model_ends = 1,
				       .stops = stops};
	struct ids ids = {0};
	struct sum s;
	const char *finish;
	int last;

	encode("It has four strings and a bow", &ids);
	for (int stream = 0; stream < 2; stream++) {
		run(&config, ids.v, ids.len, FINISH_LENGTH, stream, &s, &finish, &last);
		is_str(buf_str(&s.content), "It has four strin", "the text ends with the string");
		is_str(buf_str(&s.tokens), "It has four strin", "so do the reported tokens");
		ok(last == 1 && !strcmp(finish, "stop") && !strcmp(s.stop, "trin"), "it ended it");
		sum_release(&s);
	}
	encode("It has a bow", &ids);
	for (int include = 0; include < 2; include++) {
		config.include_stop = include;
		run(&config, ids.v, ids.len, FINISH_STOP, true, &s, &finish, &last);
		is_str(buf_str(&s.content), include ? "It has a bow" : "It has a",
		       "a token of stop_token_ids");
		is_str(buf_str(&s.tokens), buf_str(&s.content), "is reported as far as it is text");
		ok(!last && !strcmp(finish, "stop") && s.stop_token == ids.v[ids.len - 1],
		   "it is known");
		sum_release(&s);
	}
	check(ids_push(&ids, end_token) == 0);
	run(&config, ids.v, ids.len, FINISH_STOP, true, &s, &finish, &last);
	is_str(buf_str(&s.content), "It has a bow", "an end token of the model has no text");
	ok(!strcmp(finish, "stop") && s.stop_token < 0 && !s.stop[0], "and is no stop");
	sum_release(&s);
	config.n_model_ends = 0;
	run(&config, ids.v, ids.len, FINISH_STOP, true, &s, &finish, &last);
	is_int(s.stop_token, end_token, "unless the client alone has named it");
	sum_release(&s);
	run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
	ok(!strcmp(finish, "length") && s.stop_token < 0, "at the end of the room there is none");
	sum_release(&s);
	stops_free(stops);
	ids_release(&ids);
}

/* With every_token (for an echo) tokens without bytes, such as the end token, are reported, too. */
TEST(every_token)
{
	struct choice_config config = {.tokenizer = tokenizer,
				       .logprobs = true,
				       .every_token = true};
	struct ids ids = {0};

	encode("A bow", &ids);
	check(ids_push(&ids, start_token) == 0 && ids_push(&ids, end_token) == 0);
	for (int stream = 0; stream < 2; stream++) {
		struct openai_token token = {.cut = 1}, first = {.cut = 1};
		struct choice c;
		size_t n = 0;

		check(choice_init(&c, &config) == 0);
		for (size_t i = 0; i < ids.len; i++) {
			struct draw_result draw = {.token = ids.v[i], .logprob = -1};

			if (stream) {
				n += c.ready.n;
				choice_clear(&c);
			}
			check(choice_push(&c, &draw,
					  i + 1 == ids.len ? FINISH_STOP : FINISH_NONE) == 0);
		}
		is_int((long long)(n + c.ready.n), (long long)ids.len, "each token is reported");
		for (size_t at = 0; openai_tokens_next(&c.ready, &at, &token);)
			if (first.cut)
				first = token;
		ok(token.draw.token == end_token && token.cut == strlen("<|im_end|>"),
		   "the end token without its text");
		ok(stream || (!first.cut && first.draw.token == ids.v[0]), "in their order");
		ok(choice_bytes(&c) == c.content.cap + c.piece.cap +
					       c.runs.cap * sizeof(*c.runs.v) + c.ready.bytes.cap +
					       c.cap * (sizeof(*c.tokens) + sizeof(*c.places)) &&
			   c.content.cap > c.content.len && c.ready.bytes.cap > c.ready.bytes.len,
		   "the memory of the results is counted, also where they have room for more");
		is_str(stream ? "A bow" : buf_str(&c.content), "A bow",
		       "and the text has none of them");
		choice_release(&c);
	}
	ids_release(&ids);
}

/* Returns the calls of a sum as one text: name(arguments)name(arguments). */
static const char *calls_of(const struct sum *s)
{
	static char out[1 << 12];
	const char *text = buf_str(&s->calls.text);
	size_t at = 0;

	out[0] = 0;
	for (size_t i = 0; i < s->calls.n; text += s->calls.v[i++].len) {
		bool begins = s->calls.v[i].begins,
		     last = i + 1 == s->calls.n || s->calls.v[i + 1].begins;

		at += (size_t)snprintf(out + at, sizeof(out) - at, "%.*s%s", (int)s->calls.v[i].len,
				       text, begins ? "(" : "");
		at += (size_t)snprintf(out + at, sizeof(out) - at, "%s", last ? ")" : "");
	}
	return out;
}

static const struct tool tools[] = {{"f", NULL, 0}, {"look_up", NULL, 0}};

/* An answer, and what becomes of it. */
static void answer(struct choice_config *config, const char *text, enum finish_reason end,
		   const char *content, const char *reasoning, const char *calls,
		   const char *finish)
{
	struct ids ids = {0};

	encode(text, &ids);
	if (end == FINISH_STOP)
		check(ids_push(&ids, end_token) == 0);
	config->reasoning = true;
	if (!config->format)
		config->format = tools_format_at(1);
	config->tools = (struct tool_list){tools, ARRAY_SIZE(tools)};
	for (int way = 0; way < 4; way++) {
		const char *why;
		struct sum s;
		int last;

		config->logprobs = way & 2;
		run(config, ids.v, ids.len, end, way & 1, &s, &why, &last);
		check(!strcmp(buf_str(&s.content), content));
		check(!strcmp(buf_str(&s.reasoning), reasoning));
		check(!strcmp(calls_of(&s), calls));
		check(!strcmp(why ? why : "none", finish));
		check(!config->logprobs || !strcmp(buf_str(&s.tokens), content));
		if (tap_quiet)
			printf("# content [%s] reasoning [%s] calls [%s] finish %s\n",
			       buf_str(&s.content), buf_str(&s.reasoning), calls_of(&s), why);
		sum_release(&s);
	}
	ids_release(&ids);
	ok_all("%.60s", strchr(text, '\n') ? calls : text);
}

#define CALL(arguments) "<tool_call>\n{\"name\": \"f\", \"arguments\": " arguments "}\n</tool_call>"

TEST(calls)
{
	const char *strings[] = {"STOP", "</tool_call>"};
	struct stops *stops = stops_new(strings, 2);
	struct choice_config config = {.tokenizer = tokenizer};

	answer(&config, CALL("{\"a\": 1}"), FINISH_STOP, "", "", "f({\"a\": 1})", "tool_calls");
	answer(&config, "I look.\n" CALL("{}") "\n" CALL("{}"), FINISH_STOP, "I look.", "",
	       "f({})f({})", "tool_calls");
	answer(&config, "no call", FINISH_STOP, "no call", "", "", "stop");
	answer(&config, CALL("{}") " and on", FINISH_LENGTH, " and on", "", "f({})", "length");
	answer(&config, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b", FINISH_LENGTH,
	       "", "", "f({\"a\": \"b)", "length");
	answer(&config, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b", FINISH_STOP,
	       "", "", "f({\"a\": \"b)", "stop");
	answer(&config, "a <tool_call>\n{\"name\": \"g\"} b", FINISH_STOP,
	       "a <tool_call>\n{\"name\": \"g\"} b", "", "", "stop");
	/* In reasoning, right behind it, and tags in arguments. */
	config.thinking = true;
	answer(&config, "I need it.\n" CALL("{}"), FINISH_STOP, "", "I need it.", "f({})",
	       "tool_calls");
	answer(&config, "Hm." CALL("{}") "More.</think>\n\nSo.", FINISH_STOP, "So.", "Hm.More.",
	       "f({})", "tool_calls");
	answer(&config, "Hm.\n</think>\n\n" CALL("{}"), FINISH_STOP, "", "Hm.\n", "f({})",
	       "tool_calls");
	answer(&config, "a <tool_call> tag\n</think>\n\nb", FINISH_STOP, "b", "a <tool_call> tag\n",
	       "", "stop");
	answer(&config, "Hm</think>" CALL("{\"t\": \"</think> <think>\"}") "x", FINISH_STOP, "x",
	       "Hm", "f({\"t\": \"</think> <think>\"})", "tool_calls");
	answer(&config, "Hm</thi" CALL("{}") "nk>", FINISH_STOP, "", "Hm</think>", "f({})",
	       "tool_calls");
	config.thinking = false;
	/* Stop strings count in calls. */
	config.stops = stops;
	answer(&config, CALL("{\"a\": \"xSTOPy\"}"), FINISH_STOP, "", "", "f({\"a\": \"x)", "stop");
	answer(&config, CALL("{}") CALL("{}"), FINISH_STOP, "", "", "f({})", "tool_calls");
	config.stops = NULL;
	/* The answer ends with its first call. */
	config.one_call = true;
	answer(&config, "So: " CALL("{\"a\": 1}") CALL("{}"), FINISH_LENGTH, "So: ", "",
	       "f({\"a\": 1})", "tool_calls");
	answer(&config, "no call", FINISH_LENGTH, "no call", "", "", "length");
	stops_free(stops);
}

/* Formats whose calls are at the start of the text have them behind the reasoning, too. */
TEST(behind_reasoning)
{
	struct choice_config config = {.tokenizer = tokenizer, .thinking = true};

	for (int constrained = 0; constrained < 2; constrained++) {
		config.constrained = constrained;
		config.format = tools_format_at(3);
		answer(&config, "Hm.</think>\n\n{\"name\": \"f\", \"parameters\": {}}", FINISH_STOP,
		       "", "Hm.", "f({})", "tool_calls");
		config.format = tools_format_at(4);
		answer(&config, "Hm [f()].</think>[f(a=1), f()]", FINISH_STOP, "", "Hm [f()].",
		       "f({\"a\": 1})f({})", "tool_calls");
		answer(&config, "Hm.</think>\n\nI say [f()]", FINISH_STOP, "I say [f()]", "Hm.", "",
		       "stop");
	}
	config.constrained = config.thinking = false;
	answer(&config, "So:<think>Hm.</think>[f()]", FINISH_STOP, "So:[f()]", "Hm.", "", "stop");
}

/* Special tokens that are marks of the format are text; others are not. */
TEST(marks)
{
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .logprobs = true,
				       .format = tools_format_at(1),
				       .tools = {tools, ARRAY_SIZE(tools)},
				       .marks = &start_token};
	struct ids ids = {0};
	const char *finish;
	struct sum s;
	int last;

	encode("a bow", &ids);
	check(ids_push(&ids, start_token) == 0);
	for (config.n_marks = 0; config.n_marks < 2; config.n_marks++) {
		run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
		is_str(buf_str(&s.content), config.n_marks ? "a bow<|im_start|>" : "a bow",
		       "%zu marks", config.n_marks);
		is_str(buf_str(&s.tokens), buf_str(&s.content), "and the reported tokens");
		sum_release(&s);
	}
	ids_release(&ids);
}

/* An object that never ends is held back, and then all of it is content. Its memory is counted meanwhile. The tokens are so many that the test would take
 * minutes if each byte went over all tokens that wait. */
TEST(held)
{
	enum { TOKENS = 300000 };
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .logprobs = true,
				       .format = tools_format_at(1),
				       .tools = {tools, ARRAY_SIZE(tools)}};
	struct openai_token token;
	struct ids ids = {0}, word = {0};
	size_t n = 0, len = 0, n_bytes;
	struct choice c;

	encode("<tool_call>{\"x\": \"", &ids);
	encode(" word", &word);
	while (ids.len < TOKENS)
		check(ids_append(&ids, word.v, word.len) == 0);
	check(choice_init(&c, &config) == 0);
	for (size_t i = 0; i < ids.len; i++) {
		struct draw_result draw = {.token = ids.v[i], .logprob = -1};

		check(choice_push(&c, &draw, i + 1 == ids.len ? FINISH_LENGTH : FINISH_NONE) == 0);
		check(i + 1 == ids.len || (!c.content.len && !c.ready.n));
		check(choice_bytes(&c) >= len + i * sizeof(*c.tokens));
		tokenizer_bytes(tokenizer, ids.v[i], &n_bytes);
		len += n_bytes;
	}
	for (size_t at = 0; openai_tokens_next(&c.ready, &at, &token); n++)
		check(token.draw.token == ids.v[n] && !token.cut);
	ok(c.content.len == len && n == ids.len, "%zu tokens that were held back are content", n);
	choice_release(&c);
	ids_release(&ids);
	ids_release(&word);
}

/* The engine thread is told that a choice has ended with its call, and nothing behind it counts. */
TEST(one_call)
{
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .format = tools_format_at(1),
				       .tools = {tools, ARRAY_SIZE(tools)},
				       .one_call = true};
	struct ids ids = {0};
	const char *finish;
	struct sum s;
	size_t n;
	int last;

	encode(CALL("{}") CALL("{}"), &ids);
	n = run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
	is_int(last, 1, "the engine has to be told");
	ok(n < ids.len / 2 + 1, "and %zu of %zu tokens were taken", n, ids.len);
	sum_release(&s);
	ids_release(&ids);
}

/* Pieces of answers that all formats have. */
static const char *const common[] = {"\n",	  " ",	      "look_up",    "\"a\": \"",
				     "caf\u00e9", "\\",	      "\\n",	    "\\ud83d\\ude00",
				     "\"",	  "}",	      "}}",	    ", ",
				     "<think>",	  "</think>", "Some text.", "\xf0\x9f\x99\x82",
				     "<",	  "1",	      "]"};

/* What the answers of a format are made of: a whole call, another one, and pieces of calls. */
static const struct {
	const char *name;
	const char *const whole[2], *const pieces[8];
} formats[] = {
	{"qwen_xml",
	 {"<tool_call>\n<function=f>\n</function>\n</tool_call>",
	  "<tool_call>\n<function=f>\n<parameter=a>\n\"b\" \\\n</parameter>\n</function>\n</tool_call>"},
	 {"<tool_call>\n<function=look_up>\n", "<function=f>", "<parameter=", "a>\n",
	  "</parameter>", "\n</function>", "</tool_call>", "</para"}},
	{"hermes",
	 {CALL("{}"), CALL("{\"a\": [1, null]}")},
	 {"<tool_call>", "</tool_call>", "{\"name\": \"f\", \"arguments\": {", "{\"name\": \"",
	  "</to", "\", \"arguments\": {", "{", "\\u00"}},
	{"mistral",
	 {"[TOOL_CALLS]f[ARGS]{}", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]"},
	 {"[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]{", "f", "[ARGS]", "{",
	  "[TOOL_CALLS][{\"name\": \"f\"", "[TOOL", "\\u00"}},
	{"llama_json",
	 {"{\"name\": \"f\", \"parameters\": {}}",
	  "{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"look_up\", \"parameters\": {}}"},
	 {"{\"name\": \"f\", \"parameters\": {", "{\"name\": \"", "f", "\", \"parameters\": {", "{",
	  "; ", "<|python_tag|>", "\\u00"}},
	{"pythonic",
	 {"[f()]", "[f(a=[1, None], b='x'), look_up()]"},
	 {"[f(a=", "[look_up(", "'", ")", "[", "f(", "=", "{'a': "}},
};

#define ONE(name) +1
_Static_assert(ARRAY_SIZE(formats) == 0 TOOLS_FORMATS(ONE), "a row for each format");

/* Writes the ids of a random answer with calls of a format. The pieces are encoded one by one, so that tokens end
 * anywhere. A quarter of the pieces are whole calls, and half of the answers begin with a call, because some formats
 * have calls nowhere else. */
static size_t random_ids(size_t format, int32_t *out, size_t max)
{
	const char *const *whole = formats[format].whole, *const *own = formats[format].pieces;
	size_t n = 0;

	for (size_t k = random_below(16), i = 0; i < k; i++) {
		struct ids ids = {0};
		size_t kind = i ? random_below(4) : random_below(2) ? 3 : random_below(3);

		if (kind == 3)
			encode(i || random_below(2) ? whole[random_below(2)] : own[0], &ids);
		else if (kind == 2)
			encode(own[random_below(ARRAY_SIZE(formats[0].pieces))], &ids);
		else
			encode(common[random_below(ARRAY_SIZE(common))], &ids);
		for (size_t j = 0; j < ids.len && n < max; j++)
			out[n++] = ids.v[j];
		ids_release(&ids);
	}
	return n ? 1 + random_below(n) : 0;
}

/* One random answer, as a whole and as a stream: the deltas, cut at the tokens, add up to the whole. Counts its calls,
 * and whether it ends with them. */
static void random_calls(size_t format, size_t *n_calls, size_t *n_finished)
{
	static const char *const words[] = {"\"", "}", "</tool_call>", "caf", "\n"};
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .thinking = random_below(2),
				       .logprobs = random_below(2),
				       .format = tools_format_at(format),
				       .tools = {tools, ARRAY_SIZE(tools)},
				       .one_call = !random_below(4)};
	const char *string = words[random_below(ARRAY_SIZE(words))], *finish[2];
	struct stops *stops = random_below(4) ? NULL : stops_new(&string, 1);
	enum finish_reason end = random_below(2) ? FINISH_STOP : FINISH_LENGTH;
	char calls[1 << 12];
	struct sum s[2];
	size_t n, taken[2];
	int32_t ids[400];
	int last[2];

	config.stops = stops;
	n = random_ids(format, ids, ARRAY_SIZE(ids) - 1);
	ids[n++] = end == FINISH_STOP ? end_token : 300;
	for (int stream = 0; stream < 2; stream++)
		taken[stream] = run(&config, ids, n, end, stream, &s[stream], &finish[stream],
				    &last[stream]);
	check(taken[0] == taken[1] && last[0] == last[1] && !strcmp(finish[0], finish[1]));
	check(!strcmp(buf_str(&s[0].content), buf_str(&s[1].content)));
	check(!strcmp(buf_str(&s[0].reasoning), buf_str(&s[1].reasoning)));
	check(!strcmp(buf_str(&s[0].tokens), buf_str(&s[1].tokens)));
	check(s[0].n_reported == s[1].n_reported && s[1].covered);
	snprintf(calls, sizeof(calls), "%s", calls_of(&s[0]));
	check(!strcmp(calls, calls_of(&s[1])));
	/* Where no token is partly in a call, and no bytes had to be replaced, the tokens are the content. */
	if (config.logprobs && !s[0].calls.n_begun &&
	    !strstr(buf_str(&s[0].content), "\xef\xbf\xbd"))
		check(!strcmp(buf_str(&s[0].tokens), buf_str(&s[0].content)));
	check(!config.one_call || s[0].calls.n_begun <= 1);
	*n_calls += s[0].calls.n_begun;
	*n_finished += !strcmp(finish[0], "tool_calls");
	sum_release(&s[0]);
	sum_release(&s[1]);
	stops_free(stops);
}

/* The deltas of random answers with calls, cut at random tokens, add up to the whole answer. */
TEST(random_calls)
{
	for (size_t format = 0; format < ARRAY_SIZE(formats); format++) {
		const char *name = formats[format].name;
		size_t n_calls = 0, n_finished = 0;

		is_str(tools_name(tools_format_at(format)), name, "format %zu", format);
		for (int turn = 0; turn < 10000; turn++)
			random_calls(format, &n_calls, &n_finished);
		ok_all("%s: 10000 random answers with calls: a stream adds up to the whole", name);
		ok(n_calls > 5000 && n_finished > 1000,
		   "%s: %zu calls, %zu answers that end with them", name, n_calls, n_finished);
	}
}

/* Any tokens, any stops: the pieces of a stream add up to the whole answer, and the reported tokens to the content. */
TEST(random)
{
	static const char *const words[] = {"e",       "a ",	   "th", "\n",
					    "<think>", "</think>", "<",	 " of"};

	for (int turn = 0; turn < 4000; turn++) {
		const char *strings[4], *finish[2];
		size_t n_strings = random_below(3);
		struct stops *stops;
		struct choice_config config = {
			.tokenizer = tokenizer,
			.reasoning = random_below(3) != 0,
			.logprobs = true,
			.token_ids = true,
		};
		enum finish_reason end = random_below(2) ? FINISH_STOP : FINISH_LENGTH;
		int32_t ids[40];
		size_t n = 1 + random_below(ARRAY_SIZE(ids)), taken[2];
		bool valid;
		struct sum s[2];
		int last[2];

		config.thinking = config.reasoning && random_below(2);
		for (size_t i = 0; i < n_strings; i++)
			strings[i] = words[random_below(ARRAY_SIZE(words))];
		config.stops = stops = stops_new(strings, n_strings);
		for (size_t i = 0; i < n; i++)
			ids[i] = random_below(8) ? (int32_t)random_below(600)
						 : 3 + (int32_t)random_below(2);
		for (int stream = 0; stream < 2; stream++)
			taken[stream] = run(&config, ids, n, end, stream, &s[stream],
					    &finish[stream], &last[stream]);
		check(taken[0] == taken[1] && last[0] == last[1] && !strcmp(finish[0], finish[1]));
		check(s[0].content.len == s[1].content.len &&
		      !memcmp(buf_str(&s[0].content), buf_str(&s[1].content), s[0].content.len));
		check(s[0].reasoning.len == s[1].reasoning.len);
		check(s[0].tokens.len == s[1].tokens.len &&
		      !memcmp(buf_str(&s[0].tokens), buf_str(&s[1].tokens), s[0].tokens.len));
		check(s[0].n_reported == s[1].n_reported && s[1].covered);
		check(s[0].ids.len == taken[0] && s[1].ids.len == taken[1]);
		check(!config.reasoning ||
		      !memmem(buf_str(&s[0].content), s[0].content.len, "<think>", 7));
		/* Where no bytes had to be replaced, the tokens are the content. */
		valid = !memmem(buf_str(&s[0].content), s[0].content.len, "\xef\xbf\xbd", 3);
		if (valid)
			check(s[0].tokens.len == s[0].content.len &&
			      !memcmp(buf_str(&s[0].tokens), buf_str(&s[0].content),
				      s[0].tokens.len));
		sum_release(&s[0]);
		sum_release(&s[1]);
		stops_free(stops);
	}
	ok_all("random tokens and stops: a stream adds up to the whole");
}

int main(int argc, char **argv)
{
	struct err e = {0};

	if (!ok(model_tokenizer(argc > 1 ? argv[1] : "models/lexis", &tokenizer, &e) == 0,
		"tokenizer: %s", e.text))
		return done();
	run_tests();
	ok_all("nothing else");
	tokenizer_free(tokenizer);
	return done();
}
