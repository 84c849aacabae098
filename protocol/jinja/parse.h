/* Reading statements: tags and the text between them. */
#ifndef PROTOCOL_JINJA_PARSE_H
#define PROTOCOL_JINJA_PARSE_H

#include "protocol/jinja/lex.h"

/* Builds the template's body from tokens. */
void parse(struct reader *rd, const struct token *tokens);

#endif
