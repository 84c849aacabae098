#include "daemon/cli/tune/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/program_cache.h"

enum { SECONDS_MAX = 1000000, SWITCH_LETTER = 'B' };

static const struct option_text {
	const char *name, *argument, *text;
	char letter;
} option_texts[] = {
	{"model", "DIR", "config.json, and the weights unless they are synthetic", 'm'},
	{"synthetic-weights", "SEED", "random weights made from this seed", 's'},
	{"device", "WHICH", "as of tigond", 'd'},
	{"kernels", "NAME", "auto, generic, x86 or nvidia (auto)", 'k'},
	{"dtype", "TYPE", "float32 or bfloat16 (bfloat16)", 't'},
	{"program-cache", "DIR", "where compiled kernels are kept; as of tigond", 'c'},
	{"out", "FILE", "the table to write (standard output)", 'o'},
	{"family", NULL, "rows for all devices with as many compute units", 'f'},
	{"budget", "SECONDS", "no cut is begun after these (3600)", 'b'},
	{"limit", "SECONDS", "a cut whose process takes longer is dropped (600)", 'l'},
	{"largest", "N", "prompts of at most so many tokens, from 64 (2048)", 'x'},
	{"batch-invariant", "SWITCH", "on: cuts that change bits are dropped; off: marked (on)",
	 SWITCH_LETTER},
	{"cut", "CUT", "try this one, \"blocks=4 ahead=2048\", in place of the program's own list",
	 'C'},
	{"measure", "CUT", "measure one cut, in this process, and print all its rows", 'M'},
	{"seconds", "N", "for --measure: how long, once the model is open (60)", 'n'},
	{"help", NULL, "", 'h'},
};

static void print_help(void)
{
	printf("usage: tigon tune --model DIR [--name value ...]\n");
	for (size_t i = 0; i < ARRAY_SIZE(option_texts); i++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s %s", option_texts[i].name,
			 option_texts[i].argument ? option_texts[i].argument : "");
		printf("  %-27s%s\n", left, option_texts[i].text);
	}
}

static int parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *ret)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] < '0' || text[0] > '9' || v < least || v > most)
		return -EINVAL;
	*ret = v;
	return 0;
}

static int parse_u32(const char *text, uint64_t least, uint64_t most, uint32_t *ret)
{
	uint64_t v = 0;
	int r = parse_number(text, least, most, &v);

	if (r == 0)
		*ret = (uint32_t)v;
	return r;
}

/* Which of names[n]; -EINVAL. */
static int parse_name(const char *text, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(text, names[i]))
			return i;
	return -EINVAL;
}

static int take_cut(struct tune_options *o, const char *text)
{
	struct tuning_cut cut;

	if (o->n_cuts == TUNE_CUTS_MAX || tuning_parse_cut(text, TUNING_NONE, &cut, NULL) < 0)
		return -EINVAL;
	o->cuts[o->n_cuts++] = text;
	return 0;
}

/* -EINVAL: no value for this option. */
static int take_option(struct tune_options *o, char letter, const char *value)
{
	static const char *const dtypes[] = {"float32", "bfloat16"}, *const switches[] = {"on",
											  "off"};
	static const char *const kernels[] = {"auto", "generic", "x86", "nvidia"};
	struct tuning_cut cut;
	int choice = 0;

	switch (letter) {
	case 'm': o->engine.model_dir = value; break;
	case 's':
		o->engine.synthetic = true;
		return parse_number(value, 0, UINT64_MAX, &o->engine.synthetic_seed);
	case 'd': o->engine.device = value; break;
	case 'k':
		choice = parse_name(value, kernels, ARRAY_SIZE(kernels));
		o->engine.kernels = choice < 0 ? ENGINE_KERNELS_AUTO : (enum engine_kernels)choice;
		break;
	case 't':
		choice = parse_name(value, dtypes, ARRAY_SIZE(dtypes));
		o->engine.dtype = choice < 0 ? ENGINE_BFLOAT16 : (enum engine_dtype)choice;
		break;
	case 'c': o->engine.program_cache = value; break;
	case 'o': o->out = value; break;
	case 'f': o->family = true; break;
	case 'b': return parse_u32(value, 1, SECONDS_MAX, &o->budget);
	case 'l': return parse_u32(value, 1, SECONDS_MAX, &o->limit);
	case 'x': return parse_u32(value, 64, 2048, &o->largest);
	case SWITCH_LETTER:
		choice = parse_name(value, switches, ARRAY_SIZE(switches));
		o->engine.tuning.any_bits = choice > 0;
		break;
	case 'C': return take_cut(o, value);
	case 'M': o->measure = value; return tuning_parse_cut(value, TUNING_NONE, &cut, NULL);
	case 'n': return parse_u32(value, 1, SECONDS_MAX, &o->seconds);
	}
	return choice < 0 ? choice : 0;
}

int tune_options_parse(int argc, char **argv, struct tune_options *o, struct err *e)
{
	struct option table[ARRAY_SIZE(option_texts) + 1] = {0};
	int c, at = 0;

	*o = (struct tune_options){.engine = {.dtype = ENGINE_BFLOAT16, .profile = true},
				   .budget = 3600,
				   .limit = 600,
				   .largest = 2048,
				   .seconds = 60};
	for (size_t i = 0; i < ARRAY_SIZE(option_texts); i++)
		table[i] =
			(struct option){option_texts[i].name,
					option_texts[i].argument ? required_argument : no_argument,
					NULL, option_texts[i].letter};
	optind = 1;
	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:", table, &at)) != -1) {
		if (c == 'h') {
			print_help();
			return -ECANCELED;
		}
		if (c == ':')
			return err_set(e, EINVAL, "%s needs a value", argv[optind - 1]);
		if (c == '?')
			return err_set(e, EINVAL, "%s is not an option of tune", argv[optind - 1]);
		if (take_option(o, (char)c, optarg) < 0)
			return err_set(e, EINVAL, "--%s: \"%s\" is not a value for it",
				       table[at].name, optarg);
	}
	if (optind < argc)
		return err_set(e, EINVAL, "unexpected argument \"%s\"", argv[optind]);
	if (!o->engine.model_dir)
		return err_set(e, EINVAL, "--model is required");
	if (!o->engine.program_cache)
		o->engine.program_cache =
			program_cache_default(o->program_cache, sizeof(o->program_cache));
	else if (!o->engine.program_cache[0])
		o->engine.program_cache = NULL;
	return 0;
}
