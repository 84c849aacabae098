/* GGUF files: one, or the files into which one was split. The first of these has all keys. A directory is taken for such a
 * model if it has no config.json, and if its GGUF files are one model. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/file.h"
#include "base/macros.h"
#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/formats/gguf_texts.h"
#include "engine/checkpoint/formats/mapped_files.h"

enum { MIB = 1 << 20, PATHS_MAX = 64 * MIB, PARTS_MAX = 9999 };

struct gguf {
	struct checkpoint base;
	struct arena paths;
	struct mapped_files files;
	struct gguf_file *parts; /* owned, [files.n] headers of the files */
	struct tensor *tensors;	 /* owned, [n], of all files, sorted by name */
	size_t n;
	int dir_fd; /* the directory of the files; -1: not opened */
};

static int out_of_memory(const char *path, struct err *e)
{
	return err_set(e, ENOMEM, "%s: out of memory", path);
}

/* ---- names of split files ---- */

/* A name of split files is BASE-00001-of-00003.gguf. */
struct split_name {
	size_t base; /* length of BASE */
	unsigned part, n;
};

static bool read_split_name(const char *name, struct split_name *ret)
{
	static const char shape[] = "-00000-of-00000.gguf"; /* 0 stands for any digit */
	size_t len = strlen(name), n = strlen(shape);
	const char *end = name + len - n;

	if (len <= n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (shape[i] == '0' ? end[i] < '0' || end[i] > '9' : end[i] != shape[i])
			return false;
	ret->base = len - n;
	ret->part = (unsigned)strtoul(end + 1, NULL, 10);
	ret->n = (unsigned)strtoul(end + strlen("-00000-of-"), NULL, 10);
	return true;
}

/* Writes the name of another part of the same model. */
static void write_split_name(const char *name, const struct split_name *s, unsigned part, char *out,
			     size_t size)
{
	snprintf(out, size, "%.*s-%05u-of-%05u.gguf", (int)s->base, name, part, s->n);
}

/* ---- the file to begin with ---- */

static int is_gguf_name(const struct dirent *d)
{
	return d->d_name[0] != '.' && name_ends_in(d->d_name, ".gguf");
}

/* Returns whether two names are of parts of the same model. */
static bool same_model(const char *a, const char *b)
{
	struct split_name x, y;

	return read_split_name(a, &x) && read_split_name(b, &y) && x.base == y.base && x.n == y.n &&
	       !strncmp(a, b, x.base);
}

/* Finds the first file of the model in a directory and writes its name to `out`. -EISDIR: the directory is of another
 * format. -EINVAL: its GGUF files are several models. */
static int choose_file(const char *path, char *out, size_t size, struct err *e)
{
	struct dirent **list;
	struct split_name split;
	int n, r = 0;

	n = scandir(path, &list, is_gguf_name, alphasort);
	if (n < 0)
		return err_set(e, errno, "%s: cannot list the directory: %s", path,
			       strerror(errno));
	if (n == 0)
		r = err_set(e, EISDIR, "%s: there is no GGUF file", path);
	for (int i = 1; r == 0 && i < n; i++)
		if (!same_model(list[0]->d_name, list[i]->d_name))
			r = err_set(e, EINVAL,
				    "%s: there are several models, %s and %s: name a file", path,
				    list[0]->d_name, list[i]->d_name);
	if (r == 0 && read_split_name(list[0]->d_name, &split))
		write_split_name(list[0]->d_name, &split, 1, out, size);
	else if (r == 0)
		snprintf(out, size, "%s", list[0]->d_name);
	while (n-- > 0)
		free(list[n]);
	free(list);
	return r;
}

/* ---- reading files ---- */

/* Adds a file to the list, maps it and reads its header. */
static int read_part(struct gguf *g, const char *dir, const char *name, struct err *e)
{
	size_t size = strlen(dir) + strlen(name) + 1, n = g->files.n;
	char *shown = arena_alloc(&g->paths, size);
	struct gguf_file *parts;
	int r;

	if (!shown)
		return out_of_memory(g->base.path, e);
	snprintf(shown, size, "%s%s", dir, name);
	parts = reallocarray(g->parts, n + 1, sizeof(*parts));
	if (!parts)
		return out_of_memory(shown, e);
	g->parts = parts;
	parts[n] = (struct gguf_file){.shown = shown};
	if (mapped_files_add(&g->files, shown, shown + strlen(dir)) < 0)
		return out_of_memory(shown, e);
	r = mapped_file_open(&g->files.v[n], g->dir_fd, e);
	if (r < 0)
		return r;
	if (n == 0 && !gguf_magic(g->files.v[0].data, g->files.v[0].len))
		return err_set(e, EINVAL, "%s: neither a directory nor a GGUF file", shown);
	return gguf_file_read(shown, g->files.v[n].data, g->files.v[n].len, &parts[n], e);
}

/* Reads a whole number of a file's header; `missing` if there is no such key. */
static uint64_t split_key(const struct gguf_file *f, const char *name, uint64_t missing)
{
	const struct gguf_key *k = gguf_find(f, name);
	uint64_t v;

	return k && !k->array && gguf_whole(k, 0, &v) ? v : missing;
}

/* Reads the other parts of a split model, whose first part was read. */
static int read_other_parts(struct gguf *g, const char *dir, const char *name, uint64_t n,
			    struct err *e)
{
	const char *shown = g->parts[0].shown;
	uint64_t no = split_key(&g->parts[0], "split.no", 0);
	char other[NAME_MAX + 1];
	struct split_name split;
	int r = 0;

	if (n > PARTS_MAX)
		return err_set(e, EINVAL, "%s: key split.count is above %d", shown, PARTS_MAX);
	if (!read_split_name(name, &split) || split.n != n || split.part != no + 1)
		return err_set(e, EINVAL,
			       "%s: the file is part %llu of %llu, but its name does not end in "
			       "-%05llu-of-%05llu.gguf",
			       shown, (unsigned long long)no + 1, (unsigned long long)n,
			       (unsigned long long)no + 1, (unsigned long long)n);
	if (no) {
		write_split_name(name, &split, 1, other, sizeof(other));
		return err_set(e, EINVAL, "%s: the file is part %u of %u: name the first one, %s",
			       shown, split.part, split.n, other);
	}
	for (unsigned i = 2; r == 0 && i <= split.n; i++) {
		write_split_name(name, &split, i, other, sizeof(other));
		r = read_part(g, dir, other, e);
		if (r == 0 && (split_key(&g->parts[i - 1], "split.no", n) != i - 1 ||
			       split_key(&g->parts[i - 1], "split.count", 0) != n))
			r = err_set(e, EINVAL, "%s: the file is not part %u of %u, as its keys say",
				    g->parts[i - 1].shown, i, split.n);
	}
	return r;
}

static int compare_tensors(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : strcmp(x->file, y->file);
}

/* Makes one list of the tensors of all parts. */
static int join_tensors(struct gguf *g, struct err *e)
{
	uint64_t announced;

	for (size_t i = 0; i < g->files.n; i++)
		g->n += g->parts[i].n_tensors;
	announced = split_key(&g->parts[0], "split.tensors.count", g->n);
	if (announced != g->n)
		return err_set(e, EINVAL, "%s: %zu tensors, but key split.tensors.count is %llu",
			       g->parts[0].shown, g->n, (unsigned long long)announced);
	g->tensors = calloc(g->n ? g->n : 1, sizeof(*g->tensors));
	if (!g->tensors)
		return out_of_memory(g->base.path, e);
	g->n = 0;
	for (size_t i = 0; i < g->files.n; i++)
		for (size_t k = 0; k < g->parts[i].n_tensors; k++)
			g->tensors[g->n++] = g->parts[i].tensors[k];
	if (g->n)
		qsort(g->tensors, g->n, sizeof(*g->tensors), compare_tensors);
	for (size_t i = 1; i < g->n; i++)
		if (!strcmp(g->tensors[i - 1].name, g->tensors[i].name))
			return err_set(e, EINVAL, "%s: tensor %s is in %s too", g->tensors[i].file,
				       g->tensors[i].name, g->tensors[i - 1].file);
	return 0;
}

/* ---- opening ---- */

static void gguf_close(struct checkpoint *k)
{
	struct gguf *g = (struct gguf *)k;

	for (size_t i = 0; i < g->files.n; i++)
		gguf_file_release(&g->parts[i]);
	mapped_files_release(&g->files);
	arena_release(&g->paths);
	if (g->dir_fd >= 0)
		close(g->dir_fd);
	free(g->parts);
	free(g->tensors);
	free(k->path);
	free(g);
}

/* Reads the model that begins with dir/name. dir ends in a slash, or is "". */
static int read_model(struct gguf *g, const char *dir, const char *name, struct err *e)
{
	uint64_t n;
	int r;

	g->dir_fd = open(*dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (g->dir_fd < 0)
		return err_set(e, errno, "%s: cannot open the directory: %s", dir, strerror(errno));
	r = read_part(g, dir, name, e);
	if (r < 0)
		return r;
	n = split_key(&g->parts[0], "split.count", 1);
	if (n > 1)
		r = read_other_parts(g, dir, name, n, e);
	return r < 0 ? r : join_tensors(g, e);
}

/* Splits a path to a file, or chooses a file of a directory. *ret_dir is new and ends in a slash, or is "". */
static int find_model(const char *path, char **ret_dir, char *ret_name, size_t size, struct err *e)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char *dir;
	struct stat st;
	int r;

	if (stat(path, &st) < 0)
		return err_set(e, errno, "%s: cannot open: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode)) {
		snprintf(ret_name, size, "%s", name);
		*ret_dir = strndup(path, (size_t)(name - path));
		return *ret_dir ? 0 : out_of_memory(path, e);
	}
	if (asprintf(&dir, "%s%s", path, slash && !slash[1] ? "" : "/") < 0)
		return out_of_memory(path, e);
	r = choose_file(path, ret_name, size, e);
	if (r < 0) {
		free(dir);
		return r;
	}
	*ret_dir = dir;
	return 0;
}

/* Returns whether a path is a directory with a config.json, which is of another format. */
static bool is_folder(const char *path)
{
	char *config;
	bool there;

	if (asprintf(&config, "%s/config.json", path) < 0)
		return false;
	there = faccessat(AT_FDCWD, config, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	free(config);
	return there;
}

static int gguf_open(const char *path, struct checkpoint **ret, struct err *e)
{
	char name[NAME_MAX + 1], *dir;
	struct gguf *g;
	int r;

	if (is_folder(path))
		return err_set(e, EISDIR, "%s: a folder with a config.json", path);
	r = find_model(path, &dir, name, sizeof(name), e);
	if (r < 0)
		return r;
	g = calloc(1, sizeof(*g));
	if (!g) {
		free(dir);
		return out_of_memory(path, e);
	}
	g->dir_fd = -1;
	arena_init(&g->paths, PATHS_MAX);
	mapped_files_init(&g->files);
	g->base.path = strdup(path);
	r = g->base.path ? read_model(g, dir, name, e) : out_of_memory(path, e);
	free(dir);
	if (r < 0) {
		gguf_close(&g->base);
		return r;
	}
	*ret = &g->base;
	return 0;
}

/* ---- texts ---- */

static const struct {
	const char *name; /* in Hugging Face's folders, and in messages */
	size_t max;	  /* bytes */
	int (*make)(const struct gguf_source *s, struct buf *out, struct err *e);
} texts[] = {
	[CHECKPOINT_CONFIG] = {"config.json", 4 * MIB, gguf_config},
	[CHECKPOINT_GENERATION] = {"generation_config.json", 4 * MIB, gguf_generation},
	[CHECKPOINT_TOKENIZER] = {"tokenizer.json", 256 * MIB, gguf_tokenizer},
	[CHECKPOINT_TOKENIZER_CONFIG] = {"tokenizer_config.json", 64 * MIB, gguf_tokenizer_config},
	[CHECKPOINT_TEMPLATE] = {"chat_template.jinja", 16 * MIB, gguf_template},
};

static int gguf_read(const struct checkpoint *k, enum checkpoint_part part,
		     struct checkpoint_text *ret, struct err *e)
{
	const struct gguf *g = (const struct gguf *)k;
	const struct gguf_source s = {&g->parts[0], g->tensors, g->n};

	snprintf(ret->name, sizeof(ret->name), "%s (%s)", g->parts[0].shown, texts[part].name);
	buf_init(&ret->bytes, texts[part].max);
	return texts[part].make(&s, &ret->bytes, e);
}

static int gguf_copy_texts(const struct checkpoint *k, const char *dir, struct err *e)
{
	int r = 0;

	for (size_t i = CHECKPOINT_GENERATION; r == 0 && i < ARRAY_SIZE(texts); i++) {
		struct checkpoint_text text = {0};

		r = gguf_read(k, i, &text, e);
		if (r == -ENOENT)
			r = 0;
		else if (r == 0)
			r = file_write_in(dir, texts[i].name, buf_str(&text.bytes), text.bytes.len,
					  e);
		checkpoint_text_release(&text);
	}
	return r;
}

/* ---- weights ---- */

static int gguf_tensors(struct checkpoint *k, const struct tensor **ret, size_t *ret_n,
			struct err *e)
{
	const struct gguf *g = (const struct gguf *)k;

	if (!g->n)
		return err_set(e, ENOENT, "%s: there are no tensors", k->path);
	*ret = g->tensors;
	*ret_n = g->n;
	return 0;
}

static void gguf_forget(const struct checkpoint *k, const void *data, size_t bytes)
{
	/* The list of read parts changes, the checkpoint does not. */
	struct gguf *g = (struct gguf *)(uintptr_t)k;

	mapped_files_forget(&g->files, data, bytes);
}

static int gguf_files(const struct checkpoint *k, checkpoint_visit *visit, void *user,
		      struct err *e)
{
	const struct gguf *g = (const struct gguf *)k;
	const char *shown = g->parts[0].shown;
	size_t len = (size_t)(g->files.v[0].name - shown);
	char *dir = len ? strndup(shown, len) : strdup("."),
	     *real = dir ? realpath(dir, NULL) : NULL;
	char *path;
	int r = 0;

	if (!real)
		r = err_set(e, errno, "%s: cannot read: %s", k->path, strerror(errno));
	for (size_t i = 0; r == 0 && i < g->files.n; i++) {
		if (asprintf(&path, "%s/%s", real, g->files.v[i].name) < 0) {
			r = out_of_memory(k->path, e);
			break;
		}
		r = visit(user, path, g->files.v[i].name, e);
		free(path);
	}
	free(real);
	free(dir);
	return r;
}

const struct checkpoint_format format_gguf = {
	.names = CHECKPOINT_GGUF,
	.open = gguf_open,
	.close = gguf_close,
	.read = gguf_read,
	.tensors = gguf_tensors,
	.forget = gguf_forget,
	.files = gguf_files,
	.copy_texts = gguf_copy_texts,
};

const struct gguf_file *checkpoint_gguf(const struct checkpoint *k)
{
	return k->format == &format_gguf ? &((const struct gguf *)k)->parts[0] : NULL;
}
