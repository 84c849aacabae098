/* The tokenizer against Hugging Face's: the golden prompts of models/lexis, and golden/tokenizer_cases.json (the
 * fixture): tricky texts for many tokenizers, and the classes of all code points. Then cases that the fixture cannot
 * have: files that must be refused, ids without bytes, text without added tokens, hostile texts, many threads,
 * bounds. */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/buf.h"
#include "protocol/tokenizer/detokenizer.h"
#include "protocol/tokenizer/tokenizer.h"
#include "protocol/tokenizer/unicode.h"
#include "tests/impatient.h"
#include "tests/model_text.h"
#include "tests/quoted.h"
#include "tests/tap.h"

static struct tokenizer *lexis;
static json_t *cases; /* golden/tokenizer_cases.json */

static json_t *load_json(const char *path)
{
	json_error_t error;
	json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);

	if (!root)
		printf("# %s:%d: %s\n", path, error.line, error.text);
	return root;
}

static bool same_ids(const json_t *want, const struct ids *got)
{
	if (json_array_size(want) != got->len)
		return false;
	for (size_t i = 0; i < got->len; i++)
		if (json_integer_value(json_array_get(want, i)) != got->v[i])
			return false;
	return true;
}

/* Writes the text of n ids to `out`, as the detokenizer makes it. */
static void text_of(const struct tokenizer *t, const int32_t *ids, size_t n, struct buf *out)
{
	struct detokenizer *d = detokenizer_new(t, NULL);

	buf_reset(out);
	for (size_t i = 0; d && i < n; i++)
		if (detokenizer_push(d, ids[i], out) < 0)
			break;
	if (!d || detokenizer_finish(d, out) < 0)
		out->failed = true;
	detokenizer_free(d);
}

/* ---- models/lexis/golden.json ---- */

TEST(golden)
{
	json_t *root = load_json("models/lexis/golden.json"), *c;
	struct ids ids = {0};
	struct buf text;
	size_t i, n = 0;

	buf_init(&text, 1 << 20);
	json_array_foreach(json_object_get(root, "cases"), i, c)
	{
		const json_t *in = json_object_get(c, "text");
		const json_t *out = json_object_get(c, "output_ids");
		const char *want = json_string_value(json_object_get(c, "output"));

		in = in ? in : json_object_get(c, "prompt");
		ids.len = 0;
		check(tokenizer_encode(lexis, json_string_value(in), json_string_length(in), true,
				       NULL, &ids) == 0);
		check(same_ids(json_object_get(c, "prompt_ids"), &ids));
		ids.len = 0;
		for (size_t k = 0; k < json_array_size(out); k++)
			check(ids_push(&ids, (int32_t)json_integer_value(json_array_get(out, k))) ==
			      0);
		text_of(lexis, ids.v, ids.len, &text);
		check(want && !strcmp(buf_str(&text), want));
		n++;
	}
	check(n > 30);
	ok_all("%zu golden prompts become their ids, and output ids their text", n);
	buf_release(&text);
	ids_release(&ids);
	json_decref(root);
}

/* ---- golden/tokenizer_cases.json ---- */

static char *unhex(const char *hex, size_t *ret_len)
{
	size_t n = strlen(hex) / 2;
	char *bytes = malloc(n + 1);

	for (size_t i = 0; bytes && i < n; i++) {
		char two[3] = {hex[2 * i], hex[2 * i + 1], 0};

		bytes[i] = (char)strtoul(two, NULL, 16);
	}
	*ret_len = n;
	return bytes;
}

static bool run_case(const struct tokenizer *t, const json_t *c)
{
	const json_t *in = json_array_get(c, 0), *want = json_array_get(c, 2);
	const char *hex = json_string_value(json_object_get(in, "hex"));
	size_t len = json_string_length(in);
	char *bytes = hex ? unhex(hex, &len) : NULL;
	const char *text = bytes ? bytes : json_string_value(in);
	struct ids ids = {0};
	struct buf back;
	bool good;

	want = want ? want : in;
	buf_init(&back, 1 << 20);
	good = tokenizer_encode(t, text, len, true, NULL, &ids) == 0;
	if (!same_ids(json_array_get(c, 1), &ids))
		good = false;
	text_of(t, ids.v, ids.len, &back);
	if (back.len != json_string_length(want) ||
	    memcmp(buf_str(&back), json_string_value(want), back.len) != 0)
		good = false;
	if (!good) {
		char *line = json_dumps(c, JSON_ENSURE_ASCII | JSON_COMPACT | JSON_ENCODE_ANY);

		printf("# wrong: %.300s\n#   ids:", line ? line : "?");
		for (size_t i = 0; i < ids.len && i < 60; i++)
			printf(" %d", ids.v[i]);
		printf("\n");
		free(line);
	}
	buf_release(&back);
	ids_release(&ids);
	free(bytes);
	return good;
}

/* Returns a new copy of lexis's tokenizer.json, with the members of `change` (NULL: none) in place of its own. If both
 * have an object "model", its members are replaced one by one. */
static json_t *changed(const json_t *change)
{
	json_t *file = load_json("models/lexis/tokenizer.json"), *model, *merges, *pair;
	size_t i;

	if (!change)
		return file;
	model = json_incref(json_object_get(file, "model"));
	json_object_update(file, (json_t *)change);
	if (json_is_object(json_object_get(change, "model"))) {
		json_object_update(model, json_object_get(change, "model"));
		json_object_set(file, "model", model);
	} else if (!json_object_get(change, "model")) {
		json_object_set(file, "model", model);
	}
	if (json_is_true(json_object_get(change, "string_merges"))) {
		merges = json_array();
		json_array_foreach(json_object_get(model, "merges"), i, pair) json_array_append_new(
			merges, json_sprintf("%s %s", json_string_value(json_array_get(pair, 0)),
					     json_string_value(json_array_get(pair, 1))));
		json_object_set_new(model, "merges", merges);
	}
	json_decref(model);
	return file;
}

static struct tokenizer *parse(const json_t *file, struct err *e)
{
	char *text = json_dumps(file, JSON_COMPACT);
	struct tokenizer *t = NULL;

	if (!text || tokenizer_parse("a file", text, strlen(text), &t, e) < 0)
		t = NULL;
	free(text);
	return t;
}

static struct tokenizer *parse_change(const json_t *change, struct err *e)
{
	bool all = json_object_get(json_object_get(change, "model"), "vocab") != NULL;
	json_t *file = all ? json_incref((json_t *)change) : changed(change);
	struct tokenizer *t = parse(file, e);

	json_decref(file);
	return t;
}

TEST(fixture)
{
	const json_t *one, *c;
	size_t i, k;

	json_array_foreach(json_object_get(cases, "tokenizers"), i, one)
	{
		const char *name = json_string_value(json_object_get(one, "name"));
		struct err e = {0};
		struct tokenizer *t = parse_change(json_object_get(one, "file"), &e);
		const json_t *texts = json_object_get(one, "cases");

		if (!ok(t != NULL, "%s: opens", name)) {
			printf("# %s\n", e.text);
			continue;
		}
		check(json_array_size(texts) > 20);
		json_array_foreach(texts, k, c) check(run_case(t, c));
		ok_all("%s: %zu texts", name, json_array_size(texts));
		if (!strcmp(name, "small")) {
			size_t n;
			struct ids plain = {0}, whole = {0};

			check(tokenizer_encode(t, "a violin", 8, true, NULL, &plain) == 0);
			check(tokenizer_encode_whole(t, "a violin", 8, NULL, &whole) == 0);
			ok(whole.len == plain.len + 1 &&
				   whole.v[0] == tokenizer_id(t, "<|begin_of_text|>") &&
				   !memcmp(whole.v + 1, plain.v, plain.len * sizeof(*plain.v)),
			   "the post-processor puts BOS before a whole text, and nothing behind");
			ids_release(&plain);
			ids_release(&whole);
			is_int(tokenizer_size(t), 1002, "size is one past the largest id");
			ok(!tokenizer_bytes(t, 101, &n) && n == 0, "a gap has no bytes");
		}
		tokenizer_free(t);
	}
	check(i > 10);
	ok_all("%zu tokenizers", i);
}

/* Sets seen[c] to the class for each code point c in `ranges`: first, last, first, last, ... */
static void fill_class(uint8_t *seen, const json_t *ranges, uint8_t class)
{
	for (size_t i = 0; i + 1 < json_array_size(ranges); i += 2) {
		json_int_t last = json_integer_value(json_array_get(ranges, i + 1));

		for (json_int_t c = json_integer_value(json_array_get(ranges, i)); c <= last; c++)
			seen[c] = class;
	}
}

TEST(classes)
{
	const json_t *classes = json_object_get(cases, "classes");
	const struct unicode *u = unicode_table();
	uint8_t *want = calloc(UNICODE_END, 1);

	fill_class(want, json_object_get(classes, "letter"), UNICODE_LETTER);
	fill_class(want, json_object_get(classes, "number"), UNICODE_NUMBER);
	fill_class(want, json_object_get(classes, "mark"), UNICODE_MARK);
	fill_class(want, json_object_get(classes, "space"), UNICODE_SPACE);
	want['\r'] = want['\n'] = UNICODE_NEWLINE;
	for (uint32_t c = 0; c < UNICODE_END; c++)
		if ((c < 0xd800 || c > 0xdfff) &&
		    (unicode_entry(u, c) & UNICODE_CLASS) != want[c] && tap_quiet++ < 10)
			printf("# U+%04X is %d, want %d\n", c, unicode_entry(u, c) & UNICODE_CLASS,
			       want[c]);
	ok_all("each code point has the class that Oniguruma gives it");
	free(want);
}

/* ---- refused files ---- */

/* clang-format off: a case begins a line. */
static const struct {
	const char *change; /* in lexis's tokenizer.json */
	int code;
	const char *says;
} refused[] = {
	{"{'model': {'type': 'Unigram'}}", ENOTSUP, "Unigram"},
	{"{'model': {'dropout': 0.1}}", ENOTSUP, "dropout"},
	{"{'model': {'end_of_word_suffix': '</w>'}}", ENOTSUP, "end_of_word_suffix"},
	{"{'model': {'continuing_subword_prefix': '##'}}", ENOTSUP, "prefix"},
	{"{'model': {'ignore_merges': 1}}", EINVAL, "ignore_merges"},
	{"{'model': {'vocab': {}}}", EINVAL, "vocab"},
	{"{'model': {'vocab': {'a': 0, 'b': 0}}}", EINVAL, "two tokens"},
	{"{'model': {'vocab': {'a': -1}}}", EINVAL, "id of \"a\""},
	{"{'model': {'vocab': {'a': 4294967295}}}", EINVAL, "id of \"a\""},
	{"{'model': {'vocab': {'a': '0'}}}", EINVAL, "id of \"a\""},
	{"{'model': {'merges': 7}}", EINVAL, "merges"},
	{"{'model': {'merges': [['a']]}}", EINVAL, "merges[0]"},
	{"{'model': {'merges': ['a b c']}}", EINVAL, "merges[0]"},
	{"{'model': {'merges': ['i s', ['a', 1]]}}", EINVAL, "merges[1]"},
	{"{'model': {'merges': ['z q']}}", EINVAL, "not in the vocabulary"},
	{"{'model': {'merges': ['\\u0000']}}", EINVAL, "\\u0000"},
	{"{'model': {'merges': [], 'unk_token': 'a', 'vocab': {'a': 9}}}", ENOTSUP, "unk_token"},
	{"{'model': {'merges': [], 'byte_fallback': true, 'vocab': {'a': 9}}}", ENOTSUP, "0x00"},
	{"{'model': null}", EINVAL, "no model"},
	{"{'normalizer': {'type': 'NFKC'}}", ENOTSUP, "NFKC"},
	{"{'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'NFC'}, {'type': 'Lowercase'}]}}",
	 ENOTSUP, "Lowercase"},
	{"{'decoder': {'type': 'Metaspace'}}", ENOTSUP, "Metaspace"},
	{"{'pre_tokenizer': null}", ENOTSUP, "ByteLevel"},
	{"{'pre_tokenizer': {'type': 'Whitespace'}}", ENOTSUP, "Whitespace"},
	{"{'pre_tokenizer': {'type': 'ByteLevel', 'use_regex': 'no'}}", EINVAL, "use_regex"},
	{"{'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': 'ByteLevel'}, {'type': 'Digits'}]}}",
	 ENOTSUP, "behind ByteLevel"},
	{"{'pre_tokenizer': {'type': 'Split', 'behavior': 'Isolated'}}", EINVAL, "no pattern"},
	{"{'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': 'a'}, 'behavior': 'MergedWithNext'}}",
	 ENOTSUP, "MergedWithNext"},
	{"{'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '(a'}, 'behavior': 'Isolated'}}",
	 EINVAL, "pattern is wrong"},
	{"{'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '[a&&[b]]'}, 'behavior': 'Isolated'}}",
	 ENOTSUP, "sets in sets"},
	{"{'added_tokens': {}}", EINVAL, "added_tokens"},
	{"{'added_tokens': [{'id': 1}]}", EINVAL, "added token"},
	{"{'added_tokens': [{'id': 4194304, 'content': 'x'}]}", EINVAL, "added token"},
	{"{'added_tokens': [{'id': 9000, 'content': 'x', 'lstrip': 3}]}", EINVAL, "lstrip"},
	{"{'added_tokens': [{'id': 5, 'content': '<new>'}]}", EINVAL, "contradicts"},
	{"{'added_tokens': [{'id': 9000, 'content': '<think>'}]}", EINVAL, "contradicts"},
	{"{'added_tokens': [{'id': 9000, 'content': 'e\\u0301'}, {'id': 9001, 'content': '\\u00e9\\u00e9'}, {'id': 9002, 'content': 'e\\u0301e\\u0301'}]}",
	 EINVAL, "two ids"},
	{"{'post_processor': {'type': 'Strange'}}", ENOTSUP, "Strange"},
	{"{'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<s>'}}]}}",
	 EINVAL, "unknown token"},
	{"{'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<s>'}}], 'special_tokens': {'<s>': {'ids': [9999]}}}}",
	 EINVAL, "not in the vocabulary"},
};
/* clang-format on */

TEST(refused)
{
	static const char *const texts[] = {"", "[]", "{", "{}", "nonsense", "{\"model\": []}"};
	struct tokenizer *t;
	struct err e;

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		json_t *change = json_loads(quoted(refused[i].change), JSON_ALLOW_NUL, NULL);
		json_t *file = changed(change);

		e = (struct err){0};
		t = parse(file, &e);
		if (t || !change || e.code != refused[i].code || strncmp(e.text, "a file: ", 8) ||
		    !strstr(e.text, refused[i].says)) {
			printf("# %s: %d %s\n", refused[i].change, e.code, e.text);
			tap_quiet++;
		}
		tokenizer_free(t);
		json_decref(file);
		json_decref(change);
	}
	ok_all("%zu wrong files are refused with a sentence", ARRAY_SIZE(refused));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		e = (struct err){0};
		t = (struct tokenizer *)&e;
		check(tokenizer_parse("x", texts[i], strlen(texts[i]), &t, &e) < 0);
		check(t == (struct tokenizer *)&e && e.code && strlen(e.text) > 5);
	}
	ok_all("what is no tokenizer.json is refused, and *ret stays as it was");
	is_int(model_tokenizer("tests/golden", &t, &e), -ENOENT, "a directory without the file");
	is_str(e.text, "tests/golden/tokenizer.json: cannot open: No such file or directory",
	       "says so");
}

/* ---- the rest ---- */

TEST(ids_and_bytes)
{
	struct ids ids = {0};
	size_t len = 7;
	const char *bytes;

	is_int(tokenizer_size(lexis), 8192, "lexis has 8192 ids");
	is_int(tokenizer_id(lexis, "<|im_end|>"), 2, "an added token's id by its text");
	ok(tokenizer_id(lexis, " of") > 8, "an ordinary token's id by its bytes");
	bytes = tokenizer_bytes(lexis, tokenizer_id(lexis, " of"), &len);
	ok(bytes && len == 3 && !memcmp(bytes, " of", 3), "and back");
	is_int(tokenizer_id(lexis, ""), -1, "the empty text has no id");
	is_int(tokenizer_id(lexis, "no such token"), -1, "nor has an unknown one");
	ok(!tokenizer_bytes(lexis, -1, &len) && !len, "no bytes below 0");
	ok(!tokenizer_bytes(lexis, 8192, &len) && !len, "no bytes past the end");
	ok(!tokenizer_bytes(lexis, INT32_MAX, &len) && !len, "nor far past it");
	ok(tokenizer_is_special(lexis, 1) && tokenizer_is_special(lexis, 2), "im_start is special");
	ok(!tokenizer_is_special(lexis, 3) && !tokenizer_is_special(lexis, 5),
	   "<think> and <tool_call> are added, not special");
	ok(!tokenizer_is_special(lexis, -1) && !tokenizer_is_special(lexis, 8192),
	   "ids out of range are not special");
	for (int32_t i = 0; i < 8192; i++)
		check(tokenizer_bytes(lexis, i, &len) && len > 0);
	ok_all("every id has bytes");
	check(tokenizer_encode_whole(lexis, "", 0, NULL, &ids) == 0);
	is_int(ids.len, 0, "lexis puts nothing around texts");
	ids_release(&ids);
}

TEST(without_added)
{
	const char *text = "<|im_start|>user <think>";
	struct ids ids = {0};
	struct buf back;

	buf_init(&back, 1 << 20);
	check(tokenizer_encode(lexis, text, strlen(text), false, NULL, &ids) == 0);
	for (size_t i = 0; i < ids.len; i++)
		check(ids.v[i] > 8);
	text_of(lexis, ids.v, ids.len, &back);
	check(!strcmp(buf_str(&back), text));
	ok_all("without added tokens their text is ordinary text");
	ids.len = 1;
	ids.v[0] = 42;
	check(tokenizer_encode(lexis, "of", 2, true, NULL, &ids) == 0 && ids.len > 1 &&
	      ids.v[0] == 42);
	check(tokenizer_encode(lexis, "", 0, true, NULL, &ids) == 0);
	check(tokenizer_encode(lexis, NULL, 0, false, NULL, &ids) == 0);
	ok_all("ids are appended, and no text adds none");
	ids_release(&ids);
	buf_release(&back);
}

/* Texts of a megabyte by which a client could keep the daemon busy for ever, if the work grew with the square of their
 * length. */
TEST(hostile)
{
	static const struct {
		const char *unit, *what;
	} runs[] = {
		{"a", "one letter"},
		{" ", "spaces"},
		{"\n", "line ends"},
		{"\u0301\u0323", "marks"},
		{"\u1100\u1161", "jamo"},
		{"<", "what begins tags"},
		{"<|im_start", "parts of tags"},
		{"\xff", "what is no UTF-8"},
		{"'", "apostrophes"},
		{"1", "digits"},
		{"\u00e9", "two-byte letters"},
		{"\xf0\x9f", "half characters"},
		{"e\u0301", "what composes"},
		{" \t\r", "all kinds of space"},
	};
	enum { LEN = 1 << 20 };
	char *text = malloc(LEN);

	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		struct ids ids = {0};
		size_t n = strlen(runs[i].unit);

		for (size_t at = 0; at < LEN; at++)
			text[at] = runs[i].unit[at % n];
		ok(tokenizer_encode(lexis, text, LEN, true, NULL, &ids) == 0 && ids.len > 100,
		   "a megabyte of %s", runs[i].what);
		ids_release(&ids);
	}
	free(text);
}

struct reader {
	const char *text;
	const struct ids *want;
	bool good;
};

static void *encode_again(void *arg)
{
	struct reader *r = arg;

	r->good = true;
	for (int i = 0; i < 20; i++) {
		struct ids ids = {0};

		if (tokenizer_encode(lexis, r->text, strlen(r->text), true, NULL, &ids) < 0 ||
		    ids.len != r->want->len ||
		    memcmp(ids.v, r->want->v, ids.len * sizeof(*ids.v)) != 0)
			r->good = false;
		ids_release(&ids);
	}
	return NULL;
}

TEST(threads)
{
	enum { THREADS = 4 };
	const char *text =
		"<|im_start|>user\nWhat is a cafe\u0301, e.g. in \u65e5\u672c?<|im_end|>\n";
	struct reader readers[THREADS];
	pthread_t threads[THREADS];
	struct ids want = {0};

	check(tokenizer_encode(lexis, text, strlen(text), true, NULL, &want) == 0);
	for (int i = 0; i < THREADS; i++) {
		readers[i] = (struct reader){.text = text, .want = &want};
		pthread_create(&threads[i], NULL, encode_again, &readers[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		check(readers[i].good);
	}
	ok_all("threads share a tokenizer");
	ids_release(&want);
}

/* ---- bounds ---- */

TEST(bounds)
{
	enum { WORDS = 1000 };
	int left = 3;
	const struct pace pace = {impatient, &left};
	const struct tokenizer_bounds patient = {.ids = SIZE_MAX, .pace = &pace};
	struct tokenizer_bounds bounds = {.ids = SIZE_MAX};
	struct ids ids = {0}, all = {0};
	struct buf text;

	buf_init(&text, 1 << 20);
	for (int i = 0; i < WORDS; i++)
		buf_puts(&text, " river");
	check(ids_push(&ids, 7) == 0);
	is_int(tokenizer_encode(lexis, buf_str(&text), text.len, true, &patient, &ids), -ECANCELED,
	       "a text of 1000 words is given up at the fourth question");
	ok(ids.len == 1 && ids.v[0] == 7, "which leaves nothing behind");
	left = 1 << 30;
	is_int(tokenizer_encode(lexis, buf_str(&text), text.len, true, &patient, &all), 0,
	       "a patient caller gets all");
	ok((1 << 30) - left >= WORDS / 64, "and is asked often (%d times)", (1 << 30) - left);
	bounds.ids = all.len;
	is_int(tokenizer_encode(lexis, buf_str(&text), text.len, true, &bounds, &ids), 0,
	       "as many ids as allowed");
	bounds.ids = all.len - 1;
	ids.len = 1;
	is_int(tokenizer_encode(lexis, buf_str(&text), text.len, true, &bounds, &ids), -EOVERFLOW,
	       "one more than allowed");
	is_int((long long)ids.len, 1, "leaves nothing behind either");
	ids_release(&ids);
	ids_release(&all);
	buf_release(&text);
}

int main(void)
{
	struct err e = {0};

	cases = load_json("tests/golden/tokenizer_cases.json");
	if (!ok(model_tokenizer("models/lexis", &lexis, &e) == 0 && cases, "lexis opens")) {
		printf("# %s\n", e.text);
		return done();
	}
	run_tests();
	json_decref(cases);
	tokenizer_free(lexis);
	return done();
}
