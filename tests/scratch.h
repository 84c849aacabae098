/* A directory for the files of one test program. It is there when main begins, and is removed with all in it when the
 * program exits. */
#pragma once

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch_dir[256];
static pid_t scratch_owner; /* a child that exits leaves the directory to its parent */

/* Makes the directory, under TMPDIR or /tmp. */
__attribute__((constructor)) static void scratch_make(void)
{
	const char *base = getenv("TMPDIR");

	snprintf(scratch_dir, sizeof(scratch_dir), "%s/test-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(scratch_dir)) {
		perror(scratch_dir);
		abort();
	}
	scratch_owner = getpid();
}

static int scratch_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

/* Removes a directory with all in it. Returns 0, or another number on failure. */
static int scratch_remove_tree(const char *path)
{
	return nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

__attribute__((destructor)) static void scratch_remove(void)
{
	if (getpid() == scratch_owner)
		scratch_remove_tree(scratch_dir);
}

/* Returns the path of a name in the directory; valid until the fourth call after this one. */
__attribute__((unused)) static const char *scratch_path(const char *name)
{
	static char paths[4][512];
	static int next;

	next = (next + 1) % 4;
	snprintf(paths[next], sizeof(paths[next]), "%s/%s", scratch_dir, name);
	return paths[next];
}

/* Writes a file in the directory. */
__attribute__((unused)) static void scratch_write(const char *name, const void *data, size_t len)
{
	FILE *f = fopen(scratch_path(name), "wb");

	if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0) {
		perror(name);
		abort();
	}
}
