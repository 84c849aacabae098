#include "base/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLANKS " \t\r\n"

/* room for a line, in bytes: getline would copy a longer one, and leave the first copy behind */
enum { LINE_ROOM = 8 << 10 };

/* Returns whether the file's mode keeps others away. A service manager may let us read a file of its own through a
 * group or an ACL. Either of these shows as the group's bits. So the group may read a file of another owner, but not
 * write it. */
static bool keeps_others_out(const struct stat *st)
{
	mode_t others = st->st_uid == geteuid() ? S_IRWXG | S_IRWXO : S_IWGRP | S_IRWXO;

	return !(st->st_mode & others);
}

static int open_private(const char *path, FILE **ret, struct err *e)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r = 0;

	if (fd < 0)
		return err_set(e, errno, "%s: %s", path, strerror(errno));
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		r = err_set(e, EINVAL, "%s: not a file", path);
	else if (!keeps_others_out(&st))
		r = err_set(e, EPERM, "%s: others may read it (mode %03o); chmod 600 it", path,
			    (unsigned)(st.st_mode & 0777));
	else if (!(*ret = fdopen(fd, "r")))
		r = err_set(e, errno, "%s: %s", path, strerror(errno));
	if (r < 0)
		close(fd);
	return r;
}

int private_directory(const char *path, struct err *e)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return 0;
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return err_set(e, EPERM, "%s: it belongs to another user (%u)", path,
			       (unsigned)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(e, EPERM, "%s: others may write to it (mode %03o); chmod go-w it",
			       path, (unsigned)(st.st_mode & 0777));
	return 0;
}

int private_lines(const char *path, int (*line)(void *arg, char *line, struct err *e), void *arg,
		  struct err *e)
{
	unsigned number = 0;
	char buffer[BUFSIZ];
	size_t size = LINE_ROOM;
	char *text;
	ssize_t n;
	FILE *f = NULL;
	int r = open_private(path, &f, e);

	if (r < 0)
		return r;
	text = malloc(size);
	if (!text) {
		fclose(f);
		return err_no_memory(e);
	}
	/* stdio would free a buffer of its own without wiping it. */
	setvbuf(f, buffer, _IOFBF, sizeof(buffer));
	while (r == 0 && (n = getline(&text, &size, f)) >= 0) {
		char *start = text + strspn(text, BLANKS);
		size_t len = strlen(start);

		number++;
		/* The text would end there: of a key in UTF-16 one character would be left, which anybody can guess. */
		if (memchr(text, 0, (size_t)n)) {
			r = err_set(e, EINVAL, "%s:%u: the line has a zero byte", path, number);
			break;
		}
		while (len && strchr(BLANKS, start[len - 1]))
			start[--len] = 0;
		if (!len || *start == '#')
			continue;
		r = line(arg, start, e);
		if (r != 0)
			err_prefix(e, "%s:%u", path, number);
	}
	/* getline also fails if memory is short, and then sets no error of f. The rest of the lines would be
	 * missing. */
	if (r == 0 && !feof(f))
		r = err_set(e, EIO, "%s: cannot be read", path);
	explicit_bzero(text, size);
	free(text);
	fclose(f);
	explicit_bzero(buffer, sizeof(buffer));
	return r;
}
