#include "protocol/openai/open_message.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "protocol/openai/fields.h"

static const char parameter[] = "continue_final_message";

/* The mark of transformers, which some templates know. The space at its end shows whether the template removes white
 * space there. */
static const char mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";

enum { MARK_LEN = sizeof(mark) - 1, WORD_LEN = MARK_LEN - 1 };

/* Returns where the last occurrence of a word begins; NULL: there is none. */
static const char *last_of(const char *text, size_t len, const char *word, size_t n)
{
	for (const char *at = text + len; len >= n && (size_t)(at - text) >= n; at--)
		if (at[-(ptrdiff_t)n] == *word && !memcmp(at - n, word, n))
			return at - n;
	return NULL;
}

static json_t *last_message(const json_t *context)
{
	const json_t *messages = json_object_get(context, "messages");

	return json_array_get(messages, json_array_size(messages) - 1);
}

/* Returns whether a text has a <think> without </think> behind it. */
static bool ends_in_thought(const char *text, size_t len)
{
	const char *open = last_of(text, len, "<think>", 7);

	return open && !last_of(open, len - (size_t)(open - text), "</think>", 8);
}

int open_message_mark(json_t *context, bool *ret_thinks, struct err *e)
{
	json_t *message = last_message(context);
	const json_t *content = json_object_get(message, "content");
	const char *text = json_string_value(content);
	size_t len = json_string_length(content);
	struct buf marked;
	int r;

	if (json_object_get(message, "tool_calls"))
		return err_param(
			e, EINVAL, parameter,
			"%s is true, but the last message has tool calls, behind which its "
			"content cannot go on",
			parameter);
	*ret_thinks = ends_in_thought(text, len);
	buf_init(&marked, SIZE_MAX / 2);
	buf_append(&marked, text, len);
	buf_append(&marked, mark, MARK_LEN);
	r = field_set_new(message, "content",
			  marked.failed ? NULL : json_stringn_nocheck(buf_str(&marked), marked.len),
			  e);
	buf_release(&marked);
	return r < 0 ? r : field_set_new(context, parameter, json_true(), e);
}

/* Returns how many bytes of white space stand at the end of the open message's content, before the mark. 0 if there is
 * nothing else: such a template has removed it, at the content's beginning. */
static size_t spaces_of(const json_t *context)
{
	const json_t *content = json_object_get(last_message(context), "content");
	const char *text = json_string_value(content);
	size_t end = json_string_length(content) - MARK_LEN, n = 0;

	while (n < end && isspace((unsigned char)text[end - n - 1]))
		n++;
	return n < end ? n : 0;
}

int open_message_cut(const json_t *context, struct buf *text, struct err *e)
{
	const char *at;
	size_t end, spaces = 0;

	if (!json_is_true(json_object_get(context, parameter)))
		return 0;
	if (text->failed)
		return err_no_memory(e);
	at = last_of(buf_str(text), text->len, mark, WORD_LEN);
	if (!at)
		return err_param(
			e, EINVAL, parameter,
			"%s is true, but the model's template does not write the content of "
			"the last message",
			parameter);
	end = (size_t)(at - text->data);
	if (at[WORD_LEN] != ' ')
		spaces = spaces_of(context);
	while (spaces && end && isspace((unsigned char)text->data[end - 1])) {
		end--;
		spaces--;
	}
	text->len = end;
	text->data[end] = 0;
	return 0;
}
