/* What a file format implements. The calls are those of checkpoint.h; `self` is what open returned. */
#ifndef ENGINE_CHECKPOINT_FORMATS_FORMAT_H
#define ENGINE_CHECKPOINT_FORMATS_FORMAT_H

#include "engine/checkpoint/checkpoint.h"

struct checkpoint_format {
	/* -ENOTDIR, -EISDIR: something that another format may know. */
	int (*open)(const char *path, void **ret, struct err *e);
	void (*close)(void *self);
	int (*read)(void *self, enum checkpoint_part part, struct checkpoint_text *ret,
		    struct err *e);
	int (*tensors)(void *self, const struct tensor **ret, size_t *ret_n, struct err *e);
	int (*files)(void *self, checkpoint_visit *visit, void *user, struct err *e);
	int (*copy_texts)(void *self, const char *dir, struct err *e);
};

extern const struct checkpoint_format format_folder;

#endif
