#include "protocol/grammar/constraint_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "protocol/grammar/json_text.h"
#include "protocol/grammar/parts.h"

static int choice_grammar(struct grammar_builder *b, const struct constraint_text *texts, size_t n,
			  struct grammar **ret, struct err *e)
{
	struct parts p = {0};
	uint32_t root;

	if (!n)
		return err_set(e, EINVAL, "the list of choices is empty");
	for (size_t i = 0; i < n; i++)
		parts_add(&p, grammar_literal(b, texts[i].text, texts[i].len));
	if (p.failed)
		grammar_no_memory(b);
	root = grammar_rule(b, "root");
	grammar_define(b, root, grammar_choice(b, p.v, p.n));
	parts_release(&p);
	return grammar_build(b, root, ret, e);
}

static int json_object_grammar(struct grammar_builder *b, struct grammar **ret, struct err *e)
{
	struct json_text text;

	json_text_init(&text, b, false);
	return grammar_build(b, text.object, ret, e);
}

int constraint_grammar(const struct constraint *c, const struct pace *pace, struct grammar **ret,
		       struct err *e)
{
	struct grammar_builder *b = grammar_builder_new();
	int r = -EINVAL;

	if (!b)
		return err_no_memory(e);
	grammar_set_pace(b, pace);
	switch (c->kind) {
	case CONSTRAINT_CHOICE: r = choice_grammar(b, c->texts, c->n_texts, ret, e); break;
	case CONSTRAINT_GBNF: r = gbnf_grammar(b, c->text.text, c->text.len, ret, e); break;
	case CONSTRAINT_REGEX: r = regex_grammar(b, c->text.text, c->text.len, ret, e); break;
	case CONSTRAINT_JSON_OBJECT: r = json_object_grammar(b, ret, e); break;
	case CONSTRAINT_JSON_SCHEMA: r = json_schema_grammar(b, c->schema, ret, e); break;
	}
	grammar_builder_free(b);
	return r;
}

int constraint_choice(const struct constraint_text *texts, size_t n, struct grammar **ret,
		      struct err *e)
{
	const struct constraint c = {.kind = CONSTRAINT_CHOICE, .texts = texts, .n_texts = n};

	return constraint_grammar(&c, NULL, ret, e);
}

int constraint_gbnf(const char *text, size_t len, struct grammar **ret, struct err *e)
{
	const struct constraint c = {.kind = CONSTRAINT_GBNF, .text = {text, len}};

	return constraint_grammar(&c, NULL, ret, e);
}

int constraint_regex(const char *pattern, size_t len, struct grammar **ret, struct err *e)
{
	const struct constraint c = {.kind = CONSTRAINT_REGEX, .text = {pattern, len}};

	return constraint_grammar(&c, NULL, ret, e);
}

int constraint_json_object(struct grammar **ret, struct err *e)
{
	const struct constraint c = {.kind = CONSTRAINT_JSON_OBJECT};

	return constraint_grammar(&c, NULL, ret, e);
}

int constraint_json_schema(const json_t *schema, struct grammar **ret, struct err *e)
{
	const struct constraint c = {.kind = CONSTRAINT_JSON_SCHEMA, .schema = schema};

	return constraint_grammar(&c, NULL, ret, e);
}
