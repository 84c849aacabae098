/* obj.name and obj[key], the way jinja2's immutable sandbox looks them up. */
#include <errno.h>
#include <string.h>

#include "protocol/text/jinja_eval.h"

static bool is_name(const char *name, size_t len, const char *want)
{
	return len == strlen(want) && !memcmp(name, want, len);
}

static int new_method(struct render *r, const struct value *self, const struct builtin *b,
		      struct value *ret)
{
	struct method *m = render_alloc(r, 1, sizeof(*m));

	if (!m)
		return -r->err->code;
	*m = (struct method){b, *self};
	*ret = (struct value){.type = V_METHOD, .method = m};
	return 1;
}

static int macro_attribute(struct render *r, const struct macro *m, const char *name, size_t len,
			   struct value *ret)
{
	const struct function *f = m->function;
	int rc;

	if (is_name(name, len, "name")) {
		*ret = value_cstr(f->name);
	} else if (is_name(name, len, "catch_kwargs")) {
		*ret = value_bool(f->kwargs);
	} else if (is_name(name, len, "catch_varargs")) {
		*ret = value_bool(f->varargs);
	} else if (is_name(name, len, "caller")) {
		*ret = value_bool(f->caller);
	} else if (is_name(name, len, "arguments")) {
		size_t i = 0;

		rc = value_new_list(r, V_TUPLE, f->nparams, ret);
		if (rc < 0)
			return rc;
		for (const struct node *p = f->params; p; p = p->next)
			ret->list->v[i++] = value_str(p->name, p->name_len);
	} else {
		return 0;
	}
	return 1;
}

static int range_attribute(const struct range *range, const char *name, size_t len,
			   struct value *ret)
{
	if (is_name(name, len, "start"))
		*ret = value_int(range->start);
	else if (is_name(name, len, "stop"))
		*ret = value_int(range->stop);
	else if (is_name(name, len, "step"))
		*ret = value_int(range->step);
	else
		return 0;
	return 1;
}

static int cycler_attribute(const struct cycler *c, const char *name, size_t len, struct value *ret)
{
	if (is_name(name, len, "current"))
		*ret = c->v[c->pos];
	else if (is_name(name, len, "pos"))
		*ret = value_int((int64_t)c->pos);
	else
		return 0;
	return 1;
}

int value_attribute(struct render *r, const struct value *obj, const char *name, size_t len,
		    struct value *ret)
{
	const struct builtin *method;
	struct value key = value_str(name, len), dict;
	int rc = 0;

	if (method_is_unsafe(obj->type, name, len)) {
		rc = value_undefined_unsafe(r, obj, name, len, ret);
		return rc < 0 ? rc : 1;
	}
	switch (obj->type) {
	case V_UNDEFINED: return value_fail_undefined(r, obj);
	case V_NAMESPACE:
		dict = *obj;
		dict.type = V_DICT;
		return dict_find(r, &dict, &key, ret);
	case V_LOOP: rc = loop_attribute(r, obj->loop, name, len, ret); break;
	case V_MACRO: rc = macro_attribute(r, obj->macro, name, len, ret); break;
	case V_RANGE: rc = range_attribute(obj->range, name, len, ret); break;
	case V_CYCLER: rc = cycler_attribute(obj->cycler, name, len, ret); break;
	case V_TUPLE:
		if (obj->list->group && is_name(name, len, "grouper"))
			*ret = obj->list->v[0];
		else if (obj->list->group && is_name(name, len, "list"))
			*ret = obj->list->v[1];
		else
			break;
		return 1;
	default: break;
	}
	if (rc)
		return rc;
	method = method_find(obj->type, name, len);
	if (method)
		return new_method(r, obj, method, ret);
	return 0;
}

int value_getattr(struct render *r, const struct value *obj, const char *name, size_t len,
		  struct value *ret)
{
	struct value key = value_str(name, len);
	int rc = value_attribute(r, obj, name, len, ret);

	if (!rc && obj->type == V_DICT)
		rc = dict_find(r, obj, &key, ret);
	if (rc)
		return rc < 0 ? rc : 0;
	return value_undefined_member(r, obj, &key, ret);
}

static bool is_hashable(const struct value *v, unsigned depth)
{
	if (v->type == V_LIST || v->type == V_DICT || v->type == V_VIEW || depth > RENDER_DEPTH)
		return false;
	if (v->type == V_TUPLE)
		for (size_t i = 0; i < v->list->n; i++)
			if (!is_hashable(&v->list->v[i], depth + 1))
				return false;
	return true;
}

int value_getitem(struct render *r, const struct value *obj, const struct value *key,
		  struct value *ret)
{
	int64_t index;
	int rc = 0;

	switch (obj->type) {
	case V_UNDEFINED: return value_fail_undefined(r, obj);
	case V_DICT:
		if (is_hashable(key, 0))
			rc = dict_find(r, obj, key, ret);
		break;
	case V_STR:
	case V_LIST:
	case V_TUPLE:
	case V_RANGE:
		if (value_index(key, &index))
			rc = value_at(r, obj, index, ret);
		break;
	default: break;
	}
	if (!rc && key->type == V_STR)
		rc = value_attribute(r, obj, key->s, key->len, ret);
	if (rc)
		return rc < 0 ? rc : 0;
	return value_undefined_member(r, obj, key, ret);
}
