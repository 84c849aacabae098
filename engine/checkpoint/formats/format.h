/* A file format implements the calls of checkpoint.h. Its own struct begins with a struct checkpoint. */
#pragma once

#include "engine/checkpoint/checkpoint.h"

struct checkpoint_format {
	enum checkpoint_names names;
	/* Opens a checkpoint: new in *ret, but checkpoint_open sets `format`. -ENOTDIR, -EISDIR: the path may be of
	 * another format. */
	int (*open)(const char *path, struct checkpoint **ret, struct err *e);
	void (*close)(struct checkpoint *k);
	int (*read)(const struct checkpoint *k, enum checkpoint_part part,
		    struct checkpoint_text *ret, struct err *e);
	int (*tensors)(struct checkpoint *k, const struct tensor **ret, size_t *ret_n,
		       struct err *e);
	void (*forget)(const struct checkpoint *k, const void *data, size_t bytes);
	int (*files)(const struct checkpoint *k, checkpoint_visit *visit, void *user,
		     struct err *e);
	int (*copy_texts)(const struct checkpoint *k, const char *dir, struct err *e);
};

struct checkpoint {
	const struct checkpoint_format *format;
	char *path; /* owned by the format */
};

extern const struct checkpoint_format format_folder, format_gguf;
