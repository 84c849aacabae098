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
#include "engine/checkpoint/formats/safetensors.h"
#include "engine/checkpoint/layout.h"

#define SHARD_BYTES ((uint64_t)4 << 30)

enum { NAMES_MAX = 1 << 30, SMALL_FILE_MAX = 256 << 20 };

/* Where the numbers of a tensor come from. */
struct item {
	uint32_t expert; /* number of the expert, if the tensor belongs to one; else 0 */
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
	size_t n;
	size_t first; /* first item of the file that is being written */
	bool failed;  /* out of memory for a name */
};

/* ---- which tensors ---- */

static void list_tensor(void *user, const char *name, const struct layout *l, uint32_t expert)
{
	struct export *x = user;
	struct tensor *to = &x->tensors[x->n];

	*to = (struct tensor){.name = arena_strdup(&x->names, name),
			      .n_dims = l->n_dims,
			      .type = stored_type_find("BF16")};
	memcpy(to->shape, l->shape, sizeof(l->shape));
	to->bytes = stored_bytes(to->type, l->groups * l->stride * l->cols);
	x->failed |= !to->name;
	x->items[x->n++] = (struct item){.expert = expert, .layout = *l};
}

static int list_model(struct export *x, struct err *e)
{
	/* There is at most one tensor for each weight and expert. */
	size_t most = 0;

	for (size_t i = 0; i < (size_t)x->c->n_layers * WEIGHT_ROLES; i++)
		most += x->table[i].rows ? x->table[i].experts : 0;
	x->tensors = calloc(most, sizeof(*x->tensors));
	x->items = calloc(most, sizeof(*x->items));
	if (!x->tensors || !x->items)
		return err_set(e, ENOMEM, "%s: out of memory", x->dir);
	layout_each(&naming_transformers, x->c->family->sets, "model.", x->c, x->table, list_tensor,
		    x);
	return x->failed ? err_set(e, ENOMEM, "%s: out of memory", x->dir) : 0;
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

/* Returns the end of the run of tensors, from `first` on, that fit into one file; a file has at least one. */
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
	if (r == 0 && n_shards > 1)
		r = file_write_in(x->dir, "model.safetensors.index.json", index.data, index.len, e);
	buf_release(&index);
	return r;
}

/* Makes the text of config.json for the language model alone, which the caller frees. NULL: config_json is no object,
 * or out of memory. */
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
	if (text != top && eos && !json_object_get(text, "eos_token_id") &&
	    json_object_set(text, "eos_token_id", eos) < 0)
		goto end;
	if (json_object_set_new(text, "model_type", json_string(c->family->text_type)) < 0 ||
	    json_object_set_new(text, "architectures", json_pack("[s]", c->family->class_name)) <
		    0 ||
	    json_object_set_new(text, "dtype", json_string("bfloat16")) < 0 ||
	    json_object_set_new(text, "tie_word_embeddings", json_boolean(c->tie_word_embeddings)) <
		    0)
		goto end;
	json_object_del(text, "torch_dtype");
	json_object_del(text, "quantization_config");
	json_object_del(text, "compression_config");
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

int weights_export(const struct weights *w, const struct model_config *c, const char *config_json,
		   const char *out_dir, uint64_t shard_bytes, struct err *e)
{
	struct export x = {.w = w, .c = c, .table = weights_all(w), .dir = out_dir};
	char *config;
	int r;

	config = flat_config(c, config_json);
	if (!config)
		return err_set(
			e, EINVAL,
			"%s: config.json cannot be made: the given one is no JSON object, or "
			"memory is short",
			out_dir);
	arena_init(&x.names, NAMES_MAX);
	r = list_model(&x, e);
	if (r == 0)
		r = make_directory(out_dir, e);
	if (r == 0)
		r = write_shards(&x, shard_bytes ? shard_bytes : SHARD_BYTES, e);
	/* config.json is written last, so a directory that has one has all weights. */
	if (r == 0)
		r = file_write_in(out_dir, "config.json", config, strlen(config), e);
	arena_release(&x.names);
	free(x.tensors);
	free(x.items);
	free(config);
	return r;
}
