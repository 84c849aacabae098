#include "protocol/openai/response.h"

#include <inttypes.h>
#include <string.h>

#include "protocol/openai/response_internal.h"
#include "protocol/openai/writer.h"

enum {
	TEXT_SLICE = 4 << 10, /* bytes of a text that are written at once */
	IDS_SLICE = 1000,
};

/* ---- differences between chat and completions ---- */

static bool has_calls(const struct openai_delta *d)
{
	return d->calls && d->calls->n;
}

static size_t chat_text(const struct openai_delta *d, enum choice_form form,
			struct openai_span *ret)
{
	const bool null = has_calls(d) && !d->content_len;
	struct openai_span *s = ret;

	switch (form) {
	case CHOICE_FIRST:
		*s++ = (struct openai_span){
			null && !d->reasoning_len
				? "\"delta\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null"
				: "\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null"};
		break;
	case CHOICE_PIECE:
		*s++ = (struct openai_span){"\"delta\":{"};
		if (d->reasoning_len)
			*s++ = (struct openai_span){"\"reasoning_content\":\"", d->reasoning,
						    d->reasoning_len};
		if (d->content_len || !d->reasoning_len)
			*s++ = (struct openai_span){d->reasoning_len ? "\",\"content\":\""
								     : "\"content\":\"",
						    d->content, d->content_len};
		*s++ = (struct openai_span){"\""};
		break;
	case CHOICE_CALL:
	case CHOICE_LAST: *s++ = (struct openai_span){"\"delta\":{"}; break;
	case CHOICE_WHOLE:
		*s++ = (struct openai_span){
			null ? "\"message\":{\"role\":\"assistant\",\"content\":null"
			     : "\"message\":{\"role\":\"assistant\",\"content\":\"",
			d->content, d->content_len};
		*s++ = (struct openai_span){null ? ",\"refusal\":null" : "\",\"refusal\":null"};
		if (d->reasoning_len) {
			*s++ = (struct openai_span){",\"reasoning_content\":\"", d->reasoning,
						    d->reasoning_len};
			*s++ = (struct openai_span){"\""};
		}
		break;
	}
	return (size_t)(s - ret);
}

static size_t completion_text(const struct openai_delta *d, enum choice_form form,
			      struct openai_span *ret)
{
	const bool empty = form == CHOICE_FIRST || form == CHOICE_LAST;

	ret[0] = (struct openai_span){"\"text\":\"", d->echo, empty ? 0 : d->echo_len};
	ret[1] = (struct openai_span){"", d->content, empty ? 0 : d->content_len};
	ret[2] = (struct openai_span){"\""};
	return 3;
}

const struct openai_shape openai_chat = {
	.body = "chat.completion",
	.chunk = "chat.completion.chunk",
	.opens = true,
	.prompt_in_body = true,
	.text = chat_text,
	.behind_text = "}",
	.lists = {{"{\"content\":[", logprobs_chat_item}},
	.behind_lists = "],\"refusal\":null}",
};

const struct openai_shape openai_completion = {
	.body = "text_completion",
	.chunk = "text_completion",
	.text = completion_text,
	.behind_text = "",
	.lists = {{"{\"tokens\":[", logprobs_token},
		  {"],\"token_logprobs\":[", logprobs_logprob},
		  {"],\"top_logprobs\":[", logprobs_best},
		  {"],\"text_offset\":[", logprobs_offset}},
	.behind_lists = "]}",
};

/* ---- the parts of a body or chunk, in their order ----
 *
 * Each function writes some of a part, and returns true when all of it is written. It counts its progress in o->item
 * and o->at, which are 0 at first. Each call makes some progress. */

/* The choice that is written. */
static const struct openai_delta *delta_of(const struct openai_output *o)
{
	return o->choices ? &o->choices[o->choice].all : &o->delta;
}

/* The form in which that choice is written. */
static enum choice_form form_of(const struct openai_output *o)
{
	return (enum choice_form)__builtin_ctz(o->forms);
}

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

static void begin_chunk(const struct openai_head *h, struct buf *out)
{
	buf_puts(out, "data: ");
	write_head(h, h->shape->chunk, out);
}

static bool begin(struct openai_output *o, size_t enough, struct buf *out)
{
	if (o->choices)
		write_head(o->head, o->head->shape->body, out);
	else
		begin_chunk(o->head, out);
	return true;
}

static bool begin_choice(struct openai_output *o, size_t enough, struct buf *out)
{
	buf_printf(out, "%s{\"index\":%" PRIu32 ",", o->choice ? "," : "", delta_of(o)->index);
	return true;
}

static bool write_text(struct openai_output *o, size_t enough, struct buf *out)
{
	struct openai_span spans[SPANS_MAX];
	size_t n = o->head->shape->text(delta_of(o), form_of(o), spans);
	const struct openai_span *s = &spans[o->item];

	if (!o->at)
		buf_puts(out, s->json);
	if (o->at < s->len)
		o->at += writer_escaped_part(out, s->text + o->at, s->len - o->at, TEXT_SLICE);
	if (o->at < s->len)
		return false;
	o->at = 0;
	return ++o->item == n;
}

/* Returns the number of pieces of calls that the form has, from o->call on. */
static size_t calls_of_form(const struct openai_output *o)
{
	const struct openai_delta *d = delta_of(o);

	switch (form_of(o)) {
	case CHOICE_FIRST: return o->call_first;
	case CHOICE_CALL: return 1;
	case CHOICE_WHOLE: return has_calls(d) ? d->calls->n : 0;
	default: return 0;
	}
}

/* Writes what stands before the text of a piece of a call. */
static void begin_call(const struct openai_output *o, const struct openai_call_piece *p,
		       struct buf *out)
{
	const bool whole = form_of(o) == CHOICE_WHOLE;
	char id[CALL_ID_MAX];

	if (!o->item && form_of(o) != CHOICE_CALL)
		buf_putc(out, ',');
	if (!o->item)
		buf_puts(out, "\"tool_calls\":[");
	if (whole && !p->begins)
		return;
	if (o->item)
		buf_puts(out, "\"}},");
	buf_putc(out, '{');
	if (!whole)
		buf_printf(out, "\"index\":%" PRIu32 ",", p->call);
	if (p->begins) {
		openai_call_id("call_", o->head->id, delta_of(o)->index, p->call,
			       o->head->brief_call_ids, id);
		buf_printf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"",
			   id);
	} else {
		buf_puts(out, "\"function\":{\"arguments\":\"");
	}
}

static bool write_calls(struct openai_output *o, size_t enough, struct buf *out)
{
	const struct openai_delta *d = delta_of(o);
	const size_t n = calls_of_form(o);
	const struct openai_call_piece *p;

	if (o->item < n) {
		p = &d->calls->v[o->call];
		if (!o->at)
			begin_call(o, p, out);
		o->at += writer_escaped_part(out, buf_str(&d->calls->text) + o->call_at + o->at,
					     p->len - o->at, TEXT_SLICE);
		if (o->at < p->len)
			return false;
		if (p->begins)
			buf_puts(out, "\",\"arguments\":\"");
		o->call++;
		o->call_at += p->len;
		o->at = 0;
		if (++o->item < n)
			return false;
	}
	if (n)
		buf_puts(out, "\"}}]");
	buf_puts(out, o->head->shape->behind_text);
	return true;
}

static size_t list_bytes(const struct openai_tokens *t)
{
	return t ? t->bytes.len : 0;
}

/* Reads the token at o->at, which counts the bytes of both lists: the echoed prompt's tokens, then the choice's own.
 * *ret_last: no later token completes the token's bytes. False: there is no further token. */
static bool next_token(struct openai_output *o, struct openai_token *ret, bool *ret_last)
{
	const struct openai_delta *d = delta_of(o);
	size_t echoed = list_bytes(d->echoed), at = o->at - MIN(o->at, echoed);

	if (o->at < echoed) {
		openai_tokens_next(d->echoed, &o->at, ret);
	} else {
		if (!d->tokens || !openai_tokens_next(d->tokens, &at, ret))
			return false;
		o->at = echoed + at;
	}
	*ret_last = ret->last || (d->finish_reason && o->at == echoed + list_bytes(d->tokens));
	return true;
}

static bool has_logprobs(const struct openai_output *o)
{
	const struct openai_delta *d = delta_of(o);

	if (!o->head->logprobs)
		return false;
	return form_of(o) == CHOICE_WHOLE ||
	       (form_of(o) == CHOICE_PIECE &&
		(d->echo_len || d->content_len || list_bytes(d->echoed) || list_bytes(d->tokens)));
}

static bool write_logprobs(struct openai_output *o, size_t enough, struct buf *out)
{
	const struct openai_shape *shape = o->head->shape;
	struct openai_cursor *kept = delta_of(o)->cursor;
	struct openai_token token;
	bool last;

	if (!o->item && !o->at)
		buf_puts(out, ",\"logprobs\":");
	if (!has_logprobs(o)) {
		buf_puts(out, "null");
		return true;
	}
	if (!o->at) {
		o->cursor = kept ? *kept : (struct openai_cursor){0};
		buf_puts(out, shape->lists[o->item].before);
	}
	for (bool comma = o->at; next_token(o, &token, &last); comma = true) {
		const struct openai_cursor before = o->cursor;
		const struct openai_place at = {&token, &before, last};

		if (comma)
			buf_putc(out, ',');
		logprobs_pass(o->head, &token, last, &o->cursor);
		shape->lists[o->item].item(o->head, &at, out);
		if (out->len >= enough)
			return false;
	}
	o->at = 0;
	if (++o->item < LISTS_MAX && shape->lists[o->item].before)
		return false;
	buf_puts(out, shape->behind_lists);
	if (kept)
		*kept = o->cursor;
	return true;
}

static void write_stop_reason(const struct openai_delta *d, struct buf *out)
{
	buf_puts(out, ",\"stop_reason\":");
	if (d->stop_token)
		writer_number(out, *d->stop_token);
	else
		writer_nullable(out, d->stop);
}

static bool write_finish(struct openai_output *o, size_t enough, struct buf *out)
{
	const bool ends = form_of(o) == CHOICE_LAST || form_of(o) == CHOICE_WHOLE;

	buf_puts(out, ",\"finish_reason\":");
	writer_nullable(out, ends ? delta_of(o)->finish_reason : NULL);
	if (ends)
		write_stop_reason(delta_of(o), out);
	return true;
}

/* Writes a member with a list of ids. `name` has all that stands before the first id. */
static bool write_ids(struct openai_output *o, const char *name, const int32_t *ids, size_t n,
		      struct buf *out)
{
	size_t to = MIN(o->at + IDS_SLICE, n);

	if (!o->at)
		buf_puts(out, name);
	writer_ids_part(out, ids, o->at, to);
	o->at = to;
	if (to < n)
		return false;
	buf_putc(out, ']');
	return true;
}

static bool write_token_ids(struct openai_output *o, size_t enough, struct buf *out)
{
	const struct openai_delta *d = delta_of(o);
	const bool first = form_of(o) == CHOICE_FIRST;

	if (!o->head->return_token_ids || (first && o->head->shape->prompt_in_body))
		return true;
	if (!write_ids(o, ",\"token_ids\":[", d->token_ids,
		       first || o->ids_written ? 0 : d->n_token_ids, out))
		return false;
	o->ids_written |= form_of(o) == CHOICE_PIECE || form_of(o) == CHOICE_CALL;
	return true;
}

static bool write_prompt_ids(struct openai_output *o, const struct ids *prompt, struct buf *out)
{
	return write_ids(o, ",\"prompt_token_ids\":[", prompt->v, prompt->len, out);
}

static bool has_prompt_ids(const struct openai_output *o)
{
	return o->head->return_token_ids &&
	       (form_of(o) == CHOICE_FIRST || form_of(o) == CHOICE_WHOLE);
}

static bool write_choice_prompt_ids(struct openai_output *o, size_t enough, struct buf *out)
{
	size_t per_prompt = o->n_prompts ? MAX(o->n_choices / o->n_prompts, (size_t)1) : 1;

	return !has_prompt_ids(o) || o->head->shape->prompt_in_body ||
	       write_prompt_ids(o, &o->prompts[o->choice / per_prompt], out);
}

static bool write_prompt_logprobs(struct openai_output *o, const struct openai_tokens *prompt,
				  size_t enough, struct buf *out)
{
	struct openai_token token;

	if (!o->at)
		buf_puts(out, ",\"prompt_logprobs\":[");
	while (prompt && openai_tokens_next(prompt, &o->at, &token)) {
		if (token.first) {
			buf_puts(out, "null");
		} else {
			buf_putc(out, ',');
			logprobs_prompt_item(o->head, &token.draw, out);
		}
		if (out->len >= enough)
			return false;
	}
	buf_putc(out, ']');
	return true;
}

static bool write_choice_prompt_logprobs(struct openai_output *o, size_t enough, struct buf *out)
{
	const struct openai_head *h = o->head;

	return form_of(o) != CHOICE_WHOLE || !h->prompt_logprobs || h->shape->prompt_in_body ||
	       write_prompt_logprobs(o, o->choices[o->choice].prompt, enough, out);
}

static bool end_choice(struct openai_output *o, size_t enough, struct buf *out)
{
	buf_putc(out, '}');
	return true;
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

void openai_prompt_usage(const struct openai_usage *u, struct buf *out)
{
	buf_printf(out,
		   "{\"prompt_tokens\":%" PRIu32 ",\"total_tokens\":%" PRIu32
		   ",\"completion_tokens\":0,\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu32
		   "}}",
		   u->prompt_tokens, u->prompt_tokens, u->cached_tokens);
}

/* If the request wants usage, the chunks before the last one have the usage so far, or "usage":null. */
static bool end_choices(struct openai_output *o, size_t enough, struct buf *out)
{
	buf_putc(out, ']');
	if (o->choices)
		write_usage(&o->usage, out);
	else if (o->head->so_far)
		write_usage(o->head->so_far, out);
	else if (o->head->include_usage)
		buf_puts(out, ",\"usage\":null");
	return true;
}

static bool write_body_prompt_ids(struct openai_output *o, size_t enough, struct buf *out)
{
	return !has_prompt_ids(o) ||
	       (o->choices && !o->head->shape->prompt_in_body && o->n_prompts != 1) ||
	       write_prompt_ids(o, &o->prompts[0], out);
}

static bool write_body_prompt_logprobs(struct openai_output *o, size_t enough, struct buf *out)
{
	const struct openai_head *h = o->head;

	return form_of(o) != CHOICE_WHOLE || !h->prompt_logprobs || !h->shape->prompt_in_body ||
	       write_prompt_logprobs(o, o->choices[0].prompt, enough, out);
}

static void end_chunk(struct buf *out)
{
	buf_puts(out, "}\n\n");
}

static bool end(struct openai_output *o, size_t enough, struct buf *out)
{
	if (o->choices)
		buf_putc(out, '}');
	else
		end_chunk(out);
	return true;
}

/* The parts of a choice stand from FIRST_PART to LAST_PART; a body repeats them for each of its choices. */
enum { FIRST_PART = 1, LAST_PART = 9 };

static bool (*const parts[])(struct openai_output *o, size_t enough, struct buf *out) = {
	begin,
	[FIRST_PART] = begin_choice,
	write_text,
	write_calls,
	write_logprobs,
	write_finish,
	write_token_ids,
	write_choice_prompt_ids,
	write_choice_prompt_logprobs,
	[LAST_PART] = end_choice,
	end_choices,
	write_body_prompt_ids,
	write_body_prompt_logprobs,
	end,
};

/* ---- bodies and chunks ---- */

void openai_body(struct openai_output *o, const struct openai_head *h,
		 const struct openai_choice *choices, size_t n, const struct ids *prompts,
		 size_t n_prompts, const struct openai_usage *u)
{
	*o = (struct openai_output){
		.head = h,
		.choices = choices,
		.n_choices = n,
		.prompts = prompts,
		.n_prompts = n_prompts,
		.usage = *u,
		.forms = 1u << CHOICE_WHOLE,
	};
}

void openai_chunks(struct openai_output *o, const struct openai_head *h,
		   const struct openai_delta *d, bool first, const struct ids *prompt)
{
	*o = (struct openai_output){.head = h, .prompts = prompt, .delta = *d};
	if (first && (h->shape->opens || h->return_token_ids))
		o->forms |= 1u << CHOICE_FIRST;
	o->call_first =
		first && h->shape->opens && has_calls(d) && !d->content_len && !d->reasoning_len;
	if (has_calls(d) && d->calls->n > o->call_first)
		o->forms |= 1u << CHOICE_CALL;
	/* The chunks with calls and with the finish reason have no text, but may have token ids. So a piece that has
	 * nothing but token ids beside these is not written as a chunk of its own. */
	if (d->echo_len || d->content_len || d->reasoning_len || list_bytes(d->echoed) ||
	    list_bytes(d->tokens) ||
	    (d->n_token_ids && !d->finish_reason && !(o->forms & 1u << CHOICE_CALL)))
		o->forms |= 1u << CHOICE_PIECE;
	if (d->finish_reason)
		o->forms |= 1u << CHOICE_LAST;
}

bool openai_write(struct openai_output *o, size_t enough, struct buf *out)
{
	if (o->head->shape->write)
		return o->head->shape->write(o, enough, out);
	while (o->forms && out->len < enough) {
		if (!parts[o->step](o, enough, out))
			continue;
		o->item = o->at = 0;
		if (o->step == LAST_PART && o->choice + 1 < o->n_choices) {
			o->choice++;
			o->step = FIRST_PART;
			o->call = o->call_at = 0;
		} else if (++o->step == ARRAY_SIZE(parts)) {
			if (form_of(o) != CHOICE_CALL || o->call == o->delta.calls->n)
				o->forms &= o->forms - 1;
			o->step = 0;
		}
	}
	return !o->forms;
}

/* ---- streams: a chunk is one JSON object behind "data: ", with an empty line after it ---- */

static const char done[] = "data: [DONE]\n\n";

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
