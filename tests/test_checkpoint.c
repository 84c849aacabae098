/*
 * engine/checkpoint: a Hugging Face folder gives its texts, its tensors and the names of the files that decide the
 * tensors, each only when it is asked for.
 */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/formats/safetensors.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static struct checkpoint *open_scratch(void)
{
	struct checkpoint *k = NULL;
	struct err e = {0};

	ok(checkpoint_open(scratch_dir, &k, &e) == 0, "opens %s", e.text);
	return k;
}

static void write_text(const char *name, const char *text)
{
	scratch_write(name, text, strlen(text));
}

/* Reads a text. Checks that its bytes are `want` and its file is `name`, or that it fails with `error` and says `want`
 * behind the folder's name. */
static void expect(struct checkpoint *k, enum checkpoint_part part, int error, const char *name,
		   const char *want, const char *what)
{
	struct checkpoint_text text;
	struct err e = {0};
	int r = checkpoint_read(k, part, &text, &e);

	is_int(r, error, "%s", what);
	if (r < 0) {
		is_str(e.text + strlen(scratch_dir), want, "says so");
	} else {
		is_str(buf_str(&text.bytes), want, "its bytes");
		is_str(text.name, scratch_path(name), "and its name");
	}
	checkpoint_text_release(&text);
}

TEST(texts)
{
	struct checkpoint *k = open_scratch();

	expect(k, CHECKPOINT_CONFIG, -ENOENT, NULL,
	       "/config.json: cannot open: No such file or directory", "no configuration");
	expect(k, CHECKPOINT_TOKENIZER, -ENOENT, NULL,
	       "/tokenizer.json: cannot open: No such file or directory", "no tokenizer");
	expect(k, CHECKPOINT_TEMPLATE, -ENOENT, NULL,
	       "/tokenizer_config.json: cannot open: No such file or directory", "no template");
	write_text("config.json", "{}");
	expect(k, CHECKPOINT_CONFIG, 0, "config.json", "{}", "a configuration");
	mkdir(scratch_path("tokenizer.json"), 0777);
	expect(k, CHECKPOINT_TOKENIZER, -EINVAL, NULL, "/tokenizer.json: not a regular file",
	       "a directory in a file's place");
	remove(scratch_path("tokenizer.json"));
	check(symlink("gone", scratch_path("generation_config.json")) == 0);
	expect(k, CHECKPOINT_GENERATION, -EINVAL, NULL,
	       "/generation_config.json: the link leads to no file",
	       "a link to a file that is gone is not absent");
	remove(scratch_path("generation_config.json"));

	write_text("tokenizer_config.json", "{\"bos_token\": \"x\"}");
	expect(k, CHECKPOINT_TEMPLATE, -ENOENT, NULL,
	       "/tokenizer_config.json: the model has no chat template",
	       "a tokenizer's configuration without a template");
	write_text("tokenizer_config.json", "{\"chat_template\": \"one\\n\"}");
	expect(k, CHECKPOINT_TEMPLATE, 0, "tokenizer_config.json", "one\n",
	       "a template in the tokenizer's configuration");
	write_text("tokenizer_config.json",
		   "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"},"
		   " {\"name\": \"default\", \"template\": \"d\"}]}");
	expect(k, CHECKPOINT_TEMPLATE, 0, "tokenizer_config.json", "d",
	       "the default one of several");
	write_text(
		"tokenizer_config.json",
		"{\"model_max_length\": 1000000000000000019884624838656, \"chat_template\": \"t\"}");
	expect(k, CHECKPOINT_TEMPLATE, 0, "tokenizer_config.json", "t",
	       "beside a number of more than 64 bits");
	write_text("tokenizer_config.json", "{\"bos_token\": \"x\"}");
	expect(k, CHECKPOINT_TOKENIZER_CONFIG, 0, "tokenizer_config.json", "{\"bos_token\": \"x\"}",
	       "the tokenizer's configuration itself");
	write_text("tokenizer_config.json", "{\"chat_template\": [");
	expect(k, CHECKPOINT_TEMPLATE, -EINVAL, NULL,
	       "/tokenizer_config.json: ']' expected near end of file", "a broken configuration");
	write_text("chat_template.jinja", "file");
	expect(k, CHECKPOINT_TEMPLATE, -EINVAL, NULL,
	       "/tokenizer_config.json: ']' expected near end of file",
	       "a broken configuration beside a template");
	write_text("tokenizer_config.json", "");
	expect(k, CHECKPOINT_TEMPLATE, -EINVAL, NULL, "/tokenizer_config.json: the file is empty",
	       "an empty one");
	write_text("tokenizer_config.json", "[]");
	expect(k, CHECKPOINT_TEMPLATE, -EINVAL, NULL, "/tokenizer_config.json: not a JSON object",
	       "one that is no object");
	remove(scratch_path("tokenizer_config.json"));
	check(mkfifo(scratch_path("tokenizer_config.json"), 0600) == 0);
	expect(k, CHECKPOINT_TEMPLATE, -EINVAL, NULL, "/tokenizer_config.json: not a regular file",
	       "a FIFO, which is not waited for");
	remove(scratch_path("tokenizer_config.json"));
	expect(k, CHECKPOINT_TEMPLATE, 0, "chat_template.jinja", "file",
	       "a template in a file of its own needs no configuration");
	write_text("tokenizer_config.json", "{\"chat_template\": \"one\\n\"}");
	expect(k, CHECKPOINT_TEMPLATE, 0, "chat_template.jinja", "file",
	       "and comes before one in the configuration");
	write_text("chat_template.jinja", " \n\t");
	expect(k, CHECKPOINT_TEMPLATE, -EINVAL, NULL,
	       "/chat_template.jinja: the chat template is empty", "an empty template");
	checkpoint_close(k);
}

static int produce(size_t index, void *data, void *user, struct err *e)
{
	memset(data, 'x', 4);
	return 0;
}

/* Adds the length of a file's name inside the folder to *user. */
static int note(void *user, const char *path, const char *name, struct err *e)
{
	size_t *sum = user;

	check(path[0] == '/' && !strcmp(path + strlen(path) - strlen(name), name));
	*sum += strlen(name);
	return 0;
}

TEST(weights)
{
	static const char index[] = "model.safetensors.index.json";
	struct tensor one = {.name = "x",
			     .bytes = 4,
			     .shape = {2},
			     .n_dims = 1,
			     .type = stored_type_find("BF16")};
	struct checkpoint *k = open_scratch();
	const struct tensor *list = NULL;
	struct err e = {0};
	size_t n = 0, sum = 0;

	is_int(checkpoint_tensors(k, &list, &n, &e), -ENOENT, "no tensors");
	is_int(checkpoint_files(k, note, &sum, &e), -ENOENT, "no files of them: %s", e.text);
	check(safetensors_write(scratch_path("a.safetensors"), &one, 1, produce, NULL, &e) == 0);
	if (ok(checkpoint_tensors(k, &list, &n, &e) == 0 && n == 1, "a tensor %s", e.text))
		ok(tensor_find(list, n, "x") == list && !memcmp(list->data, "xxxx", 4) &&
			   list->type == one.type,
		   "is what was written");
	write_text(index, "{}");
	write_text("a.safetensors.txt", "no");
	is_int(checkpoint_files(k, note, &sum, &e), 0, "the files");
	is_int(sum, strlen("a.safetensors") + strlen(index), "are weights and index");
	checkpoint_close(k);
}

TEST(open)
{
	struct checkpoint *k;
	struct err e = {0};

	is_int(checkpoint_open("/nonexistent/model", &k, &e), -ENOENT, "no folder");
	is_str(e.text, "/nonexistent/model: cannot open: No such file or directory", "says so");
	is_int(checkpoint_open(scratch_path("config.json"), &k, &e), -EINVAL,
	       "a file that is no format's");
	is_str(e.text + strlen(scratch_dir), "/config.json: neither a directory nor a GGUF file",
	       "says so");
}

TEST_MAIN()
