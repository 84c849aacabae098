#include "protocol/ollama/messages.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/openai/fields.h"

int messages_no_images(const json_t *object, const char *where, struct err *e)
{
	const json_t *v = field_get(object, "images");
	char path[ERR_PARAM_MAX];

	if (!v || field_asks_nothing(v))
		return 0;
	field_path(path, "%simages", where);
	return err_param(e, PROBLEM_UNSUPPORTED, path,
			 "%s is not supported: this server reads text alone", path);
}

/* Writes a role in lower case. False: the member is none of the roles of this API. */
static bool role_of(const json_t *message, char out[16])
{
	static const char *const roles[] = {"system", "user", "assistant", "tool"};
	const json_t *role = field_get(message, "role");
	const char *name = json_string_value(role);
	const size_t len = json_string_length(role);

	if (!name || len >= 16)
		return false;
	for (size_t i = 0; i <= len; i++)
		out[i] = (char)tolower((unsigned char)name[i]);
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		if (len == strlen(roles[i]) && !strcmp(out, roles[i]))
			return true;
	return false;
}

/* Makes a chat's message of one, new. The chat's parser reads content and tool_calls, which it has in this form,
 * too. */
static int one_message(const json_t *message, size_t index, json_t *list, struct err *e)
{
	static const char *const same[] = {"content", "tool_calls"};
	json_t *out CLEANUP_JSON = json_object();
	char where[ERR_PARAM_MAX], role[16];
	int r;

	field_path(where, "messages[%zu]", index);
	if (!json_is_object(message))
		return field_wrong(e, where, "", message, "an object with role and content");
	field_path(where, "messages[%zu].", index);
	if (!role_of(message, role))
		return field_wrong(e, where, "role", field_get(message, "role"),
				   "one of system, user, assistant and tool");
	r = out ? field_set_new(out, "role", json_string(role), e) : err_no_memory(e);
	if (r == 0)
		r = messages_no_images(message, where, e);
	if (r == 0)
		r = field_copy_string(message, where, "thinking", out, "reasoning_content", e);
	if (r == 0)
		r = field_copy_string(message, where, "tool_name", out, "name", e);
	if (r == 0)
		r = field_copy_string(message, where, "tool_call_id", out, "tool_call_id", e);
	if (r == 0)
		r = fields_copy(message, out, same, ARRAY_SIZE(same), e);
	if (r == 0 && json_array_append(list, out) < 0)
		r = err_no_memory(e);
	return r;
}

/* Returns the text that an answer goes on with, of the last of a chat's messages, borrowed; NULL: this message is a
 * turn of its own. */
static json_t *prefill_of(const json_t *message)
{
	json_t *content = json_object_get(message, "content");

	if (strcmp(json_string_value(json_object_get(message, "role")), "assistant") != 0 ||
	    !json_string_length(content) || json_object_get(message, "reasoning_content") ||
	    json_array_size(json_object_get(message, "tool_calls")))
		return NULL;
	return content;
}

int messages_of_chat(const json_t *body, json_t *chat, json_t **ret_prefill, struct err *e)
{
	const json_t *messages = field_get(body, "messages");
	const size_t n = json_array_size(messages);
	json_t *list = json_array();
	int r = field_set_new(chat, "messages", list, e);

	*ret_prefill = NULL;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = one_message(json_array_get(messages, i), i, list, e);
	if (r < 0)
		return r;
	/* A chat with this message alone would have nothing that it answers to. */
	*ret_prefill = n > 1 ? json_incref(prefill_of(json_array_get(list, n - 1))) : NULL;
	if (*ret_prefill && json_array_remove(list, n - 1) < 0)
		return err_no_memory(e);
	return 0;
}

int messages_of_prompt(const json_t *body, json_t *chat, struct err *e)
{
	const json_t *system = NULL;
	json_t *list = json_array();
	int r = field_set_new(chat, "messages", list, e);

	if (r == 0)
		r = field_string(body, "", "system", &system, e);
	if (r == 0 && json_string_length(system) &&
	    json_array_append_new(list,
				  json_pack("{s:s, s:O}", "role", "system", "content", system)) < 0)
		r = err_no_memory(e);
	if (r == 0 && json_array_append_new(list, json_pack("{s:s, s:O}", "role", "user", "content",
							    field_get(body, "prompt"))) < 0)
		r = err_no_memory(e);
	return r;
}
