/* `tigon devices`: the OpenCL devices of this machine, asked and measured. */
#include <stdio.h>

#include "base/macros.h"
#include "base/options.h"
#include "daemon/cli/command.h"
#include "daemon/program_cache.h"
#include "engine/engine.h"

struct devices_options {
	bool list;
	const char *program_cache;
};

#define AT(member) offsetof(struct devices_options, member)

static const struct option_def table[] = {
	{"list", NULL, OPTION_FLAG, AT(list),
	 .text = "print the devices alone, and measure nothing"},
	{"program-cache", "DIR", OPTION_TEXT, AT(program_cache),
	 .initial_text = "tigon below the user's cache directory",
	 .text = "where compiled programs are kept; an empty DIR keeps none"},
};

int cli_devices(int argc, char **argv, struct err *e)
{
	struct devices_options o = {0};
	const char *cache = NULL;
	char place[4096];
	int r = option_table_command(table, ARRAY_SIZE(table), "devices [--name value ...]", argc,
				     argv, &o, e);

	if (r == 0)
		r = program_cache_choose(o.program_cache, place, sizeof(place), &cache, e);
	if (r < 0)
		return r;
	if (!o.list)
		return engine_report_devices(stdout, cache, e);
	engine_settle_environment(cache);
	return engine_list_devices(stdout, e);
}
