/* protocol/openai: the chunks of a stream add up to the body of the same answer. */
#include <jansson.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "tests/openai_pieces.h"
#include "tests/small_vocabulary.h"

/* What a client gets of one choice: the chunks of a stream added up, or the choice of a whole body. */
struct sum {
	struct buf content, reasoning;
	json_t *tokens, *ids; /* arrays: log-probability entries, token ids */
	json_t *lists[4];
	struct buf calls; /* names and arguments */
	size_t n_calls;
	char finish[16];
	json_t *stop; /* stop_reason; NULL: there was none */
	int finishes;
};

static const char *const list_names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};

/* Adds the calls of a message or delta. */
static void add_calls(struct sum *s, const json_t *calls)
{
	for (size_t i = 0; i < json_array_size(calls); i++) {
		const json_t *call = json_array_get(calls, i),
			     *index = json_object_get(call, "index"),
			     *function = json_object_get(call, "function"),
			     *name = json_object_get(function, "name");

		if (name)
			buf_printf(&s->calls, "|%s %s(",
				   json_string_value(json_object_get(call, "id")),
				   json_string_value(name));
		s->n_calls += name != NULL;
		check(!index || (size_t)json_integer_value(index) + 1 == s->n_calls);
		buf_puts(&s->calls, json_string_value(json_object_get(function, "arguments")));
	}
}

static void add_choice(struct sum *s, const json_t *choice, const char *part)
{
	const json_t *message = json_object_get(choice, part), *logprobs, *v;

	v = part ? json_object_get(message, "content") : json_object_get(choice, "text");
	if (json_string_value(v))
		buf_puts(&s->content, json_string_value(v));
	v = json_object_get(message, "reasoning_content");
	if (json_string_value(v))
		buf_puts(&s->reasoning, json_string_value(v));
	add_calls(s, json_object_get(message, "tool_calls"));
	logprobs = json_object_get(choice, "logprobs");
	if (json_is_object(logprobs) && part)
		json_array_extend(s->tokens, json_object_get(logprobs, "content"));
	for (int i = 0; json_is_object(logprobs) && !part && i < 4; i++)
		json_array_extend(s->lists[i], json_object_get(logprobs, list_names[i]));
	json_array_extend(s->ids, json_object_get(choice, "token_ids"));
	v = json_object_get(choice, "finish_reason");
	if (json_string_value(v)) {
		snprintf(s->finish, sizeof(s->finish), "%s", json_string_value(v));
		s->finishes++;
	}
	v = json_object_get(choice, "stop_reason");
	check(!v == !json_is_string(json_object_get(choice, "finish_reason")));
	if (v)
		s->stop = json_incref((json_t *)v);
}

static void sum_init(struct sum *s)
{
	memset(s, 0, sizeof(*s));
	buf_init(&s->content, 1 << 20);
	buf_init(&s->reasoning, 1 << 20);
	buf_init(&s->calls, 1 << 20);
	s->tokens = json_array();
	s->ids = json_array();
	for (int i = 0; i < 4; i++)
		s->lists[i] = json_array();
}

static void sum_release(struct sum *s)
{
	buf_release(&s->content);
	buf_release(&s->reasoning);
	buf_release(&s->calls);
	json_decref(s->tokens);
	json_decref(s->ids);
	json_decref(s->stop);
	for (int i = 0; i < 4; i++)
		json_decref(s->lists[i]);
}

enum { TOKENS_MAX = 40 };

/* A made-up choice: drawn tokens and their text. */
struct made {
	struct openai_token tokens[TOKENS_MAX];
	int32_t ids[TOKENS_MAX];
	size_t n, end[TOKENS_MAX]; /* end: bytes of `raw` up to the end of each token */
	/* raw: the bytes of the tokens; text: the UTF-8 that stream() made of them */
	struct buf raw, text;
	struct openai_calls calls; /* all calls that stream() has made up */
	const char *stop;	   /* as in struct openai_delta */
	const int32_t *stop_token;
};

/* Adds some pieces of calls to *piece, and to all calls. */
static void make_calls(struct made *m, struct openai_calls *piece)
{
	static const char *const texts[] = {"{", "\"", "\u00e9", "\\n", "}"};

	for (int n = rand() % 6 - 2; n > 0; n--) {
		const char *text = texts[rand() % (int)ARRAY_SIZE(texts)];

		if (!m->calls.n_begun || !(rand() % 3)) {
			openai_calls_begin(piece, "f\"", 2);
			openai_calls_begin(&m->calls, "f\"", 2);
		} else {
			openai_calls_add(piece, text, strlen(text));
			openai_calls_add(&m->calls, text, strlen(text));
		}
	}
}

static void make(struct made *m)
{
	m->n = (size_t)(rand() % TOKENS_MAX);
	buf_init(&m->raw, 1 << 16);
	buf_init(&m->text, 1 << 16);
	openai_calls_init(&m->calls, 1 << 16);
	m->stop = rand() % 2 ? "st\xc3\xb6p" : NULL;
	m->stop_token = !m->stop && m->n && rand() % 2 ? &m->ids[0] : NULL;
	for (size_t i = 0; i < m->n; i++) {
		int32_t id = rand() % (int)ARRAY_SIZE(vocabulary);

		m->tokens[i] = token(id, -(float)(rand() % 1000) / 7);
		m->tokens[i].draw.n_top = (uint32_t)(rand() % 4);
		for (uint32_t k = 0; k < m->tokens[i].draw.n_top; k++) {
			m->tokens[i].draw.top_ids[k] = rand() % (int)ARRAY_SIZE(vocabulary);
			m->tokens[i].draw.top_logprobs[k] = -(float)k;
		}
		m->ids[i] = id;
		buf_append(&m->raw, vocabulary[id].bytes, vocabulary[id].len);
		m->end[i] = m->raw.len;
	}
}

/* Streams a choice in pieces of random size, and adds its chunks to *s. The log-probabilities of a token are in the
 * piece that has the token's last byte; its id may be in any piece. */
static void stream(const struct openai_head *h, struct made *m, const char *reasoning,
		   struct sum *s)
{
	struct openai_cursor cursor = {.n_held = 0};
	size_t sent = 0, token_at = 0, id_at = 0, raw = 0;
	struct openai_calls calls;
	struct buf piece;

	buf_init(&piece, 1 << 16);
	openai_calls_init(&calls, 1 << 16);
	for (bool last = false; !last;) {
		size_t from = token_at, ids_from = id_at;
		struct openai_delta d = {.cursor = &cursor, .index = 5};
		bool cut = false;

		buf_reset(&piece);
		for (int k = rand() % 6; raw < m->raw.len && k > 0; k--) {
			const char *p = m->raw.data + raw;
			int n = utf8_sequence(p, m->raw.len - raw, &cut);

			if (cut)
				break; /* half a character at the end of the text becomes U+FFFD below */
			if (n < 0)
				buf_puts(&piece, "\xef\xbf\xbd");
			else
				buf_append(&piece, p, (size_t)n);
			raw += (size_t)abs(n);
		}
		last = cut || raw == m->raw.len;
		if (cut)
			buf_puts(&piece, "\xef\xbf\xbd");
		while (token_at < m->n && (last || m->end[token_at] <= raw))
			token_at++;
		while (id_at < m->n && (last || rand() % 3))
			id_at++;
		d.content = piece.data;
		d.content_len = piece.len;
		d.tokens = h->logprobs ? list(m->tokens + from, token_at - from) : NULL;
		d.token_ids = m->ids + ids_from;
		d.n_token_ids = id_at - ids_from;
		if (!sent && reasoning) {
			d.reasoning = reasoning;
			d.reasoning_len = strlen(reasoning);
		}
		sent++;
		openai_calls_clear(&calls);
		if (h->shape == &openai_chat)
			make_calls(m, &calls);
		d.calls = &calls;
		d.finish_reason = last ? "stop" : NULL;
		d.stop = last ? m->stop : NULL;
		d.stop_token = last ? m->stop_token : NULL;
		buf_append(&m->text, piece.data, piece.len);
		stream_delta(h, &d);
	}
	buf_release(&piece);
	openai_calls_release(&calls);
	for (char *p = out.data, *end; p && *p; p = end + 2) {
		json_t *chunk, *choice;

		end = strstr(p, "\n\n");
		check(end && !strncmp(p, "data: ", 6) && !memchr(p, '\n', (size_t)(end - p)));
		chunk = json_loadb(p + 6, (size_t)(end - p) - 6, JSON_REJECT_DUPLICATES, NULL);
		check(chunk && json_array_size(json_object_get(chunk, "choices")) == 1);
		choice = json_array_get(json_object_get(chunk, "choices"), 0);
		check(json_integer_value(json_object_get(choice, "index")) == 5);
		add_choice(s, choice, h->shape == &openai_chat ? "delta" : NULL);
		json_decref(chunk);
	}
	buf_reset(&out);
}

static bool same(const struct sum *a, const struct sum *b)
{
	bool lists = true;

	for (int i = 0; i < 4; i++)
		lists = lists && json_equal(a->lists[i], b->lists[i]);
	return lists && !strcmp(buf_str(&a->content), buf_str(&b->content)) &&
	       !strcmp(buf_str(&a->reasoning), buf_str(&b->reasoning)) &&
	       !strcmp(buf_str(&a->calls), buf_str(&b->calls)) && a->n_calls == b->n_calls &&
	       json_equal(a->tokens, b->tokens) && json_equal(a->ids, b->ids) &&
	       !strcmp(a->finish, b->finish) && a->finishes == b->finishes &&
	       json_equal(a->stop, b->stop);
}

static void joined_is_content(const struct sum *s, bool chat, const struct made *m)
{
	const json_t *list = chat ? s->tokens : s->lists[0];
	struct buf joined;

	buf_init(&joined, 1 << 16);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *t = json_array_get(list, i);

		buf_puts(&joined, json_string_value(chat ? json_object_get(t, "token") : t));
	}
	check(json_array_size(list) == m->n);
	check(!strcmp(buf_str(&joined), buf_str(&s->content)));
	buf_release(&joined);
}

TEST(sums)
{
	struct openai_usage u = {1, 1, 0, 0};
	struct ids prompt = {0};

	srand(42);
	for (int round = 0; round < 3000; round++) {
		struct openai_head h = head(round & 1);
		const char *reasoning = h.shape == &openai_chat && rand() % 2 ? "hm\xc3\xa9" : NULL;
		struct openai_choice c;
		struct sum streamed, whole;
		struct made m;
		json_t *body;

		h.logprobs = rand() % 4;
		h.n_logprobs = (uint32_t)(rand() % 4);
		h.tokens_as_ids = !(rand() % 4);
		h.return_token_ids = rand() % 2;
		h.include_usage = rand() % 2;
		make(&m);
		sum_init(&streamed);
		sum_init(&whole);
		stream(&h, &m, reasoning, &streamed);
		c.all = (struct openai_delta){.index = 5,
					      .content = m.text.data,
					      .content_len = m.text.len,
					      .reasoning = reasoning,
					      .reasoning_len = reasoning ? strlen(reasoning) : 0,
					      .calls = &m.calls,
					      .tokens = list(m.tokens, m.n),
					      .token_ids = m.ids,
					      .n_token_ids = m.n,
					      .finish_reason = "stop",
					      .stop = m.stop,
					      .stop_token = m.stop_token};
		body_of(&h, &c, 1, &prompt, 1, &u);
		body = json_loadb(buf_str(&out), out.len, JSON_REJECT_DUPLICATES, NULL);
		check(body && !out.failed);
		add_choice(&whole, json_array_get(json_object_get(body, "choices"), 0),
			   h.shape == &openai_chat ? "message" : NULL);
		check(same(&streamed, &whole) && whole.finishes == 1);
		if (h.logprobs && !h.tokens_as_ids)
			joined_is_content(&whole, h.shape == &openai_chat, &m);
		json_decref(body);
		buf_reset(&out);
		sum_release(&streamed);
		sum_release(&whole);
		buf_release(&m.raw);
		buf_release(&m.text);
		openai_calls_release(&m.calls);
	}
	ok_all("3000 random streams add up to their bodies, and tokens to their content");
}

int main(void)
{
	cuts = 0;
	buf_init(&out, 1 << 24);
	buf_init(&pieces, 1 << 24);
	run_tests();
	list(NULL, 0);
	buf_release(&out);
	buf_release(&pieces);
	return done();
}
