#include "protocol/jinja/builtin.h"

#include <errno.h>
#include <string.h>

#include "protocol/jinja/seq.h"

/* ---- arguments ---- */

static const char *param_name(const char *param)
{
	return param[1] == ':' ? param + 2 : param;
}

static bool bind_one(struct render *r, struct call *c, int i, struct value v)
{
	const char *param = c->b->params[i], *name = param_name(param);
	char type = name > param ? param[0] : 0;
	int64_t n;

	if (type == 'x')
		return render_fail(r, EINVAL,
				   "%s: the argument '%s' is not supported in chat templates",
				   c->b->name, name);
	if (c->arg[i].type != V_MISSING)
		return render_fail(r, EINVAL, "%s: argument '%s' is given twice", c->b->name, name);
	if ((type == 'S' || type == 'I') && v.type == V_NONE)
		return true;
	if ((type | 0x20) == 's' && v.type != V_STR)
		value_fail_type(r, c->b->name, "a string", v);
	if ((type | 0x20) == 'i' && !value_index(v, &n))
		value_fail_type(r, c->b->name, "an integer", v);
	c->arg[i] = (type | 0x20) == 'i' && !r->rc ? value_int(n) : v;
	return !r->rc;
}

static bool bind_keyword(struct render *r, struct call *c, const struct kwarg *k)
{
	const struct builtin *b = c->b;

	for (int i = 0; i < BUILTIN_PARAMS && b->params[i]; i++)
		if (!(b->flags & BUILTIN_POSITIONAL) && value_is(k->name, param_name(b->params[i])))
			return bind_one(r, c, i, k->value);
	return render_fail(r, EINVAL, "%s: unexpected keyword argument '%.*s'", b->name,
			   (int)MIN(k->name.len, 64u), k->name.s);
}

static bool bind(struct render *r, struct call *c)
{
	const struct builtin *b = c->b;
	size_t most = 0;

	while (most < BUILTIN_PARAMS && b->params[most])
		most++;
	if (c->args.n > most)
		return render_fail(r, EINVAL, "%s takes at most %zu arguments, %zu were given",
				   b->name, most, c->args.n);
	for (size_t i = 0; i < c->args.n; i++)
		if (!bind_one(r, c, (int)i, c->args.v[i]))
			return false;
	for (size_t i = 0; i < c->args.nkw; i++)
		if (!bind_keyword(r, c, &c->args.kw[i]))
			return false;
	for (int i = 0; i < b->required; i++)
		if (c->arg[i].type == V_MISSING)
			return render_fail(r, EINVAL, "%s: argument '%s' is missing", b->name,
					   param_name(b->params[i]));
	return true;
}

/* ---- generators ---- */

struct deferred {
	struct iter it; /* the first member: a value points to it */
	struct call call;
};

static struct list *run_deferred(struct render *r, struct iter *it)
{
	struct deferred *d = (struct deferred *)it;
	struct value v = d->call.b->call(r, &d->call);

	return value_has_items(v) ? v.list : NULL;
}

/* A copy of n items in the arena. */
static const void *keep(struct render *r, const void *from, size_t n, size_t size)
{
	void *p = render_alloc(r, n, size);

	return p && n ? memcpy(p, from, n * size) : p;
}

static struct value defer(struct render *r, const struct call *c)
{
	struct deferred *d = render_alloc(r, 1, sizeof(*d));

	if (!d)
		return NOTHING;
	d->it.make = run_deferred;
	d->call = *c;
	d->call.args.v = keep(r, c->args.v, c->args.n, sizeof(*c->args.v));
	d->call.args.kw = keep(r, c->args.kw, c->args.nkw, sizeof(*c->args.kw));
	return r->rc ? NOTHING : (struct value){.type = V_ITER, .iter = &d->it};
}

/* ---- calls ---- */

/* What most builtins cost: a look at each byte they are given. Those that cost more charge it. */
static bool charge_call(struct render *r, const struct call *c)
{
	size_t bytes = c->self.type == V_STR ? c->self.len : 0;

	for (size_t i = 0; i < c->args.n; i++)
		if (c->args.v[i].type == V_STR)
			bytes += c->args.v[i].len;
	return render_charge_bytes(r, bytes);
}

struct value builtin_call(struct render *r, const struct builtin *b, struct value self,
			  const struct args *args)
{
	struct call c = {.b = b, .self = self, .args = *args};
	struct value v;

	if (!charge_call(r, &c) || (!(b->flags & BUILTIN_RAW) && !bind(r, &c)))
		return NOTHING;
	if (b->flags & BUILTIN_LAZY)
		return defer(r, &c);
	v = b->call(r, &c);
	if (b->flags & BUILTIN_SAFE && v.type == V_STR && self.type == V_STR)
		v.safe = self.safe;
	return v;
}

const struct builtin *builtin_named(struct render *r, enum builtin_kind kind, struct value name)
{
	const char *what = kind == FILTER ? "filter" : "test";
	const struct builtin *b = NULL;
	int len = (int)MIN(name.len, 64u);

	if (name.type != V_STR)
		value_fail_type(r, what, "a name", name);
	else if (!(b = r->find(kind, name.s, name.len)))
		render_fail(r, EINVAL, "no %s named '%.*s'", what, len, name.s);
	else if (!b->call)
		render_fail(r, EINVAL, "%s '%.*s' is not supported in chat templates", what, len,
			    name.s);
	return r->rc ? NULL : b;
}

struct bound {
	struct callable callable; /* the first member: a value points to it */
	const struct builtin *b;
	struct value self;
};

static struct value call_bound(struct render *r, const struct callable *c, const struct args *args)
{
	const struct bound *bound = (const struct bound *)c;

	if (!bound->b->call)
		return value_fail(r, "%s '%s' is not supported in chat templates", c->type,
				  c->name);
	return builtin_call(r, bound->b, bound->self, args);
}

struct value builtin_value(struct render *r, const char *type, const struct builtin *b,
			   struct value name, struct value self)
{
	struct bound *bound = render_alloc(r, 1, sizeof(*bound));
	const char *copy = render_copy(r, name.s, name.len);

	if (!bound || !copy)
		return NOTHING;
	*bound = (struct bound){{type, copy, call_bound}, b, self};
	return (struct value){.type = V_CALLABLE, .callable = &bound->callable};
}
