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
	const char *role = json_string_value(json_object_get(item, "role"));
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
					strcmp(role, "assistant")
						? json_pack("[{s:s, s:O}]", "type", "input_text",
							    "text", content)
						: json_pack("[{s:s, s:O, s:[], s:[]}]", "type",
							    "output_text", "text", content,
							    "annotations", "logprobs"));
	return r;
}

static const char *id_at(const json_t *items, size_t i)
{
	return json_string_value(json_object_get(json_array_get(items, i), "id"));
}

/* Writes `n` items from item number `from` on, one after the other by `step`. */
static int write_page(const json_t *items, size_t from, size_t n, bool more, bool rising,
		      struct buf *out)
{
	size_t at = from;

	buf_puts(out, "{\"object\":\"list\",\"data\":[");
	for (size_t i = 0; i < n; i++) {
		char *text;

		at = rising ? from + i : from - i;
		text = json_dumps(json_array_get(items, at), JSON_COMPACT);
		if (!text)
			return -ENOMEM;
		if (i)
			buf_putc(out, ',');
		buf_puts(out, text);
		free(text);
	}
	buf_puts(out, "],\"first_id\":");
	writer_nullable(out, n ? id_at(items, from) : NULL);
	buf_puts(out, ",\"last_id\":");
	writer_nullable(out, n ? id_at(items, at) : NULL);
	buf_printf(out, ",\"has_more\":%s}", more ? "true" : "false");
	return 0;
}

int responses_list(const struct buf *items, const struct responses_page *page, struct buf *out,
		   struct err *e)
{
	size_t n, skip = 0, left, most;
	struct buf text;
	json_t *list;
	int r = 0;

	buf_init(&text, SIZE_MAX / 2);
	buf_putc(&text, '[');
	buf_append(&text, buf_str(items), items->len);
	buf_putc(&text, ']');
	list = text.failed ? NULL
			   : fields_parse(buf_str(&text), text.len, JSON_ALLOW_NUL, NULL, NULL);
	buf_release(&text);
	if (!list)
		return err_no_memory(e);
	n = json_array_size(list);
	for (size_t i = 0; !r && i < n; i++)
		r = complete(json_array_get(list, i), i);
	if (!r && page->after) {
		while (skip < n &&
		       strcmp(id_at(list, page->rising ? skip : n - 1 - skip), page->after) != 0)
			skip++;
		if (skip++ == n) {
			json_decref(list);
			return err_param(e, EINVAL, "after",
					 "no item of the response has the id \"%.60s\"",
					 page->after);
		}
	}
	left = n - skip;
	most = left < page->limit ? left : (size_t)page->limit;
	if (!r)
		r = write_page(list, page->rising ? skip : n - 1 - skip, most, most < left,
			       page->rising, out);
	json_decref(list);
	return r ? err_no_memory(e) : 0;
}

void responses_body_deleted(const char *id, struct buf *out)
{
	buf_puts(out, "{\"id\":");
	writer_string(out, id, strlen(id));
	buf_puts(out, ",\"object\":\"response\",\"deleted\":true}");
}
