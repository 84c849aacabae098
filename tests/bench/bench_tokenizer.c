/*
 * How fast text becomes ids, on one core.
 *
 *     bench_tokenizer MODEL_DIR FILE...
 *
 * Each file is repeated until there are at least 8 MiB, which are encoded in one call; the best of five rounds counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "protocol/tokenizer/tokenizer.h"
#include "tests/model_text.h"

enum { ROUNDS = 5, AT_LEAST = 8 << 20, FILE_MAX = 256 << 20 };

static int read_repeated(const char *path, struct buf *out)
{
	FILE *f = fopen(path, "rb");
	char block[65536];
	size_t n, len;

	if (!f)
		return -1;
	while ((n = fread(block, 1, sizeof(block), f)) > 0)
		buf_append(out, block, n);
	fclose(f);
	len = out->len;
	if (!len || out->failed || buf_reserve(out, AT_LEAST + len) < 0)
		return -1;
	while (out->len < AT_LEAST)
		buf_append(out, out->data, len);
	return 0;
}

static int bench(const struct tokenizer *t, const char *path)
{
	struct buf text;
	struct ids ids = {0};
	uint64_t best = UINT64_MAX;
	int r = 0;

	buf_init(&text, FILE_MAX);
	if (read_repeated(path, &text) < 0) {
		fprintf(stderr, "%s: cannot be read\n", path);
		buf_release(&text);
		return -1;
	}
	for (int i = 0; i < ROUNDS && !r; i++) {
		uint64_t start = clock_now_ns();

		ids.len = 0;
		r = tokenizer_encode(t, text.data, text.len, true, NULL, &ids);
		best = MIN(best, clock_now_ns() - start);
	}
	if (r < 0)
		fprintf(stderr, "%s: encode fails with %d\n", path, r);
	else
		printf("%-40s %7.1f MB/s  %5.2f bytes a token\n", path,
		       (double)text.len / (double)best * 1e3, (double)text.len / (double)ids.len);
	ids_release(&ids);
	buf_release(&text);
	return r;
}

int main(int argc, char **argv)
{
	struct tokenizer *t = NULL;
	struct err e = {0};
	uint64_t start = clock_now_ns();
	int r;

	if (argc < 3) {
		fprintf(stderr, "usage: bench_tokenizer MODEL_DIR FILE...\n");
		return 1;
	}
	r = model_tokenizer(argv[1], &t, &e);
	if (r < 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	printf("%d ids, opened in %.1f ms\n", tokenizer_size(t),
	       (double)(clock_now_ns() - start) / 1e6);
	for (int i = 2; i < argc && !r; i++)
		r = bench(t, argv[i]);
	tokenizer_free(t);
	return r < 0;
}
