#include "protocol/openai/tokenizer_info.h"

#include <errno.h>

#include "protocol/openai/fields.h"

/* Members with the paths of files beside the config. */
static const char *const paths[] = {"vocab_file", "merges_file", "tokenizer_file"};

static int append(const char *text, size_t len, void *out)
{
	buf_append(out, text, len);
	return 0;
}

static int parse(const char *config, size_t len, json_t **ret, struct err *e)
{
	json_error_t why = {.text = ""};

	*ret = config ? fields_parse(config, len, 0, NULL, &why) : json_object();
	if (!*ret)
		return why.text[0] ? err_set(e, EINVAL, "%s", why.text) : err_no_memory(e);
	return json_is_object(*ret) ? 0 : err_set(e, EINVAL, "not a JSON object");
}

int openai_body_tokenizer_info(const char *config, size_t config_len, const char *template,
			       size_t template_len, struct buf *out, struct err *e)
{
	json_t *info CLEANUP_JSON = NULL, *text = NULL;
	int r = parse(config, config_len, &info, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		json_object_del(info, paths[i]);
	json_object_del(info, "chat_template");
	if (!json_is_string(json_object_get(info, "tokenizer_class")) &&
	    json_object_set_new_nocheck(info, "tokenizer_class",
					json_string("PreTrainedTokenizerFast")) < 0)
		return err_no_memory(e);
	if (template) {
		text = json_stringn(template, template_len);
		if (!text)
			return err_set(e, EINVAL, "the chat template is not UTF-8");
		if (json_object_set_new_nocheck(info, "chat_template", text) < 0)
			return err_no_memory(e);
	}
	return json_dump_callback(info, append, out, JSON_COMPACT) < 0 || out->failed
		       ? err_no_memory(e)
		       : 0;
}

/* A token is its text, or an object that has it. */
static json_t *token_text(json_t *token)
{
	if (json_is_object(token))
		token = json_object_get(token, "content");
	return json_is_string(token) ? token : NULL;
}

static int put_token(json_t *arguments, const char *name, json_t *token, struct err *e)
{
	json_t *text = token_text(token);

	if (!text || json_object_get(arguments, name))
		return 0;
	return json_object_set_nocheck(arguments, name, text) < 0 ? err_no_memory(e) : 0;
}

int openai_template_tokens(const char *config, size_t config_len, json_t *arguments, struct err *e)
{
	static const char *const tokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
					     "pad_token", "cls_token", "mask_token"};
	json_t *info CLEANUP_JSON = NULL, *token;
	const char *name;
	int r = parse(config, config_len, &info, e);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(tokens); i++)
		r = put_token(arguments, tokens[i], json_object_get(info, tokens[i]), e);
	if (r < 0)
		return r;
	json_object_foreach(json_object_get(info, "extra_special_tokens"), name, token)
	{
		r = put_token(arguments, name, token, e);
		if (r < 0)
			return r;
	}
	return 0;
}
