/* Methods of str. Positions are code points, as in Python; pieces borrow the text they are of. */
#include <errno.h>
#include <string.h>

#include "base/utf8.h"
#include "protocol/text/jinja_builtin.h"
#include "protocol/text/jinja_methods.h"
#include "protocol/text/jinja_pystr.h"

#define METHOD(name)                                                                         \
	static int name(struct render *r, const struct value *self, const struct value *arg, \
			struct value *ret)

static struct value piece(const struct value *self, size_t from, size_t to)
{
	struct value v = value_str(self->s + from, to - from);

	v.safe = self->safe;
	return v;
}

static int push_piece(struct render *r, struct value *list, const struct value *self, size_t from,
		      size_t to)
{
	struct value v = piece(self, from, to);
	int rc = render_charge(r, 1);

	return rc < 0 ? rc : list_push(r, list->list, &v);
}

/* An optional integer argument. */
static int optional_int(struct render *r, const char *who, const struct value *v, int64_t other,
			int64_t *ret)
{
	*ret = other;
	if (v->type == V_MISSING)
		return 0;
	return arg_int(r, who, v, ret);
}

/* ---- case ---- */

static int recase(struct render *r, const struct value *self, enum pystr_case to, struct value *ret)
{
	size_t start = text_begin(r);
	int rc;

	pystr_recase(&r->scratch, self->s, self->len, to);
	rc = text_end(r, start, ret);
	ret->safe = self->safe;
	return rc;
}

METHOD(str_upper)
{
	return recase(r, self, PYSTR_UPPER, ret);
}

METHOD(str_lower)
{
	return recase(r, self, PYSTR_LOWER, ret);
}

METHOD(str_title)
{
	return recase(r, self, PYSTR_TITLE, ret);
}

METHOD(str_capitalize)
{
	return recase(r, self, PYSTR_CAPITALIZE, ret);
}

METHOD(str_swapcase)
{
	return recase(r, self, PYSTR_SWAPCASE, ret);
}

/* ---- strip ---- */

static bool in_set(const struct value *chars, uint32_t cp)
{
	char bytes[4];

	if (chars->type != V_STR)
		return pystr_isspace(cp);
	return pystr_find(chars->s, chars->len, bytes, utf8_encode(cp, bytes)) != SIZE_MAX;
}

int text_strip(struct render *r, const struct value *v, const struct value *chars,
	       enum strip_side side, struct value *ret)
{
	size_t from = 0, to = v->len, len, each = 1;
	uint32_t cp;
	int rc = 0;

	if (chars->type != V_MISSING && chars->type != V_NONE) {
		rc = arg_str(r, "strip", chars);
		each += chars->len / 64;
	}
	for (; !rc && (side & STRIP_LEFT) && from < to; from += len) {
		len = pystr_next(v->s + from, to - from, &cp);
		if (!in_set(chars, cp))
			break;
		rc = render_charge(r, each);
	}
	for (; !rc && (side & STRIP_RIGHT) && to > from; to -= len) {
		len = pystr_prev(v->s + from, to - from, &cp);
		if (!in_set(chars, cp))
			break;
		rc = render_charge(r, each);
	}
	*ret = piece(v, from, to);
	return rc;
}

METHOD(str_strip)
{
	return text_strip(r, self, &arg[0], STRIP_BOTH, ret);
}

METHOD(str_lstrip)
{
	return text_strip(r, self, &arg[0], STRIP_LEFT, ret);
}

METHOD(str_rstrip)
{
	return text_strip(r, self, &arg[0], STRIP_RIGHT, ret);
}

METHOD(str_removeprefix)
{
	bool has;
	int rc = arg_str(r, "removeprefix", &arg[0]);

	if (rc < 0)
		return rc;
	has = self->len >= arg->len && !memcmp(self->s, arg->s, arg->len);
	*ret = piece(self, has ? arg->len : 0, self->len);
	return 0;
}

METHOD(str_removesuffix)
{
	bool has;
	int rc = arg_str(r, "removesuffix", &arg[0]);

	if (rc < 0)
		return rc;
	has = self->len >= arg->len && !memcmp(self->s + self->len - arg->len, arg->s, arg->len);
	*ret = piece(self, 0, self->len - (has ? arg->len : 0));
	return 0;
}

/* ---- split ---- */

static int split_space(struct render *r, const struct value *self, int64_t most, struct value *ret)
{
	size_t at = pystr_skip_space(self->s, self->len), end, len;
	uint32_t cp;
	int rc = 0;

	for (; at < self->len && !rc; at = end + pystr_skip_space(self->s + end, self->len - end)) {
		if (most-- == 0)
			return push_piece(r, ret, self, at, self->len);
		for (end = at; end < self->len; end += len) {
			len = pystr_next(self->s + end, self->len - end, &cp);
			if (pystr_isspace(cp))
				break;
		}
		rc = push_piece(r, ret, self, at, end);
	}
	return rc;
}

static int split_text(struct render *r, const struct value *self, const struct value *sep,
		      int64_t most, struct value *ret)
{
	size_t from = 0, at;
	int rc = 0;

	while (!rc && most-- != 0) {
		at = pystr_find(self->s + from, self->len - from, sep->s, sep->len);
		if (at == SIZE_MAX)
			break;
		rc = push_piece(r, ret, self, from, from + at);
		from += at + sep->len;
	}
	return rc < 0 ? rc : push_piece(r, ret, self, from, self->len);
}

static int rsplit_space(struct render *r, const struct value *self, int64_t most, struct value *ret)
{
	size_t end = pystr_trim_space(self->s, self->len), from, len;
	uint32_t cp;
	int rc = 0;

	for (; end && !rc; end = pystr_trim_space(self->s, from)) {
		if (most-- == 0)
			return push_piece(r, ret, self, 0, end);
		for (from = end; from; from -= len) {
			len = pystr_prev(self->s, from, &cp);
			if (pystr_isspace(cp))
				break;
		}
		rc = push_piece(r, ret, self, from, end);
	}
	return rc;
}

static int rsplit_text(struct render *r, const struct value *self, const struct value *sep,
		       int64_t most, struct value *ret)
{
	size_t end = self->len, at;
	int rc = 0;

	while (!rc && most-- != 0) {
		rc = render_charge(r, 1);
		at = pystr_rfind(self->s, end, sep->s, sep->len);
		if (at == SIZE_MAX)
			break;
		if (!rc)
			rc = push_piece(r, ret, self, at + sep->len, end);
		end = at;
	}
	return rc < 0 ? rc : push_piece(r, ret, self, 0, end);
}

static int split(struct render *r, const struct value *self, const struct value *arg, bool back,
		 struct value *ret)
{
	bool space = arg[0].type == V_MISSING || arg[0].type == V_NONE;
	int64_t most;
	int rc = optional_int(r, "split", &arg[1], -1, &most);

	if (!rc && !space)
		rc = arg_str(r, "split", &arg[0]);
	if (!rc && !space && !arg[0].len)
		rc = render_fail(r, EINVAL, "split: empty separator");
	if (!rc)
		rc = render_charge_bytes(r, self->len);
	if (!rc)
		rc = value_new_list(r, V_LIST, 0, ret);
	if (rc < 0)
		return rc;
	if (!back)
		return space ? split_space(r, self, most, ret)
			     : split_text(r, self, &arg[0], most, ret);
	rc = space ? rsplit_space(r, self, most, ret) : rsplit_text(r, self, &arg[0], most, ret);
	for (size_t i = 0, n = rc < 0 ? 0 : ret->list->n; i < n / 2; i++) {
		struct value v = ret->list->v[i];

		ret->list->v[i] = ret->list->v[n - 1 - i];
		ret->list->v[n - 1 - i] = v;
	}
	return rc;
}

METHOD(str_split)
{
	return split(r, self, arg, false, ret);
}

METHOD(str_rsplit)
{
	return split(r, self, arg, true, ret);
}

METHOD(str_splitlines)
{
	size_t at = 0, line, end;
	int64_t keep;
	int rc = optional_int(r, "splitlines", &arg[0], 0, &keep);

	if (!rc)
		rc = render_charge_bytes(r, self->len);
	if (!rc)
		rc = value_new_list(r, V_LIST, 0, ret);
	for (; at < self->len && !rc; at += line + end) {
		line = pystr_line(self->s + at, self->len - at, &end);
		rc = push_piece(r, ret, self, at, at + line + (keep ? end : 0));
	}
	return rc;
}

static int partition(struct render *r, const struct value *self, const struct value *sep, bool back,
		     struct value *ret)
{
	size_t at;
	int rc = arg_str(r, "partition", sep);

	if (!rc && !sep->len)
		rc = render_fail(r, EINVAL, "partition: empty separator");
	if (!rc)
		rc = render_charge_bytes(r, self->len);
	if (!rc)
		rc = value_new_list(r, V_TUPLE, 3, ret);
	if (rc < 0)
		return rc;
	at = back ? pystr_rfind(self->s, self->len, sep->s, sep->len)
		  : pystr_find(self->s, self->len, sep->s, sep->len);
	for (int i = 0; i < 3; i++)
		ret->list->v[i] = piece(self, 0, 0);
	if (at == SIZE_MAX) {
		ret->list->v[back ? 2 : 0] = *self;
		return 0;
	}
	ret->list->v[0] = piece(self, 0, at);
	ret->list->v[1] = piece(self, at, at + sep->len);
	ret->list->v[2] = piece(self, at + sep->len, self->len);
	return 0;
}

METHOD(str_partition)
{
	return partition(r, self, &arg[0], false, ret);
}

METHOD(str_rpartition)
{
	return partition(r, self, &arg[0], true, ret);
}

/* ---- search ---- */

/* The bytes [from, to) that start and end, arg[1] and arg[2], stand for; false when start lies
 * behind the end of the text or of the range. */
static int region(struct render *r, const char *who, const struct value *self,
		  const struct value *arg, size_t *ret_from, size_t *ret_to, bool *ret_valid)
{
	int64_t bound[2] = {0, INT64_MAX}, len;
	int rc = render_charge_bytes(r, self->len);

	*ret_from = 0;
	*ret_to = self->len;
	*ret_valid = true;
	if (arg[1].type == V_MISSING && arg[2].type == V_MISSING)
		return rc;
	len = (int64_t)pystr_length(self->s, self->len);
	for (int i = 0; i < 2 && !rc; i++) {
		if (arg[1 + i].type == V_MISSING || arg[1 + i].type == V_NONE)
			continue;
		rc = arg_int(r, who, &arg[1 + i], &bound[i]);
		if (bound[i] < 0)
			bound[i] = MAX(bound[i] + len, (int64_t)0);
	}
	bound[1] = MIN(bound[1], len);
	*ret_valid = bound[0] <= bound[1];
	if (!*ret_valid)
		return rc;
	*ret_from = pystr_offset(self->s, self->len, (size_t)bound[0]);
	*ret_to = pystr_offset(self->s, self->len, (size_t)bound[1]);
	return rc;
}

static int search(struct render *r, const char *who, const struct value *self,
		  const struct value *arg, bool back, bool must, struct value *ret)
{
	size_t from, to, at = SIZE_MAX;
	bool valid;
	int rc = arg_str(r, who, &arg[0]);

	if (!rc)
		rc = region(r, who, self, arg, &from, &to, &valid);
	if (rc < 0)
		return rc;
	if (valid)
		at = back ? pystr_rfind(self->s + from, to - from, arg[0].s, arg[0].len)
			  : pystr_find(self->s + from, to - from, arg[0].s, arg[0].len);
	if (at == SIZE_MAX && must)
		return render_fail(r, EINVAL, "%s: substring not found", who);
	*ret = value_int(at == SIZE_MAX ? -1 : (int64_t)pystr_length(self->s, from + at));
	return 0;
}

METHOD(str_find)
{
	return search(r, "find", self, arg, false, false, ret);
}

METHOD(str_rfind)
{
	return search(r, "rfind", self, arg, true, false, ret);
}

METHOD(str_index)
{
	return search(r, "index", self, arg, false, true, ret);
}

METHOD(str_rindex)
{
	return search(r, "rindex", self, arg, true, true, ret);
}

METHOD(str_count)
{
	size_t from, to, at;
	int64_t n = 0;
	bool valid;
	int rc = arg_str(r, "count", &arg[0]);

	if (!rc)
		rc = region(r, "count", self, arg, &from, &to, &valid);
	if (rc < 0)
		return rc;
	if (valid && !arg[0].len) {
		n = (int64_t)pystr_length(self->s + from, to - from) + 1;
	} else if (valid) {
		while ((at = pystr_find(self->s + from, to - from, arg[0].s, arg[0].len)) !=
		       SIZE_MAX) {
			from += at + arg[0].len;
			n++;
		}
	}
	*ret = value_int(n);
	return render_charge(r, (size_t)n / 8);
}

static int affix(struct render *r, const char *who, const struct value *self,
		 const struct value *arg, bool end, struct value *ret)
{
	const struct value *all = arg;
	size_t from, to, n = 1;
	bool valid;
	int rc = region(r, who, self, arg, &from, &to, &valid);

	*ret = value_bool(false);
	if (arg[0].type == V_TUPLE) {
		all = arg[0].list->v;
		n = arg[0].list->n;
	}
	for (size_t i = 0; i < n && !rc; i++) {
		rc = arg_str(r, who, &all[i]);
		if (!rc)
			rc = render_charge_bytes(r, all[i].len);
		if (rc < 0 || !valid || to - from < all[i].len)
			continue;
		if (!memcmp(self->s + (end ? to - all[i].len : from), all[i].s, all[i].len)) {
			*ret = value_bool(true);
			break;
		}
	}
	return rc;
}

METHOD(str_startswith)
{
	return affix(r, "startswith", self, arg, false, ret);
}

METHOD(str_endswith)
{
	return affix(r, "endswith", self, arg, true, ret);
}

/* ---- building ---- */

/* Puts `new` before each of the first `count` characters of v, and at its end. */
static size_t interleave(struct render *r, const struct value *v, const struct value *new,
			 int64_t count)
{
	size_t at = 0, len;
	uint32_t cp;

	while (count-- != 0) {
		buf_append(&r->scratch, new->s, new->len);
		if (at == v->len || r->scratch.failed)
			break;
		len = pystr_next(v->s + at, v->len - at, &cp);
		buf_append(&r->scratch, v->s + at, len);
		at += len;
	}
	return at;
}

int text_replace(struct render *r, const struct value *v, const struct value *old,
		 const struct value *new, int64_t count, struct value *ret)
{
	size_t start = text_begin(r), from = 0, at;
	int rc = render_charge_bytes(r, v->len);

	if (rc < 0)
		return rc;
	if (!old->len)
		from = interleave(r, v, new, count);
	while (old->len && count-- != 0 && !r->scratch.failed) {
		at = pystr_find(v->s + from, v->len - from, old->s, old->len);
		if (at == SIZE_MAX)
			break;
		buf_append(&r->scratch, v->s + from, at);
		buf_append(&r->scratch, new->s, new->len);
		from += at + old->len;
	}
	buf_append(&r->scratch, v->s + from, v->len - from);
	return text_end(r, start, ret);
}

METHOD(str_replace)
{
	struct value new = arg[1];
	int64_t count;
	int rc = arg_str(r, "replace", &arg[0]);

	if (!rc)
		rc = arg_str(r, "replace", &arg[1]);
	if (!rc)
		rc = optional_int(r, "replace", &arg[2], -1, &count);
	if (!rc && self->safe)
		rc = value_escape(r, &arg[1], &new);
	if (!rc)
		rc = text_replace(r, self, &arg[0], &new, count, ret);
	ret->safe = self->safe;
	return rc;
}

METHOD(str_join)
{
	size_t start = text_begin(r);
	struct value item;
	struct iter *it;
	bool first = true;
	int rc = value_iter(r, &arg[0], &it);

	if (rc < 0)
		return rc;
	for (; (rc = iter_next(r, it, &item)) > 0; first = false) {
		if (self->safe)
			rc = value_escape(r, &item, &item);
		else if (item.type != V_STR)
			rc = render_fail(r, EINVAL, "join: expected strings, not '%s'",
					 value_type_name(&item));
		if (!first)
			buf_append(&r->scratch, self->s, self->len);
		if (rc >= 0)
			rc = value_write_str(r, &r->scratch, &item);
		if (rc < 0)
			return rc;
	}
	if (!rc)
		rc = text_end(r, start, ret);
	ret->safe = self->safe;
	return rc;
}

static int64_t missing_width(const struct value *v, int64_t width)
{
	int64_t len = (int64_t)pystr_length(v->s, v->len);

	return width > len ? width - len : 0;
}

/* Fills up with `left` and `right` fill characters at the sides. */
static int pad(struct render *r, const struct value *v, int64_t left, int64_t right,
	       const struct value *fill, struct value *ret)
{
	size_t start = text_begin(r);
	int rc = render_charge(r, (size_t)left + (size_t)right);

	if (rc < 0)
		return rc;
	while (left-- > 0 && !r->scratch.failed)
		buf_append(&r->scratch, fill->s, fill->len);
	buf_append(&r->scratch, v->s, v->len);
	while (right-- > 0 && !r->scratch.failed)
		buf_append(&r->scratch, fill->s, fill->len);
	rc = text_end(r, start, ret);
	ret->safe = v->safe;
	return rc;
}

int text_center(struct render *r, const struct value *v, int64_t width, const char *fill,
		size_t fill_len, struct value *ret)
{
	int64_t space = missing_width(v, width), left;
	struct value filler = value_str(fill, fill_len);

	if (!space) {
		*ret = *v;
		return 0;
	}
	left = space / 2 + (space & width & 1);
	return pad(r, v, left, space - left, &filler, ret);
}

static int justify(struct render *r, const char *who, const struct value *self,
		   const struct value *arg, int side, struct value *ret)
{
	struct value fill = value_str(" ", 1);
	int64_t width, space;
	int rc = arg_int(r, who, &arg[0], &width);

	if (!rc && arg[1].type != V_MISSING) {
		fill = arg[1];
		rc = arg_str(r, who, &fill);
		if (!rc && self->safe)
			rc = value_escape(r, &fill, &fill);
		if (!rc && pystr_length(fill.s, fill.len) != 1)
			rc = render_fail(r, EINVAL, "%s: the fill must be one character", who);
	}
	if (rc < 0)
		return rc;
	if (side == STRIP_BOTH)
		return text_center(r, self, width, fill.s, fill.len, ret);
	space = missing_width(self, width);
	return pad(r, self, side == STRIP_LEFT ? space : 0, side == STRIP_RIGHT ? space : 0, &fill,
		   ret);
}

METHOD(str_ljust)
{
	return justify(r, "ljust", self, arg, STRIP_RIGHT, ret);
}

METHOD(str_rjust)
{
	return justify(r, "rjust", self, arg, STRIP_LEFT, ret);
}

METHOD(str_center)
{
	return justify(r, "center", self, arg, STRIP_BOTH, ret);
}

METHOD(str_zfill)
{
	struct value zero = value_str("0", 1), rest = *self, sign = piece(self, 0, 0);
	int64_t width, space;
	int rc = arg_int(r, "zfill", &arg[0], &width);

	if (rc < 0)
		return rc;
	space = missing_width(self, width);
	if (self->len && (self->s[0] == '+' || self->s[0] == '-')) {
		sign = piece(self, 0, 1);
		rest = piece(self, 1, self->len);
	}
	rc = pad(r, &rest, space, 0, &zero, ret);
	return rc < 0 ? rc : value_binary(r, OP_ADD, &sign, ret, ret);
}

METHOD(str_expandtabs)
{
	size_t start = text_begin(r), len;
	int64_t size, column = 0, fill;
	uint32_t cp;
	int rc = optional_int(r, "expandtabs", &arg[0], 8, &size);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < self->len && !r->scratch.failed; i += len) {
		len = pystr_next(self->s + i, self->len - i, &cp);
		if (cp != '\t') {
			buf_append(&r->scratch, self->s + i, len);
			column = cp == '\n' || cp == '\r' ? 0 : column + 1;
			continue;
		}
		fill = size > 0 ? size - column % size : 0;
		column += fill;
		rc = render_charge(r, (size_t)fill);
		if (rc < 0)
			return rc;
		while (fill-- > 0 && !r->scratch.failed)
			buf_putc(&r->scratch, ' ');
	}
	rc = text_end(r, start, ret);
	ret->safe = self->safe;
	return rc;
}

static int str_format(struct render *r, const struct value *self, const struct args *args,
		      struct value *ret)
{
	return value_format_braces(r, self, args, ret);
}

const struct builtin str_methods[] = {
	{"split", str_split, .params = {"sep", "maxsplit"}},
	{"strip", str_strip, .params = {"chars"}, .positional = true},
	{"lstrip", str_lstrip, .params = {"chars"}, .positional = true},
	{"rstrip", str_rstrip, .params = {"chars"}, .positional = true},
	{"startswith", str_startswith, NULL, 1, {"prefix", "start", "end"}, true},
	{"endswith", str_endswith, NULL, 1, {"suffix", "start", "end"}, true},
	{"replace", str_replace, NULL, 2, {"old", "new", "count"}, true},
	{"upper", str_upper},
	{"lower", str_lower},
	{"title", str_title},
	{"capitalize", str_capitalize},
	{"swapcase", str_swapcase},
	{"join", str_join, NULL, 1, {"iterable"}, true},
	{"find", str_find, NULL, 1, {"sub", "start", "end"}, true},
	{"rfind", str_rfind, NULL, 1, {"sub", "start", "end"}, true},
	{"index", str_index, NULL, 1, {"sub", "start", "end"}, true},
	{"rindex", str_rindex, NULL, 1, {"sub", "start", "end"}, true},
	{"count", str_count, NULL, 1, {"sub", "start", "end"}, true},
	{"rsplit", str_rsplit, .params = {"sep", "maxsplit"}},
	{"splitlines", str_splitlines, .params = {"keepends"}},
	{"partition", str_partition, NULL, 1, {"sep"}, true},
	{"rpartition", str_rpartition, NULL, 1, {"sep"}, true},
	{"removeprefix", str_removeprefix, NULL, 1, {"prefix"}, true},
	{"removesuffix", str_removesuffix, NULL, 1, {"suffix"}, true},
	{"ljust", str_ljust, NULL, 1, {"width", "fillchar"}, true},
	{"rjust", str_rjust, NULL, 1, {"width", "fillchar"}, true},
	{"center", str_center, NULL, 1, {"width", "fillchar"}, true},
	{"zfill", str_zfill, NULL, 1, {"width"}, true},
	{"expandtabs", str_expandtabs, .params = {"tabsize"}},
	{"format", .raw = str_format},
};
const size_t str_methods_count = ARRAY_SIZE(str_methods);
