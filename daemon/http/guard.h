/* Whether a client may have what it asks for: the host that it names, the page that sends the request, its key. */
#pragma once

#include "daemon/http/exchange.h"

/* To be called when the headers have arrived and x->endpoint is set, also for OPTIONS. 0, or a problem with a sentence
 * for the client. Sets x->owner. */
int guard_check(struct MHD_Connection *mc, struct exchange *x, const char *method,
		struct err *e) MUST_CHECK ON(role_http);
