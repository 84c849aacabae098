#include "protocol/anthropic/messages.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/problem.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/word.h"

#define TEXT_MAX ((size_t)1 << 30)

/* A message of the chat that is being made. */
struct making {
	json_t *list;		      /* borrowed: the chat's messages so far */
	struct buf content, thinking; /* texts of blocks */
	bool any_text, any_thinking;  /* blocks with text, with thinking, have come */
	json_t *calls;		      /* owned; NULL: none */
	json_t *ids; /* borrowed: those of all calls so far, as in tools_note_call */
};

/* Appends a message, and takes the reference to it. NULL: its allocation has failed. */
static int add_message(struct making *m, json_t *message, struct err *e)
{
	return json_array_append_new(m->list, message) < 0 ? err_no_memory(e) : 0;
}

/* Makes a message of the text so far, new; NULL: out of memory. */
static json_t *text_message(const struct making *m, const char *role)
{
	if (m->content.failed)
		return NULL;
	return json_pack("{s:s, s:s%}", "role", role, "content", buf_str(&m->content),
			 m->content.len);
}

/* Ends a stretch of a user's text. */
static int end_text(struct making *m, const char *role, struct err *e)
{
	int r = m->any_text ? add_message(m, text_message(m, role), e) : 0;

	buf_reset(&m->content);
	m->any_text = false;
	return r;
}

static int add_text(struct making *m, const json_t *block, const char *where, struct err *e)
{
	const json_t *text;
	int r = field_needed(block, where, "text", &text, e);

	if (r < 0)
		return r;
	buf_append(&m->content, json_string_value(text), json_string_length(text));
	m->any_text = true;
	return 0;
}

static int add_thinking(struct making *m, const json_t *block, const char *where, struct err *e)
{
	const json_t *text;
	int r = field_needed(block, where, "thinking", &text, e);

	if (r < 0)
		return r;
	buf_append(&m->thinking, json_string_value(text), json_string_length(text));
	m->any_thinking = true;
	return 0;
}

static int skip_block(struct making *m, const json_t *block, const char *where, struct err *e)
{
	return 0;
}

static int add_call(struct making *m, const json_t *block, const char *where, struct err *e)
{
	const json_t *id, *name;
	json_t *input = field_get(block, "input"), *call;
	int r = field_needed(block, where, "id", &id, e);

	if (r == 0)
		r = field_filled(block, where, "name", &name, e);
	if (r == 0)
		r = tools_note_call(m->ids, id, e);
	if (r < 0)
		return r;
	if (input && !json_is_object(input))
		return field_wrong(e, where, "input", input, "an object");
	if (!m->calls)
		m->calls = json_array();
	call = json_pack("{s:O, s:s, s:{s:O}}", "id", id, "type", "function", "function", "name",
			 name);
	if (!call || (input && json_object_set_nocheck(json_object_get(call, "function"),
						       "arguments", input) < 0)) {
		json_decref(call);
		return err_no_memory(e);
	}
	return json_array_append_new(m->calls, call) < 0 ? err_no_memory(e) : 0;
}

static int add_result(struct making *m, const json_t *block, const char *where, struct err *e);

/* ---- blocks ---- */

/* A type of blocks that may be in a list. */
struct kind {
	const char *type;
	int (*add)(struct making *m, const json_t *block, const char *where, struct err *e);
};

/* The types of a list, and their names for an error. */
struct kinds {
	struct kind v[4];
	const char *names;
};

static const struct kinds text_only = {{{"text", add_text}},
				       "\"text\": this server reads text alone"},
			  of_user = {{{"text", add_text}, {"tool_result", add_result}},
				     "\"text\" or \"tool_result\": this server reads text alone"},
			  of_assistant = {{{"text", add_text},
					   {"thinking", add_thinking},
					   {"redacted_thinking", skip_block},
					   {"tool_use", add_call}},
					  "\"text\", \"thinking\", \"redacted_thinking\" or "
					  "\"tool_use\""};

static int add_block(struct making *m, const json_t *block, const char *where,
		     const struct kinds *kinds, struct err *e)
{
	const json_t *type = field_get(block, "type");
	const char *name = word_of(type);
	char path[ERR_PARAM_MAX];

	if (!json_is_object(block))
		return field_wrong(e, where, "", block, "an object with a type");
	field_path(path, "%s.", where);
	for (size_t i = 0; name && i < ARRAY_SIZE(kinds->v) && kinds->v[i].type; i++)
		if (!strcmp(name, kinds->v[i].type))
			return kinds->v[i].add(m, block, path, e);
	return field_wrong(e, path, "type", type, kinds->names);
}

/* Reads a member `name` that is a text or a list of blocks of these kinds. */
static int add_content(struct making *m, const json_t *object, const char *where, const char *name,
		       const struct kinds *kinds, struct err *e)
{
	const json_t *content = field_get(object, name);
	char path[ERR_PARAM_MAX];
	int r = 0;

	if (json_is_string(content)) {
		buf_append(&m->content, json_string_value(content), json_string_length(content));
		m->any_text = true;
		return 0;
	}
	if (!json_is_array(content))
		return field_wrong(e, where, name, content, "a string or an array of blocks");
	for (size_t i = 0; r == 0 && i < json_array_size(content); i++) {
		field_path(path, "%s%s[%zu]", where, name, i);
		r = add_block(m, json_array_get(content, i), path, kinds, e);
	}
	return r;
}

/* Appends a tool's message. Its text is in m->content for a moment, where no other text is then. */
static int add_result(struct making *m, const json_t *block, const char *where, struct err *e)
{
	const json_t *id;
	json_t *message;
	int r = field_needed(block, where, "tool_use_id", &id, e);

	if (r == 0)
		r = tools_check_result(m->ids, block, where, "tool_use_id", e);
	if (r == 0)
		r = end_text(m, "user", e);
	if (r == 0 && field_get(block, "content"))
		r = add_content(m, block, where, "content", &text_only, e);
	if (r < 0)
		return r;
	message = text_message(m, "tool");
	buf_reset(&m->content);
	m->any_text = false;
	if (message && json_object_set_nocheck(message, "tool_call_id", (json_t *)id) < 0) {
		json_decref(message);
		message = NULL;
	}
	return add_message(m, message, e);
}

/* ---- messages ---- */

static int assistant_message(struct making *m, const json_t *message, const char *where,
			     struct err *e)
{
	json_t *out CLEANUP_JSON = NULL;
	int r = add_content(m, message, where, "content", &of_assistant, e);

	if (r < 0)
		return r;
	out = text_message(m, "assistant");
	if (!out || m->thinking.failed)
		return err_no_memory(e);
	if (m->any_thinking &&
	    json_object_set_new_nocheck(out, "reasoning_content",
					json_stringn_nocheck(buf_str(&m->thinking),
							     m->thinking.len)) < 0)
		return err_no_memory(e);
	if (m->calls && json_object_set_nocheck(out, "tool_calls", m->calls) < 0)
		return err_no_memory(e);
	return add_message(m, json_incref(out), e);
}

/* The last message is the assistant's: *ret gets its text. */
static int take_prefill(struct making *m, const json_t *message, const char *where, json_t **ret,
			struct err *e)
{
	int r = add_content(m, message, where, "content", &of_assistant, e);

	if (r < 0)
		return r;
	if (m->calls || m->any_thinking)
		return err_param(e, EINVAL, "messages",
				 "the last message is the assistant's, so it may have text alone, "
				 "with which the answer goes on");
	*ret = m->content.failed ? NULL
				 : json_stringn_nocheck(buf_str(&m->content), m->content.len);
	return *ret ? 0 : err_no_memory(e);
}

/* Appends the chat messages that one message becomes. ids: as in struct making. ret_prefill NULL: it is not the last
 * message. */
static int one_message(json_t *list, json_t *ids, const json_t *message, size_t index,
		       json_t **ret_prefill, struct err *e)
{
	const json_t *role = field_get(message, "role");
	const char *name = word_of(role);
	struct making m = {.list = list, .ids = ids};
	char where[ERR_PARAM_MAX];
	int r;

	field_path(where, "messages[%zu]", index);
	if (!json_is_object(message))
		return field_wrong(e, where, "", message, "an object with role and content");
	field_path(where, "messages[%zu].", index);
	if (!name || (strcmp(name, "user") && strcmp(name, "assistant") && strcmp(name, "system")))
		return field_wrong(e, where, "role", role, "\"user\", \"assistant\" or \"system\"");
	buf_init(&m.content, TEXT_MAX);
	buf_init(&m.thinking, TEXT_MAX);
	if (!strcmp(name, "assistant")) {
		r = ret_prefill ? take_prefill(&m, message, where, ret_prefill, e)
				: assistant_message(&m, message, where, e);
	} else {
		r = add_content(&m, message, where, "content",
				strcmp(name, "user") ? &text_only : &of_user, e);
		if (r == 0)
			r = end_text(&m, name, e);
	}
	buf_release(&m.content);
	buf_release(&m.thinking);
	json_decref(m.calls);
	return r;
}

/* Appends the system prompt: a message for each of its texts. */
static int add_system(const json_t *body, json_t *list, struct err *e)
{
	const json_t *system = field_get(body, "system");
	struct making m = {.list = list};
	char path[ERR_PARAM_MAX];
	int r = 0;

	if (!system)
		return 0;
	if (!json_is_string(system) && !json_is_array(system))
		return field_wrong(e, "", "system", system, "a string or an array of text blocks");
	buf_init(&m.content, TEXT_MAX);
	if (json_is_string(system))
		r = add_content(&m, body, "", "system", &text_only, e);
	for (size_t i = 0; r == 0 && i < json_array_size(system); i++) {
		field_path(path, "system[%zu]", i);
		r = add_block(&m, json_array_get(system, i), path, &text_only, e);
		if (r == 0)
			r = end_text(&m, "system", e);
	}
	if (r == 0)
		r = end_text(&m, "system", e);
	buf_release(&m.content);
	return r;
}

int messages_convert(const json_t *body, json_t *chat, json_t **ret_prefill, struct err *e)
{
	const json_t *messages = field_get(body, "messages");
	size_t n = json_array_size(messages);
	json_t *list, *ids CLEANUP_JSON = NULL;
	int r;

	*ret_prefill = NULL;
	if (!json_is_array(messages))
		return field_wrong(e, "", "messages", messages, "an array of at least one message");
	if (!n)
		return err_param(e, EINVAL, "messages",
				 "messages is empty, but must have at least one message");
	list = json_array();
	ids = json_object();
	if (json_object_set_new_nocheck(chat, "messages", list) < 0 || !ids)
		return err_no_memory(e);
	r = add_system(body, list, e);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = one_message(list, ids, json_array_get(messages, i), i,
				i + 1 == n ? ret_prefill : NULL, e);
	if (r == 0 && !json_array_size(list))
		r = err_param(e, EINVAL, "messages",
			      *ret_prefill ? "there is no content before the last message, the "
					     "assistant's, with which the answer goes on"
					   : "the messages have no content at all");
	if (r < 0) {
		json_decref(*ret_prefill);
		*ret_prefill = NULL;
	}
	return r;
}
