#include "protocol/jinja/jinja.h"

#include <errno.h>
#include <stdlib.h>

#include "protocol/jinja/exec.h"
#include "protocol/jinja/json.h"
#include "protocol/jinja/parse.h"
#include "protocol/jinja/scope.h"
#include "protocol/jinja/tables.h"

/* The bounds of one rendering. A value costs about one step, and so do 64 bytes of text each time that they are
 * handled, so chats need far fewer than RENDER_STEPS. A compiler option may set RENDER_STEPS to another number. */
#ifndef RENDER_STEPS
#define RENDER_STEPS (50 * 1000 * 1000)
#endif
enum { RENDER_MEMORY = 256 << 20, RENDER_OUTPUT = 64 << 20 };

int template_parse(const char *name, const char *text, size_t len, struct template **ret,
		   struct err *e)
{
	struct template *t = calloc(1, sizeof(*t));
	struct reader rd = {.t = t, .err = e};
	const struct token *tokens = NULL;

	if (!t)
		return err_set(e, ENOMEM, "template %.80s: out of memory", name);
	arena_init(&t->arena, TEMPLATE_ARENA_MAX);
	arena_init(&rd.scratch, TEMPLATE_ARENA_MAX);
	t->name = arena_strdup(&t->arena, name);
	t->text = arena_strndup(&t->arena, text, MIN(len, (size_t)TEMPLATE_TEXT_MAX));
	t->len = len;
	if (!t->name || !t->text)
		rd.rc = err_set(e, ENOMEM, "template %.80s: out of memory", name);
	else if (len > TEMPLATE_TEXT_MAX)
		reader_fail(&rd, 1, "the template is longer than %d bytes", TEMPLATE_TEXT_MAX);
	else
		tokens = lex(&rd, text, len);
	if (!rd.rc)
		parse(&rd, tokens);
	if (!rd.rc)
		scope(&rd);
	arena_release(&rd.scratch);
	if (rd.rc)
		template_free(t);
	else
		*ret = t;
	return rd.rc;
}

void template_free(struct template *t)
{
	if (!t)
		return;
	arena_release(&t->arena);
	free(t);
}

const char *template_text(const struct template *t, size_t *ret_len)
{
	*ret_len = t->len;
	return t->text;
}

/* Returns the values of the names that a template takes from its context. A name that the context lacks gets the global
 * function of that name, or V_MISSING. NULL after a failure. */
static struct value *look_up(struct render *r, const struct template *t, const json_t *context)
{
	struct value *v = render_alloc(r, t->ncontext_names, sizeof(*v));

	for (unsigned i = 0; v && i < t->ncontext_names; i++) {
		struct value name = t->context_names[i];
		const json_t *j = json_object_getn(context, name.s, name.len);
		const struct builtin *b = j ? NULL : builtin_find(GLOBAL, name.s, name.len);

		if (j)
			v[i] = value_from_json(r, j);
		else if (b)
			v[i] = builtin_value(r, "function", b, name, NOTHING);
	}
	return r->rc ? NULL : v;
}

int template_render(const struct template *t, const json_t *context, const struct pace *pace,
		    struct buf *out, struct err *e)
{
	size_t before = out->len;
	bool failed = out->failed;
	struct err err = {0};
	struct render r = {
		.name = t->name,
		.line = 1,
		.err = &err,
		.more_steps = RENDER_STEPS,
		.pace = pace,
		.out = out,
		.out_max = before < SIZE_MAX - RENDER_OUTPUT ? before + RENDER_OUTPUT : SIZE_MAX,
		.find = builtin_find,
	};
	const struct value *values;

	if (!json_is_object(context))
		return err_set(e, EINVAL, "template %.80s: the context must be an object", t->name);
	arena_init(&r.arena, RENDER_MEMORY);
	buf_init(&r.scratch, RENDER_OUTPUT);
	values = look_up(&r, t, context);
	if (values)
		exec(&r, t, values);
	buf_release(&r.scratch);
	arena_release(&r.arena);
	if (r.rc) {
		out->len = before;
		out->failed = failed;
		if (e)
			*e = err;
	}
	if (out->data)
		out->data[out->len] = 0;
	return r.rc;
}
