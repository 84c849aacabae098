/* Added tokens: scans against a naive search, and examples of the flags. */
#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "protocol/tokenizer/added.h"
#include "tests/random.h"
#include "tests/tap.h"

/* Writes the text with each token in it as [id:text that it took]. */
static void scan(const struct added *a, const char *text, struct buf *out)
{
	struct added_scan s = {0};
	struct added_match m;
	size_t done = 0, len = strlen(text);

	buf_reset(out);
	while (added_next(a, text, len, &s, &m)) {
		if (m.start > done)
			buf_append(out, text + done, m.start - done);
		buf_printf(out, "[%d:%.*s]", m.id, (int)(m.end - m.start), text + m.start);
		done = s.done;
	}
	buf_puts(out, text + done);
}

static void insert(struct added *a, int32_t id, const char *text, const char *flags)
{
	struct added_token t = {.id = id,
				.lstrip = strchr(flags, 'l') != NULL,
				.rstrip = strchr(flags, 'r') != NULL,
				.single_word = strchr(flags, 'w') != NULL};

	check(added_insert(a, text, strlen(text), t) == 0);
}

TEST(flags)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{"", ""},
		{"nothing", "nothing"},
		{"<a>", "[1:<a>]"},
		{"x<a><a>y", "x[1:<a>][1:<a>]y"},
		{"<<a>", "<[1:<a>]"},
		{"<a<a>", "<a[1:<a>]"},
		{"<a>b", "[2:<a>b]"},
		{"<a>bc", "[2:<a>b]c"},
		{"x  <l> \n <l>", "x[3:  <l>][3: \n <l>]"},
		{"<r>\u3000\t x<r>", "[4:<r>\u3000\t ]x[4:<r>]"},
		{"<r>  <l>", "[4:<r>  ][3:<l>]"},
		{"word words (word) word", "[5:word] words ([5:word]) [5:word]"},
		{"wordword \u00e8word word\u0301", "wordword \u00e8word word\u0301"},
		{"word_ word-word", "word_ [5:word]-[5:word]"},
		{"\u00e9\u00e8", "[6:\u00e9]\u00e8"},
	};
	struct added a;
	struct buf out;

	added_init(&a, unicode_table());
	buf_init(&out, 1 << 20);
	scan(&a, "<a>", &out);
	is_str(buf_str(&out), "<a>", "an empty set matches nothing");
	insert(&a, 1, "<a>", "");
	scan(&a, "<<a> b", &out);
	is_str(buf_str(&out), "<[1:<a>] b", "one token");
	insert(&a, 2, "<a>b", "");
	insert(&a, 3, "<l>", "l");
	insert(&a, 4, "<r>", "r");
	insert(&a, 5, "word", "w");
	insert(&a, 6, "\u00e9", "");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		scan(&a, cases[i].text, &out);
		is_str(buf_str(&out), cases[i].want, "case %zu", i);
	}
	is_int(added_find(&a, "<a>b", 4), 2, "a token by its text");
	is_int(added_find(&a, "<a", 2), -1, "not by a part of it");
	is_int(added_find(&a, "<a>bc", 5), -1, "nor by more");
	is_int(added_insert(&a, "<a>", 3, (struct added_token){.id = 1}), 0, "twice is once");
	is_int(added_insert(&a, "<a>", 3, (struct added_token){.id = 9}), -EEXIST, "not two ids");
	buf_release(&out);
	added_release(&a);
}

/* Writes the same by a naive search: at each position the longest token that begins there. */
static void naive(const char *const *tokens, size_t n, const char *text, struct buf *out)
{
	buf_reset(out);
	while (*text) {
		size_t best = 0, id = 0;

		for (size_t i = 0; i < n; i++)
			if (strlen(tokens[i]) > best &&
			    !strncmp(tokens[i], text, strlen(tokens[i]))) {
				best = strlen(tokens[i]);
				id = i;
			}
		if (best) {
			buf_printf(out, "[%zu:%s]", id, tokens[id]);
			text += best;
		} else {
			buf_putc(out, *text++);
		}
	}
}

TEST(random)
{
	static const char *const tokens[] = {"a",   "ab",	"abab", "ba",
					     "cab", "bcabcabc", "cc",	"abc"};
	static const char *const letters[] = {"a", "b", "c", "ab"};
	struct buf got, want;
	char text[64];

	buf_init(&got, 1 << 20);
	buf_init(&want, 1 << 20);
	for (size_t n = 1; n <= ARRAY_SIZE(tokens); n++) {
		struct added a;

		added_init(&a, unicode_table());
		for (size_t i = 0; i < n; i++)
			insert(&a, (int32_t)i, tokens[i], "");
		for (int i = 0; i < 5000; i++) {
			random_pieces(letters, ARRAY_SIZE(letters), 20, text, sizeof(text));
			scan(&a, text, &got);
			naive(tokens, n, text, &want);
			check(!strcmp(buf_str(&got), buf_str(&want)));
		}
		added_release(&a);
	}
	ok_all("scans of random text find what a naive search finds");
	buf_release(&got);
	buf_release(&want);
}

TEST_MAIN()
