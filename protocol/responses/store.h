/* The responses that clients may ask for again, by id: bounded in bytes and in time, and each for its owner alone. An
 * owner is a client's number: the daemon's call.owner, which stands for a key, or, where no keys are needed, for an
 * address.
 *
 * A response goes on from an earlier one (previous_response_id), so its conversation is a chain of *turns*: the items
 * of a request and of its answer. Responses share the turns that their chains have in common:
 *
 *     response a ──> turn 1
 *     response b ──> turn 2 ──> turn 1
 *     response c ──> turn 3 ──> turn 1
 *
 * A turn is freed when no response, no later turn and no *hold* refers to it. So a response keeps its whole
 * conversation after the earlier responses were deleted or evicted. A hold is the reference of a response that is being
 * made.
 *
 * The bytes of all turns, responses and records of owners are counted until they are freed, also those of an evicted
 * response that a caller still reads. They never exceed the bound. While a new response makes them too many, an owner
 * gives up its oldest response:
 *  - the owner of the new response, if it has more than half of the bound and another owner has anything;
 *  - else the owner with the most bytes.
 * So no owner loses a response to one that has more, and an owner that is alone may have everything. An owner without
 * responses gives up its oldest hold. A response that does not fit even by itself, with its conversation, is not kept
 * and evicts nothing: the most is the bound for an owner that is alone, else half of it.
 *
 * A response and its turns do not change. So the text of a response to which the caller has a reference may be read
 * while other threads use the store. All else is not thread safe.
 *
 * All texts are JSON and copied. Times are nanoseconds of any clock that does not go back. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"

struct response_store;
struct response_entry; /* a response */
struct response_turn;

struct response_text {
	const char *text; /* [len] */
	size_t len;
};

struct response_record {
	const char *id;
	uint64_t owner;
	/* lists of items, compact and with commas between, without brackets; each may be empty */
	struct response_text input, output;
	struct response_text head, tail; /* the response's JSON around its output */
};

/* Keeps a conversation for a response that is to go on from it. Begins as zeros. The store may give up a hold. */
struct response_hold {
	struct list node;	    /* in the holds of the owner */
	struct response_turn *turn; /* the last turn, a reference; NULL: none, or given up */
};

/* Makes a store for at most max_bytes; a response is kept for `age` nanoseconds. max_bytes 0: nothing is kept. NULL:
 * out of memory. */
struct response_store *response_store_new(uint64_t max_bytes, uint64_t age);

/* Frees the store. No reference and no hold may be left. NULL is allowed. */
void response_store_free(struct response_store *s);

/* Returns whether responses of so many bytes are kept at all. */
bool response_store_takes(const struct response_store *s, size_t bytes);

/* Makes a response for response_store_put; it is in no store yet, so any thread may do so. NULL: out of memory. */
struct response_entry *response_entry_new(const struct response_record *r);

/* Keeps a response, whose id is not in the store, and takes it over. `previous`: the conversation that it goes on from,
 * of the same owner; NULL: none. False: it is too large, or its conversation was given up, or memory is short, and the
 * response was freed. */
bool response_store_put(struct response_store *s, struct response_entry *e,
			const struct response_hold *previous, uint64_t now);

/* Returns a response, a new reference, which response_store_drop gives back; NULL: this owner has none of this id. */
struct response_entry *response_store_find(struct response_store *s, const char *id, uint64_t owner,
					   uint64_t now);
void response_store_drop(struct response_store *s, struct response_entry *e);

/* Forgets a response. False: this owner has none of this id. */
bool response_store_delete(struct response_store *s, const char *id, uint64_t owner, uint64_t now);

/* Lets *h hold the conversation of a response, until response_store_release. A hold holds nothing before, and stays in
 * its place meanwhile. response_store_release does nothing if it holds nothing. */
void response_store_hold(struct response_store *s, struct response_entry *e,
			 struct response_hold *h);
void response_store_release(struct response_store *s, struct response_hold *h);

/* The numbers of responses and of bytes in the store. */
uint64_t response_store_count(const struct response_store *s);
uint64_t response_store_bytes(const struct response_store *s);

/* The functions below read a response to which the caller has a reference. */

/* Appends its JSON, which has response_entry_length bytes. */
void response_entry_write(const struct response_entry *e, struct buf *out);
size_t response_entry_length(const struct response_entry *e);

/* The bytes of memory of its conversation. */
uint64_t response_entry_conversation(const struct response_entry *e);

/* Lists the texts of its conversation: lists of items, the oldest first, none of them empty. output false: without the
 * items of the response's own answer. *ret [*ret_n] is to be freed by the caller; its texts are borrowed. -ENOMEM. */
int response_entry_texts(const struct response_entry *e, bool output, struct response_text **ret,
			 size_t *ret_n) MUST_CHECK;

/* Appends the items of its conversation, its own answer's included, with commas between. */
void response_entry_items(const struct response_entry *e, struct buf *out);
