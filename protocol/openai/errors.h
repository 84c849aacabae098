/*
 * Errors on the wire: one table from an error's number to its HTTP status, type and code.
 *
 * Every room reports errors as -errno with a sentence (base/err.h). What a client sees is decided
 * here and nowhere else. Clients such as openai-python repeat a request after 408, 409, 429 and
 * 5xx: a failure that will repeat must be a 4xx, a passing one must not.
 *
 *     errno            status  what happened
 *     EINVAL           400     bad JSON, wrong type, out of range
 *     ENOTSUP          400     a parameter this server does not have
 *     EBADMSG          400     the chat template raised an exception
 *     E2BIG            400     a bound of the template was hit
 *     EOVERFLOW        400     prompt and max_tokens do not fit the context
 *     EACCES           401     wrong or missing key
 *     EXDEV            403     a request of another site's page for what is not for pages
 *     ENOENT           404     no such model
 *     ENOSYS           404     no such path
 *     EPERM            405     method not allowed here (the caller adds Allow)
 *     EINPROGRESS      409     not while requests run
 *     EMSGSIZE         413     the body is over the limit
 *     EPROTONOSUPPORT  415     the body is not application/json
 *     EAGAIN           429     the queue is full (the caller adds Retry-After)
 *     EBUSY            503     the model is being loaded
 *     ESHUTDOWN        503     draining before the end
 *     EIO              503     the device is lost
 *     ENOMEM           503     out of memory
 *     anything else    500
 */
#ifndef PROTOCOL_OPENAI_ERRORS_H
#define PROTOCOL_OPENAI_ERRORS_H

#include "base/buf.h"
#include "base/err.h"

/* HTTP status of a positive or negative errno. */
int openai_status(int code);

/* Appends {"error":{"message","type","param","code"}} and returns the status. */
int openai_error(const struct err *e, struct buf *out);

#endif
