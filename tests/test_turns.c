/* daemon/request/turns.c: the token with which a template ends turns, and the ends of turns in a prompt, also if they
 * are too many. */
#include "daemon/request/turns.h"

#include "tests/model_text.h"
#include "tests/tap.h"

TEST(token)
{
	static const struct {
		const char *text, *token; /* NULL: none */
	} templates[] = {
		{"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% "
		 "endfor %}",
		 "<|im_end|>"},
		{"{% for m in messages %}{{ m.content }}\n\n<|endoftext|>{% endfor %}",
		 "<|endoftext|>"},
		{"{% for m in messages %}User: {{ m.content }}\n{% endfor %}", NULL},
		{"{% for m in messages %}{{ m.content + eos_token }}{% endfor %}", "<|im_end|>"},
		{"{{ raise_exception('no') }}", NULL},
		{"nothing of what was said", NULL},
	};
	json_t *arguments = json_pack("{s:s}", "eos_token", "<|im_end|>");
	struct tokenizer *t = NULL;
	struct template *p = NULL;
	struct err e = {0};

	if (!ok(!model_tokenizer("models/lexis", &t, &e) && !model_template("models/lexis", &p, &e),
		"the tokenizer and the template of lexis"))
		return;
	is_int(turns_token(p, arguments, t), tokenizer_id(t, "<|im_end|>"),
	       "lexis ends turns with <|im_end|>");
	template_free(p);
	for (size_t i = 0; i < ARRAY_SIZE(templates); i++) {
		int32_t want = templates[i].token ? tokenizer_id(t, templates[i].token) : -1;

		check(!templates[i].token || want >= 0);
		check(!template_parse("test", templates[i].text, strlen(templates[i].text), &p,
				      &e));
		check(turns_token(p, arguments, t) == want);
		template_free(p);
	}
	ok_all("the special token behind a message, or none");
	tokenizer_free(t);
	json_decref(arguments);
}

TEST(find)
{
	static const int32_t ends[] = {7, 9};
	static const int32_t prompt[] = {7, 1, 2, 9, 3, 7, 7, 4, 9};
	static int32_t many[3000];
	uint32_t found[TURNS_MAX], n;
	bool rising = true;

	n = turns_find(prompt, ARRAY_SIZE(prompt), ends, 2, found);
	is_int(n, 4, "turns that end inside the prompt");
	ok(n == 4 && found[0] == 1 && found[1] == 4 && found[2] == 6 && found[3] == 7,
	   "just behind their end tokens");
	is_int(turns_find(prompt, ARRAY_SIZE(prompt), ends, 0, found), 0, "no end tokens");
	is_int(turns_find(prompt, 1, ends, 2, found), 0, "a prompt of one token has no inside");
	is_int(turns_find(prompt, 0, ends, 2, found), 0, "nor has one of none");

	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = i % 5 == 4 ? 9 : 1;
	n = turns_find(many, ARRAY_SIZE(many), ends, 2, found);
	is_int(n, TURNS_MAX, "not more than there is room for");
	for (uint32_t i = 1; i < n; i++)
		rising = rising && found[i] > found[i - 1];
	ok(rising, "rising");
	is_int(found[0], 5, "with the first");
	is_int(found[TURNS_MAX - 1], 2995, "and the last");
	is_int(found[TURNS_MAX / 4 - 1], 5 * TURNS_MAX / 4, "the first quarter is the first ones");
	is_int(found[TURNS_MAX / 4], 2995 - 5 * (TURNS_MAX - TURNS_MAX / 4 - 1), "then the latest");
	n = turns_find(many, 5 * TURNS_MAX + 1, ends, 2, found);
	is_int(n, TURNS_MAX, "as many as there is room for");
	is_int(found[TURNS_MAX / 2], 5 * (TURNS_MAX / 2 + 1), "are all there");
}

TEST_MAIN()
