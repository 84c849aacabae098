/* protocol/anthropic: the events of a stream add up to the whole message of the same answer, whatever it has and
 * wherever its tokens and the writing are cut. */
#include <jansson.h>
#include <stdlib.h>

#include "daemon/request/choice.h"
#include "protocol/anthropic/response.h"
#include "tests/model_text.h"
#include "tests/random.h"
#include "tests/tap.h"

static struct tokenizer *tokenizer;
static struct buf out, again;

static const struct tool tools[] = {{.name = "look_up"}, {.name = "n\"ow"}};
static const struct openai_usage usage = {.prompt_tokens = 100,
					  .completion_tokens = 7,
					  .cached_tokens = 64,
					  .reasoning_tokens = 3};

static struct openai_head head(struct openai_blocks *blocks)
{
	return (struct openai_head){.id = "msg_1",
				    .model = "lex\"is",
				    .shape = &anthropic_message,
				    .so_far = &usage,
				    .blocks = blocks};
}

/* ---- a client: what events add up to ---- */

struct client {
	json_t *message; /* NULL: no message_start yet */
	json_t *block;	 /* borrowed: the open block; NULL: none is open */
	struct buf json; /* the input of the open block */
	bool over;
};

static void append(json_t *block, const char *name, const json_t *more)
{
	struct buf joined;
	const json_t *had = json_object_get(block, name);

	buf_init(&joined, 1 << 24);
	buf_append(&joined, json_string_value(had), json_string_length(had));
	buf_append(&joined, json_string_value(more), json_string_length(more));
	json_object_set_new(block, name, json_stringn(buf_str(&joined), joined.len));
	buf_release(&joined);
}

static void take_delta(struct client *c, const json_t *delta)
{
	static const char *const types[][3] = {
		{"text_delta", "text", "text"},
		{"thinking_delta", "thinking", "thinking"},
		{"signature_delta", "thinking", "signature"},
		{"input_json_delta", "tool_use", "partial_json"},
	};
	const char *type = json_string_value(json_object_get(delta, "type"));
	const char *block = json_string_value(json_object_get(c->block, "type"));
	size_t i = 0;

	while (i < ARRAY_SIZE(types) && strcmp(type, types[i][0]) != 0)
		i++;
	check(i < ARRAY_SIZE(types) && block && !strcmp(block, types[i][1]));
	check(json_object_size(delta) == 2);
	if (i == 3)
		buf_puts(&c->json, json_string_value(json_object_get(delta, types[i][2])));
	else
		append(c->block, types[i][2], json_object_get(delta, types[i][2]));
}

static void stop_block(struct client *c)
{
	const char *type = json_string_value(json_object_get(c->block, "type"));

	if (type && !strcmp(type, "tool_use")) {
		json_t *input = json_loadb(c->json.data, c->json.len, 0, NULL);

		/* what a whole message has of a call that was cut */
		json_object_set_new(c->block, "input", input ? input : json_object());
	}
	buf_reset(&c->json);
	c->block = NULL;
}

static void take_event(struct client *c, const char *name, const json_t *data)
{
	json_t *content = json_object_get(c->message, "content");
	const json_t *index = json_object_get(data, "index");

	check(!c->over && !strcmp(name, json_string_value(json_object_get(data, "type"))));
	if (!strcmp(name, "message_start")) {
		check(!c->message);
		c->message = json_incref(json_object_get(data, "message"));
		return;
	}
	check(c->message);
	if (!strcmp(name, "content_block_start")) {
		check(!c->block && (size_t)json_integer_value(index) == json_array_size(content));
		c->block = json_object_get(data, "content_block");
		json_array_append(content, c->block);
	} else if (!strcmp(name, "content_block_delta")) {
		check((size_t)json_integer_value(index) + 1 == json_array_size(content));
		take_delta(c, json_object_get(data, "delta"));
	} else if (!strcmp(name, "content_block_stop")) {
		check(c->block &&
		      (size_t)json_integer_value(index) + 1 == json_array_size(content));
		stop_block(c);
	} else if (!strcmp(name, "message_delta")) {
		check(!c->block);
		json_object_update(c->message, json_object_get(data, "delta"));
		json_object_set(c->message, "usage", json_object_get(data, "usage"));
	} else {
		check(!strcmp(name, "message_stop"));
		c->over = true;
	}
}

/* Takes all events of a stream; returns the message, new. */
static json_t *add_up(const char *text)
{
	struct client c = {0};

	buf_init(&c.json, 1 << 24);
	while (*text) {
		const char *line = strstr(text, "\ndata: "), *end = strstr(text, "\n\n");
		char name[64];
		json_t *data;

		check(line && end && line < end && !strncmp(text, "event: ", 7));
		snprintf(name, sizeof(name), "%.*s", (int)(line - text - 7), text + 7);
		data = json_loadb(line + 7, (size_t)(end - line - 7),
				  JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
		check(data);
		take_event(&c, name, data);
		json_decref(data);
		text = end + 2;
	}
	check(c.over);
	buf_release(&c.json);
	return c.message;
}

/* ---- answers ---- */

/* Writes all of an output to `out`; checks that writing it again, cut at other places, gives the same. */
static void write_out(struct openai_output *o, struct openai_blocks *blocks)
{
	const struct openai_blocks before = *blocks;
	struct openai_output other = *o;
	struct openai_blocks behind;
	size_t from = out.len, enough = 0;

	check(openai_write(o, SIZE_MAX, &out));
	behind = *blocks;
	*blocks = before;
	buf_reset(&again);
	do
		enough = again.len + 1 + random_below(300);
	while (!openai_write(&other, enough, &again));
	check(again.len == out.len - from && !memcmp(buf_str(&again), out.data + from, again.len));
	check(blocks->n == behind.n && blocks->open == behind.open);
}

static struct openai_delta delta_of(const struct choice *c)
{
	return (struct openai_delta){.content = buf_str(&c->content),
				     .content_len = c->content.len,
				     .reasoning = buf_str(&c->reasoning),
				     .reasoning_len = c->reasoning.len,
				     .calls = &c->calls,
				     .runs = &c->runs,
				     .finish_reason = c->finish,
				     .stop = c->stop};
}

/* Runs tokens through a choice, and writes a stream or a whole message to `out`. */
static void run(const struct choice_config *config, const struct ids *ids, bool stream)
{
	struct openai_blocks blocks = {0};
	const struct openai_head h = head(&blocks);
	struct openai_output o;
	struct choice c;
	bool first = true;

	buf_reset(&out);
	check(choice_init(&c, config) == 0);
	for (size_t i = 0; i < ids->len && !c.finish; i++) {
		struct draw_result draw = {.token = ids->v[i]};
		enum finish_reason finish = i + 1 < ids->len ? FINISH_NONE : FINISH_LENGTH;
		struct openai_delta d;

		check(choice_push(&c, &draw, finish) >= 0);
		d = delta_of(&c);
		if (!stream || (!c.finish && random_below(4)))
			continue;
		anthropic_chunks(&o, &h, &d, first, NULL);
		write_out(&o, &blocks);
		choice_clear(&c);
		first = false;
	}
	if (stream) {
		anthropic_stream_end(&h, &usage, &out);
	} else {
		struct openai_choice all = {.all = delta_of(&c)};

		anthropic_body(&o, &h, &all, 1, NULL, 1, &usage);
		write_out(&o, &blocks);
	}
	choice_release(&c);
}

static const char *const pieces[] = {
	"A bow. ",
	"\n\n",
	"\xf0\x9f\x8e\xbb \"quoted\" \\ back",
	"<think>\nHm, ",
	"</think>\n\n",
	("<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"word\": \"b\\u00e9 \\\"w\\n\", "
	 "\"n\": [1, 2]}}\n</tool_call>\n"),
	"<tool_call>\n{\"name\": \"n\\\"ow\", \"arguments\": {}}\n</tool_call>",
	"<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"word\": oh}}\n</tool_call>",
	"<tool_call>\n{\"name\": \"fly\", \"arguments\": {}}\n</tool_call>",
	"<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"word\": \"bow",
	"STOP here",
};

/* Makes up an answer, in tokens that begin and end anywhere. */
static void make(struct ids *ids)
{
	struct buf text;

	buf_init(&text, 1 << 16);
	for (size_t n = random_below(7); n; n--)
		buf_puts(&text, pieces[random_below(ARRAY_SIZE(pieces))]);
	ids->len = 0;
	for (size_t at = 0; at < text.len;) {
		size_t n = MIN(1 + random_below(30), text.len - at);

		check(!tokenizer_encode(tokenizer, text.data + at, n, true, NULL, ids));
		at += n;
	}
	check(!ids_push(ids, 2)); /* the last token, which ends the answer */
	buf_release(&text);
}

TEST(sums)
{
	const char *const strings[] = {"STOP", "zzz"};
	struct stops *stops = stops_new(strings, 2);
	int with_calls = 0, with_stop = 0, with_thinking = 0, cut = 0;

	for (int round = 0; round < 3000; round++) {
		struct choice_config config = {
			.tokenizer = tokenizer,
			.reasoning = true,
			.thinking = random_below(2),
			.stops = random_below(2) ? stops : NULL,
			.format = random_below(4) ? tools_detect("<tool_call> tojson") : NULL,
			.tools = {tools, ARRAY_SIZE(tools)},
			.one_call = !random_below(4),
		};
		struct ids ids = {0};
		json_t *streamed, *whole;
		const char *reason;

		make(&ids);
		run(&config, &ids, true);
		streamed = add_up(buf_str(&out));
		with_thinking += strstr(buf_str(&out), "thinking_delta") != NULL;
		run(&config, &ids, false);
		whole = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
				   NULL);
		check(whole && json_equal(whole, streamed));
		if (!whole || !json_equal(whole, streamed)) {
			char *a = json_dumps(streamed, 0);

			printf("# streamed %s\n# whole    %s\n", a, buf_str(&out));
			free(a);
		}
		reason = json_string_value(json_object_get(whole, "stop_reason"));
		with_calls += reason && !strcmp(reason, "tool_use");
		cut += strstr(buf_str(&out), "\"input\":{}}") != NULL;
		if (reason && !strcmp(reason, "stop_sequence")) {
			const json_t *stop = json_object_get(whole, "stop_sequence");

			check(json_is_string(stop) && !strcmp(json_string_value(stop), "STOP"));
			with_stop++;
		}
		json_decref(streamed);
		json_decref(whole);
		ids_release(&ids);
	}
	ok_all("the events of 3000 answers add up to their whole messages");
	ok(with_calls > 50 && with_stop > 50 && with_thinking > 300 && cut > 100,
	   "among them %d with calls, %d with stop strings, %d with thinking, %d with empty inputs",
	   with_calls, with_stop, with_thinking, cut);
	stops_free(stops);
}

/* Long texts are cut into events, each of which a client can read. */
TEST(long_texts)
{
	static const char *const units[] = {"\\ud83d\\ude00", "\\\\", "\\u00e9", "\xc3\xa9", "x"};
	struct openai_blocks blocks = {0};
	const struct openai_head h = head(&blocks);
	struct openai_calls calls;
	struct openai_runs runs = {0};
	struct openai_output o;
	struct buf text;
	json_t *message;

	openai_calls_init(&calls, 1 << 24);
	buf_init(&text, 1 << 24);
	buf_puts(&text, "{\"a\":\"");
	for (int i = 0; i < 20000; i++)
		buf_puts(&text, units[random_below(ARRAY_SIZE(units))]);
	buf_puts(&text, "\"}");
	openai_calls_begin(&calls, "look_up", 7);
	openai_calls_add(&calls, buf_str(&text), text.len);
	check(!openai_runs_add(&runs, KIND_CONTENT, text.len) &&
	      !openai_runs_add(&runs, KIND_REASONING, 9) && !openai_runs_add(&runs, KIND_CALLS, 2));
	struct openai_delta d = {.content = buf_str(&text),
				 .content_len = text.len,
				 .reasoning = "\xf0\x9f\x8e\xbb hm,\"",
				 .reasoning_len = 9,
				 .calls = &calls,
				 .runs = &runs,
				 .finish_reason = "tool_calls"};

	buf_reset(&out);
	anthropic_chunks(&o, &h, &d, true, NULL);
	write_out(&o, &blocks);
	anthropic_stream_end(&h, &usage, &out);
	for (const char *at = buf_str(&out); (at = strstr(at, "\"partial_json\":\""));) {
		const char *end = strstr(at, "\"}}\n\n");
		json_t *piece =
			json_loadb(at + 15, (size_t)(end + 1 - at - 15), JSON_DECODE_ANY, NULL);
		struct buf whole;
		json_t *parsed;

		/* no escape sequence is cut: with what is missing around it, each piece is JSON */
		buf_init(&whole, 1 << 16);
		check(piece && json_string_length(piece) < 4200);
		if (json_string_value(piece)[0] != '{')
			buf_puts(&whole, "{\"a\":\"");
		buf_puts(&whole, json_string_value(piece));
		if (whole.data[whole.len - 1] != '}')
			buf_puts(&whole, "\"}");
		parsed = json_loads(buf_str(&whole), 0, NULL);
		check(parsed);
		json_decref(parsed);
		json_decref(piece);
		buf_release(&whole);
		at = end;
	}
	message = add_up(buf_str(&out));
	check(json_array_size(json_object_get(message, "content")) == 3);
	check(!strcmp(json_string_value(json_object_get(
			      json_array_get(json_object_get(message, "content"), 0), "text")),
		      buf_str(&text)));
	check(json_string_length(json_object_get(
		      json_object_get(json_array_get(json_object_get(message, "content"), 2),
				      "input"),
		      "a")) > 20000);
	ok_all("long texts and arguments in events");
	json_decref(message);
	openai_calls_release(&calls);
	openai_runs_release(&runs);
	buf_release(&text);
}

TEST(shapes)
{
	struct openai_blocks blocks = {0};
	struct openai_head h = head(&blocks);
	struct openai_delta d = {.finish_reason = "length"};
	struct openai_choice all = {.all = d};
	struct openai_output o;

	buf_reset(&out);
	anthropic_chunks(&o, &h, &d, true, NULL);
	write_out(&o, &blocks);
	anthropic_stream_end(&h, &usage, &out);
	is_str(buf_str(&out),
	       "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\","
	       "\"type\":\"message\",\"role\":\"assistant\",\"model\":\"lex\\\"is\",\"content\":[],"
	       "\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":36,"
	       "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":64,"
	       "\"output_tokens\":7,\"output_tokens_details\":{\"thinking_tokens\":3}}}}\n\n"
	       "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"
	       "\"stop_reason\":\"max_tokens\",\"stop_sequence\":null},\"usage\":{"
	       "\"input_tokens\":36,\"cache_creation_input_tokens\":0,"
	       "\"cache_read_input_tokens\":64,\"output_tokens\":7,\"output_tokens_details\":{\"thinking_tokens\":3}}}\n\n"
	       "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	       "the stream of an answer without text");
	buf_reset(&out);
	anthropic_body(&o, &h, &all, 1, NULL, 1, &usage);
	write_out(&o, &blocks);
	is_str(buf_str(&out),
	       "{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"lex\\\"is\","
	       "\"content\":[],\"stop_reason\":\"max_tokens\",\"stop_sequence\":null,\"usage\":{"
	       "\"input_tokens\":36,\"cache_creation_input_tokens\":0,"
	       "\"cache_read_input_tokens\":64,\"output_tokens\":7,\"output_tokens_details\":{\"thinking_tokens\":3}}}",
	       "and whole");
	all.all.clamped = true;
	buf_reset(&out);
	anthropic_body(&o, &h, &all, 1, NULL, 1, &usage);
	write_out(&o, &blocks);
	ok(strstr(buf_str(&out), "\"stop_reason\":\"model_context_window_exceeded\""),
	   "an answer that the context has ended");
	buf_reset(&out);
	anthropic_stream_ping(&out);
	is_str(buf_str(&out), "event: ping\ndata: {\"type\":\"ping\"}\n\n", "ping");
}

int main(int argc, char **argv)
{
	struct err e = {0};

	buf_init(&out, 64 << 20);
	buf_init(&again, 64 << 20);
	if (!ok(model_tokenizer(argc > 1 ? argv[1] : "models/lexis", &tokenizer, &e) == 0,
		"tokenizer: %s", e.text))
		return done();
	run_tests();
	ok_all("nothing else");
	tokenizer_free(tokenizer);
	buf_release(&out);
	buf_release(&again);
	return done();
}
