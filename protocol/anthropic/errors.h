/* Errors on the wire as Anthropic's API has them. The statuses are those of protocol/openai/errors.h, so that proxies
 * and metrics see one set; the type follows from the status. Anthropic's own status for overloaded_error, 529, is not
 * used: 503 is the one that proxies repeat elsewhere. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Appends {"type":"error","error":{"type","message"}} and returns the status. A prompt that does not fit gets a message
 * that begins with "prompt is too long: ", by which agents know that they have to shorten it. The parameter `thread`,
 * if it is not supported, gets the details by which the SDK's tool loop knows that it has to send the whole
 * conversation each time (anthropic-python, src/anthropic/lib/threads/). */
int anthropic_error(const struct err *e, struct buf *out);
