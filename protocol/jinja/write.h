/* The texts of values. */
#pragma once

#include "protocol/jinja/value.h"

/* Append str(v), repr(v) to any buffer. */
void value_write_str(struct render *r, struct buf *b, struct value v);
void value_write_repr(struct render *r, struct buf *b, struct value v);

/* str(v), as a str that is not safe. */
struct value value_to_str(struct render *r, struct value v);

/* v itself if it is a str, safe or not; else str(v). */
struct value value_soft_str(struct render *r, struct value v);

/* markupsafe.escape: `&<>"'` as HTML entities. Safe texts stay unchanged. */
struct value value_escape(struct render *r, struct value v);
