/*
 * What prefill workers, decode workers and their registry say to each other: bytes to structs and back.
 *
 *     HELLO, REFUSE        who I am, how my pages and states look; no, and why
 *     PREPARE              decode -> prefill: compute this prompt, this much of it I have
 *     WINDOW               prefill -> decode: some layers of some pages, or of the state
 *     STATUS               prefill -> decode: how far it is; with Success the first tokens
 *     ABORT                decode -> prefill: this room is over
 *     PING, PONG           are you there?; yes, and my load, and what was newly cached
 *     ANNOUNCE, LIST, PEERS with a registry: here I am; who is there?; these are
 *
 * A message is one frame; behind a WINDOW's comes a raw one with all the pieces that it lists. FORMAT.md has each byte.
 * Which field has which bytes and range is one table in wire_form.c, read by parser and encoder alike.
 *
 * Nothing in a frame is believed before it is checked. Parsing allocates nothing and copies no array: the pointers of
 * what was parsed point into the frame, at any alignment, hence the packed structs. They are little endian as they
 * lie, and so is what they are made from: an array of int32_t is one of struct wire_i32. Pure, any thread.
 */
#ifndef PROTOCOL_TRANSFER_WIRE_H
#define PROTOCOL_TRANSFER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "scheduler/plan.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little endian in memory");

#define WIRE_PACKED __attribute__((packed))

enum {
	WIRE_VERSION = 1,
	WIRE_HEADER = 24, /* bytes before the fields */
	WIRE_LAYERS_MAX = 1024,
	WIRE_HEARTBEAT_MAX = 600000, /* ms */
	WIRE_PAGE_TOKENS_MAX = 65536,
	WIRE_TOKENS_MAX = 1 << 22,
	WIRE_CHOICES_MAX = 1024,
	WIRE_END_TOKENS_MAX = 512, /* so many may a draw ban (engine/step.c) */
	WIRE_BOUNDARIES_MAX = 65536,
	WIRE_PIECES_MAX = 65536,
	WIRE_KEYS_MAX = 4096, /* of one PONG */
	WIRE_PEERS_MAX = 1024,
	WIRE_TEXT_MAX = 511,
	WIRE_ENDPOINT = 192, /* bytes, with the 0 behind it */
	WIRE_ID = 16,
	WIRE_CURVE_KEY = 32,
	WIRE_FRAME_MAX = 1 << 25, /* no message is longer; raw frames may be */
};

/* No part of a layer's page or state is larger, so that sums of them stay far from 2^64. */
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
enum wire_layer_kind { WIRE_ATTENTION, WIRE_DELTANET };

/* What a layer keeps: of each page, or of a sequence's state. part / 2 is the layer's kind. */
enum wire_part { WIRE_K, WIRE_V, WIRE_RING, WIRE_RECURRENT, WIRE_PARTS };

/* How far the transfer of one request is. Only ever rises; Failed is the last. room.h says who sets what. */
enum room_status {
	ROOM_BOOTSTRAPPING,
	ROOM_BOOTSTRAPPED,
	ROOM_WAITING_FOR_INPUT,
	ROOM_TRANSFERRING,
	ROOM_SUCCESS,
	ROOM_FAILED,
};

/* ---- elements of arrays, as they lie in frames ---- */

struct wire_i32 {
	int32_t v;
} WIRE_PACKED;

struct wire_u32 {
	uint32_t v;
} WIRE_PACKED;

struct wire_key {
	uint8_t bytes[16]; /* a content key's (prefix_cache/tiers.h) */
};

struct wire_layer {
	uint64_t part_bytes[2]; /* k, v of one page; or ring, recurrent state of one slot */
	uint32_t kind;
} WIRE_PACKED;

/* One part of one layer: of pages first .. first + n - 1 of the prompt, one behind the other; or of the state (0, 1).
 * Its bytes lie in the raw frame, behind those of the pieces before it. */
struct wire_piece {
	uint64_t bytes;
	uint32_t layer, first, n, part;
} WIRE_PACKED;

struct wire_draw {
	struct draw_result v;
} WIRE_PACKED;

struct wire_peer {
	uint8_t worker[WIRE_ID], model[WIRE_ID];
	uint8_t curve_key[WIRE_CURVE_KEY]; /* zeros: none */
	char endpoint[WIRE_ENDPOINT];	   /* zeros from its end on */
};

/* ---- messages. Pointers are borrowed: from the frame, or from who encodes ---- */

struct wire_layout {
	uint64_t page_bytes, slot_bytes; /* sums over the layers; 0: there are no such layers */
	uint32_t page_tokens;
	uint32_t n_layers;
	const struct wire_layer *layers;
};

struct wire_hello {
	uint8_t worker[WIRE_ID]; /* random, new at each start */
	uint8_t model[WIRE_ID];	 /* hash of everything that decides bits */
	uint32_t role;
	uint32_t n_pages, n_slots;
	uint32_t heartbeat_ms; /* how often it says something */
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
	uint32_t n_have; /* tokens whose pages are not to be sent, < n_tokens */
	uint32_t n_choices;
	uint32_t min_tokens;	/* > 0: end tokens must not be drawn */
	int32_t priority;	/* lower first */
	uint8_t cache_disabled; /* 0, 1 */
	uint64_t space[2];
	struct sampling sampling;
	uint32_t n_end_tokens, n_boundaries;
	const struct wire_i32 *end_tokens;
	const struct wire_u32 *boundaries; /* rising, 1 .. n_tokens */
};

struct wire_window {
	uint32_t sequence;		/* 0, 1, 2 .. of its room */
	uint32_t first_token, n_tokens; /* the chunk whose step made it */
	uint32_t first_layer, n_layers; /* all pieces are of these */
	uint32_t n_pieces;
	const struct wire_piece *pieces;
};

struct wire_status {
	uint32_t status;    /* enum room_status */
	uint32_t code;	    /* of Failed: errno; else 0 */
	uint32_t n_cached;  /* tokens that the prefill worker had not to compute */
	uint32_t n_windows; /* of Success: all that were sent, with so many bytes in raw frames */
	uint64_t total_bytes;
	uint32_t n_draws; /* of Transferring or Success: the first token of each choice; else 0 */
	uint32_t n_text;  /* of Failed: a sentence; else 0 */
	const struct wire_draw *draws;
	const char *text;
};

struct wire_ping {
	uint64_t sequence;
};

struct wire_pong {
	uint64_t sequence;	/* its PING's */
	uint64_t queued_tokens; /* of prompts, still to be computed */
	uint32_t running;	/* requests */
	uint8_t draining;	/* 0, 1: takes nothing new */
	uint8_t forgotten;	/* 0, 1: nothing that was cached before `keys` is there any more */
	uint32_t n_keys;
	/* Of pages newly cached; beginnings of prompts before what follows them. */
	const struct wire_key *keys;
};

struct wire_announce {
	uint32_t role;
	uint32_t ttl_ms; /* forget me then, unless I come again; 0: now */
	struct wire_peer peer;
};

struct wire_list {
	uint32_t role;		/* of whom to list */
	uint8_t model[WIRE_ID]; /* of this model only; zeros: any */
};

struct wire_peers {
	uint32_t n_peers;
	const struct wire_peer *peers;
};

struct wire_message {
	enum wire_type type;
	uint64_t room; /* of PREPARE, WINDOW, STATUS and ABORT; 0 in all others */
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

/* Takes a frame apart. -EPROTONOSUPPORT: of another version; -EBADMSG: anything else that is wrong with it, the
 * sentence says what. *ret is untouched then. What ret points to is in the frame. */
int wire_parse(const void *frame, size_t len, struct wire_message *ret, struct err *e) MUST_CHECK;

/* The room that a frame belongs to, although it may not parse: that room has failed then. 0: none, or it is no
 * frame of this version at all. */
uint64_t wire_room(const void *frame, size_t len);

/* Appends the frame of a message. -EINVAL: no parser would take it, the sentence says why; -ENOBUFS, -ENOMEM. Then
 * nothing is appended. */
int wire_encode(const struct wire_message *m, struct buf *out, struct err *e) MUST_CHECK;

/* Sum of what a window lists: bytes of the raw frame behind it. */
uint64_t wire_window_bytes(const struct wire_window *w);

/* Whether a raw frame of so many bytes is that of the window. -EBADMSG. */
int wire_window_fits(const struct wire_window *w, uint64_t bytes, struct err *e) MUST_CHECK;

/* True when what one worker made the other one can use: model and layout are the same. Else e says what differs. */
bool wire_layout_equal(const struct wire_hello *ours, const struct wire_hello *theirs,
		       struct err *e) MUST_CHECK;

/* A sentence of a frame as a C string for logs and clients, cut to size - 1 bytes; what is not printable ASCII becomes
 * a question mark. */
void wire_text(const char *text, uint32_t n_text, char *out, size_t size);

/* "PREPARE" and so on, "Transferring" and so on; "?" for what there is not. */
const char *wire_type_name(enum wire_type type);
const char *room_status_name(enum room_status status);

#endif
