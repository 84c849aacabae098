#include "daemon/program_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Creates all directories of the path but the last one. A failure is not reported here: it shows when the directory is
 * used. */
static void make_parents(char *path)
{
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		mkdir(path, 0755);
		*p = '/';
	}
}

static const char *default_place(char *out, size_t size)
{
	const char *dir;

	if ((dir = getenv("CACHE_DIRECTORY")) && dir[0] == '/')
		snprintf(out, size, "%s", dir);
	else if ((dir = getenv("XDG_CACHE_HOME")) && dir[0] == '/')
		snprintf(out, size, "%s/tigon", dir);
	else if ((dir = getenv("HOME")) && dir[0] == '/')
		snprintf(out, size, "%s/.cache/tigon", dir);
	else
		return NULL;
	make_parents(out);
	return out;
}

const char *program_cache_choose(const char *given, char *out, size_t size)
{
	if (!given)
		return default_place(out, size);
	return given[0] ? given : NULL;
}
