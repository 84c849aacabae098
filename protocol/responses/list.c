#include "protocol/responses/list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/openai/fields.h"
#include "protocol/openai/writer.h"

/* Gives an item a type, parts and an id. */
static int complete(json_t *item, size_t index)
{
	const json_t *role = json_object_get(item, "role");
	json_t *content = json_object_get(item, "content");
	char id[32];
	int r = 0;

	snprintf(id, sizeof(id), "item_%zu", index);
	if (!json_is_string(json_object_get(item, "id")))
		r = json_object_set_new(item, "id", json_string(id));
	if (!r && !field_get(item, "type"))
		r = json_object_set_new(item, "type", json_string("message"));
	if (!r && role && !field_get(item, "status"))
		r = json_object_set_new(item, "status", json_string("completed"));
	if (!r && role && json_is_string(content))
		r = json_object_set_new(item, "content",
					field_is(role, "assistant")
						? json_pack("[{s:s, s:O, s:[], s:[]}]", "type",
							    "output_text", "text", content,
							    "annotations", "logprobs")
						: json_pack("[{s:s, s:O}]", "type", "input_text",
							    "text", content));
	return r;
}

/* ---- the items, one after the other ---- */

enum { PIECE = 64 << 10 }; /* bytes between two calls of pace_gives_up */

/* An item, in the text that has it. */
struct item {
	const char *text,
		*id; /* [len]; [id_len] its id as JSON without quotes, NULL: it has none */
	size_t len, id_len;
	size_t place; /* in the conversation */
};

struct reader {
	const struct response_text *texts; /* [n] */
	size_t n, at;			   /* at: in texts[0] */
	size_t place;			   /* of the next item */
	size_t unpaced; /* bytes that were read since the last call of pace_gives_up */
	const struct pace *pace;
};

/* Returns where the string ends that begins behind text[at], a quote: the place of the other quote, or len. */
static size_t string_end(const char *text, size_t len, size_t at)
{
	for (at++; at < len && text[at] != '"'; at++)
		at += text[at] == '\\';
	return MIN(at, len);
}

/* Reads the item that begins at text[at]. Its text ends at a comma outside of it, or with `text`. The id is the string
 * behind the key "id" in the outermost object, which compact JSON has without white space. */
static void read_item(const char *text, size_t len, size_t at, struct item *ret)
{
	size_t depth = 0, begin = at, end;

	*ret = (struct item){.text = text + at};
	for (; at < len && (depth || text[at] != ','); at++) {
		if (text[at] == '{' || text[at] == '[')
			depth++;
		else if (text[at] == '}' || text[at] == ']')
			depth--;
		if (text[at] != '"')
			continue;
		if (depth == 1 && len - at > 6 && !memcmp(text + at, "\"id\":\"", 6)) {
			at += 5;
			end = string_end(text, len, at);
			ret->id = text + at + 1;
			ret->id_len = end - at - 1;
			at = end;
		} else {
			at = string_end(text, len, at);
		}
	}
	ret->len = MIN(at, len) - begin;
}

/* Returns 1 and the next item; 0: there is none; -ECANCELED. */
static int next_item(struct reader *r, struct item *ret)
{
	if (!r->n)
		return 0;
	read_item(r->texts->text, r->texts->len, r->at, ret);
	ret->place = r->place++;
	r->at += ret->len + 1;
	if (r->at >= r->texts->len) {
		r->texts++;
		r->n--;
		r->at = 0;
	}
	r->unpaced += ret->len;
	if (r->unpaced < PIECE)
		return 1;
	r->unpaced = 0;
	return pace_gives_up(r->pace) ? -ECANCELED : 1;
}

/* Returns whether an item has this id, its own or the one that it gets: 1 or 0; -ENOMEM. */
static int has_id(const struct item *item, const char *id)
{
	const size_t len = strlen(id);
	char given[32];
	json_t *own;
	bool same;

	if (!item->id) {
		snprintf(given, sizeof(given), "item_%zu", item->place);
		return !strcmp(given, id);
	}
	if (!memchr(item->id, '\\', item->id_len))
		return item->id_len == len && !memcmp(item->id, id, len);
	own = json_loadb(item->id - 1, item->id_len + 2, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (!own)
		return -ENOMEM;
	same = field_is(own, id);
	json_decref(own);
	return same;
}

/* ---- the page ---- */

/* Finds the page's first item in the order of the conversation, and the item behind its last one, as places. -EINVAL:
 * no item has the id `after`; of several the first in the page's order counts. */
static int find_page(struct reader r, const struct responses_page *page, size_t *ret_from,
		     size_t *ret_to)
{
	bool found = !page->after;
	struct item item;
	size_t at = 0; /* rising: where the page begins; else where it ends */
	int next = 0, same;

	while (!(found && page->rising) && (next = next_item(&r, &item)) > 0) {
		same = page->after ? has_id(&item, page->after) : 0;
		if (same < 0)
			return same;
		if (same)
			at = item.place + page->rising;
		found |= same;
	}
	if (next < 0 || !found)
		return next < 0 ? next : -EINVAL;
	if (!page->rising && !page->after)
		at = r.place;
	*ret_from = page->rising ? at : at - MIN(at, (size_t)page->limit);
	*ret_to = page->rising ? at + page->limit : at;
	return 0;
}

/* Reads the items from place `from` to before place `to` into `ret` [*ret_n], as far as there are any. *ret_more: there
 * is an item at place `to`, or beyond. */
static int read_page(struct reader r, size_t from, size_t to, struct item *ret, size_t *ret_n,
		     bool *ret_more)
{
	struct item item;
	int next;

	*ret_n = 0;
	while (r.place < to && (next = next_item(&r, &item)) != 0) {
		if (next < 0)
			return next;
		if (item.place >= from)
			ret[(*ret_n)++] = item;
	}
	*ret_more = r.n;
	return 0;
}

/* Appends JSON. Its length comes first, because json_dumps loses text when its buffer cannot grow. */
static int dump(const json_t *v, struct buf *out)
{
	size_t len = json_dumpb(v, NULL, 0, JSON_COMPACT);

	if (!len || buf_reserve(out, len) < 0 ||
	    json_dumpb(v, out->data + out->len, len, JSON_COMPACT) != len)
		return -ENOMEM;
	out->len += len;
	out->data[out->len] = 0;
	return 0;
}

/* Writes an item, and its id as JSON into *id. */
static int write_item(const struct item *item, const struct pace *pace, struct buf *out,
		      struct buf *id)
{
	json_error_t error;
	json_t *v = fields_parse(item->text, item->len, JSON_ALLOW_NUL, pace, &error);
	const json_t *given;
	int r = -ENOMEM;

	if (v && complete(v, item->place) == 0) {
		r = dump(v, out);
		buf_reset(id);
		given = json_object_get(v, "id");
		writer_string(id, json_string_value(given), json_string_length(given));
		r = id->failed ? -ENOMEM : r;
	} else if (pace_gives_up(pace)) {
		r = -ECANCELED;
	}
	json_decref(v);
	return r;
}

static int write_page(const struct item *items, size_t n, bool rising, bool more,
		      const struct pace *pace, struct buf *out)
{
	struct buf first, last;
	int r = 0;

	buf_init(&first, SIZE_MAX / 2);
	buf_init(&last, SIZE_MAX / 2);
	buf_puts(out, "{\"object\":\"list\",\"data\":[");
	for (size_t i = 0; !r && i < n; i++) {
		if (i)
			buf_putc(out, ',');
		r = write_item(&items[rising ? i : n - 1 - i], pace, out, i ? &last : &first);
	}
	buf_printf(out, "],\"first_id\":%s,\"last_id\":%s,\"has_more\":%s}",
		   n ? buf_str(&first) : "null",
		   n > 1 ? buf_str(&last)
		   : n	 ? buf_str(&first)
			 : "null",
		   more ? "true" : "false");
	buf_release(&first);
	buf_release(&last);
	return r;
}

int responses_list(const struct response_text *texts, size_t n, const struct responses_page *page,
		   const struct pace *pace, struct buf *out, struct err *e)
{
	const struct reader reader = {.texts = texts, .n = n, .pace = pace};
	struct item items[RESPONSES_PAGE_MAX];
	size_t from, to, n_items = 0;
	bool more = false;
	int r = find_page(reader, page, &from, &to);

	if (r == -EINVAL)
		return err_param(e, EINVAL, "after", "no item of the response has the id \"%.60s\"",
				 page->after);
	if (r == 0)
		r = read_page(reader, from, to, items, &n_items, &more);
	if (r == 0)
		r = write_page(items, n_items, page->rising, page->rising ? more : from > 0, pace,
			       out);
	if (r == -ECANCELED)
		return err_set(e, ECANCELED, "the items are not read");
	return r < 0 ? err_no_memory(e) : 0;
}

void responses_body_deleted(const char *id, struct buf *out)
{
	buf_puts(out, "{\"id\":");
	writer_string(out, id, strlen(id));
	buf_puts(out, ",\"object\":\"response\",\"deleted\":true}");
}
