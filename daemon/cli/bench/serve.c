/* `tigon bench serve`: loads a server over HTTP. For each number of streams it opens so many connections, but no more
 * than there are requests. On each connection it sends a request, reads the whole answer and sends the next request,
 * until all requests are done. One thread does all of this, with epoll.
 *
 * Numbers of tokens are those in the `usage` that the server sends. The times between tokens are measured between
 * events with text, so they are exact only if the server sends an event with text for each token. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench_commit.inc"
#include "daemon/cli/bench/list.h"
#include "daemon/cli/command.h"
#include "daemon/cli/http_client.h"
#include "daemon/cli/samples.h"

#define DEFAULT_URL "http://127.0.0.1:8080"

enum { STREAMS_MAX = 4096, EVENTS_MAX = 256 };

static const char *const builtin_prompts[] = {
	"What is a violin?",
	"define river",
	"Synonyms of big?",
	"Define candle as JSON.",
	"What does to wander mean?",
	"What is the opposite of cold?",
	"Tell me about the word anchor.",
	"Use meadow in a sentence.",
};

struct settings {
	const char *url, *model, *prompts_path, *schema_path, *api_key_file, *tls_ca;
	struct bench_list levels;
	uint64_t requests, max_tokens;
	double temperature;
	bool ignore_eos, completions, json;
	char **prompts; /* [n_prompts], owned */
	size_t n_prompts;
	char *text;	/* the text that prompts point into, owned */
	json_t *schema; /* of the answers, owned; NULL: they are free */
};

struct level {
	const struct settings *settings;
	const struct target *target;
	int epoll_fd;
	uint64_t requests, started, done, failed, tokens;
	struct samples ttft, itl; /* ns */
	struct err first_error;	  /* of the first request that failed */
};

struct client {
	struct level *level;
	struct stream stream;
	uint64_t asked_ns, last_ns, tokens;
	bool ended; /* [DONE] has come */
	bool error; /* an event with an error has come, or one that is not JSON */
};

/* Returns whether the event has text of the answer. */
static bool has_text(json_t *event)
{
	json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
	json_t *delta = json_object_get(choice, "delta");
	const char *texts[] = {
		json_string_value(json_object_get(choice, "text")),
		json_string_value(json_object_get(delta, "content")),
		json_string_value(json_object_get(delta, "reasoning_content")),
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i] && texts[i][0])
			return true;
	return false;
}

static void take_event(struct stream *s, const char *data, size_t len)
{
	struct client *c = s->user;
	uint64_t now = clock_now_ns();
	json_t *event, *tokens;

	if (!strcmp(data, "[DONE]")) {
		c->ended = true;
		return;
	}
	event = json_loadb(data, len, JSON_ALLOW_NUL, NULL);
	if (!event || json_object_get(event, "error"))
		c->error = true;
	tokens = json_object_get(json_object_get(event, "usage"), "completion_tokens");
	if (tokens)
		c->tokens = (uint64_t)json_integer_value(tokens);
	if (has_text(event)) {
		struct samples *times = c->last_ns ? &c->level->itl : &c->level->ttft;

		/* Without memory there are fewer samples. */
		(void)!samples_add(times, (double)(now - (c->last_ns ? c->last_ns : c->asked_ns)));
		c->last_ns = now;
	}
	json_decref(event);
}

/* Returns the JSON text of a request, which the caller frees; NULL: out of memory. */
static char *request_body(const struct settings *o, const char *prompt)
{
	json_t *body = json_pack("{s:b, s:{s:b}, s:I, s:f}", "stream", 1, "stream_options",
				 "include_usage", 1, "max_tokens", (json_int_t)o->max_tokens,
				 "temperature", o->temperature);
	char *text = NULL;

	if (!body)
		return NULL;
	if (o->model)
		json_object_set_new(body, "model", json_string(o->model));
	if (o->ignore_eos)
		json_object_set_new(body, "ignore_eos", json_true());
	if (o->schema)
		json_object_set_new(body, "response_format",
				    json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema",
					      "json_schema", "name", "answer", "schema",
					      o->schema));
	if (o->completions)
		json_object_set_new(body, "prompt", json_string(prompt));
	else
		json_object_set_new(body, "messages",
				    json_pack("[{s:s, s:s}]", "role", "user", "content", prompt));
	text = json_dumps(body, JSON_COMPACT);
	json_decref(body);
	return text;
}

/* Sends the next request. False: none is left. */
static bool ask(struct client *c)
{
	struct level *l = c->level;
	const struct settings *o = l->settings;
	struct epoll_event ev = {.data.ptr = c};
	char *body;
	bool fresh;
	int r;

	while (l->started < l->requests) {
		struct err e = {0};

		body = request_body(o, o->prompts[l->started % o->n_prompts]);
		l->started++;
		c->last_ns = c->tokens = 0;
		c->ended = c->error = false;
		c->asked_ns = clock_now_ns();
		r = body ? stream_send(&c->stream, l->target, "POST",
				       o->completions ? "/v1/completions" : "/v1/chat/completions",
				       body, &fresh, &e)
			 : err_no_memory(&e);
		free(body);
		if (r < 0) {
			l->failed++;
			l->done++;
			if (!l->first_error.code)
				l->first_error = e;
			continue;
		}
		ev.events = stream_events(&c->stream);
		epoll_ctl(l->epoll_fd, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, c->stream.fd, &ev);
		return true;
	}
	return false;
}

/* Counts a request whose answer is complete or whose connection broke. */
static void finish(struct client *c, const struct err *e)
{
	struct level *l = c->level;

	l->done++;
	l->tokens += c->tokens;
	if (!e->code && c->stream.status == 200 && c->ended && !c->error)
		return;
	l->failed++;
	if (l->first_error.code)
		return;
	if (e->code)
		l->first_error = *e;
	else
		err_set(&l->first_error, EPROTO, "status %d: %.300s", c->stream.status,
			buf_str(&c->stream.body));
}

static void work(struct client *c)
{
	struct epoll_event ev = {.data.ptr = c};
	const uint32_t before = stream_events(&c->stream);
	struct err e = {0};
	int r = stream_io(&c->stream, &e);

	if (r < 0 && stream_retry(&c->stream, c->level->target, &e)) {
		ev.events = stream_events(&c->stream);
		epoll_ctl(c->level->epoll_fd, EPOLL_CTL_ADD, c->stream.fd, &ev);
		return;
	}
	if (!r) {
		ev.events = stream_events(&c->stream);
		if (ev.events != before) {
			epoll_ctl(c->level->epoll_fd, EPOLL_CTL_MOD, c->stream.fd, &ev);
		}
		return;
	}
	finish(c, &e);
	/* If there is no next request, close the connection. An idle connection may have another event, when the server
	 * closes it, and `work` would take that for the end of an answer. */
	if (!ask(c))
		stream_release(&c->stream);
}

static int run_level(struct level *l, uint32_t n_streams, struct err *e)
{
	struct client *clients = calloc(n_streams, sizeof(*clients));
	struct epoll_event events[EVENTS_MAX];

	if (!clients)
		return err_no_memory(e);
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0) {
		free(clients);
		return err_set(e, errno, "epoll: %s", strerror(errno));
	}
	for (uint32_t i = 0; i < n_streams; i++) {
		clients[i].level = l;
		stream_init(&clients[i].stream, take_event, &clients[i]);
		ask(&clients[i]);
	}
	while (l->done < l->requests) {
		int n = epoll_wait(l->epoll_fd, events, EVENTS_MAX, -1);

		for (int i = 0; i < n; i++)
			work(events[i].data.ptr);
	}
	for (uint32_t i = 0; i < n_streams; i++)
		stream_release(&clients[i].stream);
	close(l->epoll_fd);
	free(clients);
	return 0;
}

static void print_level(const struct settings *o, uint32_t n_streams, struct level *l,
			double seconds)
{
	double rate = (double)l->tokens / seconds;
	double ttft50 = samples_nearest(&l->ttft, .5) / 1e6,
	       ttft99 = samples_nearest(&l->ttft, .99) / 1e6;
	double itl50 = samples_nearest(&l->itl, .5) / 1e6,
	       itl99 = samples_nearest(&l->itl, .99) / 1e6,
	       itl_max = samples_nearest(&l->itl, 1) / 1e6;

	if (o->json)
		printf("{\"streams\":%u,\"requests\":%llu,\"failed\":%llu,\"tokens\":%llu,"
		       "\"seconds\":%.3f,\"tokens_per_second\":%.1f,\"ttft_p50_ms\":%.2f,"
		       "\"ttft_p99_ms\":%.2f,\"itl_p50_ms\":%.3f,\"itl_p99_ms\":%.3f,"
		       "\"itl_max_ms\":%.3f}\n",
		       n_streams, (unsigned long long)l->requests, (unsigned long long)l->failed,
		       (unsigned long long)l->tokens, seconds, rate, ttft50, ttft99, itl50, itl99,
		       itl_max);
	else
		printf("%u\t%llu\t%llu\t%.1f\t%.2f\t%.2f\t%.3f\t%.3f\t%.3f\n", n_streams,
		       (unsigned long long)l->requests, (unsigned long long)l->failed, rate, ttft50,
		       ttft99, itl50, itl99, itl_max);
	fflush(stdout);
}

/* Makes one measurement. 1: at least one request failed, and *e has the first error. < 0: the measurement could not be
 * made. */
static int measure(const struct settings *o, const struct target *t, uint32_t n_streams,
		   uint64_t requests, bool print, struct err *e)
{
	struct level l = {.settings = o, .target = t, .requests = requests};
	uint64_t begin = clock_now_ns();
	int r = run_level(&l, n_streams, e);

	if (!r && print)
		print_level(o, n_streams, &l, (double)(clock_now_ns() - begin) / 1e9);
	if (!r && l.failed) {
		*e = l.first_error;
		r = 1;
	}
	samples_release(&l.ttft);
	samples_release(&l.itl);
	return r;
}

static int measure_all(const struct settings *o, struct err *e)
{
	struct target target;
	bool failed = false;
	int r = target_parse(o->url, o->tls_ca, &target, e);

	if (r < 0)
		return r;
	r = target_key(&target, o->api_key_file, e);
	/* One request is sent before the measurements and not counted, because it may find caches cold. */
	if (!r && (r = measure(o, &target, 1, 1, false, e)) != 0) {
		err_prefix(e, "%s", o->url);
		target_release(&target);
		return r < 0 ? r : -EPROTO;
	}
	if (!r && !o->json)
		printf("# tigon " TIGON_VERSION ", commit " BENCH_COMMIT "\n# url %s\n# model %s\n",
		       o->url, o->model ? o->model : "none named");
	if (!r && !o->json)
		printf("streams\trequests\tfailed\ttokens/s\tttft_p50_ms\tttft_p99_ms\titl_p50_ms\t"
		       "itl_p99_ms\titl_max_ms\n");
	for (uint32_t i = 0; r >= 0 && i < o->levels.n; i++) {
		uint64_t n = o->requests ? o->requests : MAX(4ull * o->levels.v[i], 8ull);

		r = measure(o, &target, o->levels.v[i], n, true, e);
		failed |= r > 0;
	}
	target_release(&target);
	return r < 0 ? r : failed ? -EPROTO : 0;
}

/* ---- options ---- */

static int take_temperature(const struct option_def *d, const char *text, void *member,
			    struct err *e)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end || !isfinite(v) || v < 0)
		return err_set(e, EINVAL, "--%s: \"%s\" is not a number from 0", d->name, text);
	*(double *)member = v;
	return 0;
}

static int read_prompts(struct settings *o, struct err *e)
{
	FILE *f = fopen(o->prompts_path, "r");
	size_t size = 0;
	int code = 0;

	if (!f)
		return err_set(e, errno, "--prompts %s: %s", o->prompts_path, strerror(errno));
	if (getdelim(&o->text, &size, 0, f) < 0) {
		code = ferror(f) ? errno : 0;
		size = 0;
	}
	fclose(f);
	if (code)
		return err_set(e, code, "--prompts %s: %s", o->prompts_path, strerror(code));
	o->prompts = calloc(size + 1, sizeof(*o->prompts));
	if (!o->prompts)
		return err_no_memory(e);
	for (char *line = size ? o->text : NULL, *next; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		if (*line)
			o->prompts[o->n_prompts++] = line;
	}
	return o->n_prompts ? 0 : err_set(e, EINVAL, "--prompts %s: no lines", o->prompts_path);
}

static int read_schema(struct settings *o, struct err *e)
{
	json_error_t error;

	if (!o->schema_path)
		return 0;
	o->schema = json_load_file(o->schema_path, 0, &error);
	return o->schema ? 0 : err_set(e, EINVAL, "--schema %s: %s", o->schema_path, error.text);
}

static int use_builtin_prompts(struct settings *o, struct err *e)
{
	o->prompts = calloc(ARRAY_SIZE(builtin_prompts), sizeof(*o->prompts));
	if (!o->prompts)
		return err_no_memory(e);
	for (size_t i = 0; i < ARRAY_SIZE(builtin_prompts); i++)
		o->prompts[o->n_prompts++] = (char *)(uintptr_t)builtin_prompts[i];
	return 0;
}

#define AT(member) offsetof(struct settings, member)

static const struct option_def table[] = {
	{"url", "URL", OPTION_TEXT, AT(url), .initial_text = DEFAULT_URL, .text = "the server"},
	{"api-key-file", "FILE", OPTION_TEXT, AT(api_key_file), .initial_text = "none",
	 .text = "a file of keys, of which the first is sent"},
	{"tls-ca", "FILE", OPTION_TEXT, AT(tls_ca), .initial_text = "those of the system",
	 .text = "certificates to trust with https://, in PEM"},
	{"model", "NAME", OPTION_TEXT, AT(model), .initial_text = "none is named",
	 .text = "the model to ask for"},
	{"concurrency", "LIST", OPTION_OWN, AT(levels), .min = 1, .max = STREAMS_MAX,
	 .take = bench_list_take, .initial_text = "1,8,32", .read_initial = true,
	 .text = "numbers of streams, one measurement each"},
	{"requests", "N", OPTION_NUMBER, AT(requests), .min = 1, .max = 100000000,
	 .initial_text = "4 a stream, at least 8", .text = "requests of each measurement"},
	{"max-tokens", "N", OPTION_NUMBER, AT(max_tokens), .min = 1, .max = INT32_MAX,
	 .initial = 128, .text = "tokens of each answer"},
	{"ignore-eos", NULL, OPTION_FLAG, AT(ignore_eos),
	 .text = "generate all tokens, also past the end of an answer"},
	{"prompts", "FILE", OPTION_TEXT, AT(prompts_path), .initial_text = "a few built in",
	 .text = "prompts, one a line"},
	{"completions", NULL, OPTION_FLAG, AT(completions),
	 .text = "ask /v1/completions with the prompts as they are"},
	{"schema", "FILE", OPTION_TEXT, AT(schema_path), .initial_text = "answers are free",
	 .text = "a JSON schema that all answers follow"},
	{"temperature", "T", OPTION_OWN, AT(temperature), .take = take_temperature,
	 .initial_text = "0", .read_initial = true, .text = "temperature of the draws"},
	{"json", NULL, OPTION_FLAG, AT(json), .text = "print JSON, an object a line"},
};

int bench_serve(int argc, char **argv, struct err *e)
{
	struct settings o = {.url = DEFAULT_URL};
	int r = option_table_command(table, ARRAY_SIZE(table), "bench serve [--name value ...]",
				     argc, argv, &o, e);

	if (r == 0)
		r = o.prompts_path ? read_prompts(&o, e) : use_builtin_prompts(&o, e);
	if (r == 0)
		r = read_schema(&o, e);
	if (r == 0)
		r = measure_all(&o, e);
	json_decref(o.schema);
	free(o.prompts);
	free(o.text);
	return r;
}
