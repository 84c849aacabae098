/* Upper and lower case as Python has them: "ß".upper() == "SS", a sigma at the end of a word. */
#ifndef PROTOCOL_JINJA_CASING_H
#define PROTOCOL_JINJA_CASING_H

#include "base/buf.h"

enum casing { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE };

/* Appends s in another case: str.upper(), lower(), title(), capitalize(). */
void text_recase(struct buf *b, const char *s, size_t n, enum casing to);

#endif
