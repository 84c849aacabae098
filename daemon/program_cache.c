#include "daemon/program_cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

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

/* Writes the default path to out, and creates its missing parents. False: no variable has an absolute path. */
static bool default_place(char *out, size_t size)
{
	const char *dir;

	if ((dir = getenv("CACHE_DIRECTORY")) && dir[0] == '/')
		snprintf(out, size, "%s", dir);
	else if ((dir = getenv("XDG_CACHE_HOME")) && dir[0] == '/')
		snprintf(out, size, "%s/tigon", dir);
	else if ((dir = getenv("HOME")) && dir[0] == '/')
		snprintf(out, size, "%s/.cache/tigon", dir);
	else
		return false;
	make_parents(out);
	return true;
}

/* Creates the directory unless it is there, and tries to write a file in it. Returns 0 or -errno. */
static int try_directory(const char *path, mode_t mode)
{
	char probe[4096];
	int fd;

	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return -errno;
	if (snprintf(probe, sizeof(probe), "%s/probe.XXXXXX", path) >= (int)sizeof(probe))
		return -ENAMETOOLONG;
	fd = mkstemp(probe);
	if (fd < 0)
		return -errno;
	close(fd);
	unlink(probe);
	return 0;
}

/* Writes the path of a directory below $TMPDIR or /tmp to out, and creates the directory. False: no file can be written
 * there, or another user owns it or could write to it. */
static bool temporary_place(char *out, size_t size)
{
	const char *base = getenv("TMPDIR");
	struct stat st;

	snprintf(out, size, "%s/tigon-%u", base && base[0] == '/' ? base : "/tmp", geteuid());
	return try_directory(out, 0700) == 0 && lstat(out, &st) == 0 && S_ISDIR(st.st_mode) &&
	       st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

static const char *choose_default(char *out, size_t size)
{
	char wanted[4096] = "no directory is set";
	int r = -ENOENT;

	if (default_place(out, size)) {
		r = try_directory(out, 0755);
		snprintf(wanted, sizeof(wanted), "%s", out);
	}
	if (r == 0)
		return out;
	if (!temporary_place(out, size)) {
		log_warning("program cache: %s: %s: each start compiles all kernels again; "
			    "--program-cache DIR keeps them",
			    wanted, strerror(-r));
		return NULL;
	}
	log_warning("program cache: %s: %s: compiled kernels are kept in %s; --program-cache DIR "
		    "names another place",
		    wanted, strerror(-r), out);
	return out;
}

int program_cache_choose(const char *given, char *out, size_t size, const char **ret, struct err *e)
{
	int r = given && given[0] ? try_directory(given, 0755) : 0;

	if (r < 0)
		return err_set(e, -r, "--program-cache %s: %s", given, strerror(-r));
	*ret = !given ? choose_default(out, size) : given[0] ? given : NULL;
	return 0;
}
