/* The data that all threads share. The first comment of each block of members names the thread that writes them. That
 * thread writes them before the state becomes LIFECYCLE_READY. Then they are constant until the threads have ended,
 * except members that are atomic or have a lock of their own. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/account.h"
#include "base/mix.h"
#include "base/queue.h"
#include "daemon/metrics.h"
#include "daemon/options.h"
#include "engine/engine.h"
#include "protocol/openai/request.h"
#include "protocol/jinja/jinja.h"
#include "protocol/output/tools.h"
#include "protocol/tokenizer/tokenizer.h"

struct call;
struct certificates;
struct lifecycle;
struct loop;
struct responses;
struct text;
struct token_trie;
struct transfer_keys;
struct transfer_listener;

enum {
	/* A body of more bytes is large: its memory is counted, and a text thread for large bodies takes it
	 * (text.h). */
	SMALL_BODY = 64 << 10,
	OWNER_SHARES = 4096, /* counters by owner (server_share) */
};

/* The two measures of the calls that wait. daemon/request/queue.c bounds each of them. */
enum queue_measure {
	/* calls that wait until all their prompts are computed, and other calls that wait for their answer; a visit
	 * (endpoint.h) is not counted */
	QUEUE_REQUESTS,
	QUEUE_BYTES, /* memory of their prompts: ids, echoed texts and the like, but not bodies */
	QUEUE_MEASURES,
};

struct server {
	/* main writes these members, before the http thread starts */
	struct options options;
	/* the model's name in answers: the first of --served-model-name, or base_name; borrowed */
	const char *name;
	/* last component of the path of --model, without .gguf; requests may use this name, too */
	char base_name[256];
	const char *model_format;    /* "safetensors" or "gguf"; static */
	int64_t started;	     /* seconds since 1970 */
	uint64_t started_ns;	     /* the same time on the monotonic clock */
	uint64_t owner_key;	     /* random, for server_share */
	struct tuning_table *tuning; /* --tuning, NULL: not given; owned */
	struct lifecycle *lifecycle;
	struct certificates *certificates;   /* --tls-cert, NULL: HTTP without TLS; owned */
	struct transfer_keys *transfer_keys; /* --transfer-key, NULL: not given; borrowed */
	/* the port of --transfer-listen; not given: a struct of zeros; borrowed */
	struct transfer_listener *transfer_listener;
	struct loop *loop;
	/* messages to the engine thread (struct call_message): any thread pushes, the engine thread pops; made by
	 * loop_start */
	struct queue inbox;
	struct text *text;
	/* responses that clients may ask for again (daemon/request/responses.h), with a lock of its own */
	struct responses *responses;

	/* the text thread that loads the tokenizer; owned */
	struct tokenizer *tokenizer;
	/* its tokens, for masks of draws; NULL: a prefill worker, which makes no masks */
	struct token_trie *trie;
	struct template *template; /* NULL: the model has no chat template */
	/* --default-chat-template-kwargs and, once the texts are loaded, the model's special tokens; owned by main */
	json_t *template_arguments;
	struct buf tokenizer_info; /* the answer of /tokenizer_info; owned */
	/* the format of the model's tool calls; NULL: none is known, or --tool-call-parser none */
	const struct tools_format *tools;
	/* the special tokens that are marks of this format (tools_mark) */
	struct {
		int32_t v[TOOLS_MARKS_MAX];
		size_t n;
	} tool_marks;
	/* the token with which a call begins, the first mark; -1: the format has no mark that is one token */
	int32_t call_token;
	/* special token that the template writes behind a message; -1: none is known (daemon/request/turns.h) */
	int32_t turn_token;

	/* the engine thread */
	struct engine_info info;
	char fingerprint[24]; /* system_fingerprint of answers */
	struct openai_limits limits;

	/* any thread writes these members */
	struct metrics metrics;
	/* the calls whose body has arrived and that are not freed, linked by call.older and call.newer
	 * (daemon/request/queue.c) */
	struct {
		pthread_mutex_t lock; /* zeros are an unlocked one */
		struct call *oldest, *newest;
	} arrived;
	/* the number of these calls and of the prompts that are computed for other workers */
	_Atomic uint32_t calls;
	_Atomic uint64_t queued[QUEUE_MEASURES]; /* the queue: sums of call.queued */
	/* Bytes of the large bodies that are in memory, by owner (server_share); metrics.body_bytes is the sum. */
	_Atomic uint64_t body_bytes_of[OWNER_SHARES];
	/* Bytes of constraints, by owner; metrics.constraint_bytes is the sum. */
	_Atomic uint64_t constraint_bytes_of[OWNER_SHARES];
	/* Large bodies take so much memory that some are refused. The watch thread then cuts clients that send large
	 * bodies slowly (watch.h). */
	_Atomic bool bodies_refused;
	/* more than 1 MiB of a body or an answer was freed: the watch thread gives memory back to the system */
	_Atomic bool trim;
};

/* Returns the number, below OWNER_SHARES, of the counter of an owner, in arrays of counters by owner. Several owners may
 * share a counter. Which ones do depends on a random key, so a client cannot choose an address with which it shares
 * another client's counter. */
static inline size_t server_share(const struct server *s, uint64_t owner)
{
	return mix64(mix64(owner ^ s->owner_key) + s->owner_key) % OWNER_SHARES;
}

/* Returns the bounds of the memory of constraints (protocol/output/steering.h) of an owner. */
static inline struct account_bounds server_constraint_bounds(struct server *s, uint64_t owner)
{
	return (struct account_bounds){
		.all = &s->metrics.constraint_bytes,
		.own = &s->constraint_bytes_of[server_share(s, owner)],
		.most = s->options.constraint_memory,
	};
}

/* Notes that a body of this owner had `from` bytes and has `to` bytes now (0: it was freed). The thread that owns the
 * body calls this. */
static inline void server_count_body(struct server *s, uint64_t owner, size_t from, size_t to)
{
	/* Unsigned, so that a difference below zero is right too. */
	uint64_t more = (to > SMALL_BODY ? to : 0) - (uint64_t)(from > SMALL_BODY ? from : 0);

	atomic_fetch_add(&s->metrics.body_bytes, more);
	atomic_fetch_add(&s->body_bytes_of[server_share(s, owner)], more);
}
