/* Writes values as Python's json.dumps does, and makes values from jansson's. */
#pragma once

#include <jansson.h>

#include "protocol/jinja/value.h"

struct json_style {
	bool ensure_ascii, pretty;
	struct value indent;	/* text before a line, once for each level, if pretty */
	struct value item, key; /* text between two items (", "), and behind a key (": ") */
};

void value_write_json(struct render *r, struct buf *b, struct value v,
		      const struct json_style *style);

/* Returns j as a value. The strings in it are *borrowed* from j. */
struct value value_from_json(struct render *r, const json_t *j);
