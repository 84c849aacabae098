/* Answers and grammars whose memory is short (short_memory.h): responses are kept, listed and streamed, and draws are
 * restricted. A failure is an error or the end of a stream, never a wrong answer. */
#include "tests/short_memory.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/grammar/constraint.h"
#include "protocol/grammar/token_mask.h"
#include "protocol/ollama/answer.h"
#include "protocol/output/steering.h"
#include "protocol/output/tools_grammar.h"
#include "protocol/responses/answer.h"
#include "protocol/responses/list.h"
#include "tests/model_text.h"

/* ---- answers ---- */

static void attempt_store(void *arg, unsigned long n)
{
	const struct response_text text = {"\"x\"", 3};
	struct response_record r = {
		.id = "a", .owner = 1, .input = text, .output = text, .head = text, .tail = text};
	struct response_store *s = response_store_new(1 << 20, 1000);
	struct response_entry *e = response_entry_new(&r);
	struct response_hold h = {0};
	struct buf out;
	bool kept, other;

	check(s && e && response_store_put(s, e, NULL, 0));
	buf_init(&out, 1000);
	e = response_store_find(s, "a", 1, 0);
	response_store_hold(s, e, &h);
	response_store_drop(s, e);
	short_from(n);
	r.id = "b";
	e = response_entry_new(&r);
	kept = e && response_store_put(s, e, &h, 0);
	e = kept ? response_store_find(s, "b", 1, 0) : NULL;
	if (e)
		response_entry_items(e, &out);
	response_store_drop(s, e);
	r.id = "c";
	r.owner = 2;
	e = response_entry_new(&r);
	other = e && response_store_put(s, e, NULL, 0);
	check(!(kept && other && !out.failed) == short_end());
	check(response_store_count(s) == 1u + kept + other);
	response_store_release(s, &h);
	check(response_store_delete(s, "a", 1, 0) && response_store_delete(s, "b", 1, 0) == kept);
	check(response_store_delete(s, "c", 2, 0) == other && !response_store_bytes(s));
	response_store_free(s);
	buf_release(&out);
}

/* Lists items, one of them by an id with an escaped character. */
static void attempt_list(void *arg, unsigned long n)
{
	static const char items[] = "{\"role\":\"user\",\"content\":\"a\"},"
				    "{\"id\":\"\\\"\",\"role\":\"user\",\"content\":\"b\"},"
				    "{\"role\":\"assistant\",\"content\":\"c\"}";
	const struct response_text text = {items, sizeof(items) - 1};
	const struct responses_page page = {.limit = 2, .after = "item_2"};
	struct buf out;
	struct err e;
	int r;

	buf_init(&out, 1000);
	short_from(n);
	r = responses_list(&text, 1, &page, NULL, &out, &e);
	check((r < 0 || out.failed) == short_end() && (!r || r == -ENOMEM));
	buf_release(&out);
}

/* Lets an answer of a text and a call be streamed. */
static void attempt_answer(void *arg, unsigned long n)
{
	const struct openai_head h = {.id = "resp_1", .model = "m"};
	const struct responses_head head = {.fields = "\"a\":1", .fields_len = 5, .stream = true};
	const struct openai_usage u = {1, 1, 0, 0};
	struct openai_run run[] = {{KIND_CONTENT, 4}, {KIND_CALLS, 2}};
	struct openai_runs runs = {run, ARRAY_SIZE(run), 0};
	struct openai_delta d = {.content = "text",
				 .content_len = 4,
				 .runs = &runs,
				 .finish_reason = "stop"};
	struct responses_answer *a;
	struct openai_calls calls;
	struct buf out;
	int r;

	buf_init(&out, 1 << 16);
	check(!buf_reserve(&out, 1 << 15));
	openai_calls_init(&calls, 1000);
	openai_calls_begin(&calls, "f", 1);
	openai_calls_add(&calls, "{}", 2);
	d.calls = &calls;
	short_from(n);
	a = responses_answer_new(&h, &head);
	r = a ? 0 : -ENOMEM;
	if (!r)
		check(responses_answer_write(a, SIZE_MAX, &out));
	if (!r)
		r = responses_answer_take(a, &d);
	if (!r) {
		check(responses_answer_write(a, SIZE_MAX, &out));
		r = responses_answer_end(a, &u);
	}
	check(r == (short_end() ? -ENOMEM : 0));
	/* An event that the failure has cut is not written. The failure itself is, with the next number. */
	if (a && r) {
		char number[32];
		struct err e;
		int written = 0;

		for (const char *p = buf_str(&out); (p = strstr(p, "event: ")); p++)
			written++;
		snprintf(number, sizeof(number), "\"sequence_number\":%d,", written);
		err_no_memory(&e);
		buf_reset(&out);
		check(!responses_answer_fail(a, &e));
		check(responses_answer_write(a, SIZE_MAX, &out));
		check(!strncmp(buf_str(&out), "event: error\n", 13));
		check(strstr(buf_str(&out), number));
		check(strstr(buf_str(&out), "event: response.failed\n"));
	}
	responses_answer_free(a);
	openai_calls_release(&calls);
	buf_release(&out);
}

/* Lets an answer of two calls and a text be streamed in Ollama's shape, or be made whole. */
static void attempt_ollama(void *arg, unsigned long n)
{
	const struct openai_head h = {.id = "ollama-1", .model = "m"};
	const struct ollama_head own = {.model = "m", .chat = true, .stream = *(const bool *)arg};
	const struct ollama_times times = {0};
	const struct openai_usage u = {1, 1, 0, 0};
	struct openai_delta d = {.content = "text", .content_len = 4, .finish_reason = "stop"};
	struct ollama_answer *a;
	struct openai_calls calls;
	struct buf out;
	int r;

	buf_init(&out, 1 << 16);
	check(!buf_reserve(&out, 1 << 15));
	openai_calls_init(&calls, 1000);
	for (int i = 0; i < 2; i++) {
		openai_calls_begin(&calls, "f", 1);
		openai_calls_add(&calls, "{}", 2);
	}
	d.calls = &calls;
	short_from(n);
	a = ollama_answer_new(&h, &own);
	r = a ? ollama_answer_take(a, &d, 0) : -ENOMEM;
	if (!r) {
		check(ollama_answer_write(a, SIZE_MAX, &out));
		r = ollama_answer_end(a, &u, &times, 0);
	}
	check(r == (short_end() ? -ENOMEM : 0));
	if (a && r) {
		struct err e;

		err_no_memory(&e);
		buf_reset(&out);
		check(!ollama_answer_fail(a, &e));
		check(ollama_answer_write(a, SIZE_MAX, &out));
		check(!strcmp(buf_str(&out), "{\"error\":\"out of memory\"}\n"));
	}
	ollama_answer_free(a);
	openai_calls_release(&calls);
	buf_release(&out);
}

TEST(ollama)
{
	for (int stream = 0; stream < 2; stream++) {
		const unsigned long n = each_allocation(attempt_ollama, &(bool){stream});

		check(n > 4);
		ok_all("an answer in Ollama's shape at each of %lu allocations", n);
	}
}

TEST(responses)
{
	unsigned long n = each_allocation(attempt_store, NULL), m, k;
	json_malloc_t json_malloc;
	json_free_t json_free;

	m = each_allocation(attempt_answer, NULL);
	json_get_alloc_funcs(&json_malloc, &json_free);
	json_set_alloc_funcs(malloc, free);
	k = each_allocation(attempt_list, NULL);
	json_set_alloc_funcs(json_malloc, json_free);
	ok_all("%lu allocations of a store, %lu of an answer and %lu of a list: each failure is told",
	       n, m, k);
	ok(n >= 6 && m >= 8 && k >= 8, "are some");
}

/* ---- grammars ---- */

static const char *letter(const void *arg, int32_t id, size_t *len)
{
	*len = 2;
	return &"abcdefghijklmnopq\"\"{{}}::01"[id];
}

/* Builds a grammar in one of four ways, then its automaton, a vocabulary and two masks. */
static void attempt_grammar(void *arg, unsigned long n)
{
	static const struct constraint_text texts[] = {{"yes", 3}, {"no", 2}};
	static const char gbnf[] = "root ::= a | \"b\" [^a-c\u4e16]{2,3} root?\na ::= \"xy\"";
	static const char regex[] = "^(a|b+)[^\\W\\d]{2}\\p{Lu}|c$";
	static const char schema[] =
		"{\"type\": \"object\", \"properties\": {\"a\": {\"pattern\": \"^b\"}, \"c\": {\"enum\": [1, [2]], \"not\": {\"const\": 3}},"
		" \"l\": {\"contains\": {\"minimum\": 2}, \"maxContains\": 2, \"minItems\": 1}, \"u\": {\"items\": {\"enum\": [1, 2]},"
		" \"uniqueItems\": true}, \"i\": {\"multipleOf\": 3, \"oneOf\": [{\"minimum\": 1}, {\"maximum\": 9}]}},"
		" \"$id\": \"http://e.org/\", \"$anchor\": \"q\","
		" \"patternProperties\": {\"^a\": {\"type\": \"string\"}}, \"required\": [\"a\", \"d\"],"
		" \"allOf\": [{\"maxProperties\": 9}], \"anyOf\": [{\"minProperties\": 1}, {\"$ref\": \"#/$defs/x\"}],"
		" \"$defs\": {\"x\": {\"type\": \"object\", \"maxProperties\": 7}}}";
	struct token_source source = {.n = 26, .bytes = letter};
	json_t *json = json_loads(
		"{\"properties\": {\"a\": {}}, \"additionalProperties\": {\"type\": \"integer\"}}",
		0, NULL);
	json_t *large = json_loads(schema, 0, NULL);
	size_t kind = (size_t)arg;
	struct token_trie *t = NULL;
	struct token_masks *m = NULL;
	struct automaton *a = NULL;
	struct grammar *g = NULL;
	const uint32_t *mask;
	struct err e = {0};
	int r = 0;

	check(json && large);
	short_from(n);
	switch (kind) {
	case 0: r = constraint_choice(texts, 2, &g, &e); break;
	case 1: r = constraint_gbnf(gbnf, strlen(gbnf), &g, &e); break;
	case 2: r = constraint_regex(regex, strlen(regex), &g, &e); break;
	case 3: r = constraint_json_schema(json, &g, &e); break;
	case 4: r = constraint_json_schema(large, &g, &e); break;
	}
	if (r && !strstr(e.text, "memory")) {
		printf("# %s\n", e.text);
		check(!"another sentence");
	}
	if (!r)
		r = automaton_new(g, 1 << 20, NULL, &a);
	if (!r)
		r = token_trie_new(&source, &t);
	if (!r)
		r = token_masks_new(t, a, 1000, &m);
	for (uint32_t state = AUTOMATON_START; !r && state < automaton_size(a) && state < 4;
	     state++)
		r = token_mask(m, state, &mask, &e);
	check(r == (short_end() ? -ENOMEM : 0));
	token_masks_free(m);
	token_trie_free(t);
	automaton_free(a);
	grammar_free(g);
	json_decref(json);
	json_decref(large);
}

TEST(grammars)
{
	for (size_t kind = 0; kind < 5; kind++) {
		unsigned long n = each_allocation(attempt_grammar, (void *)kind);

		ok_all("grammar %zu: each of %lu allocations fails once", kind, n);
		ok(n > 10, "which are some");
	}
}

static struct tokenizer *tokenizer_of_lexis;

/* The masks of a request with a grammar, allowed tokens and bad words, while three tokens are drawn. */
static void attempt_steering(void *arg, unsigned long n)
{
	const int32_t allowed[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, ends[] = {2}, bad[] = {5, 6};
	const struct steering_word words[] = {{bad, 1}, {bad, 2}};
	const struct steering_config c = {.tokenizer = tokenizer_of_lexis,
					  .trie = arg,
					  .vocab_size = 8192,
					  .n_choices = 2,
					  .grammar = NULL,
					  .automaton_bytes = 1 << 20,
					  .allowed = allowed,
					  .n_allowed = 9,
					  .words = words,
					  .n_words = 2,
					  .ends = ends,
					  .n_ends = 1};
	struct steering_config with = c, thinking = c;
	struct steering *s[3] = {NULL};
	const uint32_t *mask;
	struct err e = {0};
	int r = 0;

	with.allowed = NULL;
	with.n_allowed = 0;
	thinking.thinking = true;
	short_from(n);
	r = constraint_regex("[a-z ]{4,90}", 12, &with.grammar, &e);
	if (!r)
		r = steering_new(&with, &s[0], &e);
	if (!r)
		r = constraint_json_object(&thinking.grammar, &e);
	if (!r)
		r = steering_new(&thinking, &s[1], &e);
	if (!r)
		r = steering_new(&c, &s[2], &e);
	for (int k = 0; !r && k < 3; k++) {
		for (size_t i = 0; !r && i < ARRAY_SIZE(s); i++) {
			int32_t id = 0;

			r = steering_mask(s[i], 1, &mask, &e);
			while (!r && !(mask[id / 32] >> id % 32 & 1))
				id++;
			if (!r)
				r = steering_take(s[i], 1, id, &e);
		}
	}
	check(r == (short_end() ? -ENOMEM : 0));
	check(!r || strstr(e.text, "memory"));
	for (size_t i = 0; i < ARRAY_SIZE(s); i++)
		steering_free(s[i]);
}

/* Two requests that share an automaton. Others take all memory then, so that one of the two leaves it when it grows. A
 * failure of the shared automaton sends that one off as well, so not every failure ends a request. */
static void attempt_shared(void *arg, unsigned long n)
{
	enum { MOST = 8 << 20 };
	static const int32_t ends[] = {2};
	static _Atomic uint64_t all, own;
	const struct account_bounds bounds = {&all, &own, MOST};
	struct steering_config c = {.tokenizer = tokenizer_of_lexis,
				    .trie = arg,
				    .vocab_size = 8192,
				    .n_choices = 1,
				    .automaton_bytes = 1 << 20,
				    .bounds = bounds,
				    .ends = ends,
				    .n_ends = 1};
	struct steering *s[2] = {NULL};
	struct account others = {0};
	struct list shared;
	const uint32_t *mask;
	struct err e = {0};
	int r = 0;

	list_init(&shared);
	check(account_open(&others, &bounds, 0) == 0);
	short_from(n);
	for (size_t i = 0; !r && i < ARRAY_SIZE(s); i++) {
		r = constraint_regex("[a-z ]{4,90}", 12, &c.grammar, &e);
		if (!r)
			r = steering_new(&c, &s[i], &e);
		if (!r)
			steering_share(s[i], &shared);
	}
	account_add(&others, MOST - all);
	for (int32_t k = 0; !r && k < 60; k++) {
		int32_t id = 700 * k % 8192;

		r = steering_mask(s[k % 2], 0, &mask, &e);
		while (!r && !(mask[id / 32] >> id % 32 & 1))
			id = (id + 1) % 8192;
		if (!r)
			r = steering_take(s[k % 2], 0, id, &e);
	}
	check(short_end() ? r == 0 || (r == -ENOMEM && strstr(e.text, "memory")) : r == 0);
	for (size_t i = 0; i < ARRAY_SIZE(s); i++)
		steering_free(s[i]);
	account_close(&others);
	check(!all && !own);
}

TEST(steering)
{
	struct token_trie *trie = NULL;
	struct err e = {0};
	unsigned long n;

	if (model_tokenizer("models/lexis", &tokenizer_of_lexis, &e) < 0 ||
	    steering_trie(tokenizer_of_lexis, NULL, 0, &trie) < 0)
		abort();
	n = each_allocation(attempt_steering, trie);
	ok_all("steering: each of %lu allocations fails once", n);
	ok(n > 30, "which are some");
	n = each_allocation(attempt_shared, trie);
	ok_all("a shared automaton: each of %lu allocations fails once", n);
	ok(n > 60, "which are some");
	token_trie_free(trie);
	tokenizer_free(tokenizer_of_lexis);
}

/* The grammar of calls of one format. */
static void attempt_calls(void *arg, unsigned long n)
{
	static const char text[] =
		"[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\","
		" \"minLength\": 2}, \"b\": {\"enum\": [\"x\", 2]}, \"c\": {\"pattern\": \"^a\"}},"
		" \"required\": [\"a\", \"d\"]}}}, {\"function\": {\"name\": \"g\"}}]";
	static const struct tool_parameter types[] = {{"b", TOOLS_STRING | TOOLS_NUMBER}};
	static const struct tool tools[] = {{"f", types, 1}, {"g"}};
	static const struct tool_list list = {tools, 2};
	json_t *json = json_loads(text, 0, NULL);
	struct tools_demand d = {
		.format = arg, .tools = json, .list = &list, .strict = true, .rest = TOOLS_OR_TEXT};
	struct grammar *g = NULL;
	struct err e = {0};
	int r;

	short_from(n);
	r = tools_grammar(&d, NULL, &g, &e);
	check(r == (short_end() ? -ENOMEM : 0));
	check(!r || strstr(e.text, "memory"));
	grammar_free(g);
	json_decref(json);
}

TEST(calls)
{
	for (size_t i = 0; i < 5; i++) {
		const struct tools_format *f = tools_format_at(i);
		unsigned long n = each_allocation(attempt_calls, (void *)f);

		ok_all("calls of %s: each of %lu allocations fails once", tools_name(f), n);
	}
}

TEST_MAIN()
