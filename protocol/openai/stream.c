/* Server-sent events: each chunk is one JSON object behind "data: " with an empty line after it. */
#include <inttypes.h>
#include <string.h>

#include "protocol/openai/response_internal.h"
#include "protocol/openai/writer.h"

static void chunk_begin(const struct openai_head *h, struct buf *out)
{
	buf_puts(out, "data: ");
	response_head(h, h->chat ? "chat.completion.chunk" : "text_completion", out);
	buf_puts(out, ",\"choices\":[");
}

/* Closes the choices; chunks without usage say so when it was asked for. */
static void chunk_end(const struct openai_head *h, struct buf *out)
{
	buf_puts(out, h->include_usage ? "],\"usage\":null" : "]");
}

static void event_end(struct buf *out)
{
	buf_puts(out, "}\n\n");
}

void openai_stream_role(const struct openai_head *h, uint32_t index, const int32_t *prompt_ids,
			size_t n_prompt_ids, struct buf *out)
{
	if (!h->chat && !h->return_token_ids)
		return;
	chunk_begin(h, out);
	buf_printf(out, "{\"index\":%" PRIu32, index);
	buf_puts(out,
		 h->chat ? ",\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}"
			 : ",\"text\":\"\"");
	buf_puts(out, ",\"logprobs\":null,\"finish_reason\":null");
	if (h->return_token_ids && !h->chat) {
		buf_puts(out, ",\"token_ids\":[],\"prompt_token_ids\":");
		writer_ids(out, prompt_ids, n_prompt_ids);
	}
	buf_putc(out, '}');
	chunk_end(h, out);
	if (h->return_token_ids) {
		buf_puts(out, ",\"prompt_token_ids\":");
		writer_ids(out, prompt_ids, n_prompt_ids);
	}
	event_end(out);
}

static void piece_text(const struct openai_head *h, const struct openai_delta *d, struct buf *out)
{
	if (!h->chat) {
		buf_puts(out, ",\"text\":");
		writer_string(out, d->content, d->content_len);
		return;
	}
	buf_puts(out, ",\"delta\":{");
	if (d->reasoning_len) {
		buf_puts(out, "\"reasoning_content\":");
		writer_string(out, d->reasoning, d->reasoning_len);
	}
	if (d->content_len || !d->reasoning_len) {
		buf_puts(out, d->reasoning_len ? ",\"content\":" : "\"content\":");
		writer_string(out, d->content, d->content_len);
	}
	buf_putc(out, '}');
}

static void piece(const struct openai_head *h, const struct openai_delta *d, struct buf *out)
{
	chunk_begin(h, out);
	buf_printf(out, "{\"index\":%" PRIu32, d->index);
	piece_text(h, d, out);
	buf_puts(out, ",\"logprobs\":");
	if (h->logprobs && (d->content_len || d->n_tokens))
		logprobs_write(h, d, out);
	else
		buf_puts(out, "null");
	buf_puts(out, ",\"finish_reason\":null");
	response_token_ids(h, d, out);
	buf_putc(out, '}');
	chunk_end(h, out);
	event_end(out);
}

static void finish(const struct openai_head *h, const struct openai_delta *d, struct buf *out)
{
	chunk_begin(h, out);
	buf_printf(out, "{\"index\":%" PRIu32, d->index);
	buf_puts(out, h->chat ? ",\"delta\":{}" : ",\"text\":\"\"");
	buf_puts(out, ",\"logprobs\":null,\"finish_reason\":");
	writer_string(out, d->finish_reason, strlen(d->finish_reason));
	response_token_ids(h, d, out);
	buf_putc(out, '}');
	chunk_end(h, out);
	event_end(out);
}

void openai_stream_delta(const struct openai_head *h, const struct openai_delta *d, struct buf *out)
{
	struct openai_delta rest = *d;

	/* The finish chunk has no text; ids alone may ride in it. */
	if (d->content_len || d->reasoning_len || d->n_tokens ||
	    (d->n_token_ids && !d->finish_reason)) {
		piece(h, d, out);
		rest.n_token_ids = 0;
	}
	if (d->finish_reason)
		finish(h, &rest, out);
}

void openai_stream_usage(const struct openai_head *h, const struct openai_usage *u, struct buf *out)
{
	if (!h->include_usage)
		return;
	chunk_begin(h, out);
	buf_puts(out, "],\"usage\":");
	response_usage(u, out);
	event_end(out);
}

void openai_stream_error(const struct err *e, struct buf *out)
{
	buf_puts(out, "data: ");
	openai_error(e, out);
	buf_puts(out, "\n\n");
}

void openai_stream_done(struct buf *out)
{
	buf_puts(out, "data: [DONE]\n\n");
}

void openai_stream_comment(struct buf *out)
{
	buf_puts(out, ": keep-alive\n\n");
}
