/* GGUF files as checkpoints: a model converted to GGUF has the configuration, the tokenizer, the template and the weights
 * of the model in Hugging Face's files; split files, directories; weights that do not fit; changed files.
 *
 * By hand: `test_gguf FOLDER FILE [MTP]` compares the model of a folder with a GGUF file that another program made of it;
 * MTP: the number of layers of multi-token prediction in the file. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/ids.h"
#include "engine/checkpoint/families/family.h"
#include "engine/checkpoint/weights.h"
#include "engine/layers/weights.h"
#include "tests/gguf_convert.h"
#include "tests/gguf_write.h"
#include "tests/model_text.h"
#include "tests/random.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static const char lexis[] = "models/lexis";
static char start[4096]; /* the directory in which the test began */

static bool convert(const char *from, const char *name, const struct gguf_conversion *how)
{
	return ok(gguf_convert(from, scratch_path(name), how), "%s becomes %s", from, name);
}

/* ---- configurations ---- */

/* Checks that a GGUF file has the configuration of a folder, but for what converters do to weights. */
static void same_config(const char *folder, const char *path, uint32_t n_mtp)
{
	struct model_config a, b;
	struct err e = {0};

	if (!ok(model_config_open(folder, &a, &e) == 0 && model_config_open(path, &b, &e) == 0,
		"configurations %s", e.text))
		return;
	ok(!b.norm_adds_one && b.stores_neg_a == (a.n_layers_of[LAYER_DELTA] > 0) &&
		   b.tiled_heads == (a.family != &family_qwen3_next && a.family != &family_qwen3 &&
				     a.n_key_heads > 1 && a.n_value_heads != a.n_key_heads),
	   "what the converter has done");
	b.norm_adds_one = a.norm_adds_one;
	b.stores_neg_a = a.stores_neg_a;
	b.tiled_heads = a.tiled_heads;
	ok(b.n_mtp_layers == n_mtp, "layers of multi-token prediction");
	b.n_mtp_layers = a.n_mtp_layers;
	/* lexis has one end token, and GGUF files tell no more than that <|endoftext|> is a control token */
	b.n_end_tokens = a.n_end_tokens;
	memcpy(b.end_tokens, a.end_tokens, sizeof(a.end_tokens));
	ok(!memcmp(&a, &b, sizeof(a)), "the rest is that of %s", folder);
}

/* ---- weights ---- */

static int open_weights(const char *path, struct checkpoint **k, struct model_config *c,
			struct weights **w, struct err *e)
{
	struct weight *table = NULL;
	int r = checkpoint_open(path, k, e);

	if (r < 0)
		return r;
	r = model_config_read(*k, c, e);
	if (r == 0)
		table = layers_weights(c);
	if (r == 0)
		r = weights_open(*k, c, table, w, e);
	free(table);
	if (r < 0)
		checkpoint_close(*k);
	return r;
}

/* Returns the row of a folder's weight that is row i of the GGUF file's, whose value heads may be in turn. */
static uint64_t row_of(const struct model_config *c, enum weight_role role, uint64_t i)
{
	uint64_t keys = 2ull * c->n_key_heads * c->key_head_dim, size = c->value_head_dim,
		 first = 0;
	uint64_t place, r;

	if (role == WEIGHT_DELTA_QKV || role == WEIGHT_DELTA_CONV)
		first = keys;
	else if (role == WEIGHT_DELTA_B || role == WEIGHT_DELTA_A)
		size = 1;
	else if (role != WEIGHT_DELTA_Z)
		return i;
	if (!c->tiled_heads || i < first)
		return i;
	place = (i - first) / size;
	r = c->n_value_heads / c->n_key_heads;
	return first + (place % c->n_key_heads * r + place / c->n_key_heads) * size +
	       (i - first) % size;
}

/* Brings a folder's row into the form of the GGUF file's. */
static void as_gguf(const struct model_config *c, const struct weight *w, bool adds_one, float *row)
{
	uint64_t size = w->role == WEIGHT_DELTA_OUT ? c->value_head_dim : 1;
	uint64_t r = c->n_key_heads ? c->n_value_heads / c->n_key_heads : 1;
	static float copy[4096];

	if (c->tiled_heads && (w->role == WEIGHT_DELTA_OUT || w->role == WEIGHT_DELTA_A_LOG ||
			       w->role == WEIGHT_DELTA_DT_BIAS)) {
		memcpy(copy, row, w->cols * sizeof(*row));
		for (uint64_t i = 0; i < w->cols; i++) {
			uint64_t place = i / size;

			row[i] = copy[(place % c->n_key_heads * r + place / c->n_key_heads) * size +
				      i % size];
		}
	}
	for (uint64_t i = 0; i < w->cols; i++)
		if (w->role == WEIGHT_DELTA_A_LOG)
			row[i] = -expf(row[i]);
		else if (adds_one &&
			 (w->role == WEIGHT_FINAL_NORM || w->role == WEIGHT_INPUT_NORM ||
			  w->role == WEIGHT_POST_NORM || w->role == WEIGHT_MIXER_NORM ||
			  w->role == WEIGHT_MLP_NORM || w->role == WEIGHT_ATTN_Q_NORM ||
			  w->role == WEIGHT_ATTN_K_NORM))
			row[i] += 1;
}

/* Of exp(A_log) another program may have other last bits. */
static bool same_row(const struct weight *w, const float *x, const float *y)
{
	bool same = true;

	if (w->role != WEIGHT_DELTA_A_LOG)
		return !memcmp(x, y, w->cols * sizeof(*x));
	for (uint64_t i = 0; i < w->cols; i++)
		same = same && fabsf(x[i] - y[i]) <= 1e-6f * fabsf(x[i]);
	return same;
}

/* Checks that a GGUF file has the weights of a folder. */
static void same_weights(const char *folder, const char *path)
{
	struct checkpoint *ka, *kb;
	struct model_config a, b;
	struct weights *wa, *wb;
	static float x[4096], y[4096];
	struct err e = {0};
	uint64_t rows = 0;

	if (!ok(open_weights(folder, &ka, &a, &wa, &e) == 0, "%s", e.text))
		return;
	if (!ok(open_weights(path, &kb, &b, &wb, &e) == 0, "%s has the weights %s", path, e.text))
		return;
	for (uint32_t layer = 0; layer < a.n_layers; layer++)
		for (int role = 0; role < WEIGHT_ROLES; role++) {
			const struct weight *w = weights_find(wa, role, layer);

			for (uint32_t i = 0; w && i < w->experts; i++)
				for (uint64_t k = 0; k < w->rows; k++, rows++) {
					weights_row(wa, role, layer, i, row_of(&b, role, k), false,
						    x);
					as_gguf(&b, w, a.norm_adds_one, x);
					weights_row(wb, role, layer, i, k, false, y);
					check(same_row(w, x, y));
				}
		}
	ok_all("%llu rows are those of %s", (unsigned long long)rows, folder);
	weights_close(wa);
	weights_close(wb);
	checkpoint_close(ka);
	checkpoint_close(kb);
}

/* ---- tokenizers ---- */

static struct tokenizer *tokenizer_of(const char *path)
{
	struct tokenizer *t = NULL;
	struct err e = {0};

	ok(model_tokenizer(path, &t, &e) == 0, "a tokenizer %s", e.text);
	return t;
}

static void same_ids(const struct tokenizer *a, const struct tokenizer *b, const char *text,
		     size_t len)
{
	struct ids x = {0}, y = {0};

	check(tokenizer_encode(a, text, len, true, NULL, &x) == 0 &&
	      tokenizer_encode(b, text, len, true, NULL, &y) == 0);
	check(x.len == y.len && !memcmp(x.v, y.v, x.len * sizeof(*x.v)));
	ids_release(&x);
	ids_release(&y);
}

/* Checks that a GGUF file has the texts and the tokens of a folder. */
static void same_texts(const char *folder, const char *path)
{
	static const char odd[] = "e\xcc\x81 12345 don't <think>x</think><|im_end|>\n\n \t";
	struct checkpoint_text x, y;
	struct tokenizer *a, *b;
	struct err e = {0};
	struct buf readme;

	ok(model_text(folder, CHECKPOINT_TEMPLATE, &x, &e) == 0 &&
		   model_text(path, CHECKPOINT_TEMPLATE, &y, &e) == 0 &&
		   !strcmp(buf_str(&x.bytes), buf_str(&y.bytes)),
	   "the chat template %s", e.text);
	checkpoint_text_release(&x);
	checkpoint_text_release(&y);
	a = tokenizer_of(folder);
	b = tokenizer_of(path);
	check(tokenizer_size(a) == tokenizer_size(b));
	for (int32_t id = 0; id < tokenizer_size(a); id++) {
		size_t n, m;
		const char *s = tokenizer_bytes(a, id, &n), *t = tokenizer_bytes(b, id, &m);

		check(n == m && (!s || !memcmp(s, t, n)));
		check(tokenizer_is_special(a, id) == tokenizer_is_special(b, id));
	}
	ok_all("the same tokens");
	buf_init(&readme, 1 << 24);
	check(file_read(AT_FDCWD, "README.md", "README.md", &readme, &e) == 0);
	same_ids(a, b, buf_str(&readme), readme.len);
	same_ids(a, b, odd, strlen(odd));
	ok_all("the same numbers of README.md and an odd text");
	buf_release(&readme);
	tokenizer_free(a);
	tokenizer_free(b);
}

static void same_model(const char *folder, const char *path, uint32_t n_mtp, bool texts)
{
	same_config(folder, path, n_mtp);
	same_weights(folder, path);
	if (texts)
		same_texts(folder, path);
}

TEST(lexis)
{
	const struct gguf_conversion how = {.type = GGML_BF16, .mtp = 1, .pre = "qwen2"};
	json_t *golden = json_load_file("models/lexis/golden.json", 0, NULL), *c;
	json_t *cases = json_object_get(golden, "cases");
	struct checkpoint_text text;
	struct tokenizer *t;
	struct err e = {0};
	const char *path;
	size_t i;

	if (!convert(lexis, "lexis.gguf", &how))
		return;
	path = scratch_path("lexis.gguf");
	same_model(lexis, path, 1, true);
	ok(model_text(path, CHECKPOINT_TOKENIZER_CONFIG, &text, &e) == 0, "special tokens %s",
	   e.text);
	is_str(buf_str(&text.bytes),
	       "{\"eos_token\":\"<|im_end|>\",\"pad_token\":\"<|endoftext|>\"}", "and their texts");
	checkpoint_text_release(&text);
	ok(model_text(path, CHECKPOINT_GENERATION, &text, &e) == 0, "end tokens %s", e.text);
	is_str(buf_str(&text.bytes), "{\"eos_token_id\": [2, 0]}", "and their numbers");
	checkpoint_text_release(&text);
	t = tokenizer_of(path);
	json_array_foreach(cases, i, c)
	{
		const char *prompt = json_string_value(json_object_get(c, "text"));
		const json_t *want = json_object_get(c, "prompt_ids");
		struct ids ids = {0};

		check(prompt &&
		      tokenizer_encode(t, prompt, strlen(prompt), true, NULL, &ids) == 0 &&
		      ids.len == json_array_size(want));
		for (size_t k = 0; k < ids.len; k++)
			check(json_integer_value(json_array_get(want, k)) == ids.v[k]);
		ids_release(&ids);
	}
	check(i > 0);
	ok_all("the numbers of %zu golden prompts", i);
	tokenizer_free(t);
	json_decref(golden);
}

/* ---- other forms ---- */

static void same_form(const char *folder, struct gguf_conversion how)
{
	if (convert(folder, "model.gguf", &how))
		same_model(folder, scratch_path("model.gguf"), how.mtp, false);
}

TEST(forms)
{
	same_form("tests/golden/tiny/01-moe", (struct gguf_conversion){.interval = true});
	same_form("tests/golden/tiny/03-ratio-3",
		  (struct gguf_conversion){.fused = true, .mtp = 2});
	same_form("tests/golden/tiny/04-next", (struct gguf_conversion){0});
	same_form("tests/golden/tiny/04-next",
		  (struct gguf_conversion){.interleaved = true, .fused = true});
	same_form("tests/golden/tiny/09-dense-nested", (struct gguf_conversion){0});
	same_form("tests/golden/tiny/18-layer-types", (struct gguf_conversion){0});
	same_form("tests/golden/tiny/19-wide-keys", (struct gguf_conversion){0});
	same_form("tests/golden/tiny/22-qwen3-tied", (struct gguf_conversion){.fused = true});
	same_form("tests/golden/tiny/23-qwen3-moe", (struct gguf_conversion){0});
	same_form("tests/golden/tiny/25-llama", (struct gguf_conversion){0});
	same_form("tests/golden/tiny/26-llama-linear", (struct gguf_conversion){0});
	same_form("tests/golden/tiny/27-qwen2", (struct gguf_conversion){0});
	same_form("tests/golden/tiny/29-gemma3", (struct gguf_conversion){.interval = true});
	same_form("tests/golden/tiny/30-gemma3-nested", (struct gguf_conversion){.fused = true});
	same_form("tests/golden/tiny/31-gemma3-window-2", (struct gguf_conversion){0});
}

/* ---- files and directories ---- */

static void expect_open(const char *path, int error, const char *sentence, const char *what)
{
	struct checkpoint *k;
	struct err e = {0};
	int r = checkpoint_open(path, &k, &e);

	is_int(r, error, "%s", what);
	if (r == 0) {
		is_int(checkpoint_names(k), CHECKPOINT_GGUF, "it is GGUF");
		checkpoint_close(k);
	} else {
		is_str(e.text + (strncmp(e.text, scratch_dir, strlen(scratch_dir))
					 ? 0
					 : strlen(scratch_dir)),
		       sentence, "says so");
	}
}

static int add_name(void *user, const char *path, const char *name, struct err *e)
{
	struct buf *names = user;

	check(path[0] == '/' && !strcmp(path + strlen(path) - strlen(name), name));
	buf_printf(names, "%s ", name);
	return 0;
}

TEST(files)
{
	static const char folder[] = "tests/golden/tiny/21-qwen3";
	const struct gguf_conversion one = {0}, three = {.parts = 3};
	struct checkpoint *k;
	struct err e = {0};
	struct buf names;

	mkdir(scratch_path("dir"), 0777);
	if (!convert(folder, "dir/m", &three) || !convert(folder, "one.gguf", &one))
		return;
	expect_open(scratch_path("dir"), 0, NULL, "a directory with split files");
	expect_open(scratch_path("dir/"), 0, NULL, "with a slash behind it");
	expect_open(scratch_path("dir/m-00001-of-00003.gguf"), 0, NULL, "the first of split files");
	same_weights(folder, scratch_path("dir"));
	if (ok(checkpoint_open(scratch_path("dir"), &k, &e) == 0, "opens %s", e.text)) {
		buf_init(&names, 4096);
		is_int(checkpoint_files(k, add_name, &names, &e), 0, "its files");
		is_str(buf_str(&names),
		       "m-00001-of-00003.gguf m-00002-of-00003.gguf m-00003-of-00003.gguf ",
		       "are all three");
		buf_release(&names);
		checkpoint_close(k);
	}
	expect_open(scratch_path("dir/m-00002-of-00003.gguf"), -EINVAL,
		    "/dir/m-00002-of-00003.gguf: the file is part 2 of 3: name the first one, "
		    "m-00001-of-00003.gguf",
		    "another of them");
	rename(scratch_path("dir/m-00003-of-00003.gguf"), scratch_path("third"));
	expect_open(scratch_path("dir"), -ENOENT,
		    "/dir/m-00003-of-00003.gguf: cannot open: No such file or directory",
		    "a part is missing");
	rename(scratch_path("dir/m-00002-of-00003.gguf"),
	       scratch_path("dir/m-00003-of-00003.gguf"));
	rename(scratch_path("third"), scratch_path("dir/m-00002-of-00003.gguf"));
	expect_open(scratch_path("dir"), -EINVAL,
		    "/dir/m-00002-of-00003.gguf: the file is not part 2 of 3, as its keys say",
		    "parts are exchanged");
	rename(scratch_path("dir/m-00001-of-00003.gguf"), scratch_path("dir/other.gguf"));
	expect_open(scratch_path("dir/other.gguf"), -EINVAL,
		    "/dir/other.gguf: the file is part 1 of 3, but its name does not end in "
		    "-00001-of-00003.gguf",
		    "a part that was renamed");
	expect_open(scratch_path("dir"), -EINVAL,
		    "/dir: there are several models, m-00002-of-00003.gguf and other.gguf: name a "
		    "file",
		    "two models");
	rename(scratch_path("dir/other.gguf"), scratch_path("other"));
	expect_open(scratch_path("dir"), -ENOENT,
		    "/dir/m-00001-of-00003.gguf: cannot open: No such file or directory",
		    "the first part is missing");

	mkdir(scratch_path("single"), 0777);
	rename(scratch_path("one.gguf"), scratch_path("single/one.gguf"));
	scratch_write("single/.hidden.gguf", "", 0);
	expect_open(scratch_path("single"), 0, NULL, "a directory with one file");
	check(chdir(scratch_path("single")) == 0);
	expect_open("one.gguf", 0, NULL, "a name without a directory");
	expect_open(".", 0, NULL, "this directory");
	if (ok(checkpoint_open("one.gguf", &k, &e) == 0, "opens %s", e.text)) {
		buf_init(&names, 4096);
		is_int(checkpoint_files(k, add_name, &names, &e), 0, "its files");
		is_str(buf_str(&names), "one.gguf ", "is one");
		buf_release(&names);
		checkpoint_close(k);
	}
	scratch_write("single/config.json", "{}", 2);
	if (ok(checkpoint_open(".", &k, &e) == 0, "a folder with a config.json %s", e.text)) {
		is_int(checkpoint_names(k), CHECKPOINT_TRANSFORMERS, "stays a folder");
		checkpoint_close(k);
	}
	check(chdir(start) == 0);
	ok_all("files have absolute paths");
	scratch_write("empty.gguf", "", 0);
	expect_open(scratch_path("empty.gguf"), -EINVAL,
		    "/empty.gguf: neither a directory nor a GGUF file", "an empty file");
}

/* ---- weights that do not fit ---- */

static struct buf model; /* a whole file */

/* Opens the weights of the file, with each text `from` replaced by `to`, of the same length. */
static void expect_weights(const char *from, const char *to, int error, const char *sentence,
			   const char *what)
{
	char *copy = malloc(model.len), *p = copy;
	struct checkpoint *k;
	struct model_config c;
	struct weights *w;
	struct err e = {0};
	int r;

	memcpy(copy, model.data, model.len);
	while ((p = memmem(p, model.len - (size_t)(p - copy), from, strlen(from))))
		memcpy(p, to, strlen(to));
	scratch_write("m.gguf", copy, model.len);
	free(copy);
	r = open_weights(scratch_path("m.gguf"), &k, &c, &w, &e);
	is_int(r, error, "%s", what);
	is_str(e.text + strlen(scratch_dir), sentence, "says so");
}

static void read_model(const char *folder, const struct gguf_conversion *how)
{
	struct err e = {0};

	buf_reset(&model);
	check(gguf_convert(folder, scratch_path("m.gguf"), how) &&
	      file_read(AT_FDCWD, scratch_path("m.gguf"), "m.gguf", &model, &e) == 0);
}

TEST(weights)
{
	const struct gguf_conversion how = {.mtp = 1};

	buf_init(&model, GGUF_OUT_MAX);
	read_model("tests/golden/tiny/01-moe", &how);
	expect_weights("blk.3.attn_q.weight", "blk.3.attn_p.weight", -ENOENT,
		       "/m.gguf: tensor blk.3.attn_q.weight is missing", "a tensor is missing");
	expect_weights("blk.4.attn_q.weight", "blk.5.attn_q.weight", -EINVAL,
		       "/m.gguf: tensor blk.5.attn_q.weight has no place in the model of the keys",
		       "a layer too many");
	expect_weights("blk.4.attn_q.weight", "blk.0.attn_q.weight", -EINVAL,
		       "/m.gguf: tensor blk.0.attn_q.weight has no place in the model of the keys",
		       "a tensor of another kind of layer");
	expect_weights("blk.1.ssm_a", "blk.1.ssm_b", -ENOENT,
		       "/m.gguf: tensor blk.1.ssm_a is missing", "a vector is missing");
	read_model("tests/golden/tiny/21-qwen3", &(const struct gguf_conversion){0});
	expect_weights("blk.1.ffn_up.weight", "blk.1.ffn_up.weighs", -ENOENT,
		       "/m.gguf: tensor blk.1.ffn_up.weight is missing", "of a dense layer");
	expect_weights("qwen3.feed_forward_length", "qwen3.feed_forward_lengts", -EINVAL,
		       "/m.gguf: key qwen3.feed_forward_length is missing", "a key is missing");
	ok_all("models");
}

/* ---- changed files ---- */

/* Reads all texts of the file and opens its weights. Returns whether that went well. */
static bool use(const char *path)
{
	struct checkpoint *k;
	struct model_config c;
	struct weights *w;
	struct err e = {0};
	bool good = true;
	int r;

	for (int part = CHECKPOINT_CONFIG; part <= CHECKPOINT_TEMPLATE; part++) {
		struct checkpoint_text text;
		struct tokenizer *t = NULL;

		e = (struct err){0};
		r = model_text(path, part, &text, &e);
		check(r == 0 || (e.text[0] && e.code == -r));
		if (r == 0 && part == CHECKPOINT_TOKENIZER)
			r = tokenizer_parse(text.name, buf_str(&text.bytes), text.bytes.len, &t,
					    &e);
		tokenizer_free(t);
		good = good && r == 0;
		checkpoint_text_release(&text);
	}
	if (open_weights(path, &k, &c, &w, &e) < 0)
		return false;
	weights_close(w);
	checkpoint_close(k);
	return good;
}

/* Bytes are changed in the file itself, which is too large to be written 300 times. */
TEST(changed)
{
	static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff};
	/* keys; tokens and merges; tensors */
	static const struct {
		off_t from;
		uint32_t n;
	} places[] = {{0, 2000}, {2000, 220000}, {220000, 60000}};
	const struct gguf_conversion how = {.mtp = 1, .pre = "qwen2", .type = GGML_BF16};
	uint32_t opened = 0, whole = 0;
	int fd;

	if (!convert(lexis, "changed.gguf", &how))
		return;
	fd = open(scratch_path("changed.gguf"), O_RDWR | O_CLOEXEC);
	random_state = 2;
	for (uint32_t i = 0; i < 300; i++) {
		const size_t place = random_below(3);
		struct checkpoint *k;
		struct err e = {0};
		uint8_t kept[4];
		off_t at[4];
		uint32_t n = 1 + random_below(4);
		int r;

		for (uint32_t j = 0; j < n; j++) {
			at[j] = places[place].from + random_below(places[place].n);
			check(pread(fd, &kept[j], 1, at[j]) == 1 &&
			      pwrite(fd, &odd[random_below(sizeof(odd))], 1, at[j]) == 1);
		}
		r = checkpoint_open(scratch_path("changed.gguf"), &k, &e);
		check(r == 0 || (e.text[0] && e.code == -r));
		if (r == 0) {
			checkpoint_close(k);
			opened++;
			whole += use(scratch_path("changed.gguf"));
		}
		while (n-- > 0)
			check(pwrite(fd, &kept[n], 1, at[n]) == 1);
	}
	close(fd);
	ok_all("300 changed files: %u open, %u are whole models, the others are refused", opened,
	       whole);
	ok(use(scratch_path("changed.gguf")) && opened > 50 && opened < 290 && whole > 10,
	   "all of this happens often");
}

int main(int argc, char **argv)
{
	if (argc > 2) {
		same_model(argv[1], argv[2], argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0,
			   true);
		return done();
	}
	check(getcwd(start, sizeof(start)) != NULL);
	run_tests();
	return done();
}
