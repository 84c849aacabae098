/* The tables of methods and of filters, each defined in a file of its own. */
#ifndef PROTOCOL_TEXT_JINJA_METHODS_H
#define PROTOCOL_TEXT_JINJA_METHODS_H

#include "protocol/text/jinja_builtin.h"

extern const struct builtin str_methods[];   /* jinja_str.c */
extern const struct builtin text_filters[];  /* jinja_filters.c */
extern const struct builtin items_filters[]; /* jinja_filters_items.c */
extern const size_t str_methods_count, text_filters_count, items_filters_count;

#endif
