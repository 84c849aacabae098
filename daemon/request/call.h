/* A call: one request of a client from its body to the last byte of the answer.
 *
 *     thread  work                                               stage afterwards
 *     http    call_new, the body is moved in, text_submit        WORKING
 *     text    parse, render, tokenize, then call_submit          WORKING
 *             or call_fail / call_reply                          ANSWERED
 *     engine  scheduler_submit, call_accept                      RUNNING
 *             or call_fail                                       ANSWERED
 *             call_push a token ... call_end                     ENDED
 *             or call_fail (device lost, shutdown, ...)          ENDED, with a failure
 *     http    call_take, text and JSON (answer.c)
 *
 * A call whose endpoint visits the engine thread skips the text thread: http hands it over, and the visit answers it.
 *
 * A *part* of a call is one of its prompts, which is one request of the scheduler and has n choices.
 *
 * The members http, text, engine, report and shared of struct call are divided by owner. `http` and `text` are
 * written by the thread of that name before it hands the call on, and are constant afterwards. There are exceptions:
 *  - http moves the body into text.body; text_forget (text.h) frees it there.
 *  - text.node and text.round are guarded by the lock of struct text (text.c). text.weight is the text thread's that
 *    has the call, and guarded by that lock while the call waits.
 *  - http writes http.access when the request is completed, and owns http.kept throughout.
 *  - The engine thread owns text.parts[].run, text.choices and text.steering, and, until a part has ended, the part's
 *    vector and logprobs.
 *  - A visit may write to *http.own and http.own_bytes. Afterwards http owns *http.own. endpoint->recall may write to
 *    *http.own, too.
 *  - A text thread sets the pointer shared.stop_wanted before call_submit, without the lock.
 * `engine` is the engine thread's. The members of `report` are atomic. `shared` is guarded by its lock.
 *
 * References keep a call alive. The connection's lasts from call_new until libmicrohttpd says that the request is
 * completed. The work's lasts from text_submit (of a visit: call_submit) until a text thread or the engine thread is
 * done with the call, or the call is dropped while it waits for a text thread (text.h). A control message in the inbox
 * has one of its own, and so has a place in a chain (call_wake_all). So have the watch thread while it handles a
 * hang-up, a text thread while it works on the call, each caller of call_find, and call_queue while it cancels the
 * call. The last call_unref frees everything, on the thread that calls it. Before that it writes the request's line in
 * the log, if http has copied http.access by then.
 *
 * Sleeping: the http thread suspends the connection when there is nothing to send (call_take). It holds shared.lock
 * from the moment at which it finds nothing until the connection is suspended, so that no wake is lost. A thread with
 * news for http calls call_wake, or a function below whose comment says that it wakes; both resume the connection if it
 * is suspended. Of several calls with news the engine thread resumes one, and http resumes the others when it runs for
 * that one (call_wake_all). libmicrohttpd cannot close a suspended connection, so the pointer to it is valid then. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/ids.h"
#include "base/list.h"
#include "base/queue.h"
#include "daemon/request/access.h"
#include "daemon/request/endpoint.h"
#include "daemon/request/polite.h"
#include "daemon/threads.h"
#include "scheduler/scheduler.h"

/* The stages of the list above. ENDED and ANSWERED are final. */
enum call_stage { CALL_WORKING, CALL_RUNNING, CALL_ENDED, CALL_ANSWERED };

/* A part: one prompt of a call, which is one request of the scheduler. */
struct call_part {
	/* The text thread writes all members but `run`; then they are constant, but for the ids. */
	/* owned; the engine thread frees them when the scheduler has copied them, unless call_shows_ids */
	struct ids prompt;
	uint32_t n_prompt; /* number of its ids, also when they are freed */
	uint64_t seed;	   /* for drawing its tokens */
	uint32_t
		max_tokens; /* tokens to generate: as requested, or as many as fit; 0 with prompt_only */
	/* Names for the cache below the device (engine/store/key.h): root_key is the key of the space, page_keys (in
	 * the arena) are those of the prompt's whole pages. page_keys NULL: there is no such cache, or the request does
	 * not use it; then root_key is zeros. */
	struct content_key root_key, *page_keys;
	uint32_t *boundaries; /* [n_boundaries] in the arena: the ends of turns, see turns.h */
	uint32_t n_boundaries;
	/* [echo_len] in the arena: the prompt's text as the answer shows it; NULL: the request does not want `echo` */
	const char *echo;
	size_t echo_len;
	/* TASK_SCORE: number of the first token of the text behind the prompt */
	uint32_t first_score;
	/* TASK_EMBED: [hidden_size] in the arena. TASK_SCORE: the sum of the log-probabilities from first_score on. The
	 * engine thread writes them before it pushes the part's end, and http reads them afterwards. */
	float *vector;
	double logprobs;
	struct call_run {
		struct call *call;
		uint64_t id;	    /* id in the scheduler, 0: not submitted yet */
		uint32_t n_running; /* choices that have not ended */
		uint64_t first_ns;  /* time of the first token, 0: none yet */
		/* Written with the first token: the time at which METRICS_QUEUE ends (daemon/metrics.h). */
		uint64_t begun_ns;
		uint32_t most_tokens; /* most tokens of a choice that has ended */
		bool hit_known;	      /* call_hit was called for this part */
	} run OWNED_BY(role_engine);
};

/* One choice, as the engine thread sees it. Choice number c belongs to part c / call_text.n. */
struct call_choice {
	bool ended;
	bool mask_due;		    /* its next draw needs a new mask (call_text.steering) */
	uint32_t n_tokens;	    /* generated tokens */
	uint64_t first_ns, last_ns; /* times of its first and its newest token; 0: it has none */
};

/* A message to the engine thread, in server.inbox. A call has two: `submit` hands the call over; `control` says that
 * call_stop_choice was called or that the call was aborted, which may happen while `submit` is still in the inbox. */
struct call_message {
	struct queue_node node;
	struct call *call;
};

/* http: the connection, the object of endpoint->ask, and facts about the request. */
struct call_http {
	void *connection;		  /* struct MHD_Connection */
	void (*resume)(void *connection); /* wakes the connection when it is suspended */
	void *own; /* made by endpoint->ask; the engine thread's while endpoint->visit runs */
	/* bytes of *own that count as kept (call.kept); a visit may set them */
	size_t own_bytes;
	size_t kept; /* bytes of the answer that http keeps, as call_keep was told last */
	/* Facts of the request for the log. http copies them here when the request is completed; until then
	 * access.ended_ns is 0. */
	struct access access;
};

/* How long a text thread has worked on a call. Zeros: that is not measured. */
struct text_time {
	uint64_t cpu_ns;  /* the time that the thread had spent on processors when the work began */
	uint64_t look_ns; /* until this time the work cannot have taken too long */
};

/* text: the request as the scheduler will get it. The text thread fills it before call_submit. */
struct call_text {
	struct list node; /* while the call waits: in a line of struct text (text.c) */
	uint64_t round;	  /* its round in that line (struct line in text.c) */
	struct buf body;  /* until call_drop_body */
	uint64_t weight;  /* bytes of kept responses that the work reads (text_weigh) */
	/* of the text thread that took the call, if its work is not small; else NULL */
	struct polite *polite;
	struct text_time time; /* of the work, while it counts as small (text_too_long) */
	struct arena arena;
	struct openai_request ask;
	bool asked;		 /* `ask` was filled and must be released */
	struct call_part *parts; /* [n_parts] in the arena */
	/* n choices are drawn for each part (openai_request.best_of); n_choices = n_parts * n */
	uint32_t n_parts, n, n_choices;
	struct call_choice *choices POINTS_TO(role_engine); /* [n_choices] in the arena */
	uint32_t n_prompt;				    /* tokens of all prompts together */
	/* [n_end_tokens] in the arena: the model's end tokens [n_model_ends], unless ignore_eos is set, and behind them
	 * stop_token_ids */
	const int32_t *end_tokens;
	uint32_t n_model_ends, n_end_tokens;
	struct prefix_space space; /* from the request's cache_salt */
	/* The masks of draws (protocol/output/steering.h), which the engine thread uses and frees while the call is
	 * live; NULL: every token may be drawn. */
	struct steering *steering;
};

/* engine: the state of a live call (daemon/steps/live.h). */
struct call_engine {
	struct list live; /* in live.calls */
	bool touched;	  /* in live.touched: live_deliver has found an event of this call */
	/* The reason for which the engine thread will fail the call. ENOMEM or ENOBUFS: a token could not be pushed.
	 * EDOM: logits were not finite. Another code: `why` has the sentence. 0: there is none so far. */
	int broken;
	bool masks_due; /* a choice has mask_due */
	/* why a token or a mask of the call's steering failed, or why a prompt was not accepted */
	struct err why;
	bool plenty;	    /* so many tokens wait that http must take them */
	uint32_t n_running; /* choices that have not ended; 0: not live */
	/* parts that the scheduler has, from the first one on, and parts whose prompts have been computed */
	uint32_t n_submitted, n_prefilled;
};

/* Numbers for the log and the headers of the answer, which any thread may read. The engine thread writes a part's
 * cache hit before it pushes the part's first token, so that a thread that has seen the token sees the hit too. */
struct call_report {
	_Atomic uint32_t n_generated;
	/* begun_ns: when the computation of the first part's prompt had begun; set when that prompt has been
	 * computed */
	_Atomic uint64_t begun_ns, first_token_ns;
	_Atomic uint32_t finished[METRICS_FINISHES];
	_Atomic uint32_t n_hits;	       /* parts whose hit is known */
	_Atomic uint32_t n_cached, n_received; /* as in scheduler_hit, summed over these parts */
	_Atomic uint32_t miss; /* enum prefix_miss: the first reason that is not NONE */
};

/* Data that http and the other threads exchange, guarded by lock. */
struct call_shared {
	pthread_mutex_t lock;
	enum call_stage stage, seen; /* seen: the stage that call_take returned last */
	bool suspended;		     /* the connection is suspended */
	bool closing;		     /* call_close was called */
	bool chained;		     /* the call is in a chain (call_wake_all) */
	struct call *next;	     /* the next call of that chain */
	/* the chain of calls that http is to wake next; NULL while `suspended` */
	struct call *others;
	bool control_queued; /* the message `control` is in the inbox */
	bool *stop_wanted;   /* [n_choices] in the arena: call_stop_choice was called */
	struct buf tokens;   /* records (call_record) that http has not taken */
	struct err failure;  /* code 0: none */
	struct buf reply;    /* ANSWERED without failure: the body */
	bool comment_due;    /* http is to send an SSE comment */
	/* of a stream: the time of the last call_take after the call became RUNNING; 0: there was none yet */
	uint64_t sent_ns;
};

struct call {
	/* constant once the call is handed on */
	struct server *server;
	const struct endpoint *endpoint;
	char id[ACCESS_ID_SIZE]; /* "chatcmpl-…", "cmpl-…" */
	int64_t created;	 /* seconds since 1970 */
	uint64_t arrived_ns;	 /* when the body had arrived (monotonic); 0: it has not */

	_Atomic uint32_t refs;
	/* No further work is needed: the client has left, its answer ended early, or call_cancel was called. */
	_Atomic bool aborted;
	struct call *older, *newer; /* in server.arrived */
	/* the client's X-Request-Id, set by http before call_arrive; "": none */
	char client_id[REQUEST_ID_MAX + 1];
	/* number of the client: of its key or its address. http sets it before call_arrive. 0: none */
	uint64_t owner;
	/* what this call adds to server.queued; 0 and 0: it does not wait any more */
	_Atomic uint64_t queued[QUEUE_MEASURES];
	/* so many bytes of the answer were kept at a time that freeing them is worth a trim (server.trim) */
	_Atomic bool large;
	/* bytes of memory that the answer takes: buffers, also where they are empty, of records, texts,
	 * log-probabilities and JSON, and *http.own */
	_Atomic uint64_t kept;
	/* the time since which bytes of the answer that are ready wait for the client; 0: none are ready, or the
	 * answer has not begun */
	_Atomic uint64_t waits_ns;
	struct call_message submit, control;

	struct call_http http;
	struct call_text text;
	struct call_engine engine OWNED_BY(role_engine);
	struct call_report report;
	struct call_shared shared;
};

/* Makes a call with one reference, the connection's. The arguments are borrowed. NULL: out of memory. */
struct call *call_new(struct server *s, const struct endpoint *endpoint);
struct call *call_ref(struct call *c);
void call_unref(struct call *c);

/* http: to be called when the body has arrived. Sets the arrival time, puts the call into server.arrived, and counts
 * it in server.calls. Also counts it once in the queue (call_queue), unless its endpoint has `visit`. 0, or
 * -PROBLEM_QUEUE_FULL with a sentence: drop the call. */
int call_arrive(struct call *c, struct err *e) MUST_CHECK;

/* Hands the call to the engine thread, together with the work's reference. */
void call_submit(struct call *c);

/* Takes the call and the memory of its prompts out of server.queued. Does nothing if it is not counted there. */
void call_unqueue(struct call *c);

/* http: tells how many bytes http keeps of the call's answer. The functions that add records or a body count these
 * until http takes them. */
void call_keep(struct call *c, size_t bytes);

/* http: tells whether bytes of the answer are ready for the client. If so, they wait for the client from now on. */
void call_waits(struct call *c, bool waits);

/* http: to be called before an answer in pieces is begun. True: call_waits(c, true) was done. False: the call has
 * failed with PROBLEM_UNREAD (call_give_up, for example); that error is in *ret, and is the answer now. */
bool call_begin_answer(struct call *c, struct err *ret);

/* watch: lets the client have this error, as its answer or as the end of its stream, also if the call has ended and its
 * answer has not begun. If the call has failed before, that error stays. Has the engine compute no more of the call.
 * False: nothing was done, because bytes of the answer wait for the client (call_waits), or http is about to write the
 * end of the stream. Wakes. */
bool call_give_up(struct call *c, const struct err *e);

/* Frees what was made of the body: the request, the prompts, the steering, and all in the arena. Called before the body
 * is parsed again, and by the last call_unref. */
void call_drop_work(struct call *c);

/* Frees the body, and subtracts the bytes of a large one from metrics.body_bytes. Called when a text thread is done
 * with the call, by text_forget, and by the last call_unref in any case. */
void call_drop_body(struct call *c);

/* Frees the memory of the constraint of a call that draws no token any more. The call itself may wait long for a client
 * that does not read. */
void call_drop_steering(struct call *c);

/* Notes the reason for which a choice, or the call as a whole, ended: for metrics and the log. */
void call_count(struct call *c, enum metrics_finish why);

/* Notes that the call as a whole ended with the error `code`. If the HTTP status of this code is below 500, the
 * request was refused, and the metric request_success_total leaves it out. */
void call_count_error(struct call *c, int code);

/* Any thread: ends the call with this error, unless it has ended before. A WORKING call is ANSWERED with the error; a
 * RUNNING one is ENDED, and the error ends its stream or is its answer. Wakes, and calls call_unqueue. */
void call_fail(struct call *c, const struct err *e);

/* text, engine: makes the call ANSWERED, with this body and status 200; but if it has failed before, that error stays
 * the answer, and the body is freed. The content of *body is taken in either case. Wakes, and calls call_unqueue. */
void call_reply(struct call *c, struct buf *body);

/* engine: notes how much of a part's prompt was cached. To be called at most once for each part. */
void call_hit(struct call *c, const struct scheduler_hit *hit);

/* Writes the hits that are known by now: "cached=64; reason=no-checkpoint", with "; received=128" if another worker
 * sent tokens. The numbers are sums over the parts; the reason is the first one noted that is not PREFIX_MISS_NONE.
 * False: no hit is known, and nothing was written. */
bool call_describe_hit(const struct call *c, char *out, size_t size);

/* engine: makes the call RUNNING, because the scheduler has accepted it. A call that has failed meanwhile keeps its
 * stage. Wakes the connection of a stream, so that its silence is measured from now on (sent_ns). */
void call_accept(struct call *c);

/* engine: pushes a token of choice `choice`. Does not wake. -ENOMEM; -ENOBUFS: 64 MiB of tokens wait for http, because
 * the client of a stream does not read. */
int call_push(struct call *c, uint32_t choice, enum finish_reason finish,
	      const struct draw_result *draw) MUST_CHECK ON(role_engine);

/* engine: pushes the next n scored tokens of part `part`: tokens of its prompt with their log-probabilities. The rank
 * of a scored token is above 0, the rank of a drawn token is 0. Does not wake. -ENOMEM, -ENOBUFS: as for call_push. */
int call_push_scores(struct call *c, uint32_t part, const struct draw_result *scores,
		     uint32_t n) MUST_CHECK ON(role_engine);

/* engine: makes a RUNNING call ENDED, because no further token will come. Does not wake. */
void call_end(struct call *c);

/* Any thread: resumes the connection if it is suspended. */
void call_wake(struct call *c);

/* engine: wakes all these calls, but the http thread only once: resumes the connection of one call that sleeps, and
 * leaves the others to call_wake_others. The system often runs the http thread as soon as a connection is resumed, and
 * on the engine thread's processor. If that happened for each stream of a step, a thread that computes would often get
 * the processor in between, and the rest of the streams would get their tokens a step later. */
void call_wake_all(struct call *const *calls, uint32_t n);

/* http: wakes the calls that call_wake_all left to this one. To be called first whenever libmicrohttpd calls back for
 * the call's connection. */
void call_wake_others(struct call *c);

/* Returns whether the answer has the ids of the prompts or their log-probabilities. */
bool call_shows_ids(const struct call *c);

/* Returns whether http must be woken after each step that drew tokens of this call: because they are sent at once (a
 * stream), may complete a stop string or the only call, or have become many. */
bool call_wants_tokens(const struct call *c) ON(role_engine);

/* http: call_take takes the news. It swaps the records into *tokens, which must be empty. If nothing is new, it
 * suspends the connection by `suspend` under the lock, and sets ret->slept: the caller must return to libmicrohttpd at
 * once. It never suspends the connection of a call that is ENDED, ANSWERED, aborted or closing. */
struct call_news {
	enum call_stage stage;
	bool slept, closing, comment_due;
	struct err failure; /* code 0: none */
};
void call_take(struct call *c, struct buf *tokens, void (*suspend)(void *connection),
	       struct call_news *ret);

/* http: moves the body of call_reply into *ret. */
void call_take_reply(struct call *c, struct buf *ret);

/* Any thread: notes that the client has left, or that its answer ended early. Tells the engine thread, and wakes the
 * connection. Repeated calls do nothing. */
void call_abort(struct call *c);

/* Any thread: ends the call like call_fail, with this error, and then its work like call_abort. */
void call_cancel(struct call *c, const struct err *why);

/* http: returns whether nobody waits for the answer any more: the call is aborted, and there is no error to tell. */
bool call_left(struct call *c);

/* http: tells the engine thread that a stop string, or the only call, has ended this choice. */
void call_stop_choice(struct call *c, uint32_t choice);

/* engine: notes that the message `control` was taken from the inbox. To be called before c->aborted and
 * call_stop_wanted are read, so that a later change of these sends the message again. */
void call_control_taken(struct call *c);

/* engine: returns whether call_stop_choice was called for this choice. */
bool call_stop_wanted(struct call *c, uint32_t choice);

/* main, http: wakes the connection, which call_take never suspends again, because libmicrohttpd is about to stop. */
void call_close(struct call *c);

/* watch: if the call is a RUNNING stream whose connection was suspended before the time before_ns, and still is, makes
 * an SSE comment due and wakes. Otherwise does nothing. */
void call_tick(struct call *c, uint64_t before_ns);

/* Reads the record at *offset of `tokens`, as call_take gave them, and moves *offset behind it. False at the end.
 * *ret_of: the choice of a drawn token (rank 0), or the part of a scored one. */
bool call_record(const struct buf *tokens, size_t *offset, uint32_t *ret_of,
		 enum finish_reason *ret_finish, struct draw_result *ret_draw);

/* The functions below are in queue.c. */

/* call_enter (http) puts the call into server.arrived. call_leave (any thread) takes it out before it is freed. */
void call_enter(struct call *c);
void call_leave(struct call *c);

/* Any thread: finds a call in server.arrived by its `id`, or else by its `client_id`, which may be the id of another
 * call: of several the newest. It finds no visits. Returns a new reference; NULL: there is no such call. */
struct call *call_find(struct server *s, const char *id);

/* http: checks whether a request of this owner would find room in the queue. 0, or -PROBLEM_QUEUE_FULL with a
 * sentence. */
int call_check_queue(struct server *s, uint64_t owner, struct err *e) MUST_CHECK;

/* http, text: counts the call (`more` is 1), or `more` bytes of its prompts, in server.queued, if there is room for all
 * of them. Calls of another owner that have to give way for them are cancelled. 0, or -PROBLEM_QUEUE_FULL with a
 * sentence; then nothing was counted or cancelled. */
int call_queue(struct call *c, enum queue_measure what, uint64_t more, struct err *e) MUST_CHECK;

/* Returns the most that the queue may have. */
uint64_t call_queue_room(const struct server *s, enum queue_measure what);
