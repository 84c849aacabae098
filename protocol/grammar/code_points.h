/* Sets of code points, and the classes of regular expressions.
 *
 * Dialects differ in their classes: \d is [0-9] in ECMAScript and all decimal digits in Python. So each class has two
 * sets: `least` is in the class in every dialect, `most` also has what only some dialects count. An expression accepts
 * least; a complement is that of most. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "protocol/grammar/grammar.h"

struct code_points {
	struct grammar_range *v; /* owned; sorted and apart after code_points_settle */
	size_t n, cap;
	bool failed; /* out of memory */
};

void code_points_release(struct code_points *s);
void code_points_add(struct code_points *s, uint32_t lo, uint32_t hi);
void code_points_settle(struct code_points *s);

/* A settled set becomes its complement. */
void code_points_invert(struct code_points *s);

/* Adds the code points of `from`, or if `inverted` all others, and releases `from`. */
void code_points_move(struct code_points *s, struct code_points *from, bool inverted);

/* Returns whether a settled set has c. */
bool code_points_have(const struct code_points *s, uint32_t c);

/* Adds the members of \d, \D, \s, \S, \w or \W, by its letter. */
void code_points_add_class(struct code_points *s, char letter, bool most);

/* Adds the code points of a Unicode category with one letter (L) or two (Lu). False: there is no such category. */
bool code_points_add_category(struct code_points *s, const char *name, size_t len);
