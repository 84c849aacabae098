/* Numbers: bounds, multiples, and numbers that are excluded. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/grammar/regex.h"
#include "protocol/grammar/schema.h"

#define LIMIT	 1e15 /* numbers in texts are less in size, and exact as doubles */
#define FRACTION "-?(?:0|[1-9]\\d{0,14})\\.\\d{0,5}[1-9]"

enum { EXCLUDED_MAX = 1000, MULTIPLE_MAX = 4000 };

static bool read_bounds(struct schemas *s, const json_t *schema, double scale, int64_t *lo,
			int64_t *hi)
{
	static const struct {
		const char *name;
		bool lower, exclusive;
	} names[] = {{"minimum", true, false},
		     {"maximum", false, false},
		     {"exclusiveMinimum", true, true},
		     {"exclusiveMaximum", false, true}};
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const json_t *v = json_object_get(schema, names[i].name);
		double n = json_number_value(v), whole;
		int64_t at;

		if (!v)
			continue;
		any = true;
		if (!json_is_number(v)) {
			schema_wrong(s, names[i].name, "a number");
			return false;
		}
		if (scale > 1) {
			/* The bound has to be a multiple of 1 / scale, as the texts are. */
			whole = nearbyint(n * scale);
			if (fabs(n) >= LIMIT / scale || whole / scale != n) {
				schema_unsupported(
					s, names[i].name,
					" for numbers, unless its size is below 10^9 and it has at most 6 decimals");
				return false;
			}
		} else {
			whole = names[i].lower ? ceil(n) : floor(n);
			if (fabs(whole) >= LIMIT)
				schema_lose(s, names[i].name);
			whole = MAX(-LIMIT, MIN(whole, LIMIT));
		}
		at = (int64_t)whole;
		if (names[i].exclusive && (scale > 1 || whole == n))
			at += names[i].lower ? 1 : -1;
		if (names[i].lower)
			*lo = MAX(*lo, at);
		else
			*hi = MIN(*hi, at);
	}
	return any;
}

bool schema_bounds(struct schemas *s, const struct schema_case *c, double scale, int64_t *lo,
		   int64_t *hi)
{
	bool any = false;

	*lo = -(int64_t)LIMIT + 1;
	*hi = (int64_t)LIMIT - 1;
	for (size_t i = 0; i < c->n; i++)
		any = read_bounds(s, c->nodes[i]->schema, scale, lo, hi) || any;
	return any;
}

struct numbers {
	int64_t excluded[EXCLUDED_MAX]; /* in units of 1 / scale, sorted */
	size_t n;
};

static void exclude(struct schemas *s, struct numbers *x, const json_t *v, double scale)
{
	double units = json_number_value(v) * scale;

	/* Texts are multiples of 1 / scale. */
	if (!json_is_number(v) || fabs(units) >= LIMIT)
		return;
	for (double at = floor(units) - 1; at <= floor(units) + 1; at++) {
		if (at / scale != json_number_value(v))
			continue;
		if (x->n == EXCLUDED_MAX)
			schema_unsupported(s, "not", " with more than 1000 numbers");
		else
			x->excluded[x->n++] = (int64_t)at;
	}
}

static int by_size(const void *x, const void *y)
{
	int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

	return a < b ? -1 : a > b;
}

static void find_excluded(struct schemas *s, const struct schema_case *c, double scale,
			  struct numbers *x)
{
	for (size_t i = 0; i < c->n; i++) {
		const json_t *one = schema_not(c->nodes[i]->schema, "const"),
			     *list = schema_not(c->nodes[i]->schema, "enum"), *v;
		size_t k;

		if (one)
			exclude(s, x, one, scale);
		json_array_foreach(list, k, v) exclude(s, x, v, scale);
	}
	qsort(x->excluded, x->n, sizeof(*x->excluded), by_size);
}

/* The numbers from lo to hi but for the excluded ones. */
static uint32_t range(struct schemas *s, const struct numbers *x, bool integer, int64_t lo,
		      int64_t hi)
{
	uint32_t (*make)(struct grammar_builder * b, int64_t lo, int64_t hi) =
		integer ? json_text_integers : json_text_decimals;
	struct parts p = {0};

	for (size_t i = 0; i < x->n && lo <= hi; i++) {
		if (x->excluded[i] < lo)
			continue;
		parts_add(&p, make(s->b, lo, MIN(hi, x->excluded[i] - 1)));
		lo = x->excluded[i] + 1;
	}
	if (lo <= hi)
		parts_add(&p, make(s->b, lo, hi));
	return schema_choice(s, &p);
}

/* Leaves the numbers that are multiples of a step, or that are not. */
static void keep_multiples(struct schemas *s, struct language **l, const json_t *of, bool without)
{
	double step = json_number_value(of);
	struct language *multiples = NULL;

	if (step < 1 || (step == 1 && !without) || s->r)
		return;
	if (step > MULTIPLE_MAX)
		schema_unsupported(s, "multipleOf", " above 4000");
	else
		s->r = language_multiples((uint32_t)step, &multiples, s->e);
	schema_keep_language(s, l, multiples, without);
	language_free(multiples);
	if (s->r == -E2BIG) {
		s->r = 0;
		schema_unsupported(s, "multipleOf", " of this size beside these bounds");
	}
}

/* Returns the numbers of x that are multiples of each of the steps, and that are fractions if `fraction` is set. */
static uint32_t keep(struct schemas *s, const struct schema_case *c, uint32_t x, bool fraction)
{
	struct language *l = NULL;
	struct regex_lengths lengths;
	uint32_t y = 0;

	if (!s->r)
		s->r = language_new(s->b, x, &l, s->e);
	if (fraction && !s->r) {
		s->r = regex_expression(s->b, FRACTION, strlen(FRACTION), (struct regex_form){0},
					&y, &lengths, s->e);
		schema_keep_texts(s, &l, y, false);
	}
	for (size_t i = 0; i < c->n && !fraction; i++) {
		keep_multiples(s, &l, json_object_get(c->nodes[i]->schema, "multipleOf"), false);
		keep_multiples(s, &l, schema_not(c->nodes[i]->schema, "multipleOf"), true);
	}
	return schema_texts(s, l);
}

uint32_t schema_number(struct schemas *s, const struct schema_case *c)
{
	bool integer = !(c->types & T_NUMBER), fraction = !(c->types & T_INTEGER), bounded,
	     steps = false, others = false;
	struct numbers *x;
	int64_t lo, hi;
	uint32_t y;

	for (size_t i = 0; i < c->n; i++) {
		const json_t *v = json_object_get(c->nodes[i]->schema, "multipleOf");
		double step = json_number_value(v);

		if (schema_not(c->nodes[i]->schema, "multipleOf"))
			others = true;
		if (!v)
			continue;
		if (!json_is_number(v) || step <= 0) {
			schema_wrong(s, "multipleOf", "a number above 0");
			return 0;
		}
		/* Every whole number is a multiple of 1/2, 1/10 and the like. */
		if (step < 1 && integer && nearbyint(1 / step) == 1 / step && step > 1e-12)
			continue;
		if (step != floor(step)) {
			schema_unsupported(
				s, "multipleOf",
				" unless it is a whole number, or a part of 1 and the type is integer");
			return 0;
		}
		integer = true;
		steps = steps || step > 1;
	}
	if (integer && fraction)
		return grammar_choice(s->b, NULL, 0);
	if (others && !integer && !fraction) {
		/* A fraction is no multiple of a whole number. */
		struct schema_case whole = *c, part = *c;

		whole.types = T_INTEGER;
		part.types = T_NUMBER;
		return grammar_alt(s->b, schema_number(s, &whole), schema_number(s, &part));
	}
	x = calloc(1, sizeof(*x));
	if (!x) {
		schema_no_memory(s);
		return 0;
	}
	bounded = schema_bounds(s, c, integer ? 1 : 1e6, &lo, &hi);
	find_excluded(s, c, integer ? 1 : 1e6, x);
	if (s->r || (!integer && !fraction && !bounded && !x->n)) {
		free(x);
		return s->r ? 0 : grammar_call(s->b, s->text.number);
	}
	y = range(s, x, integer, lo, hi);
	free(x);
	return steps || others || fraction ? keep(s, c, y, fraction) : y;
}
