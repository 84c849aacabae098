/* Tests: `x is NAME` and `x is NAME(argument)`. Filters such as select and reject also take the name of a test. In the
 * comments below, "data:" tells what the member `data` of the test's row (struct builtin, builtin.h) means. */
#include "protocol/jinja/dict.h"
#include "protocol/jinja/ops.h"
#include "protocol/jinja/seq.h"
#include "protocol/jinja/tables.h"

#define FUNCTION(name) static struct value name(struct render *r, const struct builtin_call *c)

/* Sets of types: a bit each. */
#define T(type)	 (1 << V_##type)
#define SEQUENCE (T(STR) | T(LIST) | T(TUPLE) | T(DICT) | T(RANGE) | T(UNDEFINED))
#define ITERABLE (SEQUENCE | T(KEYS) | T(VALUES) | T(ITEMS) | T(ITER) | T(LOOP))

/* data: the types that pass */
FUNCTION(is_type)
{
	return value_bool(c->b->data >> c->self.type & 1);
}

/* true, false; data: the bool that passes */
FUNCTION(is_bool)
{
	return value_bool(c->self.type == V_BOOL && c->self.b == c->b->data);
}

/* odd, even, divisibleby; data: the remainder that passes */
FUNCTION(is_divisible)
{
	struct value by = c->arg[0].type == V_MISSING ? value_int(2) : c->arg[0];

	return value_bool(
		value_equal(r, value_binary(r, OP_MOD, c->self, by), value_int(c->b->data)));
}

FUNCTION(is_same)
{
	return value_bool(value_same(c->self, c->arg[0]));
}

FUNCTION(is_in)
{
	return value_bool(value_contains(r, c->arg[0], c->self));
}

/* eq, ne; data: true if equal values pass, false if unequal ones do */
FUNCTION(is_equal)
{
	return value_bool(value_equal(r, c->self, c->arg[0]) == c->b->data);
}

/* Results of value_compare, a bit each: -1, 0, 1. */
enum { LESS = 1, EQUAL = 2, GREATER = 4 };

/* lt, le, gt, ge; data: the results of value_compare that pass */
FUNCTION(is_ordered)
{
	int answer = value_compare(r, c->self, c->arg[0], c->b->data & LESS ? "<" : ">");

	return value_bool(answer < 2 && c->b->data >> (answer + 1) & 1);
}

enum { P = BUILTIN_POSITIONAL };

#define NOT(type) (~T(type))

static const struct builtin tests[] = {
	{"defined", is_type, NOT(UNDEFINED)},
	{"undefined", is_type, T(UNDEFINED)},
	{"none", is_type, T(NONE)},
	{"boolean", is_type, T(BOOL)},
	{"integer", is_type, T(INT)},
	{"float", is_type, T(FLOAT)},
	{"number", is_type, T(INT) | T(FLOAT) | T(BOOL)},
	{"string", is_type, T(STR)},
	{"mapping", is_type, T(DICT)},
	{"sequence", is_type, SEQUENCE},
	{"iterable", is_type, ITERABLE},
	{"callable", is_type, T(CALLABLE) | T(LOOP) | T(UNDEFINED)},
	{"true", is_bool, true},
	{"false", is_bool, false},
	{"odd", is_divisible, 1},
	{"even", is_divisible, 0},
	{"divisibleby", is_divisible, 0, 0, 1, {"num"}},
	{"sameas", is_same, 0, 0, 1, {"other"}},
	{"in", is_in, 0, 0, 1, {"seq"}},
	{"eq", is_equal, true, P, 1, {"other"}},
	{"==", is_equal, true, P, 1, {"other"}},
	{"equalto", is_equal, true, P, 1, {"other"}},
	{"ne", is_equal, false, P, 1, {"other"}},
	{"!=", is_equal, false, P, 1, {"other"}},
	{"lt", is_ordered, LESS, P, 1, {"other"}},
	{"<", is_ordered, LESS, P, 1, {"other"}},
	{"lessthan", is_ordered, LESS, P, 1, {"other"}},
	{"le", is_ordered, LESS | EQUAL, P, 1, {"other"}},
	{"<=", is_ordered, LESS | EQUAL, P, 1, {"other"}},
	{"gt", is_ordered, GREATER, P, 1, {"other"}},
	{">", is_ordered, GREATER, P, 1, {"other"}},
	{"greaterthan", is_ordered, GREATER, P, 1, {"other"}},
	{"ge", is_ordered, GREATER | EQUAL, P, 1, {"other"}},
	{">=", is_ordered, GREATER | EQUAL, P, 1, {"other"}},
};
const struct builtin_table value_tests = {TEST, tests, ARRAY_SIZE(tests),
					  "escaped filter lower test upper"};
