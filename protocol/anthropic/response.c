#include "protocol/anthropic/response.h"

#include <inttypes.h>
#include <string.h>

#include "base/macros.h"
#include "protocol/anthropic/errors.h"
#include "protocol/openai/response_internal.h"
#include "protocol/openai/writer.h"

enum {
	SLICE = 4 << 10
}; /* the most bytes of a text that are written at once, but for the rest of a character */

/* ---- common to whole messages and streams ---- */

/* The words for blocks of text. `delta`: the type of a stream's piece of it, and the member with the text. */
static const struct {
	const char *block, *delta, *member;
} texts[] = {
	[KIND_CONTENT] = {"text", "text_delta", "text"},
	[KIND_REASONING] = {"thinking", "thinking_delta", "thinking"},
};

static const char *text_of(const struct openai_delta *d, enum openai_kind kind)
{
	return kind == KIND_CONTENT ? d->content : d->reasoning;
}

static const char *stop_reason(const struct openai_delta *d)
{
	if (!strcmp(d->finish_reason, "tool_calls"))
		return "tool_use";
	if (!strcmp(d->finish_reason, "length"))
		return d->clamped ? "model_context_window_exceeded" : "max_tokens";
	return d->stop ? "stop_sequence" : "end_turn";
}

/* "stop_reason":…,"stop_sequence":…; reason NULL: null */
static void write_stop(const char *reason, const char *stop, struct buf *out)
{
	buf_puts(out, "\"stop_reason\":");
	writer_nullable(out, reason);
	buf_puts(out, ",\"stop_sequence\":");
	writer_nullable(out, reason && !strcmp(reason, "stop_sequence") ? stop : NULL);
}

static void write_usage(const struct openai_usage *u, struct buf *out)
{
	buf_printf(out,
		   "\"usage\":{\"input_tokens\":%" PRIu32
		   ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%" PRIu32
		   ",\"output_tokens\":%" PRIu32
		   ",\"output_tokens_details\":{\"thinking_tokens\":%" PRIu32 "}}",
		   u->prompt_tokens - u->cached_tokens, u->cached_tokens, u->completion_tokens,
		   u->reasoning_tokens);
}

/* Writes that no edit of context_management was made, if the request asks for any: a client then knows that its
 * conversation was read whole. */
static void write_edits(const struct openai_head *h, struct buf *out)
{
	if (h->wants_edits)
		buf_puts(out, ",\"context_management\":{\"applied_edits\":[]}");
}

/* {"id":…,"type":"message","role":"assistant","model":…,"content":[ */
static void write_head(const struct openai_head *h, struct buf *out)
{
	buf_puts(out, "{\"id\":");
	writer_string(out, h->id, strlen(h->id));
	buf_puts(out, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
	writer_string(out, h->model, strlen(h->model));
	buf_puts(out, ",\"content\":[");
}

/* {"type":"tool_use","id":…,"name":…,"input": */
static void write_call(const struct openai_output *o, const struct openai_call_piece *p,
		       struct buf *out)
{
	const struct openai_delta *d = o->choices ? &o->choices[0].all : &o->delta;
	char id[CALL_ID_MAX];

	openai_call_id("toolu_", o->head->id, d->index, p->call, o->head->brief_call_ids, id);
	buf_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", id);
	writer_string(out, buf_str(&d->calls->text) + o->call_at, p->len);
	buf_puts(out, ",\"input\":");
}

/* Moves on behind the piece of the calls that is written. */
static void next_piece(struct openai_output *o, const struct openai_call_piece *p)
{
	o->call++;
	o->call_at += p->len;
	o->item++;
	o->at = 0;
}

/* ---- a stream: events ---- */

static void begin_event(const char *name, struct buf *out)
{
	buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void begin_block_event(const char *name, uint32_t block, struct buf *out)
{
	begin_event(name, out);
	buf_printf(out, ",\"index\":%" PRIu32, block);
}

static void end_event(struct buf *out)
{
	buf_puts(out, "}\n\n");
}

static void write_start(const struct openai_head *h, struct buf *out)
{
	begin_event("message_start", out);
	buf_puts(out, ",\"message\":");
	write_head(h, out);
	buf_puts(out, "],");
	write_stop(NULL, NULL, out);
	buf_putc(out, ',');
	write_usage(h->so_far, out);
	buf_putc(out, '}');
	end_event(out);
}

/* Writes content_block_delta, whose text is escaped. */
static void write_delta(uint32_t block, const char *type, const char *member, const char *text,
			size_t len, struct buf *out)
{
	begin_block_event("content_block_delta", block, out);
	buf_printf(out, ",\"delta\":{\"type\":\"%s\",\"%s\":\"", type, member);
	writer_escaped(out, text, len);
	buf_puts(out, "\"}");
	end_event(out);
}

/* Ends the block that is open, if one is. */
static void close_block(const struct openai_head *h, struct buf *out)
{
	struct openai_blocks *b = h->blocks;

	if (b->open == KIND_REASONING)
		write_delta(b->n - 1, "signature_delta", "signature", h->id, strlen(h->id), out);
	if (b->open) {
		begin_block_event("content_block_stop", b->n - 1, out);
		end_event(out);
	}
	b->open = KIND_NONE;
}

static void begin_block(const struct openai_head *h, enum openai_kind kind, struct buf *out)
{
	close_block(h, out);
	h->blocks->open = kind;
	begin_block_event("content_block_start", h->blocks->n++, out);
	buf_puts(out, ",\"content_block\":");
}

/* Returns the number of bytes that an escape sequence of JSON has, together with a second one that completes its
 * surrogate pair. */
static size_t escape_bytes(const char *text, size_t len)
{
	bool unit = len >= 6 && text[1] == 'u', high;

	if (!unit)
		return MIN(len, (size_t)2);
	high = memchr("dD", text[2], 2) && memchr("89abAB", text[3], 6);
	return high && len >= 12 && text[6] == '\\' && text[7] == 'u' ? 12 : 6;
}

/* Returns the number of bytes of the next slice of a text: at most SLICE, and the rest of a character or, in JSON, of
 * an escape sequence in which these end. */
static size_t slice(const char *text, size_t len, bool json)
{
	size_t i = 0;

	while (i < len && (i < SLICE || ((unsigned char)text[i] & 0xc0) == 0x80))
		i += json && text[i] == '\\' ? escape_bytes(text + i, len - i) : 1;
	return i;
}

/* Writes one event, or two, of the run that is written. True: the run is written. */
static bool write_run(struct openai_output *o, const struct openai_run *run, struct buf *out)
{
	const struct openai_head *h = o->head;
	const struct openai_call_piece *p;
	const char *text;
	size_t n;

	if (run->kind != KIND_CALLS) {
		if (h->blocks->open != run->kind) {
			begin_block(h, run->kind, out);
			buf_printf(out, "{\"type\":\"%s\",\"%s\":\"\"%s}", texts[run->kind].block,
				   texts[run->kind].member,
				   run->kind == KIND_REASONING ? ",\"signature\":\"\"" : "");
			end_event(out);
		}
		text = text_of(&o->delta, run->kind) + o->behind[run->kind];
		n = slice(text, run->len - o->at, false);
		write_delta(h->blocks->n - 1, texts[run->kind].delta, texts[run->kind].member, text,
			    n, out);
		o->behind[run->kind] += n;
		o->at += n;
		return o->at == run->len;
	}
	p = &o->delta.calls->v[o->call];
	if (p->begins) {
		begin_block(h, KIND_CALLS, out);
		write_call(o, p, out);
		buf_puts(out, "{}}");
		end_event(out);
		o->at = p->len;
	} else {
		text = buf_str(&o->delta.calls->text) + o->call_at + o->at;
		n = slice(text, p->len - o->at, true);
		write_delta(h->blocks->n - 1, "input_json_delta", "partial_json", text, n, out);
		o->at += n;
	}
	if (o->at == p->len)
		next_piece(o, p);
	return o->item == run->len;
}

/* Writes some events. True: all are written. */
static bool write_events(struct openai_output *o, struct buf *out)
{
	const struct openai_delta *d = &o->delta;

	if (o->forms & 1) {
		write_start(o->head, out);
		o->forms &= ~1u;
	} else if (d->runs && o->step < d->runs->n) {
		if (write_run(o, &d->runs->v[o->step], out)) {
			o->step++;
			o->item = o->at = 0;
		}
	} else if (d->finish_reason) {
		close_block(o->head, out);
		o->head->blocks->stop_reason = stop_reason(d);
		o->head->blocks->stop = d->stop;
		return true;
	} else {
		return true;
	}
	return false;
}

/* ---- a whole message ---- */

/* Writes some of a block with a text. True: the block is written. */
static bool write_text(struct openai_output *o, const struct openai_run *run, struct buf *out)
{
	const char *text = text_of(&o->choices[0].all, run->kind) + o->behind[run->kind];
	size_t n;

	if (!o->at) {
		if (o->step)
			buf_putc(out, ',');
		buf_printf(out, "{\"type\":\"%s\",\"%s\":\"", texts[run->kind].block,
			   texts[run->kind].member);
	}
	n = writer_escaped_part(out, text, run->len - o->at, SLICE);
	o->behind[run->kind] += n;
	o->at += n;
	if (o->at < run->len)
		return false;
	buf_putc(out, '"');
	if (run->kind == KIND_REASONING) {
		buf_puts(out, ",\"signature\":");
		writer_string(out, o->head->id, strlen(o->head->id));
	}
	buf_putc(out, '}');
	return true;
}

/* Writes a call's name, or some of its arguments, which are JSON as they stand. True: the run is written. */
static bool write_piece(struct openai_output *o, const struct openai_run *run, struct buf *out)
{
	const struct openai_calls *calls = o->choices[0].all.calls;
	const struct openai_call_piece *p = &calls->v[o->call];
	bool last;
	size_t n;

	if (p->begins) {
		if (o->step || o->item)
			buf_putc(out, ',');
		write_call(o, p, out);
		o->call_cut = p->cut; /* its arguments are left out */
		o->at = p->len;
	} else {
		n = MIN(p->len - o->at, (size_t)SLICE);
		if (!o->call_cut)
			buf_append(out, buf_str(&calls->text) + o->call_at + o->at, n);
		o->at += n;
	}
	if (o->at < p->len)
		return false;
	last = o->item + 1 == run->len || calls->v[o->call + 1].begins;
	if (last && (p->begins || o->call_cut))
		buf_puts(out, "{}");
	if (last)
		buf_putc(out, '}');
	next_piece(o, p);
	return o->item == run->len;
}

/* Writes some of a whole message. True: all is written. */
static bool write_message(struct openai_output *o, struct buf *out)
{
	const struct openai_delta *d = &o->choices[0].all;
	const struct openai_run *run;

	if (o->forms & 1) {
		write_head(o->head, out);
		o->forms &= ~1u;
		return false;
	}
	if (d->runs && o->step < d->runs->n) {
		run = &d->runs->v[o->step];
		if (run->kind == KIND_CALLS ? write_piece(o, run, out) : write_text(o, run, out)) {
			o->step++;
			o->item = o->at = 0;
		}
		return false;
	}
	buf_puts(out, "],");
	write_stop(stop_reason(d), d->stop, out);
	buf_putc(out, ',');
	write_usage(&o->usage, out);
	write_edits(o->head, out);
	buf_putc(out, '}');
	return true;
}

/* ---- both ---- */

/* forms: bit 0, the beginning is not written yet; bit 1, there is more to write. */
static bool write(struct openai_output *o, size_t enough, struct buf *out)
{
	while (o->forms && out->len < enough)
		if (o->choices ? write_message(o, out) : write_events(o, out))
			o->forms = 0;
	return !o->forms;
}

const struct openai_shape anthropic_message = {.write = write};

void anthropic_body(struct openai_output *o, const struct openai_head *h,
		    const struct openai_choice *choices, size_t n, const struct ids *prompts,
		    size_t n_prompts, const struct openai_usage *u)
{
	*o = (struct openai_output){
		.head = h, .choices = choices, .n_choices = 1, .usage = *u, .forms = 3};
}

void anthropic_chunks(struct openai_output *o, const struct openai_head *h,
		      const struct openai_delta *d, bool first, const struct ids *prompt)
{
	*o = (struct openai_output){.head = h, .delta = *d, .forms = first ? 3 : 2};
}

void anthropic_stream_end(const struct openai_head *h, const struct openai_usage *u,
			  struct buf *out)
{
	begin_event("message_delta", out);
	buf_puts(out, ",\"delta\":{");
	write_stop(h->blocks->stop_reason, h->blocks->stop, out);
	buf_puts(out, "},");
	write_usage(u, out);
	write_edits(h, out);
	end_event(out);
	begin_event("message_stop", out);
	end_event(out);
}

void anthropic_stream_error(const struct err *e, struct buf *out)
{
	buf_puts(out, "event: error\ndata: ");
	anthropic_error(e, out);
	buf_puts(out, "\n\n");
}

void anthropic_stream_ping(struct buf *out)
{
	begin_event("ping", out);
	end_event(out);
}
