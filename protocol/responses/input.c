#include "protocol/responses/input.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/problem.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/word.h"

/* The messages so far, and the assistant's message that may go on. */
struct reading {
	json_t *messages; /* borrowed */
	bool open;	  /* the members below are a message */
	struct buf content, thinking;
	json_t *calls; /* owned; NULL: none */
	json_t *ids;   /* borrowed: those of all calls so far, as in tools_note_call */
};

/* ---- texts ---- */

/* Appends the text of a part, {"type": one of `types`, "text": ...}; of a refusal its member has that name. */
static int part_text(const json_t *part, const char *path, const char *const *types,
		     struct buf *out, struct err *e)
{
	const json_t *type = field_get(part, "type"), *text;
	const char *name = word_of(type), *member = "text";
	char where[ERR_PARAM_MAX];
	int r;

	if (!json_is_object(part))
		return field_wrong(e, path, "", part, "an object with a type");
	field_path(where, "%s.", path);
	if (!name)
		return field_wrong(e, where, "type", type, "a string");
	if (!field_is_one_of(type, types))
		return err_param(e, PROBLEM_UNSUPPORTED, path,
				 "%s is of type \"%.40s\", and this server takes %s there", path,
				 name, types[0]);
	if (!strcmp(name, "refusal"))
		member = name;
	r = field_needed(part, where, member, &text, e);
	if (r < 0)
		return r;
	buf_append(out, json_string_value(text), json_string_length(text));
	return 0;
}

/* Makes a JSON string, new, of a member that is a string, an array of parts, or absent. */
static int member_text(const json_t *item, const char *where, const char *member,
		       const char *const *types, json_t **ret, struct err *e)
{
	json_t *v = field_get(item, member);
	char path[ERR_PARAM_MAX];
	struct buf text;
	int r = 0;

	if (json_is_string(v)) {
		*ret = json_incref(v);
		return 0;
	}
	if (v && !json_is_array(v))
		return field_wrong(e, where, member, v, "a string or an array of text parts");
	buf_init(&text, SIZE_MAX / 2);
	for (size_t i = 0; !r && i < json_array_size(v); i++) {
		field_path(path, "%s%s[%zu]", where, member, i);
		r = part_text(json_array_get(v, i), path, types, &text, e);
	}
	if (!r) {
		*ret = text.failed ? NULL : json_stringn_nocheck(buf_str(&text), text.len);
		r = *ret ? 0 : err_no_memory(e);
	}
	buf_release(&text);
	return r;
}

/* ---- the assistant's messages ---- */

/* Appends the assistant's message that is open to the messages. */
static int close_answer(struct reading *rd, struct err *e)
{
	json_t *thinking = NULL, *answer = NULL;
	bool failed = rd->content.failed || rd->thinking.failed;

	if (!rd->open)
		return 0;
	rd->open = false;
	if (!failed && rd->thinking.len)
		thinking = json_stringn_nocheck(buf_str(&rd->thinking), rd->thinking.len);
	if (!failed && (thinking || !rd->thinking.len))
		answer = json_pack("{s:s, s:s%, s:o*, s:O*}", "role", "assistant", "content",
				   buf_str(&rd->content), rd->content.len, "reasoning_content",
				   thinking, "tool_calls", rd->calls);
	else
		json_decref(thinking);
	json_decref(rd->calls);
	rd->calls = NULL;
	buf_reset(&rd->content);
	buf_reset(&rd->thinking);
	return json_array_append_new(rd->messages, answer) < 0 ? err_no_memory(e) : 0;
}

/* Closes the message that is open, and appends another one, which it takes over. */
static int append(struct reading *rd, json_t *message, struct err *e)
{
	int r = close_answer(rd, e);

	if (r < 0) {
		json_decref(message);
		return r;
	}
	return json_array_append_new(rd->messages, message) < 0 ? err_no_memory(e) : 0;
}

static int assistant_message(struct reading *rd, const json_t *text, struct err *e)
{
	int r = rd->content.len && !rd->calls ? close_answer(rd, e) : 0;

	rd->open = true;
	buf_append(&rd->content, json_string_value(text), json_string_length(text));
	return r;
}

static int reasoning(struct reading *rd, const json_t *item, const char *where, struct err *e)
{
	static const char *const content_types[] = {"reasoning_text", "text", NULL};
	static const char *const summary_types[] = {"summary_text", NULL};
	const size_t prefix = sizeof(RESPONSES_REASONING) - 1;
	const json_t *encrypted = NULL;
	json_t *content = NULL, *summary = NULL, *text;
	const char *own;
	int r = field_string(item, where, "encrypted_content", &encrypted, e);

	if (r == 0)
		r = member_text(item, where, "content", content_types, &content, e);
	if (r == 0)
		r = member_text(item, where, "summary", summary_types, &summary, e);
	text = json_string_length(content) ? json_incref(content) : NULL;
	own = json_string_value(encrypted);
	if (r == 0 && !text && own && !strncmp(own, RESPONSES_REASONING, prefix)) {
		text = json_stringn_nocheck(own + prefix, json_string_length(encrypted) - prefix);
		r = text ? 0 : err_no_memory(e);
	}
	if (r == 0 && !text)
		text = json_incref(summary);
	if (r == 0 && json_string_length(text)) {
		if (rd->content.len || rd->calls)
			r = close_answer(rd, e);
		rd->open = true;
		buf_append(&rd->thinking, json_string_value(text), json_string_length(text));
	}
	json_decref(content);
	json_decref(summary);
	json_decref(text);
	return r;
}

static int function_call(struct reading *rd, const json_t *item, const char *where, struct err *e)
{
	const json_t *id, *name, *arguments = NULL;
	json_t *call;
	int r = field_filled(item, where, "call_id", &id, e);

	if (r == 0)
		r = field_filled(item, where, "name", &name, e);
	if (r == 0)
		r = field_string(item, where, "arguments", &arguments, e);
	if (r == 0)
		r = tools_note_call(rd->ids, id, e);
	if (r < 0)
		return r;
	rd->open = true;
	if (!rd->calls)
		rd->calls = json_array();
	call = json_pack("{s:O, s:s, s:{s:O, s:O*}}", "id", id, "type", "function", "function",
			 "name", name, "arguments", arguments);
	return json_array_append_new(rd->calls, call) < 0 ? err_no_memory(e) : 0;
}

static int function_call_output(struct reading *rd, const json_t *item, const char *where,
				struct err *e)
{
	static const char *const types[] = {"input_text", "output_text", "text", NULL};
	const json_t *id;
	json_t *text = NULL;
	int r = field_filled(item, where, "call_id", &id, e);

	if (r == 0)
		r = tools_check_result(rd->ids, item, where, "call_id", e);
	if (r == 0 && !field_get(item, "output"))
		return field_wrong(e, where, "output", NULL, "a string or an array of text parts");
	if (r == 0)
		r = member_text(item, where, "output", types, &text, e);
	if (r < 0)
		return r;
	return append(rd,
		      json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content",
				text),
		      e);
}

static int message(struct reading *rd, const json_t *item, const char *where, struct err *e)
{
	static const char *const roles[] = {"user", "assistant", "system", "developer", NULL};
	static const char *const input[] = {"input_text", "text", NULL};
	static const char *const output[] = {"output_text", "refusal", "text", "input_text", NULL};
	const json_t *role = field_get(item, "role");
	bool assistant;
	json_t *text = NULL;
	int r;

	if (!field_is_one_of(role, roles))
		return field_wrong(e, where, "role", role,
				   "one of user, assistant, system and developer");
	assistant = field_is(role, "assistant");
	if (!field_get(item, "content"))
		return field_wrong(e, where, "content", NULL, "a string or an array of text parts");
	r = member_text(item, where, "content", assistant ? output : input, &text, e);
	if (r < 0)
		return r;
	if (assistant) {
		r = assistant_message(rd, text, e);
		json_decref(text);
		return r;
	}
	return append(rd, json_pack("{s:O, s:o}", "role", role, "content", text), e);
}

static int one_item(struct reading *rd, const json_t *item, const char *path, struct err *e)
{
	static const struct {
		const char *type;
		int (*read)(struct reading *rd, const json_t *item, const char *where,
			    struct err *e);
	} types[] = {{"message", message},
		     {"function_call", function_call},
		     {"function_call_output", function_call_output},
		     {"reasoning", reasoning}};
	const json_t *type = field_get(item, "type");
	const json_t *id = field_get(item, "id");
	const char *name = type ? word_of(type) : "message";
	char where[ERR_PARAM_MAX];

	if (!json_is_object(item))
		return field_wrong(e, path, "", item, "an object with a type");
	field_path(where, "%s.", path);
	if (!name)
		return field_wrong(e, where, "type", type, "a string");
	/* `after` of a list of items, a parameter of its URL, could not name such an item. */
	if (json_is_string(id) && !word_of(id))
		return field_wrong(e, where, "id", id, "a string without NUL");
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(types[i].type, name))
			return types[i].read(rd, item, where, e);
	return err_param(e, PROBLEM_UNSUPPORTED, path,
			 "%s is of type \"%.40s\", and this server takes message, function_call, "
			 "function_call_output and reasoning",
			 path, name);
}

/* Reads a list of items; `where` is its path. */
static int read_items(struct reading *rd, const json_t *items, const char *where, struct err *e)
{
	char path[ERR_PARAM_MAX];
	int r = 0;

	for (size_t i = 0; !r && i < json_array_size(items); i++) {
		field_path(path, "%s[%zu]", where, i);
		r = one_item(rd, json_array_get(items, i), path, e);
	}
	return r;
}

int responses_messages(const json_t *before, const json_t *items, json_t *messages, struct err *e)
{
	json_t *ids CLEANUP_JSON = json_object();
	struct reading rd = {.messages = messages, .ids = ids};
	int r;

	if (!ids)
		return err_no_memory(e);
	buf_init(&rd.content, SIZE_MAX / 2);
	buf_init(&rd.thinking, SIZE_MAX / 2);
	/* The assistant's items of an answer may go on in the input, so all items are read as one list. */
	r = read_items(&rd, before, "previous_response_id", e);
	if (!r)
		r = read_items(&rd, items, "input", e);
	if (!r)
		r = close_answer(&rd, e);
	json_decref(rd.calls);
	buf_release(&rd.content);
	buf_release(&rd.thinking);
	return r;
}
