#include "protocol/grammar/schema_part.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/grammar/regex.h"
#include "protocol/grammar/schema.h"

int schema_part_new(struct grammar_builder *b, const json_t *root, struct schemas **ret,
		    struct err *e)
{
	struct schemas *s = calloc(1, sizeof(*s));
	int r = s ? schema_open(s, b, root, e) : err_no_memory(e);

	if (r < 0)
		free(s);
	else
		*ret = s;
	return r;
}

void schema_part_escape_less(struct schemas *s)
{
	json_text_init(&s->text, s->b, true);
}

uint32_t schema_part_json(struct schemas *s, const json_t *schema)
{
	struct schema_set set = {0};

	schema_add(s, &set, (json_t *)schema);
	return schema_value(s, &set);
}

uint32_t schema_part_others(struct schemas *s, const json_t *schema)
{
	struct schema_set set = {0};

	schema_add(s, &set, (json_t *)schema);
	schema_add(s, &set,
		   schema_keep(s, json_pack("{s:[s,s,s,s,s]}", "type", "null", "boolean", "number",
					    "array", "object")));
	return schema_value(s, &set);
}

/* ---- strings as they are ---- */

struct raw {
	const struct schema_set *set;
	struct parts p;
	uint32_t any, longest;
};

/* Code points that neither JSON nor a text between tags has to escape. */
static uint32_t plain(struct schemas *s, uint32_t min, uint32_t max)
{
	static const struct grammar_range ranges[] = {{0x20, '"' - 1},
						      {'"' + 1, '<' - 1},
						      {'<' + 1, '\\' - 1},
						      {'\\' + 1, 0x10ffff}};

	return grammar_repeat(s->b, grammar_class(s->b, ranges, ARRAY_SIZE(ranges)), min, max);
}

static void add_constants(struct schemas *s, struct raw *x, const json_t *list)
{
	json_t *value;
	size_t i;

	json_array_foreach(list, i, value)
	{
		const char *text = json_string_value(value);

		if (!text || !schema_works(s, 1) || !schema_accepts(s, x->set, value))
			continue;
		if (strchr(text, '<') || strlen(text) != json_string_length(value))
			schema_lose(s, "enum");
		else
			parts_add(&x->p, grammar_text(s->b, text));
	}
}

static bool limits_more_than_lengths(const struct schema_case *c)
{
	for (size_t i = 0; i < c->n; i++) {
		const json_t *schema = c->nodes[i]->schema;

		if (json_object_get(schema, "pattern") || json_object_get(schema, "format") ||
		    json_object_get(schema, "not"))
			return true;
	}
	return false;
}

static void add_strings(struct schemas *s, struct raw *x, const struct schema_case *c)
{
	uint32_t min = 0, max = GRAMMAR_NO_LIMIT, inside;
	struct language *l = NULL;
	bool any;

	if (limits_more_than_lengths(c)) {
		inside = schema_string_inside(s, c, &any);
		if (any) {
			parts_add(&x->p, x->any);
			return;
		}
		schema_keep_texts(s, &l, inside, false);
		schema_keep_texts(s, &l, plain(s, 0, GRAMMAR_NO_LIMIT), false);
		parts_add(&x->p, schema_texts(s, l));
		return;
	}
	for (size_t i = 0; i < c->n; i++) {
		min = MAX(min, schema_count(s, c->nodes[i]->schema, "minLength", 0));
		max = MIN(max, schema_count(s, c->nodes[i]->schema, "maxLength", GRAMMAR_NO_LIMIT));
	}
	if (min > max)
		return;
	if (max != GRAMMAR_NO_LIMIT)
		max = MIN(max, MAX(min, x->longest));
	parts_add(&x->p, min || max != GRAMMAR_NO_LIMIT ? plain(s, min, max) : x->any);
}

static bool add_case(struct schemas *s, const struct schema_case *c, void *arg)
{
	struct raw *x = arg;
	unsigned types = c->types;

	for (size_t i = 0; i < c->n; i++) {
		json_t *schema = c->nodes[i]->schema, *one = json_object_get(schema, "const");
		const json_t *list = json_object_get(schema, "enum");

		if (one)
			list = schema_keep(s, json_pack("[O]", one));
		if (list) {
			add_constants(s, x, list);
			return !s->r;
		}
	}
	if (!c->typed && c->about)
		types &= c->about;
	if (types & T_STRING)
		add_strings(s, x, c);
	return schema_works(s, 1);
}

uint32_t schema_part_raw(struct schemas *s, const json_t *schema, uint32_t any, uint32_t longest)
{
	struct schema_set set = {0};
	struct raw x = {.set = &set,
			.any = any,
			.longest = MIN(longest, (uint32_t)SCHEMA_LENGTH_MAX)};
	json_t *list;
	uint32_t all;

	schema_add(s, &set, (json_t *)schema);
	if (!s->r && !set.never && !set.n)
		parts_add(&x.p, any);
	if (!s->r && !set.never && set.n) {
		list = schema_constants(s, &set);
		if (list)
			add_constants(s, &x, list);
		else
			schema_cases(s, &set, false, add_case, &x);
		schema_end_cases(s);
	}
	all = schema_choice(s, &x.p);
	free(set.v);
	return all;
}

uint32_t schema_part_without(struct schemas *s, uint32_t x, const char *pattern)
{
	struct regex_lengths lengths;
	struct language *l = NULL;
	uint32_t y = 0;

	if (!s->r)
		s->r = regex_expression(s->b, pattern, strlen(pattern),
					(struct regex_form){.most = true}, &y, &lengths, s->e);
	if (!s->r)
		s->r = language_new(s->b, x, &l, s->e);
	if (!s->r)
		schema_works(s, language_work(l));
	schema_keep_texts(s, &l, y, true);
	return schema_texts(s, l);
}

bool schema_part_accepts(struct schemas *s, const json_t *schema, const json_t *value)
{
	return schema_valid(s, (json_t *)schema, value) == YES && !s->r;
}

int schema_part_end(struct schemas *s)
{
	int r = schema_define(s);

	schema_close(s);
	free(s);
	return r;
}
