#include "protocol/openai/fields.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/problem.h"
#include "protocol/word.h"

/* A byte of a body can cost nearly a hundred bytes in the parsed tree ("[{},{},{}..."), and every level of nesting
 * costs a stack frame in each recursive function that walks the tree. With DEPTH_MAX and FIELDS_VALUES_MAX a tree takes
 * some hundred megabytes at most, beside the bytes of its strings, and is parsed within a second. Real requests stay
 * far below the bounds. */
enum {
	DEPTH_MAX = 64,
	SHOWN_MAX = 48,	  /* most bytes of a string that an error repeats */
	PIECE = 64 << 10, /* fields_check_bounds: bytes between two calls of pace_gives_up */
};

/* The text of the error when pace_gives_up ends the reading. fields_load knows by it that the JSON is not at fault. */
static const char given_up[] = "the text is not read to its end";

int fields_check_bounds(const char *text, size_t len, const struct pace *pace, size_t *values,
			struct err *e)
{
	size_t depth = 0, n = 1, look = PIECE;
	bool in_string = false, opened = false;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		bool opens = c == '[' || c == '{', closes = c == ']' || c == '}';

		if (i >= look) {
			if (pace_gives_up(pace))
				return err_set(e, ECANCELED, "%s", given_up);
			look = i + PIECE;
		}
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
			continue;
		}
		if (c == ' ' || c == '\t' || c == '\r' || c == '\n')
			continue;
		/* A container has a value for each comma, and one more unless it is empty. */
		n += c == ',' || (opened && !closes);
		opened = opens;
		in_string = c == '"';
		depth += opens;
		depth -= closes && depth;
		if (depth > DEPTH_MAX)
			return err_set(e, EINVAL, "the JSON is nested deeper than %d levels",
				       DEPTH_MAX);
		if (n > *values)
			return err_set(e, EINVAL, "the JSON has more than %d values",
				       FIELDS_VALUES_MAX);
	}
	*values -= n;
	return 0;
}

static const char *kind_of(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "an array";
	case JSON_STRING: return "a string";
	case JSON_INTEGER:
	case JSON_REAL: return "a number";
	case JSON_TRUE: return "true";
	case JSON_FALSE: return "false";
	default: return "null";
	}
}

/* Returns whether the whole number with these n digits and this sign is beyond int64_t. JSON has no leading zeros. */
static bool too_big(const char *digits, size_t n, bool negative)
{
	static const char max[] = "9223372036854775807", min[] = "9223372036854775808";
	size_t most = sizeof(max) - 1;

	return n > most || (n == most && memcmp(digits, negative ? min : max, n) > 0);
}

/* Copies the text, which ends with a NUL. Behind each whole number that is too big it adds "e0", which makes a real number
 * of it. written: in place of a number beyond double stands the largest double. */
static void widen(const char *text, size_t len, bool written, struct buf *out)
{
	size_t copied = 0;

	for (size_t i = 0; i < len;) {
		size_t begin = i;
		bool real;

		if (text[i] == '"') {
			for (i++; i < len && text[i] != '"'; i++)
				i += text[i] == '\\';
			i++;
			continue;
		}
		while (i < len && text[i] >= '0' && text[i] <= '9')
			i++;
		if (i == begin) {
			i++;
			continue;
		}
		real = i < len && (text[i] == '.' || text[i] == 'e' || text[i] == 'E');
		while (real && i < len && strchr("0123456789.eE+-", text[i]) && text[i])
			i++;
		if (written && isinf(strtod(text + begin, NULL))) {
			buf_append(out, text + copied, begin - copied);
			buf_puts(out, "1.7976931348623157e308");
			copied = i;
		} else if (!real &&
			   too_big(text + begin, i - begin, begin && text[begin - 1] == '-')) {
			buf_append(out, text + copied, i - copied);
			buf_puts(out, "e0");
			copied = i;
		}
	}
	buf_append(out, text + copied, len - copied);
}

/* A text that Jansson reads piece by piece. */
struct reading {
	const char *text;
	size_t len, at;
	const struct pace *pace;
	bool given_up;
};

/* Called by Jansson, which wants the next kilobyte or so. */
static size_t read_more(void *to, size_t most, void *arg)
{
	struct reading *r = arg;
	size_t n = MIN(most, r->len - r->at);

	r->given_up = pace_gives_up(r->pace);
	if (r->given_up)
		return (size_t)-1;
	memcpy(to, r->text + r->at, n);
	r->at += n;
	return n;
}

static json_t *parse(const char *text, size_t len, size_t flags, const struct pace *pace,
		     json_error_t *error)
{
	struct reading r = {.text = text, .len = len, .pace = pace};
	json_t *root = json_load_callback(read_more, &r, flags, error);

	if (!root && r.given_up)
		snprintf(error->text, sizeof(error->text), "%s", given_up);
	return root;
}

static json_t *parse_wide(const char *text, size_t len, size_t flags, bool written,
			  const struct pace *pace, json_error_t *error)
{
	json_error_t first;
	json_t *root = parse(text, len, flags, pace, &first);
	struct buf wide;

	if (!root && first.text[0] && json_error_code(&first) == json_error_numeric_overflow) {
		buf_init(&wide, SIZE_MAX / 2);
		widen(text, len, written, &wide);
		/* If widen runs out of memory, the first error stays: a number is too big. */
		if (!wide.failed)
			root = parse(buf_str(&wide), wide.len, flags, pace, &first);
		buf_release(&wide);
	}
	if (!root && error)
		*error = first;
	return root;
}

json_t *fields_parse(const char *text, size_t len, size_t flags, const struct pace *pace,
		     json_error_t *error)
{
	return parse_wide(text, len, flags, false, pace, error);
}

json_t *fields_parse_written(const char *text, size_t len, size_t flags)
{
	return parse_wide(text, len, flags, true, NULL, NULL);
}

int fields_load(const char *body, size_t len, const struct pace *pace, json_t **ret, struct err *e)
{
	json_error_t error;
	size_t values = FIELDS_VALUES_MAX;
	json_t *root;
	int r;

	r = fields_check_bounds(body, len, pace, &values, e);
	if (r < 0)
		return r;
	if (!len)
		return err_set(e, EINVAL, "the request body is empty, but must be a JSON object");
	/* A model may generate a NUL, and clients send its text back. */
	root = fields_parse(body, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL,
			    pace, &error);
	if (!root && !error.text[0]) /* without memory Jansson has no text for the error */
		return err_no_memory(e);
	if (!root && !strcmp(error.text, given_up))
		return err_set(e, ECANCELED, "%s", given_up);
	if (!root)
		return err_set(e, EINVAL,
			       "the request body is not valid JSON: %s (line %d, column %d)",
			       error.text, error.line, error.column);
	if (!json_is_object(root)) {
		r = err_set(e, EINVAL, "the request body is %s, but must be a JSON object",
			    kind_of(root));
		json_decref(root);
		return r;
	}
	*ret = root;
	return 0;
}

void field_path(char out[ERR_PARAM_MAX], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out, ERR_PARAM_MAX, fmt, ap);
	va_end(ap);
}

json_t *field_get(const json_t *object, const char *name)
{
	json_t *v = json_object_get(object, name);

	return json_is_null(v) ? NULL : v;
}

/* Writes a value as an error repeats it: a number, a string cut to SHOWN_MAX bytes, or the words of kind_of. */
static void show(const json_t *v, char out[SHOWN_MAX + 8])
{
	size_t n = SHOWN_MAX + 8, len;
	const char *s;

	switch (json_typeof(v)) {
	case JSON_INTEGER: snprintf(out, n, "%" JSON_INTEGER_FORMAT, json_integer_value(v)); break;
	case JSON_REAL: snprintf(out, n, "%.9g", json_real_value(v)); break;
	case JSON_STRING:
		s = word_of(v);
		if (!s) {
			snprintf(out, n, "a string with a NUL");
			break;
		}
		len = strlen(s);
		if (len <= SHOWN_MAX) {
			snprintf(out, n, "\"%s\"", s);
			break;
		}
		for (len = SHOWN_MAX; len && (s[len] & 0xc0) == 0x80;)
			len--; /* not inside a character */
		snprintf(out, n, "\"%.*s...\"", (int)len, s);
		break;
	default: snprintf(out, n, "%s", kind_of(v));
	}
}

int fields_copy(const json_t *from, json_t *to, const char *const *names, size_t n, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (field_get(from, names[i]))
			r = field_set_new(to, names[i], json_incref(field_get(from, names[i])), e);
	return r;
}

int field_set_new(json_t *object, const char *name, json_t *value, struct err *e)
{
	return json_object_set_new_nocheck(object, name, value) < 0 ? err_no_memory(e) : 0;
}

int field_wrong(struct err *e, const char *where, const char *name, const json_t *seen,
		const char *want)
{
	char path[ERR_PARAM_MAX], text[SHOWN_MAX + 8];

	field_path(path, "%s%s", where, name);
	if (!seen)
		return err_param(e, EINVAL, path, "%s is missing: it must be %s", path, want);
	show(seen, text);
	return err_param(e, EINVAL, path, "%s is %s, but must be %s", path, text, want);
}

int field_bool(const json_t *object, const char *where, const char *name, bool *ret, struct err *e)
{
	const json_t *v = field_get(object, name);

	if (!v)
		return 0;
	if (!json_is_boolean(v))
		return field_wrong(e, where, name, v, "true or false");
	*ret = json_is_true(v);
	return 0;
}

static bool whole_number(const json_t *v, int64_t *ret)
{
	double d;

	if (json_is_integer(v)) {
		*ret = json_integer_value(v);
		return true;
	}
	if (!json_is_real(v))
		return false;
	d = json_real_value(v);
	/* 2^53: beyond it doubles skip whole numbers */
	if (d != trunc(d) || fabs(d) > 9007199254740992.0)
		return false;
	*ret = (int64_t)d;
	return true;
}

int field_int(const json_t *object, const char *where, const char *name, int64_t min, int64_t max,
	      int64_t *ret, struct err *e)
{
	const json_t *v = field_get(object, name);
	char want[96];
	int64_t i;

	if (!v)
		return 0;
	if (!whole_number(v, &i) || i < min || i > max) {
		snprintf(want, sizeof(want), "a whole number from %" PRId64 " to %" PRId64, min,
			 max);
		return field_wrong(e, where, name, v, want);
	}
	*ret = i;
	return 0;
}

int field_number(const json_t *object, const char *where, const char *name, double min, double max,
		 double *ret, struct err *e)
{
	const json_t *v = field_get(object, name);
	char want[96];
	double d;

	if (!v)
		return 0;
	d = json_number_value(v);
	if (!json_is_number(v) || !(d >= min && d <= max)) {
		snprintf(want, sizeof(want), "a number from %g to %g", min, max);
		return field_wrong(e, where, name, v, want);
	}
	*ret = d;
	return 0;
}

bool field_asks_nothing(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT: return json_object_size(v) == 0;
	case JSON_ARRAY: return json_array_size(v) == 0;
	case JSON_STRING: return json_string_length(v) == 0;
	case JSON_INTEGER: return json_integer_value(v) == 0;
	case JSON_REAL: return json_real_value(v) == 0;
	case JSON_TRUE: return false;
	default: return true;
	}
}

bool field_is(const json_t *v, const char *text)
{
	const char *word = word_of(v);

	return word && !strcmp(word, text);
}

/* Returns the number of a value among words; that of the NULL behind them: it is none. */
static size_t word_number(const json_t *v, const char *const *words)
{
	size_t i = 0;

	while (words[i] && !field_is(v, words[i]))
		i++;
	return i;
}

bool field_is_one_of(const json_t *v, const char *const *words)
{
	return words[word_number(v, words)];
}

int field_word(const json_t *object, const char *where, const char *name, const char *const *words,
	       const char *want, size_t *ret, struct err *e)
{
	const json_t *v = field_get(object, name);
	const size_t number = word_number(v, words);

	if (!v)
		return 0;
	if (!words[number])
		return field_wrong(e, where, name, v, want);
	*ret = number;
	return 0;
}

int field_refuse(struct err *e, const char *where, const struct refused_field *field)
{
	char path[ERR_PARAM_MAX];

	field_path(path, "%s%s", where, field->name);
	return err_param(e, PROBLEM_UNSUPPORTED, path, "%s is not supported: %s", path, field->why);
}

int fields_refuse(const json_t *object, const char *where, const struct refused_field *fields,
		  size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		const json_t *v = field_get(object, fields[i].name);

		if (v && !field_asks_nothing(v))
			return field_refuse(e, where, &fields[i]);
	}
	return 0;
}

int field_string(const json_t *object, const char *where, const char *name, const json_t **ret,
		 struct err *e)
{
	const json_t *v = field_get(object, name);

	if (!v)
		return 0;
	if (!json_is_string(v))
		return field_wrong(e, where, name, v, "a string");
	*ret = v;
	return 0;
}

int field_needed(const json_t *object, const char *where, const char *name, const json_t **ret,
		 struct err *e)
{
	*ret = NULL;
	if (!field_get(object, name))
		return field_wrong(e, where, name, NULL, "a string");
	return field_string(object, where, name, ret, e);
}

int field_filled(const json_t *object, const char *where, const char *name, const json_t **ret,
		 struct err *e)
{
	int r;

	*ret = NULL;
	r = field_string(object, where, name, ret, e);
	if (r == 0 && !json_string_length(*ret))
		return field_wrong(e, where, name, *ret, "a string that is not empty");
	return r;
}

int field_copy_string(const json_t *object, const char *where, const char *name, json_t *to,
		      const char *to_name, struct err *e)
{
	const json_t *v = NULL;
	int r = field_string(object, where, name, &v, e);

	if (r < 0 || !v)
		return r;
	return field_set_new(to, to_name, json_incref((json_t *)v), e);
}

int field_ids(const json_t *array, const char *path, uint32_t vocab, size_t max, struct ids *ret,
	      struct err *e)
{
	size_t n = json_array_size(array);
	char name[32], want[64];
	int64_t id;

	if (!json_is_array(array))
		return field_wrong(e, path, "", array, "an array of token ids");
	if (n > max)
		return err_param(e, EINVAL, path, "%s has %zu token ids, but may have at most %zu",
				 path, n, max);
	if (ids_reserve(ret, n) < 0)
		return err_no_memory(e);
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(array, i);

		if (!whole_number(v, &id) || id < 0 || id >= vocab || id > INT32_MAX) {
			snprintf(name, sizeof(name), "[%zu]", i);
			snprintf(want, sizeof(want),
				 "a token id of the vocabulary, from 0 to %" PRIu32,
				 vocab ? vocab - 1 : 0);
			return field_wrong(e, path, name, v, want);
		}
		ret->v[ret->len++] = (int32_t)id;
	}
	return 0;
}
