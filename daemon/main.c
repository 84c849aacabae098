/*
 * tigond: start and stop, in order.
 *
 *     options ─> sockets ─> signals ─> guard, watch, engine, text threads ─> http ─> wait ─> drain ─> stop
 *
 * The sockets exist before anything slow begins: while the model is being loaded, a valid request gets 503 with
 * Retry-After (or its answer, from /livez, /metrics and /version), not "connection refused". The threads are stopped
 * in the order http, watch, text, engine.
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/engine_options.h"
#include "daemon/http/certificate.h"
#include "daemon/http/cors.h"
#include "daemon/http/host.h"
#include "daemon/http/http.h"
#include "daemon/lifecycle.h"
#include "daemon/steps/loop.h"
#include "daemon/preflight.h"
#include "daemon/program_cache.h"
#include "daemon/request/responses.h"
#include "daemon/request/text.h"
#include "daemon/threads.h"
#include "daemon/transfer/port.h"
#include "engine/checkpoint/checkpoint.h"
#include "protocol/grammar/token_mask.h"
#include "daemon/transfer/transfer.h"

#define SECOND 1000000000ull

/* After a signal, requests that have arrived may go on for the time of --drain-timeout. Requests that are not done after
 * this time fail. farewell_ns is the longest wait until their clients have got the error. */
static const uint64_t farewell_ns = 2 * SECOND;
/* The longest wait for the threads to end. The engine thread may use 5 s of it to write the cache's files. */
static const uint64_t stop_ns = 8 * SECOND;
/* The longest time for all that follows: main frees what is left, and exit handlers of libraries run. */
static const uint64_t exit_ns = 5 * SECOND;

/* The main port, and that of --admin-port. */
enum { LISTENERS = 2 };

enum { HEAP_END = 1 << 20 }; /* the most bytes that the free end of a thread's heap keeps */

/* The guard: a thread that bounds the time in which the process ends, and takes signals meanwhile. Main may hang while
 * it joins a thread, which may be within a step, encode a long text or still load the model. It may also hang within an
 * exit handler of a library, such as an OpenCL driver's. The guard starts before all other threads, so that it is there
 * if memory is short at the end. It never ends, so nobody frees what it uses: this struct and the lifecycle. */
static struct guard {
	struct server *server;
	sem_t ending; /* posted when main begins to end the threads */
	/* When the guard ends the process. main sets it for each part of the end, and calls lifecycle_notify. */
	_Atomic uint64_t until_ns;
	/* the name of the thread that main waits for ("http" stands for watch as well); NULL: all have ended */
	_Atomic(const char *) busy;
} guard;

static int complain(const struct err *e)
{
	log_last("tigond: %s", e->text);
	return EXIT_FAILURE;
}

/* Checks that the path of an option is a checkpoint. Its format is written to *ret. */
static int check_checkpoint(const char *option, const char *path, enum checkpoint_names *ret,
			    struct err *e)
{
	struct checkpoint *k;
	struct stat st;
	int r;

	if (stat(path, &st) < 0)
		return err_set(e, errno, "--%s %s: %s", option, path, strerror(errno));
	r = checkpoint_open(path, &k, e);
	if (r < 0) {
		err_prefix(e, "--%s", option);
		return r;
	}
	*ret = checkpoint_names(k);
	checkpoint_close(k);
	return 0;
}

static int check_model(struct server *s, struct err *e)
{
	const char *model = s->options.model;
	enum checkpoint_names names;
	char path[PATH_MAX];
	int r = check_checkpoint("model", model, &names, e);

	if (r < 0)
		return r;
	s->model_format = names == CHECKPOINT_GGUF ? "gguf" : "safetensors";
	if (names == CHECKPOINT_TRANSFORMERS &&
	    snprintf(path, sizeof(path), "%s/config.json", model) < (int)sizeof(path) &&
	    access(path, F_OK) < 0 && errno == ENOENT)
		return err_set(e, ENOENT,
			       "--model %s: there is neither a config.json nor a GGUF file", model);
	return 0;
}

/* Writes the name of a model to out: the last component of an existing path, also of "." and "models/lexis/"; of a GGUF
 * file without .gguf, and without -00001-of-00003. */
static void base_name(const char *path, char *out, size_t size)
{
	char *real = realpath(path, NULL);
	const char *slash;
	struct stat st;
	size_t n;

	/* A file may be a link to one with another name, as in the cache of Hugging Face's hub. */
	if (real && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
		free(real);
		real = NULL;
	}
	slash = strrchr(real ? real : path, '/');
	snprintf(out, size, "%s", slash && slash[1] ? slash + 1 : real ? real : path);
	free(real);
	n = strlen(out);
	if (n > strlen(".gguf") && !strcmp(out + n - strlen(".gguf"), ".gguf"))
		out[n - strlen(".gguf")] = 0;
	n = strlen(out);
	if (n > strlen("-00001-of-00003") &&
	    !strncmp(out + n - strlen("-00001-of-00003"), "-00001-of-", 10))
		out[n - strlen("-00001-of-00003")] = 0;
}

/* Warns of options of the cache below the device that have no effect. */
static void warn_unused(const struct options *o)
{
	bool off = o->prefix_cache == OPTION_OFF;

	if (off && o->cache_dir)
		log_warning("--cache-dir is not used: --prefix-cache is off");
	if (off && o->host_cache_memory)
		log_warning("--host-cache-memory is not used: --prefix-cache is off");
	if (o->cache_disk && !o->cache_dir)
		log_warning("--cache-disk is not used: there is no --cache-dir");
}

static int settle_options(struct server *s, struct transfer_keys *keys, char *cache,
			  size_t cache_size, struct err *e)
{
	struct options *o = &s->options;
	enum checkpoint_names names;
	int r = check_model(s, e);

	if (!r && o->tokenizer)
		r = check_checkpoint("tokenizer", o->tokenizer, &names, e);
	if (!r)
		r = preflight_check(o, e);
	if (!r && o->tuning && (r = tuning_open(o->tuning, &s->tuning, e)) < 0)
		err_prefix(e, "--tuning");
	if (!r && o->transfer_key && (r = transfer_keys_open(o->transfer_key, keys, e)) < 0)
		err_prefix(e, "--transfer-key");
	if (!r)
		r = openai_template_arguments(o->default_chat_template_kwargs
						      ? o->default_chat_template_kwargs
						      : "{}",
					      "--default-chat-template-kwargs",
					      &s->template_arguments, e);
	if (r < 0)
		return r;
	if (o->transfer_key)
		s->transfer_keys = keys;
	warn_unused(o);
	if (!o->admin_host)
		o->admin_host = "127.0.0.1";
	base_name(o->model, s->base_name, sizeof(s->base_name));
	s->name = o->served_model_name.n ? o->served_model_name.v[0] : s->base_name;
	s->metrics.model = s->name;
	s->metrics.cache_dtype = o->kv_dtype == ENGINE_KV_AUTO ? engine_dtype_names[o->dtype]
							       : engine_kv_dtype_names[o->kv_dtype];
	r = program_cache_choose(o->program_cache, cache, cache_size, &o->program_cache, e);
	if (r == 0)
		engine_settle_environment(o->program_cache);
	return r;
}

static void announce(const struct server *s, uint16_t port)
{
	const struct engine_info *i = &s->info;
	bool v6 = strchr(s->options.host, ':');
	char use[TUNING_USE_TEXT];

	log_info("%s on %s (%s, %s kernels; abilities: %s)", s->name, i->device_name, i->driver,
		 i->kernels, i->abilities);
	if (s->options.tuning) {
		tuning_use_text(&i->tuning, s->options.tuning, use, sizeof(use));
		log_info("%s", use);
	}
	log_info("memory: weights %.1f MiB, KV cache %.1f MiB in %u pages, states %.1f MiB in %u "
		 "slots, "
		 "scratch %.1f MiB, of %.1f MiB",
		 (double)i->weight_bytes / 1048576, (double)i->kv_bytes / 1048576, i->n_pages,
		 (double)i->state_bytes / 1048576, i->n_slots, (double)i->scratch_bytes / 1048576,
		 (double)i->budget_bytes / 1048576);
	log_info("ready after %.3f s: http%s://%s%s%s:%u, %u tokens of context, %u sequences",
		 (double)(clock_now_ns() - s->started_ns) / 1e9, s->certificates ? "s" : "",
		 v6 ? "[" : "", s->options.host, v6 ? "]" : "", port, i->max_model_len,
		 i->max_seqs);
	lifecycle_tell("READY=1\nSTATUS=Serving %s on %s", s->name, i->device_name);
}

/* Ends the program, because a signal came while it was ending already. */
static _Noreturn void end_at_once(void)
{
	log_warning("second signal: exiting at once");
	_exit(EXIT_FAILURE);
}

/* Waits until no call is left, for at most ns. A signal that comes meanwhile ends the program at once. */
static void wait_for_calls(struct server *s, uint64_t ns)
{
	uint64_t now = clock_now_ns(), until = now + ns;

	while (atomic_load(&s->calls) && now < until) {
		if (lifecycle_wait(s->lifecycle, until - now))
			end_at_once();
		now = clock_now_ns();
	}
}

/* Waits for a signal or a failure. Announces the server when the state becomes READY. A signal that comes while the
 * model is still being loaded ends the program. */
static void serve(struct server *s, uint16_t port)
{
	bool announced = false;

	for (;;) {
		enum lifecycle_state state = lifecycle_state(s->lifecycle);

		if (state == LIFECYCLE_FAILED)
			return;
		if (state == LIFECYCLE_READY && !announced) {
			announce(s, port);
			announced = true;
		}
		if (!lifecycle_wait(s->lifecycle, 3600 * SECOND))
			continue;
		if (lifecycle_state(s->lifecycle) == LIFECYCLE_LOADING) {
			/* No request runs yet, and the loading of a model cannot be interrupted. */
			log_info("ended while loading");
			_exit(EXIT_SUCCESS);
		}
		return;
	}
}

static void drain(struct server *s)
{
	const uint64_t drain_ns = s->options.drain_timeout * SECOND;
	struct err e = {0};

	if (lifecycle_state(s->lifecycle) != LIFECYCLE_FAILED) {
		lifecycle_drain(s->lifecycle);
		loop_drain(s->loop);
		/* systemd would kill the process after TimeoutStopSec, which may be shorter than all this takes. */
		lifecycle_tell("STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu\n"
			       "STATUS=Draining: %u requests, at most %llu s",
			       (unsigned long long)(drain_ns + farewell_ns + stop_ns + exit_ns) /
				       1000,
			       atomic_load(&s->calls),
			       (unsigned long long)s->options.drain_timeout);
		log_info("draining: %u requests, at most %llu s", atomic_load(&s->calls),
			 (unsigned long long)s->options.drain_timeout);
		wait_for_calls(s, drain_ns);
	}
	/* A call whose device was lost may still be with a text thread, so it gets the same error from here. */
	if (lifecycle_state(s->lifecycle) == LIFECYCLE_FAILED)
		e = *lifecycle_error(s->lifecycle);
	else
		err_set(&e, ESHUTDOWN, "the server is shutting down");
	text_fail_all(s->text, &e);
	loop_fail_all(s->loop, &e);
	wait_for_calls(s, farewell_ns);
}

/* Waits until the end has begun and is overdue. Then ends the process; a signal ends it at once. */
static void *guard_main(void *arg)
{
	struct guard *g = arg;
	struct lifecycle *l = g->server->lifecycle;
	const char *busy;
	uint64_t now, until;
	bool failed;

	pthread_setname_np(pthread_self(), "guard");
	while (sem_wait(&g->ending) < 0)
		;
	while ((now = clock_now_ns()) < (until = atomic_load(&g->until_ns)))
		if (lifecycle_wait(l, until - now))
			end_at_once();
	busy = atomic_load(&g->busy);
	failed = lifecycle_state(l) == LIFECYCLE_FAILED;
	if (busy)
		log_warning("the %s thread is still busy: exiting without it", busy);
	else
		log_warning("an exit handler is still busy: exiting without it");
	/* Before exit handlers run, main itself says why it failed. */
	if (failed && busy)
		complain(lifecycle_error(l));
	_exit(failed ? EXIT_FAILURE : EXIT_SUCCESS);
}

static int guard_start(struct server *s, struct err *e)
{
	pthread_t thread;
	int r;

	guard.server = s;
	sem_init(&guard.ending, 0, 0);
	r = pthread_create(&thread, NULL, guard_main, &guard);
	if (r)
		return err_set(e, r, "cannot start the guard thread: %s", strerror(r));
	pthread_detach(thread);
	return 0;
}

/* Ends the threads, one after the other. If that takes more than stop_ns, or the rest of the process then more than
 * exit_ns, the guard ends the process. */
static void stop(struct server *s, struct http **h, struct watch *w)
{
	log_info("ending the threads");
	atomic_store(&guard.busy, "http");
	atomic_store(&guard.until_ns, clock_now_ns() + stop_ns);
	sem_post(&guard.ending);
	for (size_t i = 0; i < LISTENERS; i++)
		http_stop(h[i]);
	watch_free(w);
	atomic_store(&guard.busy, "text");
	text_free(s->text);
	atomic_store(&guard.busy, "engine");
	loop_free(s->loop);
	responses_close(s);
	atomic_store(&guard.busy, NULL);
	atomic_store(&guard.until_ns, clock_now_ns() + exit_ns);
	lifecycle_notify(s->lifecycle);
}

static int start_and_serve(struct server *s, struct http_listener *l, const uint16_t *ports,
			   struct err *e)
{
	struct http *http[LISTENERS] = {NULL};
	struct watch *watch = NULL;
	int r = responses_open(s, e);

	if (!r && s->certificates)
		r = certificates_follow(s->certificates, e);
	if (!r)
		r = watch_start(&watch, s, e);
	if (!r)
		r = loop_start(s, e);
	if (!r)
		r = text_start(s, e);
	for (size_t i = 0; !r && i < LISTENERS && l[i].fd >= 0; i++) {
		r = http_start(s, watch, &l[i], &http[i], e);
		l[i].fd = -1;
	}
	if (!r) {
		log_info("listening on %s port %u, loading %s", s->options.host, ports[0],
			 s->options.model);
		if (http[1])
			log_info("--admin-port: %s port %u", s->options.admin_host, ports[1]);
		serve(s, ports[0]);
		drain(s);
	}
	/* The start has failed. If a thread does not end in time, the guard writes this error to the log. */
	if (r < 0)
		lifecycle_fail(s->lifecycle, e);
	stop(s, http, watch);
	if (!r && lifecycle_state(s->lifecycle) == LIFECYCLE_FAILED) {
		*e = *lifecycle_error(s->lifecycle);
		r = -e->code;
	}
	return r;
}

/* Reads the file of --api-key-file or --admin-key-file. path NULL: *ret is unchanged. */
static int open_keys(const char *option, const char *path, struct api_keys *ret, struct err *e)
{
	int r = path ? api_keys_open(path, ret, e) : 0;

	if (r < 0)
		err_prefix(e, "%s", option);
	return r;
}

/* Makes the socket of --admin-port. Its clients can see the prompts of others (/cache) and stop their requests
 * (/abort). So beyond loopback keys are needed. */
static int listen_admin(const struct options *o, struct http_listener *l, uint16_t *ret_port,
			struct err *e)
{
	int r = http_listen("--admin-", o->admin_host, (uint16_t)o->admin_port, &l->fd, ret_port,
			    e);

	if (!r && !l->keys->n && !http_is_local(l->fd))
		r = err_set(e, EINVAL,
			    "--admin-host %s: other machines reach this address, so "
			    "--admin-key-file FILE is needed",
			    o->admin_host);
	return r;
}

/* Binds the addresses of this process. */
static int listen_all(struct server *s, struct http_listener *l, uint16_t *ports, struct err *e)
{
	const struct options *o = &s->options;
	int r = http_listen("--", o->host, (uint16_t)o->port, &l[0].fd, &ports[0], e);

	if (!r && o->admin)
		r = listen_admin(o, &l[1], &ports[1], e);
	if (!r && o->role == ROLE_PREFILL)
		r = transfer_listen(o->transfer_listen, s->transfer_keys,
				    o->transfer_heartbeat * 1000000, s->transfer_listener, e);
	return r;
}

static int draw_owner_key(struct server *s, struct err *e)
{
	if (getrandom(&s->owner_key, sizeof(s->owner_key), 0) != (ssize_t)sizeof(s->owner_key))
		return err_set(e, EIO, "cannot draw a random key");
	return 0;
}

static int run_server(struct server *s, struct err *e)
{
	struct transfer_listener transfer = {0};
	struct transfer_keys transfer_keys = {0};
	struct api_keys keys[LISTENERS] = {0};
	struct networks trusted;
	struct http_listener l[LISTENERS] = {
		{.fd = -1, .trusted = &trusted, .keys = &keys[0]},
		{.fd = -1, .trusted = &trusted, .keys = &keys[1], .admin = true}};
	/* ZeroMQ has several descriptors for each of the links that a worker makes. */
	static const unsigned links[] = {
		[ROLE_PREFILL] = PORT_INCOMING, [ROLE_DECODE] = 9 * PORT_OUTGOING};
	const struct options *o = &s->options;
	uint16_t ports[LISTENERS] = {0};
	char cache[PATH_MAX];
	int r = settle_options(s, &transfer_keys, cache, sizeof(cache), e);

	s->transfer_listener = &transfer;
	l[0].descriptors = links[o->role];
	if (!r)
		r = draw_owner_key(s, e);
	if (!r && (r = networks_parse(o->trusted_proxy, &trusted, e)) < 0)
		err_prefix(e, "--trusted-proxy");
	if (!r && o->allowed_host && (r = host_list_check(o->allowed_host, e)) < 0)
		err_prefix(e, "--allowed-host");
	if (!r && o->cors_origin && (r = cors_check(o->cors_origin, e)) < 0)
		err_prefix(e, "--cors-origin");
	if (!r && o->tls_cert)
		r = certificates_open(o->tls_cert, o->tls_key, &s->certificates, e);
	if (!r)
		r = open_keys("--api-key-file", o->api_key_file, &keys[0], e);
	if (!r)
		r = open_keys("--admin-key-file", o->admin_key_file, &keys[1], e);
	/* A name server may take long. Until lifecycle_new a signal ends the program at once. */
	if (!r)
		r = listen_all(s, l, ports, e);
	if (!r)
		r = lifecycle_new(&s->lifecycle, e);
	if (!r)
		r = guard_start(s, e);
	if (!r)
		r = start_and_serve(s, l, ports, e);
	for (size_t i = 0; i < LISTENERS; i++) {
		if (l[i].fd >= 0)
			close(l[i].fd);
		api_keys_release(&keys[i]);
	}
	certificates_free(s->certificates);
	transfer_listener_close(&transfer);
	transfer_keys_release(&transfer_keys);
	template_free(s->template);
	buf_release(&s->tokenizer_info);
	token_trie_free(s->trie);
	tokenizer_free(s->tokenizer);
	tuning_free(s->tuning);
	json_decref(s->template_arguments);
	return r;
}

/* By default glibc keeps the free end of each thread's heap up to twice the size of the largest block that was freed so
 * far, which is 32 MiB after a body of 16 MB, and malloc_trim (daemon/http/watch.c) gives back that of the first heap
 * alone. A block of HEAP_END or more is mapped by itself, so it goes back when it is freed, wherever free memory lies in a
 * heap. */
static void bound_heaps(void)
{
	mallopt(M_TRIM_THRESHOLD, HEAP_END);
	mallopt(M_MMAP_THRESHOLD, HEAP_END);
}

int main(int argc, char **argv)
{
	static struct server server;
	struct err e = {0};

	bound_heaps();
	role_begin(&role_main);
	metrics_init(&server.metrics);
	server.started = time(NULL);
	server.started_ns = clock_now_ns();
	if (options_parse(argc, (const char *const *)argv, &server.options, &e) < 0)
		return complain(&e);
	if (server.options.help) {
		options_help(stdout);
		return EXIT_SUCCESS;
	}
	if (server.options.version) {
		printf("tigond " TIGON_VERSION "\n");
		return EXIT_SUCCESS;
	}
	log_set_level((enum log_level)server.options.log_level);
	if (server.options.list_devices)
		return engine_list_devices(stdout, &e) < 0 ? complain(&e) : EXIT_SUCCESS;
	/* All hash tables of jansson use one global seed. It must be set before there are threads. */
	json_object_seed(0);
	return run_server(&server, &e) < 0 ? complain(&e) : EXIT_SUCCESS;
}
