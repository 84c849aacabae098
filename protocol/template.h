/*
 * Chat templates: Jinja as transformers configures it (trim_blocks and lstrip_blocks on,
 * loopcontrols, generation blocks, tojson without escapes, the immutable sandbox), in C.
 *
 *     text -> jinja_lex -> jinja_parse, jinja_expr -> jinja_scope (what names mean)
 *          -> jinja_exec (statements), jinja_eval (expressions) -> output
 *     jinja_value, jinja_seq, jinja_text: Python's values, how they are walked and written
 *     jinja_filters*, jinja_tests, jinja_str, jinja_methods, jinja_format, jinja_globals: builtins
 *
 * What renders gives the same text as Python's jinja2, byte for byte, but for object addresses,
 * `is sameas` of equal texts or numbers, and isupper() and islower() of a few signs such as "ª".
 * Refused with a clear error are integers over 64 bits, recursive loops, tags that need other
 * templates, and filters for HTML (urlize, xmlattr, striptags, wordwrap, pprint, random).
 *
 * A template does not change after it was parsed: any thread may render it at the same time.
 * Rendering is bounded: output bytes, memory, steps and nesting each have a maximum, so that a
 * hostile template or message cannot hang the daemon. Parsing and rendering take up to 1 MiB of
 * stack.
 */
#ifndef PROTOCOL_TEMPLATE_H
#define PROTOCOL_TEMPLATE_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

struct template;

/* New. `name` stands for the file in messages. -EINVAL with line number and reason, -ENOMEM. */
int template_parse(const char *name, const char *text, size_t len, struct template **ret,
		   struct err *e) MUST_CHECK;

void template_free(struct template *t);

/* Renders with the members of `context` (an object) as global variables and appends to out.
 * -EBADMSG: the template called raise_exception, the sentence is its text (the client's fault).
 * -EINVAL: the template itself is wrong or met a value it cannot handle. -E2BIG: a bound was hit.
 * -ENOMEM. On failure out is as before. */
int template_render(const struct template *t, const json_t *context, struct buf *out,
		    struct err *e) MUST_CHECK;

#endif
