#include "protocol/output/tools_grammar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/grammar/json_text.h"
#include "protocol/grammar/parts.h"
#include "protocol/grammar/schema_part.h"
#include "protocol/output/tools_internal.h"
#include "protocol/output/tools_writer.h"

/* ---- for the formats ---- */

void tools_cannot_write(struct tools_writer *w, size_t tool, const char *what)
{
	if (!w->r)
		w->r = err_param(w->e, PROBLEM_UNSUPPORTED, "tools",
				 "calls of the tool \"%.60s\" cannot be demanded of this model: %s",
				 tools_writer_name(w, tool), what);
}

const char *tools_writer_name(const struct tools_writer *w, size_t tool)
{
	return w->demand->list->v[tool].name;
}

static const json_t *function_of(const struct tools_writer *w, size_t tool)
{
	return json_object_get(json_array_get(w->demand->tools, tool), "function");
}

bool tools_writer_strict(const struct tools_writer *w, size_t tool)
{
	return w->demand->strict || json_is_true(json_object_get(function_of(w, tool), "strict"));
}

const json_t *tools_writer_schema(const struct tools_writer *w, size_t tool)
{
	const json_t *schema = json_object_get(function_of(w, tool), "parameters");

	return json_is_object(schema) && json_object_size(schema) ? schema : NULL;
}

void tools_writer_fail(struct tools_writer *w, size_t tool, int r)
{
	if (r >= 0 || w->r)
		return;
	w->r = r;
	if (r == -ENOMEM || !w->e)
		return;
	err_prefix(w->e, "the parameters of the tool \"%.60s\"", tools_writer_name(w, tool));
	snprintf(w->e->param, sizeof(w->e->param), "tools");
}

static void define_arguments(struct tools_writer *w, size_t tool, uint32_t rule)
{
	const json_t *schema = tools_writer_schema(w, tool);
	struct schemas *s;
	json_t *object;
	uint32_t x;
	int r;

	if (!schema || !tools_writer_strict(w, tool)) {
		/* A function without a schema has no parameters. */
		grammar_define(w->b, rule,
			       tools_writer_strict(w, tool) ? grammar_text(w->b, "{}")
							    : grammar_call(w->b, w->text->object));
		return;
	}
	/* Arguments are an object, also if the schema does not say so. */
	object = json_pack("{s:[O,{s:s}]}", "allOf", schema, "type", "object");
	r = object ? schema_part_new(w->b, schema, &s, w->e) : err_no_memory(w->e);
	if (r == 0) {
		x = schema_part_json(s, object);
		r = schema_part_end(s);
		grammar_define(w->b, rule, x);
	}
	tools_writer_fail(w, tool, r);
	json_decref(object);
}

uint32_t tools_writer_arguments(struct tools_writer *w, size_t tool)
{
	if (!w->arguments[tool] && !w->r) {
		w->arguments[tool] = grammar_rule(w->b, "arguments") + 1;
		define_arguments(w, tool, w->arguments[tool] - 1);
	}
	return w->r ? 0 : grammar_call(w->b, w->arguments[tool] - 1);
}

uint32_t tools_writer_object(struct tools_writer *w, size_t tool, const char *before,
			     const char *member, const char *behind)
{
	json_t *name = json_string(tools_writer_name(w, tool));
	uint32_t x = 0;

	if (name)
		x = grammar_seq(w->b, grammar_text(w->b, before), grammar_text(w->b, "{\"name\": "),
				json_text_literal(w->text, name), grammar_text(w->b, ", \""),
				grammar_text(w->b, member), grammar_text(w->b, "\": "),
				tools_writer_arguments(w, tool), grammar_text(w->b, "}"),
				grammar_text(w->b, behind));
	else
		grammar_no_memory(w->b);
	json_decref(name);
	return x;
}

uint32_t tools_writer_any(struct tools_writer *w,
			  uint32_t (*call)(struct tools_writer *w, size_t tool))
{
	const struct tools_demand *d = w->demand;
	struct parts p = {0};
	uint32_t x;

	for (size_t i = 0; i < d->list->n && !w->r; i++)
		if (!d->only || !strcmp(d->only, d->list->v[i].name))
			parts_add(&p, call(w, i));
	if (p.failed)
		grammar_no_memory(w->b);
	x = grammar_choice(w->b, p.v, p.n);
	parts_release(&p);
	return x;
}

uint32_t tools_writer_list(struct tools_writer *w, uint32_t call, const char *between)
{
	uint32_t rule;

	if (w->demand->one)
		return call;
	rule = grammar_rule(w->b, "call");
	grammar_define(w->b, rule, call);
	call = grammar_call(w->b, rule);
	return grammar_seq(w->b, call,
			   grammar_repeat(w->b,
					  grammar_seq(w->b, grammar_text(w->b, between), call), 0,
					  GRAMMAR_NO_LIMIT));
}

/* ---- parameters one by one ---- */

static void add_parameter(struct tools_writer *w, struct tools_parameters *p, const char *name,
			  const json_t *schema, bool required)
{
	if (array_grow(p->v, p->cap, p->n + 1))
		p->v[p->n++] = (struct tools_parameter){name, schema, required};
	else
		w->r = err_no_memory(w->e);
}

static bool is_required(const json_t *schema, const char *name)
{
	const json_t *list = json_object_get(schema, "required");

	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *one = json_string_value(json_array_get(list, i));

		if (one && !strcmp(one, name))
			return true;
	}
	return false;
}

/* Refuses keywords of the parameters as a whole that a format cannot keep that writes them one by one. */
static void check_parameters(struct tools_writer *w, size_t tool, const json_t *schema)
{
	static const char *const limits[] = {"$ref",
					     "$dynamicRef",
					     "allOf",
					     "anyOf",
					     "oneOf",
					     "not",
					     "if",
					     "enum",
					     "const",
					     "minProperties",
					     "maxProperties",
					     "propertyNames",
					     "dependentSchemas",
					     "dependentRequired",
					     "dependencies"};

	for (size_t i = 0; i < ARRAY_SIZE(limits) && !w->r; i++)
		if (json_object_get(schema, limits[i]))
			tools_writer_fail(
				w, tool,
				err_set(w->e, PROBLEM_UNSUPPORTED,
					"the keyword \"%s\" of the whole is not supported for this "
					"model's calls",
					limits[i]));
}

bool tools_writer_parameters(struct tools_writer *w, size_t tool, struct tools_parameters *ret,
			     struct schemas **s)
{
	const json_t *schema = tools_writer_schema(w, tool), *list;
	bool strict = tools_writer_strict(w, tool);
	const char *name;
	json_t *one;

	*s = NULL;
	/* The arguments as JSON: the schema is checked as a whole. */
	if (strict && schema) {
		check_parameters(w, tool, schema);
		tools_writer_arguments(w, tool);
	}
	if (w->r)
		return false;
	json_object_foreach(json_object_get(schema, "properties"), name, one)
		add_parameter(w, ret, name, strict ? one : NULL,
			      strict && is_required(schema, name));
	list = strict ? json_object_get(schema, "required") : NULL;
	for (size_t i = 0; i < json_array_size(list) && !w->r; i++) {
		name = json_string_value(json_array_get(list, i));
		if (!json_object_get(json_object_get(schema, "properties"), name))
			add_parameter(w, ret, name, NULL, true);
	}
	if (!w->r && strict && schema)
		tools_writer_fail(w, tool, schema_part_new(w->b, schema, s, w->e));
	return !w->r;
}

void tools_parameters_end(struct tools_writer *w, size_t tool, struct tools_parameters *p,
			  struct schemas *s)
{
	if (s)
		tools_writer_fail(w, tool, schema_part_end(s));
	free(p->v);
	*p = (struct tools_parameters){0};
}

/* ---- text without words ---- */

enum { STATES_MAX = 256 };

/* The state of a text: the longest beginning of a word with which it ends. Aho and Corasick, 1975. */
struct matcher {
	uint16_t next[STATES_MAX][128]; /* 0: the beginning of no word */
	uint16_t fail[STATES_MAX];
	bool word[STATES_MAX]; /* the text ends with a word */
	uint16_t n;
};

static bool match_words(struct matcher *m, const char *const *words, size_t n)
{
	uint16_t order[STATES_MAX] = {0}, done = 0, queued = 1;

	m->n = 1;
	for (size_t i = 0; i < n; i++) {
		uint16_t at = 0;

		for (const char *c = words[i]; *c; c++) {
			if (!m->next[at][(int)*c]) {
				if (m->n == STATES_MAX)
					return false;
				m->next[at][(int)*c] = m->n++;
			}
			at = m->next[at][(int)*c];
		}
		m->word[at] = true;
	}
	/* By rising depth each state gets its steps for other characters from the shorter beginning. */
	while (done < queued) {
		uint16_t at = order[done++];

		for (int c = 0; c < 128; c++) {
			uint16_t to = m->next[at][c], shorter = at ? m->next[m->fail[at]][c] : 0;

			if (!to) {
				m->next[at][c] = shorter;
				continue;
			}
			m->fail[to] = shorter;
			m->word[to] |= m->word[shorter];
			order[queued++] = to;
		}
	}
	return true;
}

/* One code point of a state, and the texts behind it. */
static void add_step(struct tools_writer *w, struct parts *p, const struct grammar_range *ranges,
		     size_t n, uint32_t rule)
{
	parts_add(p, grammar_seq(w->b, grammar_class(w->b, ranges, n), grammar_call(w->b, rule)));
}

static void define_state(struct tools_writer *w, const struct matcher *m, uint16_t state,
			 uint32_t first_rule)
{
	struct grammar_range others[129];
	struct parts p = {0};
	size_t n = 0;

	parts_add(&p, grammar_text(w->b, ""));
	for (uint32_t c = 0; c < 128; c++) {
		uint16_t to = m->next[state][c];
		const struct grammar_range one = {c, c};

		if (c < ' ' && c != '\t' && c != '\n' && c != '\r')
			continue;
		if (!to)
			others[n++] = one;
		else if (!m->word[to])
			add_step(w, &p, &one, 1, first_rule + to);
	}
	others[n++] = (struct grammar_range){128, 0x10ffff};
	add_step(w, &p, others, n, first_rule);
	if (p.failed)
		grammar_no_memory(w->b);
	grammar_define(w->b, first_rule + state, grammar_choice(w->b, p.v, p.n));
	parts_release(&p);
}

uint32_t tools_writer_without(struct tools_writer *w, const char *const *words, size_t n)
{
	struct matcher *m = calloc(1, sizeof(*m));
	uint32_t first = 0;

	if (!m || !match_words(m, words, n)) {
		grammar_no_memory(w->b);
		free(m);
		return 0;
	}
	for (uint16_t i = 0; i < m->n; i++) {
		uint32_t rule = grammar_rule(w->b, "text");

		first = i ? first : rule;
	}
	for (uint16_t i = 0; i < m->n; i++)
		define_state(w, m, i, first);
	free(m);
	return grammar_call(w->b, first);
}

/* ---- the answer ---- */

/* Text that is read as no call. In a format whose calls stand at the start of the text alone, the text does not begin
 * as one does. */
static uint32_t text_without_calls(struct tools_writer *w)
{
	const struct tools_format *f = w->demand->format;
	struct grammar_range others[3];
	uint32_t c, any;
	static const struct grammar_range all = {0, 0x10ffff};
	size_t n = 0;

	while (n < TOOLS_OPENINGS_MAX && f->openings[n])
		n++;
	if (!f->at_start)
		return tools_writer_without(w, f->openings, n);
	/* No blank stands before the text, because calls may stand behind blanks. */
	c = (uint8_t)f->openings[0][0];
	others[0] = (struct grammar_range){'!', c - 1};
	others[1] = (struct grammar_range){c + 1, 0x10ffff};
	any = grammar_repeat(w->b, grammar_class(w->b, &all, 1), 0, GRAMMAR_NO_LIMIT);
	return grammar_repeat(w->b, grammar_seq(w->b, grammar_class(w->b, others, 2), any), 0, 1);
}

static uint32_t json_value(struct tools_writer *w)
{
	const json_t *schema = w->demand->schema;
	struct schemas *s;
	uint32_t x;

	if (!schema)
		return grammar_call(w->b, w->text->object);
	w->r = schema_part_new(w->b, schema, &s, w->e);
	if (w->r < 0)
		return 0;
	x = schema_part_json(s, schema);
	w->r = schema_part_end(s);
	return x;
}

static uint32_t answer(struct tools_writer *w)
{
	uint32_t calls = w->demand->format->write(w), text;

	if (w->r || w->demand->rest == TOOLS_CALLS_ONLY)
		return calls;
	if (w->demand->rest == TOOLS_OR_JSON)
		return w->r ? 0 : grammar_alt(w->b, json_value(w), calls);
	text = text_without_calls(w);
	if (w->demand->format->at_start)
		return grammar_alt(w->b, text, calls);
	return grammar_seq(w->b, text, grammar_repeat(w->b, calls, 0, 1));
}

/* Builds the grammar. If calls are demanded and none can be written, says why. */
static int build(struct tools_writer *w, uint32_t root, struct grammar **ret)
{
	struct err own = {0};
	int r = grammar_build(w->b, root, ret, &own);

	if (w->demand->rest == TOOLS_CALLS_ONLY && grammar_is_empty(r, &own))
		err_set(&own, EINVAL, "no arguments can be valid for any tool that may be called");
	if (r < 0 && w->e)
		*w->e = own;
	return r;
}

int tools_grammar(const struct tools_demand *d, const struct pace *pace, struct grammar **ret,
		  struct err *e)
{
	struct tools_writer w = {.demand = d, .e = e};
	struct json_text text;
	uint32_t root, x;

	w.b = grammar_builder_new();
	w.arguments = calloc(d->list->n + 1, sizeof(*w.arguments));
	if (!w.b || !w.arguments) {
		w.r = err_no_memory(e);
	} else {
		grammar_set_pace(w.b, pace);
		json_text_init(&text, w.b, false);
		w.text = &text;
		root = grammar_rule(w.b, "root");
		x = answer(&w);
		grammar_define(w.b, root, x);
		if (!w.r)
			w.r = build(&w, root, ret);
	}
	free(w.arguments);
	grammar_builder_free(w.b);
	return w.r;
}
