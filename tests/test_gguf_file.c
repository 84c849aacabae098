/* engine/checkpoint/formats/gguf_file: a good file is read as it was written; each kind of wrong file is refused with its
 * sentence; changed files are read or refused. */
#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "tests/gguf_write.h"
#include "tests/random.h"
#include "tests/tap.h"

/* Writes a file with keys of every type and two tensors, tensor.y (at byte 0 of the data) and tensor.x (at byte 32). */
static void good(struct buf *file)
{
	static const uint8_t floats[24] = {1, 2, 3}, halves[32] = {4, 5, 6};
	static const int8_t minus = -5;
	static const int64_t large = -7000000000;
	static const uint64_t most = UINT64_MAX;
	static const double real = 0.1;
	struct gguf_out o;

	gguf_out_init(&o);
	gguf_put_text(&o, "text", "a\"\xc3\xa9");
	gguf_put_whole(&o, "general.alignment", 32);
	gguf_put_whole(&o, "whole", 4000000000u);
	gguf_put_real(&o, "real", 1e-6f);
	gguf_put_truth(&o, "truth", true);
	gguf_put_key(&o, "minus", GGUF_I8);
	buf_append(&o.keys, &minus, sizeof(minus));
	gguf_put_key(&o, "large", GGUF_I64);
	buf_append(&o.keys, &large, sizeof(large));
	gguf_put_key(&o, "most", GGUF_U64);
	buf_append(&o.keys, &most, sizeof(most));
	gguf_put_key(&o, "double", GGUF_F64);
	buf_append(&o.keys, &real, sizeof(real));
	gguf_put_array(&o, "truths", GGUF_BOOL, 3);
	buf_append(&o.keys, "\1\0\1", 3);
	gguf_put_array(&o, "texts", GGUF_STRING, 3);
	gguf_put_string(&o.keys, "one", 3);
	gguf_put_string(&o.keys, "", 0);
	gguf_put_string(&o.keys, "three", 5);
	gguf_put_array(&o, "nothing", GGUF_U16, 0);
	gguf_put_tensor(&o, "tensor.y", GGML_F32, 2, (uint64_t[]){3, 2}, floats, sizeof(floats));
	gguf_put_tensor(&o, "tensor.x", GGML_BF16, 3, (uint64_t[]){4, 2, 2}, halves,
			sizeof(halves));
	gguf_out_file(&o, file);
	gguf_out_release(&o);
}

static void is_json(const struct gguf_file *g, const char *name, const char *want)
{
	const struct gguf_key *k = gguf_find(g, name);
	json_t *v = k ? gguf_json(k) : NULL;
	char *text =
		v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;

	is_str(text ? text : "none", want, "%s", name);
	free(text);
	json_decref(v);
}

TEST(reads)
{
	struct gguf_file g;
	const uint8_t *at;
	const char *text;
	struct err e = {0};
	struct buf file;
	uint64_t n = 0;
	size_t len;

	buf_init(&file, GGUF_OUT_MAX);
	good(&file);
	is_int(gguf_file_read("f", file.data, file.len, &g, &e), 0, "a good file %s", e.text);
	is_int(g.n_keys, 12, "its keys");
	is_json(&g, "text", "\"a\\\"\xc3\xa9\"");
	is_json(&g, "whole", "4000000000");
	is_json(&g, "minus", "-5");
	is_json(&g, "large", "-7000000000");
	is_json(&g, "most", "none");
	is_json(&g, "real", "9.9999999747524271e-7");
	is_json(&g, "double", "0.10000000000000001");
	is_json(&g, "truth", "true");
	is_json(&g, "truths", "[true,false,true]");
	is_json(&g, "nothing", "[]");
	is_json(&g, "texts", "none");
	ok(gguf_find(&g, "none") == NULL, "a key that is not there");
	ok(gguf_whole(gguf_find(&g, "whole"), 0, &n) && n == 4000000000u &&
		   !gguf_whole(gguf_find(&g, "minus"), 0, &n) &&
		   !gguf_whole(gguf_find(&g, "real"), 0, &n),
	   "whole numbers");
	at = gguf_find(&g, "texts")->value;
	text = gguf_next_string(&at, &len);
	ok(len == 3 && !memcmp(text, "one", 3), "a first text");
	ok(gguf_next_string(&at, &len) && len == 0, "an empty one");
	text = gguf_next_string(&at, &len);
	ok(len == 5 && !memcmp(text, "three", 5), "and a third");
	if (ok(g.n_tensors == 2, "two tensors")) {
		const struct tensor *x = &g.tensors[0], *y = &g.tensors[1];

		ok(!strcmp(x->name, "tensor.x") && x->n_dims == 3 && x->shape[0] == 2 &&
			   x->shape[1] == 2 && x->shape[2] == 4 && x->bytes == 32 &&
			   !strcmp(x->type->name, "BF16") && !memcmp(x->data, "\4\5\6", 3),
		   "the first by name: its sizes are in the order of torch");
		ok(!strcmp(y->name, "tensor.y") && y->n_dims == 2 && y->shape[0] == 2 &&
			   y->shape[1] == 3 && y->bytes == 24 && !strcmp(y->type->name, "F32") &&
			   !memcmp(y->data, "\1\2\3", 3),
		   "and the second");
	}
	gguf_file_release(&g);
	buf_release(&file);
}

/* Returns the place of the first byte behind a name in the file. */
static size_t behind(const struct buf *file, const char *name)
{
	size_t n = strlen(name);
	char *p = memmem(file->data, file->len, name, n);

	if (!p) {
		printf("Bail out! no %s\n", name);
		exit(1);
	}
	return (size_t)(p - file->data) + n;
}

/* Reads the good file with `n` bytes of it replaced, `at` bytes behind a name (NULL: the file's beginning), and cut to
 * `len` bytes (0: not at all). Expects a sentence. */
static void refuses(const char *name, ptrdiff_t at, const void *bytes, size_t n, size_t len,
		    int error, const char *sentence)
{
	struct gguf_file g;
	struct err e = {0};
	struct buf file;

	buf_init(&file, GGUF_OUT_MAX);
	good(&file);
	memcpy(file.data + (name ? (ptrdiff_t)behind(&file, name) : 0) + at, bytes, n);
	is_int(gguf_file_read("f", file.data, len ? len : file.len, &g, &e), error, "refused");
	is_str(e.text, sentence, "says so");
	gguf_file_release(&g);
	buf_release(&file);
}

#define U64(v) (&(uint64_t){v}), 8
#define U32(v) (&(uint32_t){v}), 4

/* Places behind a tensor's name; the last two are those of a tensor of n dimensions. */
#define N_DIMS	  0
#define NE(i)	  (4 + 8 * (i))
#define TYPE(n)	  NE(n)
#define OFFSET(n) (NE(n) + 4)

TEST(refuses)
{
	refuses(NULL, 0, "GGUG", 4, 0, -EINVAL, "f: not a GGUF file");
	refuses(NULL, 0, "G", 1, 3, -EINVAL, "f: not a GGUF file");
	refuses(NULL, 0, "G", 1, 23, -EINVAL, "f: the file ends within its header at byte 16");
	refuses(NULL, 4, U32(2), 0, -EINVAL, "f: GGUF version 2, but only version 3 is known");
	refuses(NULL, 4, U32(3 << 24), 0, -EINVAL,
		"f: GGUF version 50331648, but only version 3 is known");
	refuses(NULL, 8, U64(UINT64_MAX), 0, -EINVAL,
		"f: more than 1048576 tensors are announced at byte 362");
	refuses(NULL, 8, U64(3), 0, -EINVAL,
		"f: a name that is empty, or longer than 255 characters at byte 474");
	refuses(NULL, 16, U64(UINT64_MAX), 0, -EINVAL,
		"f: more than 65536 keys are announced at byte 24");
	refuses(NULL, 24, U64(UINT64_MAX), 0, -EINVAL,
		"f: a name that is empty, or longer than 255 characters at byte 32");
	refuses("text", -1, "\n", 1, 0, -EINVAL,
		"f: a name that is not printable ASCII at byte 32");
	refuses("minus", -5, "whole", 5, 0, -EINVAL, "f: key whole is there twice");
	refuses("whole", 0, U32(13), 0, -EINVAL,
		"f: key whole has the type 13, which is not known");
	refuses("truths", 4, U32(9), 0, -EINVAL,
		"f: key truths has elements of type 9, which is not known");
	refuses("text", 4, U64(UINT64_MAX), 0, -EINVAL, "f: key text does not end inside the file");
	refuses("truths", 8, U64(UINT64_MAX), 0, -EINVAL,
		"f: key truths does not end inside the file");
	refuses("nothing", 8, U64(UINT64_MAX), 0, -EINVAL,
		"f: key nothing does not end inside the file");
	refuses("nothing", 8, U64(1ull << 63), 0, -EINVAL,
		"f: key nothing does not end inside the file");
	refuses("texts", 8, U64(1ull << 60), 0, -EINVAL,
		"f: key texts does not end inside the file");
	refuses("texts", 16, U64(1ull << 60), 0, -EINVAL,
		"f: key texts does not end inside the file");
	refuses("truth", 4, "\2", 1, 0, -EINVAL,
		"f: key truth is a truth value other than 0 and 1");
	refuses("general.alignment", 4, U32(0), 0, -EINVAL,
		"f: key general.alignment is no power of two up to 1048576");
	refuses("general.alignment", 4, U32(48), 0, -EINVAL,
		"f: key general.alignment is no power of two up to 1048576");
	refuses("general.alignment", 4, U32(1u << 31), 0, -EINVAL,
		"f: key general.alignment is no power of two up to 1048576");
	refuses("general.alignment", 0, U32(GGUF_F32), 0, -EINVAL,
		"f: key general.alignment is no power of two up to 1048576");

	refuses("tensor.y", N_DIMS, U32(0), 0, -EINVAL,
		"f: tensor tensor.y has 0 dimensions, not 1 to 4");
	refuses("tensor.y", N_DIMS, U32(5), 0, -EINVAL,
		"f: tensor tensor.y has 5 dimensions, not 1 to 4");
	refuses("tensor.y", NE(0), U64(0), 0, -EINVAL, "f: tensor tensor.y has a dimension of 0");
	refuses("tensor.y", NE(1), U64(0), 0, -EINVAL, "f: tensor tensor.y has a dimension of 0");
	refuses("tensor.y", NE(0), U64(1ull << 63), 0, -EINVAL,
		"f: tensor tensor.y has more elements than can be counted");
	refuses("tensor.y", NE(0), U64(1ull << 62), 0, -EINVAL,
		"f: tensor tensor.y is larger than the file");
	refuses("tensor.y", NE(0), U64(1000), 0, -EINVAL,
		"f: tensor tensor.y is larger than the file");
	refuses("tensor.y", NE(0), U64(5), 0, -EINVAL,
		"f: tensor tensor.x overlaps tensor tensor.y");
	refuses("tensor.y", TYPE(2), U32(99), 0, -EINVAL,
		"f: tensor tensor.y has type 99, which is not known");
	refuses("tensor.y", TYPE(2), U32(4), 0, -EINVAL,
		"f: tensor tensor.y has type 4, which is not known");
	refuses("tensor.y", TYPE(2), U32(12), 0, -EINVAL,
		"f: tensor tensor.y has rows that are no multiple of 256 elements, the block of "
		"Q4_K");
	refuses("tensor.y", OFFSET(2), U64(16), 0, -EINVAL,
		"f: tensor tensor.y begins at byte 16 of the data, which is no multiple of 32");
	refuses("tensor.y", OFFSET(2), U64(32), 0, -EINVAL,
		"f: tensor tensor.y overlaps tensor tensor.x");
	refuses("tensor.y", OFFSET(2), U64(64), 0, -EINVAL,
		"f: tensor tensor.y does not lie inside the file");
	refuses("tensor.y", OFFSET(2), U64(UINT64_MAX - 31), 0, -EINVAL,
		"f: tensor tensor.y does not lie inside the file");
	refuses("tensor.x", -1, "y", 1, 0, -EINVAL, "f: tensor tensor.y is there twice");
}

/* A file that ends too early is refused, wherever it ends. */
TEST(cut)
{
	struct gguf_file g;
	struct err e = {0};
	struct buf file;

	buf_init(&file, GGUF_OUT_MAX);
	good(&file);
	for (size_t i = 0; i < file.len; i++) {
		char *part =
			malloc(i + 1); /* alone, so that sanitizers see what is read behind it */

		memcpy(part, file.data, i);
		check(gguf_file_read("f", part, i, &g, &e) == -EINVAL && e.text[0]);
		gguf_file_release(&g);
		free(part);
	}
	ok_all("%zu files that end too early", file.len);
	buf_release(&file);
}

/* Reads all that an accepted file promises. */
static size_t use(const struct gguf_file *g)
{
	size_t sum = 0, len;

	for (size_t i = 0; i < g->n_keys; i++) {
		const struct gguf_key *k = &g->keys[i];
		const uint8_t *at = k->value;

		json_decref(gguf_json(k));
		for (uint64_t j = 0; k->type == GGUF_STRING && j < k->n; j++) {
			const char *text = gguf_next_string(&at, &len);

			while (len-- > 0)
				sum += (unsigned char)text[len];
		}
	}
	for (size_t i = 0; i < g->n_tensors; i++)
		for (size_t j = 0; j < g->tensors[i].bytes; j++)
			sum += ((const uint8_t *)g->tensors[i].data)[j];
	return sum;
}

TEST(changed)
{
	static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff};
	uint32_t accepted = 0;
	struct buf file;

	random_state = 1;
	for (uint32_t i = 0; i < 300; i++) {
		struct gguf_file g;
		struct err e = {0};
		size_t n = 1 + random_below(3);
		int r;

		buf_init(&file, GGUF_OUT_MAX);
		good(&file);
		while (n-- > 0)
			file.data[random_below(file.len)] = (char)odd[random_below(sizeof(odd))];
		r = gguf_file_read("f", file.data, file.len, &g, &e);
		check(r == 0 || (e.text[0] && e.code == -r));
		if (r == 0)
			use(&g);
		accepted += r == 0;
		gguf_file_release(&g);
		buf_release(&file);
	}
	ok_all("300 changed files: %u are read, the others refused", accepted);
	check(accepted > 30 && accepted < 270);
	ok_all("both happens often");
}

TEST_MAIN()
