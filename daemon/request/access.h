/* The line that the log has for each request, and the facts in it. http fills a struct access. If the request has a
 * call, http copies the struct into the call when the request is completed, and the last call_unref writes the line.
 * Otherwise http writes the line. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { REQUEST_ID_MAX = 128, ACCESS_ID_SIZE = 48 };

struct access {
	/* when the headers arrived; when the request was completed, 0: not yet */
	uint64_t begun_ns, ended_ns;
	char peer[64];		     /* address and port of the connection's other end */
	char method[16], path[200];  /* as access_request wrote them */
	char id[REQUEST_ID_MAX + 1]; /* the client's X-Request-Id; "": none */
	unsigned status;	     /* of the answer; 0: there was none */
	const char *cause; /* openai_error_cause of the error that the client got; NULL: none */
	char param[ERR_PARAM_MAX]; /* the parameter at fault; "": none */
};

/* Sets method and path of a request. Spaces, double quotes, and characters that are not printable ASCII become %XX. A
 * text that is too long is cut. */
void access_request(struct access *a, const char *method, const char *path);

/* Takes over a client's X-Request-Id (NULL: none was sent). It counts as none if it is empty, has more than
 * REQUEST_ID_MAX characters, or has a character that is not printable ASCII. */
void access_take_id(struct access *a, const char *id);

/* Makes an id of a request: out [ACCESS_ID_SIZE] becomes the prefix, of at most 15 characters, and 32 random ones. */
void access_make_id(const char *prefix, char *out);

/* Notes the error that the client gets. */
void access_fail(struct access *a, const struct err *e);

/* Logs the request. `middle` is the text that stands between the status, with the error behind it, and X-Request-Id.
 * It begins with ", ". */
void access_log(const struct access *a, const char *middle);
