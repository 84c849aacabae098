/* The keys of a tokenizer, as gguf-py's SpecialVocab and llama.cpp's converter make them of Hugging Face's files.
 *
 * Of a tokenizer of SentencePiece's (Gemma) the converter takes the scores from tokenizer.model. Here they are made of the
 * merges in tokenizer.json, which were made of scores: a token's is minus the number of tokens whose merges begin earlier.
 * These are the scores that SentencePiece itself gives to a model of byte pair encoding. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/formats/gguf_keys.h"
#include "engine/checkpoint/formats/gguf_texts.h"

#define MARK "\xe2\x96\x81" /* U+2581 */

enum { TEXT_MAX = 1 << 30 }; /* bytes */

/* Special tokens that have keys. The words for them in tokenizer_config.json are NAME_token, in config.json
 * NAME_token_id. */
enum special { BOS, EOS, UNK, SEP, PAD, CLS, MASK, EOT, SPECIALS };

static const struct {
	const char *name, *key;
} specials[SPECIALS] = {
	[BOS] = {"bos", "tokenizer.ggml.bos_token_id"},
	[EOS] = {"eos", "tokenizer.ggml.eos_token_id"},
	[UNK] = {"unk", "tokenizer.ggml.unknown_token_id"},
	[SEP] = {"sep", "tokenizer.ggml.seperator_token_id"}, /* spelled so */
	[PAD] = {"pad", "tokenizer.ggml.padding_token_id"},
	[CLS] = {"cls", "tokenizer.ggml.cls_token_id"},
	[MASK] = {"mask", "tokenizer.ggml.mask_token_id"},
	[EOT] = {"eot", "tokenizer.ggml.eot_token_id"},
};

/* Whether the tokenizer adds a token: BOS in front of a text, or EOS behind it. A file may not say it. */
enum added { UNSAID = -1, NOT_ADDED, ADDED };

struct token {
	const char *text; /* borrowed; NULL: the number stands for nothing */
	size_t len;
	int32_t type; /* GGUF_TOKEN_* */
};

struct maker {
	const struct checkpoint *k;
	const struct model_config *c;
	const char *file;	       /* of the tokenizer, for messages */
	json_t *root;		       /* of tokenizer.json */
	json_t *texts;		       /* of tokenizer_config.json; NULL: there is none */
	json_t *config;		       /* of config.json */
	struct token *tokens;	       /* [vocab_size of c] */
	const char *special[SPECIALS]; /* texts of special tokens, borrowed; NULL: unknown */
	enum added add_bos, add_eos;
	const char *pre;
	bool scores; /* the tokenizer is one of SentencePiece's */
	struct gguf_keys *out;
	struct err *e;
};

static int fail(const struct maker *m, int code, const char *what)
{
	return err_set(m->e, code, "%s: %s", m->file, what);
}

/* ---- the vocabulary ---- */

static int set_token(const struct maker *m, const json_t *id, const char *text, size_t len,
		     int32_t type)
{
	json_int_t i = json_integer_value(id);

	if (!json_is_integer(id) || i < 0 || !text)
		return fail(m, EINVAL, "a token has no text, or no number");
	if (i >= m->c->vocab_size)
		return err_set(m->e, EINVAL,
			       "%s: a token has the number %lld, but the model has %u tokens",
			       m->file, (long long)i, m->c->vocab_size);
	m->tokens[i] = (struct token){text, len, type};
	return 0;
}

/* The converter takes tokens for control tokens that look so, whatever the file says. */
static bool looks_special(const char *text)
{
	static const char *const names[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
	static const char *const around[][2] = {{"<|", "|>"}, {"<｜", "｜>"}, {"<unused", ">"}};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(text, names[i]))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(around); i++)
		if (!strncmp(text, around[i][0], strlen(around[i][0])) &&
		    name_ends_in(text, around[i][1]))
			return true;
	return false;
}

/* Returns the type of a token of the model's vocabulary. */
static int32_t vocab_type(const struct maker *m, const char *text)
{
	const char *unknown =
		json_string_value(json_object_get(json_object_get(m->root, "model"), "unk_token"));
	unsigned byte;
	int end = 0;

	if (!m->scores)
		return GGUF_TOKEN_NORMAL;
	if (unknown && !strcmp(text, unknown))
		return GGUF_TOKEN_UNKNOWN;
	return sscanf(text, "<0x%2X>%n", &byte, &end) == 1 && end == 6 && !text[end]
		       ? GGUF_TOKEN_BYTE
		       : GGUF_TOKEN_NORMAL;
}

static int read_tokens(const struct maker *m)
{
	const json_t *model = json_object_get(m->root, "model");
	const json_t *added = json_object_get(m->root, "added_tokens");
	json_t *vocab = json_object_get(model, "vocab"), *v;
	const char *text;
	size_t i;
	int r = 0;

	if (!json_is_object(vocab))
		return fail(m, EINVAL, "the tokenizer has no vocabulary");
	json_object_foreach(vocab, text, v)
	{
		r = set_token(m, v, text, strlen(text), vocab_type(m, text));
		if (r < 0)
			return r;
	}
	json_array_foreach(added, i, v)
	{
		const json_t *content = json_object_get(v, "content");
		bool control = json_is_true(json_object_get(v, "special"));

		text = json_string_value(content);
		control |= text && looks_special(text);
		r = set_token(m, json_object_get(v, "id"), text, json_string_length(content),
			      control ? GGUF_TOKEN_CONTROL : GGUF_TOKEN_USER);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Appends the text of a token. SentencePiece's tokens of the user have spaces for U+2581 (gguf_append_marked). */
static void add_text(const struct maker *m, const struct token *t, struct buf *scratch)
{
	const char *at = t->text, *mark;

	if (!m->scores || t->type != GGUF_TOKEN_USER) {
		gguf_add_element(m->out, t->text, t->len);
		return;
	}
	buf_reset(scratch);
	for (; (mark = strstr(at, MARK)); at = mark + strlen(MARK)) {
		buf_append(scratch, at, (size_t)(mark - at));
		buf_putc(scratch, ' ');
	}
	buf_puts(scratch, at);
	gguf_add_element(m->out, buf_str(scratch), scratch->len);
}

static void add_tokens(const struct maker *m)
{
	uint32_t n = m->c->vocab_size;
	struct buf scratch;

	gguf_add_array(m->out, "tokenizer.ggml.tokens", GGUF_STRING, n);
	buf_init(&scratch, TEXT_MAX);
	for (uint32_t i = 0; i < n; i++) {
		char pad[32];

		snprintf(pad, sizeof(pad), "[PAD%u]", i);
		if (m->tokens[i].text)
			add_text(m, &m->tokens[i], &scratch);
		else
			gguf_add_element(m->out, pad, strlen(pad));
	}
	buf_release(&scratch);
	gguf_add_array(m->out, "tokenizer.ggml.token_type", GGUF_I32, n);
	for (uint32_t i = 0; i < n; i++) {
		int32_t type = m->tokens[i].text ? m->tokens[i].type : GGUF_TOKEN_UNUSED;

		buf_append(&m->out->bytes, &type, sizeof(type));
	}
}

/* Appends half of a merge. White space would look like the space between both halves, so it is written as byte-level
 * tokenizers have it. */
static void put_half(struct buf *b, const char *text)
{
	for (; *text; text++)
		if (*text == ' ')
			buf_puts(b, "\xc4\xa0"); /* U+0120 */
		else
			buf_putc(b, *text);
}

static int add_merges(const struct maker *m)
{
	const json_t *merges = json_object_get(json_object_get(m->root, "model"), "merges"), *v;
	struct buf pair;
	int r = 0;
	size_t i;

	if (!json_is_array(merges))
		return fail(m, EINVAL, "the tokenizer has no merges");
	gguf_add_array(m->out, "tokenizer.ggml.merges", GGUF_STRING, json_array_size(merges));
	buf_init(&pair, 1 << 20);
	json_array_foreach(merges, i, v)
	{
		const char *left = json_string_value(json_array_get(v, 0));
		const char *right = json_string_value(json_array_get(v, 1));

		if (json_is_string(v)) {
			gguf_add_element(m->out, json_string_value(v), json_string_length(v));
			continue;
		}
		if (!left || !right || json_array_size(v) != 2) {
			r = fail(m, EINVAL, "a merge is no pair of texts");
			break;
		}
		buf_reset(&pair);
		put_half(&pair, left);
		buf_putc(&pair, ' ');
		put_half(&pair, right);
		gguf_add_element(m->out, buf_str(&pair), pair.len);
	}
	buf_release(&pair);
	return r;
}

/* ---- scores in the place of merges ---- */

/* One of the lists of merges, and a place there. */
struct merge_list {
	const json_t *list;
	size_t at;
	struct buf left, right, whole; /* texts of the last merge */
};

static void merges_begin(struct merge_list *l, const json_t *root)
{
	*l = (struct merge_list){json_object_get(json_object_get(root, "model"), "merges"), 0};
	buf_init(&l->left, TEXT_MAX);
	buf_init(&l->right, TEXT_MAX);
	buf_init(&l->whole, TEXT_MAX);
}

static void merges_end(struct merge_list *l)
{
	buf_release(&l->left);
	buf_release(&l->right);
	buf_release(&l->whole);
}

/* Reads the next merge, which is a pair or a text with a space between its halves. False: there is none. */
static bool next_merge(struct merge_list *l)
{
	const json_t *v = json_array_get(l->list, l->at++);
	const char *left = json_string_value(json_array_get(v, 0));
	const char *right = json_string_value(json_array_get(v, 1));
	const char *both = json_string_value(v), *space = both ? strchr(both, ' ') : NULL;

	buf_reset(&l->left);
	buf_reset(&l->right);
	buf_reset(&l->whole);
	if (space) {
		buf_append(&l->left, both, (size_t)(space - both));
		buf_puts(&l->right, space + 1);
	} else if (left && right) {
		buf_puts(&l->left, left);
		buf_puts(&l->right, right);
	}
	buf_append(&l->whole, buf_str(&l->left), l->left.len);
	buf_append(&l->whole, buf_str(&l->right), l->right.len);
	return v;
}

/* Returns the number of the token that the last merge makes; -1: it makes none. */
static json_int_t merged(const struct maker *m, struct merge_list *l)
{
	const json_t *vocab = json_object_get(json_object_get(m->root, "model"), "vocab");
	const json_t *id = json_object_get(vocab, buf_str(&l->whole));

	return id ? json_integer_value(id) : -1;
}

/* Reads the next merge that makes a normal token. False: there is none. */
static bool next_normal(const struct maker *m, struct merge_list *l)
{
	while (next_merge(l)) {
		json_int_t id = merged(m, l);

		if (id >= 0 && m->tokens[id].type == GGUF_TOKEN_NORMAL)
			return true;
	}
	return false;
}

/* Fills scores [vocab_size]: those of normal tokens from 0 down, first of the tokens that have merges, then of the others;
 * the converter's for all other tokens. */
static int make_scores(const struct maker *m, float *scores)
{
	uint32_t rank = 0;
	struct merge_list l;
	int r = 0;

	for (uint32_t i = 0; i < m->c->vocab_size; i++)
		scores[i] = !m->tokens[i].text			     ? -10000
			    : m->tokens[i].type == GGUF_TOKEN_NORMAL ? NAN
			    : m->tokens[i].type == GGUF_TOKEN_BYTE   ? 0
								     : -1000;
	merges_begin(&l, m->root);
	while (r == 0 && next_merge(&l)) {
		json_int_t id = merged(m, &l);

		if (id < 0 || !l.left.len || !l.right.len)
			r = fail(m, EINVAL, "a merge is no pair of texts that make a token");
		else if (isnan(scores[id]))
			scores[id] = -(float)rank++;
	}
	merges_end(&l);
	for (uint32_t i = 0; i < m->c->vocab_size; i++)
		if (isnan(scores[i]))
			scores[i] = -(float)rank++;
	return r;
}

/* Compares the merges of normal tokens with those that a reader makes of the keys (gguf_merges.c). Those of tokens of the
 * user come first there, in an order of their own. */
static int compare_merges(const struct maker *m, const json_t *made)
{
	struct merge_list own, other;
	bool more = true, same = true;

	merges_begin(&own, m->root);
	merges_begin(&other, made);
	while (more && same) {
		more = next_normal(m, &own);
		same = more == next_normal(m, &other);
		if (more && same)
			same = !strcmp(buf_str(&own.left), buf_str(&other.left)) &&
			       !strcmp(buf_str(&own.right), buf_str(&other.right));
	}
	merges_end(&own);
	merges_end(&other);
	return same ? 0 : fail(m, ENOTSUP, "the merges are none that scores of tokens can say");
}

/* Reads the keys as those of a file. */
static int check_scores(const struct maker *m)
{
	struct gguf_file f = {0};
	struct buf header, text;
	json_t *made = NULL;
	int r;

	buf_init(&header, TEXT_MAX);
	buf_init(&text, TEXT_MAX);
	gguf_put_header(&header, m->out, NULL, 0);
	r = header.failed ? fail(m, ENOMEM, "out of memory for the vocabulary")
			  : gguf_file_read(m->file, header.data, header.len, &f, m->e);
	if (r == 0)
		r = gguf_tokenizer(&(struct gguf_source){.keys = &f}, &text, m->e);
	if (r == 0 && !(made = json_loadb(buf_str(&text), text.len, 0, NULL)))
		r = fail(m, ENOMEM, "out of memory for the vocabulary");
	if (r == 0)
		r = compare_merges(m, made);
	json_decref(made);
	gguf_file_release(&f);
	buf_release(&header);
	buf_release(&text);
	return r;
}

static int add_scores(const struct maker *m)
{
	uint32_t n = m->c->vocab_size;
	float *scores = calloc(n, sizeof(*scores));
	int r = scores ? make_scores(m, scores)
		       : fail(m, ENOMEM, "out of memory for the vocabulary");

	gguf_add_truth(m->out, "tokenizer.ggml.add_space_prefix", false);
	gguf_add_array(m->out, "tokenizer.ggml.scores", GGUF_F32, n);
	if (r == 0)
		buf_append(&m->out->bytes, scores, n * sizeof(*scores));
	free(scores);
	return r < 0 ? r : check_scores(m);
}

/* ---- special tokens ---- */

/* Returns the text of a special token in tokenizer_config.json, which may be an object with it. NULL: there is none. */
static const char *special_text(const struct maker *m, enum special s)
{
	char key[32];
	const json_t *v;

	snprintf(key, sizeof(key), "%s_token", specials[s].name);
	v = json_object_get(m->texts, key);
	return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

/* Returns the text of the special token at the beginning or the end of a template; NULL: there is none. */
static const char *edge(const json_t *single, bool end)
{
	size_t n = json_array_size(single);
	const json_t *v = n > 1 ? json_array_get(single, end ? n - 1 : 0) : NULL;

	return json_string_value(json_object_get(json_object_get(v, "SpecialToken"), "id"));
}

/* Reads which special tokens a post-processor adds to a text. */
static void read_processor(struct maker *m, const json_t *v)
{
	const char *type = json_string_value(json_object_get(v, "type"));
	const json_t *single = json_object_get(v, "single");
	const char *first = edge(single, false), *last = edge(single, true);

	if (!type || strcmp(type, "TemplateProcessing") != 0)
		return;
	if (first && !m->texts)
		m->special[BOS] = first;
	if (first) {
		const char *bos = m->special[BOS], *cls = m->special[CLS];

		m->add_bos = (bos && !strcmp(first, bos)) || (cls && !strcmp(first, cls))
				     ? ADDED
				     : NOT_ADDED;
	}
	if (!last)
		return;
	if (m->texts && (!m->special[EOS] || strcmp(last, m->special[EOS]) != 0))
		m->special[EOT] = m->special[EOS];
	m->special[EOS] = last;
	m->add_eos = ADDED;
}

static enum added said(const struct maker *m, const char *key, enum added otherwise)
{
	const json_t *v = json_object_get(m->texts, key);

	return json_is_boolean(v) ? (json_is_true(v) ? ADDED : NOT_ADDED) : otherwise;
}

static void read_special(struct maker *m)
{
	const json_t *post = json_object_get(m->root, "post_processor"), *v;
	const json_t *list = json_object_get(post, "processors");
	size_t i;

	for (int s = 0; s < EOT; s++)
		m->special[s] = special_text(m, (enum special)s);
	if (!m->special[BOS])
		m->special[BOS] = m->special[CLS];
	if (!m->special[EOS])
		m->special[EOS] = m->special[SEP];
	if (list) {
		json_array_foreach(list, i, v) read_processor(m, v);
	} else {
		read_processor(m, post);
	}
	m->add_bos = said(m, "add_bos_token", m->add_bos);
	m->add_eos = said(m, "add_eos_token", m->add_eos);
}

/* Returns the number of an added token; -1: there is none of that text. */
static json_int_t added_id(const struct maker *m, const char *text)
{
	const json_t *added = json_object_get(m->root, "added_tokens"), *v;
	size_t i;

	json_array_foreach(added, i, v)
	{
		const char *content = json_string_value(json_object_get(v, "content"));

		if (content && text && !strcmp(content, text))
			return json_integer_value(json_object_get(v, "id"));
	}
	return -1;
}

/* Returns the number of a special token that config.json has; -1: it has none. */
static json_int_t config_id(const struct maker *m, enum special s)
{
	const json_t *inner = json_object_get(m->config, "text_config"), *v;
	char key[32];

	snprintf(key, sizeof(key), "%s_token_id", specials[s].name);
	v = json_object_get(m->config, key);
	if (!v || json_is_null(v))
		v = json_object_get(inner, key);
	return json_is_integer(v) ? json_integer_value(v) : -1;
}

static void add_special(const struct maker *m)
{
	for (int s = 0; s < SPECIALS; s++) {
		json_int_t id = added_id(m, m->special[s]);

		if (id < 0)
			id = config_id(m, (enum special)s);
		if (id >= 0 && id < m->c->vocab_size)
			gguf_add_whole(m->out, specials[s].key, (uint32_t)id);
	}
	/* Readers add a token in front of the texts of Llama 3 and Gemma, if a file does not say whether. */
	if (m->add_bos != UNSAID || !strcmp(m->pre, "llama-bpe") || m->scores)
		gguf_add_truth(m->out, "tokenizer.ggml.add_bos_token", m->add_bos == ADDED);
	if (m->add_eos != UNSAID)
		gguf_add_truth(m->out, "tokenizer.ggml.add_eos_token", m->add_eos == ADDED);
}

/* ---- whole files ---- */

/* Reads a text as JSON. *ret is new; NULL, and 0: there is no such text. */
static int read_json(const struct checkpoint *k, enum checkpoint_part part, json_t **ret,
		     char name[512], struct err *e)
{
	struct checkpoint_text text;
	json_error_t why;
	/* A tokenizer_config.json may have a model_max_length of 10^30, which is no integer of 64 bits. */
	const size_t flags = part == CHECKPOINT_TOKENIZER_CONFIG ? JSON_DECODE_INT_AS_REAL : 0;
	int r = checkpoint_read(k, part, &text, e);

	*ret = NULL;
	snprintf(name, 512, "%s", text.name);
	if (r == 0) {
		*ret = json_loadb(buf_str(&text.bytes), text.bytes.len, flags, &why);
		if (!*ret)
			r = err_set(e, EINVAL, "%s: %s", name, why.text);
	}
	checkpoint_text_release(&text);
	return r == -ENOENT ? 0 : r;
}

static int add_template(const struct maker *m)
{
	struct checkpoint_text text;
	int r = checkpoint_read(m->k, CHECKPOINT_TEMPLATE, &text, m->e);

	if (r == 0)
		gguf_add_text(m->out, "tokenizer.chat_template", buf_str(&text.bytes),
			      text.bytes.len);
	checkpoint_text_release(&text);
	return r == -ENOENT ? 0 : r;
}

static int add_keys(struct maker *m)
{
	const char *type =
		json_string_value(json_object_get(json_object_get(m->root, "model"), "type"));
	const char *model;
	int r;

	if (!type || strcmp(type, "BPE") != 0)
		return fail(m, ENOTSUP, "only BPE is written to GGUF files");
	m->pre = gguf_pre_of(m->root, &m->scores);
	if (!m->pre)
		return fail(m, ENOTSUP,
			    "texts are split in a way that has no known name in GGUF files");
	m->tokens = calloc(m->c->vocab_size, sizeof(*m->tokens));
	if (!m->tokens)
		return fail(m, ENOMEM, "out of memory for the vocabulary");
	r = read_tokens(m);
	if (r < 0)
		return r;
	read_special(m);
	model = m->scores ? "llama" : "gpt2";
	gguf_add_text(m->out, "tokenizer.ggml.model", model, strlen(model));
	gguf_add_text(m->out, "tokenizer.ggml.pre", m->pre, strlen(m->pre));
	add_tokens(m);
	r = m->scores ? add_scores(m) : add_merges(m);
	add_special(m);
	return r < 0 ? r : add_template(m);
}

int gguf_keys_of_tokenizer(const struct checkpoint *k, const struct model_config *c,
			   struct gguf_keys *out, struct err *e)
{
	char file[512], other[512];
	struct maker m = {.k = k,
			  .c = c,
			  .file = file,
			  .add_bos = UNSAID,
			  .add_eos = UNSAID,
			  .out = out,
			  .e = e};
	int r = read_json(k, CHECKPOINT_TOKENIZER, &m.root, file, e);

	if (r == 0 && !m.root)
		return err_set(e, ENOENT, "%s: the model has no tokenizer.json",
			       checkpoint_path(k));
	if (r == 0)
		r = read_json(k, CHECKPOINT_TOKENIZER_CONFIG, &m.texts, other, e);
	if (r == 0)
		r = read_json(k, CHECKPOINT_CONFIG, &m.config, other, e);
	if (r == 0)
		r = add_keys(&m);
	free(m.tokens);
	json_decref(m.root);
	json_decref(m.texts);
	json_decref(m.config);
	return r;
}
