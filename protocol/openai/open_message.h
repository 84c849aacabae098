/* A last message that is left open, so that the answer goes on with it (continue_final_message, as in transformers and
 * vLLM).
 *
 * A template writes more behind a message: the end of its turn. So the message's content gets a mark, the chat is
 * rendered, and the text is cut off where the mark begins. White space at the end of the content stays if the template
 * leaves it there. If the template removes it from the ends of messages, it is removed here, too: then the prompt is a
 * beginning of the text that the whole message would have. */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

/* Leaves the last message of a template's context open: marks its content, and sets the context's member
 * "continue_final_message", by which open_message_cut knows such a context. *ret_thinks: the content ends inside an
 * open <think> block. -EINVAL: the message has tool calls, which come behind its content; -ENOMEM. */
int open_message_mark(json_t *context, bool *ret_thinks, struct err *e) MUST_CHECK;

/* Cuts the text of a rendered chat behind the content of its open message. Does nothing if the context has none.
 * -EINVAL: the content is not in the text; -ENOMEM: the text is not there (text->failed). */
int open_message_cut(const json_t *context, struct buf *text, struct err *e) MUST_CHECK;
