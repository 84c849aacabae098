/* Work of the daemon whose memory is short (short_memory.h): prompts are handed over, calls take tokens, answers with
 * tool calls are read, and traces. Each failure has to be reported, leave nothing behind and disturb nothing else. The
 * transfer thread is a double: the tests themselves make the notes that it would send. */
#include "tests/short_memory.h"

#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- traces ---- */

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
