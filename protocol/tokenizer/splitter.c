/* The splitter: stages, code for three patterns, and PCRE2 for the others.
 *
 * The three patterns have the same shape. They differ in whether marks count as letters and in the number of digits in
 * a word (`struct flavor`). Alternatives are tried in the pattern's order at each position; one of them always matches,
 * so words follow each other without gaps. SPLITTER_QWEN2 is:
 *
 *     1 (?i:'s|'t|'re|'ve|'m|'ll|'d)          U+017F is an s when case does not count
 *     2 [^\r\n\p{L}\p{N}]?\p{L}+
 *     3 \p{N}                                 up to three in SPLITTER_LLAMA3
 *     4  ?[^\s\p{L}\p{N}]+[\r\n]*
 *     5 \s*[\r\n]+                            white space up to its last line end
 *     6 \s+(?!\S)                             white space without its last character; all of it at the end of the text
 *     7 \s+                                   a single character of white space */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "protocol/tokenizer/splitter.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "protocol/tokenizer/unicode.h"

enum {
	MAX_STAGES = 16,
	MAX_PATTERN = 1 << 16,
	WINDOW = 256, /* bytes behind a match's earliest start that PCRE2 sees at first */
	/* The budget of a run, in bytes of larger windows: BUDGET_SHARE for each byte of the text, and BUDGET_MIN. */
	BUDGET_SHARE = 64,
	BUDGET_MIN = 1 << 20,
	/* PCRE2's match limit (its steps for a match): STEPS_MIN, and STEPS_SHARE for each byte of the window. */
	STEPS_MIN = 20000,
	STEPS_SHARE = 8,
};

enum stage_kind {
	STAGE_QWEN2,
	STAGE_QWEN35,
	STAGE_LLAMA3,
	STAGE_PCRE,
	STAGE_PREFIX_SPACE,
	STAGE_MARKS
};

struct stage {
	enum stage_kind kind;
	enum splitter_behavior behavior;
	bool invert;
	pcre2_code *code; /* STAGE_PCRE: owned */
};

struct splitter {
	const struct unicode *unicode;
	size_t n_stages;
	struct stage stages[MAX_STAGES];
};

/* State of one call of splitter_run, for all stages. */
struct run {
	const struct splitter *splitter;
	int (*word)(void *arg, const char *text, size_t len);
	void *arg;
	size_t budget; /* bytes of larger windows that PCRE2 may still see */
	/* made when first needed, owned */
	pcre2_match_data *match;
	pcre2_match_context *context;
};

static int run_stage(struct run *run, size_t stage, const char *text, size_t len);

int splitter_behavior_parse(const char *name, enum splitter_behavior *ret)
{
	if (!strcmp(name, "Isolated"))
		*ret = SPLITTER_ISOLATED;
	else if (!strcmp(name, "Removed"))
		*ret = SPLITTER_REMOVED;
	else
		return -ENOTSUP;
	return 0;
}

struct splitter *splitter_new(void)
{
	const struct unicode *u = unicode_table();
	struct splitter *s = u ? calloc(1, sizeof(*s)) : NULL;

	if (s)
		s->unicode = u;
	return s;
}

void splitter_free(struct splitter *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_stages; i++)
		pcre2_code_free(s->stages[i].code);
	free(s);
}

/* ---- the patterns that have code of their own ---- */

struct flavor {
	unsigned letters; /* set of classes that \p{L}+ of alternative 2 takes */
	unsigned others;  /* set of classes that alternative 4 takes */
	int digits;	  /* the most characters \p{N} in one word */
};

#define IN(class) (1u << (class))

enum { WHITE = IN(UNICODE_SPACE) | IN(UNICODE_NEWLINE) };

/* Returns the class of the character at p, as a set of one class, and sets *n to the character's length in bytes. */
static inline unsigned set_at(const struct unicode *u, const char *p, size_t *n)
{
	unsigned char first = (unsigned char)*p;

	if (first < 0x80) {
		*n = 1;
		return IN(u->pages[0][first] & UNICODE_CLASS);
	}
	return IN(unicode_entry(u, utf8_decode(p, n)) & UNICODE_CLASS);
}

static inline size_t skip_set(const struct unicode *u, const char *text, size_t len, size_t at,
			      unsigned set)
{
	size_t n;

	while (at < len && (set_at(u, text + at, &n) & set))
		at += n;
	return at;
}

static inline size_t skip_newlines(const char *text, size_t len, size_t at)
{
	while (at < len && (text[at] == '\r' || text[at] == '\n'))
		at++;
	return at;
}

/* Returns the end of the contraction (alternative 1) whose apostrophe stands at `at`; 0: there is none. */
static size_t contraction(const char *text, size_t len, size_t at)
{
	size_t left = len - at - 1;
	const char *p = text + at + 1;

	if (!left)
		return 0;
	switch (p[0] | 0x20) {
	case 's':
	case 't':
	case 'm':
	case 'd': return at + 2;
	case 'r':
	case 'v': return left >= 2 && (p[1] | 0x20) == 'e' ? at + 3 : 0;
	case 'l': return left >= 2 && (p[1] | 0x20) == 'l' ? at + 3 : 0;
	}
	if (left >= 2 && (unsigned char)p[0] == 0xc5 && (unsigned char)p[1] == 0xbf)
		return at + 3;
	return 0;
}

/* Matches alternatives 5 to 7 at the white space at `at`. Returns the end of the match. */
static size_t white_word(const struct unicode *u, const char *text, size_t len, size_t at)
{
	size_t end = at, last = at, line_end = 0, n;

	while (end < len) {
		unsigned set = set_at(u, text + end, &n);

		if (!(set & WHITE))
			break;
		last = end;
		end += n;
		if (set & IN(UNICODE_NEWLINE))
			line_end = end;
	}
	if (line_end)
		return line_end;
	return end == len || last == at ? end : last;
}

static inline size_t word_end(const struct unicode *u, const char *text, size_t len, size_t at,
			      const struct flavor *f)
{
	size_t n, next, end;
	unsigned set = set_at(u, text + at, &n);

	next = at + n;
	if (set & f->letters)
		return skip_set(u, text, len, next, f->letters);
	if (set & IN(UNICODE_NUMBER)) {
		for (int i = 1; i < f->digits && next < len; i++) {
			if (!(set_at(u, text + next, &n) & IN(UNICODE_NUMBER)))
				break;
			next += n;
		}
		return next;
	}
	if (text[at] == '\'') {
		end = contraction(text, len, at);
		if (end)
			return end;
	}
	if (!(set & IN(UNICODE_NEWLINE)) && next < len) {
		unsigned second = set_at(u, text + next, &n);

		if (second & f->letters)
			return skip_set(u, text, len, next + n, f->letters);
		if (text[at] == ' ' && second & f->others)
			set = f->others;
	}
	if (set & f->others) {
		end = skip_set(u, text, len, next, f->others);
		return skip_newlines(text, len, end);
	}
	return white_word(u, text, len, at);
}

/* Runs a stage of one of the three patterns. It is inlined once for each flavor, whose members are then constants. */
static inline __attribute__((always_inline)) int
run_by_hand(struct run *run, size_t stage, const char *text, size_t len, const struct flavor f)
{
	const struct unicode *u = run->splitter->unicode;
	bool last = stage + 1 == run->splitter->n_stages;
	size_t at = 0;

	while (at < len) {
		size_t end = word_end(u, text, len, at, &f);
		int r = last ? run->word(run->arg, text + at, end - at)
			     : run_stage(run, stage + 1, text + at, end - at);

		if (r)
			return r;
		at = end;
	}
	return 0;
}

static int run_qwen2(struct run *run, size_t stage, const char *text, size_t len)
{
	return run_by_hand(run, stage, text, len,
			   (struct flavor){.letters = IN(UNICODE_LETTER),
					   .others = IN(UNICODE_OTHER) | IN(UNICODE_MARK),
					   .digits = 1});
}

static int run_qwen35(struct run *run, size_t stage, const char *text, size_t len)
{
	return run_by_hand(run, stage, text, len,
			   (struct flavor){.letters = IN(UNICODE_LETTER) | IN(UNICODE_MARK),
					   .others = IN(UNICODE_OTHER),
					   .digits = 1});
}

static int run_llama3(struct run *run, size_t stage, const char *text, size_t len)
{
	return run_by_hand(run, stage, text, len,
			   (struct flavor){.letters = IN(UNICODE_LETTER),
					   .others = IN(UNICODE_OTHER) | IN(UNICODE_MARK),
					   .digits = 3});
}

/* ---- PCRE2 ---- */

/* Translates the escape at p for PCRE2 and appends it to out: the backslash and one character, with the braces of
 * \p{..}, \P{..} and \x{..}. Returns the number of bytes of p that it has read. The caller copies the rest of the
 * escape, such as the 41 of \x41. -EINVAL: nothing follows the backslash. -ENOTSUP: Oniguruma and PCRE2 may read the
 * escape differently. */
static int translate_escape(const char *p, struct buf *out, struct err *e)
{
	const char *end;
	char c = p[1];

	if (!c)
		return err_set(e, EINVAL, "the pattern ends in a backslash");
	if (strchr("wWbBhHyYGKRXCNOoQEgkc", c) || (c == 'x' && p[2] >= '8' && p[2] != '{'))
		return err_set(e, ENOTSUP, "\\%c is not supported in patterns", c);
	if (c == 's' || c == 'S') {
		/* In PCRE2 \s also matches U+180E. */
		buf_puts(out, c == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
		return 2;
	}
	end = strchr("pPx", c) && p[2] == '{' ? strchr(p, '}') : NULL;
	buf_append(out, p, end ? (size_t)(end - p) + 1 : 2);
	return end ? (int)(end - p) + 1 : 2;
}

/* Returns whether Oniguruma and PCRE2 know the group that opens at p, and give it the same meaning. */
static bool known_group(const char *p)
{
	if (p[1] == '*')
		return false;
	return p[1] != '?' || (p[2] && strchr(":=!<>", p[2])) || !strncmp(p, "(?i:", 4) ||
	       !strncmp(p, "(?i)", 4);
}

/* Translates a pattern of Oniguruma into one of PCRE2. Nearly all constructs that tokenizers use mean the same in both
 * engines. A few others, such as \s, are translated; constructs that may differ in another way are refused. */
static int translate(const char *pattern, struct buf *out, struct err *e)
{
	bool in_set = false;
	const char *p = pattern;

	if (strlen(pattern) > MAX_PATTERN)
		return err_set(e, EINVAL, "a pattern is longer than %d bytes", (int)MAX_PATTERN);
	while (*p) {
		if (*p == '\\') {
			int n = translate_escape(p, out, e);

			if (n < 0)
				return n;
			p += n;
			continue;
		}
		if (in_set && (*p == '[' || (*p == '&' && p[1] == '&')))
			return err_set(e, ENOTSUP, "sets in sets are not supported in patterns");
		if (!in_set && *p == '(' && !known_group(p))
			return err_set(e, ENOTSUP, "the group %.4s is not supported in patterns",
				       p);
		/* In Oniguruma x{1,3}+ repeats x{1,3}; in PCRE2 it is possessive. */
		if (!in_set && *p == '}' && p[1] == '+')
			return err_set(e, ENOTSUP, "}+ is not supported in patterns");
		if (!in_set && *p == '[') {
			in_set = true;
			buf_putc(out, *p++);
			if (*p == '^')
				buf_putc(out, *p++);
			/* A bracket that would end an empty set is an ordinary character. */
			if (*p == ']') {
				buf_puts(out, "\\]");
				p++;
			}
			continue;
		}
		if (*p == ']')
			in_set = false;
		buf_putc(out, *p++);
	}
	return 0;
}

static int add_stage(struct splitter *s, struct stage stage, struct err *e)
{
	if (s->n_stages == MAX_STAGES)
		return err_set(e, ENOTSUP, "more than %d pre-tokenizers", (int)MAX_STAGES);
	s->stages[s->n_stages++] = stage;
	return 0;
}

static int add_code(struct splitter *s, const char *pattern, size_t len, uint32_t options,
		    struct stage stage, struct err *e)
{
	PCRE2_SIZE at;
	int code, r;
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);

	if (!context)
		return err_no_memory(e);
	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	stage.kind = STAGE_PCRE;
	stage.code =
		pcre2_compile((PCRE2_SPTR)pattern, len, options | PCRE2_UTF, &code, &at, context);
	pcre2_compile_context_free(context);
	if (!stage.code) {
		char why[128];

		if (code == PCRE2_ERROR_HEAP_FAILED)
			return err_no_memory(e);
		pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
		return err_set(e, EINVAL, "the pattern is wrong: %s", why);
	}
	/* Without a JIT for this processor PCRE2 interprets, which is slower and gives the same words. */
	(void)pcre2_jit_compile(stage.code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
	r = add_stage(s, stage, e);
	if (r < 0)
		pcre2_code_free(stage.code);
	return r;
}

int splitter_add_pcre(struct splitter *s, const char *pattern, enum splitter_behavior behavior,
		      bool invert, struct err *e)
{
	struct stage stage = {.behavior = behavior, .invert = invert};
	struct buf text;
	int r;

	/* Of all that is translated, \s grows most. */
	buf_init(&text, MAX_PATTERN * sizeof("\\p{White_Space}"));
	r = translate(pattern, &text, e);
	if (!r && text.failed)
		r = err_no_memory(e);
	if (!r)
		r = add_code(s, buf_str(&text), text.len, PCRE2_UCP | PCRE2_MULTILINE, stage, e);
	buf_release(&text);
	return r;
}

int splitter_add_literal(struct splitter *s, const char *text, enum splitter_behavior behavior,
			 bool invert, struct err *e)
{
	struct stage stage = {.behavior = behavior, .invert = invert};

	return add_code(s, text, strlen(text), PCRE2_LITERAL, stage, e);
}

int splitter_add_pattern(struct splitter *s, const char *pattern, enum splitter_behavior behavior,
			 bool invert, struct err *e)
{
	static const struct {
		const char *pattern;
		enum stage_kind kind;
	} known[] = {
		{SPLITTER_QWEN2, STAGE_QWEN2},
		{SPLITTER_QWEN35, STAGE_QWEN35},
		{SPLITTER_LLAMA3, STAGE_LLAMA3},
	};

	/* With `invert`, Removed drops the text between matches. The known patterns match all text, so nothing is
	 * dropped. */
	if (behavior == SPLITTER_ISOLATED || invert)
		for (size_t i = 0; i < ARRAY_SIZE(known); i++)
			if (!strcmp(known[i].pattern, pattern))
				return add_stage(s, (struct stage){.kind = known[i].kind}, e);
	return splitter_add_pcre(s, pattern, behavior, invert, e);
}

int splitter_add_prefix_space(struct splitter *s, struct err *e)
{
	return add_stage(s, (struct stage){.kind = STAGE_PREFIX_SPACE}, e);
}

int splitter_add_marks(struct splitter *s, struct err *e)
{
	return add_stage(s, (struct stage){.kind = STAGE_MARKS}, e);
}

/* Calls pcre2_match on the text before `end`, and returns its result. */
static int match_before(struct run *run, const pcre2_code *code, const char *text, size_t end,
			size_t from, uint32_t options)
{
	int n;

	options |= PCRE2_NO_UTF_CHECK;
	pcre2_set_match_limit(run->context,
			      (uint32_t)MIN(STEPS_MIN + STEPS_SHARE * (end - from), UINT32_MAX));
	n = pcre2_match(code, (PCRE2_SPTR)text, end, from, options, run->match, run->context);
	/* The JIT's stack is small and fixed, the interpreter's is on the heap. */
	if (n == PCRE2_ERROR_JIT_STACKLIMIT)
		n = pcre2_match(code, (PCRE2_SPTR)text, end, from, options | PCRE2_NO_JIT,
				run->match, run->context);
	return n;
}

/* Finds the next match from `from` on. 1: *ret_start and *ret_end are set. 0: there is none. -ENOMEM, -E2BIG.
 *
 * A pattern such as `a+b|.` looks at the rest of the text for each of its matches, which takes a time that grows with
 * the square of the text's length. So PCRE2 sees a window of the text at first. If it finds nothing there, or has to
 * look at the window's end before it knows (PCRE2_PARTIAL_HARD), it sees a larger window, which is paid from the
 * budget. A long word costs a few times its length. Only a pattern that looks far ahead again and again uses the budget
 * up. */
static int next_match(struct run *run, const pcre2_code *code, const char *text, size_t len,
		      size_t from, size_t *ret_start, size_t *ret_end)
{
	const PCRE2_SIZE *span;
	size_t window = WINDOW, end;
	int n;

	if (!run->match)
		run->match = pcre2_match_data_create(1, NULL);
	if (!run->context)
		run->context = pcre2_match_context_create(NULL);
	if (!run->match || !run->context)
		return -ENOMEM;
	for (;; window *= 4) {
		bool whole = len - from <= window;

		end = whole ? len : from + window;
		while (!whole && ((unsigned char)text[end] & 0xc0) == 0x80)
			end--;
		if (window > WINDOW && end - from > run->budget)
			return -E2BIG;
		if (window > WINDOW)
			run->budget -= end - from;
		n = match_before(run, code, text, end, from, whole ? 0 : PCRE2_PARTIAL_HARD);
		if (whole || (n != PCRE2_ERROR_PARTIAL && n != PCRE2_ERROR_NOMATCH))
			break;
	}
	if (n == PCRE2_ERROR_NOMATCH)
		return 0;
	if (n < 0)
		return n == PCRE2_ERROR_NOMEMORY ? -ENOMEM : -E2BIG;
	span = pcre2_get_ovector_pointer(run->match);
	*ret_start = span[0];
	*ret_end = span[1];
	return 1;
}

static int piece(struct run *run, size_t stage, const char *text, size_t start, size_t end,
		 bool matched)
{
	const struct stage *s = &run->splitter->stages[stage];

	if (start == end || (s->behavior == SPLITTER_REMOVED && matched != s->invert))
		return 0;
	return run_stage(run, stage + 1, text + start, end - start);
}

/* Runs a stage of PCRE2. Empty matches cut the text too, except directly behind another match, as in rust-onig. */
static int run_pcre(struct run *run, size_t stage, const char *text, size_t len)
{
	const pcre2_code *code = run->splitter->stages[stage].code;
	size_t from = 0, done = 0;
	bool any = false;
	int r = 0;

	while (!r && from <= len) {
		size_t start, end;
		int n = next_match(run, code, text, len, from, &start, &end);

		if (n < 0)
			return n;
		if (!n)
			break;
		if (start == end && any && end == done) {
			size_t step = 1;

			if (from < len)
				(void)utf8_decode(text + from, &step);
			from += step;
			continue;
		}
		r = piece(run, stage, text, done, start, false);
		if (!r)
			r = piece(run, stage, text, start, end, true);
		from = done = end;
		any = true;
	}
	return r ? r : piece(run, stage, text, done, len, false);
}

/* ---- stages ---- */

static int run_prefix_space(struct run *run, size_t stage, const char *text, size_t len)
{
	char *copy;
	int r;

	if (text[0] == ' ')
		return run_stage(run, stage + 1, text, len);
	copy = len < SIZE_MAX ? malloc(len + 1) : NULL;
	if (!copy)
		return -ENOMEM;
	copy[0] = ' ';
	memcpy(copy + 1, text, len);
	r = run_stage(run, stage + 1, copy, len + 1);
	free(copy);
	return r;
}

static bool mark_at(const char *text, size_t len, size_t at)
{
	return len - at >= 3 && !memcmp(text + at, "\xe2\x96\x81", 3);
}

static int run_marks(struct run *run, size_t stage, const char *text, size_t len)
{
	int r = 0;

	for (size_t at = 0, end; at < len && !r; at = end) {
		for (end = at; mark_at(text, len, end); end += 3)
			;
		while (end < len && !mark_at(text, len, end))
			end++;
		r = run_stage(run, stage + 1, text + at, end - at);
	}
	return r;
}

static int run_stage(struct run *run, size_t stage, const char *text, size_t len)
{
	if (stage == run->splitter->n_stages)
		return run->word(run->arg, text, len);
	switch (run->splitter->stages[stage].kind) {
	case STAGE_QWEN2: return run_qwen2(run, stage, text, len);
	case STAGE_QWEN35: return run_qwen35(run, stage, text, len);
	case STAGE_LLAMA3: return run_llama3(run, stage, text, len);
	case STAGE_PCRE: return run_pcre(run, stage, text, len);
	case STAGE_PREFIX_SPACE: return run_prefix_space(run, stage, text, len);
	case STAGE_MARKS: return run_marks(run, stage, text, len);
	}
	return 0;
}

int splitter_run(const struct splitter *s, const char *text, size_t len,
		 int (*word)(void *arg, const char *text, size_t len), void *arg)
{
	struct run run = {.splitter = s,
			  .word = word,
			  .arg = arg,
			  .budget = BUDGET_MIN +
				    MIN(len, SIZE_MAX / 2 / BUDGET_SHARE) * BUDGET_SHARE};
	int r;

	if (!len)
		return 0;
	r = run_stage(&run, 0, text, len);
	pcre2_match_data_free(run.match);
	pcre2_match_context_free(run.context);
	return r;
}
