#include "engine/checkpoint/checkpoint.h"

#include <errno.h>

#include "base/macros.h"
#include "engine/checkpoint/formats/format.h"

/* The formats, in the order in which they are tried. */
static const struct checkpoint_format *const formats[] = {&format_gguf, &format_folder};

void checkpoint_text_release(struct checkpoint_text *t)
{
	buf_release(&t->bytes);
}

int checkpoint_open(const char *path, struct checkpoint **ret, struct err *e)
{
	struct err why = {0};
	int r = -ENOTDIR;

	for (size_t i = 0; i < ARRAY_SIZE(formats) && (r == -ENOTDIR || r == -EISDIR); i++) {
		r = formats[i]->open(path, ret, &why);
		if (r == 0)
			(*ret)->format = formats[i];
	}
	if (r < 0 && e)
		*e = why;
	return r;
}

void checkpoint_close(struct checkpoint *k)
{
	if (k)
		k->format->close(k);
}

const char *checkpoint_path(const struct checkpoint *k)
{
	return k->path;
}

enum checkpoint_names checkpoint_names(const struct checkpoint *k)
{
	return k->format->names;
}

int checkpoint_read(const struct checkpoint *k, enum checkpoint_part part,
		    struct checkpoint_text *ret, struct err *e)
{
	*ret = (struct checkpoint_text){.name = ""};
	return k->format->read(k, part, ret, e);
}

int checkpoint_tensors(struct checkpoint *k, const struct tensor **ret, size_t *ret_n,
		       struct err *e)
{
	return k->format->tensors(k, ret, ret_n, e);
}

void checkpoint_forget(const struct checkpoint *k, const void *data, size_t bytes)
{
	k->format->forget(k, data, bytes);
}

int checkpoint_files(const struct checkpoint *k, checkpoint_visit *visit, void *user, struct err *e)
{
	return k->format->files(k, visit, user, e);
}

int checkpoint_copy_texts(const struct checkpoint *k, const char *dir, struct err *e)
{
	return k->format->copy_texts(k, dir, e);
}
