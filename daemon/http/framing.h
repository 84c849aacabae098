/* Whether a request's headers say in one way alone where its body ends and for which host it is (RFC 9112, sections 3.2
 * and 5 to 7). A proxy in front may read doubtful headers otherwise than libmicrohttpd does; then a body's end could be
 * taken for another client's request (request smuggling). libmicrohttpd hands such headers on, so they are checked here.
 *
 * Of a header that is folded over several lines libmicrohttpd makes a wrong name: "Content-Length: 1" with a second line
 * " 2" becomes the header "Content-Length2: 1". So names that begin like those of this check are refused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { FRAMING_HEADERS_MAX = 32 << 10 }; /* bytes of all headers together */

/* A request's headers so far. Zero at first. */
struct framing {
	unsigned n_lengths, n_codings, n_hosts;
	size_t bytes;	       /* of names and values */
	bool bad_name;	       /* a name has a character that is not allowed, or was folded */
	bool not_chunked;      /* a transfer coding is not "chunked" */
	bool content_encoding; /* the body has a content coding: gzip */
};

/* Adds a header; the texts are borrowed for the call. */
void framing_add(struct framing *f, const char *name, size_t name_len, const char *value,
		 size_t value_len);

/* To be called behind the last header. version: "HTTP/1.1". 0, or a problem with a sentence: the request must be refused
 * and the connection closed. */
int framing_check(const struct framing *f, const char *version, struct err *e) MUST_CHECK;
