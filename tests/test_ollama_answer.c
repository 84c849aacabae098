/* protocol/ollama: the lines of a stream add up to the whole object of the same answer; bodies about models. */
#include <jansson.h>
#include <stdlib.h>

#include "base/problem.h"
#include "protocol/ollama/answer.h"
#include "protocol/ollama/embed.h"
#include "protocol/ollama/models.h"
#include "tests/small_vocabulary.h"
#include "tests/tap.h"

enum { PIECES = 30 };

/* 2023-11-14T22:13:20.000000005Z */
#define NOW (1700000000u * 1000000000ull + 5)

static struct buf out;

static const struct openai_head plain = {.id = "ollama-0011", .model = "lexis"},
				scored = {.id = "ollama-0011", .model = "lexis", .logprobs = true};
static const struct openai_usage usage = {.prompt_tokens = 26, .completion_tokens = 7};
static const struct ollama_times times = {10, 1, 2, 3};

/* ---- made-up answers ---- */

/* A piece of an answer, as the choice hands it on: text, reasoning, some of a call, or the end of one that is cut. */
struct piece {
	enum { TEXT, THOUGHT, NAME, ARGUMENTS, CUT } kind;
	const char *text;
};

struct made {
	struct piece v[PIECES];
	size_t n;
	const char *finish;
};

static void make(struct made *m)
{
	static const char *const texts[] = {"a", "\"", "\n", "\xc3\xa9", "\\", " bc", "{\"x\":1}"};
	/* the arguments of a call, in pieces */
	static const char *const arguments[][3] = {{"{", "\"x\": [1,\n2]", "}"},
						   {"{\"y\":\"\\n\\u00e9\"}", "", ""},
						   {"", "", ""}};
	m->n = 0;
	m->finish = rand() % 3 ? "stop" : "length";
	while (m->n + 5 < PIECES && rand() % 12) {
		unsigned kind = (unsigned)rand() % 3;

		if (kind != NAME) {
			m->v[m->n++] = (struct piece){kind ? THOUGHT : TEXT, texts[rand() % 7]};
			continue;
		}
		m->v[m->n++] = (struct piece){NAME, rand() % 2 ? "f" : "look\"up"};
		/* A call that is cut ends within its arguments, or before them. */
		const bool cut = rand() % 2;
		const size_t parts = cut ? (size_t)rand() % 3 : 3;

		for (size_t k = (size_t)rand() % 3, i = 0; i < parts; i++)
			if (arguments[k][i][0])
				m->v[m->n++] = (struct piece){ARGUMENTS, arguments[k][i]};
		if (cut)
			m->v[m->n++] = (struct piece){CUT, ""};
	}
}

/* Feeds an answer, in deltas of random numbers of pieces, and writes all lines to `out` in small steps. */
static void feed(struct ollama_answer *a, const struct made *m)
{
	struct openai_calls calls;
	struct buf content, thinking;
	bool last = false;

	openai_calls_init(&calls, 1 << 16);
	buf_init(&content, 1 << 16);
	buf_init(&thinking, 1 << 16);
	for (size_t i = 0; !last;) {
		struct openai_delta d = {.calls = &calls};
		size_t end = MIN(m->n, i + (size_t)rand() % 4);

		buf_reset(&content);
		buf_reset(&thinking);
		openai_calls_clear(&calls);
		for (; i < end; i++) {
			const struct piece *p = &m->v[i];

			if (p->kind == TEXT)
				buf_puts(&content, p->text);
			else if (p->kind == THOUGHT)
				buf_puts(&thinking, p->text);
			else if (p->kind == NAME)
				openai_calls_begin(&calls, p->text, strlen(p->text));
			else if (p->kind == ARGUMENTS)
				openai_calls_add(&calls, p->text, strlen(p->text));
			else
				openai_calls_cut(&calls);
		}
		last = i == m->n && rand() % 2;
		if (last)
			d.finish_reason = m->finish;
		d.content = buf_str(&content);
		d.content_len = content.len;
		d.reasoning = buf_str(&thinking);
		d.reasoning_len = thinking.len;
		check(!ollama_answer_take(a, &d, NOW));
		while (!ollama_answer_write(a, out.len + (size_t)(1 + rand() % 100), &out))
			;
	}
	check(!ollama_answer_end(a, &usage, &times, NOW));
	while (!ollama_answer_write(a, out.len + (size_t)(1 + rand() % 100), &out))
		;
	openai_calls_release(&calls);
	buf_release(&content);
	buf_release(&thinking);
}

/* ---- what a client makes of it ---- */

static const char *string(const json_t *v, const char *name)
{
	const char *s = json_string_value(json_object_get(v, name));

	return s ? s : "";
}

static void append(json_t *object, const char *name, const json_t *more)
{
	json_t *old = json_object_get(object, name);
	struct buf b;

	if (!more)
		return;
	if (json_is_array(more)) {
		if (!old)
			json_object_set_new(object, name, old = json_array());
		json_array_extend(old, (json_t *)more);
		return;
	}
	buf_init(&b, 1 << 20);
	buf_puts(&b, string(object, name));
	buf_puts(&b, json_string_value(more));
	json_object_set_new(object, name, json_string(buf_str(&b)));
	buf_release(&b);
}

/* Adds up the lines in `out` to one object, new: the last line, with the texts and calls of all. */
static json_t *add_up(bool chat)
{
	static const char *const names[] = {"content", "thinking", "tool_calls", "response"};
	json_t *sum = json_object(), *line = NULL;
	const char *from = buf_str(&out), *end;

	for (; (end = strchr(from, '\n')); from = end + 1) {
		json_t *message;

		json_decref(line);
		line = json_loadb(from, (size_t)(end - from), 0, NULL);
		check(line != NULL);
		message = chat ? json_object_get(line, "message") : line;
		check(!chat || !strcmp(string(message, "role"), "assistant"));
		check(json_is_boolean(json_object_get(line, "done")) &&
		      json_is_true(json_object_get(line, "done")) == !end[1]);
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			append(sum, names[i], json_object_get(message, names[i]));
	}
	check(!*from && line);
	json_object_update(chat ? json_object_get(line, "message") : line, sum);
	json_decref(sum);
	return line;
}

static json_t *answer(const struct openai_head *h, const struct made *m, bool chat, bool stream)
{
	const struct ollama_head own = {.model = "m\":latest", .chat = chat, .stream = stream};
	struct ollama_answer *a = ollama_answer_new(h, &own);
	json_t *body;

	buf_reset(&out);
	feed(a, m);
	ollama_answer_free(a);
	if (stream)
		return add_up(chat);
	body = json_loadb(buf_str(&out), out.len, 0, NULL);
	check(body != NULL);
	return body;
}

/* Whether the object has the texts and calls that were made up. */
static void check_content(const json_t *body, const struct made *m, bool chat)
{
	const json_t *message = chat ? json_object_get(body, "message") : body, *calls, *call;
	struct buf texts[2], arguments;
	size_t n = 0;

	buf_init(&texts[TEXT], 1 << 16);
	buf_init(&texts[THOUGHT], 1 << 16);
	buf_init(&arguments, 1 << 16);
	calls = json_object_get(message, "tool_calls");
	for (size_t i = 0; i < m->n; i++) {
		const struct piece *p = &m->v[i];

		if (p->kind == TEXT || p->kind == THOUGHT)
			buf_puts(&texts[p->kind], p->text);
		if (p->kind != NAME)
			continue;
		call = json_object_get(json_array_get(calls, n), "function");
		check(!strcmp(string(call, "name"), p->text));
		check(json_integer_value(json_object_get(call, "index")) == (json_int_t)n++);
		check(!strncmp(string(json_array_get(calls, n - 1), "id"), "call_", 5));
		buf_reset(&arguments);
		while (i + 1 < m->n && m->v[i + 1].kind == ARGUMENTS)
			buf_puts(&arguments, m->v[++i].text);
		if (i + 1 < m->n && m->v[i + 1].kind == CUT)
			buf_reset(&arguments);
		if (!arguments.len)
			buf_puts(&arguments, "{}");
		json_t *want = json_loadb(buf_str(&arguments), arguments.len, 0, NULL);

		check(want && json_equal(want, json_object_get(call, "arguments")));
		json_decref(want);
	}
	check(n == json_array_size(calls));
	check(!strcmp(string(message, chat ? "content" : "response"), buf_str(&texts[TEXT])));
	check(!strcmp(string(message, "thinking"), buf_str(&texts[THOUGHT])));
	check(!strcmp(string(body, "done_reason"), m->finish));
	buf_release(&texts[TEXT]);
	buf_release(&texts[THOUGHT]);
	buf_release(&arguments);
}

TEST(random_answers)
{
	struct made m;

	srand(1);
	for (int i = 0; i < 3000; i++) {
		const bool chat = i & 1;
		json_t *whole, *stream;

		make(&m);
		whole = answer(&plain, &m, chat, false);
		stream = answer(&plain, &m, chat, true);
		check(json_equal(whole, stream));
		check_content(whole, &m, chat);
		json_decref(whole);
		json_decref(stream);
	}
	ok_all("3000 streams add up to their whole answers");
}

TEST(bytes)
{
	static const struct made m = {{{THOUGHT, "Hm."}, {TEXT, "a\""}}, 2, "stop"};
	const struct ollama_head own = {.model = "m", .chat = true, .stream = true};
	const struct openai_delta d = {.content = "a", .content_len = 1};
	struct ollama_answer *a;
	struct err e;

	json_decref(answer(&plain, &m, true, false));
	is_str(buf_str(&out),
	       "{\"model\":\"m\\\":latest\",\"created_at\":\"2023-11-14T22:13:20.000000005Z\","
	       "\"message\":{\"role\":\"assistant\",\"content\":\"a\\\"\",\"thinking\":\"Hm.\"},"
	       "\"done\":true,\"done_reason\":\"stop\",\"total_duration\":10,\"load_duration\":1,"
	       "\"prompt_eval_count\":26,\"prompt_eval_duration\":2,\"eval_count\":7,"
	       "\"eval_duration\":3}",
	       "a whole chat");
	json_decref(answer(&plain, &m, false, false));
	ok(strstr(buf_str(&out), "\"response\":\"a\\\"\",\"thinking\":\"Hm.\",\"done\":true"),
	   "a whole answer to a prompt: %s", buf_str(&out));

	a = ollama_answer_new(&plain, &own);
	buf_reset(&out);
	check(!ollama_answer_take(a, &d, 0) && ollama_answer_write(a, SIZE_MAX, &out));
	ollama_stream_blank(&out);
	err_set(&e, PROBLEM_CONSTRAINT, "no \"token\" may come");
	check(!ollama_answer_fail(a, &e) && ollama_answer_write(a, SIZE_MAX, &out));
	is_str(buf_str(&out),
	       "{\"model\":\"m\",\"created_at\":\"1970-01-01T00:00:00.000000000Z\",\"message\":"
	       "{\"role\":\"assistant\",\"content\":\"a\"},\"done\":false}\n"
	       " {\"error\":\"no \\\"token\\\" may come\"}\n",
	       "a stream that fails, behind a sign of life");
	ollama_answer_free(a);

	buf_reset(&out);
	ollama_body_errand(&own, "load", 0, &out);
	is_str(buf_str(&out),
	       "{\"model\":\"m\",\"created_at\":\"1970-01-01T00:00:00.000000000Z\",\"message\":"
	       "{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"load\"}",
	       "an errand");
	ok_all("nothing fails");
}

TEST(logprobs)
{
	const struct ollama_head own = {.model = "m", .chat = true, .stream = true};
	struct ollama_answer *a = ollama_answer_new(&scored, &own);
	const struct openai_token token = {.draw = {.token = BC, .logprob = -0.5f}};
	struct openai_tokens tokens;
	const struct openai_delta d = {.content = " bc", .content_len = 3, .tokens = &tokens};

	openai_tokens_init(&tokens);
	check(!openai_tokens_add(&tokens, &token));
	buf_reset(&out);
	check(!ollama_answer_take(a, &d, 0) && ollama_answer_write(a, SIZE_MAX, &out));
	ok(strstr(buf_str(&out),
		  "\"content\":\" bc\"},\"done\":false,\"logprobs\":[{\"token\":\" bc\","
		  "\"logprob\":-0.5,\"bytes\":[32,98,99],\"top_logprobs\":[]}]}\n"),
	   "a token: %s", buf_str(&out));
	check(!ollama_answer_end(a, &usage, &times, 0) && ollama_answer_write(a, SIZE_MAX, &out));
	ok(!strstr(strchr(buf_str(&out), '\n'), "logprobs"), "the last line has none");
	ok_all("nothing fails");
	openai_tokens_release(&tokens);
	ollama_answer_free(a);
}

TEST(models)
{
	static const char template[] = "a\"<think>";
	struct ollama_model m = {.name = "a\"b",
				 .digest = "00ff",
				 .architecture = "qwen3_5_moe",
				 .format = "safetensors",
				 .quantization = "BF16",
				 .template = template,
				 .template_len = sizeof(template) - 1,
				 .modified_ns = NOW,
				 .weight_bytes = 1000,
				 .memory_bytes = 3000,
				 .n_parameters = 1450000000,
				 .context_length = 4096,
				 .embedding_length = 512,
				 .n_layers = 8,
				 .rope_theta = 10000000,
				 .norm_eps = 1e-6,
				 .tools = true};
	static const char *const names[] = {"a\"b", "org:1/c", "d:8b"};
	static const char details[] =
		"\"details\":{\"parent_model\":\"\",\"format\":\"safetensors\",\"family\":"
		"\"qwen3_5_moe\",\"families\":[\"qwen3_5_moe\"],\"parameter_size\":\"1.4B\","
		"\"quantization_level\":\"BF16\",\"context_length\":4096,\"embedding_length\":512}";
	json_t *body;

	buf_reset(&out);
	ollama_body_tags(&m, names, 1, &out);
	ok(strstr(buf_str(&out),
		  "{\"models\":[{\"name\":\"a\\\"b:latest\",\"model\":\"a\\\"b:latest\","
		  "\"size\":1000,\"digest\":\"00ff\",\"details\"") &&
		   strstr(buf_str(&out), details) &&
		   strstr(buf_str(&out),
			  ",\"modified_at\":\"2023-11-14T22:13:20.000000005Z\","
			  "\"capabilities\":[\"completion\",\"embedding\",\"tools\",\"thinking\"]}]}"),
	   "a list: %s", buf_str(&out));
	buf_reset(&out);
	ollama_body_ps(&m, names, 3, &out);
	body = json_loadb(buf_str(&out), out.len, 0, NULL);
	is_int(json_array_size(json_object_get(body, "models")), 3, "each name is in it");
	is_str(string(json_array_get(json_object_get(body, "models"), 1), "name"), "org:1/c:latest",
	       "with a tag");
	is_str(string(json_array_get(json_object_get(body, "models"), 2), "name"), "d:8b",
	       "its own, if it has one");
	is_int(json_integer_value(
		       json_object_get(json_array_get(json_object_get(body, "models"), 0),
				       "size_vram")),
	       3000, "the device's memory");
	json_decref(body);
	m.on_cpu = true;
	m.template = NULL;
	m.template_len = 0;
	m.tools = false;
	m.n_parameters = 75300000;
	buf_reset(&out);
	ollama_body_ps(&m, names, 1, &out);
	ok(strstr(buf_str(&out),
		  "\"expires_at\":\"2262-04-11T23:47:16.854775807Z\",\"size_vram\":0,"
		  "\"context_length\":4096}]}") &&
		   strstr(buf_str(&out), "\"parameter_size\":\"75M\""),
	   "a CPU has none: %s", buf_str(&out));
	buf_reset(&out);
	ollama_body_show(&m, &out);
	body = json_loadb(buf_str(&out), out.len, 0, NULL);
	ok(strstr(buf_str(&out),
		  "\"model_info\":{\"general.architecture\":\"qwen3_5_moe\",\"general.basename\":\"a\\\"b\","
		  "\"general.parameter_count\":75300000,\"qwen3_5_moe.context_length\":4096,"
		  "\"qwen3_5_moe.embedding_length\":512,\"qwen3_5_moe.block_count\":8,"
		  "\"qwen3_5_moe.rope.freq_base\":10000000,"
		  "\"qwen3_5_moe.attention.layer_norm_rms_epsilon\":1e-06},"
		  "\"capabilities\":[\"completion\",\"embedding\"],"),
	   "a model: %s", buf_str(&out));
	ok(body && !strcmp(string(body, "template"), ""), "without a template");
	json_decref(body);
}

TEST(vectors)
{
	static const float sum[] = {3, -4, 12};

	buf_reset(&out);
	ollama_embed_begin("m\"", &out);
	ollama_embed_vector(0, sum, 2, &out);
	ollama_embed_vector(1, sum, 1, &out);
	ollama_embed_end(&usage, &times, &out);
	is_str(buf_str(&out),
	       "{\"model\":\"m\\\"\",\"embeddings\":[[0.600000024,-0.800000012],[1.0]],"
	       "\"total_duration\":10,\"load_duration\":1,\"prompt_eval_count\":26}",
	       "/api/embed");
	buf_reset(&out);
	ollama_embedding(sum, 2, &out);
	is_str(buf_str(&out), "{\"embedding\":[0.600000024,-0.800000012]}", "/api/embeddings");
	buf_reset(&out);
	ollama_embed_nothing("m", &out);
	is_str(buf_str(&out), "{\"model\":\"m\",\"embeddings\":[]}", "no text");
	buf_reset(&out);
	ollama_embedding_nothing(&out);
	is_str(buf_str(&out), "{\"embedding\":[]}", "no prompt");
	buf_reset(&out);
}

int main(void)
{
	buf_init(&out, 1 << 24);
	run_tests();
	buf_release(&out);
	return done();
}
