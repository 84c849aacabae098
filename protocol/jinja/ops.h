/* Python's operators on values. */
#pragma once

#include "protocol/jinja/value.h"

enum binary_op { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD };

struct value value_binary(struct render *r, enum binary_op op, struct value a, struct value b);

/* Returns -v, or +v without `minus`. */
struct value value_negate(struct render *r, struct value v, bool minus);
