/* Parses expressions. */
#pragma once

#include "protocol/jinja/parser.h"

struct node *parse_expression(struct parser *p);

/* Parses one expression, or a tuple without parentheses: "a, b" or "a,". */
struct node *parse_tuple(struct parser *p);

/* Parses like parse_tuple, but without the inline "a if b else c": for the condition of an if, and the iterable of a
 * for. Stops before the name `end` (NULL: there is no such name). */
struct node *parse_condition(struct parser *p, const char *end);

/* Parses the target of an assignment: one name, or several with commas between them; with `namespaces` also
 * namespace.attribute. Stops before the name `end` (NULL: there is no such name). */
struct node *parse_target(struct parser *p, const char *end, bool namespaces);

/* Parses one name as a target. */
struct node *parse_target_name(struct parser *p, enum name_use use);

/* Parses "| name(...) | ...": any number of filters, also none. Returns them applied to n. */
struct node *parse_filters(struct parser *p, struct node *n);

/* Parses one filter, "name" or "name(...)". Returns it applied to n. */
struct node *parse_filter(struct parser *p, struct node *n);
