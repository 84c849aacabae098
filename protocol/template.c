#include "protocol/template.h"

#include <errno.h>
#include <stdio.h>
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
	CONFIG_MAX = 64 << 20,
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

/* ---- the model's directory ---- */

static int read_file(const char *path, struct buf *b, struct err *e)
{
	FILE *f = fopen(path, "re");
	size_t n;
	int rc = 0;

	if (!f)
		return err_set(e, errno, "%s: %s", path, strerror(errno));
	do {
		rc = buf_reserve(b, 64 << 10);
		if (rc == -ENOBUFS)
			rc = buf_reserve(b, b->max - b->len);
		n = rc || b->len == b->max
			    ? 0
			    : fread(b->data + b->len, 1, MIN(b->max - b->len, (size_t)64 << 10), f);
		b->len += n;
	} while (n);
	if (rc)
		rc = err_set(e, ENOMEM, "%s: out of memory", path);
	else if (ferror(f))
		rc = err_set(e, EIO, "%s: cannot be read", path);
	else if (b->len == b->max)
		rc = err_set(e, EINVAL, "%s: longer than %zu bytes", path, b->max - 1);
	if (!rc)
		b->data[b->len] = 0;
	fclose(f);
	return rc;
}

/* The template in the value of "chat_template": a string, or the one called "default" of a list. */
static const json_t *choose(const json_t *v)
{
	const json_t *item;
	size_t i;

	if (!json_is_array(v))
		return v;
	json_array_foreach(v, i, item)
	{
		const char *name = json_string_value(json_object_get(item, "name"));

		if (name && !strcmp(name, "default"))
			return json_object_get(item, "template");
	}
	return NULL;
}

static int parse_config(const char *path, struct template **ret, struct err *e)
{
	json_error_t why;
	json_t *config;
	const json_t *text;
	struct buf b;
	int rc;

	buf_init(&b, CONFIG_MAX);
	rc = read_file(path, &b, e);
	if (rc < 0) {
		buf_release(&b);
		return rc;
	}
	config = json_loadb(buf_str(&b), b.len, 0, &why);
	buf_release(&b);
	if (!config)
		return err_set(e, EINVAL, "%s: %s", path, why.text);
	text = choose(json_object_get(config, "chat_template"));
	if (!json_is_string(text))
		rc = err_set(e, ENOENT, "%s: the model has no chat template", path);
	else
		rc = template_parse(path, json_string_value(text), json_string_length(text), ret,
				    e);
	json_decref(config);
	return rc;
}

static int join_path(const char *dir, const char *file, char **ret, struct err *e)
{
	if (asprintf(ret, "%s/%s", dir, file) < 0)
		return err_set(e, ENOMEM, "%s: out of memory", dir);
	return 0;
}

int template_open(const char *dir, struct template **ret, struct err *e)
{
	struct buf b;
	char *path;
	int rc = join_path(dir, "chat_template.jinja", &path, e);

	if (rc < 0)
		return rc;
	buf_init(&b, TEMPLATE_TEXT_MAX + 2);
	rc = read_file(path, &b, e);
	if (!rc)
		rc = template_parse(path, buf_str(&b), b.len, ret, e);
	buf_release(&b);
	free(path);
	if (rc != -ENOENT)
		return rc;
	rc = join_path(dir, "tokenizer_config.json", &path, e);
	if (rc < 0)
		return rc;
	rc = parse_config(path, ret, e);
	free(path);
	return rc;
}
