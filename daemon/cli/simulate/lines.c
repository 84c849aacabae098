#include "daemon/cli/simulate/lines.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

int lines_open(struct lines *l, const char *path, struct err *e)
{
	FILE *f = fopen(path, "re");
	struct stat st;

	if (!f)
		return err_set(e, errno, "%s: %s", path, strerror(errno));
	if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode)) {
		fclose(f);
		return err_set(e, EISDIR, "%s is a directory", path);
	}
	*l = (struct lines){.f = f, .path = path};
	buf_init(&l->text, LINE_BYTES_MAX);
	return 0;
}

int lines_next(struct lines *l, struct err *e)
{
	char piece[4096];
	size_t n = 0;
	int c;

	buf_reset(&l->text);
	l->number++;
	while ((c = getc_unlocked(l->f)) != EOF && c != '\n') {
		if (!c)
			return err_set(e, EINVAL, "%s, line %lu: a zero byte, so this is no text",
				       l->path, l->number);
		piece[n++] = (char)c;
		if (n < sizeof(piece))
			continue;
		buf_append(&l->text, piece, n);
		n = 0;
		if (l->text.failed)
			return err_set(e, EFBIG, "%s, line %lu: longer than %d MiB, or than memory",
				       l->path, l->number, LINE_BYTES_MAX >> 20);
	}
	if (ferror(l->f))
		return err_set(e, EIO, "%s, line %lu: cannot be read", l->path, l->number);
	buf_append(&l->text, piece, n);
	if (l->text.failed)
		return err_set(e, EFBIG, "%s, line %lu: longer than %d MiB, or than memory",
			       l->path, l->number, LINE_BYTES_MAX >> 20);
	l->ended = c == '\n';
	return l->ended || l->text.len;
}

void lines_close(struct lines *l)
{
	buf_release(&l->text);
	fclose(l->f);
}
