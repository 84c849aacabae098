/* Makes a tokenizer of a tokenizer.json.
 *
 * These members are read: added_tokens; normalizer (NFC, and Replace of spaces by U+2581); pre_tokenizer (Split, Digits
 * and one ByteLevel at the end); model (BPE without dropout, and without prefixes or suffixes of words); post_processor
 * (the special tokens before and behind a text); decoder (ByteLevel or none). Normalizers, pre-tokenizers and
 * post-processors may also stand in a Sequence. With the Replace a file is marked (tokenizer.h): its only pre-tokenizer
 * may be a Split at spaces, of which there are none then; its decoder is Replace, ByteFallback and Fuse; and its model
 * has byte_fallback, with a token for every byte. Other types are refused with one sentence, because ids or text would
 * not be Hugging Face's. Padding, truncation and offsets are ignored. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "protocol/tokenizer/tokenizer_internal.h"

enum { SCRATCH_MAX = 256 << 20 }; /* bytes */

struct loader {
	struct tokenizer *t;
	int16_t byte_of[0x180]; /* the byte of a character of the byte-level alphabet; -1: none */
	int32_t byte_ids[256];	/* of a marked file: the tokens of bytes; -1: none */
	bool crossing;		/* a merge of a marked file joins text and a mark behind it */
	struct buf scratch;
	struct err *e;
};

static int out_of_memory(struct loader *l)
{
	return err_no_memory(l->e);
}

/* ---- small readers ---- */

/* Sets *ret to the boolean member `key`, or to `fallback` where it is missing or null. -EINVAL: it is anything else. */
static int get_flag(struct loader *l, const json_t *o, const char *key, bool fallback, bool *ret)
{
	const json_t *v = json_object_get(o, key);

	if (v && !json_is_boolean(v) && !json_is_null(v))
		return err_set(l->e, EINVAL, "\"%s\" is not true or false", key);
	*ret = json_is_boolean(v) ? json_is_true(v) : fallback;
	return 0;
}

/* Returns the "type" of an object, or "", which is no type. */
static const char *type_of(const json_t *o)
{
	const char *type = json_string_value(json_object_get(o, "type"));

	return type ? type : "";
}

/* ---- the byte-level alphabet ---- */

/* Fills byte_of with GPT-2's alphabet: a printable byte is the character with the same number; the other 68 bytes are
 * U+0100 and the characters behind it, in order. */
static void init_alphabet(struct loader *l)
{
	int next = 0x100;

	for (size_t i = 0; i < ARRAY_SIZE(l->byte_of); i++)
		l->byte_of[i] = -1;
	for (int b = 0; b < 256; b++) {
		bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;

		l->byte_of[printable ? b : next++] = (int16_t)b;
	}
}

/* Appends the bytes for which a token's text stands. False, and out unchanged: a character is not in the alphabet. */
static bool unmap(const struct loader *l, const char *text, size_t len, struct buf *out)
{
	size_t before = out->len, n;

	for (size_t at = 0; at < len; at += n) {
		uint32_t c = utf8_decode(text + at, &n);

		if (c >= ARRAY_SIZE(l->byte_of) || l->byte_of[c] < 0) {
			out->len = before;
			return false;
		}
		buf_putc(out, (char)l->byte_of[c]);
	}
	return true;
}

/* ---- model ---- */

/* Returns the byte for which the text of a token such as <0x0A> stands, or -1. */
static int byte_named(const char *text)
{
	unsigned byte;
	char same[8];

	if (strlen(text) != 6 || sscanf(text, "<0x%2X>", &byte) != 1)
		return -1;
	snprintf(same, sizeof(same), "<0x%02X>", byte);
	return strcmp(same, text) ? -1 : (int)byte;
}

/* Takes a token of a marked file into the vocabulary. A byte's token is found by no text. */
static int load_marked(struct loader *l, const char *text, size_t len, int64_t id)
{
	struct vocab *v = &l->t->vocab;
	int byte = byte_named(text), r;

	buf_reset(&l->scratch);
	if (byte < 0)
		unmark_spaces(text, len, &l->scratch);
	else
		buf_putc(&l->scratch, (char)byte);
	if (l->scratch.failed)
		return -ENOMEM;
	r = vocab_set(v, id, l->scratch.data, l->scratch.len);
	if (!r && byte >= 0)
		l->byte_ids[byte] = (int32_t)id;
	return r || byte >= 0 ? r : vocab_index(v, id, text, len);
}

static int load_token(struct loader *l, const char *text, const json_t *id)
{
	struct vocab *v = &l->t->vocab;
	size_t len = strlen(text);
	json_int_t n = json_integer_value(id);
	bool mapped;
	int r;

	if (!json_is_integer(id) || n < 0 || n >= VOCAB_MAX)
		return err_set(l->e, EINVAL, "the id of \"%.40s\" is not a number below %d", text,
			       (int)VOCAB_MAX);
	if (!len)
		return 0;
	if ((size_t)n < v->n && v->tokens[n].len)
		return err_set(l->e, EINVAL, "two tokens have the id %" PRId64, (int64_t)n);
	if (l->t->marked) {
		r = load_marked(l, text, len, n);
	} else {
		buf_reset(&l->scratch);
		mapped = unmap(l, text, len, &l->scratch);
		if (!mapped)
			buf_append(&l->scratch, text, len);
		if (l->scratch.failed)
			return out_of_memory(l);
		r = vocab_set(v, n, l->scratch.data, l->scratch.len);
		if (!r && mapped)
			r = vocab_index(v, n, l->scratch.data, l->scratch.len);
	}
	if (r < 0)
		return err_set(l->e, -r, "the token \"%.40s\" does not fit into the vocabulary",
			       text);
	return 0;
}

static int load_vocab(struct loader *l, json_t *vocab)
{
	const char *text;
	json_t *id;
	int r;

	if (!json_is_object(vocab) || !json_object_size(vocab))
		return err_set(l->e, EINVAL, "model.vocab is missing or empty");
	json_object_foreach(vocab, text, id)
	{
		r = load_token(l, text, id);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Splits a merge into its two texts: ["a", "b"] or "a b". */
static int read_merge(const json_t *merge, const char *ret_text[2], size_t ret_len[2])
{
	if (json_is_string(merge)) {
		const char *text = json_string_value(merge), *space = strchr(text, ' ');

		if (!space || strchr(space + 1, ' '))
			return -EINVAL;
		ret_text[0] = text;
		ret_len[0] = (size_t)(space - text);
		ret_text[1] = space + 1;
		ret_len[1] = strlen(space + 1);
		return 0;
	}
	if (json_array_size(merge) != 2)
		return -EINVAL;
	for (size_t i = 0; i < 2; i++) {
		ret_text[i] = json_string_value(json_array_get(merge, i));
		if (!ret_text[i])
			return -EINVAL;
		ret_len[i] = strlen(ret_text[i]);
	}
	return 0;
}

static int32_t id_of(const struct loader *l, size_t start, size_t len)
{
	const struct vocab_slot *s =
		len ? vocab_find(&l->t->vocab, l->scratch.data + start, len) : NULL;

	return s ? (int32_t)s->id : -1;
}

/* Returns whether a text begins, or ends, with a mark. */
static bool has_mark(const char *text, size_t len, bool at_end)
{
	const size_t n = strlen(SPACE_MARK);

	return len >= n && !memcmp(at_end ? text + len - n : text, SPACE_MARK, n);
}

static int load_merge(struct loader *l, const json_t *merge, size_t rank)
{
	int32_t left, right, merged;
	const char *text[2];
	size_t len[2], cut;
	bool mapped;

	if (read_merge(merge, text, len) < 0)
		return err_set(l->e, EINVAL,
			       "model.merges[%zu] is neither [\"a\", \"b\"] nor \"a b\"", rank);
	buf_reset(&l->scratch);
	if (l->t->marked) {
		buf_append(&l->scratch, text[0], len[0]);
		cut = l->scratch.len;
		buf_append(&l->scratch, text[1], len[1]);
		mapped = true;
		l->crossing |= has_mark(text[1], len[1], false) && !has_mark(text[0], len[0], true);
	} else {
		mapped = unmap(l, text[0], len[0], &l->scratch);
		cut = l->scratch.len;
		mapped = mapped && unmap(l, text[1], len[1], &l->scratch);
	}
	if (l->scratch.failed)
		return out_of_memory(l);
	/* Words have only characters of the byte-level alphabet, so a merge with other characters never happens. */
	if (!mapped)
		return 0;
	left = id_of(l, 0, cut);
	right = id_of(l, cut, l->scratch.len - cut);
	merged = id_of(l, 0, l->scratch.len);
	if (left < 0 || right < 0 || merged < 0)
		return err_set(l->e, EINVAL,
			       "model.merges[%zu] names a token that is not in the vocabulary",
			       rank);
	bpe_add(&l->t->bpe, rank, left, right, merged);
	return 0;
}

static int load_merges(struct loader *l, const json_t *merges)
{
	size_t n = json_array_size(merges), rank = 0;
	int r;

	if (!json_is_array(merges) || n >= INT32_MAX)
		return err_set(l->e, EINVAL, "model.merges is missing or not an array");
	r = bpe_init(&l->t->bpe, &l->t->vocab, n);
	if (r < 0)
		return out_of_memory(l);
	for (size_t i = 0; i < n; i++) {
		const json_t *merge = json_array_get(merges, i);

		/* the version line of a merges.txt, which old files still have */
		if (json_is_string(merge) && !strncmp(json_string_value(merge), "#version", 8))
			continue;
		r = load_merge(l, merge, rank++);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Refuses (-ENOTSUP) a file in which a byte of UTF-8 has no token, and which names a replacement for bytes without a
 * token (unk_token, byte_fallback). If the file names no replacement, bytes without a token are dropped, as in Hugging
 * Face. */
static int check_bytes(struct loader *l, const json_t *model)
{
	const json_t *unk = json_object_get(model, "unk_token");
	bool fallback;
	int r = get_flag(l, model, "byte_fallback", false, &fallback);

	if (r < 0)
		return r;
	for (int b = 0; b < 256; b++) {
		bool in_text = b < 0xc0 || (b > 0xc1 && b < 0xf5);

		if (in_text && l->t->bpe.byte_id[b] < 0 && (json_is_string(unk) || fallback))
			return err_set(l->e, ENOTSUP,
				       "the byte 0x%02x has no token, and unk_token and "
				       "byte_fallback are not supported",
				       (unsigned)b);
	}
	return 0;
}

/* Refuses (-ENOTSUP) a marked file without a token for every byte. */
static int check_fallback(struct loader *l, const json_t *model)
{
	bool fallback;
	int r = get_flag(l, model, "byte_fallback", false, &fallback);

	for (int b = 0; b < 256 && !r; b++)
		if (!fallback || l->byte_ids[b] < 0)
			r = err_set(l->e, ENOTSUP,
				    "spaces are replaced by U+2581, but there is no byte_fallback "
				    "with a token for every byte");
	return r;
}

static int load_model(struct loader *l, const json_t *model)
{
	static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
	json_t *vocab = json_object_get(model, "vocab");
	bool ignore_merges;
	int r;

	if (!json_is_object(model))
		return err_set(l->e, EINVAL, "there is no model");
	if (strcmp(type_of(model), "BPE") != 0 && json_object_get(model, "type"))
		return err_set(l->e, ENOTSUP, "a model of type %.40s is not supported, only BPE is",
			       type_of(model));
	for (size_t i = 0; i < ARRAY_SIZE(affixes); i++) {
		const char *v = json_string_value(json_object_get(model, affixes[i]));

		if (v && *v)
			return err_set(l->e, ENOTSUP, "model.%s is not supported", affixes[i]);
	}
	if (json_number_value(json_object_get(model, "dropout")) != 0)
		return err_set(l->e, ENOTSUP, "model.dropout is not supported");
	r = get_flag(l, model, "ignore_merges", false, &ignore_merges);
	if (!r)
		r = load_vocab(l, vocab);
	if (!r)
		r = load_merges(l, json_object_get(model, "merges"));
	if (r < 0)
		return r;
	l->t->bpe.characters = l->t->marked;
	if (l->t->marked)
		memcpy(l->t->bpe.byte_id, l->byte_ids, sizeof(l->byte_ids));
	if (l->t->marked && (r = check_fallback(l, model)) < 0)
		return r;
	if (bpe_finish(&l->t->bpe, ignore_merges) < 0)
		return out_of_memory(l);
	return l->t->marked ? 0 : check_bytes(l, model);
}

/* ---- normalizer and decoder ---- */

/* Returns whether a Replace replaces this text by that one. */
static bool replaces(const json_t *n, const char *from, const char *to)
{
	const char *text =
		json_string_value(json_object_get(json_object_get(n, "pattern"), "String"));
	const char *content = json_string_value(json_object_get(n, "content"));

	return !strcmp(type_of(n), "Replace") && text && content && !strcmp(text, from) &&
	       !strcmp(content, to);
}

static int load_normalizer(struct loader *l, const json_t *n)
{
	const json_t *list = json_object_get(n, "normalizers");
	int r = 0;

	if (!n || json_is_null(n))
		return 0;
	if (!strcmp(type_of(n), "NFC")) {
		l->t->nfc = true;
		return 0;
	}
	if (replaces(n, " ", SPACE_MARK)) {
		l->t->marked = true;
		return 0;
	}
	if (strcmp(type_of(n), "Sequence") != 0 || !json_is_array(list))
		return err_set(l->e, ENOTSUP, "a normalizer of type %.40s is not supported",
			       type_of(n));
	for (size_t i = 0; i < json_array_size(list) && !r; i++)
		r = load_normalizer(l, json_array_get(list, i));
	return r;
}

/* Checks the decoder of a marked file: Replace, ByteFallback and Fuse, in this order. */
static int check_marked_decoder(struct loader *l, const json_t *d)
{
	const json_t *list = json_object_get(d, "decoders");
	bool good = json_array_size(list) == 3 &&
		    replaces(json_array_get(list, 0), SPACE_MARK, " ") &&
		    !strcmp(type_of(json_array_get(list, 1)), "ByteFallback") &&
		    !strcmp(type_of(json_array_get(list, 2)), "Fuse");

	return good ? 0
		    : err_set(l->e, ENOTSUP,
			      "spaces are replaced by U+2581, but the decoder is not Replace, "
			      "ByteFallback and Fuse");
}

static int check_decoder(struct loader *l, const json_t *d)
{
	if (l->t->marked)
		return check_marked_decoder(l, d);
	if (!d || json_is_null(d) || !strcmp(type_of(d), "ByteLevel"))
		return 0;
	return err_set(l->e, ENOTSUP, "a decoder of type %.40s is not supported", type_of(d));
}

/* ---- pre-tokenizer ---- */

static int load_split(struct loader *l, const json_t *p)
{
	const json_t *pattern = json_object_get(p, "pattern");
	const char *regex = json_string_value(json_object_get(pattern, "Regex"));
	const char *text = json_string_value(json_object_get(pattern, "String"));
	const char *name = json_string_value(json_object_get(p, "behavior"));
	enum splitter_behavior behavior;
	bool invert;
	int r = get_flag(l, p, "invert", false, &invert);

	if (r < 0)
		return r;
	if (!name || splitter_behavior_parse(name, &behavior) < 0)
		return err_set(l->e, ENOTSUP, "the Split behavior %.40s is not supported",
			       name ? name : "(none)");
	if (regex)
		return splitter_add_pattern(l->t->splitter, regex, behavior, invert, l->e);
	if (text && *text)
		return splitter_add_literal(l->t->splitter, text, behavior, invert, l->e);
	return err_set(l->e, EINVAL, "a Split has no pattern");
}

static int load_byte_level(struct loader *l, const json_t *p)
{
	bool prefix_space, regex;
	int r = get_flag(l, p, "add_prefix_space", true, &prefix_space);

	if (!r)
		r = get_flag(l, p, "use_regex", true, &regex);
	if (!r && prefix_space)
		r = splitter_add_prefix_space(l->t->splitter, l->e);
	if (!r && regex)
		r = splitter_add_pattern(l->t->splitter, SPLITTER_GPT2, SPLITTER_ISOLATED, false,
					 l->e);
	return r;
}

static int load_digits(struct loader *l, const json_t *p)
{
	bool single;
	int r = get_flag(l, p, "individual_digits", false, &single);

	if (r < 0)
		return r;
	return splitter_add_pattern(l->t->splitter, single ? "\\p{N}" : "\\p{N}+",
				    SPLITTER_ISOLATED, false, l->e);
}

/* Adds the stages of a pre-tokenizer to the splitter. *mapped is set when a ByteLevel has come: behind it the text is
 * in the byte-level alphabet, so no other pre-tokenizer may follow. */
static int load_pre_tokenizer(struct loader *l, const json_t *p, bool *mapped)
{
	const json_t *list = json_object_get(p, "pretokenizers");
	const char *type = type_of(p);
	int r = 0;

	if (!strcmp(type, "Sequence") && json_is_array(list)) {
		for (size_t i = 0; i < json_array_size(list) && !r; i++)
			r = load_pre_tokenizer(l, json_array_get(list, i), mapped);
		return r;
	}
	if (*mapped)
		return err_set(l->e, ENOTSUP, "a pre-tokenizer behind ByteLevel is not supported");
	if (!strcmp(type, "Split"))
		return load_split(l, p);
	if (!strcmp(type, "Digits"))
		return load_digits(l, p);
	if (!strcmp(type, "ByteLevel")) {
		*mapped = true;
		return load_byte_level(l, p);
	}
	return err_set(l->e, ENOTSUP, "a pre-tokenizer of type %.40s is not supported", type);
}

/* Refuses a pre-tokenizer of a marked file that could cut text. A Split at spaces finds none. */
static int check_marked_split(struct loader *l, const json_t *p)
{
	const char *text =
		json_string_value(json_object_get(json_object_get(p, "pattern"), "String"));

	if (!p || json_is_null(p) || (!strcmp(type_of(p), "Split") && text && !strcmp(text, " ")))
		return 0;
	return err_set(
		l->e, ENOTSUP,
		"spaces are replaced by U+2581, but there is a pre-tokenizer that is no Split at "
		"spaces");
}

static int load_splitter(struct loader *l, const json_t *p)
{
	bool mapped = false;
	int r;

	l->t->splitter = splitter_new();
	if (!l->t->splitter)
		return out_of_memory(l);
	if (l->t->marked)
		return check_marked_split(l, p);
	if (p && !json_is_null(p)) {
		r = load_pre_tokenizer(l, p, &mapped);
		if (r < 0)
			return r;
	}
	if (!mapped)
		return err_set(l->e, ENOTSUP,
			       "there is no ByteLevel pre-tokenizer, and only byte-level BPE is "
			       "supported");
	return 0;
}

/* ---- added tokens ---- */

/* Gives the id of an added token its bytes. `known` is the id that the model's vocabulary has for the text, or NULL.
 * -EINVAL: the vocabulary has another id for the text, or it has none and the id stands for other bytes. */
static int place_added(struct loader *l, const char *text, size_t len, int32_t id,
		       const json_t *known)
{
	size_t old_len;
	const char *old = tokenizer_bytes(l->t, id, &old_len);
	bool same = old && old_len == len && !memcmp(old, text, len);

	if (known ? json_integer_value(known) != id : old && !same)
		return err_set(l->e, EINVAL,
			       "the added token %.60s has an id that contradicts the vocabulary",
			       text);
	return vocab_set(&l->t->vocab, id, text, len) < 0 ? out_of_memory(l) : 0;
}

static int load_added(struct loader *l, const json_t *a, const json_t *vocab)
{
	const char *text = json_string_value(json_object_get(a, "content")), *bytes = text;
	const json_t *id = json_object_get(a, "id");
	json_int_t n = json_integer_value(id);
	size_t len = text ? strlen(text) : 0;
	struct added_token token;
	struct buf marked;
	bool normalized, special;
	int r;

	if (!text || !json_is_integer(id) || n < 0 || n >= VOCAB_MAX)
		return err_set(l->e, EINVAL, "an added token lacks its content or a good id");
	if (!len)
		return 0;
	token = (struct added_token){.id = (int32_t)n};
	if ((r = get_flag(l, a, "lstrip", false, &token.lstrip)) ||
	    (r = get_flag(l, a, "rstrip", false, &token.rstrip)) ||
	    (r = get_flag(l, a, "single_word", false, &token.single_word)) ||
	    (r = get_flag(l, a, "normalized", true, &normalized)) ||
	    (r = get_flag(l, a, "special", false, &special)))
		return r;
	buf_reset(&l->scratch);
	if (l->t->marked) {
		unmark_spaces(text, len, &l->scratch);
		if (l->scratch.failed)
			return out_of_memory(l);
		r = place_added(l, l->scratch.data, l->scratch.len, token.id,
				json_object_get(vocab, text));
		if (r < 0)
			return r;
		buf_reset(&l->scratch);
	}
	r = normalized && l->t->nfc ? unicode_nfc(l->t->unicode, text, len, &l->scratch) : 0;
	if (r < 0)
		return out_of_memory(l);
	if (r > 0) {
		bytes = l->scratch.data;
		len = l->scratch.len;
	}
	r = l->t->marked ? 0 : place_added(l, bytes, len, token.id, json_object_get(vocab, text));
	if (r < 0)
		return r;
	l->t->vocab.tokens[n].special = special;
	if (normalized && l->t->marked) {
		buf_init(&marked, SCRATCH_MAX);
		mark_spaces(bytes, len, &marked);
		r = marked.failed ? -ENOMEM
				  : added_insert(&l->t->normalized, marked.data, marked.len, token);
		buf_release(&marked);
	} else {
		r = added_insert(normalized ? &l->t->normalized : &l->t->raw, bytes, len, token);
	}
	if (r == -EEXIST)
		return err_set(l->e, EINVAL, "the added token %.60s has two ids", text);
	return r < 0 ? out_of_memory(l) : 0;
}

static int load_all_added(struct loader *l, const json_t *list, const json_t *vocab)
{
	int r = 0;

	if (list && !json_is_array(list) && !json_is_null(list))
		return err_set(l->e, EINVAL, "added_tokens is not an array");
	for (size_t i = 0; i < json_array_size(list) && !r; i++)
		r = load_added(l, json_array_get(list, i), vocab);
	return r;
}

/* ---- post-processor ---- */

static int push_around(struct loader *l, struct ids *ids, const json_t *id)
{
	size_t len;

	if (!json_is_integer(id) || json_integer_value(id) < 0 ||
	    json_integer_value(id) >= VOCAB_MAX ||
	    !tokenizer_bytes(l->t, (int32_t)json_integer_value(id), &len))
		return err_set(l->e, EINVAL,
			       "the post-processor adds an id that is not in the vocabulary");
	if (ids_push(ids, (int32_t)json_integer_value(id)) < 0)
		return out_of_memory(l);
	return 0;
}

static int load_template(struct loader *l, const json_t *p)
{
	const json_t *single = json_object_get(p, "single");
	const json_t *tokens = json_object_get(p, "special_tokens");
	struct ids *ids = &l->t->prefix;

	for (size_t i = 0; i < json_array_size(single); i++) {
		const json_t *part = json_array_get(single, i);
		const json_t *token = json_object_get(part, "SpecialToken"), *list;
		const char *name = json_string_value(json_object_get(token, "id"));

		if (json_object_get(part, "Sequence")) {
			ids = &l->t->suffix;
			continue;
		}
		list = name ? json_object_get(json_object_get(tokens, name), "ids") : NULL;
		if (!json_is_array(list))
			return err_set(l->e, EINVAL,
				       "the post-processor's template names an unknown token");
		for (size_t k = 0; k < json_array_size(list); k++) {
			int r = push_around(l, ids, json_array_get(list, k));

			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int load_post_processor(struct loader *l, const json_t *p)
{
	const json_t *list = json_object_get(p, "processors");
	const char *type = type_of(p);
	int r = 0;

	if (!p || json_is_null(p) || !strcmp(type, "ByteLevel"))
		return 0;
	if (!strcmp(type, "TemplateProcessing"))
		return load_template(l, p);
	if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing")) {
		r = push_around(l, &l->t->prefix, json_array_get(json_object_get(p, "cls"), 1));
		if (!r)
			r = push_around(l, &l->t->suffix,
					json_array_get(json_object_get(p, "sep"), 1));
		return r;
	}
	if (strcmp(type, "Sequence") != 0 || !json_is_array(list))
		return err_set(l->e, ENOTSUP, "a post-processor of type %.40s is not supported",
			       type);
	for (size_t i = 0; i < json_array_size(list) && !r; i++)
		r = load_post_processor(l, json_array_get(list, i));
	return r;
}

/* ---- the whole file ---- */

static int load(struct loader *l, const json_t *root)
{
	const json_t *model = json_object_get(root, "model");
	int r;

	if ((r = load_normalizer(l, json_object_get(root, "normalizer"))) ||
	    (r = check_decoder(l, json_object_get(root, "decoder"))) ||
	    (r = load_splitter(l, json_object_get(root, "pre_tokenizer"))) ||
	    (r = load_model(l, model)) ||
	    /* No merge joins the texts on both sides of such a cut, so words that are cut give the same ids. */
	    (l->t->marked && !l->crossing && (r = splitter_add_marks(l->t->splitter, l->e))) ||
	    (r = load_all_added(l, json_object_get(root, "added_tokens"),
				json_object_get(model, "vocab"))))
		return r;
	return load_post_processor(l, json_object_get(root, "post_processor"));
}

int tokenizer_parse(const char *name, const char *json, size_t len, struct tokenizer **ret,
		    struct err *e)
{
	struct loader l = {.e = e, .t = calloc(1, sizeof(*l.t))};
	json_error_t error;
	json_t *root = NULL;
	int r;

	if (!l.t)
		return err_set(e, ENOMEM, "%s: out of memory", name);
	l.t->unicode = unicode_table();
	added_init(&l.t->raw, l.t->unicode);
	added_init(&l.t->normalized, l.t->unicode);
	vocab_init(&l.t->vocab);
	buf_init(&l.scratch, SCRATCH_MAX);
	init_alphabet(&l);
	memset(l.byte_ids, 0xff, sizeof(l.byte_ids)); /* -1 */
	if (!l.t->unicode) {
		r = out_of_memory(&l);
	} else if (!(root = json_loadb(json, len, 0, &error))) {
		r = err_set(e, EINVAL, "line %d: %s", error.line, error.text);
	} else if (!json_is_object(root)) {
		r = err_set(e, EINVAL, "this is not an object");
	} else {
		r = load(&l, root);
	}
	json_decref(root);
	buf_release(&l.scratch);
	if (r < 0) {
		err_prefix(e, "%s", name);
		tokenizer_free(l.t);
		return r;
	}
	*ret = l.t;
	return 0;
}
