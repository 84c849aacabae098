#include "daemon/cli/tune/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/engine_options.h"
#include "daemon/program_cache.h"

enum { SECONDS_MAX = 1000000 };

static int check_cut(const struct option_def *d, const char *text, struct err *e)
{
	struct tuning_cut cut;
	int r = tuning_parse_cut(text, TUNING_NONE, &cut, e);

	if (r < 0)
		err_prefix(e, "--%s", d->name);
	return r;
}

static int take_cut(const struct option_def *d, const char *text, void *member, struct err *e)
{
	struct tune_cuts *cuts = member;
	int r = check_cut(d, text, e);

	if (r < 0)
		return r;
	if (cuts->n == TUNE_CUTS_MAX)
		return err_set(e, EINVAL, "--%s: there are more than %d cuts", d->name,
			       TUNE_CUTS_MAX);
	cuts->v[cuts->n++] = text;
	return 0;
}

static int take_measure(const struct option_def *d, const char *text, void *member, struct err *e)
{
	int r = check_cut(d, text, e);

	if (r == 0)
		*(const char **)member = text;
	return r;
}

#define AT(member) offsetof(struct tune_options, member)

static const struct option_def own[] = {
	{"out", "FILE", OPTION_TEXT, AT(out), .initial_text = "standard output",
	 .text = "the table to write"},
	{"family", NULL, OPTION_FLAG, AT(family),
	 .text = "rows for all devices with as many compute units"},
	{"budget", "SECONDS", OPTION_NUMBER_32, AT(budget), .min = 1, .max = SECONDS_MAX,
	 .initial = 3600, .text = "seconds for all cuts; after them no further cut is begun"},
	{"limit", "SECONDS", OPTION_NUMBER_32, AT(limit), .min = 1, .max = SECONDS_MAX,
	 .initial = 600, .text = "a cut whose process takes longer is dropped"},
	{"largest", "N", OPTION_NUMBER_32, AT(largest), .min = 64, .max = 2048, .initial = 2048,
	 .text = "longest prompt to measure, in tokens"},
	{"batch-invariant", "SWITCH", OPTION_CHOICE, AT(batch_invariant),
	 .choices = option_switch_names,
	 .text = "on: cuts that change bits are dropped; off: they are marked"},
	{"cut", "CUT", OPTION_OWN, AT(cuts), .take = take_cut,
	 .initial_text = "the program's own list",
	 .text = "measure this cut, \"blocks=4 ahead=2048\"; may be repeated"},
	{"measure", "CUT", OPTION_OWN, AT(measure), .take = take_measure, .initial_text = "none",
	 .text = "measure one cut, in this process, and print all its rows"},
	{"seconds", "N", OPTION_NUMBER_32, AT(seconds), .min = 1, .max = SECONDS_MAX, .initial = 60,
	 .text = "for --measure: the longest that it may take once the model is open"},
};

int tune_options_parse(int argc, char **argv, struct tune_options *o, struct err *e)
{
	struct option_def table[ENGINE_OPTIONS + ARRAY_SIZE(own)];
	int r;

	engine_options_table(AT(engine), table);
	memcpy(table + ENGINE_OPTIONS, own, sizeof(own));
	*o = (struct tune_options){.engine = {.profile = true}};
	r = option_table_command(table, ARRAY_SIZE(table), "tune --model DIR [--name value ...]",
				 argc, argv, o, e);
	if (r < 0)
		return r;
	if (!o->engine.model_dir)
		return err_set(e, EINVAL, "--model DIR is required; --help lists the options");
	o->engine.tuning.any_bits = o->batch_invariant == OPTION_OFF;
	return program_cache_choose(o->engine.program_cache, o->program_cache,
				    sizeof(o->program_cache), &o->engine.program_cache, e);
}
