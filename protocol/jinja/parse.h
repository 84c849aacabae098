/* Parses statements: tags and the text between them. */
#pragma once

#include "protocol/jinja/lex.h"

/* Builds the template's body from tokens. */
void parse(struct reader *rd, const struct token *tokens);
