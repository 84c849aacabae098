/* daemon/http: every request gets a status, even when memory is short, and the client gets time to read the answer. A real
 * http thread serves /tokenize, /metrics and errors. Allocations of its own code fail, one after the other; those of
 * libmicrohttpd do not. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/http/exchange.h"
#include "daemon/http/http.h"
#include "daemon/lifecycle.h"
#include "daemon/request/text.h"
#include "tests/tap.h"

/* The linker's --wrap (meson.build) makes a call of NAME one of __wrap_NAME; __real_NAME is the function itself. */
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
struct connection *__real_watch_open(struct watch *w, bool admin, int fd,
				     const struct sockaddr *from);
void __real_watch_answering(struct watch *w, struct connection *c, struct call *call);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
struct connection *__wrap_watch_open(struct watch *w, bool admin, int fd,
				     const struct sockaddr *from);
void __wrap_watch_answering(struct watch *w, struct connection *c, struct call *call);

static struct server server;
static uint16_t port;
static _Thread_local bool is_http; /* this is the http thread */
static _Atomic long
	countdown; /* the allocation of the http thread that fails: 1 is the next; 0: none */
static _Atomic bool failed;   /* that allocation has failed */
static _Atomic int n_large;   /* times that this thread asked for more than SMALL_BODY bytes */
static _Atomic int n_answers; /* answers without a call that have begun, as the watch was told */

static bool fails_now(void)
{
	long n = is_http ? atomic_load(&countdown) : 0;

	if (n)
		atomic_store(&countdown, n - 1);
	if (n == 1)
		atomic_store(&failed, true);
	return n == 1;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	atomic_fetch_add(&n_large, is_http && size > SMALL_BODY);
	return fails_now() ? NULL : __real_realloc(p, size);
}

struct connection *__wrap_watch_open(struct watch *w, bool admin, int fd,
				     const struct sockaddr *from)
{
	is_http = true;
	return __real_watch_open(w, admin, fd, from);
}

void __wrap_watch_answering(struct watch *w, struct connection *c, struct call *call)
{
	atomic_fetch_add(&n_answers, !call);
	__real_watch_answering(w, c, call);
}

/* Sends a request on a connection of its own, and reads until the server closes it. Returns the status, and 0 if there
 * was none. *ret_text, if it is not NULL: the answer, valid until the next call. */
static int ask(const char *request, const char **ret_text)
{
	static char text[1 << 16];
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	size_t len = 0;
	ssize_t n;

	check(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	check(send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request));
	while (len < sizeof(text) - 1 && (n = recv(fd, text + len, sizeof(text) - 1 - len, 0)) > 0)
		len += (size_t)n;
	text[len] = 0;
	close(fd);
	if (ret_text)
		*ret_text = text;
	return strncmp(text, "HTTP/1.1 ", 9) ? 0 : (int)strtol(text + 9, NULL, 10);
}

#define HEAD "Host: localhost\r\nConnection: close\r\n"

static const struct {
	const char *request;
	int status;
} rows[] = {
	{"GET /health HTTP/1.1\r\n" HEAD "\r\n", 200},
	{"GET /metrics HTTP/1.1\r\n" HEAD "\r\n", 200},
	{"OPTIONS /tokenize HTTP/1.1\r\n" HEAD "\r\n", 200},
	{"POST /tokenize HTTP/1.1\r\n" HEAD "Content-Length: 14\r\n\r\n{\"prompt\":\"a\"}", 200},
	{"POST /tokenize HTTP/1.1\r\n" HEAD "Content-Length: 2\r\n\r\n{]", 400},
	{"GET /nothing HTTP/1.1\r\n" HEAD "\r\n", 404},
	{"POST /nothing HTTP/1.1\r\n" HEAD "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
	 404},
	{"POST /tokenize HTTP/1.1\r\n" HEAD "Content-Length: 99999999999\r\n\r\n", 413},
	{"GET /health HTTP/1.1\r\n" HEAD "Host: b\r\n\r\n", 400},
};

TEST(memory_is_short)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int wrong = 0;
		long n = 0;

		do {
			const char *text;
			int status;

			atomic_store(&failed, false);
			atomic_store(&countdown, ++n);
			status = ask(rows[i].request, &text);
			atomic_store(&countdown, 0);
			if (!atomic_load(&failed))
				wrong += status != rows[i].status;
			else if (status != rows[i].status)
				wrong += status != 503 || !strstr(text, "out_of_memory") ||
					 !strstr(text, "Retry-After: 2\r\n");
		} while (atomic_load(&failed) && n < 1000);
		ok(n > 2 && n < 1000, "%ld allocations failed: %.20s", n - 1, rows[i].request);
		is_int(wrong, 0, "each time there was a status");
	}
}

/* Memory for a large body is reserved for all of it, also if its length is not known: so the bytes that are counted are
 * those that it takes, and it is not copied again and again. */
TEST(room_for_bodies)
{
	enum { LENGTH = 1000000 };
	static char request[LENGTH + 200];
	static const char *const heads[] = {
		"POST /tokenize HTTP/1.1\r\n" HEAD "Content-Length: 1000000\r\n\r\n",
		"POST /tokenize HTTP/1.1\r\n" HEAD "Transfer-Encoding: chunked\r\n\r\nf4240\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		size_t n = (size_t)snprintf(request, sizeof(request), "%s", heads[i]);

		memset(request + n, ' ', LENGTH);
		snprintf(request + n + LENGTH, sizeof(request) - n - LENGTH, "%s",
			 i ? "\r\n0\r\n\r\n" : "");
		atomic_store(&n_large, 0);
		is_int(ask(request, NULL), 400, "a body of a million spaces");
		is_int(atomic_load(&n_large), 2,
		       "it gets room when it becomes large, and then once more");
		is_int((long long)atomic_load(&server.metrics.body_bytes), 0, "which is freed");
	}
}

/* Owners that share a counter with one key have counters of their own with another. This server is the test's own,
 * because the http thread reads the key of the other one. */
TEST(body_shares)
{
	enum { OWNERS = 2000 };
	static size_t first[OWNERS];
	static struct server own;
	unsigned same = 0, still = 0;

	for (uint64_t i = 0; i < OWNERS; i++)
		first[i] = server_share(&own, i + 1);
	own.owner_key = 1234567;
	for (uint64_t i = 0; i < OWNERS; i++)
		for (uint64_t k = 0; k < i; k++)
			if (first[i] == first[k]) {
				same++;
				still += server_share(&own, i + 1) == server_share(&own, k + 1);
			}
	ok(same < 600, "%u of 2 million pairs of owners share a counter, about 488 expected", same);
	ok(still < 10, "%u of them still do with another key", still);
}

TEST(time_to_read)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool call =
			!strncmp(rows[i].request, "POST /tokenize", 14) && rows[i].status != 413;
		int before = atomic_load(&n_answers);

		is_int(ask(rows[i].request, NULL), rows[i].status, "%.20s", rows[i].request);
		is_int(atomic_load(&n_answers) - before, !call,
		       "the watch knows of an answer without a call");
	}
}

int main(void)
{
	static const struct networks nobody;
	static const struct api_keys none;
	struct http_listener listener = {.trusted = &nobody, .keys = &none};
	struct watch *watch;
	struct http *http;
	struct err e = {0};

	log_set_level(LOG_LEVEL_ERROR);
	metrics_init(&server.metrics);
	server.options = (struct options){.model = "models/lexis",
					  .max_body = 1 << 20,
					  .max_queued_requests = 10,
					  .answer_memory = 1 << 30};
	server.template_arguments = json_object();
	server.info.max_model_len = 4096;
	check(lifecycle_new(&server.lifecycle, &e) == 0);
	check(text_start(&server, &e) == 0);
	lifecycle_loaded(server.lifecycle); /* in place of the engine thread */
	while (lifecycle_state(server.lifecycle) == LIFECYCLE_LOADING)
		usleep(1000);
	check(lifecycle_state(server.lifecycle) == LIFECYCLE_READY);
	check(watch_start(&watch, &server, &e) == 0);
	check(http_listen("--", "127.0.0.1", 0, &listener.fd, &port, &e) == 0);
	check(http_start(&server, watch, &listener, &http, &e) == 0);
	ok_all("started");
	run_tests();
	http_stop(http);
	watch_free(watch);
	text_free(server.text);
	is_int(atomic_load(&server.calls), 0, "no call is left");
	tokenizer_free(server.tokenizer);
	template_free(server.template);
	json_decref(server.template_arguments);
	lifecycle_free(server.lifecycle);
	return done();
}
