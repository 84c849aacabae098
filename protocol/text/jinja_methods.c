/* What a str can be asked: isalpha(), isupper()... and the methods of list, dict and others. */
#include <errno.h>
#include <string.h>

#include "protocol/text/jinja_eval.h"
#include "protocol/text/jinja_methods.h"
#include "protocol/text/jinja_pystr.h"

#define METHOD(name)                                                                         \
	static int name(struct render *r, const struct value *self, const struct value *arg, \
			struct value *ret)

static int all_are(struct render *r, const struct value *self, bool (*is)(uint32_t cp),
		   bool when_empty, struct value *ret)
{
	bool all = self->len ? true : when_empty;
	uint32_t cp;

	for (size_t i = 0; i < self->len && all;) {
		i += pystr_next(self->s + i, self->len - i, &cp);
		all = is(cp);
	}
	*ret = value_bool(all);
	return render_charge_bytes(r, self->len);
}

static bool is_ascii(uint32_t cp)
{
	return cp < 0x80;
}

METHOD(str_isalpha)
{
	return all_are(r, self, pystr_isalpha, false, ret);
}

METHOD(str_isdigit)
{
	return all_are(r, self, pystr_isdigit, false, ret);
}

METHOD(str_isdecimal)
{
	return all_are(r, self, pystr_isdecimal, false, ret);
}

METHOD(str_isnumeric)
{
	return all_are(r, self, pystr_isnumeric, false, ret);
}

METHOD(str_isalnum)
{
	return all_are(r, self, pystr_isalnum, false, ret);
}

METHOD(str_isspace)
{
	return all_are(r, self, pystr_isspace, false, ret);
}

METHOD(str_isascii)
{
	return all_are(r, self, is_ascii, true, ret);
}

METHOD(str_isprintable)
{
	return all_are(r, self, pystr_isprintable, true, ret);
}

METHOD(str_isidentifier)
{
	uint32_t first = 0;

	pystr_next(self->s, self->len, &first);
	if (!self->len || !pystr_id_start(first)) {
		*ret = value_bool(false);
		return 0;
	}
	return all_are(r, self, pystr_id_continue, false, ret);
}

bool text_is_case(const struct value *v, bool upper)
{
	bool cased = false;
	uint32_t cp;

	for (size_t i = 0; i < v->len;) {
		i += pystr_next(v->s + i, v->len - i, &cp);
		if (pystr_istitle(cp) || (upper ? pystr_islower(cp) : pystr_isupper(cp)))
			return false;
		cased |= upper ? pystr_isupper(cp) : pystr_islower(cp);
	}
	return cased;
}

METHOD(str_isupper)
{
	*ret = value_bool(text_is_case(self, true));
	return render_charge_bytes(r, self->len);
}

METHOD(str_islower)
{
	*ret = value_bool(text_is_case(self, false));
	return render_charge_bytes(r, self->len);
}

METHOD(str_istitle)
{
	bool cased = false, in_word = false, good = true;
	uint32_t cp;

	for (size_t i = 0; i < self->len && good;) {
		bool upper, lower;

		i += pystr_next(self->s + i, self->len - i, &cp);
		upper = pystr_isupper(cp) || pystr_istitle(cp);
		lower = pystr_islower(cp);
		good = !(upper && in_word) && !(lower && !in_word);
		in_word = upper || lower;
		cased |= in_word;
	}
	*ret = value_bool(good && cased);
	return render_charge_bytes(r, self->len);
}

static const struct builtin str_questions[] = {
	{"isalpha", str_isalpha},	    {"isdigit", str_isdigit},
	{"isdecimal", str_isdecimal},	    {"isnumeric", str_isnumeric},
	{"isalnum", str_isalnum},	    {"isspace", str_isspace},
	{"isascii", str_isascii},	    {"isprintable", str_isprintable},
	{"isidentifier", str_isidentifier}, {"isupper", str_isupper},
	{"islower", str_islower},	    {"istitle", str_istitle},
};

/* ---- list, tuple, range ---- */

METHOD(list_index)
{
	int64_t n = value_len(self), bound[2] = {0, n};
	bool same = false;
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		if (arg[1 + i].type == V_MISSING)
			continue;
		rc = arg_int(r, "index", &arg[1 + i], &bound[i]);
		if (bound[i] < 0)
			bound[i] = MAX(bound[i] + n, (int64_t)0);
	}
	for (int64_t i = bound[0]; i < MIN(bound[1], n) && !rc; i++) {
		struct value item = value_item(self, (size_t)i);

		rc = value_equal(r, &item, &arg[0], &same);
		*ret = value_int(i);
		if (same)
			return rc;
	}
	return rc < 0 ? rc : render_fail(r, EINVAL, "index: the value is not in the list");
}

METHOD(list_count)
{
	int64_t n = value_len(self), count = 0;
	int rc = 0;

	for (int64_t i = 0; i < n && !rc; i++) {
		struct value item = value_item(self, (size_t)i);
		bool same = false;

		rc = value_equal(r, &item, &arg[0], &same);
		count += same;
	}
	*ret = value_int(count);
	return rc;
}

METHOD(list_copy)
{
	return value_to_list(r, self, ret);
}

static const struct builtin list_methods[] = {
	{"index", list_index, NULL, 1, {"value", "start", "stop"}, true},
	{"count", list_count, NULL, 1, {"value"}, true},
	{"copy", list_copy},
};
static const struct builtin tuple_methods[] = {
	{"index", list_index, NULL, 1, {"value", "start", "stop"}, true},
	{"count", list_count, NULL, 1, {"value"}, true},
};
static const struct builtin range_methods[] = {
	{"index", list_index, NULL, 1, {"value"}, true},
	{"count", list_count, NULL, 1, {"value"}, true},
};

/* ---- dict ---- */

METHOD(dict_get)
{
	int rc = dict_find(r, self, &arg[0], ret);

	if (!rc)
		*ret = arg[1].type == V_MISSING ? value_none() : arg[1];
	return MIN(rc, 0);
}

static int new_view(struct render *r, const struct value *dict, enum view_kind kind,
		    struct value *ret)
{
	struct view *view = render_alloc(r, 1, sizeof(*view));

	if (!view)
		return -r->err->code;
	*view = (struct view){kind, *dict};
	*ret = (struct value){.type = V_VIEW, .view = view};
	return 0;
}

METHOD(dict_keys)
{
	return new_view(r, self, VIEW_KEYS, ret);
}

METHOD(dict_values)
{
	return new_view(r, self, VIEW_VALUES, ret);
}

METHOD(dict_items)
{
	return new_view(r, self, VIEW_ITEMS, ret);
}

METHOD(dict_copy)
{
	*ret = *self; /* nothing can change either of them */
	return 0;
}

static const struct builtin dict_methods[] = {
	{"get", dict_get, NULL, 1, {"key", "default"}, true},
	{"items", dict_items},
	{"keys", dict_keys},
	{"values", dict_values},
	{"copy", dict_copy},
};

/* ---- loop, cycler ---- */

static int loop_cycle(struct render *r, const struct value *self, const struct args *args,
		      struct value *ret)
{
	if (!args->n || args->nkw)
		return render_fail(r, EINVAL, "loop.cycle needs items to cycle through");
	*ret = args->v[(size_t)self->loop->index0 % args->n];
	return 0;
}

static int loop_changed(struct render *r, const struct value *self, const struct args *args,
			struct value *ret)
{
	struct value now;
	bool same = false;
	int rc = args->nkw ? render_fail(r, EINVAL, "loop.changed takes no keyword arguments") : 0;

	if (!rc)
		rc = value_new_list(r, V_TUPLE, args->n, &now);
	if (rc < 0)
		return rc;
	if (args->n)
		memcpy(now.list->v, args->v, args->n * sizeof(*args->v));
	if (self->loop->changed.type != V_MISSING)
		rc = value_equal(r, &self->loop->changed, &now, &same);
	self->loop->changed = now;
	*ret = value_bool(!same);
	return rc;
}

static const struct builtin loop_methods[] = {
	{"cycle", .raw = loop_cycle},
	{"changed", .raw = loop_changed},
};

METHOD(cycler_next)
{
	struct cycler *c = self->cycler;

	*ret = c->v[c->pos];
	c->pos = (c->pos + 1) % c->n;
	return 0;
}

METHOD(cycler_reset)
{
	self->cycler->pos = 0;
	*ret = value_none();
	return 0;
}

static const struct builtin cycler_methods[] = {
	{"next", cycler_next},
	{"reset", cycler_reset},
};

/* ---- the tables ---- */

#define SEARCH(table) builtin_search(table, ARRAY_SIZE(table), name, len)

const struct builtin *method_find(enum value_type type, const char *name, size_t len)
{
	const struct builtin *b;

	switch (type) {
	case V_STR:
		b = builtin_search(str_methods, str_methods_count, name, len);
		return b ? b : SEARCH(str_questions);
	case V_LIST: return SEARCH(list_methods);
	case V_TUPLE: return SEARCH(tuple_methods);
	case V_RANGE: return SEARCH(range_methods);
	case V_DICT: return SEARCH(dict_methods);
	case V_LOOP: return SEARCH(loop_methods);
	case V_CYCLER: return SEARCH(cycler_methods);
	default: return NULL;
	}
}

static bool among(const char *const *names, size_t n, const char *name, size_t len)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(names[i]) == len && !memcmp(names[i], name, len))
			return true;
	return false;
}

bool method_is_unsafe(enum value_type type, const char *name, size_t len)
{
	static const char *const list[] = {"append", "clear",  "pop",  "reverse",
					   "insert", "remove", "sort", "extend"};
	static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
	/* What every object of Python has, and the sandbox keeps from templates. */
	static const char *const object[] = {
		"__class__",
		"__delattr__",
		"__dir__",
		"__doc__",
		"__eq__",
		"__format__",
		"__ge__",
		"__getattribute__",
		"__getstate__",
		"__gt__",
		"__hash__",
		"__init__",
		"__le__",
		"__lt__",
		"__ne__",
		"__new__",
		"__reduce__",
		"__reduce_ex__",
		"__repr__",
		"__setattr__",
		"__sizeof__",
		"__str__",
		"__init_subclass__",
		"__subclasshook__",
	};

	if (len > 2 && name[0] == '_' && type != V_NAMESPACE)
		return among(object, ARRAY_SIZE(object), name, len);
	return type == V_LIST	? among(list, ARRAY_SIZE(list), name, len)
	       : type == V_DICT ? among(dict, ARRAY_SIZE(dict), name, len)
				: false;
}
