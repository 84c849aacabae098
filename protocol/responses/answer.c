#include "protocol/responses/answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/problem.h"
#include "protocol/openai/response_internal.h"
#include "protocol/openai/segments.h"
#include "protocol/openai/writer.h"
#include "protocol/responses/request.h"

/* The most bytes of each text of an item. */
enum { TEXT_MAX = 256 << 20 };

enum kind { REASONING, MESSAGE, CALL };

/* How the kinds are named: in ids, and in the events of their texts. */
static const struct {
	const char *prefix, *delta, *part;
} kinds[] = {
	[REASONING] = {"rs_", "reasoning_text", "reasoning_text"},
	[MESSAGE] = {"msg_", "output_text", "output_text"},
	[CALL] = {"fc_", "function_call_arguments", NULL},
};

struct item {
	enum kind kind;
	uint32_t call;	 /* of a call: its number in the answer */
	struct buf name; /* of a call */
	struct buf text; /* reasoning, content or arguments */
	struct buf
		logprobs; /* of a message: the objects of its tokens, as JSON with commas between */
};

struct responses_answer {
	const struct openai_head *head;
	struct responses_head own;
	struct item *items; /* [n] */
	size_t n, cap;
	bool open; /* the last item goes on */
	uint32_t n_calls;
	uint64_t sequence,
		written; /* the numbers of the next event, and of the first that is not written */
	struct openai_cursor cursor;
	size_t untold;	    /* bytes of content whose tokens are still to come */
	const char *finish; /* the reason that the choice has ended for; NULL: it has not */
	bool failed;	    /* responses_answer_fail was called */
	struct openai_usage usage;
	struct segments out;
};

static bool incomplete(const struct responses_answer *a)
{
	return a->finish && !strcmp(a->finish, "length");
}

/* ---- JSON ---- */

static void put_id(struct responses_answer *a, struct segments *s, size_t index)
{
	const struct item *it = &a->items[index];
	char id[CALL_ID_MAX];

	/* Calls have the ids of choice 0, so those of choice 1 are free. Behind "call_" come letters and digits. */
	openai_call_id("call_", a->head->id, 1, (uint32_t)index, false, id);
	segments_printf(s, "%s%s", kinds[it->kind].prefix, strchr(id, '_') + 1);
}

static void put_call_id(struct responses_answer *a, struct segments *s, const struct item *it)
{
	char id[CALL_ID_MAX];

	openai_call_id("call_", a->head->id, 0, it->call, a->head->brief_call_ids, id);
	segments_printf(s, "%s", id);
}

static void put_buf(struct segments *s, const struct buf *b)
{
	segments_text(s, buf_str(b), b->len);
}

/* The part of a message or of reasoning, with its text or, at its beginning, without. */
static void put_part(struct responses_answer *a, struct segments *s, const struct item *it,
		     bool begun)
{
	segments_printf(s, "{\"type\":\"%s\"", kinds[it->kind].part);
	if (it->kind == MESSAGE) {
		segments_printf(s, ",\"annotations\":[],\"logprobs\":[");
		if (!begun)
			segments_json(s, buf_str(&it->logprobs), it->logprobs.len);
		segments_printf(s, "]");
	}
	segments_printf(s, ",\"text\":\"");
	if (!begun)
		put_buf(s, &it->text);
	segments_printf(s, "\"}");
}

static void put_call(struct responses_answer *a, struct segments *s, const struct item *it,
		     bool begun)
{
	segments_printf(s, ",\"type\":\"function_call\",\"call_id\":\"");
	put_call_id(a, s, it);
	segments_printf(s, "\",\"name\":\"");
	put_buf(s, &it->name);
	segments_printf(s, "\",\"arguments\":\"");
	if (!begun)
		put_buf(s, &it->text);
	segments_printf(s, "\"}");
}

/* An item as a whole; begun: as it is when it begins, without its text. */
static void put_item(struct responses_answer *a, struct segments *s, size_t index, bool begun)
{
	const struct item *it = &a->items[index];
	const bool cut = (incomplete(a) || a->failed) && index + 1 == a->n;

	segments_printf(s, "{\"id\":\"");
	put_id(a, s, index);
	segments_printf(s, "\",\"status\":\"%s\"",
			begun ? "in_progress"
			: cut ? "incomplete"
			      : "completed");
	if (it->kind == CALL) {
		put_call(a, s, it, begun);
		return;
	}
	if (it->kind == MESSAGE) {
		segments_printf(s, ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
	} else {
		segments_printf(s, ",\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":");
		if (a->own.encrypted && !begun) {
			segments_printf(s, "\"" RESPONSES_REASONING);
			put_buf(s, &it->text);
			segments_printf(s, "\"");
		} else {
			segments_printf(s, "null");
		}
		segments_printf(s, ",\"content\":[");
	}
	if (!begun)
		put_part(a, s, it, false);
	segments_printf(s, "]}");
}

/* The response's members before its items. status: "in_progress", "completed", "failed", ... */
static void put_head(struct responses_answer *a, struct segments *s, const char *status,
		     const struct err *e)
{
	const struct openai_head *h = a->head;
	size_t before;

	segments_printf(s,
			"{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64
			",\"status\":\"%s\"",
			h->id, h->created, status);
	segments_printf(s, ",\"background\":false,\"error\":");
	before = s->json.len;
	if (e) {
		buf_printf(&s->json, "{\"code\":\"%s\",\"message\":",
			   openai_error_cause(openai_error_number(e->code)));
		writer_string(&s->json, e->text, strlen(e->text));
		buf_putc(&s->json, '}');
	} else {
		buf_puts(&s->json, "null");
	}
	buf_puts(&s->json, ",\"incomplete_details\":");
	buf_puts(&s->json, incomplete(a) && !e ? "{\"reason\":\"max_output_tokens\"}" : "null");
	buf_puts(&s->json, ",\"model\":");
	writer_string(&s->json, h->model, strlen(h->model));
	buf_putc(&s->json, ',');
	segments_appended(s, before);
	segments_json(s, a->own.fields, a->own.fields_len);
	segments_printf(s, ",\"output\":[");
}

static void put_items(struct responses_answer *a, struct segments *s)
{
	for (size_t i = 0; i < a->n; i++) {
		if (i)
			segments_printf(s, ",");
		put_item(a, s, i, false);
	}
}

/* The members behind the items. u NULL: the usage is not known yet. */
static void put_tail(struct segments *s, const struct openai_usage *u)
{
	if (!u) {
		segments_printf(s, "],\"usage\":null}");
		return;
	}
	segments_printf(s,
			"],\"usage\":{\"input_tokens\":%" PRIu32
			",\"input_tokens_details\":{\"cached_tokens\":%" PRIu32
			",\"cache_write_tokens\":0},\"output_tokens\":%" PRIu32
			",\"output_tokens_details\":{\"reasoning_tokens\":%" PRIu32
			"},\"total_tokens\":%" PRIu64 "}}",
			u->prompt_tokens, u->cached_tokens, u->completion_tokens,
			u->reasoning_tokens, (uint64_t)u->prompt_tokens + u->completion_tokens);
}

/* ---- events ---- */

/* Begins an event: event: TYPE, data: {"type":TYPE,"sequence_number":N */
static void begin_event(struct responses_answer *a, const char *family, const char *type)
{
	segments_printf(&a->out,
			"event: %s%s\ndata: {\"type\":\"%s%s\",\"sequence_number\":%" PRIu64,
			family, type, family, type, a->sequence++);
}

static void end_event(struct responses_answer *a)
{
	segments_printf(&a->out, "}\n\n");
}

/* Begins an event of the last item's text: also its id and place. */
static void begin_text_event(struct responses_answer *a, const char *family, const char *type)
{
	begin_event(a, family, type);
	segments_printf(&a->out, ",\"item_id\":\"");
	put_id(a, &a->out, a->n - 1);
	segments_printf(&a->out, "\",\"output_index\":%zu", a->n - 1);
	if (a->items[a->n - 1].kind != CALL)
		segments_printf(&a->out, ",\"content_index\":0");
}

static void item_event(struct responses_answer *a, const char *type, bool begun)
{
	begin_event(a, "response.output_item.", type);
	segments_printf(&a->out, ",\"output_index\":%zu,\"item\":", a->n - 1);
	put_item(a, &a->out, a->n - 1, begun);
	end_event(a);
}

static void part_event(struct responses_answer *a, const char *type, bool begun)
{
	begin_text_event(a, "response.content_part.", type);
	segments_printf(&a->out, ",\"part\":");
	put_part(a, &a->out, &a->items[a->n - 1], begun);
	end_event(a);
}

/* Begins "response.output_text.delta" and its like. */
static void begin_kind_event(struct responses_answer *a, const char *type)
{
	char family[48];

	snprintf(family, sizeof(family), "response.%s.", kinds[a->items[a->n - 1].kind].delta);
	begin_text_event(a, family, type);
}

static void delta_event(struct responses_answer *a, const char *text, size_t len,
			const struct buf *logprobs, size_t from)
{
	begin_kind_event(a, "delta");
	if (a->items[a->n - 1].kind == MESSAGE) {
		size_t before = a->out.json.len;

		buf_puts(&a->out.json, ",\"logprobs\":[");
		buf_append(&a->out.json, buf_str(logprobs) + from, logprobs->len - from);
		buf_putc(&a->out.json, ']');
		segments_appended(&a->out, before);
	}
	segments_printf(&a->out, ",\"delta\":\"");
	segments_text(&a->out, text, len);
	segments_printf(&a->out, "\"");
	end_event(a);
}

static void done_event(struct responses_answer *a)
{
	const struct item *it = &a->items[a->n - 1];

	begin_kind_event(a, "done");
	if (it->kind == CALL) {
		segments_printf(&a->out, ",\"name\":\"");
		put_buf(&a->out, &it->name);
		segments_printf(&a->out, "\",\"arguments\":\"");
	} else if (it->kind == MESSAGE) {
		segments_printf(&a->out, ",\"logprobs\":[");
		segments_json(&a->out, buf_str(&it->logprobs), it->logprobs.len);
		segments_printf(&a->out, "],\"text\":\"");
	} else {
		segments_printf(&a->out, ",\"text\":\"");
	}
	put_buf(&a->out, &it->text);
	segments_printf(&a->out, "\"");
	end_event(a);
}

/* "response.completed" and its like, with the whole response. */
static void response_event(struct responses_answer *a, const char *type, const char *status,
			   const struct openai_usage *u, const struct err *e)
{
	begin_event(a, "response.", type);
	segments_printf(&a->out, ",\"response\":");
	put_head(a, &a->out, status, e);
	put_items(a, &a->out);
	put_tail(&a->out, u);
	end_event(a);
}

/* ---- items ---- */

static void close_item(struct responses_answer *a)
{
	if (!a->open)
		return;
	a->open = false;
	if (!a->own.stream)
		return;
	done_event(a);
	if (a->items[a->n - 1].kind != CALL)
		part_event(a, "done", false);
	item_event(a, "done", false);
}

static int open_item(struct responses_answer *a, enum kind kind, const char *name, size_t len)
{
	struct item *it;

	close_item(a);
	if (!array_grow(a->items, a->cap, a->n + 1))
		return -ENOMEM;
	it = &a->items[a->n++];
	*it = (struct item){.kind = kind};
	buf_init(&it->name, TEXT_MAX);
	buf_init(&it->text, TEXT_MAX);
	buf_init(&it->logprobs, SIZE_MAX / 2);
	if (kind == CALL) {
		it->call = a->n_calls++;
		buf_append(&it->name, name, len);
	}
	a->open = true;
	if (a->own.stream) {
		item_event(a, "added", true);
		if (kind != CALL)
			part_event(a, "added", true);
	}
	return it->name.failed ? -ENOMEM : 0;
}

/* Appends a text to the item that is open, or to a new one if that is of another kind. */
static int add_text(struct responses_answer *a, enum kind kind, const char *text, size_t len)
{
	struct item *it;

	if (!a->open || a->items[a->n - 1].kind != kind)
		if (open_item(a, kind, "", 0) < 0)
			return -ENOMEM;
	it = &a->items[a->n - 1];
	buf_append(&it->text, text, len);
	if (a->own.stream && len && kind != MESSAGE)
		delta_event(a, text, len, NULL, 0);
	return it->text.failed ? -ENOMEM : 0;
}

/* Returns the last message; NULL: there is none. */
static struct item *last_message(const struct responses_answer *a)
{
	for (size_t i = a->n; i;)
		if (a->items[--i].kind == MESSAGE)
			return &a->items[i];
	return NULL;
}

/* A piece of the choice, and how much of it the items have. */
struct piece {
	const struct openai_delta *d;
	size_t content, reasoning, calls_text; /* bytes */
	size_t call, token;	/* pieces of calls; the place in the list of tokens */
	size_t runs_of_content; /* that are still to come */
};

/* Appends to the last message the log-probabilities of the tokens that end in its text; all: of all tokens. Where bytes
 * were dropped or replaced by U+FFFD, tokens may come to a neighbouring message of the same piece. */
static void add_tokens(struct responses_answer *a, struct item *it, struct piece *p, bool all)
{
	struct openai_token token;
	size_t next = p->token, n;

	while (openai_tokens_next(p->d->tokens, &next, &token)) {
		const struct openai_cursor before = a->cursor;
		const bool last = p->d->finish_reason && next == p->d->tokens->bytes.len;
		const struct openai_place place = {&token, &before, last};

		tokenizer_bytes(a->head->tokenizer, token.draw.token, &n);
		n -= MIN(n, token.cut);
		if (!all && n > a->untold)
			return;
		a->untold -= MIN(n, a->untold);
		if (it->logprobs.len)
			buf_putc(&it->logprobs, ',');
		logprobs_pass(a->head, &token, last, &a->cursor);
		logprobs_chat_item(a->head, &place, &it->logprobs);
		p->token = next;
	}
}

/* Adds content, which may be empty, with the tokens that end in it. Tokens may come later than their text, behind the
 * end of their message: then only the response has them, and no event. */
static int add_content(struct responses_answer *a, struct piece *p, size_t len)
{
	const bool tokens = a->head->logprobs && p->d->tokens && p->d->tokens->n;
	const char *text =
		len ? p->d->content + p->content : ""; /* a piece without text may have NULL */
	struct item *it;
	size_t from;

	if (len && add_text(a, MESSAGE, text, len) < 0)
		return -ENOMEM;
	p->content += len;
	a->untold += len;
	it = last_message(a);
	if (!it)
		return 0;
	from = it->logprobs.len;
	if (tokens)
		add_tokens(a, it, p, !p->runs_of_content);
	if (a->own.stream && a->open && it == &a->items[a->n - 1] &&
	    (len || it->logprobs.len > from))
		delta_event(a, text, len, &it->logprobs,
			    from && it->logprobs.len > from ? from + 1 /* the comma */ : from);
	return it->logprobs.failed ? -ENOMEM : 0;
}

static int add_calls(struct responses_answer *a, struct piece *p, size_t n)
{
	const struct openai_calls *calls = p->d->calls;
	int r = 0;

	for (const size_t end = p->call + n; !r && p->call < end; p->call++) {
		const struct openai_call_piece *c = &calls->v[p->call];
		const char *text = buf_str(&calls->text) + p->calls_text;

		if (c->begins)
			r = open_item(a, CALL, text, c->len);
		else
			r = add_text(a, CALL, text, c->len);
		p->calls_text += c->len;
	}
	return r;
}

static int add_run(struct responses_answer *a, struct piece *p, const struct openai_run *run)
{
	int r;

	switch (run->kind) {
	case KIND_CONTENT: p->runs_of_content--; return add_content(a, p, run->len);
	case KIND_CALLS: return add_calls(a, p, run->len);
	default:
		r = add_text(a, REASONING, p->d->reasoning + p->reasoning, run->len);
		p->reasoning += run->len;
		return r;
	}
}

/* ---- the answer ---- */

struct responses_answer *responses_answer_new(const struct openai_head *h,
					      const struct responses_head *head)
{
	struct responses_answer *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->head = h;
	a->own = *head;
	segments_init(&a->out);
	if (a->own.stream) {
		response_event(a, "created", "in_progress", NULL, NULL);
		response_event(a, "in_progress", "in_progress", NULL, NULL);
	}
	if (a->out.failed) {
		responses_answer_free(a);
		return NULL;
	}
	return a;
}

void responses_answer_free(struct responses_answer *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < a->n; i++) {
		buf_release(&a->items[i].name);
		buf_release(&a->items[i].text);
		buf_release(&a->items[i].logprobs);
	}
	free(a->items);
	segments_release(&a->out);
	free(a);
}

int responses_answer_take(struct responses_answer *a, const struct openai_delta *d)
{
	struct piece p = {.d = d};
	int r;

	for (size_t i = 0; i < d->runs->n; i++)
		p.runs_of_content += d->runs->v[i].kind == KIND_CONTENT;
	/* Tokens whose text came before are those of the last message. */
	r = add_content(a, &p, 0);
	for (size_t i = 0; !r && i < d->runs->n; i++)
		r = add_run(a, &p, &d->runs->v[i]);
	/* From here on the last item may be an incomplete one. */
	a->finish = d->finish_reason;
	/* Clients look for a text. */
	if (!r && d->finish_reason && !incomplete(a) && !a->n_calls && !last_message(a))
		r = open_item(a, MESSAGE, "", 0);
	if (!r && d->finish_reason)
		close_item(a);
	return r || a->out.failed ? -ENOMEM : 0;
}

int responses_answer_end(struct responses_answer *a, const struct openai_usage *u)
{
	const char *status = incomplete(a) ? "incomplete" : "completed";

	a->usage = *u;
	if (a->own.stream) {
		response_event(a, status, status, u, NULL);
	} else {
		put_head(a, &a->out, status, NULL);
		put_items(a, &a->out);
		put_tail(&a->out, u);
	}
	return a->out.failed ? -ENOMEM : 0;
}

int responses_answer_fail(struct responses_answer *a, const struct err *e)
{
	const size_t number = openai_error_number(e->code);
	size_t before;

	segments_clear(&a->out);
	a->sequence = a->written;
	a->failed = true;
	begin_event(a, "", "error");
	before = a->out.json.len;
	buf_printf(&a->out.json, ",\"code\":\"%s\",\"message\":", openai_error_cause(number));
	writer_string(&a->out.json, e->text, strlen(e->text));
	buf_puts(&a->out.json, ",\"param\":");
	writer_nullable(&a->out.json, e->param[0] ? e->param : NULL);
	segments_appended(&a->out, before);
	end_event(a);
	response_event(a, "failed", e->code == PROBLEM_ABORTED ? "cancelled" : "failed", NULL, e);
	return a->out.failed ? -ENOMEM : 0;
}

bool responses_answer_write(struct responses_answer *a, size_t enough, struct buf *out)
{
	if (!segments_write(&a->out, enough, out))
		return false;
	a->written = a->sequence;
	return true;
}

size_t responses_answer_bytes(const struct responses_answer *a)
{
	size_t n = segments_bytes(&a->out) + a->cap * sizeof(*a->items);

	for (size_t i = 0; i < a->n; i++)
		n += a->items[i].name.cap + a->items[i].text.cap + a->items[i].logprobs.cap;
	return n;
}

void responses_answer_parts(struct responses_answer *a, struct buf *head, struct buf *items,
			    struct buf *tail)
{
	struct segments s;

	segments_init(&s);
	put_head(a, &s, incomplete(a) ? "incomplete" : "completed", NULL);
	head->failed |= s.failed;
	segments_write(&s, SIZE_MAX, head);
	put_items(a, &s);
	items->failed |= s.failed;
	segments_write(&s, SIZE_MAX, items);
	put_tail(&s, &a->usage);
	tail->failed |= s.failed;
	segments_write(&s, SIZE_MAX, tail);
	segments_release(&s);
}

void responses_body_cancelled(const char *id, int64_t created, const char *model, struct buf *out)
{
	buf_puts(out, "{\"id\":");
	writer_string(out, id, strlen(id));
	buf_printf(out,
		   ",\"object\":\"response\",\"created_at\":%" PRId64
		   ",\"status\":\"cancelled\",\"background\":false,\"error\":null,"
		   "\"incomplete_details\":null,\"model\":",
		   created);
	writer_string(out, model, strlen(model));
	buf_puts(out, ",\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"tools\":[],"
		      "\"metadata\":{},\"output\":[],\"usage\":null}");
}
