/* The texts of values. */
#pragma once

#include "protocol/jinja/value.h"

/* Append Python's str(v), or Python's repr(v), to a buffer. str(v) of an undefined value is empty. */
void value_write_str(struct render *r, struct buf *b, struct value v);
void value_write_repr(struct render *r, struct buf *b, struct value v);

/* Returns str(v), as a str that is not safe. */
struct value value_to_str(struct render *r, struct value v);

/* Returns v itself if it is a str, safe or not; else str(v). */
struct value value_soft_str(struct render *r, struct value v);

/* Returns markupsafe.escape(v): a safe str, in which `&<>"'` are HTML entities. A text that is safe already stays
 * unchanged. */
struct value value_escape(struct render *r, struct value v);
