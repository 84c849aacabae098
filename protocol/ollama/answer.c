#include "protocol/ollama/answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/ollama/errors.h"
#include "protocol/ollama/timestamp.h"
#include "protocol/openai/response_internal.h"
#include "protocol/openai/segments.h"
#include "protocol/openai/writer.h"

/* The most bytes of each text of an answer. */
#define TEXT_MAX ((size_t)256 << 20)

struct ollama_answer {
	const struct openai_head *head;
	struct ollama_head own;
	/* of an answer that is no stream: its texts so far */
	struct buf content, thinking;
	/* the call that is being read, if `calling` is set; then n_calls counts it */
	bool calling;
	uint32_t n_calls;
	struct buf name, arguments;
	/* JSON, with commas between: complete calls, and the objects of tokens. Of a stream: those of the next line. */
	struct buf calls, logprobs;
	struct openai_cursor cursor;
	const char *finish; /* the reason that the choice has ended for; NULL: it has not */
	struct segments out;
};

struct ollama_answer *ollama_answer_new(const struct openai_head *h, const struct ollama_head *own)
{
	struct ollama_answer *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->head = h;
	a->own = *own;
	buf_init(&a->content, TEXT_MAX);
	buf_init(&a->thinking, TEXT_MAX);
	buf_init(&a->name, TEXT_MAX);
	buf_init(&a->arguments, TEXT_MAX);
	buf_init(&a->calls, SIZE_MAX / 2);
	buf_init(&a->logprobs, SIZE_MAX / 2);
	segments_init(&a->out);
	return a;
}

void ollama_answer_free(struct ollama_answer *a)
{
	if (!a)
		return;
	buf_release(&a->content);
	buf_release(&a->thinking);
	buf_release(&a->name);
	buf_release(&a->arguments);
	buf_release(&a->calls);
	buf_release(&a->logprobs);
	segments_release(&a->out);
	free(a);
}

size_t ollama_answer_bytes(const struct ollama_answer *a)
{
	return a->content.cap + a->thinking.cap + a->name.cap + a->arguments.cap + a->calls.cap +
	       a->logprobs.cap + segments_bytes(&a->out);
}

/* ---- lines ---- */

/* The texts of a line. */
struct texts {
	const char *content, *thinking;
	size_t content_len, thinking_len;
};

/* Writes {"model":…,"created_at":…, */
static void write_head(const struct ollama_head *own, uint64_t now_ns, struct buf *out)
{
	buf_puts(out, "{\"model\":");
	writer_string(out, own->model, strlen(own->model));
	buf_puts(out, ",\"created_at\":\"");
	timestamp_write(now_ns, out);
	buf_puts(out, "\",");
}

static void put_head(struct ollama_answer *a, uint64_t now_ns)
{
	const size_t before = a->out.json.len;

	write_head(&a->own, now_ns, &a->out.json);
	segments_appended(&a->out, before);
}

/* Adds the members of a line up to its texts, calls and log-probabilities. */
static void put_texts(struct ollama_answer *a, const struct texts *t, bool done)
{
	struct segments *s = &a->out;

	segments_printf(s, a->own.chat ? "\"message\":{\"role\":\"assistant\",\"content\":\""
				       : "\"response\":\"");
	segments_text(s, t->content, t->content_len);
	segments_printf(s, "\"");
	if (t->thinking_len) {
		segments_printf(s, ",\"thinking\":\"");
		segments_text(s, t->thinking, t->thinking_len);
		segments_printf(s, "\"");
	}
	if (a->calls.len) {
		segments_printf(s, ",\"tool_calls\":[");
		segments_json(s, buf_str(&a->calls), a->calls.len);
		segments_printf(s, "]");
	}
	segments_printf(s, "%s,\"done\":%s", a->own.chat ? "}" : "", done ? "true" : "false");
	if (a->logprobs.len) {
		segments_printf(s, ",\"logprobs\":[");
		segments_json(s, buf_str(&a->logprobs), a->logprobs.len);
		segments_printf(s, "]");
	}
}

/* ---- calls and tokens ---- */

/* Appends JSON that may stand in a line: the line ends between its values become blanks. */
static void append_json(struct buf *out, const char *json, size_t len)
{
	const size_t from = out->len;

	buf_append(out, json, len);
	for (size_t i = from; i < out->len; i++)
		if (out->data[i] == '\n' || out->data[i] == '\r')
			out->data[i] = ' ';
}

/* Ends the call that is being read, if there is one. */
static void close_call(struct ollama_answer *a, bool cut)
{
	char id[CALL_ID_MAX];

	if (!a->calling)
		return;
	a->calling = false;
	openai_call_id("call_", a->head->id, 0, a->n_calls - 1, a->head->brief_call_ids, id);
	buf_printf(&a->calls, "%s{\"id\":\"%s\",\"function\":{\"index\":%" PRIu32 ",\"name\":",
		   a->calls.len ? "," : "", id, a->n_calls - 1);
	writer_string(&a->calls, buf_str(&a->name), a->name.len);
	buf_puts(&a->calls, ",\"arguments\":");
	if (cut || !a->arguments.len)
		buf_puts(&a->calls, "{}");
	else
		append_json(&a->calls, buf_str(&a->arguments), a->arguments.len);
	buf_puts(&a->calls, "}}");
	a->calls.failed |= a->name.failed || a->arguments.failed;
}

/* Reads pieces of calls. A call is complete when the next one begins, when a piece of the choice has none of it, or
 * when the choice has ended. */
static void take_calls(struct ollama_answer *a, const struct openai_delta *d)
{
	const struct openai_calls *calls = d->calls;
	const char *text = calls ? buf_str(&calls->text) : "";
	const size_t n = calls ? calls->n : 0;

	if (!n && (d->content_len || d->reasoning_len))
		close_call(a, calls && calls->cut);
	for (size_t i = 0; i < n; text += calls->v[i++].len) {
		const struct openai_call_piece *p = &calls->v[i];

		if (!p->begins) {
			buf_append(&a->arguments, text, p->len);
			continue;
		}
		close_call(a, p->cut_last);
		a->calling = true;
		a->n_calls++;
		buf_reset(&a->name);
		buf_reset(&a->arguments);
		buf_append(&a->name, text, p->len);
	}
	if (d->finish_reason)
		close_call(a, calls && calls->cut);
}

static void take_tokens(struct ollama_answer *a, const struct openai_delta *d)
{
	struct openai_token token;
	size_t at = 0;

	while (openai_tokens_next(d->tokens, &at, &token)) {
		const struct openai_cursor before = a->cursor;
		const bool last = d->finish_reason && at == d->tokens->bytes.len;
		const struct openai_place place = {&token, &before, last};

		if (a->logprobs.len)
			buf_putc(&a->logprobs, ',');
		logprobs_pass(a->head, &token, last, &a->cursor);
		logprobs_chat_item(a->head, &place, &a->logprobs);
	}
}

static int result(const struct ollama_answer *a)
{
	return a->content.failed || a->thinking.failed || a->name.failed || a->arguments.failed ||
			       a->calls.failed || a->logprobs.failed || a->out.failed
		       ? -ENOMEM
		       : 0;
}

int ollama_answer_take(struct ollama_answer *a, const struct openai_delta *d, uint64_t now_ns)
{
	const struct texts texts = {d->content, d->reasoning, d->content_len, d->reasoning_len};

	if (a->own.stream) {
		buf_reset(&a->calls);
		buf_reset(&a->logprobs);
	}
	take_calls(a, d);
	if (a->head->logprobs && d->tokens)
		take_tokens(a, d);
	a->finish = d->finish_reason;
	if (!a->own.stream) {
		buf_append(&a->content, d->content, d->content_len);
		buf_append(&a->thinking, d->reasoning, d->reasoning_len);
	} else if (d->content_len || d->reasoning_len || a->calls.len || a->logprobs.len) {
		put_head(a, now_ns);
		put_texts(a, &texts, false);
		segments_printf(&a->out, "}\n");
	}
	return result(a);
}

int ollama_answer_end(struct ollama_answer *a, const struct openai_usage *u,
		      const struct ollama_times *t, uint64_t now_ns)
{
	const struct texts texts = {buf_str(&a->content), buf_str(&a->thinking), a->content.len,
				    a->thinking.len};

	if (a->own.stream) {
		buf_reset(&a->calls);
		buf_reset(&a->logprobs);
	}
	put_head(a, now_ns);
	put_texts(a, &texts, true);
	segments_printf(&a->out,
			",\"done_reason\":\"%s\",\"total_duration\":%" PRIu64
			",\"load_duration\":%" PRIu64 ",\"prompt_eval_count\":%" PRIu32
			",\"prompt_eval_duration\":%" PRIu64 ",\"eval_count\":%" PRIu32
			",\"eval_duration\":%" PRIu64 "}%s",
			a->finish && !strcmp(a->finish, "length") ? "length" : "stop", t->total,
			t->load, u->prompt_tokens, t->prompt, u->completion_tokens, t->answer,
			a->own.stream ? "\n" : "");
	return result(a);
}

int ollama_answer_fail(struct ollama_answer *a, const struct err *e)
{
	size_t before;

	segments_clear(&a->out);
	before = a->out.json.len;
	ollama_stream_error(e, &a->out.json);
	segments_appended(&a->out, before);
	return a->out.failed ? -ENOMEM : 0;
}

bool ollama_answer_write(struct ollama_answer *a, size_t enough, struct buf *out)
{
	return segments_write(&a->out, enough, out);
}

/* ---- without an answer ---- */

void ollama_body_errand(const struct ollama_head *own, const char *errand, uint64_t now_ns,
			struct buf *out)
{
	write_head(own, now_ns, out);
	buf_puts(out, own->chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"\"}"
				: "\"response\":\"\"");
	buf_printf(out, ",\"done\":true,\"done_reason\":\"%s\"}", errand);
}

void ollama_stream_blank(struct buf *out)
{
	buf_putc(out, ' ');
}

void ollama_stream_error(const struct err *e, struct buf *out)
{
	ollama_error(e, out);
	buf_putc(out, '\n');
}
