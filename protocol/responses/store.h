/* The responses that clients may ask for again, by id: bounded in bytes and in time, and each for its owner alone.
 *
 * A response goes on from an earlier one (previous_response_id), so its conversation is a chain of *turns*: the items
 * of a request and of its answer. Responses share the turns that their chains have in common:
 *
 *     response a ──> turn 1
 *     response b ──> turn 2 ──> turn 1
 *     response c ──> turn 3 ──> turn 1
 *
 * A turn is freed when no response, no later turn and no caller refers to it. So a response keeps its whole
 * conversation after the earlier responses were deleted or evicted. The bytes of all turns and responses are counted.
 * When a new one would exceed the bound, the oldest responses are evicted; one that does not fit by itself is not kept.
 *
 * All texts are JSON and copied. Times are nanoseconds of any clock that does not go back. Not thread safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct response_store;
struct response_turn;

struct response_text {
	const char *text; /* [len] */
	size_t len;
};

struct response_record {
	const char *id;
	uint64_t owner;
	struct response_turn *previous; /* NULL: none; must be of this store */
	/* lists of items, with commas between and without brackets; each may be empty */
	struct response_text input, output;
	struct response_text head, tail; /* the response's JSON around its output */
};

/* Makes a store for at most max_bytes; a response is kept for `age` nanoseconds. max_bytes 0: nothing is kept. NULL:
 * out of memory. */
struct response_store *response_store_new(uint64_t max_bytes, uint64_t age);

/* Frees the store. No turn may be held. NULL is allowed. */
void response_store_free(struct response_store *s);

/* Returns whether responses of so many bytes are kept at all. */
bool response_store_takes(const struct response_store *s, size_t bytes);

/* Keeps a response, whose id is not in the store. False: it is too large, or memory is short, and nothing was kept. */
bool response_store_put(struct response_store *s, const struct response_record *r, uint64_t now);

/* Appends the JSON of a response. False: this owner has none of this id, and nothing was appended. */
bool response_store_get(struct response_store *s, const char *id, uint64_t owner, uint64_t now,
			struct buf *out);

/* Forgets a response. False: this owner has none of this id. */
bool response_store_delete(struct response_store *s, const char *id, uint64_t owner, uint64_t now);

/* Returns the last turn of a response, a new reference; NULL: this owner has none of this id. */
struct response_turn *response_store_turn(struct response_store *s, const char *id, uint64_t owner,
					  uint64_t now);
void response_turn_drop(struct response_store *s, struct response_turn *t);

/* Appends the items of a conversation up to this turn, with commas between. output false: without those of the turn's
 * own answer. */
void response_turn_items(const struct response_turn *t, bool output, struct buf *out);

/* The numbers of responses and of bytes in the store. */
uint64_t response_store_count(const struct response_store *s);
uint64_t response_store_bytes(const struct response_store *s);
