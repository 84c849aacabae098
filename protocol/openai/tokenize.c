#include "protocol/openai/tokenize.h"

#include <errno.h>
#include <inttypes.h>

#include "base/macros.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/openai/writer.h"

enum { PIECE = 1024 }; /* tokens that are written between two calls of pace_gives_up */

static int tokenize_object(const json_t *body, struct arena *arena, struct openai_tokenize *t,
			   struct err *e)
{
	const json_t *prompt = NULL;
	bool thinking, billing;
	int r;

	r = request_model(body, arena, &t->model, e);
	if (r == 0)
		r = field_bool(body, "", "return_token_strs", &t->return_token_strs, e);
	if (r == 0)
		r = field_bool(body, "", "add_special_tokens", &t->add_special_tokens, e);
	if (r == 0)
		r = field_string(body, "", "prompt", &prompt, e);
	if (r < 0)
		return r;
	if (!prompt && !field_get(body, "messages"))
		return err_param(e, EINVAL, "prompt",
				 "prompt is missing: there must be a prompt or messages");
	if (!prompt)
		return chat_context(body, &t->context, &thinking, &billing, e);
	if (field_get(body, "messages"))
		return err_param(e, EINVAL, "messages",
				 "messages is given, but not allowed together with prompt");
	t->prompt_len = json_string_length(prompt);
	t->prompt = arena_strndup(arena, json_string_value(prompt), t->prompt_len);
	return t->prompt ? 0 : err_no_memory(e);
}

int openai_parse_tokenize(const char *body, size_t len, const struct pace *pace,
			  struct arena *arena, struct openai_tokenize *ret, struct err *e)
{
	struct openai_tokenize t = {.add_special_tokens = true};
	json_t *root;
	int r;

	r = fields_load(body, len, pace, &root, e);
	if (r < 0)
		return r;
	r = tokenize_object(root, arena, &t, e);
	json_decref(root);
	if (r < 0)
		return r;
	*ret = t;
	return 0;
}

void openai_tokenize_release(struct openai_tokenize *t)
{
	json_decref(t->context);
	t->context = NULL;
}

int openai_parse_detokenize(const char *body, size_t len, const struct pace *pace,
			    uint32_t vocab_size, struct arena *arena, struct openai_detokenize *ret,
			    struct err *e)
{
	struct openai_detokenize d = {0};
	const json_t *tokens;
	json_t *root;
	int r;

	r = fields_load(body, len, pace, &root, e);
	if (r < 0)
		return r;
	r = request_model(root, arena, &d.model, e);
	tokens = field_get(root, "tokens");
	if (r == 0 && !tokens)
		r = field_wrong(e, "", "tokens", NULL, "an array of token ids");
	if (r == 0)
		r = field_ids(tokens, "tokens", vocab_size, SIZE_MAX, &d.ids, e);
	json_decref(root);
	if (r < 0)
		openai_detokenize_release(&d);
	else
		*ret = d;
	return r;
}

void openai_detokenize_release(struct openai_detokenize *d)
{
	ids_release(&d->ids);
}

/* Writes the letter that stands for a byte in byte-level vocabularies. A byte that is a visible Latin-1 character
 * stands for itself; the 68 other bytes are, in order, U+0100 and up. No letter has more than two bytes in UTF-8. */
static void spell(unsigned char byte, struct buf *out)
{
	uint32_t letter = byte;
	char c = (char)byte;

	if (byte > 0x20 && byte < 0x7f) {
		writer_escaped(out, &c, 1);
		return;
	}
	if (byte <= 0x20)
		letter = 0x100 + byte;
	else if (byte <= 0xa0)
		letter = 0x121 + (byte - 0x7fu);
	else if (byte == 0xad)
		letter = 0x143;
	buf_putc(out, (char)(0xc0 | letter >> 6));
	buf_putc(out, (char)(0x80 | (letter & 0x3f)));
}

static void token_strs(const struct tokenizer *t, const struct ids *ids, size_t from, size_t to,
		       struct buf *out)
{
	for (size_t i = from; i < to; i++) {
		size_t n;
		const char *bytes = tokenizer_bytes(t, ids->v[i], &n);

		buf_puts(out, i ? ",\"" : "\"");
		for (size_t k = 0; k < n; k++)
			spell((unsigned char)bytes[k], out);
		buf_putc(out, '"');
	}
}

/* Writes the list of the ids or, if `strs`, of the tokens as the vocabulary spells them. -ECANCELED: pace_gives_up. */
static int write_tokens(const struct tokenizer *t, const struct ids *ids, bool strs,
			const struct pace *pace, struct buf *out, struct err *e)
{
	buf_putc(out, '[');
	for (size_t from = 0, to; from < ids->len; from = to) {
		to = MIN(from + PIECE, ids->len);
		if (pace_gives_up(pace))
			return err_set(e, ECANCELED, "the answer is not written to its end");
		if (strs)
			token_strs(t, ids, from, to, out);
		else
			writer_ids_part(out, ids->v, from, to);
	}
	buf_putc(out, ']');
	return 0;
}

int openai_body_tokenize(const struct tokenizer *t, const struct ids *ids, uint32_t max_model_len,
			 bool with_strs, const struct pace *pace, struct buf *out, struct err *e)
{
	int r;

	buf_printf(out, "{\"count\":%zu,\"max_model_len\":%" PRIu32 ",\"tokens\":", ids->len,
		   max_model_len);
	r = write_tokens(t, ids, false, pace, out, e);
	if (r < 0)
		return r;
	buf_puts(out, ",\"token_strs\":");
	if (with_strs)
		r = write_tokens(t, ids, true, pace, out, e);
	else
		buf_puts(out, "null");
	buf_putc(out, '}');
	return r;
}

void openai_body_detokenize(const struct tokenizer *t, const int32_t *ids, size_t n,
			    struct buf *out)
{
	struct buf text;

	buf_init(&text, out->max);
	for (size_t i = 0; i < n; i++) {
		size_t len;
		const char *bytes = tokenizer_bytes(t, ids[i], &len);

		buf_append(&text, bytes, len);
	}
	buf_puts(out, "{\"prompt\":");
	writer_string(out, buf_str(&text), text.len);
	buf_putc(out, '}');
	out->failed |= text.failed;
	buf_release(&text);
}
