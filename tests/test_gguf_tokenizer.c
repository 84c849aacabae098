/* engine/checkpoint/formats/gguf_tokenizer.c and gguf_merges.c: tokenizer.json and its siblings of a GGUF file's keys, the
 * sentences with which keys are refused, and the ids of texts; vocabularies of SentencePiece have those of its library. And
 * the way back of these, gguf_vocab.c. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/ids.h"
#include "engine/checkpoint/formats/gguf_keys.h"
#include "engine/checkpoint/formats/gguf_texts.h"
#include "protocol/tokenizer/splitter.h"
#include "tests/gguf_text.h"
#include "tests/model_text.h"

static void no_keys(struct gguf_out *o)
{
}

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

/* Returns the tokenizer of the file that text_of wrote last. */
static struct tokenizer *written(void)
{
	struct tokenizer *t = NULL;
	struct err e = {0};

	ok(model_tokenizer(scratch_path("m.gguf"), &t, &e) == 0, "a tokenizer %s", e.text);
	return t;
}

static void expect_ids(const struct tokenizer *t, const char *text, size_t n, const int32_t *want)
{
	struct ids ids = {0};

	ok(tokenizer_encode_whole(t, text, strlen(text), NULL, &ids) == 0 && ids.len == n &&
		   !memcmp(ids.v, want, n * sizeof(*want)),
	   "the tokens of %s", text);
	ids_release(&ids);
}

TEST(whole_texts)
{
	struct tokenizer *t;

	text_of(llama_words, CHECKPOINT_GENERATION, 0, "{\"eos_token_id\": [5]}", "Llama's");
	t = written();
	expect_ids(t, "ab<t>", 3, (const int32_t[]){3, 2, 6});
	ok(tokenizer_is_special(t, 5) && !tokenizer_is_special(t, 6), "special tokens");
	is_int(tokenizer_id(t, "[PAD4]"), -1, "an unused number has no text");
	tokenizer_free(t);
	text_of(qwen_words, CHECKPOINT_TOKENIZER_CONFIG, 0,
		"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}", "Qwen's");
	t = written();
	expect_ids(t, "ba", 3, (const int32_t[]){1, 0, 5});
	tokenizer_free(t);
	text_of(gemma_pieces, CHECKPOINT_TOKENIZER_CONFIG, 0,
		"{\"bos_token\":\"<bos>\",\"eos_token\":\"<eos>\"}", "Gemma's");
	t = written();
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
	t = written();
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

static void put_golden_model(struct gguf_out *o)
{
	gguf_put_text(o, "general.architecture", "gemma3");
	gguf_put_whole(o, "gemma3.block_count", 2);
	gguf_put_whole(o, "gemma3.context_length", 512);
	gguf_put_whole(o, "gemma3.embedding_length", 16);
	gguf_put_whole(o, "gemma3.feed_forward_length", 32);
	gguf_put_whole(o, "gemma3.attention.head_count", 2);
	gguf_put_real(o, "gemma3.attention.layer_norm_rms_epsilon", 0.5f);
	put_golden_pieces(o);
}

/* The keys that are written of the tokenizer.json that was made of a file's keys are those of the file: only scores are other
 * numbers, in the same order. */
TEST(sentencepiece_written)
{
	json_t *root = json_load_file("tests/golden/sentencepiece_cases.json", 0, NULL), *v;
	struct model_config c = {
		.vocab_size = (uint32_t)json_array_size(json_object_get(root, "tokens"))};
	struct checkpoint_text text = {0};
	struct checkpoint *k = NULL;
	struct gguf_file written = {0};
	struct gguf_keys keys;
	struct buf header, again;
	struct err e = {0};
	const uint8_t *at;
	size_t i, len;

	golden_pieces = root;
	text_of(put_golden_model, CHECKPOINT_TOKENIZER_CONFIG, 0, "{}", "a file");
	gguf_keys_init(&keys);
	buf_init(&header, GGUF_OUT_MAX);
	buf_init(&again, GGUF_OUT_MAX);
	ok(checkpoint_open(scratch_path("m.gguf"), &k, &e) == 0 &&
		   checkpoint_read(k, CHECKPOINT_TOKENIZER, &text, &e) == 0 &&
		   gguf_keys_of_tokenizer(k, &c, &keys, &e) == 0,
	   "its tokenizer becomes keys %s", e.text);
	gguf_put_header(&header, &keys, NULL, 0);
	if (!ok(gguf_file_read("written", header.data, header.len, &written, &e) == 0 &&
			gguf_tokenizer(&(struct gguf_source){.keys = &written}, &again, &e) == 0,
		"which become a tokenizer %s", e.text))
		return;
	is_str(buf_str(&again), buf_str(&text.bytes), "the same one");
	at = gguf_find(&written, "tokenizer.ggml.tokens")->value;
	json_array_foreach(json_object_get(root, "tokens"), i, v)
	{
		const char *own = gguf_next_string(&at, &len);

		check(len == json_string_length(v) && !memcmp(own, json_string_value(v), len));
	}
	json_array_foreach(json_object_get(root, "types"), i, v)
	{
		uint64_t type = 0, want = (uint64_t)json_integer_value(v);

		check(gguf_whole(gguf_find(&written, "tokenizer.ggml.token_type"), i, &type));
		check(type == (want == GGUF_TOKEN_UNKNOWN ? GGUF_TOKEN_CONTROL : want));
	}
	ok_all("texts and types of %zu tokens", i);
	gguf_file_release(&written);
	gguf_keys_release(&keys);
	buf_release(&header);
	buf_release(&again);
	checkpoint_text_release(&text);
	checkpoint_close(k);
	json_decref(root);
}

TEST_MAIN()
