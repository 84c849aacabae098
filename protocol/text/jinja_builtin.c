/* Finding builtins and binding their arguments; calling a value. */
#include "protocol/text/jinja_builtin.h"

#include <errno.h>
#include <string.h>

#include "protocol/text/jinja_eval.h"

const struct builtin *builtin_search(const struct builtin *table, size_t n, const char *name,
				     size_t len)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(table[i].name) == len && !memcmp(table[i].name, name, len))
			return &table[i];
	return NULL;
}

static int bind_keyword(struct render *r, const struct builtin *b, const struct kwarg *k,
			struct value *arg)
{
	for (int i = 0; i < BUILTIN_PARAMS && b->params[i] && !b->positional; i++) {
		if (strlen(b->params[i]) != k->len || memcmp(b->params[i], k->name, k->len))
			continue;
		if (arg[i].type != V_MISSING)
			return render_fail(r, EINVAL, "%s: argument '%s' is given twice", b->name,
					   b->params[i]);
		arg[i] = k->value;
		return 0;
	}
	return render_fail(r, EINVAL, "%s: unexpected keyword argument '%.*s'", b->name,
			   (int)MIN(k->len, (size_t)64), k->name);
}

/* What most builtins cost: a look at each byte they are given. Those that cost more charge it. */
static int charge_call(struct render *r, const struct value *self, const struct args *args)
{
	size_t bytes = self->type == V_STR ? self->len : 0;

	for (size_t i = 0; i < args->n; i++)
		if (args->v[i].type == V_STR && args->v[i].len < SIZE_MAX - bytes)
			bytes += args->v[i].len;
	return render_charge_bytes(r, bytes);
}

int builtin_call(struct render *r, const struct builtin *b, const struct value *self,
		 const struct args *args, struct value *ret)
{
	struct value arg[BUILTIN_PARAMS] = {0};
	size_t most = 0;
	int rc = charge_call(r, self, args);

	if (rc < 0)
		return rc;
	if (b->raw)
		return b->raw(r, self, args, ret);
	while (most < BUILTIN_PARAMS && b->params[most])
		most++;
	if (args->n > most)
		return render_fail(r, EINVAL, "%s takes at most %zu arguments, %zu were given",
				   b->name, most, args->n);
	for (size_t i = 0; i < args->n; i++)
		arg[i] = args->v[i];
	for (size_t i = 0; i < args->nkw; i++) {
		rc = bind_keyword(r, b, &args->kw[i], arg);
		if (rc < 0)
			return rc;
	}
	for (int i = 0; i < b->required; i++)
		if (arg[i].type == V_MISSING)
			return render_fail(r, EINVAL, "%s: argument '%s' is missing", b->name,
					   b->params[i]);
	return b->bound(r, self, arg, ret);
}

static int call_joiner(struct joiner *j, struct value *ret)
{
	*ret = j->used ? j->separator : value_cstr("");
	j->used = true;
	return 0;
}

int value_call(struct render *r, const struct value *callee, const struct args *args,
	       struct value *ret)
{
	switch (callee->type) {
	case V_UNDEFINED: return value_fail_undefined(r, callee);
	case V_FUNCTION: return builtin_call(r, callee->function, callee, args, ret);
	case V_METHOD:
		return builtin_call(r, callee->method->builtin, &callee->method->self, args, ret);
	case V_MACRO: return macro_call(r, callee->macro, args, ret);
	case V_JOINER:
		if (!args->n && !args->nkw)
			return call_joiner(callee->joiner, ret);
		return render_fail(r, EINVAL, "a joiner takes no arguments");
	case V_LOOP: return render_fail(r, EINVAL, "recursive loops are not supported");
	default:
		return render_fail(r, EINVAL, "'%s' object is not callable",
				   value_type_name(callee));
	}
}

static int unknown(struct render *r, const char *kind, const struct value *name)
{
	if (name->type == V_UNDEFINED)
		return value_fail_undefined(r, name);
	if (name->type != V_STR)
		return render_fail(r, EINVAL, "the name of a %s must be a string, not '%s'", kind,
				   value_type_name(name));
	return render_fail(r, EINVAL, "no %s named '%.*s'", kind, (int)MIN(name->len, (size_t)64),
			   name->s);
}

int builtin_call_filter(struct render *r, const struct value *name, const struct value *self,
			const struct args *args, struct value *ret)
{
	const struct builtin *b = name->type == V_STR ? filter_find(name->s, name->len) : NULL;

	return b ? builtin_call(r, b, self, args, ret) : unknown(r, "filter", name);
}

int builtin_call_test(struct render *r, const struct value *name, const struct value *self,
		      const struct args *args, bool *ret)
{
	const struct builtin *b = name->type == V_STR ? test_find(name->s, name->len) : NULL;
	struct value v;
	int rc = b ? builtin_call(r, b, self, args, &v) : unknown(r, "test", name);

	if (!rc)
		*ret = value_truth(&v);
	return rc;
}

int arg_int(struct render *r, const char *who, const struct value *v, int64_t *ret)
{
	if (value_index(v, ret))
		return 0;
	if (v->type == V_UNDEFINED)
		return value_fail_undefined(r, v);
	return render_fail(r, EINVAL, "%s: expected an integer, not '%s'", who, value_type_name(v));
}

int arg_str(struct render *r, const char *who, const struct value *v)
{
	if (v->type == V_STR)
		return 0;
	if (v->type == V_UNDEFINED)
		return value_fail_undefined(r, v);
	return render_fail(r, EINVAL, "%s: expected a string, not '%s'", who, value_type_name(v));
}
