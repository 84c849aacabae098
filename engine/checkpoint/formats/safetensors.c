/* A directory of safetensors files as one table of tensors: finds the files, maps them, and checks them together. */
#include "engine/checkpoint/formats/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/buf.h"
#include "base/file.h"
#include "engine/checkpoint/formats/json_scan.h"

#define INDEX_NAME "model.safetensors.index.json"

enum {
	INDEX_MAX = 100000000, /* bytes */
	FILES_MAX = 16384,     /* files of a checkpoint */
	NAMES_MAX = 1 << 30,   /* bytes of names, all files */
	FILE_NAME_MAX = 255,
};

struct mapping {
	const char *shown; /* in `names`: the path for messages */
	const char *name;  /* in `names`: the name inside the directory */
	void *data;	   /* owned mapping, NULL before it is mapped */
	size_t len;
	/* addresses between which data were read since the last give_back; 0: none were; guarded by lock */
	uintptr_t read_begin, read_end;
};

/* One line of the index: a tensor and its file. */
struct index_line {
	const char *tensor, *file_name; /* in `names` of struct safetensors */
};

struct safetensors {
	const char *dir; /* in `names` */
	struct arena names;
	struct mapping *files; /* owned, as are all arrays of this struct */
	size_t n_files, cap_files;
	struct tensor *list; /* sorted by name once all files are read */
	size_t n, cap;
	struct index_line *lines; /* only while opening */
	size_t n_lines, cap_lines;
	pthread_mutex_t lock;
	/* bytes that safetensors_forget was told of since the last give_back; guarded by lock */
	size_t read_bytes;
};

/* Memory is given back when so many bytes were read. So the system is called seldom, for large ranges. */
#define READ_MAX ((size_t)32 << 20)

/* When a page of a file is read, Linux may map pages around it too, but none beyond the next multiples of AROUND. So
 * whole multiples are given back. Pages that other threads still read come back from the system's cache. */
#define AROUND ((uintptr_t)2 << 20)

static int out_of_memory(const struct safetensors *s, struct err *e)
{
	return err_set(e, ENOMEM, "%s: out of memory for the table of tensors", s->dir);
}

static int add_file(struct safetensors *s, const char *name, struct err *e)
{
	size_t size = strlen(s->dir) + 1 + strlen(name) + 1;
	char *shown = arena_alloc(&s->names, size);

	if (s->n_files == FILES_MAX)
		return err_set(e, EINVAL, "%s: more than %d files", s->dir, FILES_MAX);
	if (!shown || !array_grow(s->files, s->cap_files, s->n_files + 1))
		return out_of_memory(s, e);
	snprintf(shown, size, "%s/%s", s->dir, name);
	s->files[s->n_files++] =
		(struct mapping){.shown = shown, .name = shown + strlen(s->dir) + 1};
	return 0;
}

static int compare_files(const void *a, const void *b)
{
	const struct mapping *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int compare_lines(const void *a, const void *b)
{
	const struct index_line *x = a, *y = b;

	return strcmp(x->file_name, y->file_name);
}

/* Adds every file that the index names, once. */
static int add_files_of_index(struct safetensors *s, struct err *e)
{
	const struct index_line *lines = s->lines;
	int r = 0;

	qsort(s->lines, s->n_lines, sizeof(*s->lines), compare_lines);
	for (size_t i = 0; r == 0 && i < s->n_lines; i++)
		if (!i || strcmp(lines[i - 1].file_name, lines[i].file_name))
			r = add_file(s, lines[i].file_name, e);
	return r;
}

/* Reads the value of "weight_map" in the index, {tensor: file, ...}, into s->lines. */
static int scan_index(struct safetensors *s, struct json_scan *scan, const char *shown,
		      struct err *e)
{
	char key[TENSOR_NAME_MAX + 1], file[FILE_NAME_MAX + 1];
	struct index_line line = {0};

	if (!json_scan_is(scan, '{'))
		return err_set(e, EINVAL, "%s: weight_map is not an object", shown);
	if (json_scan_is(scan, '}'))
		return 0;
	do {
		if (json_scan_string(scan, key, sizeof(key)) < 0 || !json_scan_is(scan, ':') ||
		    json_scan_string(scan, file, sizeof(file)) < 0)
			return err_set(e, EINVAL, "%s: weight_map is broken at byte %zu", shown,
				       json_scan_offset(scan));
		if (!file[0] || file[0] == '.' || strchr(file, '/'))
			return err_set(
				e, EINVAL,
				"%s: tensor %s is said to be in \"%s\", which is no file name "
				"inside the directory",
				shown, key, file);
		/* Neighbouring lines often name the same file; then they share one copy of its name. */
		if (!line.file_name || strcmp(line.file_name, file))
			line.file_name = arena_strdup(&s->names, file);
		line.tensor = arena_strdup(&s->names, key);
		if (!line.file_name || !line.tensor ||
		    !array_grow(s->lines, s->cap_lines, s->n_lines + 1))
			return out_of_memory(s, e);
		s->lines[s->n_lines++] = line;
	} while (json_scan_is(scan, ','));
	if (!json_scan_is(scan, '}'))
		return err_set(e, EINVAL, "%s: weight_map is broken at byte %zu", shown,
			       json_scan_offset(scan));
	return 0;
}

static int parse_index(struct safetensors *s, const struct buf *text, const char *shown,
		       struct err *e)
{
	struct json_scan scan;
	bool found = false;
	char key[256];
	int r;

	json_scan_init(&scan, buf_str(text), text->len);
	if (!json_scan_is(&scan, '{'))
		return err_set(e, EINVAL, "%s: not a JSON object", shown);
	do {
		if (json_scan_string(&scan, key, sizeof(key)) < 0 || !json_scan_is(&scan, ':'))
			goto broken;
		if (!strcmp(key, "weight_map")) {
			if (found)
				return err_set(e, EINVAL, "%s: weight_map twice", shown);
			found = true;
			r = scan_index(s, &scan, shown, e);
			if (r < 0)
				return r;
		} else if (json_scan_skip(&scan) < 0) {
			goto broken;
		}
	} while (json_scan_is(&scan, ','));
	if (!json_scan_is(&scan, '}') || !json_scan_end(&scan))
		goto broken;
	if (!s->n_lines)
		return err_set(e, EINVAL, "%s: no weight_map that names tensors", shown);
	return add_files_of_index(s, e);
broken:
	return err_set(e, EINVAL, "%s: broken JSON at byte %zu", shown, json_scan_offset(&scan));
}

/* Returns whether the directory has the name. A link to a file that is gone, as a download of Hugging Face's hub leaves
 * it when it was cut off, is there: opening it tells of the fault. */
static bool is_there(int dir_fd, const char *name)
{
	return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Fills s->files with the files that the index names; without an index with model.safetensors; without both with every
 * *.safetensors. */
static int choose_files(struct safetensors *s, int dir_fd, struct err *e)
{
	struct dirent *entry;
	char shown[512];
	DIR *d;
	int fd, r = 0;

	if (is_there(dir_fd, INDEX_NAME)) {
		struct buf text;

		snprintf(shown, sizeof(shown), "%s/" INDEX_NAME, s->dir);
		buf_init(&text, INDEX_MAX);
		r = file_read(dir_fd, INDEX_NAME, shown, &text, e);
		if (r == 0)
			r = parse_index(s, &text, shown, e);
		buf_release(&text);
		return r;
	}
	if (is_there(dir_fd, "model.safetensors"))
		return add_file(s, "model.safetensors", e);

	fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		r = err_set(e, errno, "%s: cannot list the directory: %s", s->dir, strerror(errno));
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (r == 0 && (entry = readdir(d))) {
		if (entry->d_name[0] != '.' && name_ends_in(entry->d_name, ".safetensors"))
			r = add_file(s, entry->d_name, e);
	}
	closedir(d);
	if (r == 0 && !s->n_files)
		r = err_set(e, ENOENT, "%s: no safetensors file in this directory", s->dir);
	/* The files are sorted, so that errors do not depend on the order of the directory. */
	if (s->n_files)
		qsort(s->files, s->n_files, sizeof(*s->files), compare_files);
	return r;
}

static int keep_tensor(const struct tensor *t, void *user)
{
	struct safetensors *s = user;
	const char *name = arena_strdup(&s->names, t->name);

	if (!name || !array_grow(s->list, s->cap, s->n + 1))
		return -ENOMEM;
	s->list[s->n] = *t;
	s->list[s->n++].name = name;
	return 0;
}

static int map_file(struct safetensors *s, struct mapping *m, int dir_fd, struct err *e)
{
	off_t size;
	void *data;
	int fd, r;

	fd = file_open(dir_fd, m->name, m->shown, &size, e);
	if (fd < 0)
		return fd;
	if (size < 8) {
		close(fd);
		return err_set(e, EINVAL, "%s: %lld bytes are too short for a safetensors file",
			       m->shown, (long long)size);
	}
	data = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
	r = -errno;
	close(fd);
	if (data == MAP_FAILED)
		return err_set(e, -r, "%s: cannot map: %s", m->shown, strerror(-r));
	m->data = data;
	m->len = (size_t)size;
	r = safetensors_parse(m->shown, m->data, m->len, keep_tensor, s, e);
	return r == -ENOMEM ? out_of_memory(s, e) : r;
}

static int compare_tensors(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : strcmp(x->file, y->file);
}

/* Sorts the list. Checks that no tensor is in two files, and that every tensor of the index is in the file that the
 * index says. */
static int check_together(struct safetensors *s, struct err *e)
{
	const struct index_line *lines = s->lines;
	const struct tensor *list = s->list;

	if (s->n)
		qsort(s->list, s->n, sizeof(*s->list), compare_tensors);
	for (size_t i = 1; i < s->n; i++)
		if (!strcmp(list[i - 1].name, list[i].name))
			return err_set(e, EINVAL, "%s: tensor %s is in %s too", list[i].file,
				       list[i].name, list[i - 1].file);
	for (size_t i = 0; i < s->n_lines; i++) {
		const struct tensor *t = tensor_find(list, s->n, lines[i].tensor);

		if (!t || strcmp(t->file + strlen(s->dir) + 1, lines[i].file_name))
			return err_set(e, EINVAL,
				       "%s/" INDEX_NAME
				       ": tensor %s is said to be in %s, which does "
				       "not hold it",
				       s->dir, lines[i].tensor, lines[i].file_name);
	}
	return 0;
}

int safetensors_open(const char *dir, struct safetensors **ret, struct err *e)
{
	struct safetensors *s;
	int dir_fd, r = 0;

	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return err_set(e, errno, "%s: cannot open the directory: %s", dir, strerror(errno));
	s = calloc(1, sizeof(*s));
	if (!s) {
		close(dir_fd);
		return err_set(e, ENOMEM, "%s: out of memory", dir);
	}
	pthread_mutex_init(&s->lock, NULL);
	arena_init(&s->names, NAMES_MAX);
	s->dir = arena_strdup(&s->names, dir);
	if (!s->dir)
		r = err_set(e, ENOMEM, "%s: out of memory", dir);
	if (r == 0)
		r = choose_files(s, dir_fd, e);
	for (size_t i = 0; r == 0 && i < s->n_files; i++)
		r = map_file(s, &s->files[i], dir_fd, e);
	if (r == 0)
		r = check_together(s, e);
	close(dir_fd);
	free(s->lines);
	s->lines = NULL;
	if (r < 0) {
		safetensors_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

void safetensors_close(struct safetensors *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_files; i++)
		if (s->files[i].data)
			munmap(s->files[i].data, s->files[i].len);
	pthread_mutex_destroy(&s->lock);
	arena_release(&s->names);
	free(s->files);
	free(s->list);
	free(s);
}

const struct tensor *safetensors_list(const struct safetensors *s, size_t *n)
{
	*n = s->n;
	return s->list;
}

/* Gives back the memory of all data that were read since the last call. Call with s->lock held. */
static void give_back(struct safetensors *s)
{
	for (size_t i = 0; i < s->n_files; i++) {
		struct mapping *m = &s->files[i];
		uintptr_t first = (uintptr_t)m->data, last = first + m->len;
		uintptr_t begin = MAX(m->read_begin & ~(AROUND - 1), first);
		uintptr_t end = MIN((m->read_end + AROUND - 1) & ~(AROUND - 1), last);

		if (m->read_end)
			madvise((void *)begin, end - begin, MADV_DONTNEED);
		m->read_begin = m->read_end = 0;
	}
	s->read_bytes = 0;
}

void safetensors_forget(struct safetensors *s, const void *data, size_t bytes)
{
	uintptr_t begin = (uintptr_t)data, end = begin + bytes;

	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->n_files; i++) {
		struct mapping *m = &s->files[i];

		if (begin < (uintptr_t)m->data || end > (uintptr_t)m->data + m->len)
			continue;
		m->read_begin = m->read_end ? MIN(m->read_begin, begin) : begin;
		m->read_end = MAX(m->read_end, end);
		s->read_bytes += bytes;
		break;
	}
	if (s->read_bytes >= READ_MAX)
		give_back(s);
	pthread_mutex_unlock(&s->lock);
}
