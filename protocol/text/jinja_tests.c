/* Tests: x is NAME, x is NAME(argument), and by name in select and reject. */
#include <errno.h>
#include <string.h>

#include "protocol/text/jinja_builtin.h"
#include "protocol/text/jinja_methods.h"

#define TEST(name)                                                                           \
	static int name(struct render *r, const struct value *self, const struct value *arg, \
			struct value *ret)

/* A test that only asks what type the value has, or something as simple. */
#define SIMPLE_TEST(name, condition)          \
	TEST(name)                            \
	{                                     \
		*ret = value_bool(condition); \
		return 0;                     \
	}

SIMPLE_TEST(is_defined, self->type != V_UNDEFINED)
SIMPLE_TEST(is_undefined, self->type == V_UNDEFINED)
SIMPLE_TEST(is_none, self->type == V_NONE)
SIMPLE_TEST(is_boolean, self->type == V_BOOL)
SIMPLE_TEST(is_true, self->type == V_BOOL && self->b)
SIMPLE_TEST(is_false, self->type == V_BOOL && !self->b)
SIMPLE_TEST(is_integer, self->type == V_INT)
SIMPLE_TEST(is_float, self->type == V_FLOAT)
SIMPLE_TEST(is_number, value_is_number(self))
SIMPLE_TEST(is_string, self->type == V_STR)
SIMPLE_TEST(is_mapping, self->type == V_DICT)
SIMPLE_TEST(is_escaped, self->type == V_STR && self->safe)
SIMPLE_TEST(is_same, value_same(self, &arg[0]))

/* Has a length and can be indexed. */
SIMPLE_TEST(is_sequence, self->type == V_STR || self->type == V_LIST || self->type == V_TUPLE ||
				 self->type == V_DICT || self->type == V_RANGE ||
				 self->type == V_UNDEFINED)

SIMPLE_TEST(is_iterable, self->type == V_STR || self->type == V_LIST || self->type == V_TUPLE ||
				 self->type == V_DICT || self->type == V_RANGE ||
				 self->type == V_VIEW || self->type == V_ITER ||
				 self->type == V_LOOP || self->type == V_UNDEFINED)

SIMPLE_TEST(is_callable, self->type == V_FUNCTION || self->type == V_METHOD ||
				 self->type == V_MACRO || self->type == V_JOINER ||
				 self->type == V_LOOP || self->type == V_UNDEFINED)

static int remainder_is(struct render *r, const struct value *self, const struct value *by,
			int64_t want, struct value *ret)
{
	struct value rest, wanted = value_int(want);
	bool same = false;
	int rc = value_binary(r, OP_MOD, self, by, &rest);

	if (!rc)
		rc = value_equal(r, &rest, &wanted, &same);
	*ret = value_bool(same);
	return rc;
}

TEST(is_odd)
{
	struct value two = value_int(2);

	return remainder_is(r, self, &two, 1, ret);
}

TEST(is_even)
{
	struct value two = value_int(2);

	return remainder_is(r, self, &two, 0, ret);
}

TEST(is_divisible)
{
	return remainder_is(r, self, &arg[0], 0, ret);
}

/* Looked up in a dict by Python: what is no key is an error. */
TEST(is_filter)
{
	uint64_t hash;

	*ret = value_bool(self->type == V_STR && filter_find(self->s, self->len));
	return value_hash(r, self, &hash);
}

TEST(is_test)
{
	uint64_t hash;

	*ret = value_bool(self->type == V_STR && test_find(self->s, self->len));
	return value_hash(r, self, &hash);
}

static int has_case(struct render *r, const struct value *self, bool upper, struct value *ret)
{
	struct value text;
	int rc = value_to_str(r, self, &text);

	if (!rc)
		*ret = value_bool(text_is_case(&text, upper));
	return rc;
}

TEST(is_lower)
{
	return has_case(r, self, false, ret);
}

TEST(is_upper)
{
	return has_case(r, self, true, ret);
}

TEST(is_in)
{
	bool in;
	int rc = value_contains(r, &arg[0], self, &in);

	*ret = value_bool(!rc && in);
	return rc;
}

TEST(is_equal)
{
	bool same;
	int rc = value_equal(r, self, &arg[0], &same);

	*ret = value_bool(!rc && same);
	return rc;
}

TEST(is_different)
{
	bool same;
	int rc = value_equal(r, self, &arg[0], &same);

	*ret = value_bool(!rc && !same);
	return rc;
}

static int compares(struct render *r, const struct value *self, const struct value *arg,
		    const char *sign, bool less, bool equal, struct value *ret)
{
	int c = 2, rc = value_compare(r, self, arg, sign, &c);

	*ret = value_bool(c == 0 ? equal : c == (less ? -1 : 1));
	return rc;
}

TEST(is_less)
{
	return compares(r, self, &arg[0], "<", true, false, ret);
}

TEST(is_less_equal)
{
	return compares(r, self, &arg[0], "<=", true, true, ret);
}

TEST(is_greater)
{
	return compares(r, self, &arg[0], ">", false, false, ret);
}

TEST(is_greater_equal)
{
	return compares(r, self, &arg[0], ">=", false, true, ret);
}

#define ONE_ARGUMENT    \
	NULL, 1,        \
	{               \
		"other" \
	}

static const struct builtin tests[] = {
	{"defined", is_defined},
	{"undefined", is_undefined},
	{"none", is_none},
	{"string", is_string},
	{"mapping", is_mapping},
	{"sequence", is_sequence},
	{"iterable", is_iterable},
	{"number", is_number},
	{"integer", is_integer},
	{"float", is_float},
	{"boolean", is_boolean},
	{"true", is_true},
	{"false", is_false},
	{"callable", is_callable},
	{"escaped", is_escaped},
	{"filter", is_filter},
	{"test", is_test},
	{"lower", is_lower},
	{"upper", is_upper},
	{"odd", is_odd},
	{"even", is_even},
	{"divisibleby", is_divisible, NULL, 1, {"num"}},
	{"sameas", is_same, ONE_ARGUMENT},
	{"in", is_in, NULL, 1, {"seq"}},
	{"eq", is_equal, ONE_ARGUMENT, true},
	{"==", is_equal, ONE_ARGUMENT, true},
	{"equalto", is_equal, ONE_ARGUMENT, true},
	{"ne", is_different, ONE_ARGUMENT, true},
	{"!=", is_different, ONE_ARGUMENT, true},
	{"lt", is_less, ONE_ARGUMENT, true},
	{"<", is_less, ONE_ARGUMENT, true},
	{"lessthan", is_less, ONE_ARGUMENT, true},
	{"le", is_less_equal, ONE_ARGUMENT, true},
	{"<=", is_less_equal, ONE_ARGUMENT, true},
	{"gt", is_greater, ONE_ARGUMENT, true},
	{">", is_greater, ONE_ARGUMENT, true},
	{"greaterthan", is_greater, ONE_ARGUMENT, true},
	{"ge", is_greater_equal, ONE_ARGUMENT, true},
	{">=", is_greater_equal, ONE_ARGUMENT, true},
};

const struct builtin *test_find(const char *name, size_t len)
{
	return builtin_search(tests, ARRAY_SIZE(tests), name, len);
}

const struct builtin *filter_find(const char *name, size_t len)
{
	const struct builtin *b = builtin_search(text_filters, text_filters_count, name, len);

	return b ? b : builtin_search(items_filters, items_filters_count, name, len);
}
