#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int file_open(int dir_fd, const char *name, const char *shown, off_t *ret_size, struct err *e)
{
	struct stat st;
	int fd, r;

	/* O_NONBLOCK: if a FIFO is in the file's place, openat must not wait for a writer. */
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return err_set(e, errno, "%s: cannot open: %s", shown, strerror(errno));
	if (fstat(fd, &st) < 0) {
		r = err_set(e, errno, "%s: cannot stat: %s", shown, strerror(errno));
		close(fd);
		return r;
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return err_set(e, EINVAL, "%s: not a regular file", shown);
	}
	*ret_size = st.st_size;
	return fd;
}

int file_read(int dir_fd, const char *name, const char *shown, struct buf *out, struct err *e)
{
	off_t size;
	ssize_t n;
	int fd, r;

	fd = file_open(dir_fd, name, shown, &size, e);
	if (fd < 0)
		return fd;
	if ((uint64_t)size > out->max - out->len) {
		r = err_set(e, EFBIG, "%s: %lld bytes are more than the %zu that are read", shown,
			    (long long)size, out->max);
		goto out;
	}
	r = buf_reserve(out, (size_t)size);
	if (r < 0) {
		r = err_set(e, ENOMEM, "%s: out of memory for %lld bytes", shown, (long long)size);
		goto out;
	}
	/* Read to the end, whatever the size was before: the file may grow or shrink meanwhile. */
	for (;;) {
		char part[16384];

		n = read(fd, part, sizeof(part));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			r = err_set(e, errno, "%s: cannot read: %s", shown, strerror(errno));
			goto out;
		}
		if (n == 0)
			break;
		buf_append(out, part, (size_t)n);
		if (out->failed) {
			r = err_set(e, EFBIG, "%s: more than the %zu bytes that are read", shown,
				    out->max);
			goto out;
		}
	}
	r = 0;
out:
	close(fd);
	return r;
}

/* Returns whether `name` is still a path of the file that is open as fd. */
static bool same_file(int fd, const char *name)
{
	struct stat opened, named;

	return fstat(fd, &opened) == 0 && lstat(name, &named) == 0 &&
	       opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* Opens and empties a draft's temporary file, or creates it. The file is locked, so that it has only one writer, unless
 * the file system has no locks. */
static int open_partial(const char *name)
{
	/* Without O_NONBLOCK, open would wait for a reader if there is a FIFO of that name. Without O_NOFOLLOW, it would
	 * open the file to which a link of that name leads. */
	const int flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;

	for (int tries = 0; tries < 10; tries++) {
		int fd = open(name, flags, 0666), r = 0;
		bool same;

		if (fd < 0)
			return -errno;
		/* A file system without locks lets flock fail with another error, which is passed over. */
		if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
			r = -EBUSY;
		same = r == 0 && same_file(fd, name);
		if (same && ftruncate(fd, 0) < 0)
			r = -errno;
		if (same && r == 0)
			return fd;
		close(fd);
		if (r < 0)
			return r;
		/* Between open and flock another draft has ended, which renamed or deleted the file. */
	}
	return -EBUSY;
}

int file_draft_open(struct file_draft *d, const char *path, struct err *e)
{
	struct stat st;
	int r;

	*d = (struct file_draft){.path = path, .fd = -1};
	if (!*path)
		return err_set(e, ENOENT, "the name of the file to write is empty");
	/* rename, in file_draft_close, would fail on a directory, and would replace a device by a file */
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return err_set(e, S_ISDIR(st.st_mode) ? EISDIR : EINVAL, "%s: not a regular file",
			       path);
	if (asprintf(&d->partial, "%s.partial", path) < 0)
		return err_set(e, ENOMEM, "%s: out of memory", path);
	d->fd = open_partial(d->partial);
	if (d->fd >= 0)
		return 0;
	r = err_set(e, -d->fd, "%s: cannot create: %s", d->partial,
		    d->fd == -EBUSY ? "it is being written already" : strerror(-d->fd));
	free(d->partial);
	return r;
}

int file_draft_write(struct file_draft *d, const void *data, size_t len, struct err *e)
{
	const char *p = data;

	while (len) {
		ssize_t n = write(d->fd, p, MIN(len, (size_t)1 << 30));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, errno, "%s: cannot write: %s", d->path, strerror(errno));
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int file_draft_close(struct file_draft *d, int r, struct err *e)
{
	if (r == 0 && fsync(d->fd) < 0)
		r = err_set(e, errno, "%s: cannot write: %s", d->path, strerror(errno));
	if (r == 0 && rename(d->partial, d->path) < 0)
		r = err_set(e, errno, "%s: cannot rename to it: %s", d->path, strerror(errno));
	if (r < 0)
		unlink(d->partial);
	close(d->fd); /* ends the lock: from here on another draft may have the temporary name */
	free(d->partial);
	return r;
}

int file_write(const char *path, const void *data, size_t len, struct err *e)
{
	struct file_draft d;
	int r = file_draft_open(&d, path, e);

	if (r < 0)
		return r;
	return file_draft_close(&d, file_draft_write(&d, data, len, e), e);
}

int file_write_in(const char *dir, const char *name, const void *data, size_t len, struct err *e)
{
	char *path;
	int r;

	if (asprintf(&path, "%s/%s", dir, name) < 0)
		return err_set(e, ENOMEM, "%s: out of memory", dir);
	r = file_write(path, data, len, e);
	free(path);
	return r;
}
