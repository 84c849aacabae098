#include "protocol/openai/response.h"

#include <inttypes.h>
#include <string.h>

#include "protocol/openai/response_internal.h"
#include "protocol/openai/writer.h"

void response_head(const struct openai_head *h, const char *object, struct buf *out)
{
	buf_puts(out, "{\"id\":");
	writer_string(out, h->id, strlen(h->id));
	buf_printf(out, ",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", object,
		   h->created);
	writer_string(out, h->model, strlen(h->model));
	buf_puts(out, ",\"system_fingerprint\":");
	if (h->fingerprint)
		writer_string(out, h->fingerprint, strlen(h->fingerprint));
	else
		buf_puts(out, "null");
}

void response_usage(const struct openai_usage *u, struct buf *out)
{
	buf_printf(out,
		   "{\"prompt_tokens\":%" PRIu32 ",\"completion_tokens\":%" PRIu32
		   ",\"total_tokens\":%" PRIu64
		   ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu32
		   "},\"completion_tokens_details\":{\"reasoning_tokens\":%" PRIu32 "}}",
		   u->prompt_tokens, u->completion_tokens,
		   (uint64_t)u->prompt_tokens + u->completion_tokens, u->cached_tokens,
		   u->reasoning_tokens);
}

void response_token_ids(const struct openai_head *h, const struct openai_delta *d, struct buf *out)
{
	if (!h->return_token_ids)
		return;
	buf_puts(out, ",\"token_ids\":");
	writer_ids(out, d->token_ids, d->n_token_ids);
}

static void chat_message(const struct openai_delta *d, struct buf *out)
{
	buf_puts(out, "\"message\":{\"role\":\"assistant\",\"content\":");
	writer_string(out, d->content, d->content_len);
	buf_puts(out, ",\"refusal\":null");
	if (d->reasoning_len) {
		buf_puts(out, ",\"reasoning_content\":");
		writer_string(out, d->reasoning, d->reasoning_len);
	}
	buf_putc(out, '}');
}

static void prompt_logprobs(const struct openai_head *h, const struct openai_choice *c,
			    struct buf *out)
{
	buf_puts(out, ",\"prompt_logprobs\":");
	logprobs_write_prompt(h, c->prompt, c->n_prompt, out);
}

static void choice(const struct openai_head *h, const struct openai_choice *c,
		   const struct ids *prompt, struct buf *out)
{
	const struct openai_delta *d = &c->all;

	buf_printf(out, "{\"index\":%" PRIu32 ",", d->index);
	if (h->chat) {
		chat_message(d, out);
	} else {
		buf_puts(out, "\"text\":");
		writer_string(out, d->content, d->content_len);
	}
	buf_puts(out, ",\"logprobs\":");
	if (h->logprobs)
		logprobs_write(h, d, out);
	else
		buf_puts(out, "null");
	buf_puts(out, ",\"finish_reason\":");
	if (d->finish_reason)
		writer_string(out, d->finish_reason, strlen(d->finish_reason));
	else
		buf_puts(out, "null");
	response_token_ids(h, d, out);
	if (h->return_token_ids && !h->chat) {
		buf_puts(out, ",\"prompt_token_ids\":");
		writer_ids(out, prompt->v, prompt->len);
	}
	if (h->prompt_logprobs && !h->chat)
		prompt_logprobs(h, c, out);
	buf_putc(out, '}');
}

void openai_body(const struct openai_head *h, const struct openai_choice *choices, size_t n,
		 const struct ids *prompt_ids, size_t n_prompts, const struct openai_usage *u,
		 struct buf *out)
{
	size_t per_prompt = n_prompts ? MAX(n / n_prompts, (size_t)1) : 1;

	response_head(h, h->chat ? "chat.completion" : "text_completion", out);
	buf_puts(out, ",\"choices\":[");
	for (size_t i = 0; i < n; i++) {
		if (i)
			buf_putc(out, ',');
		choice(h, &choices[i], prompt_ids ? &prompt_ids[i / per_prompt] : NULL, out);
	}
	buf_puts(out, "],\"usage\":");
	response_usage(u, out);
	if (h->return_token_ids && (h->chat || n_prompts == 1)) {
		buf_puts(out, ",\"prompt_token_ids\":");
		writer_ids(out, prompt_ids->v, prompt_ids->len);
	}
	if (h->prompt_logprobs && h->chat)
		prompt_logprobs(h, &choices[0], out);
	buf_putc(out, '}');
}
