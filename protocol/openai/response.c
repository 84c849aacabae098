#include "protocol/openai/response.h"

#include <inttypes.h>
#include <string.h>

#include "protocol/openai/response_internal.h"
#include "protocol/openai/writer.h"

/* ---- differences between chat and completions ---- */

static void chat_text(const struct openai_delta *d, enum choice_form form, struct buf *out)
{
	const bool whole = form == CHOICE_WHOLE;

	buf_puts(out, whole ? "\"message\":{\"role\":\"assistant\"" : "\"delta\":{");
	if (form == CHOICE_FIRST)
		buf_puts(out, "\"role\":\"assistant\",\"content\":\"\",\"refusal\":null");
	if (whole) {
		buf_puts(out, ",\"content\":");
		writer_string(out, d->content, d->content_len);
		buf_puts(out, ",\"refusal\":null");
	}
	if ((whole || form == CHOICE_PIECE) && d->reasoning_len) {
		buf_puts(out, whole ? ",\"reasoning_content\":" : "\"reasoning_content\":");
		writer_string(out, d->reasoning, d->reasoning_len);
	}
	if (form == CHOICE_PIECE && (d->content_len || !d->reasoning_len)) {
		buf_puts(out, d->reasoning_len ? ",\"content\":" : "\"content\":");
		writer_string(out, d->content, d->content_len);
	}
	buf_putc(out, '}');
}

static void completion_text(const struct openai_delta *d, enum choice_form form, struct buf *out)
{
	const bool piece = form == CHOICE_PIECE || form == CHOICE_WHOLE;

	buf_puts(out, "\"text\":");
	writer_string(out, d->content, piece ? d->content_len : 0);
}

const struct openai_shape openai_chat = {
	.body = "chat.completion",
	.chunk = "chat.completion.chunk",
	.opens = true,
	.prompt_in_body = true,
	.text = chat_text,
	.logprobs = logprobs_chat,
};

const struct openai_shape openai_completion = {
	.body = "text_completion",
	.chunk = "text_completion",
	.text = completion_text,
	.logprobs = logprobs_completion,
};

/* ---- parts of bodies and chunks ---- */

/* {"id":…,"object":…,"created":…,"model":…,"system_fingerprint":…,"choices":[ */
static void write_head(const struct openai_head *h, const char *object, struct buf *out)
{
	buf_puts(out, "{\"id\":");
	writer_string(out, h->id, strlen(h->id));
	buf_printf(out, ",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", object,
		   h->created);
	writer_string(out, h->model, strlen(h->model));
	buf_puts(out, ",\"system_fingerprint\":");
	writer_nullable(out, h->fingerprint);
	buf_puts(out, ",\"choices\":[");
}

static void write_usage(const struct openai_usage *u, struct buf *out)
{
	buf_printf(out,
		   ",\"usage\":{\"prompt_tokens\":%" PRIu32 ",\"completion_tokens\":%" PRIu32
		   ",\"total_tokens\":%" PRIu64
		   ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu32
		   "},\"completion_tokens_details\":{\"reasoning_tokens\":%" PRIu32 "}}",
		   u->prompt_tokens, u->completion_tokens,
		   (uint64_t)u->prompt_tokens + u->completion_tokens, u->cached_tokens,
		   u->reasoning_tokens);
}

static void write_prompt_ids(const int32_t *ids, size_t n, struct buf *out)
{
	buf_puts(out, ",\"prompt_token_ids\":");
	writer_ids(out, ids, n);
}

static void write_logprobs(const struct openai_head *h, const struct openai_delta *d,
			   enum choice_form form, struct buf *out)
{
	struct openai_cursor own = {0};

	buf_puts(out, ",\"logprobs\":");
	if (h->logprobs &&
	    (form == CHOICE_WHOLE || (form == CHOICE_PIECE && (d->content_len || d->n_tokens))))
		h->shape->logprobs(h, d, d->cursor ? d->cursor : &own, out);
	else
		buf_puts(out, "null");
}

/* Writes a choice without its last "}". */
static void write_choice(const struct openai_head *h, const struct openai_delta *d,
			 enum choice_form form, struct buf *out)
{
	const bool ends = form == CHOICE_LAST || form == CHOICE_WHOLE;

	buf_printf(out, "{\"index\":%" PRIu32 ",", d->index);
	h->shape->text(d, form, out);
	write_logprobs(h, d, form, out);
	buf_puts(out, ",\"finish_reason\":");
	writer_nullable(out, ends ? d->finish_reason : NULL);
	if (!h->return_token_ids || (form == CHOICE_FIRST && h->shape->prompt_in_body))
		return;
	buf_puts(out, ",\"token_ids\":");
	writer_ids(out, d->token_ids, d->n_token_ids);
}

static void write_prompt_logprobs(const struct openai_head *h, const struct openai_choice *c,
				  struct buf *out)
{
	buf_puts(out, ",\"prompt_logprobs\":");
	logprobs_write_prompt(h, c->prompt, c->n_prompt, out);
}

/* ---- streams: a chunk is one JSON object behind "data: ", with an empty line after it ---- */

static const char done[] = "data: [DONE]\n\n";

static void begin_chunk(const struct openai_head *h, struct buf *out)
{
	buf_puts(out, "data: ");
	write_head(h, h->shape->chunk, out);
}

/* Closes the choice and the list of choices. If the request wants usage, the chunks before the last one have the usage
 * so far, or "usage":null. */
static void end_choices(const struct openai_head *h, struct buf *out)
{
	buf_puts(out, "}]");
	if (h->so_far)
		write_usage(h->so_far, out);
	else if (h->include_usage)
		buf_puts(out, ",\"usage\":null");
}

static void end_chunk(struct buf *out)
{
	buf_puts(out, "}\n\n");
}

void openai_stream_role(const struct openai_head *h, uint32_t index, const int32_t *prompt_ids,
			size_t n_prompt_ids, struct buf *out)
{
	const struct openai_delta d = {.index = index};

	if (!h->shape->opens && !h->return_token_ids)
		return;
	begin_chunk(h, out);
	write_choice(h, &d, CHOICE_FIRST, out);
	if (h->return_token_ids && !h->shape->prompt_in_body)
		write_prompt_ids(prompt_ids, n_prompt_ids, out);
	end_choices(h, out);
	if (h->return_token_ids)
		write_prompt_ids(prompt_ids, n_prompt_ids, out);
	end_chunk(out);
}

static void write_chunk(const struct openai_head *h, const struct openai_delta *d,
			enum choice_form form, struct buf *out)
{
	begin_chunk(h, out);
	write_choice(h, d, form, out);
	end_choices(h, out);
	end_chunk(out);
}

void openai_stream_delta(const struct openai_head *h, const struct openai_delta *d, struct buf *out)
{
	struct openai_delta rest = *d;

	/* The chunk with the finish reason has no text, but may have token ids. So a last piece that has nothing but
	 * token ids is not written as a chunk of its own. */
	if (d->content_len || d->reasoning_len || d->n_tokens ||
	    (d->n_token_ids && !d->finish_reason)) {
		write_chunk(h, d, CHOICE_PIECE, out);
		rest.n_token_ids = 0;
	}
	if (d->finish_reason)
		write_chunk(h, &rest, CHOICE_LAST, out);
}

void openai_stream_end(const struct openai_head *h, const struct openai_usage *u, struct buf *out)
{
	if (h->include_usage) {
		begin_chunk(h, out);
		buf_putc(out, ']');
		write_usage(u, out);
		end_chunk(out);
	}
	buf_puts(out, done);
}

void openai_stream_error(const struct err *e, struct buf *out)
{
	buf_puts(out, "data: ");
	openai_error(e, out);
	buf_puts(out, "\n\n");
	buf_puts(out, done);
}

void openai_stream_comment(struct buf *out)
{
	buf_puts(out, ": keep-alive\n\n");
}

/* ---- whole bodies ---- */

void openai_body(const struct openai_head *h, const struct openai_choice *choices, size_t n,
		 const struct ids *prompt_ids, size_t n_prompts, const struct openai_usage *u,
		 struct buf *out)
{
	size_t per_prompt = n_prompts ? MAX(n / n_prompts, (size_t)1) : 1;
	const bool in_body = h->shape->prompt_in_body;

	write_head(h, h->shape->body, out);
	for (size_t i = 0; i < n; i++) {
		const struct ids *prompt = prompt_ids ? &prompt_ids[i / per_prompt] : NULL;

		if (i)
			buf_putc(out, ',');
		write_choice(h, &choices[i].all, CHOICE_WHOLE, out);
		if (h->return_token_ids && !in_body)
			write_prompt_ids(prompt->v, prompt->len, out);
		if (h->prompt_logprobs && !in_body)
			write_prompt_logprobs(h, &choices[i], out);
		buf_putc(out, '}');
	}
	buf_putc(out, ']');
	write_usage(u, out);
	if (h->return_token_ids && (in_body || n_prompts == 1))
		write_prompt_ids(prompt_ids->v, prompt_ids->len, out);
	if (h->prompt_logprobs && in_body)
		write_prompt_logprobs(h, &choices[0], out);
	buf_putc(out, '}');
}
