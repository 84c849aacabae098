/* The splitter, in tokenizer.json the pre-tokenizer: cuts text into words. Byte pair encoding (bpe.h) encodes each
 * word by itself.
 *
 * A splitter is a list of stages. The first gets the whole text, each further one the pieces that the stage before it
 * made. A stage handles a piece as if it were the whole text, like Hugging Face's Sequence: the stage cuts the piece,
 * or puts a space in front of a piece that does not begin with one. The pieces of the last stage are the words.
 *
 * Three patterns are recognized by their exact text and have code of their own, which is faster. PCRE2 runs all other
 * patterns (and these three if their matches are removed, or if splitter_add_pcre added them). PCRE2 has the character
 * classes of its own version of Unicode, so it may cut letters of a newer version otherwise than Hugging Face.
 *
 * A splitter does not change after its stages were added: any thread may run it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct splitter;

/* Isolated: matches and the text between them all become pieces. Removed: only the text between matches does. */
enum splitter_behavior { SPLITTER_ISOLATED, SPLITTER_REMOVED };

/* Sets *ret to the behaviour with this name in Hugging Face. -ENOTSUP: it is neither of the two. */
int splitter_behavior_parse(const char *name, enum splitter_behavior *ret) MUST_CHECK;

/* The patterns of models. The first three have code of their own. */
#define SPLITTER_QWEN2                                                       \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" \
	" ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SPLITTER_QWEN35                                                              \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|" \
	" ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SPLITTER_LLAMA3                                                           \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" \
	" ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SPLITTER_GPT2 \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Returns a *new* splitter. It has no stages: the whole text is one word. NULL: out of memory. */
struct splitter *splitter_new(void);
void splitter_free(struct splitter *s);

/* Adds a stage that cuts by a regular expression. With `invert`, matches and the text between them change roles.
 * -EINVAL: the text is not a pattern, or too long for one. -ENOTSUP: Hugging Face's engine, Oniguruma, might read it
 * otherwise than PCRE2; or there are too many stages. -ENOMEM. */
int splitter_add_pattern(struct splitter *s, const char *pattern, enum splitter_behavior behavior,
			 bool invert, struct err *e) MUST_CHECK;

/* Like splitter_add_pattern, but PCRE2 always runs the pattern, also one that has code of its own: tests compare that
 * code with PCRE2. */
int splitter_add_pcre(struct splitter *s, const char *pattern, enum splitter_behavior behavior,
		      bool invert, struct err *e) MUST_CHECK;

/* Adds a stage that cuts at a fixed text; otherwise like splitter_add_pattern. */
int splitter_add_literal(struct splitter *s, const char *text, enum splitter_behavior behavior,
			 bool invert, struct err *e) MUST_CHECK;

/* Adds a stage that puts a space in front of pieces that do not begin with one. -ENOTSUP: too many stages. */
int splitter_add_prefix_space(struct splitter *s, struct err *e) MUST_CHECK;

/* Adds a stage that cuts before each run of U+2581. -ENOTSUP: too many stages. */
int splitter_add_marks(struct splitter *s, struct err *e) MUST_CHECK;

/* Calls word(arg, text, len) for each word in order; len > 0, the text is borrowed for the call. `text` must be valid
 * UTF-8. A result of `word` that is not 0 ends the run and is returned. -ENOMEM; -E2BIG: a pattern that PCRE2 runs takes
 * too long for this text. */
int splitter_run(const struct splitter *s, const char *text, size_t len,
		 int (*word)(void *arg, const char *text, size_t len), void *arg) MUST_CHECK;
