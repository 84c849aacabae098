#include "base/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

enum { SUGGEST_MAX = 3, NAME_MAX_LEN = 63, LIST_TEXT = 160 };

static void *member(void *to, size_t offset)
{
	return (char *)to + offset;
}

/* Reads the digits that begin the text as a number; *ret_end points behind them. -EINVAL: there is no digit. -ERANGE:
 * the number is too large. strtoull is not used, because it would also take signs and spaces. */
static int parse_number(const char *text, const char **ret_end, uint64_t *ret)
{
	uint64_t v = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -ERANGE;
	if (p == text)
		return -EINVAL;
	*ret_end = p;
	*ret = v;
	return 0;
}

int option_size(const char *text, uint64_t *ret)
{
	static const char suffixes[] = "KMGT";
	const char *end;
	uint64_t v;
	int r = parse_number(text, &end, &v);

	if (r < 0)
		return -EINVAL;
	if (*end) {
		const char *s = strchr(suffixes, *end >= 'a' ? *end - 'a' + 'A' : *end);

		if (!s)
			return -EINVAL;
		if (__builtin_mul_overflow(v, 1ull << (10 * (s - suffixes + 1)), &v))
			return -EINVAL;
		end++;
		/* 8GB and 8GiB mean the same as 8G */
		if (!strcmp(end, "B") || !strcmp(end, "iB"))
			end += strlen(end);
		if (*end)
			return -EINVAL;
	}
	*ret = v;
	return 0;
}

static int parse_memory(const char *text, struct option_memory *ret)
{
	struct option_memory m = {0};
	size_t len = strlen(text);
	bool percent = len && text[len - 1] == '%';

	if (percent || strchr(text, '.')) {
		char *end;

		if (text[0] != '.' && (text[0] < '0' || text[0] > '9'))
			return -EINVAL;
		if (strspn(text, "0123456789.") != len - (percent ? 1 : 0))
			return -EINVAL;
		m.share = strtod(text, &end);
		if (*end && strcmp(end, "%") != 0)
			return -EINVAL;
		if (percent)
			m.share /= 100;
		if (!isfinite(m.share) || m.share <= 0 || m.share > 1)
			return -ERANGE;
	} else {
		int r = option_size(text, &m.bytes);

		if (r < 0)
			return r;
		if (!m.bytes)
			return -ERANGE;
	}
	*ret = m;
	return 0;
}

static void join_choices(const char *const *choices, char *out, size_t size)
{
	size_t n = 0;

	out[0] = 0;
	for (size_t i = 0; choices[i] && n < size; i++) {
		const char *sep = !i ? "" : choices[i + 1] ? ", " : " or ";

		n += (size_t)snprintf(out + n, size - n, "%s%s", sep, choices[i]);
	}
}

struct size_text {
	char s[32];
};

/* Returns bytes as a user writes them ("16M"), in the largest unit that is exact. */
static struct size_text size_text(uint64_t bytes)
{
	static const char units[] = {0, 'K', 'M', 'G', 'T'};
	struct size_text t;
	size_t i = 0;

	for (; bytes && bytes % 1024 == 0 && i + 1 < sizeof(units); i++)
		bytes /= 1024;
	snprintf(t.s, sizeof(t.s), "%llu%c", (unsigned long long)bytes, units[i]);
	return t;
}

static void store_number(const struct option_def *d, uint64_t v, void *to)
{
	if (d->type == OPTION_NUMBER_32)
		*(uint32_t *)member(to, d->offset) = (uint32_t)v;
	else
		*(uint64_t *)member(to, d->offset) = v;
}

static int set_number(const struct option_def *d, const char *value, void *to, struct err *e)
{
	const char *end = "";
	uint64_t v = 0;
	int r;

	if (d->type == OPTION_SIZE) {
		r = option_size(value, &v);
	} else {
		r = parse_number(value, &end, &v);
		if (!r && *end)
			r = -EINVAL;
	}
	if (r == -EINVAL)
		return err_set(e, EINVAL, "--%s: \"%s\" is not a %s", d->name, value,
			       d->type == OPTION_SIZE ? "size such as 1048576, 512K or 16M"
						      : "whole number");
	if ((r < 0 || v < d->min || v > d->max) && d->type == OPTION_SIZE)
		return err_set(e, EINVAL, "--%s: %s is not between %s and %s", d->name, value,
			       size_text(d->min).s, size_text(d->max).s);
	if (r < 0 || v < d->min || v > d->max)
		return err_set(e, EINVAL, "--%s: %s is not between %llu and %llu", d->name, value,
			       (unsigned long long)d->min, (unsigned long long)d->max);
	if (d->multiple && v % d->multiple)
		return err_set(e, EINVAL, "--%s: %s is not a multiple of %llu", d->name, value,
			       (unsigned long long)d->multiple);
	store_number(d, v, to);
	return 0;
}

static int set_real(const struct option_def *d, const char *value, double *ret, struct err *e)
{
	uint64_t size;
	char *end;
	double v = strtod(value, &end);

	if (option_size(value, &size) == 0) {
		v = (double)size;
		end = (char *)value + strlen(value);
	}
	if (end == value || *end || !isfinite(v) || v < d->least || v > d->most)
		return err_set(e, EINVAL, "--%s: \"%s\" is not a number from %.15g to %.15g",
			       d->name, value, d->least, d->most);
	*ret = v;
	return 0;
}

static int set_value(const struct option_def *d, const char *value, void *to, struct err *e)
{
	char list[LIST_TEXT];
	int r = 0;

	switch (d->type) {
	case OPTION_FLAG: *(bool *)member(to, d->offset) = true; break;
	case OPTION_TEXT: *(const char **)member(to, d->offset) = value; break;
	case OPTION_NUMBER:
	case OPTION_NUMBER_32:
	case OPTION_SIZE: r = set_number(d, value, to, e); break;
	case OPTION_REAL: r = set_real(d, value, member(to, d->offset), e); break;
	case OPTION_CHOICE:
		for (unsigned i = 0;; i++) {
			if (!d->choices[i]) {
				join_choices(d->choices, list, sizeof(list));
				return err_set(e, EINVAL, "--%s: \"%s\" is none of %s", d->name,
					       value, list);
			}
			if (!strcmp(value, d->choices[i])) {
				*(unsigned *)member(to, d->offset) = i;
				break;
			}
		}
		break;
	case OPTION_MEMORY:
		r = parse_memory(value, member(to, d->offset));
		if (r == -ERANGE)
			return err_set(e, EINVAL, "--%s: %s is not a share above 0 and up to 100%%",
				       d->name, value);
		if (r < 0)
			return err_set(e, EINVAL,
				       "--%s: \"%s\" is neither bytes (8G) nor a share (0.6, 60%%)",
				       d->name, value);
		break;
	case OPTION_OWN: r = d->take(d, value, member(to, d->offset), e); break;
	}
	if (r == 0 && d->given)
		*(bool *)member(to, d->given) = true;
	return r;
}

/* Returns how few edits (insert, delete or change one letter, or exchange two neighbours) can turn a into b. Looks only
 * at the first NAME_MAX_LEN letters of each. */
static unsigned distance(const char *a, const char *b)
{
	unsigned rows[3][NAME_MAX_LEN + 1]; /* of i letters of a: row i % 3 */
	size_t na = strnlen(a, NAME_MAX_LEN), nb = strnlen(b, NAME_MAX_LEN);

	for (size_t j = 0; j <= nb; j++)
		rows[0][j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		unsigned *row = rows[i % 3];
		const unsigned *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			row[j] = MIN(MIN(before[j], row[j - 1]) + 1,
				     before[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = MIN(row[j], two_before[j - 2] + 1);
		}
	}
	return rows[na % 3][nb];
}

static int unknown_option(const struct option_def *table, size_t n, const char *name, struct err *e)
{
	const char *best = NULL;
	/* An edit for each three letters; with more it is another word. */
	unsigned best_distance = (unsigned)MIN(MAX(strlen(name) / 3, 1u), (size_t)SUGGEST_MAX) + 1;

	for (size_t i = 0; i < n; i++) {
		unsigned d = distance(name, table[i].name);

		/* three letters or more that begin an option's name mean that option */
		if (strlen(name) >= SUGGEST_MAX && !strncmp(name, table[i].name, strlen(name)))
			d = 0;
		if (d < best_distance && d < strlen(table[i].name)) {
			best = table[i].name;
			best_distance = d;
		}
	}
	if (best)
		return err_set(e, EINVAL, "unknown option --%s; did you mean --%s?", name, best);
	return err_set(e, EINVAL, "unknown option --%s; --help lists them", name);
}

static const struct option_def *find(const struct option_def *table, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(table[i].name, name))
			return &table[i];
	return NULL;
}

static int set_defaults(const struct option_def *table, size_t n, void *to, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		const struct option_def *d = &table[i];

		if (d->type == OPTION_NUMBER || d->type == OPTION_NUMBER_32 ||
		    d->type == OPTION_SIZE)
			store_number(d, d->initial, to);
		else if (d->type == OPTION_CHOICE)
			*(unsigned *)member(to, d->offset) = (unsigned)d->initial;
		else if (d->type == OPTION_REAL)
			*(double *)member(to, d->offset) = d->usual;
		else if (d->read_initial)
			r = d->take(d, d->initial_text, member(to, d->offset), e);
	}
	return r;
}

int option_table_parse(const struct option_def *table, size_t n, int argc, const char *const *argv,
		       void *to, struct err *e)
{
	int r = set_defaults(table, n, to, e);

	for (int i = 1; r == 0 && i < argc; i++) {
		const char *arg = argv[i], *equals, *value = NULL;
		const struct option_def *d;
		char name[NAME_MAX_LEN + 1];
		size_t len;

		if (!strcmp(arg, "-h"))
			arg = "--help";
		if (strncmp(arg, "--", 2) != 0 || !arg[2])
			return err_set(e, EINVAL,
				       "unexpected argument \"%s\"; --help lists the options", arg);
		arg += 2;
		equals = strchr(arg, '=');
		len = equals ? (size_t)(equals - arg) : strlen(arg);
		snprintf(name, sizeof(name), "%.*s", (int)MIN(len, sizeof(name) - 1), arg);
		d = len < sizeof(name) ? find(table, n, name) : NULL;
		if (!d)
			return unknown_option(table, n, name, e);
		if (equals)
			value = equals + 1;
		if (d->type == OPTION_FLAG && value)
			return err_set(e, EINVAL, "--%s takes no value", d->name);
		if (d->type != OPTION_FLAG && !value) {
			if (i + 1 >= argc)
				return err_set(e, EINVAL, "--%s needs a value: --%s %s", d->name,
					       d->name, d->argument);
			value = argv[++i];
		}
		r = set_value(d, value, to, e);
	}
	return r;
}

/* Writes the second line of an option's help: "(0 to 65535; default 8080)", or "" if there is nothing to show. */
static void describe(const struct option_def *d, char *out, size_t size)
{
	char list[LIST_TEXT] = "", initial[64] = "";

	if (d->type == OPTION_CHOICE) {
		join_choices(d->choices, list, sizeof(list));
		snprintf(initial, sizeof(initial), "%s", d->choices[d->initial]);
	} else if (d->type == OPTION_REAL) {
		snprintf(initial, sizeof(initial), "%.15g", d->usual);
	} else if (d->type == OPTION_SIZE) {
		snprintf(list, sizeof(list), "%s to %s", size_text(d->min).s, size_text(d->max).s);
		snprintf(initial, sizeof(initial), "%s", size_text(d->initial).s);
	} else if ((d->type == OPTION_NUMBER || d->type == OPTION_NUMBER_32) &&
		   d->max != UINT64_MAX) {
		snprintf(list, sizeof(list), "%llu to %llu", (unsigned long long)d->min,
			 (unsigned long long)d->max);
		snprintf(initial, sizeof(initial), "%llu", (unsigned long long)d->initial);
	}
	if (d->initial_text)
		snprintf(initial, sizeof(initial), "%s", d->initial_text);
	snprintf(out, size, "%s%s%s%s%s%s", list[0] || initial[0] ? "(" : "", list,
		 list[0] && initial[0] ? "; " : "", initial[0] ? "default " : "", initial,
		 list[0] || initial[0] ? ")" : "");
}

void option_table_help(const struct option_def *table, size_t n, FILE *out)
{
	for (size_t i = 0; i < n; i++) {
		const struct option_def *d = &table[i];
		char head[64], tail[LIST_TEXT + 96];

		snprintf(head, sizeof(head), "--%s%s%s", d->name, d->argument ? " " : "",
			 d->argument ? d->argument : "");
		describe(d, tail, sizeof(tail));
		fprintf(out, "  %-30s %s\n", head, d->text);
		if (tail[0])
			fprintf(out, "  %-30s %s\n", "", tail);
	}
}

int option_table_command(const struct option_def *table, size_t n, const char *usage, int argc,
			 char *const *argv, void *to, struct err *e)
{
	static const struct option_def help = {.name = "help",
					       .type = OPTION_FLAG,
					       .text = "print this and exit"};

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			printf("usage: tigon %s\n\n", usage);
			option_table_help(table, n, stdout);
			option_table_help(&help, 1, stdout);
			return -ECANCELED;
		}
	return option_table_parse(table, n, argc, (const char *const *)argv, to, e);
}
