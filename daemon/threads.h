/* The threads of tigond, and the queues between them. Three kinds are not in this list: the two threads of the cache's
 * files (engine/store/state.h), threads that share one computation and end with it (base/parallel.h,
 * engine/cache_identity.c), and threads of libraries (OpenCL, ZeroMQ).
 *
 *     main      signals, start and stop, the drain. At the end fails the requests that are left, and wakes all
 *               connections before http stops.
 *     http      libmicrohttpd's own threads (epoll): one for the main port, and one for --admin-port. Reads bodies,
 *               writes answers; turns tokens into text (detokenizer, stop strings, JSON), so that the device never
 *               waits for this work.
 *     text      four threads: two for small bodies, one for large and one for huge ones. They parse bodies, render
 *               templates, tokenize: a long prompt delays neither a step nor another client's stream. One loads
 *               tokenizer and template at start.
 *     engine    scheduler and device, which no other thread touches: submit, plan, step, commit.
 *     watch     notices a client that leaves while its connection is suspended, which libmicrohttpd does not notice.
 *               Keeps time: cuts slow senders, and wakes a stream after 15 s of silence, so that an SSE comment is sent.
 *               Wakes handshakes of TLS when their clients go on.
 *     certificate  with --tls-cert: reads the files of a certificate that has changed. It may hang as long as their file
 *               system does, so no other thread waits for it.
 *     transfer  in a prefill or decode worker: ZeroMQ sockets, peers, deliveries.
 *     guard     sleeps until main ends the other threads. Then takes signals in main's place, and ends the process if
 *               main, or an exit handler of a library, does not end in time (main.c). It has no role.
 *
 *     queue or event     from               to        carries                               file
 *     text.lines         http               text      calls whose body is complete          text.c (struct text)
 *     server.inbox       any                engine    submissions, visits, aborts, stops    call.c
 *     shared.tokens      engine             http      a record for each token of a call     call.c
 *     connection resume  any                http      "look at your call again"             call.c
 *     watch.epoll_fd     system             watch     hang-ups, bytes of handshakes         watch.c
 *     transfer.tasks     engine             transfer  prompts, first tokens, drops, fails   transfer/transfer.c
 *     transfer.parcels   engine, a driver   transfer  data of layers that are computed      transfer/transfer.c
 *     sending.returned   ZeroMQ, transfer   transfer  parcels that were sent or dropped     transfer/sending.c
 *     worker.notes       transfer           engine    prompts, data, ends of attempts       transfer/worker.c
 *     lifecycle.event_fd any                main      new state; calls ended                lifecycle.c
 *                        main               guard     all threads have ended                lifecycle.c
 *
 * Locks that are held together, outermost first: watch.lock or text.lock, server.arrived.lock, call.shared.lock, a
 * queue's own lock. No thread blocks while it holds one of these.
 *
 * The roles are clang capabilities: a function marked ON(role_engine) can only be called from another one so marked,
 * or after role_begin. clang -Wthread-safety checks this; for gcc the marks are empty. */
#pragma once

#if defined(__clang__)
#define ROLE_ATTRIBUTE(x) __attribute__((x))
#else
#define ROLE_ATTRIBUTE(x)
#endif

struct ROLE_ATTRIBUTE(capability("role")) role {
	const char *name; /* the thread's name in ps and debuggers; at most 15 bytes */
};

extern struct role role_main, role_http, role_text, role_engine, role_watch, role_certificate,
	role_transfer;

#define ON(role) ROLE_ATTRIBUTE(requires_capability(role))
/* OWNED_BY marks a member, POINTS_TO the data behind a pointer, that only that role may touch. */
#define OWNED_BY(role)	ROLE_ATTRIBUTE(guarded_by(role))
#define POINTS_TO(role) ROLE_ATTRIBUTE(pt_guarded_by(role))

/* Says that the calling function runs in that role. The start routine of each thread in the list above except http and
 * guard begins with this call. So do the callbacks of libmicrohttpd that touch data of the http thread: handle,
 * completed and connected (http.c), read_answer (send.c), and pull (tls.c), which GnuTLS calls. The first call in a
 * thread also names that thread. */
void role_begin(struct role *r) ROLE_ATTRIBUTE(assert_capability(r));
