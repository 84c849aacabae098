/* Grammars: the texts that an answer may have, as rules over bytes.
 *
 * A front end (constraint.h) builds expressions with a builder. An expression is a literal, a class of code points, a
 * call of a rule, or a sequence, a choice or a repetition of expressions. grammar_build turns them into a graph of
 * nodes, which the automaton (automaton.h) runs:
 *
 *     BYTES   reads one byte; each edge has a range of bytes and the node behind it
 *     FORK    reads nothing and goes on at each of its edges
 *     CALL    runs a rule, then goes on
 *     RETURN  ends a rule
 *     ACCEPT  ends the text
 *
 * A class becomes edges over the bytes of UTF-8, so that all text that a class accepts is valid UTF-8.
 *
 * Three kinds of grammars are refused, each with one sentence. Of a left-recursive rule (a: a "x" | "y") the automaton
 * could not bound the calls that it makes between two bytes. A grammar without any finite text would never let an
 * answer end; rules and branches of this kind are removed from a grammar that has finite texts. A grammar beyond the
 * limits below is too large. Work and memory are linear in the nodes, whatever the grammar is.
 *
 * A grammar does not change after it was built: any thread may use it at the same time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"
#include "base/pace.h"

enum {
	GRAMMAR_RULES_MAX = 1 << 16,
	GRAMMAR_EXPRESSIONS_MAX = 1 << 20,
	GRAMMAR_NODES_MAX = 1 << 18, /* repetitions are written out, and each copy counts */
	GRAMMAR_EDGES_MAX = 1 << 20,
	GRAMMAR_DEPTH_MAX = 400, /* expressions inside expressions */
	GRAMMAR_REPEAT_MAX = 1 << 16,
};

#define GRAMMAR_NO_LIMIT UINT32_MAX /* as the maximum of a repetition */

struct grammar;
struct grammar_builder;

/* Code points from lo to hi. */
struct grammar_range {
	uint32_t lo, hi;
};

/* NULL: out of memory. */
struct grammar_builder *grammar_builder_new(void) MUST_CHECK;
void grammar_builder_free(struct grammar_builder *b);

/* Lets a builder ask again and again whether to go on; it fails with -ECANCELED if not. pace: borrowed, or NULL. */
void grammar_set_pace(struct grammar_builder *b, const struct pace *pace);

/* Asks now. False: the builder has failed. */
bool grammar_goes_on(struct grammar_builder *b);

/* The functions below return the number of an expression of this builder. The same expression may be used several
 * times; each use is a copy in the graph. If memory or a limit ends, they return 0, the expression of the empty text,
 * and grammar_build fails with the reason, so callers need not check. */

/* The text, byte for byte. */
uint32_t grammar_literal(struct grammar_builder *b, const void *text, size_t len);
uint32_t grammar_text(struct grammar_builder *b, const char *text);

/* One code point of any of the ranges, in UTF-8. Surrogates and numbers above 0x10ffff are left out. No code point at
 * all: the expression has no text. */
uint32_t grammar_class(struct grammar_builder *b, const struct grammar_range *ranges, size_t n);

/* One byte from lo to hi. */
uint32_t grammar_byte(struct grammar_builder *b, uint8_t lo, uint8_t hi);

/* All of the n expressions in this order; n = 0: the empty text. */
uint32_t grammar_sequence(struct grammar_builder *b, const uint32_t *parts, size_t n);

/* One of the n expressions; n = 0: no text. */
uint32_t grammar_choice(struct grammar_builder *b, const uint32_t *parts, size_t n);

#define grammar_seq(b, ...)                                    \
	grammar_sequence((b), (const uint32_t[]){__VA_ARGS__}, \
			 sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define grammar_alt(b, ...)                                  \
	grammar_choice((b), (const uint32_t[]){__VA_ARGS__}, \
		       sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* `part` from min to max times; GRAMMAR_NO_LIMIT: any number of times from min on. */
uint32_t grammar_repeat(struct grammar_builder *b, uint32_t part, uint32_t min, uint32_t max);

/* To be called if the caller was out of memory while it built: grammar_build will fail. */
void grammar_no_memory(struct grammar_builder *b);

/* Makes a rule, which grammar_define gives its expression later, and returns its number. name: for errors, copied. */
uint32_t grammar_rule(struct grammar_builder *b, const char *name);
void grammar_define(struct grammar_builder *b, uint32_t rule, uint32_t expression);
bool grammar_defined(const struct grammar_builder *b, uint32_t rule);

/* Returns whether memory or a limit has ended, so that grammar_build will fail. Numbers mean nothing then. */
bool grammar_failed(const struct grammar_builder *b);

/* The text of a rule. */
uint32_t grammar_call(struct grammar_builder *b, uint32_t rule);

/* Builds a *new* grammar of the texts of the rule `root`. -EINVAL, with a sentence: a rule is left-recursive or not
 * defined, or there is no finite text. -E2BIG: a limit. -ENOMEM. */
int grammar_build(struct grammar_builder *b, uint32_t root, struct grammar **ret,
		  struct err *e) MUST_CHECK;

/* Returns whether grammar_build returned r and set e because there is no finite text. */
bool grammar_is_empty(int r, const struct err *e);

/* A grammar has one reference when it is built. grammar_share adds one and returns g; grammar_free takes one away, and
 * frees the grammar with the last. All that have references belong to one thread at a time. */
struct grammar *grammar_share(struct grammar *g);
void grammar_free(struct grammar *g);

/* Returns whether two grammars are written alike, so that their automata have the same states. Then their hashes are
 * equal. */
bool grammar_equal(const struct grammar *a, const struct grammar *b);
uint64_t grammar_hash(const struct grammar *g);

/* Returns the number of nodes: a measure of size. */
uint32_t grammar_size(const struct grammar *g);

/* Returns the bytes of memory that it takes. */
size_t grammar_bytes(const struct grammar *g);
