/*
 * The threads of tigond, and everything that passes between them.
 *
 *   main    signals, start and stop, the drain. Touches no request.
 *   http    libmicrohttpd's own thread (epoll). Reads bodies, writes answers; turns tokens into
 *           text (detokenizer, stop strings, JSON), so that the device never waits for any of it.
 *   text    parses bodies, renders templates, tokenizes: a long prompt delays neither a step nor
 *           another client's stream. Also loads tokenizer and template at start.
 *   engine  scheduler and device, which no other thread touches: submit, plan, step, commit.
 *   watch   sees that a client left while its connection is suspended, which libmicrohttpd cannot, and
 *           keeps time: slow senders, the SSE comment after 15 s of silence.
 *
 *   transfer  in a prefill or decode worker: ZeroMQ sockets, peers, deliveries.
 *
 *   what               from               to       carries                       in
 *   text.queue         http               text     calls whose body is whole     text.c
 *   server.inbox       text, http, watch  engine   submissions, aborts, stops    call.c
 *   call.tokens        engine             http     a record a token              call.c
 *   connection resume  any                http     "look at your call again"     call.c
 *   watch.epoll        kernel             watch    hang-ups, by connection       watch.c
 *   transfer.tasks     engine             transfer prompts to ask for, first tokens   transfer/transfer.c
 *   transfer.windows   engine, a driver   transfer data of layers that are computed    transfer/transfer.c
 *   transfer.returned  ZeroMQ's threads   transfer windows that the system has taken      transfer/sending.c
 *   transfer.notes     transfer           engine   prompts asked for, data that came   transfer/transfer.c
 *   lifecycle.event    any                main     state changed, last one left  lifecycle.c
 *
 * Locks, outermost first: watch.lock, call.lock, a queue's own lock. Nothing blocks under them.
 *
 * The roles are clang capabilities: a function marked ON(role_engine) can only be called from
 * another one so marked, or after role_begin; clang -Wthread-safety checks it, gcc sees nothing.
 */
#pragma once

#if defined(__clang__)
#define ROLE_ATTRIBUTE(x) __attribute__((x))
#else
#define ROLE_ATTRIBUTE(x)
#endif

struct ROLE_ATTRIBUTE(capability("role")) role {
	const char *name; /* in ps and debuggers; at most 15 letters */
};

extern struct role role_main, role_http, role_text, role_engine, role_watch, role_transfer;

#define ON(role) ROLE_ATTRIBUTE(requires_capability(role))
/* Marks a member, or the data behind a pointer, that only that role may touch. */
#define OWNED_BY(role)	ROLE_ATTRIBUTE(guarded_by(role))
#define POINTS_TO(role) ROLE_ATTRIBUTE(pt_guarded_by(role))

/* From here on this function runs in that role. Every thread's start routine and every callback of libmicrohttpd
 * begins with it; the first call in a thread also names the thread. */
void role_begin(struct role *r) ROLE_ATTRIBUTE(assert_capability(r));
