#include "engine/checkpoint/formats/json_scan.h"

#include <errno.h>
#include <string.h>

void json_scan_init(struct json_scan *s, const char *text, size_t len)
{
	*s = (struct json_scan){.start = text, .at = text, .end = text + len};
}

size_t json_scan_offset(const struct json_scan *s)
{
	return (size_t)(s->at - s->start);
}

static void pass_space(struct json_scan *s)
{
	while (s->at < s->end &&
	       (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
		s->at++;
}

bool json_scan_is(struct json_scan *s, char c)
{
	pass_space(s);
	if (s->at == s->end || *s->at != c)
		return false;
	s->at++;
	return true;
}

bool json_scan_end(struct json_scan *s)
{
	pass_space(s);
	return s->at == s->end;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Scans an escape behind its backslash; *ret becomes the UTF-16 unit that the escape stands for. */
static int scan_escape(struct json_scan *s, unsigned *ret)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *p;

	if (s->at == s->end)
		return -EINVAL;
	if (*s->at == 'u') {
		unsigned v = 0;

		if (s->end - s->at < 5)
			return -EINVAL;
		for (int i = 1; i <= 4; i++) {
			int d = hex_digit(s->at[i]);

			if (d < 0)
				return -EINVAL;
			v = v * 16 + (unsigned)d;
		}
		s->at += 5;
		*ret = v;
		return 0;
	}
	p = *s->at ? strchr(from, *s->at) : NULL;
	if (!p)
		return -EINVAL;
	s->at++;
	*ret = (unsigned char)to[p - from];
	return 0;
}

int json_scan_string(struct json_scan *s, char *out, size_t size)
{
	size_t n = 0;

	if (!json_scan_is(s, '"'))
		return -EINVAL;
	for (;;) {
		unsigned c;
		int r;

		if (s->at == s->end || (unsigned char)*s->at < 0x20)
			return -EINVAL;
		c = (unsigned char)*s->at++;
		if (c == '"')
			break;
		if (c == '\\') {
			r = scan_escape(s, &c);
			if (r < 0)
				return r;
		}
		if (!out)
			continue;
		if (c < 0x20 || c > 0x7e)
			return -EINVAL;
		if (n + 1 >= size)
			return -ENAMETOOLONG;
		out[n++] = (char)c;
	}
	if (out)
		out[n] = 0;
	return 0;
}

static bool at_digit(const struct json_scan *s)
{
	return s->at < s->end && *s->at >= '0' && *s->at <= '9';
}

int json_scan_uint(struct json_scan *s, uint64_t *ret)
{
	uint64_t v = 0;

	pass_space(s);
	if (!at_digit(s))
		return -EINVAL;
	if (*s->at == '0') {
		s->at++;
	} else {
		while (at_digit(s)) {
			unsigned d = (unsigned)(*s->at - '0');

			if (v > (UINT64_MAX - d) / 10)
				return -ERANGE;
			v = v * 10 + d;
			s->at++;
		}
	}
	if (at_digit(s) || (s->at < s->end && (*s->at == '.' || *s->at == 'e' || *s->at == 'E')))
		return -EINVAL;
	*ret = v;
	return 0;
}

static int skip_digits(struct json_scan *s)
{
	if (!at_digit(s))
		return -EINVAL;
	while (at_digit(s))
		s->at++;
	return 0;
}

static int skip_number(struct json_scan *s)
{
	int r;

	if (*s->at == '-')
		s->at++;
	if (s->at < s->end && *s->at == '0') {
		s->at++;
		if (at_digit(s))
			return -EINVAL;
	} else {
		r = skip_digits(s);
		if (r < 0)
			return r;
	}
	if (s->at < s->end && *s->at == '.') {
		s->at++;
		r = skip_digits(s);
		if (r < 0)
			return r;
	}
	if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
		s->at++;
		if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
			s->at++;
		return skip_digits(s);
	}
	return 0;
}

static int skip_word(struct json_scan *s)
{
	static const char *const words[] = {"true", "false", "null"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		size_t n = strlen(words[i]);

		if ((size_t)(s->end - s->at) >= n && !memcmp(s->at, words[i], n)) {
			s->at += n;
			return 0;
		}
	}
	return -EINVAL;
}

static int skip_value(struct json_scan *s, int depth);

static int skip_members(struct json_scan *s, char close, int depth)
{
	int r;

	if (depth >= JSON_SCAN_DEPTH)
		return -EINVAL;
	if (json_scan_is(s, close))
		return 0;
	do {
		if (close == '}') {
			r = json_scan_string(s, NULL, 0);
			if (r < 0)
				return r;
			if (!json_scan_is(s, ':'))
				return -EINVAL;
		}
		r = skip_value(s, depth + 1);
		if (r < 0)
			return r;
	} while (json_scan_is(s, ','));
	return json_scan_is(s, close) ? 0 : -EINVAL;
}

static int skip_value(struct json_scan *s, int depth)
{
	pass_space(s);
	if (s->at == s->end)
		return -EINVAL;
	switch (*s->at) {
	case '"': return json_scan_string(s, NULL, 0);
	case '{': s->at++; return skip_members(s, '}', depth);
	case '[': s->at++; return skip_members(s, ']', depth);
	default: return *s->at == '-' || at_digit(s) ? skip_number(s) : skip_word(s);
	}
}

int json_scan_skip(struct json_scan *s)
{
	return skip_value(s, 0);
}
