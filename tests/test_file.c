/* base/file: a draft gets its name whole or not at all, and is refused at once where it could not get it. */
#include "base/file.h"

#include <errno.h>
#include <sys/stat.h>

#include "tests/scratch.h"
#include "tests/tap.h"

/* Returns the content of a scratch file, valid until the next call; "": there is no such file. */
static const char *content(const char *name)
{
	static char text[64];
	FILE *f = fopen(scratch_path(name), "rb");

	text[f ? fread(text, 1, sizeof(text) - 1, f) : 0] = 0;
	if (f)
		fclose(f);
	return text;
}

static bool there(const char *name)
{
	struct stat st;

	return lstat(scratch_path(name), &st) == 0;
}

TEST(draft)
{
	struct file_draft d;
	struct err e = {0};

	scratch_write("old", "old", 3);
	check(file_draft_open(&d, scratch_path("old"), &e) == 0);
	check(file_draft_write(&d, "new", 3, &e) == 0);
	ok(!strcmp(content("old"), "old"), "until it is closed the old one is there");
	check(file_draft_close(&d, 0, &e) == 0);
	ok(!strcmp(content("old"), "new") && !there("old.partial"), "then the new one");
	check(file_draft_open(&d, scratch_path("never"), &e) == 0);
	is_int(file_write(scratch_path("never"), "other", 5, &e), -EBUSY, "%s", e.text);
	is_int(file_draft_close(&d, -EIO, &e), -EIO, "what failed before stays what failed");
	ok(!there("never") && !there("never.partial"), "and nothing is left");
	scratch_write("killed.partial", "longer", 6);
	ok(file_write(scratch_path("killed"), "new", 3, &e) == 0 &&
		   !strcmp(content("killed"), "new"),
	   "what a killed process left is written over");
}

/* Checks that a draft of this file is refused when it is opened. name NULL: the empty path. */
static void refused(const char *name, int code, const char *what)
{
	const char *path = name ? scratch_path(name) : "";
	struct file_draft d;
	struct err e = {0};
	int r = file_draft_open(&d, path, &e);

	is_int(r, code, "%s: %s", what, e.text);
	if (r == 0)
		(void)!file_draft_close(&d, -EINVAL, &e);
}

TEST(refused)
{
	check(mkdir(scratch_path("directory"), 0700) == 0);
	check(mkfifo(scratch_path("fifo"), 0600) == 0);
	check(symlink("/dev/null", scratch_path("device")) == 0);
	refused("directory", -EISDIR, "a directory");
	refused("fifo", -EINVAL, "a FIFO");
	refused("device", -EINVAL, "a device");
	refused("nowhere/file", -ENOENT, "in a directory that is not there");
	refused(NULL, -ENOENT, "no name");
	ok(!there("directory.partial") && !there("fifo.partial") && !there("device.partial"),
	   "nothing is left of them");
	check(mkfifo(scratch_path("taken.partial"), 0600) == 0);
	refused("taken", -ENXIO, "a FIFO in the temporary file's place");
	scratch_write("other", "text", 4);
	check(symlink(scratch_path("other"), scratch_path("linked.partial")) == 0);
	refused("linked", -ELOOP, "a link there");
	ok(!strcmp(content("other"), "text"), "and where it leads nothing is changed");
}

TEST_MAIN()
