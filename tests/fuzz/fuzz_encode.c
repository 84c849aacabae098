/* Sends any bytes through a tokenizer and back. The first byte chooses the tokenizer; lexis's file is read from
 * models/lexis, so this runs in the root of the source.
 *
 * Without a normalizer the text that comes back is the input, with U+FFFD in place of invalid bytes. Except by the
 * tokenizer that adds a space, the text that comes back is not changed when it is sent through once more. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "protocol/tokenizer/detokenizer.h"
#include "protocol/tokenizer/splitter.h"
#include "protocol/tokenizer/tokenizer.h"

enum { KINDS = 4 };

static struct tokenizer *tokenizers[KINDS];
static struct splitter *hand[3], *pcre[3];

/* Opens lexis's file with one text in place of another. */
static struct tokenizer *open_with(const char *file, const char *from, const char *to)
{
	struct tokenizer *t = NULL;
	struct err e = {0};
	const char *at = strstr(file, from);
	struct buf text;

	if (!at)
		abort();
	buf_init(&text, 64 << 20);
	buf_append(&text, file, (size_t)(at - file));
	buf_puts(&text, to);
	buf_puts(&text, at + strlen(from));
	if (tokenizer_parse("lexis", buf_str(&text), text.len, &t, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		abort();
	}
	buf_release(&text);
	return t;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char *const patterns[] = {SPLITTER_QWEN2, SPLITTER_QWEN35, SPLITTER_LLAMA3};
	FILE *f = fopen("models/lexis/tokenizer.json", "rb");
	char *file = calloc(1, 4 << 20);

	if (!f || !file || !fread(file, 1, (4 << 20) - 1, f)) {
		fprintf(stderr,
			"models/lexis/tokenizer.json: not here; run this in the source's root\n");
		exit(1);
	}
	fclose(f);
	tokenizers[0] = open_with(file, "\"version\"", "\"version\"");
	tokenizers[1] = open_with(file, "\"NFC\"", "\"Sequence\", \"normalizers\": []");
	tokenizers[2] = open_with(file, "\"use_regex\": false", "\"use_regex\": true");
	tokenizers[3] =
		open_with(file, "\"add_prefix_space\": false", "\"add_prefix_space\": true");
	free(file);
	for (int i = 0; i < 3; i++) {
		hand[i] = splitter_new();
		pcre[i] = splitter_new();
		if (splitter_add_pattern(hand[i], patterns[i], SPLITTER_ISOLATED, false, NULL) <
			    0 ||
		    splitter_add_pcre(pcre[i], patterns[i], SPLITTER_ISOLATED, false, NULL) < 0)
			abort();
	}
	return 0;
}

static void encode(const struct tokenizer *t, const char *text, size_t len, bool added,
		   struct buf *back)
{
	struct detokenizer *d = detokenizer_new(t, NULL);
	struct ids ids = {0};

	if (!d || tokenizer_encode(t, text, len, added, NULL, &ids) < 0)
		abort();
	for (size_t i = 0; i < ids.len; i++) {
		if (detokenizer_push(d, ids.v[i], back) != 0)
			abort();
		if (utf8_valid(buf_str(back), back->len) != back->len)
			abort();
	}
	if (detokenizer_finish(d, back) < 0)
		abort();
	detokenizer_free(d);
	ids_release(&ids);
}

static int note_end(void *arg, const char *text, size_t len)
{
	struct buf *ends = arg;

	buf_append(ends, text, len);
	buf_putc(ends, (char)0xff);
	return 0;
}

/* PCRE2's Unicode data are older than this project's: only texts of characters below U+0340 are compared. */
static void compare_splits(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] >= 0xcd)
			return;
	for (int i = 0; i < 3; i++) {
		struct buf a, b;

		buf_init(&a, 1 << 24);
		buf_init(&b, 1 << 24);
		if (splitter_run(hand[i], text, len, note_end, &a) < 0 ||
		    splitter_run(pcre[i], text, len, note_end, &b) < 0)
			abort();
		if (a.len != b.len || memcmp(buf_str(&a), buf_str(&b), a.len) != 0)
			abort();
		buf_release(&a);
		buf_release(&b);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	struct buf want, back, again;
	size_t len = size - 1;
	unsigned kind;

	if (size < 1)
		return 0;
	kind = data[0] % KINDS;
	buf_init(&want, 1 << 24);
	buf_init(&back, 1 << 24);
	buf_init(&again, 1 << 24);
	utf8_replace(text, len, &want);
	encode(tokenizers[kind], text, len, false, &back);
	if (kind == 1 && (want.len != back.len || memcmp(buf_str(&want), buf_str(&back), want.len)))
		abort();
	if (kind != 3) {
		encode(tokenizers[kind], buf_str(&back), back.len, false, &again);
		if (again.len != back.len || memcmp(buf_str(&again), buf_str(&back), back.len))
			abort();
	}
	buf_reset(&again);
	encode(tokenizers[kind], text, len, true, &again);
	compare_splits(buf_str(&want), want.len);
	buf_release(&want);
	buf_release(&back);
	buf_release(&again);
	return 0;
}
