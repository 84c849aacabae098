/* Stop strings, found in a text that comes byte by byte.
 *
 * Each string has a Knuth-Morris-Pratt automaton, whose state is the length of its longest beginning with which the text
 * ends. So the cost is linear in the text however often a string nearly matches. The automata are made once for a
 * request; each of its choices has states of its own, one number for each string. */
#pragma once

#include <stddef.h>

struct stops;

/* Returns *new* automata for n strings, which are copied and must not be empty. NULL: out of memory. */
struct stops *stops_new(const char *const *strings, size_t n);
void stops_free(struct stops *s);

/* Returns the number of strings, and so of states. Those are 0 at first. */
size_t stops_n(const struct stops *s);

/* Moves all states on by one byte of the text. Returns the length of the longest string that this byte completes, 0: it
 * completes none. */
size_t stops_step(const struct stops *s, size_t *states, char byte);
