#include "engine/checkpoint/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/formats/format.h"

/* In the order in which they are tried. */
static const struct checkpoint_format *const formats[] = {&format_folder};

struct checkpoint {
	const struct checkpoint_format *format;
	void *self; /* the format's */
	char *path; /* owned */
};

void checkpoint_text_release(struct checkpoint_text *t)
{
	buf_release(&t->bytes);
}

int checkpoint_open(const char *path, struct checkpoint **ret, struct err *e)
{
	struct checkpoint *k = calloc(1, sizeof(*k));
	int r = -ENOTDIR;

	if (!k || !(k->path = strdup(path))) {
		free(k);
		return err_set(e, ENOMEM, "%s: out of memory", path);
	}
	for (size_t i = 0; i < ARRAY_SIZE(formats) && (r == -ENOTDIR || r == -EISDIR); i++) {
		k->format = formats[i];
		r = k->format->open(path, &k->self, e);
	}
	if (r < 0) {
		free(k->path);
		free(k);
		return r;
	}
	*ret = k;
	return 0;
}

void checkpoint_close(struct checkpoint *k)
{
	if (!k)
		return;
	k->format->close(k->self);
	free(k->path);
	free(k);
}

const char *checkpoint_path(const struct checkpoint *k)
{
	return k->path;
}

int checkpoint_read(const struct checkpoint *k, enum checkpoint_part part,
		    struct checkpoint_text *ret, struct err *e)
{
	*ret = (struct checkpoint_text){.name = ""};
	return k->format->read(k->self, part, ret, e);
}

int checkpoint_tensors(struct checkpoint *k, const struct tensor **ret, size_t *ret_n,
		       struct err *e)
{
	return k->format->tensors(k->self, ret, ret_n, e);
}

int checkpoint_files(const struct checkpoint *k, checkpoint_visit *visit, void *user, struct err *e)
{
	return k->format->files(k->self, visit, user, e);
}

int checkpoint_copy_texts(const struct checkpoint *k, const char *dir, struct err *e)
{
	return k->format->copy_texts(k->self, dir, e);
}
