/* Memory that is short: a test runs again and again, and first its first allocation fails, then its second, until none
 * does. The tests make schedulers and requests, hand prompts over, let calls take tokens, and read and write files.
 * Each failure has to be reported, leave nothing behind and disturb nothing else. The transfer thread is a double: the
 * tests themselves make the notes that it would send. */
#include "tests/short_memory.h"

#include <fcntl.h>
#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "daemon/cli/simulate/workload.h"
#include "daemon/lifecycle.h"
#include "daemon/request/call.h"
#include "daemon/request/choice.h"
#include "daemon/steps/handoff.h"
#include "daemon/steps/handoff_send.h"
#include "daemon/steps/setup.h"
#include "daemon/transfer/receiving.h"
#include "daemon/transfer/transfer.h"
#include "engine/checkpoint/export.h"
#include "engine/layers/weights.h"
#include "engine/store/key.h"
#include "protocol/grammar/constraint.h"
#include "protocol/grammar/token_mask.h"
#include "protocol/ollama/answer.h"
#include "protocol/output/steering.h"
#include "protocol/output/tools_grammar.h"
#include "protocol/responses/answer.h"
#include "protocol/responses/list.h"
#include "tests/model_text.h"
#include "tests/scheduler_world.h"
#include "tests/scratch.h"

/* ---- the double of the transfer thread ---- */

static struct {
	struct transfer_note *note; /* the note that transfer_next returns next */
	uint64_t asked;		    /* the attempt of the last transfer_ask; 0: none */
	uint64_t failed;	    /* the attempt of the last transfer_fail; 0: none */
	struct err why;		    /* the error of that transfer_fail */
	uint32_t n_drawn;	    /* number of first tokens in the last transfer_draws */
} thread;

int transfer_start(const struct transfer_config *config, struct transfer **ret, struct err *e)
{
	*ret = (struct transfer *)&thread;
	return 0;
}

void transfer_stop(struct transfer *t)
{
}

void transfer_drain(struct transfer *t)
{
}

void transfer_forget(struct transfer *t)
{
}

struct transfer_note *transfer_next(struct transfer *t)
{
	struct transfer_note *n = thread.note;

	thread.note = NULL;
	return n;
}

int transfer_ask(struct transfer *t, const struct transfer_ask *ask, struct err *e)
{
	thread.asked = ask->attempt;
	return 0;
}

void transfer_drop(struct transfer *t, uint64_t attempt)
{
}

void transfer_parcel(struct transfer *t, struct transfer_parcel *p)
{
	p->done(p);
}

int transfer_draws(struct transfer *t, uint64_t attempt, const struct draw_result *draws,
		   uint32_t n_draws, uint32_t n_cached)
{
	thread.n_drawn = n_draws;
	return 0;
}

void transfer_fail(struct transfer *t, uint64_t attempt, const struct err *why)
{
	thread.failed = attempt;
	thread.why = *why;
}

/* ---- the scheduler ---- */

static void next_key(const struct content_key *before, const int32_t *tokens, uint32_t n,
		     struct content_key *ret)
{
	if (content_key_next(before, tokens, n, ret) < 0)
		abort();
}

static void attempt_scheduler(void *arg, unsigned long n)
{
	struct scheduler_config c = world_config(2, 100, 64);
	struct scheduler *s = NULL;
	struct err e = {0};
	int r;

	c.content_key = arg ? next_key : NULL;
	short_from(n);
	r = scheduler_new(&c, &s, &e);
	check(r == (short_end() ? -ENOMEM : 0));
	check((r < 0) == (s == NULL) && (r < 0) == (strstr(e.text, "not enough memory") != NULL));
	scheduler_free(s);
}

TEST(scheduler_new)
{
	static bool tiers = true;
	unsigned long n = each_allocation(attempt_scheduler, NULL);

	ok_all("%lu allocations of a scheduler", n);
	ok(n >= 10, "are many");
	ok(each_allocation(attempt_scheduler, &tiers) > n, "more with a cache below the device");
	ok_all("of which each may fail");
}

static void attempt_request(void *arg, unsigned long n)
{
	struct scheduler_config c = world_config(2, 100, 64);
	struct scheduler_request q = world_request("abcdefg", 3);
	struct draw_result draw = {.token = 5};
	struct scheduler_event events[2 * WORLD_SEQS_MAX];
	uint64_t id = 77, other;
	struct scheduler *s;
	struct scheduler_stats st;
	struct err e = {0};
	int r;

	check(scheduler_new(&c, &s, &e) == 0);
	short_from(n);
	r = scheduler_submit(s, &q, &id, &e);
	check(r == (short_end() ? -ENOMEM : 0) && (r == 0) == (id != 77));
	scheduler_stats(s, &st);
	check(st.waiting == (r == 0));
	check(scheduler_submit(s, &q, &other, &e) == 0);
	check(scheduler_plan(s) && scheduler_commit(s, &draw, events) > 0);
	scheduler_free(s);
}

TEST(scheduler_submit)
{
	unsigned long n = each_allocation(attempt_request, NULL);

	ok_all("%lu allocations of a request", n);
	ok(n >= 1, "are some");
}

/* ---- prompts that are handed over ---- */

static struct server server;

/* A worker of either role, as far as a handoff needs it. */
struct side {
	struct engine *engine;
	struct scheduler *scheduler;
	struct handoff_config config;
};

static void open_side(struct side *s, enum worker_role role)
{
	static const char *const args[] = {"tigond", "--model", "models/lexis"};
	struct err e = {0};
	struct scheduler_config c;
	uint64_t ns;

	*s = (struct side){0};
	check(options_parse(3, args, &server.options, &e) == 0);
	server.options.role = role;
	server.options.disaggregation_min_tokens = 1;
	check(setup_engine(&server, &s->engine, &ns, &e) == 0);
	c = setup_scheduler(&server);
	check(scheduler_new(&c, &s->scheduler, &e) == 0);
	s->config = (struct handoff_config){.server = &server,
					    .engine = s->engine,
					    .scheduler = s->scheduler,
					    .inbox = &server.inbox};
	memset(&thread, 0, sizeof(thread));
}

static void close_side(struct side *s)
{
	scheduler_free(s->scheduler);
	engine_close(s->engine);
}

static void attempt_open(void *arg, unsigned long n)
{
	struct side *side = arg;
	struct handoff *h = NULL;
	struct err e = {0};
	int r;

	short_from(n);
	r = handoff_open(&side->config, &h, &e);
	check(r == (short_end() ? -ENOMEM : 0) && (r < 0) == (h == NULL) &&
	      (r < 0) == (e.code != 0));
	handoff_close(h);
}

TEST(handoff_open)
{
	static const enum worker_role roles[] = {ROLE_DECODE, ROLE_PREFILL};
	struct side side;

	for (int i = 0; i < 2; i++) {
		open_side(&side, roles[i]);
		ok(each_allocation(attempt_open, &side) >= (i ? 4 : 2), "a handoff of a %s worker",
		   i ? "prefill" : "decode");
		ok_all("can fail at each allocation");
		close_side(&side);
	}
}

static const int32_t prompt[200] = {1, 2, 3};

/* A decode worker hands a prompt over, and the peer is lost (NOTE_LOST): the prompt is computed here. If memory is
 * short, no peer is asked, and the prompt is computed here at once. */
static void attempt_ask(void *arg, unsigned long n)
{
	struct side *side = arg;
	struct scheduler_request q = world_request("a", 1);
	struct scheduler_event events[4];
	struct draw_result draw = {.token = 5};
	struct handoff *h;
	struct err e = {0};
	uint32_t n_events;
	uint64_t id;

	q.prompt = prompt;
	q.n_prompt = 200;
	q.handoff = HANDOFF_RECEIVE;
	q.cache_disabled = true;
	thread.asked = 0;
	check(handoff_open(&side->config, &h, &e) == 0);
	check(scheduler_submit(side->scheduler, &q, &id, &e) == 0);
	check(!scheduler_plan(side->scheduler));
	short_from(n);
	check(handoff_run(h, &e) == 0);
	check(short_end() == !thread.asked);
	if (thread.asked) {
		thread.note = note_new(NOTE_LOST, thread.asked);
		check(handoff_take(h, events, &n_events, &e) == 1 && !n_events);
	}
	check(scheduler_plan(side->scheduler) != NULL);
	check(scheduler_commit(side->scheduler, &draw, events) == 1 && events[0].request_finished);
	handoff_close(h);
	check(!scheduler_plan(side->scheduler));
}

TEST(handoff_receive)
{
	struct side side;
	unsigned long n;

	open_side(&side, ROLE_DECODE);
	n = each_allocation(attempt_ask, &side);
	ok_all("%lu allocations of a prompt that is handed over", n);
	ok(n >= 2, "are some");
	close_side(&side);
}

static struct wire_prepare asked_prompt(void)
{
	return (struct wire_prepare){.tokens = (const struct wire_i32 *)prompt,
				     .end_tokens = (const struct wire_i32 *)prompt,
				     .boundaries = (const struct wire_u32 *)prompt,
				     .n_tokens = 200,
				     .n_choices = 1,
				     .cache_disabled = 1,
				     .sampling = {.top_p = 1, .repetition_penalty = 1}};
}

/* A decode worker asks this prefill worker for a prompt. The first token behind the prompt is drawn; or, if memory
 * is short, the decode worker is told so. */
static void attempt_prefill(void *arg, unsigned long n)
{
	struct side *side = arg;
	struct scheduler_event events[4] = {0};
	struct draw_result draw = {.token = 5};
	struct handoff *h;
	struct err e = {0};
	uint32_t n_events;
	bool failed;

	thread.failed = 0;
	thread.n_drawn = 0;
	check(handoff_open(&side->config, &h, &e) == 0 && handoff_send_admit(&server));
	thread.note = note_new(NOTE_ASKED, 9);
	thread.note->prepare = asked_prompt();
	short_from(n);
	check(handoff_take(h, events, &n_events, &e) == 1 && !n_events);
	failed = short_end();
	check(failed == (thread.failed == 9) && (!failed || thread.why.code == ENOMEM));
	check((scheduler_plan(side->scheduler) == NULL) == failed);
	if (!failed) {
		n_events = scheduler_commit(side->scheduler, &draw, events);
		handoff_deliver(h, events, n_events);
		check(n_events == 1 && thread.n_drawn == 1);
	}
	thread.note = note_new(failed ? NOTE_DROPPED : NOTE_SENT, 9);
	check(handoff_take(h, events, &n_events, &e) == 1);
	check(atomic_load(&server.calls) == 0);
	check(!scheduler_plan(side->scheduler));
	handoff_close(h);
}

TEST(handoff_send)
{
	struct side side;
	unsigned long n;

	open_side(&side, ROLE_PREFILL);
	n = each_allocation(attempt_prefill, &side);
	ok_all("%lu allocations of a prompt of a decode worker", n);
	ok(n >= 2, "are some");
	close_side(&side);
}

static void attempt_prompt(void *arg, unsigned long n)
{
	struct wire_key keys[3] = {0};
	struct transfer_ask ask = {.attempt = 1,
				   .prepare = asked_prompt(),
				   .keys = keys,
				   .n_keys = 3};
	struct prompt p;
	struct err e = {0};
	int r;

	short_from(n);
	r = prompt_init(&p, &ask, &e);
	check(r == (short_end() ? -ENOMEM : 0) && (r < 0) == (e.code == ENOMEM));
	prompt_release(&p);
}

TEST(prompt_init)
{
	unsigned long n = each_allocation(attempt_prompt, NULL);

	ok_all("%lu allocations of a PREPARE", n);
	ok(n >= 3, "are some");
}

/* ---- calls ---- */

enum { TOKENS = 300 };

static void never_suspend(void *connection)
{
	abort();
}

static uint32_t count_records(const struct buf *tokens)
{
	enum finish_reason finish;
	struct draw_result draw;
	uint32_t n = 0, of;
	size_t at = 0;

	while (call_record(tokens, &at, &of, &finish, &draw)) {
		check(draw.token == (int32_t)n && draw.n_top == 20 && draw.top_ids[19] == 19);
		n++;
	}
	check(at == tokens->len);
	return n;
}

static void attempt_call(void *arg, unsigned long n)
{
	static const struct endpoint endpoint = {.id = "cmpl-", .parse = openai_parse_completion};
	struct draw_result draw = {.n_top = 20, .top_ids[19] = 19};
	struct call_news news;
	struct buf tokens;
	struct call *c;
	struct err e = {0};
	int r = 0;

	short_from(n);
	c = call_new(&server, &endpoint);
	check((c == NULL) == short_failed);
	if (!c)
		return;
	c->text.ask.sampling.want_logprobs = true;
	c->text.ask.stream = true;
	check(call_arrive(c, &e) == 0);
	call_accept(c);
	for (draw.token = 0; r == 0 && draw.token < TOKENS; draw.token += r == 0)
		r = call_push(c, 0, FINISH_NONE, &draw);
	check(r == (short_end() ? -ENOMEM : 0));
	if (r < 0) {
		err_no_memory(&e);
		call_fail(c, &e);
	}
	buf_init(&tokens, SIZE_MAX / 2);
	call_take(c, &tokens, never_suspend, &news);
	check(news.failure.code == -r);
	check(count_records(&tokens) == (uint32_t)draw.token);
	buf_release(&tokens);
	call_unref(c);
	check(atomic_load(&server.calls) == 0 && atomic_load(&server.queued[QUEUE_REQUESTS]) == 0);
}

TEST(call)
{
	unsigned long n = each_allocation(attempt_call, NULL);

	ok_all("%lu allocations of a call: its tokens are there, up to the one that failed", n);
	ok(n >= 5, "are some");
}

/* ---- responses ---- */

static void attempt_store(void *arg, unsigned long n)
{
	const struct response_text text = {"\"x\"", 3};
	struct response_record r = {
		.id = "a", .owner = 1, .input = text, .output = text, .head = text, .tail = text};
	struct response_store *s = response_store_new(1 << 20, 1000);
	struct response_entry *e = response_entry_new(&r);
	struct response_hold h = {0};
	struct buf out;
	bool kept, other;

	check(s && e && response_store_put(s, e, NULL, 0));
	buf_init(&out, 1000);
	e = response_store_find(s, "a", 1, 0);
	response_store_hold(s, e, &h);
	response_store_drop(s, e);
	short_from(n);
	r.id = "b";
	e = response_entry_new(&r);
	kept = e && response_store_put(s, e, &h, 0);
	e = kept ? response_store_find(s, "b", 1, 0) : NULL;
	if (e)
		response_entry_items(e, &out);
	response_store_drop(s, e);
	r.id = "c";
	r.owner = 2;
	e = response_entry_new(&r);
	other = e && response_store_put(s, e, NULL, 0);
	check(!(kept && other && !out.failed) == short_end());
	check(response_store_count(s) == 1u + kept + other);
	response_store_release(s, &h);
	check(response_store_delete(s, "a", 1, 0) && response_store_delete(s, "b", 1, 0) == kept);
	check(response_store_delete(s, "c", 2, 0) == other && !response_store_bytes(s));
	response_store_free(s);
	buf_release(&out);
}

/* Lists items, one of them by an id with an escaped character. */
static void attempt_list(void *arg, unsigned long n)
{
	static const char items[] = "{\"role\":\"user\",\"content\":\"a\"},"
				    "{\"id\":\"\\\"\",\"role\":\"user\",\"content\":\"b\"},"
				    "{\"role\":\"assistant\",\"content\":\"c\"}";
	const struct response_text text = {items, sizeof(items) - 1};
	const struct responses_page page = {.limit = 2, .after = "item_2"};
	struct buf out;
	struct err e;
	int r;

	buf_init(&out, 1000);
	short_from(n);
	r = responses_list(&text, 1, &page, NULL, &out, &e);
	check((r < 0 || out.failed) == short_end() && (!r || r == -ENOMEM));
	buf_release(&out);
}

/* Lets an answer of a text and a call be streamed. */
static void attempt_answer(void *arg, unsigned long n)
{
	const struct openai_head h = {.id = "resp_1", .model = "m"};
	const struct responses_head head = {.fields = "\"a\":1", .fields_len = 5, .stream = true};
	const struct openai_usage u = {1, 1, 0, 0};
	struct openai_run run[] = {{KIND_CONTENT, 4}, {KIND_CALLS, 2}};
	struct openai_runs runs = {run, ARRAY_SIZE(run), 0};
	struct openai_delta d = {.content = "text",
				 .content_len = 4,
				 .runs = &runs,
				 .finish_reason = "stop"};
	struct responses_answer *a;
	struct openai_calls calls;
	struct buf out;
	int r;

	buf_init(&out, 1 << 16);
	check(!buf_reserve(&out, 1 << 15));
	openai_calls_init(&calls, 1000);
	openai_calls_begin(&calls, "f", 1);
	openai_calls_add(&calls, "{}", 2);
	d.calls = &calls;
	short_from(n);
	a = responses_answer_new(&h, &head);
	r = a ? 0 : -ENOMEM;
	if (!r)
		check(responses_answer_write(a, SIZE_MAX, &out));
	if (!r)
		r = responses_answer_take(a, &d);
	if (!r) {
		check(responses_answer_write(a, SIZE_MAX, &out));
		r = responses_answer_end(a, &u);
	}
	check(r == (short_end() ? -ENOMEM : 0));
	/* An event that the failure has cut is not written. The failure itself is, with the next number. */
	if (a && r) {
		char number[32];
		struct err e;
		int written = 0;

		for (const char *p = buf_str(&out); (p = strstr(p, "event: ")); p++)
			written++;
		snprintf(number, sizeof(number), "\"sequence_number\":%d,", written);
		err_no_memory(&e);
		buf_reset(&out);
		check(!responses_answer_fail(a, &e));
		check(responses_answer_write(a, SIZE_MAX, &out));
		check(!strncmp(buf_str(&out), "event: error\n", 13));
		check(strstr(buf_str(&out), number));
		check(strstr(buf_str(&out), "event: response.failed\n"));
	}
	responses_answer_free(a);
	openai_calls_release(&calls);
	buf_release(&out);
}

/* Lets an answer of two calls and a text be streamed in Ollama's shape, or be made whole. */
static void attempt_ollama(void *arg, unsigned long n)
{
	const struct openai_head h = {.id = "ollama-1", .model = "m"};
	const struct ollama_head own = {.model = "m", .chat = true, .stream = *(const bool *)arg};
	const struct ollama_times times = {0};
	const struct openai_usage u = {1, 1, 0, 0};
	struct openai_delta d = {.content = "text", .content_len = 4, .finish_reason = "stop"};
	struct ollama_answer *a;
	struct openai_calls calls;
	struct buf out;
	int r;

	buf_init(&out, 1 << 16);
	check(!buf_reserve(&out, 1 << 15));
	openai_calls_init(&calls, 1000);
	for (int i = 0; i < 2; i++) {
		openai_calls_begin(&calls, "f", 1);
		openai_calls_add(&calls, "{}", 2);
	}
	d.calls = &calls;
	short_from(n);
	a = ollama_answer_new(&h, &own);
	r = a ? ollama_answer_take(a, &d, 0) : -ENOMEM;
	if (!r) {
		check(ollama_answer_write(a, SIZE_MAX, &out));
		r = ollama_answer_end(a, &u, &times, 0);
	}
	check(r == (short_end() ? -ENOMEM : 0));
	if (a && r) {
		struct err e;

		err_no_memory(&e);
		buf_reset(&out);
		check(!ollama_answer_fail(a, &e));
		check(ollama_answer_write(a, SIZE_MAX, &out));
		check(!strcmp(buf_str(&out), "{\"error\":\"out of memory\"}\n"));
	}
	ollama_answer_free(a);
	openai_calls_release(&calls);
	buf_release(&out);
}

TEST(ollama)
{
	for (int stream = 0; stream < 2; stream++) {
		const unsigned long n = each_allocation(attempt_ollama, &(bool){stream});

		check(n > 4);
		ok_all("an answer in Ollama's shape at each of %lu allocations", n);
	}
}

TEST(responses)
{
	unsigned long n = each_allocation(attempt_store, NULL), m, k;
	json_malloc_t json_malloc;
	json_free_t json_free;

	m = each_allocation(attempt_answer, NULL);
	json_get_alloc_funcs(&json_malloc, &json_free);
	json_set_alloc_funcs(malloc, free);
	k = each_allocation(attempt_list, NULL);
	json_set_alloc_funcs(json_malloc, json_free);
	ok_all("%lu allocations of a store, %lu of an answer and %lu of a list: each failure is told",
	       n, m, k);
	ok(n >= 6 && m >= 8 && k >= 8, "are some");
}

/* ---- tool calls ---- */

struct attempt_choice {
	struct tokenizer *tokenizer;
	size_t format;
	const char *text;
};

static void attempt_choice(void *arg, unsigned long n)
{
	static const struct tool_parameter number = {"n", TOOLS_NUMBER};
	static const struct tool tool = {"f", &number, 1};
	const struct attempt_choice *a = arg;
	const struct choice_config config = {.tokenizer = a->tokenizer,
					     .reasoning = true,
					     .format = tools_format_at(a->format),
					     .tools = {&tool, 1}};
	struct ids ids = {0};
	struct choice c;
	int r;

	check(tokenizer_encode(a->tokenizer, a->text, strlen(a->text), true, NULL, &ids) == 0);
	short_from(n);
	r = choice_init(&c, &config);
	for (size_t i = 0; r == 0 && i < ids.len; i++) {
		struct draw_result draw = {.token = ids.v[i]};

		r = choice_push(&c, &draw, i + 1 == ids.len ? FINISH_LENGTH : FINISH_NONE);
	}
	check(r == (short_end() ? -ENOMEM : 0));
	check(r < 0 || (c.calls.n_begun == 1 && c.content.len));
	choice_release(&c);
	ids_release(&ids);
}

TEST(choice)
{
	struct attempt_choice a[] = {
		{.format = 0,
		 .text = "<tool_call>a\n<function=f>\n<parameter=s>\nbow and arrow\n</parameter>\n"
			 "<parameter=n>\n[1, {\"a\": 2}]\n</parameter>\n<parameter=n>\n12\n</parameter>\n"
			 "</function>\n</tool_call>\nDone"},
		{.format = 1,
		 .text = "<tool_call> {\"name\": \"f\", \"arguments\": \"{}\", \"id\": 7}\n</tool>"},
		{.format = 1,
		 .text = "<tool_call> {\"name\": \"\\u0066\", \"arguments\": \"\", \"id\": 7}\n</tool>"},
		{.format = 1,
		 .text = "<tool_call>{\"arguments\": {\"a\": \"\\u00e9\"}, \"name\": \"f\"}}"},
		{.format = 1,
		 .text = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call> So"},
		{.format = 2,
		 .text = "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"a\": [1, true]} Done"},
		{.format = 4, .text = "[f(a='bow', b=[1, {'c': None}])] and more"},
	};
	json_malloc_t json_malloc;
	json_free_t json_free;
	struct err e = {0};

	/* Allocations of the JSON library fail as well. */
	json_get_alloc_funcs(&json_malloc, &json_free);
	json_set_alloc_funcs(malloc, free);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++) {
		unsigned long n;

		check(model_tokenizer("models/lexis", &a[i].tokenizer, &e) == 0);
		n = each_allocation(attempt_choice, &a[i]);
		ok_all("%lu allocations of an answer with a call", n);
		ok(n >= 6, "are some");
		tokenizer_free(a[i].tokenizer);
	}
	json_set_alloc_funcs(json_malloc, json_free);
}

/* ---- files ---- */

static void attempt_trace(void *arg, unsigned long n)
{
	struct workload *w = NULL;
	struct err e = {0};
	int r;

	short_from(n);
	r = workload_open_trace(arg, &w, &e);
	check((r < 0) == short_end() && (r == 0) == (w != NULL));
	check(r == 0 || strstr(e.text, "memory"));
	workload_free(w);
}

TEST(trace)
{
	const char *path = scratch_path("trace");
	FILE *f = fopen(path, "w");
	unsigned long n;

	check(f &&
	      fputs("{\"at\": 1, \"prompt\": [1, {\"seed\": 2, \"tokens\": 9000}]}\n"
		    "{\"at\": 2, \"prompt\": [7]}\n",
		    f) >= 0 &&
	      fclose(f) == 0);
	n = each_allocation(attempt_trace, (void *)path);
	ok_all("%lu allocations of a trace", n);
	ok(n >= 6, "are some");
}

/* The number of the call of json_object_set_new that fails, as if memory were short. 1: the next one; 0: none. */
static unsigned long json_countdown;

int __real_json_object_set_new(json_t *object, const char *key, json_t *value);
int __wrap_json_object_set_new(json_t *object, const char *key, json_t *value);

int __wrap_json_object_set_new(json_t *object, const char *key, json_t *value)
{
	if (!json_countdown || --json_countdown)
		return __real_json_object_set_new(object, key, value);
	json_decref(value);
	return -1;
}

/* Exports the model, and reads the new config.json into *ret. */
static int try_export(const struct weights *w, const struct model_config *c, const char *json,
		      struct buf *ret, struct err *e)
{
	const char *out = scratch_path("out");
	char path[4096];
	int r = weights_export(w, c, json, out, 0, e);

	buf_reset(ret);
	snprintf(path, sizeof(path), "%s/config.json", out);
	if (r == 0)
		r = file_read(AT_FDCWD, path, path, ret, e);
	scratch_remove_tree(out);
	return r;
}

TEST(export)
{
	struct model_config *c = calloc(1, sizeof(*c));
	struct weight *table = NULL;
	struct weights *w = NULL;
	struct buf json, want, got;
	struct err e = {0};
	unsigned long n = 0;
	bool failed;
	int r;

	buf_init(&json, 1 << 20);
	buf_init(&want, 1 << 20);
	buf_init(&got, 1 << 20);
	check(c && model_config_open("models/lexis", c, &e) == 0);
	check(file_read(AT_FDCWD, "models/lexis/config.json", "config", &json, &e) == 0);
	check((table = layers_weights(c)) && weights_synthetic(1, NULL, c, table, &w) == 0);
	check(try_export(w, c, buf_str(&json), &want, &e) == 0);
	do {
		json_countdown = ++n;
		r = try_export(w, c, buf_str(&json), &got, &e);
		failed = !json_countdown;
		json_countdown = 0;
		check(failed ? r == -EINVAL && strstr(e.text, "memory") != NULL : r == 0);
	} while (failed && n < 100);
	ok_all("each of %lu members of a config.json is there, or the file is not written", n - 1);
	ok(n > 4, "which are some");
	is_str(buf_str(&got), buf_str(&want), "the file that is written");
	buf_release(&json);
	buf_release(&want);
	buf_release(&got);
	weights_close(w);
	free(table);
	free(c);
}

/* ---- grammars ---- */

static const char *letter(const void *arg, int32_t id, size_t *len)
{
	*len = 2;
	return &"abcdefghijklmnopq\"\"{{}}::01"[id];
}

/* Builds a grammar in one of four ways, then its automaton, a vocabulary and two masks. */
static void attempt_grammar(void *arg, unsigned long n)
{
	static const struct constraint_text texts[] = {{"yes", 3}, {"no", 2}};
	static const char gbnf[] = "root ::= a | \"b\" [^a-c\u4e16]{2,3} root?\na ::= \"xy\"";
	static const char regex[] = "^(a|b+)[^\\W\\d]{2}\\p{Lu}|c$";
	static const char schema[] =
		"{\"type\": \"object\", \"properties\": {\"a\": {\"pattern\": \"^b\"}, \"c\": {\"enum\": [1, [2]], \"not\": {\"const\": 3}},"
		" \"l\": {\"contains\": {\"minimum\": 2}, \"maxContains\": 2, \"minItems\": 1}, \"u\": {\"items\": {\"enum\": [1, 2]},"
		" \"uniqueItems\": true}, \"i\": {\"multipleOf\": 3, \"oneOf\": [{\"minimum\": 1}, {\"maximum\": 9}]}},"
		" \"$id\": \"http://e.org/\", \"$anchor\": \"q\","
		" \"patternProperties\": {\"^a\": {\"type\": \"string\"}}, \"required\": [\"a\", \"d\"],"
		" \"allOf\": [{\"maxProperties\": 9}], \"anyOf\": [{\"minProperties\": 1}, {\"$ref\": \"#/$defs/x\"}],"
		" \"$defs\": {\"x\": {\"type\": \"object\", \"maxProperties\": 7}}}";
	struct token_source source = {.n = 26, .bytes = letter};
	json_t *json = json_loads(
		"{\"properties\": {\"a\": {}}, \"additionalProperties\": {\"type\": \"integer\"}}",
		0, NULL);
	json_t *large = json_loads(schema, 0, NULL);
	size_t kind = (size_t)arg;
	struct token_trie *t = NULL;
	struct token_masks *m = NULL;
	struct automaton *a = NULL;
	struct grammar *g = NULL;
	const uint32_t *mask;
	struct err e = {0};
	int r = 0;

	check(json && large);
	short_from(n);
	switch (kind) {
	case 0: r = constraint_choice(texts, 2, &g, &e); break;
	case 1: r = constraint_gbnf(gbnf, strlen(gbnf), &g, &e); break;
	case 2: r = constraint_regex(regex, strlen(regex), &g, &e); break;
	case 3: r = constraint_json_schema(json, &g, &e); break;
	case 4: r = constraint_json_schema(large, &g, &e); break;
	}
	if (r && !strstr(e.text, "memory")) {
		printf("# %s\n", e.text);
		check(!"another sentence");
	}
	if (!r)
		r = automaton_new(g, 1 << 20, NULL, &a);
	if (!r)
		r = token_trie_new(&source, &t);
	if (!r)
		r = token_masks_new(t, a, 1000, &m);
	for (uint32_t state = AUTOMATON_START; !r && state < automaton_size(a) && state < 4;
	     state++)
		r = token_mask(m, state, &mask, &e);
	check(r == (short_end() ? -ENOMEM : 0));
	token_masks_free(m);
	token_trie_free(t);
	automaton_free(a);
	grammar_free(g);
	json_decref(json);
	json_decref(large);
}

TEST(grammars)
{
	for (size_t kind = 0; kind < 5; kind++) {
		unsigned long n = each_allocation(attempt_grammar, (void *)kind);

		ok_all("grammar %zu: each of %lu allocations fails once", kind, n);
		ok(n > 10, "which are some");
	}
}

static struct tokenizer *tokenizer_of_lexis;

/* The masks of a request with a grammar, allowed tokens and bad words, while three tokens are drawn. */
static void attempt_steering(void *arg, unsigned long n)
{
	const int32_t allowed[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, ends[] = {2}, bad[] = {5, 6};
	const struct steering_word words[] = {{bad, 1}, {bad, 2}};
	const struct steering_config c = {.tokenizer = tokenizer_of_lexis,
					  .trie = arg,
					  .vocab_size = 8192,
					  .n_choices = 2,
					  .grammar = NULL,
					  .automaton_bytes = 1 << 20,
					  .allowed = allowed,
					  .n_allowed = 9,
					  .words = words,
					  .n_words = 2,
					  .ends = ends,
					  .n_ends = 1};
	struct steering_config with = c, thinking = c;
	struct steering *s[3] = {NULL};
	const uint32_t *mask;
	struct err e = {0};
	int r = 0;

	with.allowed = NULL;
	with.n_allowed = 0;
	thinking.thinking = true;
	short_from(n);
	r = constraint_regex("[a-z ]{4,90}", 12, &with.grammar, &e);
	if (!r)
		r = steering_new(&with, &s[0], &e);
	if (!r)
		r = constraint_json_object(&thinking.grammar, &e);
	if (!r)
		r = steering_new(&thinking, &s[1], &e);
	if (!r)
		r = steering_new(&c, &s[2], &e);
	for (int k = 0; !r && k < 3; k++) {
		for (size_t i = 0; !r && i < ARRAY_SIZE(s); i++) {
			int32_t id = 0;

			r = steering_mask(s[i], 1, &mask, &e);
			while (!r && !(mask[id / 32] >> id % 32 & 1))
				id++;
			if (!r)
				r = steering_take(s[i], 1, id, &e);
		}
	}
	check(r == (short_end() ? -ENOMEM : 0));
	check(!r || strstr(e.text, "memory"));
	for (size_t i = 0; i < ARRAY_SIZE(s); i++)
		steering_free(s[i]);
}

/* Two requests that share an automaton. Others take all memory then, so that one of the two leaves it when it grows. A
 * failure of the shared automaton sends that one off as well, so not every failure ends a request. */
static void attempt_shared(void *arg, unsigned long n)
{
	enum { MOST = 8 << 20 };
	static const int32_t ends[] = {2};
	static _Atomic uint64_t all, own;
	const struct account_bounds bounds = {&all, &own, MOST};
	struct steering_config c = {.tokenizer = tokenizer_of_lexis,
				    .trie = arg,
				    .vocab_size = 8192,
				    .n_choices = 1,
				    .automaton_bytes = 1 << 20,
				    .bounds = bounds,
				    .ends = ends,
				    .n_ends = 1};
	struct steering *s[2] = {NULL};
	struct account others = {0};
	struct list shared;
	const uint32_t *mask;
	struct err e = {0};
	int r = 0;

	list_init(&shared);
	check(account_open(&others, &bounds, 0) == 0);
	short_from(n);
	for (size_t i = 0; !r && i < ARRAY_SIZE(s); i++) {
		r = constraint_regex("[a-z ]{4,90}", 12, &c.grammar, &e);
		if (!r)
			r = steering_new(&c, &s[i], &e);
		if (!r)
			steering_share(s[i], &shared);
	}
	account_add(&others, MOST - all);
	for (int32_t k = 0; !r && k < 60; k++) {
		int32_t id = 700 * k % 8192;

		r = steering_mask(s[k % 2], 0, &mask, &e);
		while (!r && !(mask[id / 32] >> id % 32 & 1))
			id = (id + 1) % 8192;
		if (!r)
			r = steering_take(s[k % 2], 0, id, &e);
	}
	check(short_end() ? r == 0 || (r == -ENOMEM && strstr(e.text, "memory")) : r == 0);
	for (size_t i = 0; i < ARRAY_SIZE(s); i++)
		steering_free(s[i]);
	account_close(&others);
	check(!all && !own);
}

TEST(steering)
{
	struct token_trie *trie = NULL;
	struct err e = {0};
	unsigned long n;

	if (model_tokenizer("models/lexis", &tokenizer_of_lexis, &e) < 0 ||
	    steering_trie(tokenizer_of_lexis, NULL, 0, &trie) < 0)
		abort();
	n = each_allocation(attempt_steering, trie);
	ok_all("steering: each of %lu allocations fails once", n);
	ok(n > 30, "which are some");
	n = each_allocation(attempt_shared, trie);
	ok_all("a shared automaton: each of %lu allocations fails once", n);
	ok(n > 60, "which are some");
	token_trie_free(trie);
	tokenizer_free(tokenizer_of_lexis);
}

/* The grammar of calls of one format. */
static void attempt_calls(void *arg, unsigned long n)
{
	static const char text[] =
		"[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\","
		" \"minLength\": 2}, \"b\": {\"enum\": [\"x\", 2]}, \"c\": {\"pattern\": \"^a\"}},"
		" \"required\": [\"a\", \"d\"]}}}, {\"function\": {\"name\": \"g\"}}]";
	static const struct tool_parameter types[] = {{"b", TOOLS_STRING | TOOLS_NUMBER}};
	static const struct tool tools[] = {{"f", types, 1}, {"g"}};
	static const struct tool_list list = {tools, 2};
	json_t *json = json_loads(text, 0, NULL);
	struct tools_demand d = {
		.format = arg, .tools = json, .list = &list, .strict = true, .rest = TOOLS_OR_TEXT};
	struct grammar *g = NULL;
	struct err e = {0};
	int r;

	short_from(n);
	r = tools_grammar(&d, NULL, &g, &e);
	check(r == (short_end() ? -ENOMEM : 0));
	check(!r || strstr(e.text, "memory"));
	grammar_free(g);
	json_decref(json);
}

TEST(calls)
{
	for (size_t i = 0; i < 5; i++) {
		const struct tools_format *f = tools_format_at(i);
		unsigned long n = each_allocation(attempt_calls, (void *)f);

		ok_all("calls of %s: each of %lu allocations fails once", tools_name(f), n);
	}
}

int main(void)
{
	struct err e = {0};

	log_set_level(LOG_LEVEL_ERROR);
	/* These tests allocate the blocks of a prefill worker, some 256 MiB (shipping.h), again and again, and write to
	 * none of them. MALLOC_PERTURB_ would fill them all, which takes long. */
	mallopt(M_PERTURB, 0);
	queue_init(&server.inbox);
	check(lifecycle_new(&server.lifecycle, &e) == 0);
	run_tests();
	lifecycle_free(server.lifecycle);
	queue_release(&server.inbox);
	return done();
}
