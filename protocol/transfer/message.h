/*
 * The messages between prefill workers, decode workers and their registry (`tigon registry`, which remembers the
 * addresses of workers), as structs.
 *
 *     HELLO      both ways            the sender's model and the layout of its pages and states
 *     REFUSE     both ways            the sender cannot work with the peer, wants the peer's HELLO first, or shuts down
 *     PREPARE    decode -> prefill    compute this prompt; the sender has the pages of the first n_have tokens
 *     WINDOW     prefill -> decode    data of some layers: of some pages, of the state, or of both
 *     STATUS     prefill -> decode    how far a delivery (delivery.h) is; may have the first tokens
 *     ABORT      decode -> prefill    the delivery is not wanted any more
 *     PING       decode -> prefill    are you there?
 *     PONG       prefill -> decode    yes; the sender's load, and the pages that it has newly cached
 *     ANNOUNCE   worker -> registry   the sender's address
 *     LIST       worker -> registry   which workers are there?
 *     PEERS      registry -> worker   the answer to LIST
 *
 * The data are divided like this:
 *
 *     part     an array that a layer keeps of a sequence, in pages (keys, values) or in states (engine/layers/part.h)
 *     piece    one part of one page, or of the state
 *     run      the pieces of one part in consecutive pages, or the one piece of a part in states
 *
 * A message is one frame. A WINDOW lists runs, and is followed by a raw frame with the bytes of all of them. FORMAT.md
 * describes each byte, and wire.h turns bytes into these structs and back. Arrays of a parsed message lie in the frame
 * at any alignment, so their elements are packed structs or consist of bytes. Frames and host are both little endian,
 * so a pointer to int32_t can be converted to a pointer to struct wire_i32.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "scheduler/plan.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little endian in memory");

#define WIRE_PACKED __attribute__((packed))

enum {
	WIRE_VERSION = 3,
	WIRE_HEADER = 24, /* bytes of a frame before its fields */
	WIRE_LAYERS_MAX = 1024,
	WIRE_HEARTBEAT_MAX = 600000, /* ms */
	WIRE_PAGE_TOKENS_MAX = 65536,
	WIRE_TOKENS_MAX = 1 << 22,
	WIRE_CHOICES_MAX = 1024,
	WIRE_END_TOKENS_MAX = 512, /* as many as a draw can ban: PLAN_BANNED_MAX (plan.h) */
	WIRE_BOUNDARIES_MAX = 65536,
	WIRE_MASK_MAX = 1 << 18, /* words of a token mask */
	WIRE_BIASES_MAX = 1024,	 /* PLAN_BIASES_MAX (plan.h) */
	WIRE_RUNS_MAX = 65536,
	WIRE_KEYS_MAX = 4096, /* keys of one PONG */
	WIRE_PEERS_MAX = 1024,
	WIRE_TEXT_MAX = 511,
	WIRE_ENDPOINT = 192, /* bytes of an endpoint (a worker's address), with the final 0 */
	WIRE_ID = 16,
	WIRE_CURVE_KEY = 32,
	WIRE_FRAME_MAX = 1 << 25, /* bytes of a message; a raw frame may be longer */
};

/* The most bytes of a piece. The sum over all parts of all layers then stays far below 2^64. */
#define WIRE_PART_BYTES_MAX ((uint64_t)1 << 36)

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_REFUSE,
	WIRE_PREPARE,
	WIRE_WINDOW,
	WIRE_STATUS,
	WIRE_ABORT,
	WIRE_PING,
	WIRE_PONG,
	WIRE_ANNOUNCE,
	WIRE_LIST,
	WIRE_PEERS,
};

enum wire_role { WIRE_PREFILL, WIRE_DECODE };

/* The most parts of a layer. */
enum { WIRE_PARTS = 3 };

/* How far a delivery is; delivery.h describes each status. The status of a delivery only rises; Failed is the
 * highest. tigond's prefill worker sends only Success and Failed. */
enum delivery_status {
	DELIVERY_BOOTSTRAPPING,
	DELIVERY_BOOTSTRAPPED,
	DELIVERY_WAITING_FOR_INPUT,
	DELIVERY_TRANSFERRING,
	DELIVERY_SUCCESS,
	DELIVERY_FAILED,
};

/* ---- elements of arrays, as they lie in frames ---- */

struct wire_i32 {
	int32_t v;
} WIRE_PACKED;

struct wire_u32 {
	uint32_t v;
} WIRE_PACKED;

struct wire_bias {
	int32_t token;
	float value;
} WIRE_PACKED;

struct wire_key {
	uint8_t bytes[16]; /* a content key (prefix_cache/tiers.h) */
};

struct wire_layer {
	/* bytes of a piece of each part; 0: the layer has neither this part nor further ones */
	uint64_t part_bytes[WIRE_PARTS];
	uint32_t in_states; /* bit i: part i is kept in states, else in pages */
} WIRE_PACKED;

static inline bool wire_in_state(const struct wire_layer *l, uint32_t part)
{
	return l->in_states >> part & 1;
}

/* A run: the pieces of one part of a layer in the prompt's pages first .. first + n - 1, or its one piece in the state
 * (first 0, n 1). In the raw frame the bytes of a run follow the bytes of the run before it. */
struct wire_run {
	uint64_t bytes;
	uint32_t layer, first, n, part;
} WIRE_PACKED;

struct wire_draw {
	struct draw_result v;
} WIRE_PACKED;

struct wire_peer {
	uint8_t worker[WIRE_ID], model[WIRE_ID];
	uint8_t curve_key[WIRE_CURVE_KEY]; /* zeros: none */
	char endpoint[WIRE_ENDPOINT];	   /* padded with zeros */
};

/* ---- messages. Pointers are borrowed: they point into the frame, or to data of the caller of wire_encode ---- */

struct wire_layout {
	/* bytes of a page and of a state: sums over all layers; 0: no layer has a part in pages (in states) */
	uint64_t page_bytes, slot_bytes;
	uint32_t page_tokens;
	uint32_t n_layers;
	const struct wire_layer *layers;
};

struct wire_hello {
	uint8_t worker[WIRE_ID]; /* random, new at each start */
	/* the identity of engine/cache_identity.h; workers with equal identities compute equal bits */
	uint8_t model[WIRE_ID];
	uint32_t role;
	uint32_t n_pages, n_slots;
	uint32_t heartbeat_ms; /* from a decode worker: the time between two of its PINGs */
	struct wire_layout layout;
};

struct wire_refuse {
	uint32_t code; /* errno */
	uint32_t n_text;
	const char *text;
};

struct wire_prepare {
	const struct wire_i32 *tokens; /* [n_tokens] the prompt */
	uint32_t n_tokens;
	/* tokens at the prompt's beginning whose pages are not to be sent: a multiple of page_tokens, below n_tokens */
	uint32_t n_have;
	uint32_t n_choices;
	/* > 0: no first token may be an end token, unless the mask leaves nothing else */
	uint32_t min_tokens;
	int32_t priority;	/* lower first */
	uint8_t cache_disabled; /* 0, 1 */
	uint64_t space[2];
	struct sampling sampling;
	uint32_t n_end_tokens, n_boundaries;
	const struct wire_i32 *end_tokens;
	const struct wire_u32 *boundaries; /* rising, 1 .. n_tokens */
	/* token mask and biases of the first tokens (scheduler/plan.h); n_allowed 0: every token may be drawn */
	uint32_t n_allowed, n_biases;
	const struct wire_u32 *allowed;
	const struct wire_bias *biases; /* by rising token */
};

struct wire_window {
	uint32_t sequence; /* number of the WINDOW in its delivery, from 0 on */
	/* The prompt's tokens that a step of the prefill worker computed; the trace (--transfer-trace) alone reads
	 * these two. Pages of the runs may lie before the tokens: a prompt's first WINDOWs also have pages that the
	 * prefill worker had cached. */
	uint32_t first_token, n_tokens;
	uint32_t first_layer, n_layers; /* every run is of one of these layers */
	uint32_t n_runs;
	const struct wire_run *runs;
};

struct wire_status {
	uint32_t status;      /* enum delivery_status */
	uint32_t code;	      /* Failed: errno; else 0 */
	uint32_t n_cached;    /* Success: tokens that the prefill worker had cached; else ignored */
	uint32_t n_windows;   /* Success: WINDOW messages that were sent; else 0 */
	uint64_t total_bytes; /* Success: bytes of the raw frames of all WINDOWs; else 0 */
	uint32_t n_draws;     /* Transferring, Success: the number of choices, or 0; else 0 */
	uint32_t n_text;      /* Failed: bytes of the sentence; else 0 */
	const struct wire_draw *draws; /* the first token of each choice */
	const char *text;	       /* without a final 0 */
};

struct wire_ping {
	uint64_t sequence;
};

struct wire_pong {
	uint64_t sequence; /* sequence of the PING that it answers; 0: it answers none */
	/* the sum of n_tokens - n_have (PREPARE) over the deliveries whose last STATUS was not sent before the PONG */
	uint64_t queued_tokens;
	uint32_t running; /* deliveries that have not ended */
	uint8_t draining; /* 1: the sender accepts no new prompts */
	uint8_t forgotten; /* 1: the cache was emptied, so keys of earlier PONGs do not count any more */
	uint32_t n_keys;
	/* keys of newly cached pages; the keys of one prompt are in the order of its pages */
	const struct wire_key *keys;
};

struct wire_announce {
	uint32_t role;
	/* time until the registry forgets the worker, unless the worker announces itself again; 0: the registry forgets
	 * it at once */
	uint32_t ttl_ms;
	struct wire_peer peer;
};

struct wire_list {
	uint32_t role;		/* role of the workers to list */
	uint8_t model[WIRE_ID]; /* model of the workers to list; zeros: any */
};

struct wire_peers {
	uint32_t n_peers;
	const struct wire_peer *peers;
};

struct wire_message {
	enum wire_type type;
	uint64_t delivery; /* id of the delivery, in PREPARE, WINDOW, STATUS and ABORT; else 0 */
	union {
		struct wire_hello hello;
		struct wire_refuse refuse;
		struct wire_prepare prepare;
		struct wire_window window;
		struct wire_status status;
		struct wire_ping ping;
		struct wire_pong pong;
		struct wire_announce announce;
		struct wire_list list;
		struct wire_peers peers;
	};
};

/* Return the name of a value: "PREPARE", "Transferring" and so on; "?" if the value is unknown. */
const char *wire_type_name(enum wire_type type);
const char *delivery_status_name(enum delivery_status status);
