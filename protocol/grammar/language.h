/* Regular languages as tables: for what a grammar cannot say by rules alone, that a text is in two languages, or in one
 * and not in another.
 *
 * A language is a deterministic automaton over bytes with up to LANGUAGE_STATES_MAX states. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "protocol/grammar/grammar.h"

enum { LANGUAGE_STATES_MAX = 1 << 13 };

struct language;

/* Makes the *new* language of an expression of b. -E2BIG: it has too many states, or is not regular; -ENOMEM;
 * -ECANCELED: the builder's pace. */
int language_new(struct grammar_builder *b, uint32_t expression, struct language **ret,
		 struct err *e) MUST_CHECK;

/* Makes the *new* language of the whole numbers that are multiples of n, in decimal, with a sign before negative ones
 * and any number of digits. n: from 1 on. -E2BIG, -ENOMEM. */
int language_multiples(uint32_t n, struct language **ret, struct err *e) MUST_CHECK;

/* *l becomes the texts of *l that are (without: are not) in `other`, which is borrowed. On failure *l is as it was. */
int language_keep(struct language **l, const struct language *other, bool without,
		  struct err *e) MUST_CHECK;

/* Returns an expression of b for a language. */
uint32_t language_expression(struct grammar_builder *b, const struct language *l);

/* Returns about the work that the language took, in some 100 ns. */
uint64_t language_work(const struct language *l);
void language_free(struct language *l);
