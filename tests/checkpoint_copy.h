/* Checkpoints that tests change: a copy is read, its tensors are renamed, removed or replaced, and it is written and
 * opened as weights. */
#pragma once

#include <errno.h>
#include <sys/stat.h>

#include "engine/checkpoint/export.h"
#include "engine/checkpoint/formats/safetensors.h"
#include "tests/scratch.h"
#include "tests/weights_fixture.h"

/* Exports the synthetic weights of a configuration, in one file, to the directory `name`. */
static inline void export_checkpoint(const char *json, const char *name)
{
	struct model_config c = parse(json);
	struct weight *table = layers_weights(&c);
	struct weights *w = NULL;
	struct err e = {0};

	if (!table || weights_synthetic(7, NULL, &c, table, &w) < 0 ||
	    weights_export(w, &c, quoted(json), scratch_path(name), 0, &e) < 0) {
		printf("Bail out! no checkpoint %s %s\n", name, e.text);
		exit(1);
	}
	weights_close(w);
	free(table);
}

/* A checkpoint in memory, to be changed and written again. */
struct copy {
	struct tensor t[512];
	char names[512][TENSOR_NAME_MAX + 1];
	size_t n;
};

static inline void copy_free(void *copy)
{
	struct copy *k = copy;

	for (size_t i = 0; i < k->n; i++)
		free((void *)k->t[i].data);
	free(k);
}

static inline struct copy *copy_open(const char *dir)
{
	struct copy *k = calloc(1, sizeof(*k));
	const struct tensor *list;
	struct safetensors *s;
	struct err e = {0};

	if (!k || safetensors_open(dir, &s, &e) < 0) {
		printf("Bail out! %s\n", e.text);
		exit(1);
	}
	list = safetensors_list(s, &k->n);
	for (size_t i = 0; i < k->n; i++) {
		void *data = malloc(list[i].bytes);

		memcpy(data, list[i].data, list[i].bytes);
		k->t[i] = list[i];
		k->t[i].data = data;
		snprintf(k->names[i], sizeof(k->names[i]), "%s", list[i].name);
		k->t[i].name = k->names[i];
	}
	safetensors_close(s);
	after_test(copy_free, k);
	return k;
}

static inline struct tensor *copy_find(struct copy *k, const char *name)
{
	for (size_t i = 0; i < k->n; i++)
		if (!strcmp(k->names[i], name))
			return &k->t[i];
	printf("Bail out! no tensor %s\n", name);
	exit(1);
}

static inline void copy_rename(struct copy *k, const char *name, const char *to)
{
	struct tensor *t = copy_find(k, name);

	snprintf(k->names[t - k->t], sizeof(k->names[0]), "%s", to);
}

static inline void copy_remove(struct copy *k, const char *name)
{
	size_t i = (size_t)(copy_find(k, name) - k->t);

	free((void *)k->t[i].data);
	k->n--;
	memmove(&k->t[i], &k->t[i + 1], (k->n - i) * sizeof(*k->t));
	memmove(k->names[i], k->names[i + 1], (k->n - i) * sizeof(k->names[0]));
	for (; i < k->n; i++)
		k->t[i].name = k->names[i];
}

/* Appends a tensor. Takes over `data`, which was allocated; NULL: zeros. */
static inline struct tensor *copy_add(struct copy *k, const char *name, const char *dtype,
				      uint32_t n_dims, const uint64_t *shape, void *data)
{
	struct tensor *t = &k->t[k->n];

	*t = (struct tensor){.name = k->names[k->n],
			     .n_dims = n_dims,
			     .type = stored_type_find(dtype)};
	t->bytes = t->type->bytes;
	for (uint32_t i = 0; i < n_dims; i++) {
		t->shape[i] = shape[i];
		t->bytes *= shape[i];
	}
	t->data = data ? data : calloc(1, t->bytes);
	snprintf(k->names[k->n++], sizeof(k->names[0]), "%s", name);
	return t;
}

static inline int give(size_t index, void *data, void *user, struct err *e)
{
	struct copy *k = user;

	memcpy(data, k->t[index].data, k->t[index].bytes);
	return 0;
}

/* Writes the copy to a directory "edited" and opens it as weights. */
static inline int copy_weights(struct copy *k, const struct model_config *c, struct weights **ret,
			       struct err *e)
{
	mkdir(scratch_path("edited"), 0777);
	if (safetensors_write(scratch_path("edited/model.safetensors"), k->t, k->n, give, k, e) <
	    0) {
		printf("Bail out! %s\n", e->text);
		exit(1);
	}
	return open_weights(scratch_path("edited"), c, ret, e);
}

static inline void expect_same(struct copy *k, const struct model_config *c,
			       const struct weights *want, const char *what)
{
	struct weights *w;
	struct err e = {0};

	if (!ok(copy_weights(k, c, &w, &e) == 0, "opens: %s %s", what, e.text))
		return;
	ok(same_rows(c, w, want), "the same rows: %s", what);
}

static inline void expect_error(struct copy *k, const struct model_config *c, int error,
				const char *sentence, const char *what)
{
	struct weights *w;
	struct err e = {0};
	const char *text = e.text;

	is_int(copy_weights(k, c, &w, &e), error, "refused: %s", what);
	if (!strncmp(text, scratch_path("edited"), strlen(scratch_path("edited"))))
		text += strlen(scratch_path("edited"));
	is_str(text, sentence, "says so");
}

static inline void expect_missing(struct copy *k, const struct model_config *c, const char *tensor,
				  const char *what)
{
	char sentence[256];

	snprintf(sentence, sizeof(sentence), ": tensor %s is missing", tensor);
	expect_error(k, c, -ENOENT, sentence, what);
}

/* Expects an error about a tensor of the only file, model.safetensors. */
static inline void expect_wrong(struct copy *k, const struct model_config *c, int error,
				const char *tensor, const char *says, const char *what)
{
	char sentence[512];

	snprintf(sentence, sizeof(sentence), "/model.safetensors: tensor %s %s", tensor, says);
	expect_error(k, c, error, sentence, what);
}
