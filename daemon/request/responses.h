/* The responses that clients may ask for again (protocol/responses/store.h), for all threads: text threads look earlier
 * ones up, the http threads keep new ones. Owners are those of calls (call.owner): a client finds nothing of another
 * one's. */
#pragma once

#include "daemon/server.h"
#include "protocol/responses/store.h"

/* Makes server->responses, by the options --response-store-memory and --response-store-seconds. responses_close frees
 * it; NULL is allowed there. While it is NULL, nothing is kept and nothing is found. */
int responses_open(struct server *s, struct err *e) MUST_CHECK;
void responses_close(struct server *s);

/* Returns whether a response of so many bytes may be kept. */
bool responses_take(struct server *s, size_t bytes);

/* Keeps a response. One that is too large is dropped, with a line in the log. */
void responses_put(struct server *s, const struct response_record *r);

/* Append the JSON of a response, or the items that it was made of. -PROBLEM_UNKNOWN_RESPONSE: this owner has none of
 * this id; -ENOMEM. */
int responses_get(struct server *s, const char *id, uint64_t owner, struct buf *out,
		  struct err *e) MUST_CHECK;
int responses_get_input(struct server *s, const char *id, uint64_t owner, struct buf *out,
			struct err *e) MUST_CHECK;

/* Forgets a response. -PROBLEM_UNKNOWN_RESPONSE. */
int responses_delete(struct server *s, const char *id, uint64_t owner, struct err *e) MUST_CHECK;

/* Appends the items of a response's conversation. *ret_turn: its last turn, a reference, which responses_drop gives
 * back. -PROBLEM_UNKNOWN_PREVIOUS; -ENOMEM. */
int responses_recall(struct server *s, const char *id, uint64_t owner, struct buf *out,
		     struct response_turn **ret_turn, struct err *e) MUST_CHECK;
void responses_drop(struct server *s, struct response_turn *t);
