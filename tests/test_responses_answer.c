/* protocol/responses/answer: the events of a stream add up to its response, and to the body of the same answer. */
#include <jansson.h>
#include <stdlib.h>

#include "base/problem.h"
#include "protocol/responses/answer.h"
#include "protocol/responses/request.h"
#include "tests/small_vocabulary.h"
#include "tests/tap.h"

enum { PIECES = 30 };

static struct buf out;

static const struct openai_head plain = {.id = "resp_0011",
					 .model = "lex\"is",
					 .created = 1700000000};

/* ---- made-up answers ---- */

/* A piece of an answer: of one kind, with the tokens that end in it. */
struct piece {
	enum { TEXT, THOUGHT, NAME, ARGUMENTS } kind;
	char text[16];
	size_t len;
	struct openai_token token; /* of TEXT */
};

struct made {
	struct piece v[PIECES];
	size_t n;
	const char *finish;
};

static void make(struct made *m)
{
	static const char *const texts[] = {"a", "\"", "\n", "\xc3\xa9", "{\"x\":1}", "\\", " bc"};
	bool call = false;

	m->n = (size_t)(rand() % PIECES);
	m->finish = rand() % 3 ? "stop" : "length";
	for (size_t i = 0; i < m->n; i++) {
		struct piece *p = &m->v[i];
		bool same = i && rand() % 3;

		memset(p, 0, sizeof(*p));
		if (same)
			p->kind = m->v[i - 1].kind;
		else
			p->kind = (unsigned)rand() % 4;
		if (p->kind == ARGUMENTS && !call)
			p->kind = NAME;
		if (p->kind == TEXT || p->kind == THOUGHT)
			call = false;
		if (p->kind == NAME)
			call = true;
		if (p->kind == TEXT) {
			/* tokens of whole characters: A, BC, QUOTE */
			static const int32_t ids[] = {A, BC, QUOTE, DAY};

			p->token.draw.token = ids[rand() % 4];
			p->token.draw.logprob = -(float)(rand() % 100) / 8;
			p->len = vocabulary[p->token.draw.token].len;
			memcpy(p->text, vocabulary[p->token.draw.token].bytes, p->len);
		} else {
			p->len =
				(size_t)snprintf(p->text, sizeof(p->text), "%s", texts[rand() % 7]);
		}
	}
}

static const enum openai_kind run_kinds[] = {[TEXT] = KIND_CONTENT,
					     [THOUGHT] = KIND_REASONING,
					     [NAME] = KIND_CALLS,
					     [ARGUMENTS] = KIND_CALLS};

/* The texts and lists of a delta. */
struct parts {
	struct openai_calls calls;
	struct openai_tokens tokens;
	struct openai_runs runs;
	struct buf content, reasoning;
};

static void parts_add(struct parts *p, const struct piece *q)
{
	size_t before = p->calls.n;

	switch (q->kind) {
	case TEXT:
		buf_append(&p->content, q->text, q->len);
		check(!openai_tokens_add(&p->tokens, &q->token));
		break;
	case THOUGHT: buf_append(&p->reasoning, q->text, q->len); break;
	case NAME: openai_calls_begin(&p->calls, q->text, q->len); break;
	case ARGUMENTS: openai_calls_add(&p->calls, q->text, q->len); break;
	}
	check(!openai_runs_add(&p->runs, run_kinds[q->kind],
			       q->kind < NAME ? q->len : p->calls.n - before));
}

/* Feeds an answer, in deltas of at most `most` pieces. Writes all events to `out` in small steps. */
static void feed(struct responses_answer *a, const struct made *m, size_t most)
{
	struct parts p = {0};

	openai_calls_init(&p.calls, 1 << 16);
	openai_tokens_init(&p.tokens);
	buf_init(&p.content, 1 << 16);
	buf_init(&p.reasoning, 1 << 16);
	for (size_t i = 0; i <= m->n;) {
		struct openai_delta d = {.calls = &p.calls, .tokens = &p.tokens, .runs = &p.runs};
		size_t end = MIN(m->n, i + 1 + (size_t)rand() % most);

		p.runs.n = 0;
		buf_reset(&p.content);
		buf_reset(&p.reasoning);
		openai_calls_clear(&p.calls);
		openai_tokens_clear(&p.tokens);
		if (i == end || (end == m->n && rand() % 2))
			d.finish_reason = m->finish;
		while (i < end)
			parts_add(&p, &m->v[i++]);
		d.content = buf_str(&p.content);
		d.content_len = p.content.len;
		d.reasoning = buf_str(&p.reasoning);
		d.reasoning_len = p.reasoning.len;
		check(!responses_answer_take(a, &d));
		while (!responses_answer_write(a, out.len + (size_t)(1 + rand() % 300), &out))
			;
		if (d.finish_reason)
			break;
	}
	openai_calls_release(&p.calls);
	openai_tokens_release(&p.tokens);
	openai_runs_release(&p.runs);
	buf_release(&p.content);
	buf_release(&p.reasoning);
}

/* ---- what a client makes of a stream ---- */

static const char *string(const json_t *v, const char *name)
{
	const char *s = json_string_value(json_object_get(v, name));

	return s ? s : "";
}

static void append(json_t *object, const char *name, const char *more)
{
	struct buf b;

	buf_init(&b, 1 << 20);
	buf_puts(&b, string(object, name));
	buf_puts(&b, more);
	json_object_set_new(object, name, json_string(buf_str(&b)));
	buf_release(&b);
}

/* The client's own copy of the output, from the events that add to it, and the last response. */
struct client {
	json_t *output, *response;
	json_int_t next;
	size_t n_done;
	char last[64];
};

/* Returns the object that an event's text belongs to: the item of a call, or its part. */
static json_t *place(struct client *c, const json_t *event)
{
	json_t *item =
		json_array_get(c->output,
			       (size_t)json_integer_value(json_object_get(event, "output_index")));

	check(!strcmp(string(item, "id"), string(event, "item_id")));
	if (!strcmp(string(item, "type"), "function_call"))
		return item;
	check(json_integer_value(json_object_get(event, "content_index")) == 0);
	return json_array_get(json_object_get(item, "content"), 0);
}

static void take_event(struct client *c, const json_t *event)
{
	const char *type = string(event, "type"), *text = strrchr(type, '.');
	json_t *item = json_object_get(event, "item"), *part = json_object_get(event, "part");

	snprintf(c->last, sizeof(c->last), "%s", type);
	check(json_integer_value(json_object_get(event, "sequence_number")) == c->next++);
	if (json_object_get(event, "response")) {
		json_decref(c->response);
		c->response = json_incref(json_object_get(event, "response"));
	} else if (!strcmp(type, "response.output_item.added")) {
		check(json_integer_value(json_object_get(event, "output_index")) ==
		      (json_int_t)json_array_size(c->output));
		check(c->n_done == json_array_size(c->output));
		json_array_append_new(c->output, json_deep_copy(item));
	} else if (!strcmp(type, "response.output_item.done")) {
		json_t *own = json_array_get(c->output, c->n_done++);

		/* but for the status the item is what its events have added up to */
		json_object_set(own, "status", json_object_get(item, "status"));
		json_object_set(own, "encrypted_content",
				json_object_get(item, "encrypted_content"));
		check(json_equal(own, item));
	} else if (!strcmp(type, "response.content_part.added")) {
		item = json_array_get(c->output, json_array_size(c->output) - 1);
		json_array_append_new(json_object_get(item, "content"), json_deep_copy(part));
	} else if (!strcmp(type, "response.content_part.done")) {
		check(json_equal(place(c, event), part));
	} else if (text && !strcmp(text, ".delta")) {
		json_t *at = place(c, event), *logprobs = json_object_get(event, "logprobs");

		append(at, json_object_get(at, "text") ? "text" : "arguments",
		       string(event, "delta"));
		if (logprobs)
			json_array_extend(json_object_get(at, "logprobs"), logprobs);
	} else if (text && !strcmp(text, ".done")) {
		json_t *at = place(c, event);

		check(!strcmp(string(event, json_object_get(at, "text") ? "text" : "arguments"),
			      string(at, json_object_get(at, "text") ? "text" : "arguments")));
		check(!json_object_get(at, "name") ||
		      !strcmp(string(at, "name"), string(event, "name")));
	} else {
		check(!strcmp(type, "error"));
	}
}

/* Reads the events in `out`. */
static struct client read_events(void)
{
	struct client c = {.output = json_array()};

	for (char *p = out.data, *end; p && *p; p = end + 2) {
		char *data = strstr(p, "\ndata: ");
		json_t *event;

		end = strstr(p, "\n\n");
		check(end && data && data < end && !strncmp(p, "event: ", 7));
		if (!end || !data || data > end)
			break;
		event = json_loadb(data + 7, (size_t)(end - data) - 7, JSON_REJECT_DUPLICATES,
				   NULL);
		check(event && !strncmp(p + 7, string(event, "type"), (size_t)(data - p) - 7));
		take_event(&c, event);
		json_decref(event);
	}
	return c;
}

static void client_release(struct client *c)
{
	json_decref(c->output);
	json_decref(c->response);
}

static struct responses_answer *answer_of(const struct openai_head *h, bool stream, bool encrypted)
{
	static const char fields[] = "\"tools\":[]";
	struct responses_answer *a =
		responses_answer_new(h, &(struct responses_head){.fields = fields,
								 .fields_len = sizeof(fields) - 1,
								 .stream = stream,
								 .encrypted = encrypted});

	check(a);
	return a;
}

TEST(sums)
{
	const struct openai_usage u = {7, 5, 4, 2};

	srand(5);
	for (int round = 0; round < 3000; round++) {
		struct openai_head h = plain;
		bool encrypted = rand() % 2, cut;
		struct responses_answer *streamed, *whole;
		struct buf head, items, tail;
		struct client c;
		struct made m;
		json_t *body;

		h.logprobs = rand() % 2;
		make(&m);
		cut = !strcmp(m.finish, "length");
		buf_reset(&out);
		streamed = answer_of(&h, true, encrypted);
		feed(streamed, &m, 4);
		check(!responses_answer_end(streamed, &u));
		while (!responses_answer_write(streamed, out.len + 1, &out))
			;
		c = read_events();
		check(!strcmp(c.last, cut ? "response.incomplete" : "response.completed"));
		check(json_equal(c.output, json_object_get(c.response, "output")));

		buf_reset(&out);
		whole = answer_of(&h, false, encrypted);
		feed(whole, &m, PIECES);
		check(!out.len);
		check(!responses_answer_end(whole, &u));
		check(responses_answer_write(whole, SIZE_MAX, &out));
		body = json_loadb(buf_str(&out), out.len, JSON_REJECT_DUPLICATES, NULL);
		check(body && json_equal(body, c.response));
		check(!strcmp(string(body, "status"), cut ? "incomplete" : "completed"));
		check(json_is_object(json_object_get(body, "incomplete_details")) == cut);

		/* the parts that are kept are this body */
		buf_init(&head, 1 << 20);
		buf_init(&items, 1 << 20);
		buf_init(&tail, 1 << 20);
		responses_answer_parts(whole, &head, &items, &tail);
		buf_append(&head, buf_str(&items), items.len);
		buf_append(&head, buf_str(&tail), tail.len);
		check(head.len == out.len && !memcmp(buf_str(&head), buf_str(&out), out.len));
		buf_release(&head);
		buf_release(&items);
		buf_release(&tail);
		responses_answer_free(streamed);
		responses_answer_free(whole);
		client_release(&c);
		json_decref(body);
	}
	ok_all("3000 random streams add up to their bodies, which have the same items however they were cut");
}

/* Makes an answer of one delta each, and returns its body. */
static json_t *body_of(const struct openai_head *h, bool encrypted, const struct openai_delta *v,
		       size_t n)
{
	const struct openai_usage u = {7, 5, 4, 2};
	struct responses_answer *a = answer_of(h, false, encrypted);
	json_t *body;

	for (size_t i = 0; i < n; i++)
		check(!responses_answer_take(a, &v[i]));
	check(!responses_answer_end(a, &u));
	buf_reset(&out);
	check(responses_answer_write(a, SIZE_MAX, &out));
	body = json_loadb(buf_str(&out), out.len, JSON_REJECT_DUPLICATES, NULL);
	check(body);
	responses_answer_free(a);
	return body;
}

static const char *at_path(const json_t *body, size_t item, const char *name)
{
	return string(json_array_get(json_object_get(body, "output"), item), name);
}

TEST(items)
{
	struct openai_calls calls;
	struct openai_run first = {KIND_REASONING, 3},
			  rest[] = {{KIND_CONTENT, 1}, {KIND_CALLS, 2}, {KIND_CONTENT, 1}};
	struct openai_runs none = {0}, thought = {&first, 1, 0},
			   behind = {rest, ARRAY_SIZE(rest), 0};
	struct openai_delta v[] = {
		{.reasoning = "Hm.", .reasoning_len = 3, .runs = &thought},
		{.content = "ab", .content_len = 2, .runs = &behind, .finish_reason = "stop"}};
	json_t *body;

	openai_calls_init(&calls, 1000);
	openai_calls_begin(&calls, "f", 1);
	openai_calls_add(&calls, "{}", 2);
	v[1].calls = &calls;
	body = body_of(&plain, true, v, 2);
	is_int(json_array_size(json_object_get(body, "output")), 4, "reasoning, text, call, text");
	is_str(at_path(body, 0, "type"), "reasoning", "reasoning first");
	is_str(at_path(body, 0, "encrypted_content"), RESPONSES_REASONING "Hm.",
	       "with its text as encrypted_content");
	is_str(at_path(body, 1, "type"), "message", "then the text");
	is_str(at_path(body, 2, "name"), "f", "then the call");
	ok(!strncmp(at_path(body, 2, "id"), "fc_", 3) &&
		   !strncmp(at_path(body, 2, "call_id"), "call_", 5),
	   "whose ids say so");
	is_str(at_path(body, 3, "type"), "message", "and the text behind it is another message");
	ok(strcmp(at_path(body, 1, "id"), at_path(body, 3, "id")) != 0, "with another id");
	json_decref(body);

	v[0].finish_reason = "length";
	body = body_of(&plain, false, v, 1);
	is_int(json_array_size(json_object_get(body, "output")), 1,
	       "an answer cut in its reasoning");
	is_str(at_path(body, 0, "status"), "incomplete", "is incomplete");
	json_decref(body);

	v[0] = (struct openai_delta){.runs = &none, .finish_reason = "stop"};
	body = body_of(&plain, false, v, 1);
	is_str(at_path(body, 0, "type"), "message", "an empty answer has an empty message");
	json_decref(body);
	openai_calls_release(&calls);
}

TEST(failures)
{
	struct responses_answer *a = answer_of(&plain, true, false);
	struct openai_run run = {KIND_CONTENT, 2};
	struct openai_runs runs = {&run, 1, 0};
	struct openai_delta d = {.content = "a\"", .content_len = 2, .runs = &runs};
	struct client c;
	struct err e = {0};

	buf_reset(&out);
	check(!responses_answer_take(a, &d));
	check(responses_answer_write(a, SIZE_MAX, &out));
	err_param(&e, PROBLEM_CONSTRAINT, "text", "no \"token\" may come");
	check(!responses_answer_fail(a, &e));
	check(responses_answer_write(a, SIZE_MAX, &out));
	c = read_events();
	is_str(c.last, "response.failed", "a failure ends the stream");
	is_str(string(c.response, "status"), "failed", "with its status");
	is_str(string(json_object_get(c.response, "error"), "message"), "no \"token\" may come",
	       "and its sentence");
	is_int(json_array_size(c.output), 1, "behind the item that had begun");
	is_str(at_path(c.response, 0, "status"), "incomplete", "which is incomplete");
	client_release(&c);
	responses_answer_free(a);
	ok_all("a stream that fails has events without gaps");

	buf_reset(&out);
	responses_body_cancelled("resp_1", 17, "m\"", &out);
	c.response = json_loadb(buf_str(&out), out.len, 0, NULL);
	is_str(string(c.response, "status"), "cancelled", "a cancelled response");
	json_decref(c.response);
}

int main(void)
{
	buf_init(&out, 1 << 24);
	run_tests();
	buf_release(&out);
	return done();
}
