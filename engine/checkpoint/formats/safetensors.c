/* A directory of safetensors files as one table of tensors: finds the files, maps them, and checks them together. */
#include "engine/checkpoint/formats/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/buf.h"
#include "base/file.h"
#include "engine/checkpoint/formats/json_scan.h"
#include "engine/checkpoint/formats/mapped_files.h"

#define INDEX_NAME "model.safetensors.index.json"

enum {
	INDEX_MAX = 100000000, /* bytes */
	NAMES_MAX = 1 << 30,   /* bytes of names, all files */
	FILE_NAME_MAX = 255,
};

/* One line of the index: a tensor and its file. */
struct index_line {
	const char *tensor, *file_name; /* in `names` of struct safetensors */
};

struct safetensors {
	const char *dir; /* in `names` */
	struct arena names;
	struct mapped_files files; /* texts are in `names` */
	struct tensor *list;	   /* owned; sorted by name once all files are read */
	size_t n, cap;
	struct index_line *lines; /* owned; only while opening */
	size_t n_lines, cap_lines;
};

static int out_of_memory(const struct safetensors *s, struct err *e)
{
	return err_set(e, ENOMEM, "%s: out of memory for the table of tensors", s->dir);
}

static int add_file(struct safetensors *s, const char *name, struct err *e)
{
	size_t size = strlen(s->dir) + 1 + strlen(name) + 1;
	char *shown = arena_alloc(&s->names, size);
	int r;

	if (!shown)
		return out_of_memory(s, e);
	snprintf(shown, size, "%s/%s", s->dir, name);
	r = mapped_files_add(&s->files, shown, shown + strlen(s->dir) + 1);
	if (r == -EMFILE)
		return err_set(e, EINVAL, "%s: too many files", s->dir);
	return r < 0 ? out_of_memory(s, e) : 0;
}

static int compare_files(const void *a, const void *b)
{
	const struct mapped_file *x = a, *y = b;

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
	if (r == 0 && !s->files.n)
		r = err_set(e, ENOENT, "%s: no safetensors file in this directory", s->dir);
	/* The files are sorted, so that errors do not depend on the order of the directory. */
	if (s->files.n)
		qsort(s->files.v, s->files.n, sizeof(*s->files.v), compare_files);
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

static int read_file(struct safetensors *s, struct mapped_file *m, int dir_fd, struct err *e)
{
	int r = mapped_file_open(m, dir_fd, e);

	if (r < 0)
		return r;
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
	mapped_files_init(&s->files);
	arena_init(&s->names, NAMES_MAX);
	s->dir = arena_strdup(&s->names, dir);
	if (!s->dir)
		r = err_set(e, ENOMEM, "%s: out of memory", dir);
	if (r == 0)
		r = choose_files(s, dir_fd, e);
	for (size_t i = 0; r == 0 && i < s->files.n; i++)
		r = read_file(s, &s->files.v[i], dir_fd, e);
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
	mapped_files_release(&s->files);
	arena_release(&s->names);
	free(s->list);
	free(s);
}

const struct tensor *safetensors_list(const struct safetensors *s, size_t *n)
{
	*n = s->n;
	return s->list;
}

void safetensors_forget(struct safetensors *s, const void *data, size_t bytes)
{
	mapped_files_forget(&s->files, data, bytes);
}
