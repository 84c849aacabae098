#include "engine/checkpoint/export.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/macros.h"
#include "engine/checkpoint/formats/safetensors.h"
#include "engine/checkpoint/layout.h"

#define SHARD_BYTES ((uint64_t)4 << 30)

enum { NAMES_MAX = 1 << 30, SMALL_FILE_MAX = 256 << 20 };

/* What a tensor is made from. */
struct item {
	uint32_t expert; /* of a tensor that is one expert's */
	struct layout layout;
};

struct export
{
	const struct weights *w;
	const struct model_config *c;
	const struct weight *table;
	const char *dir;
	struct arena names;
	struct tensor *tensors; /* owned, [n], in the order of the model */
	struct item *items;	/* owned, [n] */
	size_t n, cap;
	size_t first; /* of the file being written */
	struct err *e;
	int error;
};

/* ---- which tensors ---- */

static struct item *add_item(struct export *x, const char *name)
{
	struct tensor *t;

	if (x->n == x->cap) {
		size_t cap = x->cap ? x->cap * 2 : 256;
		struct tensor *tensors = reallocarray(x->tensors, cap, sizeof(*tensors));
		struct item *items;

		if (tensors)
			x->tensors = tensors;
		items = reallocarray(x->items, cap, sizeof(*items));
		if (items)
			x->items = items;
		if (!tensors || !items)
			return NULL;
		x->cap = cap;
	}
	t = &x->tensors[x->n];
	*t = (struct tensor){.name = arena_strdup(&x->names, name),
			     .type = stored_type_find("BF16")};
	return t->name ? &x->items[x->n++] : NULL;
}

/* A tensor, or one for each expert. */
static void list_tensor(struct export *x, const struct family_tensor *t, const char *prefix,
			bool in_layer, uint32_t layer)
{
	char name[TENSOR_NAME_MAX + 1];
	struct layout l;
	uint32_t n;

	if (!layout_of(t, x->c, x->table, layer, &l))
		return;
	n = l.experts ? 1 : l.sections[0].weight->experts;
	for (uint32_t i = 0; x->error == 0 && i < n; i++) {
		struct tensor *to;
		struct item *item;

		layout_name(t, prefix, in_layer, layer, i, name, sizeof(name));
		item = add_item(x, name);
		if (!item) {
			x->error = err_set(x->e, ENOMEM, "%s: out of memory", x->dir);
			return;
		}
		*item = (struct item){.expert = i, .layout = l};
		to = &x->tensors[x->n - 1];
		memcpy(to->shape, l.shape, sizeof(l.shape));
		to->n_dims = l.n_dims;
		to->bytes = stored_bytes(to->type, l.groups * l.stride * l.cols);
	}
}

/* Of sets with the same weights the family's own is the first. */
static void list_layer(struct export *x, uint32_t layer)
{
	bool listed[WEIGHT_ROLES] = {false};

	for (const struct tensor_set *const *s = x->c->family->sets; *s; s++) {
		const struct tensor_section *first = (*s)->tensors[0].sections;

		if (!layout_has_set(*s, x->c, layer) || listed[first->role])
			continue;
		listed[first->role] = true;
		for (uint32_t i = 0; i < (*s)->n; i++)
			list_tensor(x, &(*s)->tensors[i], "model.", true, layer);
	}
}

static void list_model(struct export *x)
{
	static const struct family_tensor lm_head = {"lm_head.weight",
						     TENSOR_MATRIX,
						     1,
						     {{WEIGHT_LM_HEAD, 0}}};

	list_tensor(x, &tensor_embed, "model.", false, 0);
	for (uint32_t i = 0; i < x->c->n_layers; i++)
		list_layer(x, i);
	list_tensor(x, &tensor_final_norm, "model.", false, 0);
	if (!x->c->tie_word_embeddings)
		list_tensor(x, &lm_head, "", false, 0);
}

/* ---- their bytes ---- */

static int produce(size_t index, void *data, void *user, struct err *e)
{
	const struct export *x = user;
	const struct item *item = &x->items[x->first + index];
	const struct layout *l = &item->layout;
	uint16_t *out = data;

	for (uint64_t group = 0; group < l->groups; group++) {
		for (uint32_t i = 0; i < l->n_sections; i++) {
			const struct layout_section *s = &l->sections[i];
			uint32_t expert = l->experts ? (uint32_t)group : item->expert;
			uint64_t row = s->start + (l->experts ? 0 : group * s->rows);

			for (uint64_t k = 0; k < s->rows; k++, out += l->cols)
				weights_row(x->w, s->weight->role, s->weight->layer, expert,
					    row + k, true, out);
		}
	}
	return 0;
}

/* The tensors [first, end) that go into one file. */
static size_t end_of_shard(const struct export *x, size_t first, uint64_t shard_bytes)
{
	uint64_t bytes = x->tensors[first].bytes;
	size_t i = first + 1;

	while (i < x->n && x->tensors[i].bytes <= shard_bytes &&
	       bytes <= shard_bytes - x->tensors[i].bytes)
		bytes += x->tensors[i++].bytes;
	return i;
}

static int write_shards(struct export *x, uint64_t shard_bytes, struct err *e)
{
	size_t n_shards = 0, shard = 0, end;
	uint64_t total = 0;
	struct buf index;
	int r = 0;

	for (size_t i = 0; i < x->n; i = end_of_shard(x, i, shard_bytes))
		n_shards++;
	buf_init(&index, SMALL_FILE_MAX);
	for (size_t i = 0; i < x->n; i++)
		total += x->tensors[i].bytes;
	buf_printf(&index, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {",
		   (unsigned long long)total);
	for (x->first = 0; r == 0 && x->first < x->n; x->first = end) {
		char file[64], *path;

		end = end_of_shard(x, x->first, shard_bytes);
		if (n_shards == 1)
			snprintf(file, sizeof(file), "model.safetensors");
		else
			snprintf(file, sizeof(file), "model-%05zu-of-%05zu.safetensors", ++shard,
				 n_shards);
		for (size_t i = x->first; i < end; i++)
			buf_printf(&index, "%s\n    \"%s\": \"%s\"", i ? "," : "",
				   x->tensors[i].name, file);
		if (asprintf(&path, "%s/%s", x->dir, file) < 0) {
			r = err_set(e, ENOMEM, "%s: out of memory", x->dir);
			break;
		}
		r = safetensors_write(path, x->tensors + x->first, end - x->first, produce, x, e);
		free(path);
	}
	buf_puts(&index, "\n  }\n}\n");
	if (r == 0 && index.failed)
		r = err_set(e, ENOMEM, "%s: out of memory for the index", x->dir);
	if (r == 0 && n_shards > 1) {
		char *path;

		if (asprintf(&path, "%s/model.safetensors.index.json", x->dir) < 0) {
			r = err_set(e, ENOMEM, "%s: out of memory", x->dir);
		} else {
			r = file_write(path, index.data, index.len, e);
			free(path);
		}
	}
	buf_release(&index);
	return r;
}

/* config.json of the language model alone. */
static char *flat_config(const struct model_config *c, const char *config_json)
{
	json_t *top = json_loads(config_json, JSON_REJECT_DUPLICATES, NULL);
	json_t *text = json_object_get(top, "text_config"),
	       *eos = json_object_get(top, "eos_token_id");
	char *out = NULL;

	if (!json_is_object(text))
		text = top;
	if (!json_is_object(text))
		goto end;
	if (text != top && eos && !json_object_get(text, "eos_token_id"))
		json_object_set(text, "eos_token_id", eos);
	/* None of these can fail but for memory, which the dump below finds out. */
	json_object_set_new(text, "model_type", json_string(c->family->text_type));
	json_object_set_new(text, "architectures", json_pack("[s]", c->family->class_name));
	json_object_set_new(text, "dtype", json_string("bfloat16"));
	json_object_set_new(text, "tie_word_embeddings", json_boolean(c->tie_word_embeddings));
	json_object_del(text, "torch_dtype");
	json_object_del(text, "mtp_num_hidden_layers");
	json_object_del(text, "num_nextn_predict_layers");
	out = json_dumps(text, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
end:
	json_decref(top);
	return out;
}

static int make_directory(const char *dir, struct err *e)
{
	struct dirent *entry;
	DIR *d;

	if (mkdir(dir, 0777) == 0)
		return 0;
	if (errno != EEXIST)
		return err_set(e, errno, "%s: cannot create the directory: %s", dir,
			       strerror(errno));
	d = opendir(dir);
	if (!d)
		return err_set(e, errno, "%s: cannot open the directory: %s", dir, strerror(errno));
	do {
		entry = readdir(d);
	} while (entry && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")));
	closedir(d);
	return entry ? err_set(e, EEXIST, "%s: the directory is not empty", dir) : 0;
}

static int write_config(const char *dir, const char *config, struct err *e)
{
	char *path;
	int r;

	if (asprintf(&path, "%s/config.json", dir) < 0)
		return err_set(e, ENOMEM, "%s: out of memory", dir);
	r = file_write(path, config, strlen(config), e);
	free(path);
	return r;
}

int weights_export(const struct weights *w, const struct model_config *c, const char *config_json,
		   const char *out_dir, uint64_t shard_bytes, struct err *e)
{
	struct export x = {.w = w, .c = c, .table = weights_all(w), .dir = out_dir, .e = e};
	char *config;

	config = flat_config(c, config_json);
	if (!config)
		return err_set(e, EINVAL, "%s: config.json cannot be made from the given one",
			       out_dir);
	arena_init(&x.names, NAMES_MAX);
	list_model(&x);
	if (x.error == 0)
		x.error = make_directory(out_dir, e);
	if (x.error == 0)
		x.error = write_shards(&x, shard_bytes ? shard_bytes : SHARD_BYTES, e);
	/* Last: a directory with a config.json is a whole checkpoint. */
	if (x.error == 0)
		x.error = write_config(out_dir, config, e);
	arena_release(&x.names);
	free(x.tensors);
	free(x.items);
	free(config);
	return x.error;
}
