/* A choice's text, reasoning and log-probabilities, compared with its raw tokens. */
#include "daemon/request/choice.h"

#include <stdlib.h>

#include "protocol/tokenizer/tokenizer.h"
#include "tests/model_text.h"
#include "tests/random.h"
#include "tests/tap.h"

static struct tokenizer *tokenizer;
static const int32_t start_token = 1, end_token = 2, think_end = 4;

/* The results of a choice, added up over its pieces. */
struct sum {
	struct buf content, reasoning, tokens;
	struct ids ids;
	size_t n_reported, n_reasoning;
	bool covered; /* the reported tokens never had more bytes than the content and 3 for each of them */
};

static void sum_init(struct sum *s)
{
	*s = (struct sum){.covered = true};
	buf_init(&s->content, 1 << 20);
	buf_init(&s->reasoning, 1 << 20);
	buf_init(&s->tokens, 1 << 20);
}

static void sum_release(struct sum *s)
{
	buf_release(&s->content);
	buf_release(&s->reasoning);
	buf_release(&s->tokens);
	ids_release(&s->ids);
}

static void sum_add(struct sum *s, struct choice *c)
{
	struct openai_token token;

	buf_append(&s->content, buf_str(&c->content), c->content.len);
	buf_append(&s->reasoning, buf_str(&c->reasoning), c->reasoning.len);
	for (size_t at = 0; openai_tokens_next(&c->ready, &at, &token); s->n_reported++) {
		size_t len;
		const char *bytes = tokenizer_bytes(tokenizer, token.draw.token, &len);

		buf_append(&s->tokens, bytes, len - token.cut);
	}
	s->covered &= s->tokens.len <= s->content.len + 3 * s->n_reported;
	check(ids_append(&s->ids, c->token_ids.v, c->token_ids.len) == 0);
}

/* Runs tokens through a choice; a stream takes the pieces as they come. `finish` comes with the last token. *ret_last:
 * what the last choice_push returned. Returns how many tokens were pushed. */
static size_t run(const struct choice_config *config, const int32_t *ids, size_t n,
		  enum finish_reason finish, bool stream, struct sum *ret, const char **ret_finish,
		  int *ret_last)
{
	struct choice c;
	size_t i;

	*ret_last = 0;
	sum_init(ret);
	check(choice_init(&c, config) == 0);
	for (i = 0; i < n && !c.finish; i++) {
		struct draw_result draw = {.token = ids[i], .logprob = -1};

		*ret_last = choice_push(&c, &draw, i + 1 == n ? finish : FINISH_NONE);
		check(*ret_last >= 0);
		if (stream && (c.content.len || c.ready.n)) {
			sum_add(ret, &c);
			choice_clear(&c);
		}
	}
	sum_add(ret, &c);
	*ret_finish = c.finish;
	ret->n_reasoning = c.n_reasoning;
	check(c.n_drawn == i);
	choice_release(&c);
	return i;
}

static void encode(const char *text, struct ids *out)
{
	out->len = 0;
	check(tokenizer_encode(tokenizer, text, strlen(text), true, NULL, out) == 0);
}

TEST(plain)
{
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .logprobs = true,
				       .token_ids = true};
	struct ids ids = {0};
	struct sum s;
	const char *finish;
	int last;

	encode("A violin has four strings: \xf0\x9f\x8e\xbb!", &ids);
	check(ids_push(&ids, end_token) == 0);
	run(&config, ids.v, ids.len, FINISH_STOP, true, &s, &finish, &last);
	is_str(buf_str(&s.content), "A violin has four strings: \xf0\x9f\x8e\xbb!", "content");
	is_str(buf_str(&s.tokens), buf_str(&s.content), "the reported tokens are the content");
	is_str(finish, "stop", "an end token stops");
	is_int(last, 0, "which the engine knows");
	ok(s.ids.len == ids.len && s.ids.v[s.ids.len - 1] == end_token,
	   "the ids have the end token");
	sum_release(&s);
	run(&config, ids.v, 3, FINISH_LENGTH, false, &s, &finish, &last);
	is_str(finish, "length", "length");
	is_str(buf_str(&s.tokens), buf_str(&s.content), "the reported tokens are the content");
	sum_release(&s);
	ids.v[2] = start_token;
	run(&config, ids.v, ids.len, FINISH_STOP, true, &s, &finish, &last);
	ok(!strstr(buf_str(&s.content), "<|") && s.n_reported == ids.len - 2,
	   "a special token inside is neither text nor reported");
	ok(s.ids.len == ids.len && s.ids.v[2] == start_token, "but is among the ids");
	is_str(buf_str(&s.tokens), buf_str(&s.content), "the others are the content");
	sum_release(&s);
	ids_release(&ids);
}

TEST(reasoning)
{
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .thinking = true,
				       .logprobs = true};
	struct ids ids = {0};
	struct sum s;
	const char *finish;
	int last;

	encode("Let me think.\n</think>\n\nIt is a bow.", &ids);
	for (int stream = 0; stream < 2; stream++) {
		run(&config, ids.v, ids.len, FINISH_LENGTH, stream, &s, &finish, &last);
		is_str(buf_str(&s.content), "It is a bow.", "content behind </think>");
		is_str(buf_str(&s.reasoning), "Let me think.\n", "reasoning before it");
		ok(s.n_reasoning > 3 && ids.v[s.n_reasoning - 1] == think_end,
		   "its tokens are counted, the tag with them");
		is_str(buf_str(&s.tokens), "It is a bow.",
		       "only tokens of the content are reported");
		sum_release(&s);
	}
	config.thinking = false;
	run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
	is_str(buf_str(&s.tokens), buf_str(&s.content), "a stray tag takes nothing from the rest");
	ok(!strstr(buf_str(&s.content), "think>"), "and shows nowhere");
	sum_release(&s);
	config.reasoning = false;
	run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
	is_str(buf_str(&s.content), "Let me think.\n</think>\n\nIt is a bow.",
	       "completions keep tags");
	is_str(buf_str(&s.tokens), buf_str(&s.content), "and report them");
	sum_release(&s);
	ids_release(&ids);
}

TEST(stop)
{
	const char *strings[] = {" strings", "zzz"};
	struct stops *stops = stops_new(strings, 2);
	struct choice_config config = {.tokenizer = tokenizer,
				       .reasoning = true,
				       .logprobs = true,
				       .stops = stops};
	struct ids ids = {0};
	struct sum s;
	const char *finish;
	int last;
	size_t n;

	encode("It has four strings and a bow", &ids);
	n = run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
	is_str(buf_str(&s.content), "It has four", "text ends before the stop string");
	is_str(buf_str(&s.tokens), "It has four", "so do the reported tokens");
	is_str(finish, "stop", "finish reason");
	is_int(last, 1, "the engine has to be told");
	ok(n < ids.len, "and nothing more was taken");
	sum_release(&s);
	/* The stop string begins inside a token: " strings" without its space. */
	strings[0] = "trings";
	stops_free(stops);
	config.stops = stops = stops_new(strings, 2);
	run(&config, ids.v, ids.len, FINISH_LENGTH, true, &s, &finish, &last);
	is_str(buf_str(&s.content), "It has four s", "text ends inside a token");
	is_str(buf_str(&s.tokens), "It has four s", "which is reported in part");
	stops_free(stops);
	sum_release(&s);
	/* The last token is the first byte of a character of three. It becomes U+FFFD, which is the stop string, when
	 * no other byte follows. */
	strings[0] = "\xef\xbf\xbd";
	config.stops = stops = stops_new(strings, 1);
	for (int end = FINISH_STOP; end <= FINISH_LENGTH; end++) {
		ids.len = 0;
		encode("bow", &ids);
		check(ids_push(&ids, tokenizer_id(tokenizer, "\xe2")) == 0);
		if (end == FINISH_STOP)
			check(ids_push(&ids, end_token) == 0);
		run(&config, ids.v, ids.len, (enum finish_reason)end, true, &s, &finish, &last);
		is_str(finish, "stop", "a stop string that broken bytes complete");
		is_str(buf_str(&s.content), "bow", "ends the text");
		is_str(buf_str(&s.tokens), "bow", "and the reported tokens");
		is_int(last, 0, "the engine has ended the choice already");
		sum_release(&s);
	}
	stops_free(stops);
	ids_release(&ids);
}

/* With every_token (for an echo) tokens without bytes, such as the end token, are reported, too. */
TEST(every_token)
{
	struct choice_config config = {.tokenizer = tokenizer,
				       .logprobs = true,
				       .every_token = true};
	struct ids ids = {0};

	encode("A bow", &ids);
	check(ids_push(&ids, start_token) == 0 && ids_push(&ids, end_token) == 0);
	for (int stream = 0; stream < 2; stream++) {
		struct openai_token token = {.cut = 1}, first = {.cut = 1};
		struct choice c;
		size_t n = 0;

		check(choice_init(&c, &config) == 0);
		for (size_t i = 0; i < ids.len; i++) {
			struct draw_result draw = {.token = ids.v[i], .logprob = -1};

			if (stream) {
				n += c.ready.n;
				choice_clear(&c);
			}
			check(choice_push(&c, &draw,
					  i + 1 == ids.len ? FINISH_STOP : FINISH_NONE) == 0);
		}
		is_int((long long)(n + c.ready.n), (long long)ids.len, "each token is reported");
		for (size_t at = 0; openai_tokens_next(&c.ready, &at, &token);)
			if (first.cut)
				first = token;
		ok(token.draw.token == end_token && token.cut == strlen("<|im_end|>"),
		   "the end token without its text");
		ok(stream || (!first.cut && first.draw.token == ids.v[0]), "in their order");
		ok(choice_bytes(&c) == c.content.cap + c.ready.bytes.cap &&
			   c.content.cap > c.content.len && c.ready.bytes.cap > c.ready.bytes.len,
		   "the memory of the results is counted, also where they have room for more");
		is_str(stream ? "A bow" : buf_str(&c.content), "A bow",
		       "and the text has none of them");
		choice_release(&c);
	}
	ids_release(&ids);
}

/* Any tokens, any stops: the pieces of a stream add up to the whole answer, and the reported tokens to the content. */
TEST(random)
{
	static const char *const words[] = {"e",       "a ",	   "th", "\n",
					    "<think>", "</think>", "<",	 " of"};

	for (int turn = 0; turn < 4000; turn++) {
		const char *strings[4], *finish[2];
		size_t n_strings = random_below(3);
		struct stops *stops;
		struct choice_config config = {
			.tokenizer = tokenizer,
			.reasoning = random_below(3) != 0,
			.logprobs = true,
			.token_ids = true,
		};
		enum finish_reason end = random_below(2) ? FINISH_STOP : FINISH_LENGTH;
		int32_t ids[40];
		size_t n = 1 + random_below(ARRAY_SIZE(ids)), taken[2];
		bool valid;
		struct sum s[2];
		int last[2];

		config.thinking = config.reasoning && random_below(2);
		for (size_t i = 0; i < n_strings; i++)
			strings[i] = words[random_below(ARRAY_SIZE(words))];
		config.stops = stops = stops_new(strings, n_strings);
		for (size_t i = 0; i < n; i++)
			ids[i] = random_below(8) ? (int32_t)random_below(600)
						 : 3 + (int32_t)random_below(2);
		for (int stream = 0; stream < 2; stream++)
			taken[stream] = run(&config, ids, n, end, stream, &s[stream],
					    &finish[stream], &last[stream]);
		check(taken[0] == taken[1] && last[0] == last[1] && !strcmp(finish[0], finish[1]));
		check(s[0].content.len == s[1].content.len &&
		      !memcmp(buf_str(&s[0].content), buf_str(&s[1].content), s[0].content.len));
		check(s[0].reasoning.len == s[1].reasoning.len);
		check(s[0].tokens.len == s[1].tokens.len &&
		      !memcmp(buf_str(&s[0].tokens), buf_str(&s[1].tokens), s[0].tokens.len));
		check(s[0].n_reported == s[1].n_reported && s[1].covered);
		check(s[0].ids.len == taken[0] && s[1].ids.len == taken[1]);
		check(!config.reasoning ||
		      !memmem(buf_str(&s[0].content), s[0].content.len, "<think>", 7));
		/* Where no bytes had to be replaced, the tokens are the content. */
		valid = !memmem(buf_str(&s[0].content), s[0].content.len, "\xef\xbf\xbd", 3);
		if (valid)
			check(s[0].tokens.len == s[0].content.len &&
			      !memcmp(buf_str(&s[0].tokens), buf_str(&s[0].content),
				      s[0].tokens.len));
		sum_release(&s[0]);
		sum_release(&s[1]);
		stops_free(stops);
	}
	ok_all("random tokens and stops: a stream adds up to the whole");
}

int main(int argc, char **argv)
{
	struct err e = {0};

	if (!ok(model_tokenizer(argc > 1 ? argv[1] : "models/lexis", &tokenizer, &e) == 0,
		"tokenizer: %s", e.text))
		return done();
	run_tests();
	ok_all("nothing else");
	tokenizer_free(tokenizer);
	return done();
}
