/* Stop strings, found in a text that comes byte by byte.
 *
 * Each string has a Knuth-Morris-Pratt automaton. Its state is the length of the string's longest beginning that the
 * text ends with. So the cost is linear in the text however often a string nearly matches. The automata are made once
 * for a request. Each choice of the request has states of its own, one number for each string. */
#pragma once

#include <stddef.h>

struct stops;

/* Returns *new* automata for n strings, which are copied and must not be empty. NULL: out of memory. */
struct stops *stops_new(const char *const *strings, size_t n);
void stops_free(struct stops *s);

/* Returns the number of strings, which is also the number of states. All states are 0 before the first byte. */
size_t stops_n(const struct stops *s);

/* Moves all states on by one byte of the text. Returns the length of the longest string that this byte completes, 0: it
 * completes none. */
size_t stops_step(const struct stops *s, size_t *states, char byte);

/* Returns the string whose length stops_step has just returned; NULL: it has returned 0. Valid until stops_free. */
const char *stops_found(const struct stops *s, const size_t *states);
