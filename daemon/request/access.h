/* The line that the log has for each request, and the numbers for it. http fills a struct access. If the request has a
 * call, http hands it to the call when the request is completed, and the call writes the line when its work has ended;
 * otherwise http writes it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { REQUEST_ID_MAX = 128 };

struct access {
	uint64_t begun_ns, ended_ns; /* headers arrived; the request is completed, 0: not yet */
	char peer[64];		     /* the client's address and port */
	char method[16], path[200];  /* without spaces and unprintable characters */
	char id[REQUEST_ID_MAX + 1]; /* the client's X-Request-Id; "": none */
	unsigned status;	     /* of the answer; 0: there was none */
	const char *cause;	     /* of the error that the client got (errors.h); NULL: none */
	char param[ERR_PARAM_MAX];
};

/* Sets method and path of a request. Characters that are not printable, spaces and quotes become %XX. What is too long
 * is cut. */
void access_request(struct access *a, const char *method, const char *path);

/* Takes over a client's X-Request-Id (NULL: none was sent). One that is empty, has more than REQUEST_ID_MAX characters,
 * or one that is not printable ASCII counts as none. */
void access_take_id(struct access *a, const char *id);

/* Notes the error that the client gets. */
void access_fail(struct access *a, const struct err *e);

/* Logs the request. `middle` is the text between status and X-Request-Id, which begins with ", ". */
void access_log(const struct access *a, const char *middle);
