#include "protocol/template.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/text/jinja_ast.h"
#include "protocol/text/jinja_eval.h"

/* The bounds of one rendering. A chat of a million characters takes some hundred thousand steps;
 * fuzzers, which look for hangs, are built with fewer. */
#ifndef RENDER_STEPS
#define RENDER_STEPS (50 * 1000 * 1000)
#endif
enum {
	RENDER_MEMORY = 256 << 20,
	RENDER_OUTPUT = 64 << 20,
};

int template_parse(const char *name, const char *text, size_t len, struct template **ret,
		   struct err *e)
{
	struct token *tokens = NULL;
	struct template *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return err_set(e, ENOMEM, "template %.80s: out of memory", name);
	arena_init(&t->arena, TEMPLATE_ARENA_MAX);
	t->name = arena_strdup(&t->arena, name);
	rc = t->name ? 0 : err_set(e, ENOMEM, "template %.80s: out of memory", name);
	if (!rc)
		rc = jinja_lex(&t->arena, t->name, text, len, &tokens, e);
	if (!rc)
		rc = jinja_parse(t, tokens, e);
	if (!rc)
		rc = jinja_scope(t, e);
	free(tokens);
	if (rc < 0) {
		template_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

void template_free(struct template *t)
{
	if (!t)
		return;
	arena_release(&t->arena);
	free(t);
}

int template_render(const struct template *t, const json_t *context, struct buf *out, struct err *e)
{
	size_t before = out->len;
	bool failed = out->failed;
	struct err err = {0};
	struct render r = {
		.name = t->name,
		.line = 1,
		.steps = RENDER_STEPS,
		.out = out,
		.out_max = before < SIZE_MAX - RENDER_OUTPUT ? before + RENDER_OUTPUT : SIZE_MAX,
		.context = context,
		.err = &err,
	};
	int rc;

	if (!json_is_object(context))
		return err_set(e, EINVAL, "template %.80s: the context must be an object", t->name);
	arena_init(&r.arena, RENDER_MEMORY);
	buf_init(&r.scratch, RENDER_OUTPUT);
	rc = exec_template(&r, t);
	buf_release(&r.scratch);
	arena_release(&r.arena);
	if (rc < 0) {
		if (out->data)
			out->data[before] = 0;
		out->len = before;
		out->failed = failed;
		if (e)
			*e = err;
		return rc;
	}
	if (out->data)
		out->data[out->len] = 0;
	return 0;
}
