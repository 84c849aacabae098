/* GGUF files as checkpoints: a model converted to GGUF has the configuration, the tokenizer, the template and the weights
 * of the model in Hugging Face's files; split files, directories; what is refused, with its sentence; changed files.
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
#include "protocol/tokenizer/splitter.h"
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

/* ---- what is refused ---- */

/* Makes a small Qwen3 file with the keys of `more`, opens it and reads one text. */
static void text_of(void (*more)(struct gguf_out *o), enum checkpoint_part part, int error,
		    const char *want, const char *what)
{
	static const float row[64];
	struct checkpoint_text text;
	struct checkpoint *k;
	struct gguf_out o;
	struct err e = {0};
	struct buf file;
	int r;

	gguf_out_init(&o);
	more(&o);
	gguf_put_tensor(&o, "token_embd.weight", GGML_F32, 2, (uint64_t[]){16, 4}, row,
			sizeof(row));
	buf_init(&file, GGUF_OUT_MAX);
	gguf_out_file(&o, &file);
	scratch_write("m.gguf", file.data, file.len);
	buf_release(&file);
	gguf_out_release(&o);
	if (!ok(checkpoint_open(scratch_path("m.gguf"), &k, &e) == 0, "opens %s", e.text))
		return;
	r = checkpoint_read(k, part, &text, &e);
	is_int(r, error, "%s", what);
	if (r < 0)
		is_str(e.text + strlen(scratch_dir), want, "says so");
	else
		is_str(buf_str(&text.bytes), want, "is its text");
	checkpoint_text_release(&text);
	checkpoint_close(k);
}

static void qwen3(struct gguf_out *o)
{
	gguf_put_text(o, "general.architecture", "qwen3");
	gguf_put_whole(o, "qwen3.block_count", 2);
	gguf_put_whole(o, "qwen3.context_length", 512);
	gguf_put_whole(o, "qwen3.embedding_length", 16);
	gguf_put_whole(o, "qwen3.feed_forward_length", 32);
	gguf_put_whole(o, "qwen3.attention.head_count", 2);
	gguf_put_real(o, "qwen3.attention.layer_norm_rms_epsilon", 0.5f);
}

static void no_keys(struct gguf_out *o)
{
}

static void gemma(struct gguf_out *o)
{
	gguf_put_text(o, "general.architecture", "gem\nma");
}

static void no_layers(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_whole(o, "qwen3.nextn_predict_layers", 2);
}

static void softcap(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_real(o, "qwen3.attention.scale", 0);
	gguf_put_real(o, "qwen3.final_logit_softcapping", 30);
}

static void encoder(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_truth(o, "qwen3.attention.causal", false);
}

static void value_length(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_whole(o, "qwen3.attention.value_length", 16);
}

static void wrong_type(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_text(o, "qwen3.rope.dimension_count", "8");
}

static void not_finite(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_real(o, "qwen3.rope.freq_base", INFINITY);
}

static void many_heads(struct gguf_out *o)
{
	static const uint32_t zeros[5000];

	qwen3(o);
	gguf_put_array(o, "qwen3.attention.head_count_kv", GGUF_U32, 5000);
	buf_append(&o->keys, zeros, sizeof(zeros));
}

static void yarn(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_text(o, "qwen3.rope.scaling.type", "yarn");
	gguf_put_real(o, "qwen3.rope.scaling.factor", 4);
	gguf_put_whole(o, "qwen3.rope.scaling.original_context_length", 128);
}

static void odd_scaling(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_key(o, "qwen3.rope.scaling.type", GGUF_STRING);
	gguf_put_string(&o->keys, "linear\0s", 8);
}

static void unscaled(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_text(o, "qwen3.rope.scaling.type", "none");
	gguf_put_truth(o, "qwen3.attention.causal", true);
	gguf_put_real(o, "qwen3.rope.freq_base", 5e5f);
	gguf_put_whole(o, "qwen3.attention.key_length", 176);
	gguf_put_whole(o, "qwen3.attention.value_length", 176);
	gguf_put_whole(o, "qwen3.rope.dimension_count", 30);
}

static void gemma3(struct gguf_out *o, uint32_t n_layers)
{
	gguf_put_text(o, "general.architecture", "gemma3");
	gguf_put_whole(o, "gemma3.block_count", n_layers);
	gguf_put_whole(o, "gemma3.context_length", 512);
	gguf_put_whole(o, "gemma3.embedding_length", 336);
	gguf_put_whole(o, "gemma3.feed_forward_length", 32);
	gguf_put_whole(o, "gemma3.attention.head_count", 2);
	gguf_put_whole(o, "gemma3.attention.head_count_kv", 1);
	gguf_put_whole(o, "gemma3.attention.key_length", 128);
	gguf_put_whole(o, "gemma3.attention.value_length", 128);
	gguf_put_real(o, "gemma3.attention.layer_norm_rms_epsilon", 0.5f);
	gguf_put_real(o, "gemma3.rope.freq_base", 1e6f);
}

/* As llama.cpp's converter writes the model of 27B, which alone has other scores. */
static void gemma3_27b(struct gguf_out *o)
{
	gemma3(o, 62);
	gguf_put_whole(o, "gemma3.attention.sliding_window", 1024);
	gguf_put_text(o, "gemma3.rope.scaling.type", "linear");
	gguf_put_real(o, "gemma3.rope.scaling.factor", 8);
}

static void gemma3_full(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_real(o, "gemma3.rope.freq_base_swa", 20000);
}

static void gemma3_list(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_whole(o, "gemma3.attention.sliding_window", 40);
	gguf_put_array(o, "gemma3.attention.sliding_window_pattern", GGUF_BOOL, 2);
	buf_putc(&o->keys, 0);
	buf_putc(&o->keys, 1);
	gguf_put_real(o, "gemma3.attention.scale", 0.0625f);
}

static void gemma3_short_list(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_whole(o, "gemma3.attention.sliding_window", 40);
	gguf_put_array(o, "gemma3.attention.sliding_window_pattern", GGUF_BOOL, 1);
	buf_putc(&o->keys, 1);
}

static void gemma3_no_pattern(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_whole(o, "gemma3.attention.sliding_window", 40);
	gguf_put_whole(o, "gemma3.attention.sliding_window_pattern", 0);
}

static void gemma3_scale(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_real(o, "gemma3.attention.scale", 0.07f);
}

static void gemma3_softcap(struct gguf_out *o)
{
	gemma3(o, 2);
	gguf_put_real(o, "gemma3.final_logit_softcapping", 30);
}

static void window(struct gguf_out *o)
{
	qwen3(o);
	gguf_put_whole(o, "qwen3.attention.sliding_window", 40);
}

static void mixtral(struct gguf_out *o)
{
	gguf_put_text(o, "general.architecture", "llama");
	gguf_put_whole(o, "llama.block_count", 2);
	gguf_put_whole(o, "llama.context_length", 512);
	gguf_put_whole(o, "llama.embedding_length", 16);
	gguf_put_whole(o, "llama.feed_forward_length", 32);
	gguf_put_whole(o, "llama.attention.head_count", 2);
	gguf_put_real(o, "llama.attention.layer_norm_rms_epsilon", 0.5f);
	gguf_put_whole(o, "llama.expert_count", 8);
}

#define BEGIN                                                                                 \
	"{\"model_type\": \"qwen3\", \"hidden_size\": 16, \"max_position_embeddings\": 512, " \
	"\"num_attention_heads\": 2, \"rms_norm_eps\": 0.5, "

#define BEGIN_GEMMA                                                                                  \
	"{\"model_type\": \"gemma3_text\", \"hidden_size\": 336, \"max_position_embeddings\": 512, " \
	"\"num_attention_heads\": 2, \"rms_norm_eps\": 0.5, \"rope_theta\": 1000000.0, "             \
	"\"intermediate_size\": 32, "
#define GEMMA_ATTENTION \
	"\"num_key_value_heads\": 1, \"head_dim\": 128, \"partial_rotary_factor\": 1.0, "

TEST(configurations)
{
	text_of(no_keys, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key general.architecture is missing, or no text", "no architecture");
	text_of(gemma, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key general.architecture is \"gem?ma\", but must be qwen35, qwen35moe, "
		"qwen3next, qwen3, qwen3moe, qwen2, llama or gemma3",
		"another architecture");
	text_of(qwen3, CHECKPOINT_CONFIG, 0,
		BEGIN
		"\"intermediate_size\": 32, \"num_hidden_layers\": 2, \"rope_theta\": 10000.0, "
		"\"num_key_value_heads\": 2, \"head_dim\": 8, \"partial_rotary_factor\": 1.0, "
		"\"vocab_size\": 4, \"tie_word_embeddings\": true}",
		"all that may be missing");
	text_of(unscaled, CHECKPOINT_CONFIG, 0,
		BEGIN "\"rope_theta\": 500000.0, \"intermediate_size\": 32, "
		      "\"num_hidden_layers\": 2, \"num_key_value_heads\": 2, \"head_dim\": 176, "
		      "\"partial_rotary_factor\": 0.17045454545454547, \"vocab_size\": 4, "
		      "\"tie_word_embeddings\": true}",
		"a part of a head that is rotated");
	text_of(yarn, CHECKPOINT_CONFIG, 0,
		BEGIN
		"\"intermediate_size\": 32, \"num_hidden_layers\": 2, \"rope_theta\": 10000.0, "
		"\"num_key_value_heads\": 2, \"head_dim\": 8, \"partial_rotary_factor\": 1.0, "
		"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
		"\"original_max_position_embeddings\": 128}, \"vocab_size\": 4, "
		"\"tie_word_embeddings\": true}",
		"scaled RoPE");
	text_of(odd_scaling, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key qwen3.rope.scaling.type is no text", "a text with a 0");
	text_of(no_layers, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key qwen3.nextn_predict_layers leaves no layers of block_count",
		"no layers");
	text_of(softcap, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key qwen3.final_logit_softcapping has a value that is not supported",
		"other mathematics");
	text_of(encoder, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key qwen3.attention.causal has a value that is not supported",
		"an encoder");
	text_of(mixtral, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key llama.expert_count has a value that is not supported",
		"experts where there should be none");
	text_of(gemma3_27b, CHECKPOINT_CONFIG, 0,
		BEGIN_GEMMA
		"\"num_hidden_layers\": 62, \"sliding_window\": 1024, "
		"\"sliding_window_pattern\": 6, " GEMMA_ATTENTION
		"\"query_pre_attn_scalar\": 168, \"rope_scaling\": {\"rope_type\": \"linear\", "
		"\"factor\": 8.0}, \"vocab_size\": 4, \"tie_word_embeddings\": true}",
		"Gemma 3 of 27B");
	text_of(gemma3_full, CHECKPOINT_CONFIG, 0,
		BEGIN_GEMMA
		"\"rope_local_base_freq\": 20000.0, \"num_hidden_layers\": 2, \"layer_types\": "
		"[\"full_attention\", \"full_attention\"], " GEMMA_ATTENTION
		"\"query_pre_attn_scalar\": 128, \"vocab_size\": 4, \"tie_word_embeddings\": true}",
		"Gemma 3 without windows");
	text_of(gemma3_list, CHECKPOINT_CONFIG, 0,
		BEGIN_GEMMA
		"\"num_hidden_layers\": 2, \"sliding_window\": 40, \"layer_types\": "
		"[\"full_attention\", \"sliding_attention\"], " GEMMA_ATTENTION
		"\"query_pre_attn_scalar\": 256, \"vocab_size\": 4, \"tie_word_embeddings\": true}",
		"a list of layers with windows, and another scale of scores");
	text_of(gemma3_short_list, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key gemma3.attention.sliding_window_pattern is no list of a truth value "
		"for each layer",
		"a list that is too short");
	text_of(gemma3_no_pattern, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key gemma3.attention.sliding_window_pattern is not from 1 to 512",
		"a pattern of no layers");
	text_of(gemma3_scale, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key gemma3.attention.scale is not 1 divided by the square root of a "
		"whole number",
		"a scale that config.json cannot say");
	text_of(gemma3_softcap, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key gemma3.final_logit_softcapping has a value that is not supported",
		"capped logits");
	text_of(window, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key qwen3.attention.sliding_window has a value that is not supported",
		"a window in a model that has none");
	text_of(value_length, CHECKPOINT_CONFIG, -ENOTSUP,
		"/m.gguf: key qwen3.attention.value_length differs from attention.key_length, "
		"which is not supported",
		"values of another size");
	text_of(wrong_type, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key qwen3.rope.dimension_count is no whole number up to 2147483647",
		"a text in a number's place");
	text_of(not_finite, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key qwen3.rope.freq_base has a value that cannot be used", "infinity");
	text_of(many_heads, CHECKPOINT_CONFIG, -EINVAL,
		"/m.gguf: key qwen3.attention.head_count_kv has a value that cannot be used",
		"a long list");
}

/* ---- tokenizers ---- */

static void words(struct gguf_out *o, const char *pre, const int32_t *types)
{
	static const char *const tokens[] = {"a", "b", "ab", "<s>", "[PAD4]", "</s>", "<t>"};

	gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
	gguf_put_text(o, "tokenizer.ggml.pre", pre);
	gguf_put_array(o, "tokenizer.ggml.tokens", GGUF_STRING, 7);
	for (int i = 0; i < 7; i++)
		gguf_put_string(&o->keys, tokens[i], strlen(tokens[i]));
	gguf_put_array(o, "tokenizer.ggml.token_type", GGUF_I32, 7);
	buf_append(&o->keys, types, 7 * sizeof(*types));
	gguf_put_array(o, "tokenizer.ggml.merges", GGUF_STRING, 1);
	gguf_put_string(&o->keys, "a b", 3);
	gguf_put_whole(o, "tokenizer.ggml.bos_token_id", 3);
	gguf_put_whole(o, "tokenizer.ggml.eos_token_id", 5);
	gguf_put_whole(o, "tokenizer.ggml.padding_token_id", 77);
}

static const int32_t types[] = {1, 1, 1, 3, 5, 3, 4};

static void llama_words(struct gguf_out *o)
{
	words(o, "llama-bpe", types);
}

static void qwen_words(struct gguf_out *o)
{
	words(o, "qwen35", types);
	gguf_put_truth(o, "tokenizer.ggml.add_eos_token", true);
	gguf_put_real(o, "general.sampling.temp", 0.5f);
	gguf_put_whole(o, "general.sampling.top_k", 20);
}

static void gpt_words(struct gguf_out *o)
{
	words(o, "gpt-2", types);
	gguf_put_truth(o, "tokenizer.ggml.add_bos_token", true);
}

static void other_pre(struct gguf_out *o)
{
	words(o, "tekken", types);
}

static void unigram(struct gguf_out *o)
{
	gguf_put_text(o, "tokenizer.ggml.model", "t5");
	gguf_put_array(o, "tokenizer.ggml.tokens", GGUF_STRING, 0);
}

#define MARK "\xe2\x96\x81" /* U+2581 */

/* The keys of a small vocabulary of SentencePiece's: special tokens, those of the user, those of all bytes or, with
 * `few`, but the last one, then pieces. */
static void pieces(struct gguf_out *o, uint64_t n_scores, float last_score, bool few)
{
	static const char *const tokens[] = {"<pad>", "<eos>", "<bos>", "<unk>", "  ", "[PAD5]"};
	static const int32_t special[] = {3, 3, 3, 2, 4, 5}, byte = 6, normal = 1;
	static const char *const words[] = {MARK, "a", "b", "ab", (MARK "a"), "aba"};
	const float scores[] = {-8, -9, -10, -1, -2, last_score}, zero = 0;
	uint32_t n_bytes = few ? 255 : 256, n = 6 + n_bytes + 6;

	gguf_put_text(o, "tokenizer.ggml.model", "llama");
	gguf_put_text(o, "tokenizer.ggml.pre", "default");
	gguf_put_array(o, "tokenizer.ggml.tokens", GGUF_STRING, n);
	for (int i = 0; i < 6; i++)
		gguf_put_string(&o->keys, tokens[i], strlen(tokens[i]));
	for (uint32_t i = 0; i < n_bytes; i++) {
		char text[8];

		snprintf(text, sizeof(text), "<0x%02X>", i & 255);
		gguf_put_string(&o->keys, text, strlen(text));
	}
	for (int i = 0; i < 6; i++)
		gguf_put_string(&o->keys, words[i], strlen(words[i]));
	gguf_put_array(o, "tokenizer.ggml.token_type", GGUF_I32, n);
	buf_append(&o->keys, special, sizeof(special));
	for (uint32_t i = 0; i < n_bytes; i++)
		buf_append(&o->keys, &byte, sizeof(byte));
	for (int i = 0; i < 6; i++)
		buf_append(&o->keys, &normal, sizeof(normal));
	if (n_scores) {
		gguf_put_array(o, "tokenizer.ggml.scores", GGUF_F32, n_scores);
		for (uint64_t i = 0; i + 6 < n_scores; i++)
			buf_append(&o->keys, &zero, sizeof(zero));
		buf_append(&o->keys, scores, sizeof(scores));
	}
	gguf_put_whole(o, "tokenizer.ggml.bos_token_id", 2);
	gguf_put_whole(o, "tokenizer.ggml.eos_token_id", 1);
}

static void no_prefix(struct gguf_out *o, uint64_t n_scores, float last_score, bool few)
{
	pieces(o, n_scores, last_score, few);
	gguf_put_truth(o, "tokenizer.ggml.add_space_prefix", false);
}

static void gemma_pieces(struct gguf_out *o)
{
	no_prefix(o, 268, -3, false);
}

static void space_prefix(struct gguf_out *o)
{
	pieces(o, 268, -3, false);
}

static void no_scores(struct gguf_out *o)
{
	no_prefix(o, 0, -3, false);
}

static void few_scores(struct gguf_out *o)
{
	no_prefix(o, 267, -3, false);
}

static void odd_score(struct gguf_out *o)
{
	no_prefix(o, 268, NAN, false);
}

static void few_bytes(struct gguf_out *o)
{
	no_prefix(o, 267, -3, true);
}

static void no_utf8(struct gguf_out *o)
{
	gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
	gguf_put_text(o, "tokenizer.ggml.pre", "qwen2");
	gguf_put_array(o, "tokenizer.ggml.tokens", GGUF_STRING, 2);
	gguf_put_string(&o->keys, "a", 1);
	gguf_put_string(&o->keys, "\xff", 1);
	gguf_put_text(o, "tokenizer.chat_template", " \n");
}

static void no_merges(struct gguf_out *o)
{
	gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
	gguf_put_text(o, "tokenizer.ggml.pre", "qwen2");
	gguf_put_array(o, "tokenizer.ggml.tokens", GGUF_STRING, 0);
}

static void few_types(struct gguf_out *o)
{
	gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
	gguf_put_text(o, "tokenizer.ggml.pre", "qwen2");
	gguf_put_array(o, "tokenizer.ggml.tokens", GGUF_STRING, 0);
	gguf_put_array(o, "tokenizer.ggml.token_type", GGUF_I32, 1);
	gguf_put_u32(&o->keys, 1);
}

#define BYTES(regex)                                                                                    \
	"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":" regex \
	"}"

/* Returns the pattern by which tokenizer.json splits texts; the caller frees it. */
static char *pattern_of(const char *pre)
{
	struct gguf_out o;
	struct checkpoint_text text = {0};
	struct checkpoint *k;
	struct err e = {0};
	struct buf file;
	char *pattern = NULL;
	json_t *root, *list;

	gguf_out_init(&o);
	words(&o, pre, types);
	buf_init(&file, GGUF_OUT_MAX);
	gguf_out_file(&o, &file);
	scratch_write("m.gguf", file.data, file.len);
	buf_release(&file);
	gguf_out_release(&o);
	if (checkpoint_open(scratch_path("m.gguf"), &k, &e) < 0)
		return NULL;
	if (checkpoint_read(k, CHECKPOINT_TOKENIZER, &text, &e) == 0) {
		root = json_loads(buf_str(&text.bytes), 0, NULL);
		list = json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers");
		list = json_object_get(json_array_get(list, 0), "pattern");
		if (json_is_string(json_object_get(list, "Regex")))
			pattern = strdup(json_string_value(json_object_get(list, "Regex")));
		json_decref(root);
	}
	checkpoint_text_release(&text);
	checkpoint_close(k);
	return pattern;
}

TEST(tokenizers)
{
	static const struct {
		const char *pre, *pattern;
	} patterns[] = {
		{"qwen35", SPLITTER_QWEN35},
		{"qwen2", SPLITTER_QWEN2},
		{"llama-bpe", SPLITTER_LLAMA3},
		{"llama3", SPLITTER_LLAMA3},
	};

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		char *pattern = pattern_of(patterns[i].pre);

		is_str(pattern, patterns[i].pattern, "the pattern of %s", patterns[i].pre);
		free(pattern);
	}
	text_of(llama_words, CHECKPOINT_TOKENIZER_CONFIG, 0,
		"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}", "special tokens that exist");
	text_of(llama_words, CHECKPOINT_GENERATION, 0, "{\"eos_token_id\": [5]}", "an end token");
	text_of(qwen_words, CHECKPOINT_GENERATION, 0,
		"{\"eos_token_id\": [5], \"temperature\": 0.5, \"top_k\": 20}",
		"sampling defaults");
	text_of(no_keys, CHECKPOINT_GENERATION, 0, "{}", "no end token");
	text_of(no_keys, CHECKPOINT_TOKENIZER, -ENOENT,
		"/m.gguf: key tokenizer.ggml.tokens is missing", "no tokenizer");
	text_of(no_keys, CHECKPOINT_TEMPLATE, -ENOENT,
		"/m.gguf: the model has no chat template (key tokenizer.chat_template)",
		"no template");
	text_of(no_utf8, CHECKPOINT_TEMPLATE, -EINVAL, "/m.gguf: the chat template is empty",
		"an empty template");
	text_of(other_pre, CHECKPOINT_TOKENIZER, -ENOTSUP,
		"/m.gguf: key tokenizer.ggml.pre is \"tekken\", which is not supported",
		"another way to split");
	text_of(unigram, CHECKPOINT_TOKENIZER, -ENOTSUP,
		"/m.gguf: key tokenizer.ggml.model is \"t5\", but must be gpt2 or llama",
		"another kind of tokenizer");
	text_of(space_prefix, CHECKPOINT_TOKENIZER, -ENOTSUP,
		"/m.gguf: key tokenizer.ggml.add_space_prefix is not false, and a space in front of "
		"texts is not supported",
		"a space in front of texts");
	text_of(no_scores, CHECKPOINT_TOKENIZER, -EINVAL,
		"/m.gguf: key tokenizer.ggml.scores is missing", "no scores");
	text_of(few_scores, CHECKPOINT_TOKENIZER, -EINVAL,
		"/m.gguf: key tokenizer.ggml.scores is no list of a number of 32 bits for each token",
		"too few scores");
	text_of(odd_score, CHECKPOINT_TOKENIZER, -EINVAL,
		"/m.gguf: number 267 of key tokenizer.ggml.scores is not finite", "an odd score");
	text_of(few_bytes, CHECKPOINT_TOKENIZER, -ENOTSUP,
		"/m.gguf: key tokenizer.ggml.tokens has no token <0xFF> of the type of bytes",
		"a byte without a token");
	text_of(no_utf8, CHECKPOINT_TOKENIZER, -EINVAL,
		"/m.gguf: text 1 of key tokenizer.ggml.tokens is not UTF-8", "no UTF-8");
	text_of(no_merges, CHECKPOINT_TOKENIZER, -EINVAL,
		"/m.gguf: key tokenizer.ggml.merges is missing", "no merges");
	text_of(few_types, CHECKPOINT_TOKENIZER, -EINVAL,
		"/m.gguf: keys tokenizer.ggml.tokens and tokenizer.ggml.token_type have lists of "
		"different lengths",
		"lists of different lengths");
	text_of(gpt_words, CHECKPOINT_TOKENIZER, 0,
		"{\"version\":\"1.0\",\"added_tokens\":["
		"{\"id\":3,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"
		"\"rstrip\":false,\"normalized\":false,\"special\":true},"
		"{\"id\":5,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,"
		"\"rstrip\":false,\"normalized\":false,\"special\":true},"
		"{\"id\":6,\"content\":\"<t>\",\"single_word\":false,\"lstrip\":false,"
		"\"rstrip\":false,\"normalized\":false,\"special\":false}],"
		"\"normalizer\":null,\"pre_tokenizer\":" BYTES(
			"true") ",\"post_processor\":"
				"{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"bos\","
				"\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":["
				"{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\","
				"\"type_id\":0}}],\"special_tokens\":{\"bos\":{\"id\":\"bos\",\"ids\":[3],"
				"\"tokens\":[\"<s>\"]}}},\"decoder\":" BYTES(
					"true") ",\"model\":{\"type\":\"BPE\","
						"\"ignore_merges\":false,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3,"
						"\"</s>\":5,\"<t>\":6},\"merges\":[\"a b\"]}}",
		"a whole tokenizer.json");
}

static void expect_ids(const struct tokenizer *t, const char *text, size_t n, const int32_t *want)
{
	struct ids ids = {0};

	ok(tokenizer_encode_whole(t, text, strlen(text), NULL, &ids) == 0 && ids.len == n &&
		   !memcmp(ids.v, want, n * sizeof(*want)),
	   "the tokens of %s", text);
	ids_release(&ids);
}

/* The files that text_of wrote last. */
TEST(whole_texts)
{
	struct tokenizer *t;

	text_of(llama_words, CHECKPOINT_GENERATION, 0, "{\"eos_token_id\": [5]}", "Llama's");
	t = tokenizer_of(scratch_path("m.gguf"));
	expect_ids(t, "ab<t>", 3, (const int32_t[]){3, 2, 6});
	ok(tokenizer_is_special(t, 5) && !tokenizer_is_special(t, 6), "special tokens");
	is_int(tokenizer_id(t, "[PAD4]"), -1, "an unused number has no text");
	tokenizer_free(t);
	text_of(qwen_words, CHECKPOINT_TOKENIZER_CONFIG, 0,
		"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}", "Qwen's");
	t = tokenizer_of(scratch_path("m.gguf"));
	expect_ids(t, "ba", 3, (const int32_t[]){1, 0, 5});
	tokenizer_free(t);
	text_of(gemma_pieces, CHECKPOINT_TOKENIZER_CONFIG, 0,
		"{\"bos_token\":\"<bos>\",\"eos_token\":\"<eos>\"}", "Gemma's");
	t = tokenizer_of(scratch_path("m.gguf"));
	/* ab comes before U+2581 a, which has a lower score, and two spaces of the user come before both */
	expect_ids(t, "aba", 2, (const int32_t[]){2, 267});
	expect_ids(t, " a", 2, (const int32_t[]){2, 266});
	expect_ids(t, " ab", 3, (const int32_t[]){2, 262, 265});
	expect_ids(t, "  a<unk>", 4, (const int32_t[]){2, 4, 263, 3});
	expect_ids(t, "   \t", 4, (const int32_t[]){2, 4, 262, 6 + 9});
	ok(tokenizer_is_special(t, 3) && !tokenizer_is_special(t, 4), "special tokens");
	is_int(tokenizer_id(t, "[PAD5]"), -1, "an unused number has no text");
	tokenizer_free(t);
}

/* ---- SentencePiece's ids ---- */

static const json_t *golden_pieces; /* golden/sentencepiece_cases.json */

static void put_golden_pieces(struct gguf_out *o)
{
	const json_t *tokens = json_object_get(golden_pieces, "tokens"), *v;
	size_t i, n = json_array_size(tokens);

	gguf_put_text(o, "tokenizer.ggml.model", "llama");
	gguf_put_truth(o, "tokenizer.ggml.add_space_prefix", false);
	gguf_put_array(o, "tokenizer.ggml.tokens", GGUF_STRING, n);
	json_array_foreach(tokens, i, v)
		gguf_put_string(&o->keys, json_string_value(v), json_string_length(v));
	gguf_put_array(o, "tokenizer.ggml.token_type", GGUF_I32, n);
	json_array_foreach(json_object_get(golden_pieces, "types"), i, v)
		gguf_put_u32(&o->keys, (uint32_t)json_integer_value(v));
	gguf_put_array(o, "tokenizer.ggml.scores", GGUF_F32, n);
	json_array_foreach(json_object_get(golden_pieces, "scores"), i, v)
	{
		float score = (float)json_number_value(v);

		buf_append(&o->keys, &score, sizeof(score));
	}
}

TEST(sentencepiece)
{
	json_t *root = json_load_file("tests/golden/sentencepiece_cases.json", 0, NULL), *c;
	struct tokenizer *t;
	size_t i;

	golden_pieces = root;
	text_of(put_golden_pieces, CHECKPOINT_TOKENIZER_CONFIG, 0, "{}", "no special tokens");
	t = tokenizer_of(scratch_path("m.gguf"));
	json_array_foreach(json_object_get(root, "cases"), i, c)
	{
		const json_t *text = json_array_get(c, 0), *want = json_array_get(c, 1);
		struct ids ids = {0};
		bool same = tokenizer_encode(t, json_string_value(text), json_string_length(text),
					     true, NULL, &ids) == 0 &&
			    ids.len == json_array_size(want);

		for (size_t k = 0; same && k < ids.len; k++)
			same = json_integer_value(json_array_get(want, k)) == ids.v[k];
		if (!same)
			printf("# case %zu\n", i);
		check(same);
		ids_release(&ids);
	}
	check(i > 300);
	ok_all("SentencePiece's ids of %zu texts", i);
	tokenizer_free(t);
	json_decref(root);
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
