/* A model as it lies on disk, whatever the file format: tensors with name, shape, stored type and bytes, and the texts
 * that come with them. All code that depends on a file format is in formats/.
 *
 * A format is a struct checkpoint_format (formats/format.h) and a row of the table in checkpoint.c. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "engine/checkpoint/tensor.h"

/* The texts of a model, in the forms that Hugging Face's files have. A format that stores the same data in another form
 * converts it. */
enum checkpoint_part {
	CHECKPOINT_CONFIG,	     /* config.json */
	CHECKPOINT_GENERATION,	     /* generation_config.json */
	CHECKPOINT_TOKENIZER,	     /* tokenizer.json */
	CHECKPOINT_TOKENIZER_CONFIG, /* tokenizer_config.json */
	CHECKPOINT_TEMPLATE,	     /* the chat template, in Jinja */
};

struct checkpoint_text {
	char name[512];	  /* name of the file, for messages */
	struct buf bytes; /* owned */
};
void checkpoint_text_release(struct checkpoint_text *t);

/* How tensors are named, and their numbers prepared: as in transformers' files, or as llama.cpp's converter does it
 * (families/gguf_names.c, model_config.h). */
enum checkpoint_names { CHECKPOINT_TRANSFORMERS, CHECKPOINT_GGUF };

struct checkpoint;

/* Opens the checkpoint at `path`; *ret is new. Nothing is read yet, so texts or tensors may be missing. -ENOENT,
 * -ENOTDIR or another errno: the sentence names the path. */
int checkpoint_open(const char *path, struct checkpoint **ret, struct err *e) MUST_CHECK;
void checkpoint_close(struct checkpoint *k);

/* Returns the path with which the checkpoint was opened, borrowed. */
const char *checkpoint_path(const struct checkpoint *k);

enum checkpoint_names checkpoint_names(const struct checkpoint *k);

/* Reads one text. The caller releases *ret, also after an error. -ENOENT: there is no such text. -EFBIG, -EINVAL or
 * another errno: the sentence names the file. */
int checkpoint_read(const struct checkpoint *k, enum checkpoint_part part,
		    struct checkpoint_text *ret, struct err *e) MUST_CHECK;

/* Lists all tensors, sorted by name. The first call maps the files and checks them. The list is borrowed until the
 * checkpoint is closed. -ENOENT: there are no tensors, or a file is missing; -EINVAL: a file is wrong; or another
 * errno. */
int checkpoint_tensors(struct checkpoint *k, const struct tensor **ret, size_t *ret_n,
		       struct err *e) MUST_CHECK;

/* Says that `bytes` bytes of a tensor's data were read and are not needed soon. The pages of the file that hold them
 * then soon leave the memory of this process; the system may keep them in its cache. The data may still be read
 * later. */
void checkpoint_forget(const struct checkpoint *k, const void *data, size_t bytes);

/* Visits every file that may decide the tensors' bytes: by its absolute path, and by its name inside the checkpoint,
 * which stays the same when the checkpoint is moved. A visitor's negative result ends the walk and is returned.
 * -ENOENT: there are no files. */
typedef int checkpoint_visit(void *user, const char *path, const char *name, struct err *e);
int checkpoint_files(const struct checkpoint *k, checkpoint_visit *visit, void *user,
		     struct err *e) MUST_CHECK;

/* Returns the header of a GGUF file (formats/gguf_file.h), of split files that of the first, which has all keys;
 * borrowed. NULL: the checkpoint is of another format. */
struct gguf_file;
const struct gguf_file *checkpoint_gguf(const struct checkpoint *k);

/* Copies the texts other than config.json (tokenizer, chat template, generation defaults) into a directory, as Hugging
 * Face's files. Texts that the checkpoint lacks are left out. Errors are those of reading and writing files. */
int checkpoint_copy_texts(const struct checkpoint *k, const char *dir, struct err *e) MUST_CHECK;
