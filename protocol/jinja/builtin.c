#include "protocol/jinja/builtin.h"

#include <string.h>

#include "protocol/jinja/seq.h"

/* ---- arguments ---- */

/* Converts v to *arg for a parameter of this type (a letter of builtin.h; 0: any value). If v counts as not given, *arg
 * stays as it is. False after a failure. */
static bool bind_one(struct render *r, const char *who, const char *name, char type, struct value v,
		     struct value *arg)
{
	bool text = type == 's' || type == 'S', integer = type == 'i' || type == 'I';
	int64_t n = 0;

	if (type == 'x')
		return render_fail(r, EINVAL,
				   "%s: the argument '%s' is not supported in chat templates", who,
				   name);
	if (v.type == V_NONE && (type == 'S' || type == 'I'))
		return true;
	if ((text && v.type != V_STR) || (integer && !value_index(v, &n)))
		value_fail_type(r, who, text ? "a string" : "an integer", v);
	*arg = integer ? value_int(n) : v;
	return !r->rc;
}

static bool bind(struct render *r, struct builtin_call *c)
{
	const struct builtin *b = c->b;
	size_t i = 0, found = 0;

	for (; i < BUILTIN_PARAMS && b->params[i]; i++) {
		bool typed = b->params[i][1] == ':';
		const char *name = b->params[i] + (typed ? 2 : 0);
		struct value v = i < c->args.n ? c->args.v[i] : NOTHING;

		for (size_t k = 0; k < c->args.nkw && !(b->flags & BUILTIN_POSITIONAL); k++) {
			if (!value_is(c->args.kw[k].name, name))
				continue;
			if (v.type != V_MISSING)
				return render_fail(r, EINVAL, "%s: argument '%s' is given twice",
						   b->name, name);
			v = c->args.kw[k].value;
			found++;
		}
		if (v.type != V_MISSING) {
			if (!bind_one(r, b->name, name, typed ? b->params[i][0] : 0, v, &c->arg[i]))
				return false;
		} else if ((int)i < b->required) {
			return render_fail(r, EINVAL, "%s: argument '%s' is missing", b->name,
					   name);
		}
	}
	if (c->args.n > i)
		return render_fail(r, EINVAL, "%s takes at most %zu arguments, %zu were given",
				   b->name, i, c->args.n);
	if (found < c->args.nkw)
		return render_fail(r, EINVAL, "%s: unexpected keyword argument", b->name);
	return true;
}

/* ---- generators ---- */

struct deferred {
	struct iter it; /* first, because a pointer to it is cast to struct deferred */
	struct builtin_call call;
};

static struct list *run_deferred(struct render *r, struct iter *it)
{
	struct deferred *d = (struct deferred *)it;
	struct value v = d->call.b->call(r, &d->call);

	return value_has_items(v) ? v.list : NULL;
}

/* Returns a copy of n items in the rendering's arena; NULL after a failure. */
static const void *keep(struct render *r, const void *from, size_t n, size_t size)
{
	void *p = render_alloc(r, n, size);

	return p && n ? memcpy(p, from, n * size) : p;
}

static struct value defer(struct render *r, const struct builtin_call *c)
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

/* Charges steps for the bytes of the texts that a builtin gets (keyword arguments aside). A builtin that takes longer
 * charges the rest itself. */
static bool charge_call(struct render *r, const struct builtin_call *c)
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
	struct builtin_call c = {.b = b, .self = self, .args = *args};
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
	struct callable callable; /* first, because a pointer to it is cast to struct bound */
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
