/*
 * /tokenize and /detokenize, with vLLM's members.
 *
 *     {"prompt": TEXT, "add_special_tokens": BOOL}    -> {"count", "max_model_len", "tokens"}
 *     {"messages": [...], ...}                         -> the same, through the chat template
 *     {..., "return_token_strs": true}                 -> and "token_strs"
 *     {"tokens": [...]}                                -> {"prompt": TEXT}
 *
 * These tokenizers add nothing by themselves, so add_special_tokens says whether the text of added
 * tokens ("<|im_end|>") in the prompt becomes those tokens (the default) or plain text.
 */
#include <errno.h>

#include "daemon/text.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/writer.h"

static void write_tokens(struct server *s, const struct ids *ids, bool strings, struct buf *out)
{
	buf_printf(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":", ids->len,
		   s->info.max_model_len);
	writer_ids(out, ids->v, ids->len);
	buf_puts(out, ",\"token_strs\":");
	if (strings) {
		for (size_t i = 0; i < ids->len; i++) {
			size_t len;
			const char *bytes = tokenizer_bytes(s->tokenizer, ids->v[i], &len);

			buf_putc(out, i ? ',' : '[');
			writer_string(out, bytes ? bytes : "", len);
		}
		buf_puts(out, ids->len ? "]" : "[]");
	} else {
		buf_puts(out, "null");
	}
	buf_puts(out, "}");
}

static int encode_messages(struct server *s, const struct buf *body, struct arena *arena,
			   struct ids *ids, struct err *e)
{
	struct openai_request ask;
	int r = openai_parse_chat(buf_str(body), body->len, &s->limits, arena, &ask, e);

	if (r < 0)
		return r;
	r = prepare_chat_prompt(s, &ask, ids, e);
	openai_request_release(&ask);
	return r;
}

static int encode_text(struct server *s, const json_t *root, struct ids *ids, struct err *e)
{
	const json_t *text = NULL;
	const char *name = field_get(root, "prompt") ? "prompt" : "content";
	bool added = true;
	int r = field_string(root, "", name, &text, e);

	if (!r)
		r = field_bool(root, "", "add_special_tokens", &added, e);
	if (r < 0)
		return r;
	if (!text)
		return err_param(e, EINVAL, "prompt", "give either prompt or messages");
	if (tokenizer_encode(s->tokenizer, json_string_value(text), json_string_length(text), added,
			     ids) < 0)
		return field_no_memory(e);
	return 0;
}

int tokenize_answer(struct server *s, const struct buf *body, struct arena *arena, struct buf *out,
		    struct err *e)
{
	struct ids ids = {0};
	bool strings = false;
	json_t *root;
	int r = fields_load(buf_str(body), body->len, &root, e);

	if (r < 0)
		return r;
	r = field_bool(root, "", "return_token_strs", &strings, e);
	if (!r && field_get(root, "messages"))
		r = encode_messages(s, body, arena, &ids, e);
	else if (!r)
		r = encode_text(s, root, &ids, e);
	if (!r)
		write_tokens(s, &ids, strings, out);
	ids_release(&ids);
	json_decref(root);
	return r;
}

int detokenize_answer(struct server *s, const struct buf *body, struct arena *arena,
		      struct buf *out, struct err *e)
{
	const int32_t *ids = NULL;
	struct buf text;
	size_t n = 0;
	json_t *root;
	int r = fields_load(buf_str(body), body->len, &root, e);

	if (r < 0)
		return r;
	if (!json_is_array(field_get(root, "tokens")))
		r = field_wrong(e, "", "tokens", field_get(root, "tokens"), "a list of token ids");
	else
		r = field_ids(field_get(root, "tokens"), "tokens", s->limits.vocab_size, SIZE_MAX,
			      arena, &ids, &n, e);
	json_decref(root);
	if (r < 0)
		return r;
	buf_init(&text, SIZE_MAX / 2);
	for (size_t i = 0; i < n; i++) {
		size_t len;
		const char *bytes = tokenizer_bytes(s->tokenizer, ids[i], &len);

		buf_append(&text, bytes, len);
	}
	if (text.failed)
		r = field_no_memory(e);
	buf_puts(out, "{\"prompt\":");
	writer_string(out, buf_str(&text), text.len);
	buf_puts(out, "}");
	buf_release(&text);
	return r;
}
