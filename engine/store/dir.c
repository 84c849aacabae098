#include "engine/store/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum {
	WRITE_BYTES = 4 << 20, /* the most bytes written between two checks of `cancel` */
	BLOCK = 4096,
};

#define PARTIAL ".partial"

/* ---- owning ---- */

/* Tries to become the owner; on failure *ret_why has the reason. */
static void try_lock(struct store_dir *d, struct err *ret_why)
{
	int fd =
		openat(d->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

	if (fd < 0) {
		err_set(ret_why, errno, "%s cannot be written: %s", d->path, strerror(errno));
		return;
	}
	/* DIR is locked too, because a user can delete the lock file. Some file systems cannot lock directories. If
	 * DIR cannot be locked, that is a failure only if another process has locked it. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 ||
	    (flock(d->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)) {
		if (errno == EWOULDBLOCK)
			err_set(ret_why, EBUSY, "%s belongs to another daemon", d->path);
		else
			err_set(ret_why, errno, "%s cannot be locked: %s", d->path,
				strerror(errno));
		close(fd);
		return;
	}
	d->lock_fd = fd;
}

int store_dir_open(const char *path, struct store_dir *ret, struct err *ret_why, struct err *e)
{
	struct store_dir d = {.fd = -1, .lock_fd = -1};

	*ret_why = (struct err){0};
	if (mkdir(path, 0700) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
		return err_set(e, errno, "%s: cannot create: %s", path, strerror(errno));
	d.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d.fd < 0)
		return err_set(e, errno, "%s: cannot open: %s", path, strerror(errno));
	d.path = strdup(path);
	if (!d.path) {
		close(d.fd);
		return err_set(e, ENOMEM, "%s: out of memory", path);
	}
	try_lock(&d, ret_why);
	*ret = d;
	return 0;
}

/* Returns whether the path still leads to the open directory; true also if that cannot be found out. */
static bool is_there(const struct store_dir *d)
{
	struct stat open, there;

	if (fstat(d->fd, &open) < 0)
		return true;
	if (stat(d->path, &there) < 0)
		return errno != ENOENT;
	return open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

int store_dir_renew(struct store_dir *d, struct err *e)
{
	struct err why;
	struct store_dir new;
	int r;

	if (is_there(d))
		return 0;
	r = store_dir_open(d->path, &new, &why, e);
	if (r < 0)
		return r;
	/* Replaces the descriptors but keeps their numbers, because the reader thread may be using them. A lock lasts
	 * as long as any copy of its descriptor is open, so closing `new` does not end it. */
	if (!store_dir_owned(&new))
		r = err_set(e, why.code, "%s", why.text);
	else if (dup3(new.lock_fd, d->lock_fd, O_CLOEXEC) < 0 || dup3(new.fd, d->fd, O_CLOEXEC) < 0)
		r = err_set(e, errno, "%s: cannot open again: %s", d->path, strerror(errno));
	store_dir_close(&new);
	return r < 0 ? r : 1;
}

void store_dir_close(struct store_dir *d)
{
	if (!d->path)
		return;
	if (d->lock_fd >= 0)
		close(d->lock_fd);
	close(d->fd);
	free(d->path);
	*d = (struct store_dir){.fd = -1, .lock_fd = -1};
}

uint64_t store_dir_own(const struct store_dir *d)
{
	uint64_t v = 0;

	for (size_t i = 0; i < 8; i++)
		v = v << 8 | d->identity.bytes[i];
	return v;
}

/* ---- names ---- */

void store_dir_path(const struct store_place *p, char ret[STORE_DIR_PATH_MAX])
{
	char name[STORE_FILE_NAME_MAX];

	store_file_name(&p->item, p->depth, name);
	snprintf(ret, STORE_DIR_PATH_MAX, "%016" PRIx64 "/%.2s/%s", p->directory, name, name);
}

/* Reads the number that a name of n hex digits stands for; false: the name has another form. */
static bool parse_directory(const char *name, size_t n, uint64_t *ret)
{
	char *end;

	if (strlen(name) != n || strspn(name, "0123456789abcdef") != n)
		return false;
	*ret = strtoull(name, &end, 16);
	return true;
}

/* ---- listing ---- */

struct listing {
	struct store_dir *dir;
	int (*see)(void *arg, const struct store_place *p, uint64_t bytes, uint64_t used_ns);
	void *arg;
	uint64_t directory;
	uint64_t n_others; /* directories and other non-files with an item's name */
	char other[STORE_FILE_NAME_MAX];
};

static int see_file(struct listing *l, int fd, const char *name)
{
	struct store_place p = {.directory = l->directory};
	size_t len = strlen(name);
	struct stat st;

	if (store_file_parse_name(name, &p.item, &p.depth)) {
		if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return 0;
		if (!S_ISREG(st.st_mode)) {
			if (!l->n_others++)
				snprintf(l->other, sizeof(l->other), "%s", name);
			return 0;
		}
		/* a time before 1970 is negative, and as an unsigned number would be the latest of all */
		return l->see(l->arg, &p, (uint64_t)st.st_size,
			      st.st_mtim.tv_sec < 0 ? 0 : clock_ns(st.st_mtim));
	}
	if (store_dir_owned(l->dir) && len > strlen(PARTIAL) &&
	    !strcmp(name + len - strlen(PARTIAL), PARTIAL))
		unlinkat(fd, name, 0);
	return 0;
}

/* Calls `step` for every name in the directory `name`, which is in the directory of the descriptor `at`. If `step`
 * returns another number than 0, ends and returns that number; else returns 0, also if the directory cannot be
 * opened. */
static int each(struct listing *l, int at, const char *name,
		int (*step)(struct listing *l, int fd, const char *name))
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	struct dirent *entry;
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	if (!stream) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while (r == 0 && (entry = readdir(stream)))
		r = step(l, fd, entry->d_name);
	closedir(stream);
	return r;
}

static int see_shard(struct listing *l, int fd, const char *name)
{
	uint64_t shard;

	return parse_directory(name, 2, &shard) ? each(l, fd, name, see_file) : 0;
}

static int see_identity(struct listing *l, int fd, const char *name)
{
	return parse_directory(name, 16, &l->directory) ? each(l, fd, name, see_shard) : 0;
}

int store_dir_list(struct store_dir *d,
		   int (*see)(void *arg, const struct store_place *p, uint64_t bytes,
			      uint64_t used_ns),
		   void *arg)
{
	struct listing l = {.dir = d, .see = see, .arg = arg};

	int r = each(&l, d->fd, ".", see_identity);

	if (l.n_others)
		log_warning("cache: %s: %llu items' names are no regular files, and passed over; "
			    "one is %s",
			    d->path, (unsigned long long)l.n_others, l.other);
	return r;
}

/* ---- writing ---- */

uint64_t store_dir_cost(uint64_t file_bytes)
{
	return ROUND_UP(file_bytes, (uint64_t)BLOCK);
}

static int make_directories(struct store_dir *d, const char *path)
{
	char part[STORE_DIR_PATH_MAX];

	snprintf(part, sizeof(part), "%.16s", path);
	if (mkdirat(d->fd, part, 0700) < 0 && errno != EEXIST)
		return -errno;
	snprintf(part, sizeof(part), "%.19s", path);
	return mkdirat(d->fd, part, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* Creates a file, and its directories if they are missing. Returns its descriptor or a negative errno. If something has
 * its name already, deletes that first (a directory is an error): to open it could wait for ever (a FIFO), or change
 * another file (a link). */
static int create(struct store_dir *d, const char *path)
{
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
	int fd = openat(d->fd, path, flags, 0600), r;

	if (fd >= 0 || (errno != ENOENT && errno != EEXIST))
		return fd < 0 ? -errno : fd;
	if (errno == ENOENT)
		r = make_directories(d, path);
	else
		r = unlinkat(d->fd, path, 0) < 0 ? -errno : 0;
	if (r < 0)
		return r;
	fd = openat(d->fd, path, flags, 0600);
	return fd < 0 ? -errno : fd;
}

static int write_all(int fd, const void *data, size_t len, const atomic_bool *cancel)
{
	const char *p = data;

	while (len) {
		ssize_t n = write(fd, p, MIN(len, (size_t)WRITE_BYTES));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -ENOSPC;
		if (cancel && atomic_load(cancel))
			return -ECANCELED;
		p += n < 0 ? 0 : n;
		len -= n < 0 ? 0 : (size_t)n;
	}
	return 0;
}

static int write_file(struct store_dir *d, const char *path, const void *header,
		      size_t header_bytes, const void *payload, size_t bytes, uint64_t used_ns,
		      const atomic_bool *cancel)
{
	const struct timespec times[2] = {clock_timespec(used_ns), clock_timespec(used_ns)};
	int fd = create(d, path), r;

	if (fd < 0)
		return fd;
	r = write_all(fd, header, header_bytes, cancel);
	if (r == 0)
		r = write_all(fd, payload, bytes, cancel);
	if (r == 0 && futimens(fd, times) < 0)
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno;
	return r;
}

int store_dir_write(struct store_dir *d, struct store_file_header *h, const void *payload,
		    uint64_t used_ns, const atomic_bool *cancel, struct err *e)
{
	const struct store_place place = {store_dir_own(d), h->item, h->depth};
	size_t header_bytes = store_file_header_bytes(h->n_tokens);
	char path[STORE_DIR_PATH_MAX], partial[STORE_DIR_PATH_MAX + sizeof(PARTIAL)];
	uint8_t *header = malloc(header_bytes);
	int r;

	if (!header)
		return err_set(e, ENOMEM, "%s: out of memory", d->path);
	store_dir_path(&place, path);
	snprintf(partial, sizeof(partial), "%s" PARTIAL, path);
	r = store_file_sum(payload, h->payload_bytes, h->payload_sum);
	if (r == 0)
		r = store_file_build(h, &d->identity, header);
	if (r == 0)
		r = write_file(d, partial, header, header_bytes, payload, h->payload_bytes, used_ns,
			       cancel);
	if (r == 0 && renameat(d->fd, partial, d->fd, path) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(d->fd, partial, 0);
		err_set(e, -r, "%s/%s cannot be written: %s", d->path, path, strerror(-r));
	}
	free(header);
	return r;
}

/* ---- reading ---- */

/* Reads len bytes; -EBADMSG when the file ends before. */
static int read_all(int fd, void *data, size_t len)
{
	char *p = data;

	while (len) {
		ssize_t n = read(fd, p, MIN(len, (size_t)1 << 30));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static bool same_item(const struct tier_item *a, const struct tier_item *b)
{
	return !memcmp(&a->key, &b->key, sizeof(a->key)) && a->kind == b->kind &&
	       a->origin == b->origin && a->parent_origin == b->parent_origin;
}

/* Reads and checks an open file of the right size. `header` is work space: a header, then room for n_tokens tokens. */
static int read_file(struct store_dir *d, int fd, uint8_t *header, size_t header_bytes,
		     uint32_t n_tokens, const struct tier_item *item, uint32_t depth, void *payload,
		     uint64_t bytes, struct err *e)
{
	struct store_file_header h;
	uint8_t sum[STORE_FILE_SUM];
	int32_t *tokens = (int32_t *)(void *)(header + header_bytes);
	int r = read_all(fd, header, header_bytes);

	if (r < 0)
		return err_set(e, -r, "%s",
			       r == -EBADMSG ? "it ends within the header" : strerror(-r));
	r = store_file_parse(header, header_bytes, &d->identity, tokens, n_tokens, &h, e);
	if (r < 0)
		return r;
	if (!same_item(&h.item, item) || h.depth != depth)
		return err_set(e, EBADMSG, "it holds another item than its name says");
	if (h.payload_bytes != bytes)
		return err_set(e, EBADMSG, "it holds %llu bytes, not %llu",
			       (unsigned long long)h.payload_bytes, (unsigned long long)bytes);
	r = read_all(fd, payload, bytes);
	if (r < 0)
		return err_set(e, -r, "%s", r == -EBADMSG ? "it ends early" : strerror(-r));
	if (store_file_sum(payload, bytes, sum) < 0)
		return err_set(e, EFAULT, "cannot compute a checksum");
	if (memcmp(sum, h.payload_sum, sizeof(sum)))
		return err_set(e, EBADMSG, "its content is damaged (checksum)");
	return 0;
}

static int open_file(struct store_dir *d, const char *path, uint64_t size, struct err *e)
{
	int fd = openat(d->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	int r = 0;

	if (fd < 0)
		return errno == ENOENT	? err_set(e, ENOENT, "the file has vanished")
		       : errno == ELOOP ? err_set(e, EBADMSG, "it is a symbolic link")
					: err_set(e, errno, "cannot open: %s", strerror(errno));
	if (fstat(fd, &st) < 0)
		r = err_set(e, errno, "cannot stat: %s", strerror(errno));
	else if (!S_ISREG(st.st_mode))
		r = err_set(e, EBADMSG, "it is no regular file");
	else if ((uint64_t)st.st_size != size)
		r = err_set(e, EBADMSG, "it has %lld bytes, not %llu", (long long)st.st_size,
			    (unsigned long long)size);
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

int store_dir_read(struct store_dir *d, const struct tier_item *item, uint32_t depth,
		   uint32_t page_tokens, void *payload, uint64_t bytes, struct err *e)
{
	const struct store_place place = {store_dir_own(d), *item, depth};
	uint32_t n_tokens = item->kind == TIER_PAGE ? page_tokens : 0;
	size_t header_bytes = store_file_header_bytes(n_tokens);
	char path[STORE_DIR_PATH_MAX];
	uint8_t *header;
	int fd, r;

	store_dir_path(&place, path);
	fd = open_file(d, path, header_bytes + bytes, e);
	if (fd < 0) {
		err_prefix(e, "%s/%s", d->path, path);
		return fd;
	}
	header = malloc(header_bytes + (size_t)n_tokens * sizeof(int32_t));
	r = header ? read_file(d, fd, header, header_bytes, n_tokens, item, depth, payload, bytes,
			       e)
		   : err_no_memory(e);
	if (r < 0)
		err_prefix(e, "%s/%s", d->path, path);
	free(header);
	close(fd);
	return r;
}

/* ---- deleting, and setting the time ---- */

void store_dir_remove(struct store_dir *d, const struct store_place *p)
{
	char path[STORE_DIR_PATH_MAX];

	store_dir_path(p, path);
	if (unlinkat(d->fd, path, 0) < 0 && errno == EISDIR)
		unlinkat(d->fd, path, AT_REMOVEDIR);
	if (p->directory == store_dir_own(d))
		return;
	/* The removal of a directory fails while it is not empty. */
	path[19] = 0;
	if (unlinkat(d->fd, path, AT_REMOVEDIR) == 0) {
		path[16] = 0;
		unlinkat(d->fd, path, AT_REMOVEDIR);
	}
}

void store_dir_touch(struct store_dir *d, const struct store_place *p, uint64_t used_ns)
{
	const struct timespec times[2] = {clock_timespec(used_ns), clock_timespec(used_ns)};
	char path[STORE_DIR_PATH_MAX];

	store_dir_path(p, path);
	(void)!utimensat(d->fd, path, times, AT_SYMLINK_NOFOLLOW);
}
