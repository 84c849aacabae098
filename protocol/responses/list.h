/* A page of the items that a response was made of: the answer of GET /v1/responses/{id}/input_items. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/pace.h"
#include "protocol/responses/store.h"

enum { RESPONSES_PAGE = 20, RESPONSES_PAGE_MAX = 100 };

struct responses_page {
	uint64_t limit;	   /* the most items of the page, 1 to RESPONSES_PAGE_MAX */
	const char *after; /* the id of the item before the page; NULL: the page is the first one */
	bool rising;	   /* the oldest item comes first; else the newest */
};

/* Appends a page of the items in texts [n], which are as in struct response_record and not empty. Each item gets the
 * form that OpenAI gives it: a type, content as parts, and an id, "item_N" with its place in the conversation if it has
 * none. The texts are read once; of the items, those of the page alone are parsed and copied, one after the other.
 * -EINVAL: no item has the id `after`; -ECANCELED: pace_gives_up (pace NULL: never); -ENOMEM. */
int responses_list(const struct response_text *texts, size_t n, const struct responses_page *page,
		   const struct pace *pace, struct buf *out, struct err *e) MUST_CHECK;

/* Appends the answer of DELETE /v1/responses/{id}. */
void responses_body_deleted(const char *id, struct buf *out);
