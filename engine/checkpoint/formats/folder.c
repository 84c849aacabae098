/* A Hugging Face folder: config.json and other texts beside files of safetensors. A missing file is an error only
 * when it is read, so that a folder with only a tokenizer, or only a configuration, is a checkpoint too. */
#include "engine/checkpoint/formats/format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "engine/checkpoint/formats/safetensors.h"

enum { MIB = 1 << 20 };

struct folder {
	struct checkpoint base;
	int fd;
	struct safetensors *weights; /* owned, NULL until they are first read */
};

/* The limits are far above the sizes of known files: a tokenizer.json may have tens of megabytes. */
static const struct {
	const char *name;
	size_t max; /* bytes */
} texts[] = {
	[CHECKPOINT_CONFIG] = {"config.json", 4 * MIB},
	[CHECKPOINT_GENERATION] = {"generation_config.json", 4 * MIB},
	[CHECKPOINT_TOKENIZER] = {"tokenizer.json", 256 * MIB},
	[CHECKPOINT_TOKENIZER_CONFIG] = {"tokenizer_config.json", 64 * MIB},
	[CHECKPOINT_TEMPLATE] = {"chat_template.jinja", 16 * MIB},
};
static int folder_open(const char *path, struct checkpoint **ret, struct err *e)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct folder *f;

	if (fd < 0)
		return err_set(e, errno, "%s: cannot open the directory: %s", path,
			       strerror(errno));
	f = calloc(1, sizeof(*f));
	if (f)
		f->base.path = strdup(path);
	if (!f || !f->base.path) {
		close(fd);
		free(f);
		return err_set(e, ENOMEM, "%s: out of memory", path);
	}
	f->fd = fd;
	*ret = &f->base;
	return 0;
}

static void folder_close(struct checkpoint *k)
{
	struct folder *f = (struct folder *)k;

	safetensors_close(f->weights);
	close(f->fd);
	free(k->path);
	free(f);
}

/* ---- texts ---- */

static int read_file(const struct folder *f, const char *name, size_t max,
		     struct checkpoint_text *ret, struct err *e)
{
	struct stat link;
	int r;

	checkpoint_text_release(ret);
	snprintf(ret->name, sizeof(ret->name), "%s/%s", f->base.path, name);
	buf_init(&ret->bytes, max + 1);
	r = file_read(f->fd, name, ret->name, &ret->bytes, e);
	/* A link to a file that is gone, as a download of Hugging Face's hub leaves it when it was cut off, does not count
	 * as absent: without the file the model may answer otherwise. */
	if (r == -ENOENT && fstatat(f->fd, name, &link, AT_SYMLINK_NOFOLLOW) == 0)
		return err_set(e, EINVAL, "%s: the link leads to no file", ret->name);
	return r;
}

static int read_text(const struct folder *f, enum checkpoint_part part, struct checkpoint_text *ret,
		     struct err *e)
{
	return read_file(f, texts[part].name, texts[part].max, ret, e);
}

/* Returns the template in the value of "chat_template": the value itself if it is no list, else the template in the
 * list's entry "default". NULL: there is none. */
static const json_t *default_template(const json_t *v)
{
	const json_t *item;
	size_t i;

	if (!json_is_array(v))
		return v;
	json_array_foreach(v, i, item)
	{
		const char *name = json_string_value(json_object_get(item, "name"));

		if (name && !strcmp(name, "default"))
			return json_object_get(item, "template");
	}
	return NULL;
}

/* Reads tokenizer_config.json into ret. *ret_config is its JSON object, new. -ENOENT: there is no such file. */
static int read_tokenizer_config(const struct folder *f, struct checkpoint_text *ret,
				 json_t **ret_config, struct err *e)
{
	json_error_t why;
	json_t *config;
	int r = read_text(f, CHECKPOINT_TOKENIZER_CONFIG, ret, e);

	if (r < 0)
		return r;
	/* Many of these files have a model_max_length of 10^30, which is no integer of 64 bits. */
	config = json_loadb(buf_str(&ret->bytes), ret->bytes.len, JSON_DECODE_INT_AS_REAL, &why);
	if (!config)
		return err_set(e, EINVAL, "%s: %s", ret->name,
			       ret->bytes.len ? why.text : "the file is empty");
	if (!json_is_object(config)) {
		json_decref(config);
		return err_set(e, EINVAL, "%s: not a JSON object", ret->name);
	}
	*ret_config = config;
	return 0;
}

/* Reads the chat template of older models, which is a value in tokenizer_config.json. -ENOENT: there is no such value,
 * or no such file. */
static int read_config_template(const struct folder *f, struct checkpoint_text *ret, struct err *e)
{
	const json_t *text;
	json_t *config;
	int r = read_tokenizer_config(f, ret, &config, e);

	if (r < 0)
		return r;
	text = default_template(json_object_get(config, "chat_template"));
	buf_reset(&ret->bytes);
	if (!json_is_string(text)) {
		r = err_set(e, ENOENT, "%s: the model has no chat template", ret->name);
	} else {
		buf_append(&ret->bytes, json_string_value(text), json_string_length(text));
		r = ret->bytes.failed ? err_set(e, ENOMEM, "%s: out of memory", ret->name) : 0;
	}
	json_decref(config);
	return r;
}

/* Checks tokenizer_config.json when the template has a file of its own. Nothing is taken from tokenizer_config.json
 * then. But if that file is there and is no JSON object, it is an error: the folder may not have been copied whole. */
static int check_tokenizer_config(const struct folder *f, struct err *e)
{
	struct checkpoint_text text = {0};
	json_t *config = NULL;
	int r = read_tokenizer_config(f, &text, &config, e);

	json_decref(config);
	checkpoint_text_release(&text);
	return r == -ENOENT ? 0 : r;
}

/* Reads the chat template. An empty one is refused: every chat would have the same prompt, without its messages. */
static int read_template(const struct folder *f, struct checkpoint_text *ret, struct err *e)
{
	int r = read_text(f, CHECKPOINT_TEMPLATE, ret, e);
	const char *text;

	if (r == -ENOENT)
		r = read_config_template(f, ret, e);
	else if (r == 0)
		r = check_tokenizer_config(f, e);
	if (r < 0)
		return r;
	text = buf_str(&ret->bytes);
	return text[strspn(text, " \t\r\n")]
		       ? 0
		       : err_set(e, EINVAL, "%s: the chat template is empty", ret->name);
}

static int folder_read(const struct checkpoint *k, enum checkpoint_part part,
		       struct checkpoint_text *ret, struct err *e)
{
	const struct folder *f = (const struct folder *)k;

	return part == CHECKPOINT_TEMPLATE ? read_template(f, ret, e) : read_text(f, part, ret, e);
}

static int folder_copy_texts(const struct checkpoint *k, const char *dir, struct err *e)
{
	static const char *const names[] = {
		"tokenizer.json",
		"tokenizer_config.json",
		"special_tokens_map.json",
		"vocab.json",
		"merges.txt",
		"chat_template.jinja",
		"chat_template.json",
		"generation_config.json",
	};
	struct checkpoint_text text = {0};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++) {
		r = read_file((const struct folder *)k, names[i], 256 * MIB, &text, e);
		if (r == -ENOENT)
			r = 0;
		else if (r == 0)
			r = file_write_in(dir, names[i], buf_str(&text.bytes), text.bytes.len, e);
	}
	checkpoint_text_release(&text);
	return r;
}

/* ---- weights ---- */

static int folder_tensors(struct checkpoint *k, const struct tensor **ret, size_t *ret_n,
			  struct err *e)
{
	struct folder *f = (struct folder *)k;
	int r = f->weights ? 0 : safetensors_open(f->base.path, &f->weights, e);

	if (r == 0)
		*ret = safetensors_list(f->weights, ret_n);
	return r;
}

static void folder_forget(const struct checkpoint *k, const void *data, size_t bytes)
{
	const struct folder *f = (const struct folder *)k;

	safetensors_forget(f->weights, data, bytes);
}

/* Visits the index and all files of tensors, also files that the index does not name. If such an unused file changes,
 * the cache's identity changes too, which only means that items stored before are not found. */
static int folder_files(const struct checkpoint *k, checkpoint_visit *visit, void *user,
			struct err *e)
{
	char *real = realpath(k->path, NULL), *path;
	DIR *stream = real ? opendir(real) : NULL;
	struct dirent *entry;
	bool any = false;
	int r = 0;

	if (!stream) {
		r = err_set(e, errno, "%s: cannot read: %s", k->path, strerror(errno));
		free(real);
		return r;
	}
	while (r == 0 && (entry = readdir(stream))) {
		if (!name_ends_in(entry->d_name, ".safetensors") &&
		    !name_ends_in(entry->d_name, ".safetensors.index.json"))
			continue;
		any = true;
		if (asprintf(&path, "%s/%s", real, entry->d_name) < 0) {
			r = err_set(e, ENOMEM, "%s: out of memory", k->path);
			break;
		}
		r = visit(user, path, entry->d_name, e);
		free(path);
	}
	closedir(stream);
	if (r == 0 && !any)
		r = err_set(e, ENOENT, "%s: there are no weights", real);
	free(real);
	return r;
}

const struct checkpoint_format format_folder = {
	.names = CHECKPOINT_TRANSFORMERS,
	.open = folder_open,
	.close = folder_close,
	.read = folder_read,
	.tensors = folder_tensors,
	.forget = folder_forget,
	.files = folder_files,
	.copy_texts = folder_copy_texts,
};
