#include "daemon/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/plan.h"

enum { SUGGEST_MAX = 3, NAME_MAX_LEN = 63 };

static const char *const dtypes[] = {"float32", "bfloat16", NULL};
static const char *const kernels[] = {"auto", "generic", "x86", "nvidia", NULL};
static const char *const levels[] = {"error", "warning", "info", "debug", NULL};

static const char *const switches[] = {[OPTION_ON] = "on", [OPTION_OFF] = "off", NULL};

#define AT(member) offsetof(struct options, member)

/* clang-format off: an option is one paragraph. */
static const struct option_def table[] = {
	{.name = "model",
	 .argument = "DIR",
	 .type = OPTION_TEXT,
	 .offset = AT(model),
	 .text = "the model: config.json, tokenizer.json and *.safetensors"},
	{.name = "tokenizer",
	 .argument = "DIR",
	 .type = OPTION_TEXT,
	 .offset = AT(tokenizer),
	 .initial_text = "the model's",
	 .text = "where tokenizer.json and the chat template are"},
	{.name = "served-model-name",
	 .argument = "NAME",
	 .type = OPTION_TEXT,
	 .offset = AT(served_model_name),
	 .initial_text = "the base name of --model",
	 .text = "the name that clients use"},
	{.name = "host",
	 .argument = "ADDRESS",
	 .type = OPTION_TEXT,
	 .offset = AT(host),
	 .initial_text = "127.0.0.1",
	 .text = "address or name to listen on"},
	{.name = "port",
	 .argument = "N",
	 .type = OPTION_NUMBER,
	 .offset = AT(port),
	 .max = 65535,
	 .initial = 8080,
	 .text = "TCP port to listen on; 0 takes a free one and logs it"},
	{.name = "dtype",
	 .argument = "TYPE",
	 .type = OPTION_CHOICE,
	 .offset = AT(dtype),
	 .choices = dtypes,
	 .initial = 1,
	 .text = "number format of weights, KV cache and GEMM inputs"},
	{.name = "max-model-len",
	 .argument = "TOKENS",
	 .type = OPTION_NUMBER,
	 .offset = AT(max_model_len),
	 .min = 2,
	 .max = 1u << 24,
	 .initial_text = "the model's",
	 .text = "longest sequence, prompt and answer together"},
	{.name = "max-num-seqs",
	 .argument = "N",
	 .type = OPTION_NUMBER,
	 .offset = AT(max_num_seqs),
	 .min = 1,
	 .max = 4096,
	 .initial = 64,
	 .text = "sequences that run at the same time"},
	{.name = "max-batched-tokens",
	 .argument = "TOKENS",
	 .type = OPTION_NUMBER,
	 .offset = AT(max_batched_tokens),
	 .min = CHUNK_TOKENS,
	 .max = 1u << 20,
	 .initial = 2048,
	 .text = "prompt tokens computed in one step; at least one page"},
	{.name = "page-size",
	 .argument = "TOKENS",
	 .type = OPTION_NUMBER,
	 .offset = AT(page_size),
	 .min = CHUNK_TOKENS,
	 .max = 4096,
	 .initial = 64,
	 .multiple = CHUNK_TOKENS,
	 .text = "tokens in a page of the KV cache, a multiple of 64"},
	{.name = "device",
	 .argument = "WHICH",
	 .type = OPTION_TEXT,
	 .offset = AT(device),
	 .initial_text = "the first GPU, else the first device",
	 .text = "OpenCL device: its number or a part of its name"},
	{.name = "kernels",
	 .argument = "VARIANT",
	 .type = OPTION_CHOICE,
	 .offset = AT(kernels),
	 .choices = kernels,
	 .text = "kernel variant; auto takes what the device can do"},
	{.name = "tuning",
	 .argument = "FILE",
	 .type = OPTION_TEXT,
	 .offset = AT(tuning),
	 .initial_text = "what is built in",
	 .text = "a table of tigon tune, which cuts kernels as is best on this device"},
	{.name = "batch-invariant",
	 .argument = "SWITCH",
	 .type = OPTION_CHOICE,
	 .offset = AT(batch_invariant),
	 .choices = switches,
	 .text = "same bits in every batch; off: tables may name kernels that change them"},
	{.name = "program-cache",
	 .argument = "DIR",
	 .type = OPTION_TEXT,
	 .offset = AT(program_cache),
	 .initial_text = "tigon below the user's cache directory",
	 .text = "where compiled programs are kept; an empty DIR keeps none"},
	{.name = "device-memory",
	 .argument = "BYTES|SHARE",
	 .type = OPTION_MEMORY,
	 .offset = AT(device_memory),
	 .initial_text = "90%",
	 .text = "memory to use on the device: 8G, or a share such as 0.6 or 60%"},
	{.name = "prefix-cache",
	 .argument = "SWITCH",
	 .type = OPTION_CHOICE,
	 .offset = AT(prefix_cache),
	 .choices = switches,
	 .text = "remember what was computed, for prompts that begin like it"},
	{.name = "cache-memory",
	 .argument = "BYTES|SHARE",
	 .type = OPTION_MEMORY,
	 .offset = AT(cache_memory),
	 .initial_text = "on a GPU what the model leaves, on a CPU a part of it",
	 .text = "KV pages and states, running and cached: 4G, or a share of what the model "
		 "leaves"},
	{.name = "host-cache-memory",
	 .argument = "BYTES",
	 .type = OPTION_SIZE,
	 .offset = AT(host_cache_memory),
	 .max = UINT64_C(1) << 62,
	 .initial_text = "none",
	 .text = "host memory for what is evicted from the device: 8G"},
	{.name = "cache-dir",
	 .argument = "DIR",
	 .type = OPTION_TEXT,
	 .offset = AT(cache_dir),
	 .initial_text = "none",
	 .text = "keep the prefix cache on disk as well, across restarts"},
	{.name = "cache-disk",
	 .argument = "BYTES",
	 .type = OPTION_SIZE,
	 .offset = AT(cache_disk),
	 .max = UINT64_C(1) << 62,
	 .initial_text = "no limit",
	 .text = "the most that files in --cache-dir take together: 100G"},
	{.name = "record",
	 .argument = "FILE",
	 .type = OPTION_TEXT,
	 .offset = AT(record),
	 .initial_text = "none",
	 .text = "write every call of the scheduler, prompts included, for tigon simulate --replay"},
	{.name = "cache-decoded",
	 .argument = "SWITCH",
	 .type = OPTION_CHOICE,
	 .offset = AT(cache_decoded),
	 .choices = switches,
	 .text = "remember generated tokens as well; off: only what prefills computed"},
	{.name = "max-queued-requests",
	 .argument = "N",
	 .type = OPTION_NUMBER,
	 .offset = AT(max_queued_requests),
	 .min = 1,
	 .max = 1u << 20,
	 .initial = 1024,
	 .text = "requests that wait for their first token; further ones get status 429"},
	{.name = "max-body",
	 .argument = "BYTES",
	 .type = OPTION_SIZE,
	 .offset = AT(max_body),
	 .min = 1024,
	 .max = 1ull << 30,
	 .initial = 16u << 20,
	 .text = "largest request body; a larger one gets status 413"},
	{.name = "synthetic-weights",
	 .argument = "SEED",
	 .type = OPTION_NUMBER,
	 .offset = AT(synthetic_seed),
	 .given = AT(synthetic),
	 .max = UINT64_MAX,
	 .initial_text = "off",
	 .text = "random weights from SEED in place of the model's files"},
	{.name = "dump-activations",
	 .argument = "FILE",
	 .type = OPTION_TEXT,
	 .offset = AT(dump_activations),
	 .initial_text = "off",
	 .text = "write every layer's output of each step to FILE (safetensors)"},
	{.name = "log-level",
	 .argument = "LEVEL",
	 .type = OPTION_CHOICE,
	 .offset = AT(log_level),
	 .choices = levels,
	 .initial = 2,
	 .text = "how much is logged"},
	{.name = "list-devices",
	 .type = OPTION_FLAG,
	 .offset = AT(list_devices),
	 .text = "print the OpenCL devices and exit"},
	{.name = "version",
	 .type = OPTION_FLAG,
	 .offset = AT(version),
	 .text = "print the version and exit"},
	{.name = "help", .type = OPTION_FLAG, .offset = AT(help), .text = "print this and exit"},
};
/* clang-format on */

const struct option_def *options_table(size_t *n)
{
	*n = ARRAY_SIZE(table);
	return table;
}

static void *member(struct options *o, size_t offset)
{
	return (char *)o + offset;
}

/* Decimal digits only: strtoull alone would take signs, spaces and other bases. */
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

int options_size(const char *text, uint64_t *ret)
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
		/* 8GB and 8GiB mean the same as 8G. */
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
		int r = options_size(text, &m.bytes);

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

/* "16M": bytes as they are given, in the largest unit that is exact. */
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

static int set_number(const struct option_def *d, const char *value, struct options *o,
		      struct err *e)
{
	const char *end = "";
	uint64_t v = 0;
	int r;

	if (d->type == OPTION_SIZE) {
		r = options_size(value, &v);
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
	*(uint64_t *)member(o, d->offset) = v;
	return 0;
}

static int set_value(const struct option_def *d, const char *value, struct options *o,
		     struct err *e)
{
	char list[128];
	int r;

	switch (d->type) {
	case OPTION_FLAG: *(bool *)member(o, d->offset) = true; break;
	case OPTION_TEXT: *(const char **)member(o, d->offset) = value; break;
	case OPTION_NUMBER:
	case OPTION_SIZE:
		r = set_number(d, value, o, e);
		if (r < 0)
			return r;
		break;
	case OPTION_CHOICE:
		for (unsigned i = 0;; i++) {
			if (!d->choices[i]) {
				join_choices(d->choices, list, sizeof(list));
				return err_set(e, EINVAL, "--%s: \"%s\" is none of %s", d->name,
					       value, list);
			}
			if (!strcmp(value, d->choices[i])) {
				*(unsigned *)member(o, d->offset) = i;
				break;
			}
		}
		break;
	case OPTION_MEMORY:
		r = parse_memory(value, member(o, d->offset));
		if (r == -ERANGE)
			return err_set(e, EINVAL, "--%s: %s is not a share above 0 and up to 100%%",
				       d->name, value);
		if (r < 0)
			return err_set(e, EINVAL,
				       "--%s: \"%s\" is neither bytes (8G) nor a share (0.6, 60%%)",
				       d->name, value);
		break;
	}
	if (d->given)
		*(bool *)member(o, d->given) = true;
	return 0;
}

/* Edits (insert, delete, change one letter) that turn a into b; NAME_MAX_LEN letters at most. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[NAME_MAX_LEN + 1];
	size_t na = strnlen(a, NAME_MAX_LEN), nb = strnlen(b, NAME_MAX_LEN);

	for (size_t j = 0; j <= nb; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			unsigned change = diagonal + (a[i - 1] != b[j - 1]);
			unsigned step = MIN(row[j], row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = MIN(change, step);
		}
	}
	return row[nb];
}

static int unknown_option(const char *name, struct err *e)
{
	const char *best = NULL;
	unsigned best_distance = SUGGEST_MAX + 1;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		unsigned d = distance(name, table[i].name);

		/* The beginning of a name is as near as can be. */
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

static const struct option_def *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (!strcmp(table[i].name, name))
			return &table[i];
	return NULL;
}

static int check_together(const struct options *o, struct err *e)
{
	if (o->help || o->version || o->list_devices)
		return 0;
	if (!o->model || !o->model[0])
		return err_set(e, EINVAL, "--model DIR is required; --help lists the options");
	if (o->served_model_name && !o->served_model_name[0])
		return err_set(e, EINVAL, "--served-model-name: the name is empty");
	if (o->cache_dir && !o->cache_dir[0])
		return err_set(e, EINVAL, "--cache-dir: the name is empty");
	if (o->max_batched_tokens < o->page_size)
		return err_set(
			e, EINVAL,
			"--max-batched-tokens: %llu is less than one page (--page-size %llu)",
			(unsigned long long)o->max_batched_tokens,
			(unsigned long long)o->page_size);
	return 0;
}

int options_parse(int argc, const char *const *argv, struct options *ret, struct err *e)
{
	struct options o = {.host = "127.0.0.1"};
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const struct option_def *d = &table[i];

		if (d->type == OPTION_NUMBER || d->type == OPTION_SIZE)
			*(uint64_t *)member(&o, d->offset) = d->initial;
		else if (d->type == OPTION_CHOICE)
			*(unsigned *)member(&o, d->offset) = (unsigned)d->initial;
	}
	for (int i = 1; i < argc; i++) {
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
		d = len < sizeof(name) ? find(name) : NULL;
		if (!d)
			return unknown_option(name, e);
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
		r = set_value(d, value, &o, e);
		if (r < 0)
			return r;
	}
	r = check_together(&o, e);
	if (r < 0)
		return r;
	*ret = o;
	return 0;
}

/* "(0 to 65535, default 8080)" for the end of a help line. */
static void describe(const struct option_def *d, char *out, size_t size)
{
	char list[128] = "", initial[64] = "";

	if (d->type == OPTION_CHOICE) {
		join_choices(d->choices, list, sizeof(list));
		snprintf(initial, sizeof(initial), "%s", d->choices[d->initial]);
	} else if (d->type == OPTION_SIZE) {
		snprintf(list, sizeof(list), "%s to %s", size_text(d->min).s, size_text(d->max).s);
		snprintf(initial, sizeof(initial), "%s", size_text(d->initial).s);
	} else if (d->type == OPTION_NUMBER && d->max != UINT64_MAX) {
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

void options_help(FILE *out)
{
	fprintf(out, "usage: tigond --model DIR [--name value ...]\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const struct option_def *d = &table[i];
		char head[64], tail[256];

		snprintf(head, sizeof(head), "--%s%s%s", d->name, d->argument ? " " : "",
			 d->argument ? d->argument : "");
		describe(d, tail, sizeof(tail));
		fprintf(out, "  %-30s %s\n", head, d->text);
		if (tail[0])
			fprintf(out, "  %-30s %s\n", "", tail);
	}
}
