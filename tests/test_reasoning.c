/*
 * protocol/output/reasoning: texts are divided into reasoning and content. First examples; then random
 * texts, cut at random places, are compared with a naive function that reads the whole text.
 */
#include <stdlib.h>

#include "protocol/output/reasoning.h"
#include "tests/random.h"
#include "tests/tap.h"

static const char opening[] = "<think>", closing[] = "</think>";

struct outcome {
	struct buf reasoning, content;
};

static void outcome_init(struct outcome *o)
{
	buf_init(&o->reasoning, 1 << 20);
	buf_init(&o->content, 1 << 20);
}

static void outcome_release(struct outcome *o)
{
	buf_release(&o->reasoning);
	buf_release(&o->content);
}

static void example(bool inside, const char *text, const char *reasoning, const char *content)
{
	size_t len = strlen(text);

	/* The text is cut in two at each place, and then into single bytes. */
	for (size_t cut = 0; cut <= len + 1; cut++) {
		struct reasoning r;
		struct outcome o;

		outcome_init(&o);
		reasoning_init(&r, inside, false);
		if (cut <= len) {
			reasoning_push(&r, text, cut, &o.reasoning, &o.content);
			reasoning_push(&r, text + cut, len - cut, &o.reasoning, &o.content);
		} else {
			for (size_t i = 0; i < len; i++)
				reasoning_push(&r, text + i, 1, &o.reasoning, &o.content);
		}
		reasoning_finish(&r, &o.reasoning, &o.content);
		if (strcmp(buf_str(&o.reasoning), reasoning) ||
		    strcmp(buf_str(&o.content), content)) {
			printf("# cut at %zu: reasoning [%s], content [%s]\n", cut,
			       buf_str(&o.reasoning), buf_str(&o.content));
			tap_quiet++;
		}
		outcome_release(&o);
	}
	ok_all("[%zu bytes]%s: reasoning \"%.20s\"", len, inside ? " inside" : "",
	       strchr(reasoning, '\n') ? "(lines)" : reasoning);
}

TEST(examples)
{
	example(false, "", "", "");
	example(false, "\n\n plain <b>text</b> \n", "", "\n\n plain <b>text</b> \n");
	example(false, "<thin", "", "<thin");
	example(false, "a < b </thinx> <think", "", "a < b </thinx> <think");
	example(false, "<think>\nwhy\n</think>\n\nbecause\n", "why\n", "because\n");
	example(true, "why</think>because", "why", "because");
	example(true, "\n\nwhy", "why", "");
	example(true, "why <", "why <", "");
	example(true, "</think>\r\n\n", "", "");
	example(true, "\n</think>\n\nyes", "", "yes");
	example(true, "<think>\nwhy</think>yes", "why", "yes");
	example(false, "<think></think>\n a", "", " a");
	example(false, "a<think>b</think>\nc", "b", "a\nc");
	example(false, "\n<think>b</think>\nc", "b", "\nc");
	example(false, "<think>a</think>\n<think>\nb</think>\nc", "ab", "c");
	example(false, "a</think>b", "", "ab");
	example(false, "<<think>>a<</think>>b", ">a<", "<>b");
	example(false, "<think<think>a</</think>/", "a</", "<think/");
}

/* Returns the tag with which the text begins, or NULL. */
static const char *tag_at(const char *text)
{
	if (!strncmp(text, opening, strlen(opening)))
		return opening;
	return strncmp(text, closing, strlen(closing)) ? NULL : closing;
}

static void naive(bool inside, bool once, const char *text, struct outcome *o)
{
	size_t trim = inside ? SIZE_MAX : 0;

	while (*text) {
		const char *tag = once && !inside ? NULL : tag_at(text);
		bool line_end = *text == '\n' || *text == '\r';

		if (tag) {
			inside = tag == opening;
			trim = 0;
			if (inside || strspn(buf_str(&o->content), "\r\n") == o->content.len)
				trim = once && !inside ? 2 : SIZE_MAX;
			text += strlen(tag);
			continue;
		}
		if (!trim || !line_end)
			buf_putc(inside ? &o->reasoning : &o->content, *text);
		trim = trim && line_end ? trim - 1 : 0;
		text++;
	}
}

TEST(random)
{
	static const char *const pieces[] = {"<think>", "</think>", "<",    "/",      "think>",
					     "think",	"\n",	    "\r\n", "a",      " ",
					     ">",	"<think",   "</",   "</thin", "\u00e9"};
	char text[512];

	for (int i = 0; i < 100000; i++) {
		bool inside = random_below(2), once = random_below(2);
		size_t len = random_pieces(pieces, ARRAY_SIZE(pieces), 16, text, sizeof(text));
		struct outcome got, want;
		struct reasoning r;
		bool tags = false;

		outcome_init(&got);
		outcome_init(&want);
		naive(inside, once, text, &want);
		reasoning_init(&r, inside, once);
		for (size_t at = 0; at < len;) {
			size_t n = MIN(1 + random_below(9), len - at);

			reasoning_push(&r, text + at, n, &got.reasoning, &got.content);
			at += n;
			/* Text that was passed on is never taken back, and only the beginning of a tag is held. */
			check(got.content.len <= want.content.len &&
			      got.reasoning.len <= want.reasoning.len);
			check(r.n_held < strlen(closing));
		}
		reasoning_finish(&r, &got.reasoning, &got.content);
		check(!strcmp(buf_str(&got.reasoning), buf_str(&want.reasoning)));
		check(!strcmp(buf_str(&got.content), buf_str(&want.content)));
		for (size_t k = 0; k < len; k++)
			tags = tags || tag_at(text + k);
		if (!tags && !inside)
			check(!strcmp(buf_str(&got.content), text));
		outcome_release(&got);
		outcome_release(&want);
	}
	ok_all("random texts, cut at random");
}

TEST_MAIN()
