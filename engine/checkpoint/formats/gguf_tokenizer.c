/* tokenizer.json, tokenizer_config.json and the chat template of the keys of a GGUF file. Files with byte-level BPE have
 * the vocabulary and the merges of Hugging Face's tokenizer.json, but of its other parts only a name, tokenizer.ggml.pre.
 * The table below has these parts for the names of the models that are served.
 *
 * Files with the vocabulary of a model of SentencePiece's (Gemma) have scores in the place of merges (gguf_merges.c). What
 * they become is the tokenizer.json that Hugging Face made of the same model. Tokens of several spaces are U+2581 among its
 * added tokens, too, so texts have them by merges alone.
 *
 * Not all that a tokenizer.json says is in a GGUF file. All added tokens are looked for in the raw text here, and have no
 * white space of their own, as those of these models; the converter marks all tokens <|...|> as control tokens. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/utf8.h"
#include "engine/checkpoint/formats/gguf_texts.h"

/* The patterns by which the models' own files split texts into words, as JSON has them. */
#define SPLIT(pattern)                                                                                    \
	"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern \
	"\"},\"behavior\":\"Isolated\",\"invert\":false}," BYTES(false) "]}"
#define BYTES(regex)                                                                                     \
	"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":" #regex \
	"}"
#define MARKED_DECODER                                   \
	"{\"type\":\"Sequence\",\"decoders\":[" REPLACE( \
		MARK, " ") ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}"
#define DIGITS                                                                                               \
	"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}," BYTES( \
		true) "]}"
#define MARK "\xe2\x96\x81" /* U+2581 */
#define REPLACE(from, to) \
	"{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define WHITE	     "|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define WORDS(digits)                                                  \
	CONTRACTIONS "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" digits \
		     "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*" WHITE
#define WORDS_WITH_MARKS                                                          \
	CONTRACTIONS "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}" \
		     "| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*" WHITE

static const struct pre {
	const char *name; /* tokenizer.ggml.pre */
	const char *pre_tokenizer;
	bool nfc, ignore_merges;
	bool marked;  /* spaces are U+2581, and characters without a token are bytes */
	bool add_bos; /* if the file does not say whether */
} pres[] = {
	{"qwen35", SPLIT(WORDS_WITH_MARKS), .nfc = true},
	{"qwen2", SPLIT(WORDS("\\\\p{N}")), .nfc = true},
	{"deepseek-r1-qwen", SPLIT(WORDS("\\\\p{N}"))},
	{"llama-bpe", SPLIT(WORDS("\\\\p{N}{1,3}")), .ignore_merges = true, .add_bos = true},
	{"llama-v3", SPLIT(WORDS("\\\\p{N}{1,3}")), .ignore_merges = true, .add_bos = true},
	{"llama3", SPLIT(WORDS("\\\\p{N}{1,3}")), .ignore_merges = true, .add_bos = true},
	{"smollm", DIGITS},
	{"gpt-2", BYTES(true)},
};

static const struct pre sentencepiece = {"llama", "null", .marked = true, .add_bos = true};

/* ---- names of given tokenizers ---- */

static bool has_type(const json_t *v, const char *type)
{
	const char *own = json_string_value(json_object_get(v, "type"));

	return own && !strcmp(own, type);
}

/* Sets what a part of a pre-tokenizer leaves out, and takes out what changes no token. `v` is a part, or has parts. */
static void settle(json_t *v)
{
	json_t *part;
	size_t i;

	json_array_foreach(json_object_get(v, "pretokenizers"), i, part) settle(part);
	json_object_del(v, "trim_offsets");
	if (has_type(v, "ByteLevel") && !json_object_get(v, "use_regex"))
		json_object_set_new(v, "use_regex", json_true());
	if (has_type(v, "Split") && !json_object_get(v, "invert"))
		json_object_set_new(v, "invert", json_false());
}

/* Returns whether a pre-tokenizer, which was settled, is that of a row. */
static bool is_pre(const json_t *v, const struct pre *p)
{
	json_t *own = json_loads(p->pre_tokenizer, 0, NULL);
	bool same;

	settle(own);
	same = own && json_equal(own, v);
	json_decref(own);
	return same;
}

/* Returns whether a tokenizer.json is one of SentencePiece's: spaces are U+2581, and characters without a token are bytes.
 * A split at spaces finds none then. */
static bool is_sentencepiece(const json_t *tokenizer)
{
	const json_t *model = json_object_get(tokenizer, "model");
	const json_t *pre = json_object_get(tokenizer, "pre_tokenizer");
	const char *at =
		json_string_value(json_object_get(json_object_get(pre, "pattern"), "String"));
	json_t *marks = json_loads(REPLACE(" ", MARK), 0, NULL);
	bool marked = marks && json_equal(marks, json_object_get(tokenizer, "normalizer"));

	json_decref(marks);
	return marked && json_is_true(json_object_get(model, "byte_fallback")) &&
	       !json_is_true(json_object_get(model, "ignore_merges")) &&
	       (!pre || json_is_null(pre) || (has_type(pre, "Split") && at && !strcmp(at, " ")));
}

const char *gguf_pre_of(const json_t *tokenizer, bool *scores)
{
	const json_t *model = json_object_get(tokenizer, "model");
	const json_t *normalizer = json_object_get(tokenizer, "normalizer");
	bool nfc = has_type(normalizer, "NFC");
	bool ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
	json_t *v = json_deep_copy(json_object_get(tokenizer, "pre_tokenizer"));
	const char *found = NULL;

	*scores = is_sentencepiece(tokenizer);
	if (*scores || (json_is_object(normalizer) && !nfc)) {
		json_decref(v);
		return *scores ? "default" : NULL;
	}
	settle(v);
	for (size_t i = 0; !found && v && i < ARRAY_SIZE(pres); i++)
		if (pres[i].nfc == nfc && pres[i].ignore_merges == ignore_merges &&
		    is_pre(v, &pres[i]))
			found = pres[i].name;
	json_decref(v);
	return found;
}

/* ---- the vocabulary ---- */

/* Finds a key with an array of the type, or of whole numbers for GGUF_TYPES. */
static int find_list(const struct gguf_source *s, const char *name, enum gguf_type type,
		     const struct gguf_key **ret, struct err *e)
{
	const struct gguf_key *k = gguf_find(s->keys, name);
	uint64_t v;

	if (!k)
		return err_set(e, ENOENT, "%s: key %s is missing", s->keys->shown, name);
	if (!k->array || (type == GGUF_STRING ? k->type != type : k->n && !gguf_whole(k, 0, &v)))
		return err_set(e, EINVAL, "%s: key %s is no list of %s", s->keys->shown, name,
			       type == GGUF_STRING ? "texts" : "whole numbers");
	*ret = k;
	return 0;
}

int gguf_vocab(const struct gguf_source *s, struct gguf_vocab *ret, struct err *e)
{
	struct gguf_vocab v = {0};
	int r = find_list(s, "tokenizer.ggml.tokens", GGUF_STRING, &v.tokens, e);

	if (r < 0)
		return r;
	r = find_list(s, "tokenizer.ggml.token_type", GGUF_TYPES, &v.types, e);
	if (r < 0 && r != -ENOENT)
		return r;
	if (v.types && v.types->n != v.tokens->n)
		return err_set(e, EINVAL,
			       "%s: keys tokenizer.ggml.tokens and tokenizer.ggml.token_type have "
			       "lists of different lengths",
			       s->keys->shown);
	*ret = v;
	return 0;
}

uint64_t gguf_token_type(const struct gguf_vocab *v, uint64_t id)
{
	uint64_t type = 0;

	return v->types && gguf_whole(v->types, id, &type) ? type : GGUF_TOKEN_NORMAL;
}

int64_t gguf_token_id(const struct gguf_source *s, const struct gguf_vocab *v, const char *name)
{
	const struct gguf_key *k = gguf_find(s->keys, name);
	uint64_t id;

	return k && !k->array && gguf_whole(k, 0, &id) && id < v->tokens->n ? (int64_t)id : -1;
}

bool gguf_quote(const char *text, size_t len, struct buf *out)
{
	if (utf8_valid(text, len) != len || memchr(text, 0, len))
		return false;
	buf_putc(out, '"');
	for (size_t i = 0, n; i < len; i += n) {
		for (n = 0; i + n < len && (unsigned char)text[i + n] >= ' ' &&
			    text[i + n] != '"' && text[i + n] != '\\';)
			n++;
		buf_append(out, text + i, n);
		if (i + n == len)
			break;
		buf_printf(out, "\\u%04x", (unsigned char)text[i + n]);
		n++;
	}
	buf_putc(out, '"');
	return true;
}

void gguf_append_marked(uint64_t type, const char *text, size_t len, struct buf *out)
{
	for (size_t i = 0; i < len; i++)
		if (type == GGUF_TOKEN_USER && text[i] == ' ')
			buf_puts(out, MARK);
		else
			buf_putc(out, text[i]);
}

/* Appends the text of a token, as tokenizer.json has it. */
static bool quote_text(const struct pre *p, uint64_t type, const char *text, size_t len,
		       struct buf *out)
{
	struct buf marked;
	bool good;

	if (!p->marked)
		return gguf_quote(text, len, out);
	buf_init(&marked, SIZE_MAX / 2);
	gguf_append_marked(type, text, len, &marked);
	out->failed |= marked.failed;
	good = gguf_quote(buf_str(&marked), marked.len, out);
	buf_release(&marked);
	return good;
}

/* Appends the text of a token as a JSON string. */
static bool quote_token(const struct gguf_vocab *v, int64_t id, struct buf *out)
{
	const uint8_t *at = v->tokens->value;
	const char *text = NULL;
	size_t len = 0;

	for (int64_t i = 0; i <= id; i++)
		text = gguf_next_string(&at, &len);
	return gguf_quote(text, len, out);
}

/* ---- tokenizer.json ---- */

/* Reads a truth value; another type, or no key: `missing`. */
static bool truth(const struct gguf_source *s, const char *name, bool missing)
{
	const struct gguf_key *k = gguf_find(s->keys, name);

	return k && k->type == GGUF_BOOL && !k->array ? k->value[0] : missing;
}

static int find_pre(const struct gguf_source *s, const struct pre **ret, struct err *e)
{
	static const char model[] = "tokenizer.ggml.model", pre[] = "tokenizer.ggml.pre";
	static const char space[] = "tokenizer.ggml.add_space_prefix";
	const struct gguf_file *f = s->keys;
	char name[64];

	if (!gguf_text(gguf_find(f, model), name, sizeof(name)) ||
	    (strcmp(name, "gpt2") != 0 && strcmp(name, sentencepiece.name) != 0))
		return err_set(e, ENOTSUP, "%s: key %s is \"%s\", but must be gpt2 or llama",
			       f->shown, model, name);
	if (!strcmp(name, sentencepiece.name)) {
		*ret = &sentencepiece;
		return truth(s, space, true)
			       ? err_set(e, ENOTSUP,
					 "%s: key %s is not false, and a space in front of texts "
					 "is not supported",
					 f->shown, space)
			       : 0;
	}
	if (!gguf_text(gguf_find(f, pre), name, sizeof(name)))
		return err_set(e, ENOTSUP, "%s: key %s is missing, or no text", f->shown, pre);
	for (size_t i = 0; i < ARRAY_SIZE(pres); i++)
		if (!strcmp(name, pres[i].name)) {
			*ret = &pres[i];
			return 0;
		}
	return err_set(e, ENOTSUP, "%s: key %s is \"%s\", which is not supported", f->shown, pre,
		       name);
}

static int bad_text(const struct gguf_source *s, const char *key, uint64_t i, struct err *e)
{
	return err_set(e, EINVAL, "%s: text %llu of key %s is not UTF-8", s->keys->shown,
		       (unsigned long long)i, key);
}

/* Appends the tokens that are looked for in texts. The one for unknown text is one of them in files of SentencePiece's. */
static int put_added(const struct gguf_source *s, const struct gguf_vocab *v, const struct pre *p,
		     struct buf *out, struct err *e)
{
	const uint8_t *at = v->tokens->value;
	bool any = false;
	size_t len;

	for (uint64_t id = 0; id < v->tokens->n; id++) {
		const char *text = gguf_next_string(&at, &len);
		uint64_t type = gguf_token_type(v, id);
		bool special =
			type == GGUF_TOKEN_CONTROL || (p->marked && type == GGUF_TOKEN_UNKNOWN);

		if (!len || (!special && type != GGUF_TOKEN_USER))
			continue;
		buf_printf(out, "%s{\"id\":%llu,\"content\":", any ? "," : "",
			   (unsigned long long)id);
		if (!quote_text(p, type, text, len, out))
			return bad_text(s, v->tokens->name, id, e);
		buf_printf(out,
			   ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
			   "\"normalized\":false,\"special\":%s}",
			   special ? "true" : "false");
		any = true;
	}
	return 0;
}

static int put_vocab(const struct gguf_source *s, const struct gguf_vocab *v, const struct pre *p,
		     struct buf *out, struct err *e)
{
	const uint8_t *at = v->tokens->value;
	bool any = false;
	size_t len;

	for (uint64_t id = 0; id < v->tokens->n; id++) {
		const char *text = gguf_next_string(&at, &len);
		uint64_t type = gguf_token_type(v, id);

		if (!len || type == GGUF_TOKEN_UNUSED)
			continue;
		buf_puts(out, any ? "," : "");
		if (!quote_text(p, type, text, len, out))
			return bad_text(s, v->tokens->name, id, e);
		buf_printf(out, ":%llu", (unsigned long long)id);
		any = true;
	}
	return 0;
}

/* Refuses a vocabulary of SentencePiece's without a token for every byte, such as <0x0A>. */
static int check_bytes(const struct gguf_source *s, const struct gguf_vocab *v, struct err *e)
{
	const uint8_t *at = v->tokens->value;
	bool there[256] = {0};
	size_t len;

	for (uint64_t id = 0; id < v->tokens->n; id++) {
		const char *text = gguf_next_string(&at, &len);
		unsigned byte;
		char copy[8];

		if (len != 6 || gguf_token_type(v, id) != GGUF_TOKEN_BYTE)
			continue;
		snprintf(copy, sizeof(copy), "%.6s", text);
		if (sscanf(copy, "<0x%2X>", &byte) == 1 && byte < 256)
			there[byte] = true;
	}
	for (unsigned byte = 0; byte < 256; byte++)
		if (!there[byte])
			return err_set(e, ENOTSUP,
				       "%s: key %s has no token <0x%02X> of the type of bytes",
				       s->keys->shown, v->tokens->name, byte);
	return 0;
}

static int put_merges(const struct gguf_source *s, struct buf *out, struct err *e)
{
	const struct gguf_key *k;
	const uint8_t *at;
	size_t len;
	int r = find_list(s, "tokenizer.ggml.merges", GGUF_STRING, &k, e);

	/* -ENOENT would say that the file has no tokenizer */
	if (r == -ENOENT)
		return err_set(e, EINVAL, "%s: key tokenizer.ggml.merges is missing",
			       s->keys->shown);
	if (r < 0)
		return r;
	at = k->value;
	for (uint64_t i = 0; i < k->n; i++) {
		const char *text = gguf_next_string(&at, &len);

		buf_puts(out, i ? "," : "");
		if (!gguf_quote(text, len, out))
			return bad_text(s, k->name, i, e);
	}
	return 0;
}

/* Appends the post-processor: the tokens in front of and behind a text; null if there are none. */
static int put_post_processor(const struct gguf_source *s, const struct gguf_vocab *v,
			      const struct pre *p, struct buf *out, struct err *e)
{
	static const char sequence[] = "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}";
	bool add[2] = {truth(s, "tokenizer.ggml.add_bos_token", p->add_bos),
		       truth(s, "tokenizer.ggml.add_eos_token", false)};
	int64_t ids[2] = {gguf_token_id(s, v, "tokenizer.ggml.bos_token_id"),
			  gguf_token_id(s, v, "tokenizer.ggml.eos_token_id")};
	bool any = false;

	for (int i = 0; i < 2; i++)
		add[i] = add[i] && ids[i] >= 0;
	if (!add[0] && !add[1]) {
		buf_puts(out, "null");
		return 0;
	}
	buf_puts(out, "{\"type\":\"TemplateProcessing\",\"single\":[");
	if (add[0])
		buf_puts(out, "{\"SpecialToken\":{\"id\":\"bos\",\"type_id\":0}},");
	buf_puts(out, sequence);
	if (add[1])
		buf_puts(out, ",{\"SpecialToken\":{\"id\":\"eos\",\"type_id\":0}}");
	buf_printf(out, "],\"pair\":[%s,%s],\"special_tokens\":{", sequence, sequence);
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "eos" : "bos";

		if (!add[i])
			continue;
		buf_printf(out, "%s\"%s\":{\"id\":\"%s\",\"ids\":[%lld],\"tokens\":[",
			   any ? "," : "", name, name, (long long)ids[i]);
		if (!quote_token(v, ids[i], out))
			return bad_text(s, v->tokens->name, (uint64_t)ids[i], e);
		buf_puts(out, "]}");
		any = true;
	}
	buf_puts(out, "}}");
	return 0;
}

int gguf_tokenizer(const struct gguf_source *s, struct buf *out, struct err *e)
{
	const struct pre *p = NULL;
	struct gguf_vocab v;
	int r = gguf_vocab(s, &v, e);

	if (r == 0)
		r = find_pre(s, &p, e);
	if (r < 0)
		return r;
	buf_puts(out, "{\"version\":\"1.0\",\"added_tokens\":[");
	r = put_added(s, &v, p, out, e);
	buf_printf(out, "],\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":",
		   p->nfc      ? "{\"type\":\"NFC\"}"
		   : p->marked ? REPLACE(" ", MARK)
			       : "null",
		   p->pre_tokenizer);
	if (r == 0)
		r = put_post_processor(s, &v, p, out, e);
	buf_printf(out,
		   ",\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"ignore_merges\":%s,%s\"vocab\":{",
		   p->marked ? MARKED_DECODER : BYTES(true), p->ignore_merges ? "true" : "false",
		   p->marked ? "\"byte_fallback\":true," : "");
	if (r == 0)
		r = put_vocab(s, &v, p, out, e);
	buf_puts(out, "},\"merges\":[");
	if (r == 0 && p->marked)
		r = check_bytes(s, &v, e);
	if (r == 0)
		r = p->marked ? gguf_merges(s, &v, out, e) : put_merges(s, out, e);
	buf_puts(out, "]}}");
	if (r == 0 && out->failed)
		r = err_set(e, ENOMEM, "%s: out of memory for the tokenizer", s->keys->shown);
	return r;
}

/* ---- the other texts ---- */

int gguf_tokenizer_config(const struct gguf_source *s, struct buf *out, struct err *e)
{
	static const char *const keys[][2] = {
		{"tokenizer.ggml.bos_token_id", "bos_token"},
		{"tokenizer.ggml.eos_token_id", "eos_token"},
		{"tokenizer.ggml.padding_token_id", "pad_token"},
		{"tokenizer.ggml.unknown_token_id", "unk_token"},
	};
	struct gguf_vocab v;
	bool any = false;
	int r = gguf_vocab(s, &v, e);

	if (r < 0)
		return r;
	buf_putc(out, '{');
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		int64_t id = gguf_token_id(s, &v, keys[i][0]);

		if (id < 0)
			continue;
		buf_printf(out, "%s\"%s\":", any ? "," : "", keys[i][1]);
		if (!quote_token(&v, id, out))
			return bad_text(s, v.tokens->name, (uint64_t)id, e);
		any = true;
	}
	buf_putc(out, '}');
	return out->failed ? err_set(e, ENOMEM, "%s: out of memory", s->keys->shown) : 0;
}

int gguf_template(const struct gguf_source *s, struct buf *out, struct err *e)
{
	static const char name[] = "tokenizer.chat_template";
	const struct gguf_key *k = gguf_find(s->keys, name);
	const uint8_t *at = k ? k->value : NULL;
	const char *text;
	size_t len;

	if (!k)
		return err_set(e, ENOENT, "%s: the model has no chat template (key %s)",
			       s->keys->shown, name);
	if (k->array || k->type != GGUF_STRING)
		return err_set(e, EINVAL, "%s: key %s is no text", s->keys->shown, name);
	text = gguf_next_string(&at, &len);
	if (utf8_valid(text, len) != len || memchr(text, 0, len))
		return err_set(e, EINVAL, "%s: key %s is not UTF-8", s->keys->shown, name);
	buf_append(out, text, len);
	if (out->failed)
		return err_set(e, ENOMEM, "%s: out of memory for key %s", s->keys->shown, name);
	return buf_str(out)[strspn(buf_str(out), " \t\r\n")]
		       ? 0
		       : err_set(e, EINVAL, "%s: the chat template is empty", s->keys->shown);
}
