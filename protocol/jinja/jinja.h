/* Jinja, the language of chat templates, as transformers configures it (trim_blocks and lstrip_blocks on, loopcontrols,
 * generation blocks, tojson without HTML escapes, the immutable sandbox), in C. It knows nothing of chats: the caller
 * gives the messages as variables.
 *
 * The way of a template through the files, and the subjects of other files:
 *
 *     text -> lex -> expr, parse -> scope (the meaning of names) -> exec (statements), eval (expressions)
 *     value, dict, seq, number, write, json: Python's values, how they are found, walked, written
 *     builtin, tables: filters, tests, methods and functions (strings, filters, items, tests...)
 *
 * A template that renders is meant to give the same text as Python's jinja2, byte for byte. The exceptions are rare;
 * among them are `is sameas` of equal texts or numbers, d.keys() == d.keys(), and whether a letter beside a few signs
 * such as "ª" becomes a capital one.
 *
 * Many constructs that no published chat template uses are refused, with an error that names them, when the template is
 * read or when it is rendered. Among them are the tags call, with, raw, print, block and include, recursive loops,
 * arguments with * and **, the operator **, comparisons in a chain, most formats (format.h), and some filters and
 * methods (`refused` in tables.h). Integers have 64 bits; a larger one is an error.
 *
 * A template does not change after it was parsed: several threads may render it at the same time. Rendering is bounded:
 * output bytes, memory, steps and nesting each have a maximum, so that a hostile template or message cannot hang the
 * daemon. Parsing and rendering take up to 1 MiB of stack. */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/pace.h"

struct template;

enum { TEMPLATE_TEXT_MAX = 1 << 20 }; /* most bytes of a template */

/* Makes a *new* template of a text. Errors call the template `name`. Fails with -EINVAL if the text is wrong or not
 * supported (the error names the line and the reason), and with -ENOMEM. */
int template_parse(const char *name, const char *text, size_t len, struct template **ret,
		   struct err *e) MUST_CHECK;
void template_free(struct template *t);

/* Returns the text that the template was made of, [*ret_len]; borrowed. */
const char *template_text(const struct template *t, size_t *ret_len);

/* Renders with the members of `context` (an object) as global variables and appends the text to out. -EBADMSG: the
 * template called raise_exception (the messages are at fault), and the error is the argument of that call, cut if it is
 * too long. -EINVAL: the template itself is wrong, or met a value that it cannot handle, or `context` is no object.
 * -E2BIG: a bound was reached. -ECANCELED: pace_gives_up (pace NULL: never). -ENOMEM. On failure the text in out is
 * unchanged. */
int template_render(const struct template *t, const json_t *context, const struct pace *pace,
		    struct buf *out, struct err *e) MUST_CHECK;
