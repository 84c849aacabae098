/*
 * Chat templates: Jinja as transformers configures it (trim_blocks and lstrip_blocks on,
 * loopcontrols, tojson without escapes), in C: template.c on top of jinja_parse.c and jinja_eval.c.
 *
 * A template does not change after it was parsed: any thread may render it at the same time.
 * Rendering is bounded: output bytes, steps and nesting each have a maximum, so that a hostile
 * template or message cannot hang the daemon.
 */
#ifndef PROTOCOL_TEXT_TEMPLATE_H
#define PROTOCOL_TEXT_TEMPLATE_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

struct template;

/* New. `name` stands for the file in messages. -EINVAL with line number and reason, -ENOMEM. */
int template_parse(const char *name, const char *text, size_t len, struct template **ret,
		   struct err *e) MUST_CHECK;

/* DIR/chat_template.jinja, else "chat_template" of DIR/tokenizer_config.json (a string, or a list
 * of {name, template}, of which "default" is taken). -ENOENT when the model has none. */
int template_open(const char *dir, struct template **ret, struct err *e) MUST_CHECK;
void template_free(struct template *t);

/* Renders with the members of `context` (an object) as global variables and appends to out.
 * -EBADMSG: the template called raise_exception, the sentence is its text (the client's fault).
 * -EINVAL: the template itself is wrong or met a value it cannot handle. -E2BIG: a bound was hit.
 * -ENOMEM. On failure out is as before. */
int template_render(const struct template *t, const json_t *context, struct buf *out,
		    struct err *e) MUST_CHECK;

#endif
