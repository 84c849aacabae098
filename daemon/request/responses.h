/* The responses that clients may ask for again (protocol/responses/store.h), for all threads: text threads look earlier
 * ones up, the http threads keep new ones. Owners are those of calls (call.owner): a client finds nothing of another
 * one's. One lock guards the store. It is never held while a text is copied: texts are read through references. */
#pragma once

#include "daemon/server.h"
#include "protocol/responses/store.h"

/* Makes server->responses, by the options --response-store-memory and --response-store-seconds. responses_close frees
 * it; NULL is allowed there. While it is NULL, nothing is kept and nothing is found. */
int responses_open(struct server *s, struct err *e) MUST_CHECK;
void responses_close(struct server *s);

/* Returns whether a response of so many bytes may be kept. */
bool responses_take(struct server *s, size_t bytes);

/* Keeps a response. previous: the conversation that it goes on from; NULL: none. One that does not fit is dropped, with
 * a line in the log. */
void responses_put(struct server *s, const struct response_record *r,
		   const struct response_hold *previous);

/* Returns a response, a reference, which responses_drop gives back (NULL is allowed). NULL: this owner has none of this
 * id. */
struct response_entry *responses_find(struct server *s, const char *id, uint64_t owner);
void responses_drop(struct server *s, struct response_entry *r);

/* Forgets a response. False: this owner has none of this id. */
bool responses_delete(struct server *s, const char *id, uint64_t owner);

/* Lets *h, which holds nothing, hold the conversation of a response, and ends that. */
void responses_hold(struct server *s, struct response_entry *r, struct response_hold *h);
void responses_release(struct server *s, struct response_hold *h);
