/* The texts of values: str(), repr() and json.dumps(). They append to any buffer. */
#pragma once

#include "protocol/jinja/value.h"

void value_write_str(struct render *r, struct buf *b, struct value v);
void value_write_repr(struct render *r, struct buf *b, struct value v);

/* str(v): a plain str. */
struct value value_to_str(struct render *r, struct value v);

/* Appends a str unchanged, safe or not; of other values str(v). */
struct value value_soft_str(struct render *r, struct value v);

/* markupsafe.escape: `&<>"'` as HTML entities. Safe texts stay unchanged. */
struct value value_escape(struct render *r, struct value v);
