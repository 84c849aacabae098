#include "protocol/openai/tokenize.h"

#include <errno.h>
#include <inttypes.h>

#include "base/macros.h"
#include "base/utf8.h"
#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/openai/writer.h"

enum { PIECE = 1024 }; /* tokens that are written between two calls of pace_gives_up */

/* Reads a text and the settings of both forms. *ret NULL: there is no text. */
static int tokenize_text(const json_t *body, const json_t **ret, struct openai_tokenize *t,
			 struct err *e)
{
	const json_t *prompt = NULL, *content = NULL;
	bool around_prompt = true, around_content = false, strs = false, pieces = false;
	const struct {
		const char *name;
		bool *value;
	} settings[] = {{"add_special_tokens", &around_prompt},
			{"add_special", &around_content},
			{"return_token_strs", &strs},
			{"with_pieces", &pieces}};
	int r = field_string(body, "", "prompt", &prompt, e);

	if (r == 0)
		r = field_string(body, "", "content", &content, e);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(settings); i++)
		r = field_bool(body, "", settings[i].name, settings[i].value, e);
	if (r == 0)
		r = request_always_on(body, "parse_special", e);
	if (r < 0)
		return r;
	if (prompt && content)
		return err_param(e, EINVAL, "content",
				 "content is given, but not allowed together with prompt");
	t->add_special_tokens = content ? around_content : around_prompt;
	if (content)
		t->form = pieces ? TOKENIZE_PIECES : TOKENIZE_BARE;
	else
		t->form = strs ? TOKENIZE_STRS : TOKENIZE_COUNTED;
	*ret = content ? content : prompt;
	return 0;
}

static int tokenize_object(const json_t *body, const struct openai_limits *limits,
			   struct arena *arena, struct openai_tokenize *t, struct err *e)
{
	const json_t *text = NULL;
	bool thinking, billing;
	int r;

	r = request_model(body, arena, &t->model, e);
	if (r == 0)
		r = tokenize_text(body, &text, t, e);
	if (r < 0)
		return r;
	if (!text && !field_get(body, "messages"))
		return err_param(e, EINVAL, "prompt",
				 "prompt is missing: there must be a prompt, content or messages");
	if (!text)
		return chat_context(body, limits, &t->context, &thinking, &billing, e);
	if (field_get(body, "messages"))
		return err_param(e, EINVAL, "messages",
				 "messages is given, but not allowed together with a text");
	t->prompt_len = json_string_length(text);
	t->prompt = arena_strndup(arena, json_string_value(text), t->prompt_len);
	return t->prompt ? 0 : err_no_memory(e);
}

int openai_parse_tokenize(const char *body, size_t len, const struct pace *pace,
			  const struct openai_limits *limits, struct arena *arena,
			  struct openai_tokenize *ret, struct err *e)
{
	struct openai_tokenize t = {0};
	json_t *root;
	int r;

	r = fields_load(body, len, pace, &root, e);
	if (r < 0)
		return r;
	r = tokenize_object(root, limits, arena, &t, e);
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

static void pieces(const struct tokenizer *t, const struct ids *ids, size_t from, size_t to,
		   struct buf *out)
{
	for (size_t i = from; i < to; i++) {
		size_t n;
		const char *bytes = tokenizer_bytes(t, ids->v[i], &n);

		buf_printf(out, "%s{\"id\":%" PRId32 ",\"piece\":", i ? "," : "", ids->v[i]);
		if (utf8_valid(bytes, n) == n)
			writer_string(out, bytes, n);
		else
			writer_bytes(out, (const unsigned char *)bytes, n);
		buf_putc(out, '}');
	}
}

static void plain_ids(const struct tokenizer *t, const struct ids *ids, size_t from, size_t to,
		      struct buf *out)
{
	writer_ids_part(out, ids->v, from, to);
}

/* Writes a list of all tokens, PIECE of them at a time. -ECANCELED: pace_gives_up. */
static int write_tokens(const struct tokenizer *t, const struct ids *ids,
			void (*part)(const struct tokenizer *t, const struct ids *ids, size_t from,
				     size_t to, struct buf *out),
			const struct pace *pace, struct buf *out, struct err *e)
{
	buf_putc(out, '[');
	for (size_t from = 0, to; from < ids->len; from = to) {
		to = MIN(from + PIECE, ids->len);
		if (pace_gives_up(pace))
			return err_set(e, ECANCELED, "the answer is not written to its end");
		part(t, ids, from, to, out);
	}
	buf_putc(out, ']');
	return 0;
}

int openai_body_tokenize(const struct tokenizer *t, const struct ids *ids, uint32_t max_model_len,
			 enum tokenize_form form, const struct pace *pace, struct buf *out,
			 struct err *e)
{
	const bool counted = form == TOKENIZE_COUNTED || form == TOKENIZE_STRS;
	int r;

	buf_putc(out, '{');
	if (counted)
		buf_printf(out, "\"count\":%zu,\"max_model_len\":%" PRIu32 ",", ids->len,
			   max_model_len);
	buf_puts(out, "\"tokens\":");
	r = write_tokens(t, ids, form == TOKENIZE_PIECES ? pieces : plain_ids, pace, out, e);
	if (counted)
		buf_puts(out, ",\"token_strs\":");
	if (r == 0 && form == TOKENIZE_STRS)
		r = write_tokens(t, ids, token_strs, pace, out, e);
	else if (counted)
		buf_puts(out, "null");
	buf_putc(out, '}');
	return r;
}

void openai_body_count(size_t n, struct buf *out)
{
	buf_printf(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", n);
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
	buf_puts(out, ",\"content\":");
	writer_string(out, buf_str(&text), text.len);
	buf_putc(out, '}');
	out->failed |= text.failed;
	buf_release(&text);
}
